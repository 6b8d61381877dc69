"""Learning coefficients without tuning, against exact posterior means.

Runs `bs.llc(land, seed=s)` with nothing else set on landscapes whose λ_t = E[nβ(L_n(w) − L_n(w*))] is known: quadratics
and normal crossings in closed form or by quadrature, deep linear networks by exact block-Gibbs sampling. The reference
is taken at the resolution (nβ, γ) the estimate reports. Exits with status 1 if a target is missed.

    python benchmarks/ground_truth.py                          all landscapes, full batch allowed
    python benchmarks/ground_truth.py --suite minibatch        n = 100,000, full batch forbidden
    python benchmarks/ground_truth.py --suite deep             50 to 600 parameters, n = 20,000, γ = 1
    python benchmarks/ground_truth.py --only "network 5-5-5"   those whose name contains the text
    python benchmarks/ground_truth.py --seeds 5                coverage over several seeds
    python benchmarks/ground_truth.py --jobs 16                cases side by side, one thread each
    python benchmarks/ground_truth.py --own-time               budgets in seconds of the processor, on a busy machine

With `--out FILE` every score is added to the CSV file beside the page as soon as it is known. `--resume` goes on from
the scores there, and `--minutes 8` stops in time: on a machine that is lent for minutes, call again until it is done.

    python benchmarks/ground_truth.py --jobs 16 --minutes 8 --resume --out $OUT/ground_truth.md
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import ledger
import torch
from clocks import one_thread
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from truth.case import Case, default_resolution
from truth.convergence import NotConverged
from truth.references import ReferenceBook
from truth.scores import Limits, Score, covers, goals
from truth.suite import DEEP, FULL_BATCH, MINIBATCH, select
from truth.table import markdown, terminal, terminal_goals

import basinscope as bs

RESULTS = Path(__file__).parent / "results"
REFERENCES = RESULTS / "ground_truth_references.json"

Estimator = Callable[[bs.Landscape, int], bs.Estimate]


@dataclass(frozen=True)
class Suite:
    """A list of landscapes, how they are measured, and what is to be reached."""

    title: str
    cases: tuple[Case, ...]
    limits: Limits
    settings: dict[str, Any] = field(default_factory=dict)

    def estimate(self, land: bs.Landscape, seed: int) -> bs.Estimate:
        return bs.llc(land, seed=seed, progress=False, **self.settings)


SUITES = {
    "full": Suite(
        "Ground truth", FULL_BATCH, Limits(median=0.01, tail=0.035, coverage=0.85, ok=80 / 87, seconds=90.0)
    ),
    "minibatch": Suite(
        "Ground truth, minibatch only", MINIBATCH, Limits(median=0.04), {"sampler": "minibatch", "batch_size": 256}
    ),
    "deep": Suite(
        "Ground truth, deep linear networks of 50 to 600 parameters", DEEP,
        Limits(median=0.015, worst=0.06, ok=0.8, seconds=66.0), {"gamma": 1.0},
    ),
}  # fmt: skip


def main(arguments: Sequence[str] | None = None, estimator: Estimator | None = None) -> int:
    """Run the benchmark; 0 when every target is met."""
    options = _parser().parse_args(arguments)
    suite = SUITES[options.suite]
    cases = select(suite.cases, options.only)
    console = Console()
    if not console.is_terminal:
        console = Console(width=220)  # a file or a pipe gets whole lines
    if not cases:
        console.print(f"no case contains {options.only!r}; --list shows the names", markup=False)
        return 2
    if options.list:
        for case in cases:
            console.print(case.name, markup=False, highlight=False)
        return 0
    book = ReferenceBook(options.references, recompute=options.recompute)
    one_thread(options.own_time)
    seeds = range(options.seed, options.seed + options.seeds)
    with _progress(console) as progress:
        if options.references_only:
            return prepare(cases, book, progress)
        scores = run(suite, cases, seeds, Work(estimator or suite.estimate, book, options), progress)
    if not scores:
        return 1
    met = goals(scores, suite.limits)
    console.print(terminal(scores))
    console.print()
    console.print(terminal_goals(met))
    if options.out is not None:
        console.print(f"\nwrote {options.out} and {options.out.with_suffix('.csv').name}", markup=False)
    return 0 if all(goal.met for goal in met) else 1


@dataclass(frozen=True)
class Work:
    """How cases are measured."""

    estimator: Estimator
    book: ReferenceBook
    options: argparse.Namespace

    def attempts(self, pairs: Sequence[tuple[Case, int]]) -> Iterator[Score | str]:
        """Every case and seed, in this process, or in several of one thread, the largest first."""
        if self.options.jobs == 1:
            yield from (attempt(case, seed, self.estimator, self.book) for case, seed in pairs)
            return
        begin = partial(one_thread, self.options.own_time)
        with ProcessPoolExecutor(self.options.jobs, multiprocessing.get_context("spawn"), begin) as pool:
            work = [pool.submit(attempt, case, seed, self.estimator, self.book) for case, seed in reversed(pairs)]
            try:
                yield from (done.result() for done in as_completed(work))
            finally:
                pool.shutdown(cancel_futures=True)


def run(
    suite: Suite, cases: Sequence[Case], seeds: Sequence[int], work: Work, progress: Progress
) -> list[Score]:  # fmt: skip
    """One score per case and seed, saved as they come: a run cut short leaves what it has."""
    out: Path | None = work.options.out
    until = time.monotonic() + 60 * work.options.minutes
    table = None if out is None else out.with_suffix(".csv")
    scores = ledger.read(table, Score) if table is not None and work.options.resume else []
    if table is not None:
        ledger.keep(table, scores)
    known = {(score.case, score.seed) for score in scores}
    pairs = [(case, seed) for seed in seeds for case in cases if (case.name, seed) not in known]
    task = progress.add_task("", total=len(pairs))
    for score in work.attempts(pairs):
        if isinstance(score, str):
            # Without a reference there is nothing to compare with; better a visible gap than a wrong yardstick.
            progress.console.print(f"[red]no reference[/] for {escape(score)}")
        else:
            scores.append(score)
            if table is not None:
                ledger.add(table, score)
            progress.console.print(_line(score), highlight=False)
        progress.advance(task)
        if time.monotonic() > until:
            break
    places = {case.name: place for place, case in enumerate(suite.cases)}
    scores = sorted(scores, key=lambda score: (places[score.case], score.seed))
    if out is not None and scores:
        ledger.keep(out.with_suffix(".csv"), scores)
        met = goals(scores, suite.limits)
        out.write_text(markdown(suite.title, scores, met, provenance(scores, work.options)))
    return scores


def attempt(case: Case, seed: int, estimator: Estimator, book: ReferenceBook) -> Score | str:
    """The score of one case, or why there is no reference for it."""
    try:
        return measure(case, case.landscape(), seed, estimator, book)
    except NotConverged as problem:
        return f"{case.name}: {problem}"


def measure(case: Case, land: bs.Landscape, seed: int, estimator: Estimator, book: ReferenceBook) -> Score:
    """The estimate, timed, beside its reference."""
    clock, computing = time.perf_counter(), time.process_time()
    try:
        estimate = estimator(land, seed)
        remark = "; ".join(estimate.warnings)
    except Exception as problem:  # whatever it is, it is a failure of the estimator to be reported as such
        estimate, remark = None, f"{type(problem).__name__}: {problem}"
    seconds = min(time.perf_counter() - clock, time.process_time() - computing)
    nbeta, gamma = default_resolution(land)
    if estimate is not None:
        nbeta, gamma = float(estimate.diagnostics["nbeta"]), float(estimate.diagnostics["gamma"])
    reference = book.lookup(case, land, nbeta, gamma)
    coefficient = case.coefficient()
    return Score(
        case=case.name,
        seed=seed,
        d=land.dimension,
        n=land.n,
        nbeta=nbeta,
        gamma=gamma,
        coefficient=math.nan if coefficient is None else float(coefficient),
        reference=reference.value,
        reference_stderr=reference.stderr,
        value=math.nan if estimate is None else estimate.value,
        stderr=math.nan if estimate is None else estimate.stderr,
        covered=estimate is not None and covers(estimate, reference),
        verdict="crashed" if estimate is None else estimate.verdict,
        seconds=seconds,
        remark=remark,
    )


def prepare(cases: Sequence[Case], book: ReferenceBook, progress: Progress) -> int:
    """Compute the references at the default resolution, without the estimator."""
    task = progress.add_task("", total=len(cases))
    failed = 0
    for case in cases:
        progress.update(task, description=escape(case.name))
        land = case.landscape()
        try:
            found = book.lookup(case, land, *default_resolution(land))
            text = f"{found.value:.5g} ± {found.stderr:.1g}, R̂ {found.split_rhat:.4f}, {found.seconds:.1f} s"
            progress.console.print(f"{escape(case.name)}: {text}", highlight=False)
        except NotConverged as problem:
            failed += 1
            progress.console.print(f"[red]{escape(case.name)}: {escape(str(problem))}[/]")
        progress.advance(task)
    return 1 if failed else 0


def provenance(scores: Sequence[Score], options: argparse.Namespace) -> list[str]:
    """What the numbers depend on."""
    seeds = {score.seed for score in scores}
    own = ", budgets in seconds of processor time" if options.own_time else ""
    return [
        f"basinscope {bs.__version__}, torch {torch.__version__}, Python {platform.python_version()}",
        f"{options.jobs} processes of one thread on {platform.machine()}{own}",
        f"{len({score.case for score in scores})} landscapes, seeds {min(seeds)} to {max(seeds)}",
    ]


def _line(score: Score) -> str:
    colour = "green" if abs(score.relative_error) <= 0.06 else "red"
    return (
        f"{escape(score.case)}: λ̂ {score.value:.5g} ± {score.stderr:.2g}, λ_t {score.reference:.5g}, "
        f"[{colour}]{score.relative_error:+.2%}[/] (z {score.z:+.1f}), {score.verdict}, {score.seconds:.1f} s"
        + (f"\n    [dim]{escape(score.remark)}[/]" if score.remark else "")
    )


def _progress(console: Console) -> Progress:
    return Progress(
        BarColumn(20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
        console=console,
        transient=True,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="TEXT", help="only cases whose name contains TEXT")
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    parser.add_argument("--suite", choices=SUITES, default="full", help="of landscapes")
    parser.add_argument("--seed", type=int, default=0, help="first seed")
    parser.add_argument("--seeds", type=int, default=1, metavar="K", help="how many seeds")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes side by side")
    parser.add_argument("--own-time", action="store_true", help="budgets in seconds of processor time")
    parser.add_argument("--minutes", type=float, default=math.inf, metavar="M", help="stop after so many")
    parser.add_argument("--resume", action="store_true", help="go on from the scores beside --out")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write a Markdown report here and a CSV beside it")
    parser.add_argument("--references", type=Path, default=REFERENCES, metavar="FILE", help="where references are kept")
    parser.add_argument("--references-only", action="store_true", help="compute the missing references and stop")
    parser.add_argument("--recompute", action="store_true", help="compute references even if they are known")
    return parser


if __name__ == "__main__":
    sys.exit(main())
