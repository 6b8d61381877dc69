"""Learning coefficients from how volumes shrink, beside exact ones; and NUTS and the engine beside exact moments.

    python -m studies.volume_scaling [--particles 512] [--out results/volume-scaling]

Landscapes without noise at their minimum, where the law V(ε) ∝ ε^λ (log 1/ε)^(θ−1) holds down to ε = 0. Writes
`volumes.csv` and `volumes.png`, and `samplers.csv`: the mean energy nβ·K of the hyperbola and of a banana by
either sampler, beside the exact value.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from scipy import stats
from torch import Tensor, nn

import basinscope as bs
from basinscope import exact
from basinscope.measures.volume_figure import draw_exponents
from basinscope.sampling.chains import ChainLosses
from basinscope.sampling.diagnostics import summarize
from basinscope.sampling.local import Settings
from basinscope.sampling.nuts import local_density, nuts
from basinscope.sampling.tempered import tempered_means
from studies.common.planted import Bottleneck, Tanh

PLACES = torch.tensor(stats.norm.ppf((np.arange(40) + 0.5) / 40))[:, None]


class Function(nn.Module):
    """A residual r(w), whose half square is K."""

    def __init__(self, residual: Callable[[Tensor], Tensor], dimension: int) -> None:
        super().__init__()
        self.residual = residual
        self.w = nn.Parameter(torch.zeros(dimension, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return self.residual(self.w).expand(len(x), -1)


def function(residual: Callable[[Tensor], Tensor], dimension: int) -> bs.Landscape:
    """K = ½‖r(w)‖² at w = 0."""
    outputs = len(residual(torch.zeros(dimension, dtype=torch.float64)))
    zeros = torch.zeros(1, outputs, dtype=torch.float64)
    return bs.Landscape(Function(residual, dimension), "mse", (zeros[:, :1], zeros))


def noiseless(net: nn.Module, x: Tensor) -> bs.Landscape:
    """The network's own outputs as targets."""
    with torch.no_grad():
        return bs.Landscape(net, "mse", (x, net(x)))


def cases() -> Iterator[tuple[str, bs.Landscape, exact.Coefficient]]:
    orthogonal, _ = torch.linalg.qr(torch.randn(40, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
    x = orthogonal * math.sqrt(40)
    yield "regular, 3 parameters", function(lambda w: w, 3), exact.regular(3)
    yield "hyperbola (xy)²", function(lambda w: w.prod()[None], 2), exact.normal_crossing([1, 1])
    yield "cusp (x² − y³)²", function(lambda w: (w[0] ** 2 - w[1] ** 3)[None], 2), exact.curve_squared(2, 3)
    yield "reduced rank 2–2–2, rank 0", noiseless(Bottleneck(2, 2, 2, 0), x), exact.reduced_rank(2, 2, 2, 0)
    yield "reduced rank 2–2–3, rank 1", noiseless(Bottleneck(2, 2, 3, 1), x), exact.reduced_rank(2, 2, 3, 1)
    yield "two tanh units", noiseless(Tanh(2), PLACES), exact.tanh_one_input(2)


def volumes(out: Path, particles: int) -> pd.DataFrame:
    rows = []
    figure = Figure(figsize=(12, 7), layout="constrained")
    panels = figure.subplots(2, 3)
    for number, (name, land, (value, theta)) in enumerate(cases()):
        est = bs.volume_scaling(land, gamma=1.0, smallest=1e-10, multiplicity=theta, particles=particles)
        axes = panels.flat[number]
        draw_exponents(axes, est)
        axes.set_title(f"{name}\nλ̂ = {est.value:.3f} ± {est.stderr:.3f},  λ = {value},  θ = {theta}", fontsize=10)
        rows.append(
            {
                "landscape": name, "llc": est.value, "stderr": est.stderr, "exact": float(value), "multiplicity": theta,
                "relative_error": est.value / float(value) - 1, "verdict": est.verdict,
                "smallest": est.diagnostics["levels"][-1], "log_volume": est.diagnostics["log_volume"][-1],
                "log_volume_stderr": est.diagnostics["log_volume_stderr"][-1],
                "evaluations": est.diagnostics["evaluations"],
            }
        )  # fmt: skip
    figure.savefig(out / "volumes.png", dpi=120)
    return pd.DataFrame(rows)


def samplers() -> pd.DataFrame:
    """E[nβ·K] of targets whose exact value is known, with γ = 1."""
    hyperbola = function(lambda w: w.prod()[None], 2)
    # ½(y − (x² − 1)/2)², with x and y standard normal under the localiser: an integral over x.
    banana = function(lambda w: (w[1] - 0.5 * (w[0] ** 2 - 1))[None], 2)
    base = 0.5 * 0.25  # K at the origin, which both samplers subtract
    targets = [(f"hyperbola, nβ = {t:g}", hyperbola, t, exact.finite.hyperbola(t, 1.0)) for t in (4.0, 200.0)]
    targets += [(f"banana, nβ = {t:g}", banana, t, _banana(t) - t * base) for t in (1.0, 20.0)]
    rows = []
    for name, land, nbeta, value in targets:
        for acceptance in (0.8, 0.95):
            run = nuts(local_density(ChainLosses(land), nbeta, 1.0), torch.zeros(2), draws=1500, acceptance=acceptance)
            excess = ChainLosses(land).excess(torch.as_tensor(run.draws.reshape(-1, 2))).numpy().reshape(4, -1)
            found = summarize(nbeta * excess, (nbeta * excess) ** 2, 1)
            rows.append(
                _row(
                    name, f"NUTS, acceptance {acceptance}", found.mean, found.stderr, value, int(run.divergences.sum())
                )
            )
        mean = tempered_means(land, [nbeta], 1.0, Settings("hmc", rtol=0.01, budget=20), lambda fraction, text: None)[0]
        warm = mean.mean * nbeta, mean.stderr * nbeta  # of one sample: n = 1
        rows.append(_row(name, "engine", *warm, value, mean.divergences))
    return pd.DataFrame(rows)


def _row(target: str, sampler: str, mean: float, stderr: float, value: float, divergences: int) -> dict[str, Any]:
    return {
        "target": target, "sampler": sampler, "mean": mean, "stderr": stderr, "exact": value,
        "off": (mean - value) / stderr, "divergences": divergences,
    }  # fmt: skip


def _banana(nbeta: float) -> float:
    """E[(nβ/2)(y − m(x))²] under exp(−(nβ/2)(y − m)² − x²/2 − y²/2): given x, y is Gaussian; a sum over a grid of x."""
    x = np.linspace(-9, 9, 20001)
    m = 0.5 * (x**2 - 1)
    shrunk = nbeta / (nbeta + 1)
    weight = np.exp(-0.5 * x**2 - 0.5 * shrunk * m**2)
    energy = 0.5 * nbeta * ((shrunk * m - m) ** 2 + 1 / (nbeta + 1))
    return float((weight * energy).sum() / weight.sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--particles", type=int, default=512)
    parser.add_argument("--out", type=Path, default=Path("results/volume-scaling"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for name, table in (("volumes", volumes(given.out, given.particles)), ("samplers", samplers())):
        table.to_csv(given.out / f"{name}.csv", index=False)
        print(table.to_string(index=False, float_format=lambda x: f"{x:.4g}"))


if __name__ == "__main__":
    main()
