"""What λ̂ does when two layers of a ReLU network are rescaled by c and 1/c, which changes no output.

Trains a small ReLU network, multiplies its first layer by c and divides its second by c, and measures λ̂ with the
default localisation γ = d/‖w*‖², λ̂ with γ held at its value for c = 1, and half the Hessian's soft rank at the same
resolution. Writes a table and a figure.

    python benchmarks/rescaling.py --out benchmarks/results/rescaling --figure docs/images/rescaling.png
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import matplotlib
import torch
from torch import nn

import basinscope as bs

matplotlib.use("Agg")
from matplotlib import pyplot as plt

FACTORS = [10 ** (k / 2) for k in range(-4, 5)]


def trained(n: int = 1000, inputs: int = 4, hidden: int = 6) -> tuple[nn.Sequential, torch.Tensor, torch.Tensor]:
    """A network at a minimum of its loss, in float64, on data from a smaller teacher with noise."""
    torch.manual_seed(0)
    x = torch.randn(n, inputs, dtype=torch.float64)
    teacher = nn.Sequential(nn.Linear(inputs, 3), nn.ReLU(), nn.Linear(3, 1)).double()
    y = 2 * teacher(x).detach() + 0.5 * torch.randn(n, 1, dtype=torch.float64)
    net = nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, 1)).double()
    optimizer = torch.optim.LBFGS(
        net.parameters(), max_iter=5000, tolerance_grad=1e-10, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = 0.5 * (net(x) - y).square().mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    return net, x, y


def rescaled(net: nn.Sequential, factor: float) -> nn.Sequential:
    """The first layer times `factor`, the second layer's weights divided by it: the same function."""
    twin = nn.Sequential(nn.Linear(net[0].in_features, net[0].out_features), nn.ReLU(), nn.Linear(6, 1)).double()
    state = {name: value.clone() for name, value in net.state_dict().items()}
    state["0.weight"] *= factor
    state["0.bias"] *= factor
    state["2.weight"] /= factor
    twin.load_state_dict(state)
    return twin


def measure(land: bs.Landscape, gamma: float | None, budget: float, seed: int) -> dict[str, float | str]:
    """λ̂ and half the soft rank at its resolution."""
    estimate = bs.llc(land, gamma=gamma, budget=budget, seed=seed, progress=False)
    found = estimate.diagnostics
    return {
        "gamma": found["gamma"],
        "llc": estimate.value,
        "stderr": estimate.stderr,
        "verdict": estimate.verdict,
        "half_soft_rank": found["half_soft_rank"],
        "virial": found["virial"],
    }


def draw(rows: list[dict[str, float | str]], path: Path, dimension: int) -> None:
    """λ̂ and half the soft rank against c, for both choices of γ."""
    figure, axis = plt.subplots(figsize=(6.4, 4), layout="constrained")
    for kind, colour, label in (("default", "#0b6e8a", "γ = d/‖w*‖²"), ("fixed", "#c2571a", "γ as at c = 1")):
        own = [row for row in rows if row["kind"] == kind]
        c = [row["factor"] for row in own]
        axis.errorbar(
            c,
            [row["llc"] for row in own],
            [1.645 * float(row["stderr"]) for row in own],
            fmt="-",
            color=colour,
            capsize=3,
        )
        for verdict, filled in (("ok", colour), ("doubtful", "white")):
            points = [row for row in own if row["verdict"] == verdict]
            axis.plot(
                [row["factor"] for row in points],
                [row["llc"] for row in points],
                "o",
                color=colour,
                markerfacecolor=filled,
                markersize=5,
                label=f"λ̂, {label}" if verdict == "ok" else None,
            )
        axis.plot(c, [row["half_soft_rank"] for row in own], "--", color=colour, label=f"½ soft rank, {label}")
    axis.axhline(dimension / 2, color="0.6", linewidth=1)
    axis.text(FACTORS[0], dimension / 2, " d/2", va="bottom", color="0.4")
    axis.set(xscale="log", xlabel="first layer × c, second layer ÷ c", ylabel="effective dimension", ylim=(0, None))
    axis.plot([], [], "o", color="0.3", markerfacecolor="white", markersize=5, label="verdict: doubtful")
    axis.legend(frameon=False, fontsize=9)
    axis.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=160)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="table, without its suffix")
    parser.add_argument("--figure", type=Path, required=True)
    parser.add_argument("--budget", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    net, x, y = trained()
    rows: list[dict[str, float | str]] = []
    plain = bs.Landscape(net, "mse", (x, y))
    gamma = plain.dimension / float(plain.flatten(plain.parameters).square().sum())
    for kind in ("default", "fixed"):
        for factor in FACTORS:
            land = bs.Landscape(rescaled(net, factor), "mse", (x, y))
            row = measure(land, None if kind == "default" else gamma, options.budget, options.seed)
            rows.append({"kind": kind, "factor": factor, "loss": float(land.per_sample().mean()), **row})
            print(rows[-1], flush=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with options.out.with_suffix(".csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    draw(rows, options.figure, plain.dimension)


if __name__ == "__main__":
    main()
