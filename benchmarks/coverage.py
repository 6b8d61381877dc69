"""Whether the intervals of λ̂ hold: many seeds of each sampler on landscapes whose answers are known.

Every estimate is compared with the exact posterior mean λ_t at its own resolution. Budgets are in seconds of processor
time, so that a busy machine changes nothing. Rows are added to a CSV file as they come, and a later call goes on from
there. Exits with status 1 if a target is missed.

    python benchmarks/coverage.py                        50 seeds of every landscape and sampler
    python benchmarks/coverage.py --only crossing        landscapes whose name contains the text
    python benchmarks/coverage.py --minutes 20           stop after so many; the next call goes on
    python benchmarks/coverage.py --report               only write the page again
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import ledger
import numpy as np
import torch
from clocks import own_time
from ground_truth import REFERENCES, measure
from truth.case import Case
from truth.crossing import Crossing
from truth.references import ReferenceBook
from truth.regression import Regression
from truth.scores import Goal, Score
from truth.suite import COVERAGE, select

import basinscope as bs

OUT = Path(__file__).parent / "results" / "coverage.md"
BUDGET = 2.0  # seconds of processor time
SAMPLERS: dict[str, dict[str, Any]] = {
    "hmc": {"sampler": "hmc"},
    "minibatch": {"sampler": "minibatch", "batch_size": 256},
    "mala": {"sampler": "mala", "draws": 4_000},
}
CROSSING_STEP = 0.05  # of `mala` where the curvature at w* is zero and tells nothing of a step
WRONG, FAR, STDERRS = 0.10, 0.03, 3.0


@dataclass(frozen=True)
class Row:
    """One estimate beside the exact value."""

    sampler: str
    case: str
    seed: int
    d: int
    reference: float
    value: float
    stderr: float
    covered: bool
    verdict: str
    seconds: float

    @classmethod
    def of(cls, sampler: str, score: Score) -> Row:
        values = asdict(score)
        return cls(sampler, **{field.name: values[field.name] for field in fields(cls)[1:]})

    @property
    def error(self) -> float:
        return abs(self.value / self.reference - 1)

    @property
    def far(self) -> bool:
        """Whether it is off by more than its error allows, and by more than matters."""
        return not (abs(self.value - self.reference) <= STDERRS * self.stderr or self.error <= FAR)


def suited(sampler: str, case: Case) -> bool:
    """A plain kernel without whitening needs a landscape whose directions are alike, and a low price of a draw."""
    return sampler != "mala" or _crosses(case) or (isinstance(case, Regression) and case.condition <= 10)


def settings(sampler: str, case: Case) -> dict[str, Any]:
    """What is set: nothing but the sampler and its batches, of a plain kernel what it does not find out itself."""
    step = {"step_size": CROSSING_STEP} if sampler == "mala" and _crosses(case) else {}
    return SAMPLERS[sampler] | step


def _crosses(case: Case) -> bool:
    """Whether w* is where valleys cross."""
    return isinstance(case, Crossing) and not case.point


def estimates(cases: Sequence[Case], seeds: range, known: set[tuple[str, str, int]]) -> Iterator[Row]:
    """A row for each that is not known yet, seed after seed: a run that is cut short has seen every landscape."""
    book = ReferenceBook(REFERENCES)
    for seed in seeds:
        for case in cases:
            missing = [name for name in SAMPLERS if suited(name, case) and (name, case.name, seed) not in known]
            land = case.landscape() if missing else None
            for sampler in missing:
                options = settings(sampler, case)
                yield Row.of(sampler, measure(case, land, seed, lambda *args, o=options: _llc(*args, o), book))


def _llc(land: bs.Landscape, seed: int, options: dict[str, Any]) -> bs.Estimate:
    return bs.llc(land, seed=seed, budget=BUDGET, progress=False, **options)


def goals(rows: Sequence[Row]) -> list[Goal]:
    """The targets, over all rows."""
    shares = {name: _covered([row for row in rows if row.sampler == name]) for name in SAMPLERS}
    goals = [
        Goal(f"90 % intervals of `{name}` cover 84 to 97 %", share, 0.84 <= share <= 0.97)
        for name, share in shares.items()
    ]
    worst = min(_covered(group) for group in _groups(rows).values())
    sound = [row for row in rows if row.verdict == "ok"]
    wrong = sum(row.error > WRONG for row in sound)
    far = float(np.mean([row.far for row in sound])) if sound else 0.0
    return [
        *goals,
        Goal("no landscape under 75 %", worst, worst >= 0.75),
        Goal(f"no `ok` more than {WRONG:.0%} off", wrong, wrong == 0, ""),
        Goal(f"at most 1 % of `ok` more than {STDERRS:g} standard errors and {FAR:.0%} off", far, far <= 0.01),
    ]


def page(rows: Sequence[Row]) -> str:
    """The report in Markdown."""
    counts = [len(group) for group in _groups(rows).values()]
    seeds = f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    budgeted = [row.seconds for row in rows if row.sampler != "mala"]
    targets = goals(rows)
    met = sum(goal.met for goal in targets)
    took = f"{np.median(budgeted):.1f} in the median and {max(budgeted):.1f} at most" if budgeted else "nothing"
    lines = [
        "# Coverage of the error bars",
        "",
        f"{met} of {len(targets)} targets are met: {_covered(rows):.1%} of {len(rows):,} intervals of 90 % hold the "
        f"exact value, over {len({row.case for row in rows})} landscapes with {seeds} seeds in each row below.",
        "",
        "| target | measured | |",
        "|---|---|---|",
        *(f"| {goal.text} | {goal.measured} | {'met' if goal.met else '**missed**'} |" for goal in targets),
        "",
        f"λ_t is the exact posterior mean at the resolution of each estimate. λ̂ had a budget of {BUDGET:g} seconds of "
        f"processor time, and took {took}. `mala` is a plain kernel, without whitening: it is tried where it can mix, "
        f"with a stated number of draws, and with a step of {CROSSING_STEP:g} where valleys cross.",
        "",
        "| landscape | d | λ_t | sampler | seeds | covered | mean error | spread | median s.e. | `ok` | worst `ok` |",
        "|---|---:|---:|---|---:|---:|---:|---:|---:|---:|---:|",
        *(_line(case, sampler, group) for (case, sampler), group in _groups(rows).items()),
        "",
        f"Measured with basinscope {bs.__version__}, torch {torch.__version__}, Python {platform.python_version()} on "
        f"one thread of {platform.machine()}, by `make bench-coverage`; every row is in `coverage.csv`.",
    ]
    return "\n".join(lines) + "\n"


def _line(case: str, sampler: str, group: Sequence[Row]) -> str:
    errors = np.array([row.value / row.reference - 1 for row in group])
    relative = float(np.median([row.stderr / row.reference for row in group]))
    sound = [row.error for row in group if row.verdict == "ok"]
    worst = f"{max(sound):.1%}" if sound else ""
    return (
        f"| {case} | {group[0].d:,} | {group[0].reference:.4g} | {sampler} | {len(group)} | {_covered(group):.0%} | "
        f"{np.mean(errors):+.1%} | {np.std(errors):.1%} | {relative:.1%} | {len(sound)} | {worst} |"
    )


def _groups(rows: Sequence[Row]) -> dict[tuple[str, str], list[Row]]:
    groups: dict[tuple[str, str], list[Row]] = {}
    for case in COVERAGE:
        for sampler in SAMPLERS:
            group = [row for row in rows if (row.case, row.sampler) == (case.name, sampler)]
            if group:
                groups[case.name, sampler] = group
    return groups


def _covered(rows: Sequence[Row]) -> float:
    return float(np.mean([row.covered for row in rows])) if rows else 0.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 0 when every target is met."""
    options = _parser().parse_args(arguments)
    own_time()
    table = options.out.with_suffix(".csv")
    rows = ledger.read(table, Row)
    if not options.report:
        until = time.monotonic() + 60 * options.minutes
        known = {(row.sampler, row.case, row.seed) for row in rows}
        seeds = range(options.seed, options.seed + options.seeds)
        for row in estimates(select(COVERAGE, options.only), seeds, known):
            ledger.add(table, row)
            rows.append(row)
            print(row, flush=True)
            if time.monotonic() > until:
                break
    options.out.write_text(page(rows))
    return 0 if all(goal.met for goal in goals(rows)) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="TEXT", help="only landscapes whose name contains TEXT")
    parser.add_argument("--seed", type=int, default=100, help="first seed")
    parser.add_argument("--seeds", type=int, default=50, metavar="K", help="how many seeds")
    parser.add_argument("--minutes", type=float, default=float("inf"), metavar="M", help="stop after so many")
    parser.add_argument("--report", action="store_true", help="write the page from the rows there are")
    parser.add_argument("--out", type=Path, default=OUT, metavar="FILE", help="the page; its rows are kept beside it")
    return parser


if __name__ == "__main__":
    sys.exit(main())
