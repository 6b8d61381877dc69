"""What the auditor says of chains that devinterp made: sound ones, and ones with a defect each.

    python benchmarks/auditing.py                what benchmarks/results/auditing.csv lacks, and the page
    python benchmarks/auditing.py --afresh       everything again
    python benchmarks/auditing.py --seeds 1      fewer runs

A linear regression of known λ_t is sampled by devinterp 1.3.2 and 2.0.1, each in an environment of its own. What they
leave behind, a dict of losses or a Zarr store, is all that the auditor reads, besides facts of the landscape.
"""

from __future__ import annotations

import argparse
import platform
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ledger
import numpy as np
import torch
from samplers.elsewhere import ONE, TWO, answer

import basinscope as bs
from basinscope.files import write_whole

RESULTS = Path(__file__).parent / "results"
SAMPLES, INPUTS, GAMMA = 200, 20, 1.0
SOUND = "sound"
TOOLS = {ONE.label: (ONE, "devinterp_1_chains", ".npz"), TWO.label: (TWO, "devinterp_2_chains", ".zarr")}
COMMON = {"steps": 2000, "burn_in": 0, "chains": 4, "batch": SAMPLES, "gamma": GAMMA, "dtype": "float32", "apart": 0.0}
# Each kind by what was done to it: `pace` is the step size in units of the inverse of the stiffest curvature, `away`
# how far from w* chains start, and `apart` by how much each chain's own start is disturbed (not by devinterp 1).
KINDS: dict[str, dict[str, Any]] = {
    SOUND: {"pace": 0.1},
    "burn-in averaged in": {"pace": 0.1, "away": 3.0, "steps": 1000, "burn_in": 1000},
    "drift": {"pace": 0.002, "away": 3.0},
    "chains disagree": {"pace": 0.002, "apart": 3.0, "only": TWO.label},
    "too few effective draws": {"pace": 0.5, "steps": 100, "chains": 2},
    "diffusion instead of equilibrium": {"pace": 1e-5, "gamma": 0.0, "chains": 8, "steps": 1000},
    "16-bit weights": {"pace": 4e-3, "dtype": "bfloat16"},
    "step-size bias": {"pace": 0.5, "batch": 10},
}


@dataclass(frozen=True)
class Row:
    """What was said of one run."""

    tool: str
    kind: str
    seed: int
    reported: float
    llc: float
    exact: float
    verdict: str
    said: str
    right: bool


@dataclass(frozen=True)
class Regression:
    """A linear regression at its minimum, and what is known of it."""

    land: bs.Landscape
    nbeta: float
    stiffest: float
    exact: float
    facts: dict[str, float]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run everything and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--afresh", action="store_true", help="run what was run already, too")
    parser.add_argument("--seeds", type=int, default=2, metavar="K", help="of each defect; sound chains have twice")
    parser.add_argument("--out", type=Path, default=RESULTS / "auditing.md", metavar="FILE", help="where to write")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    kept = options.out.with_suffix(".csv")
    if options.afresh:
        kept.unlink(missing_ok=True)
    done = {(row.tool, row.kind, row.seed) for row in ledger.read(kept, Row)}
    for row in measured(options.seeds, done):
        print(f"{row.tool}, {row.kind}: {row.verdict} {row.said}", flush=True)
        ledger.add(kept, row)
    write_whole(options.out, page(ledger.read(kept, Row)).encode())
    print(f"wrote {options.out}")
    return 0


def regression() -> Regression:
    """The problem: λ_t = ½ Σ tσ/(tσ + γ)."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(SAMPLES, INPUTS, generator=generator) * torch.linspace(0.3, 1.0, INPUTS)
    y = x.sum(1, keepdim=True) + 0.5 * torch.randn(SAMPLES, 1, generator=generator)
    net = torch.nn.Linear(INPUTS, 1, bias=False)
    with torch.no_grad():
        net.weight.copy_(torch.linalg.lstsq(x.double(), y.double()).solution.T)
    land = bs.Landscape(net, "mse", (x, y))
    nbeta = SAMPLES / float(np.log(SAMPLES))
    sigma = np.linalg.eigvalsh((x.double().T @ x.double() / SAMPLES).numpy())
    noise = bs.trace(land, matrix="covariance", progress=False).value
    facts = {
        "init_loss": float(land.per_sample().mean()), "hessian_trace": float(sigma.sum()), "noise_trace": noise,
        "weight_scale": float(net.weight.detach().square().mean().sqrt()),
    }  # fmt: skip
    exact = float(0.5 * np.sum(nbeta * sigma / (nbeta * sigma + GAMMA)))
    return Regression(land, nbeta, nbeta * float(sigma[-1]) + GAMMA, exact, facts)


def measured(seeds: int, done: set[tuple[str, str, int]]) -> Iterator[Row]:
    """A row for each run that is not done yet."""
    problem = regression()
    for label in TOOLS:
        for kind, changes in KINDS.items():
            if changes.get("only", label) != label:
                continue
            for seed in range(2 * seeds if kind == SOUND else seeds):
                if (label, kind, seed) not in done:
                    yield judged(problem, label, kind, seed)


def judged(problem: Regression, label: str, kind: str, seed: int) -> Row:
    """Chains by that tool, and what the auditor says of them."""
    peer, worker, suffix = TOOLS[label]
    settings = {**COMMON, **KINDS[kind], "seed": seed, "nbeta": problem.nbeta}
    settings["step"] = settings.pop("pace") / problem.stiffest
    settings["init_loss"] = problem.facts["init_loss"]
    with tempfile.TemporaryDirectory() as folder:
        path, settings["chains_path"] = Path(folder) / "problem.npz", str(Path(folder) / f"chains{suffix}")
        keep(problem.land, path, float(settings.pop("away", 0.0)))
        if peer is ONE and kind == "burn-in averaged in":
            settings |= {"burn_in": 0, "steps": settings["steps"] + settings["burn_in"]}  # else it is not kept
        reported = answer(peer, worker, path, settings)
        found = bs.audit(
            settings["chains_path"], nbeta=problem.nbeta, gamma=settings["gamma"], step_size=settings["step"],
            batch_size=settings["batch"], samples=SAMPLES, **facts_for(problem, settings["batch"]),
        )  # fmt: skip
    right = found.verdict == "ok" if kind == SOUND else kind in found.defects
    said = "; ".join(found.defects)
    return Row(label, kind, seed, reported, found.llc.value, problem.exact, found.verdict, said, right)


def facts_for(problem: Regression, batch: int) -> dict[str, float]:
    """What the auditor is told of the landscape: batches of all data have no noise."""
    return {**problem.facts, "noise_trace": problem.facts["noise_trace"] * (1 - batch / SAMPLES)}


def keep(land: bs.Landscape, path: Path, away: float) -> None:
    """Model and data as other environments read them, the weights so far from w* in every direction."""
    weights = {"weight weight": (land.parameters["weight"] + away).numpy()}
    x, y = land.samples.inputs, land.samples.target
    np.savez(path, kind="linear", powers=np.array([], dtype=int), inputs=x.numpy(), target=y.numpy(), **weights)


def page(rows: Sequence[Row]) -> str:
    """Markdown, with the answer first."""
    sound, broken = [row for row in rows if row.kind == SOUND], [row for row in rows if row.kind != SOUND]
    return "\n".join([
        "# The auditor on chains of devinterp", "",
        f"`bs.audit` names the defect in {sum(row.right for row in broken)} of {len(broken)} runs of devinterp that "
        f"have one, and passes {sum(row.right for row in sound)} of {len(sound)} sound ones.", "",
        f"A linear regression of {INPUTS} parameters on {SAMPLES} samples, with λ_t = {rows[0].exact:.2f}, is sampled "
        "by SGLD of devinterp 1.3.2 and 2.0.1. Each reports the λ̂ of the fourth column; it is negative where chains "
        "start away from w* and the tool takes L there. The auditor reads the losses that the tool leaves behind, and "
        "is told L(w*), Tr H, Tr C and the size of the weights.", "",
        "| what was done | tool | named | λ̂ reported, median | λ_t | also said |", "|---|---|---:|---:|---:|---|",
        *(line(rows, tool, kind) for kind in KINDS for tool in TOOLS if chosen(rows, tool, kind)), "",
        "## What was done", "",
        "ε is the step size, in units of the inverse of the stiffest curvature of the posterior; chains start at w*, "
        f"see all data at every step, and have {COMMON['steps']:,} steps of ε = {KINDS[SOUND]['pace']:g} unless said "
        "otherwise.", "",
        "- burn-in averaged in: the start is 3 away from w* in every weight. devinterp 2.0.1 averages over its burn-in "
        "whatever `num_burnin_steps` says; devinterp 1.3.2 has none.",
        "- drift: the same start, with ε = 0.002.",
        "- chains disagree: every chain starts elsewhere, by `init_noise`, with ε = 0.002. devinterp 1.3.2 cannot do "
        "so.",
        "- too few effective draws: two chains of 100 steps.",
        "- diffusion instead of equilibrium: ε = 0.00001 and γ = 0.",
        "- 16-bit weights: model and data in bfloat16, with ε = 0.004.",
        "- step-size bias: ε = 0.5 and batches of 10.", "",
        "## Where the numbers come from", "",
        f"- basinscope {bs.__version__}, torch {torch.__version__}, Python {platform.python_version()}; devinterp "
        "1.3.2 and 2.0.1 from PyPI, each in an environment of its own",
        "- `python benchmarks/auditing.py`; every run is in `auditing.csv`", "",
    ])  # fmt: skip


def chosen(rows: Sequence[Row], tool: str, kind: str) -> list[Row]:
    return [row for row in rows if (row.tool, row.kind) == (tool, kind)]


def line(rows: Sequence[Row], tool: str, kind: str) -> str:
    """Of runs of one tool with one defect, how many are named, and what else is said of them."""
    own = chosen(rows, tool, kind)
    others = dict.fromkeys(word for row in own for word in row.said.split("; ") if word and word != kind)
    cells = [kind, tool, f"{sum(row.right for row in own)} of {len(own)}",
             f"{np.median([row.reported for row in own]):.3g}", f"{own[0].exact:.3g}", ", ".join(others)]  # fmt: skip
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
