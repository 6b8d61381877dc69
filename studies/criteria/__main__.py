"""Criteria and their asymptotic laws: what theory predicts beside what is found.

    python -m studies.criteria                     all parts; writes results/criteria/
    python -m studies.criteria --only laws rates   some of them

Parts: laws and rates (the coin of coin.py, exact means over data sets), fluctuation (ν̂ on minibatches beside all data,
for a network on scikit-learn's digits), symmetries (the bound (d − k)/2 beside λ̂).
"""

from __future__ import annotations

import argparse
import csv
import math
import platform
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import basinscope as bs
from basinscope.measures.evidence import Asked, chains_of
from basinscope.measures.fluctuation import Visits
from basinscope.measures.pointwise import Stream
from basinscope.sampling.draws import draws as onward

from . import coin

RESULTS = Path(__file__).parents[2] / "results" / "criteria"
SIZES = (10**3, 10**4, 10**5, 10**6)
BETAS = (0.5, 1.0, 2.0)
ROUNDING = 3e-11  # differences of criteria below this are rounding

Row = dict[str, Any]


def laws() -> Iterator[Row]:
    """n E[Bg], n E[Bt], n E[Gg], n E[Gt], E[V] and n(Bg + Cv) against λ and ν."""
    for kind, lam in coin.KINDS.items():
        for beta in BETAS:
            nu = coin.fluctuation(kind, beta)
            limits = {
                "bayes": (lam - nu) / beta + nu,
                "bayes_training": (lam - nu) / beta - nu,
                "gibbs": lam / beta + nu,
                "gibbs_training": lam / beta - nu,
                "variance": 2 * nu / beta,
                "symmetry": 2 * lam / beta,
            }
            for n in SIZES:
                found = coin.means(kind, n, beta)
                for name, limit in limits.items():
                    value = getattr(found, name)
                    common = {"model": kind, "lambda": lam, "nu": nu, "beta": beta, "n": n}
                    yield common | {"quantity": name, "value": value, "limit": limit, "correlation": found.correlation}


def rates() -> Iterator[Row]:
    """Root mean square of CvL − WAIC over data sets, and the exponent of n from one size to the next."""
    for kind in coin.KINDS:
        for beta in BETAS:
            before: tuple[int, float] | None = None
            for n in (300, 1000, 3000, 10**4, 3 * 10**4, 10**5, 3 * 10**5, 10**6):
                gap = coin.means(kind, n, beta).gap
                if gap < ROUNDING:
                    break
                slope = math.nan if before is None else math.log(gap / before[1]) / math.log(n / before[0])
                yield {"model": kind, "beta": beta, "n": n, "gap": gap, "exponent": slope}
                before = n, gap


def digits(width: int = 16, steps: int = 400) -> bs.Landscape:
    """A network 64-width-10 trained on scikit-learn's digits to a minimum with a little weight decay."""
    x, y = load_digits(return_X_y=True)
    inputs, target = torch.tensor(x / 16, dtype=torch.float32), torch.tensor(y)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, width), nn.Tanh(), nn.Linear(width, 10))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01, weight_decay=1e-4)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(inputs), target).backward()
        optimizer.step()
    return bs.Landscape(net, "cross_entropy", (inputs, target))


def fluctuation(seeds: int = 4, draws: int = 150) -> Iterator[Row]:
    """ν̂ on m samples per draw, beside ν̂ of the same draws on all samples."""
    land = digits()
    for beta in (1.0, 1 / math.log(land.n)):
        for seed in range(seeds):
            asked = Asked(beta, gamma=10.0, sampler="hmc", chains=16, budget=10.0, seed=seed)
            sampler, outcome = chains_of(land, asked, lambda fraction, text: None)
            chains = len(outcome.displacement)
            stream = Stream(land.n, beta=beta, groups=chains)
            sizes = [math.ceil(land.n / share) for share in (2, 8, 32, 128, 512)]
            parts = {size: Visits(chains, land.n, size, seed) for size in sizes}
            for delta, _ in onward(sampler, outcome, draws, seed=seed + 2):
                losses = sampler.losses.per_sample(delta)
                stream.add(-losses)
                for part in parts.values():
                    indices = part.next()
                    part.add(indices, (losses - sampler.losses.base).gather(1, indices))
            full, error = stream.estimate(lambda each: each.fluctuation)
            for size, part in parts.items():
                value = 0.5 * beta * part.variance()
                left = [part.variance(np.delete(np.arange(chains), g)) for g in range(chains)]
                yield {
                    "beta": beta,
                    "seed": seed,
                    "samples": size,
                    "visits": draws * chains * size / land.n,
                    "value": value,
                    "stderr": 0.5 * beta * math.sqrt((chains - 1) * np.var(left)),
                    "full": full,
                    "full_stderr": error,
                    "off": value / full - 1,
                }


def symmetries() -> Iterator[Row]:
    """Flat directions proved, the bound they give, and λ̂, for networks at a truth they can express."""
    cases = {
        "relu 1-3-1": ([1, 3, 1], nn.ReLU),
        "relu 2-4-3-1": ([2, 4, 3, 1], nn.ReLU),
        "relu 4-8-3": ([4, 8, 3], nn.ReLU),
        "linear 4-3-4": ([4, 3, 4], nn.Identity),
        "linear 3-3-3-3": ([3, 3, 3, 3], nn.Identity),
        "silu 2-4-1": ([2, 4, 1], nn.SiLU),
    }
    for name, (widths, activation) in cases.items():
        generator = torch.Generator().manual_seed(1)
        layers: list[nn.Module] = []
        for inner, outer in pairwise(widths):
            layers += [nn.Linear(inner, outer), activation()]
        net = nn.Sequential(*layers[:-1]).double()
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
            x = torch.randn(1000, widths[0], generator=generator, dtype=torch.float64)
            y = net(x)
        land = bs.Landscape(net, "mse", (x, y))
        found = bs.symmetries(land, llc=bs.llc(land, nbeta=1e4, gamma=1.0, rtol=0.05, budget=30.0, progress=False))
        assert found.llc is not None
        yield {
            "network": name,
            "parameters": land.dimension,
            **{kind: found.kinds.get(kind, 0) for kind in ("rescaling", "mixing", "idle")},
            "flat": found.count,
            "residual": found.residual,
            "bound": found.bound,
            "llc": found.llc.value,
            "llc_stderr": found.llc.stderr,
            "verdict": found.llc.verdict,
        }


PARTS = {"laws": laws, "rates": rates, "fluctuation": fluctuation, "symmetries": symmetries}


def read(part: str) -> list[Row]:
    path = RESULTS / f"{part}.csv"
    if not path.exists():
        return []
    with path.open() as file:
        return list(csv.DictReader(file))


def figure() -> None:
    """The laws' approach and the rates, from the tables."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    found, gaps = read("laws"), read("rates")
    if not found or not gaps:
        return
    plot, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    colours = {0.5: "C0", 1.0: "C1", 2.0: "C2"}
    for beta, colour in colours.items():
        for quantity, style in (("bayes", "-"), ("bayes_training", "--"), ("variance", ":")):
            rows = [
                row
                for row in found
                if row["model"] == "square" and float(row["beta"]) == beta and row["quantity"] == quantity
            ]
            left.plot([int(r["n"]) for r in rows], [float(r["value"]) for r in rows], style, color=colour, marker=".")
            left.axhline(float(rows[0]["limit"]), color=colour, linewidth=0.5)
    left.set(xscale="log", xlabel="n", title="square: n E[Bg] (—), n E[Bt] (- -), E[V] (···); limits thin")
    for kind, style in (("square", "-"), ("product", "--"), ("regular", ":")):
        for beta, colour in colours.items():
            rows = [row for row in gaps if row["model"] == kind and float(row["beta"]) == beta]
            label = f"{kind}, β = {beta:g}"
            n, gap = [int(r["n"]) for r in rows], [float(r["gap"]) for r in rows]
            right.plot(n, gap, style, color=colour, marker=".", label=label)
    right.set(xscale="log", yscale="log", xlabel="n", title="root mean square of CvL − WAIC")
    right.legend(fontsize=7)
    plot.savefig(RESULTS / "criteria.png", dpi=120)


def summary() -> str:
    """The tables in words."""
    lines = [
        "# Criteria: theory beside what is found",
        "",
        f"Written by `python -m studies.criteria` (Basinscope {bs.__version__}, torch {torch.__version__}, "
        f"Python {platform.python_version()}, CPU). All rows are in the CSV files beside this page.",
    ]
    found = [row for row in read("laws") if int(row["n"]) == SIZES[-1]]
    if found:
        lines += ["", "## Laws of the errors at n = 10⁶, exact means over data sets", ""]
        lines += [
            "A coin with log-odds θ₀ + c(w), see `studies/criteria/coin.py`: c = a (λ = ½), a² (λ = ¼), ab (λ = ½, "
            "θ = 2,"
        ]
        lines += ["whose approach is logarithmic). `symmetry` is n(Bg + Cv) − (β − 1)V.", ""]
        lines += ["| model | β | quantity | value | limit |", "|---|---|---|---|---|"]
        lines += [
            f"| {r['model']} | {r['beta']} | {r['quantity']} | {float(r['value']):.5f} | {float(r['limit']):.5f} |"
            for r in found
        ]
    gaps = read("rates")
    if gaps:
        lines += ["", "## CvL − WAIC: exponent of n at the largest n above rounding", ""]
        lines += [
            "Theory: −3/2 in general, −2 at β = 1. A regular posterior is symmetric at leading order, and does better.",
            "",
        ]
        lines += ["| model | β | n | root mean square | exponent |", "|---|---|---|---|---|"]
        last = {(r["model"], r["beta"]): r for r in gaps}
        lines += [
            f"| {r['model']} | {r['beta']} | {r['n']} | {float(r['gap']):.2e} | {float(r['exponent']):.3f} |"
            for r in last.values()
        ]
    part = read("fluctuation")
    if part:
        lines += ["", "## ν̂ on minibatches, network 64-16-10 on digits (n = 1797, d = 1210)", ""]
        lines += [
            "Same draws, their losses taken on m samples per draw and chain; mean over seeds of the difference from all"
        ]
        lines += ["samples, its root mean square, and the Monte Carlo error of either.", ""]
        lines += ["| β | m | m/n | times a sample is seen | mean off | rms off | stderr | stderr of all | ν̂ of all |"]
        lines += ["|---|---|---|---|---|---|---|---|---|"]
        keys = sorted({(float(r["beta"]), int(r["samples"])) for r in part}, reverse=True)
        for beta, samples in keys:
            rows = [r for r in part if float(r["beta"]) == beta and int(r["samples"]) == samples]
            off = np.array([float(r["off"]) for r in rows])
            full = np.array([float(r["full"]) for r in rows])
            errors = [np.mean([float(r[key]) for r in rows]) / full.mean() for key in ("stderr", "full_stderr")]
            lines.append(
                f"| {beta:.3g} | {samples} | {samples / 1797:.2%} | {float(rows[0]['visits']):.1f} | "
                f"{off.mean():+.2%} | {np.sqrt((off**2).mean()):.2%} | {errors[0]:.2%} | {errors[1]:.2%} | "
                f"{full.mean():.2f} |"
            )
    flat = read("symmetries")
    if flat:
        lines += ["", "## Flat directions and the bound on λ, truth expressible, nβ = 10⁴, γ = 1", ""]
        lines += ["| network | d | flat directions | largest residual | (d − k)/2 | λ̂ |", "|---|---|---|---|---|---|"]
        lines += [
            f"| {r['network']} | {r['parameters']} | {r['flat']} | {float(r['residual']):.1e} | {r['bound']} | "
            f"{float(r['llc']):.3f} ± {float(r['llc_stderr']):.3f} ({r['verdict']}) |"
            for r in flat
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=PARTS, default=list(PARTS))
    RESULTS.mkdir(parents=True, exist_ok=True)
    for part in parser.parse_args().only:
        began = time.process_time()
        rows = list(PARTS[part]())
        with (RESULTS / f"{part}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)
        print(f"{part}: {len(rows)} rows, {time.process_time() - began:.0f} s of CPU", flush=True)
    figure()
    (RESULTS / "README.md").write_text(summary())


if __name__ == "__main__":
    main()
