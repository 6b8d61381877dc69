"""Learning coefficients without tuning, against exact posterior means.

Runs `bs.llc(land, seed=s)` with nothing else set on landscapes whose λ_t = E[nβ(L_n(w) − L_n(w*))] is known: quadratics
and normal crossings in closed form or by quadrature, deep linear networks by exact block-Gibbs sampling. The reference
is taken at the resolution (nβ, γ) the estimate reports. Exits with status 1 if a target is missed.

    python benchmarks/ground_truth.py                          all landscapes, full batch allowed
    python benchmarks/ground_truth.py --minibatch              n = 100,000, full batch forbidden
    python benchmarks/ground_truth.py --only "network 5-5-5"   those whose name contains the text
    python benchmarks/ground_truth.py --seeds 5                coverage over several seeds
    python benchmarks/ground_truth.py --jobs 16                cases side by side, one thread each
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import platform
import sys
import time
from bisect import insort
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from truth.case import Case, default_resolution
from truth.convergence import NotConverged
from truth.references import ReferenceBook
from truth.scores import Score, covers, goals
from truth.suite import FULL_BATCH, MINIBATCH, select
from truth.table import markdown, terminal, terminal_goals, write_csv

import basinscope as bs

RESULTS = Path(__file__).parent / "results"
REFERENCES = RESULTS / "ground_truth_references.json"
MINIBATCH_OPTIONS: dict[str, Any] = {"sampler": "minibatch", "batch_size": 256}

Estimator = Callable[[bs.Landscape, int], bs.Estimate]


def main(arguments: Sequence[str] | None = None, estimator: Estimator | None = None) -> int:
    """Run the benchmark; 0 when every target is met."""
    options = _parser().parse_args(arguments)
    cases = select(MINIBATCH if options.minibatch else FULL_BATCH, options.only)
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
    with _progress(console) as progress:
        if options.references_only:
            return prepare(cases, book, progress)
        chosen = estimator or (_minibatch if options.minibatch else _default)
        seeds = range(options.seed, options.seed + options.seeds)
        title = "Ground truth, minibatch only" if options.minibatch else "Ground truth"

        def save(scores: Sequence[Score]) -> None:
            if options.out is not None:
                options.out.parent.mkdir(parents=True, exist_ok=True)
                met = goals(scores, minibatch=options.minibatch)
                options.out.write_text(markdown(title, scores, met, provenance(seeds, scores, options.jobs)))
                write_csv(options.out.with_suffix(".csv"), scores)

        if options.jobs > 1:
            attempts = side_by_side(cases, seeds, chosen, book, options.jobs)
        else:
            attempts = one_by_one(cases, seeds, chosen, book, progress)
        scores = run(attempts, cases, seeds, progress, save)
    if not scores:
        return 1
    met = goals(scores, minibatch=options.minibatch)
    console.print(terminal(scores))
    console.print()
    console.print(terminal_goals(met))
    if options.out is not None:
        console.print(f"\nwrote {options.out} and {options.out.with_suffix('.csv').name}", markup=False)
    return 0 if all(goal.met for goal in met) else 1


def run(
    attempts: Iterator[Score | str],
    cases: Sequence[Case],
    seeds: Sequence[int],
    progress: Progress,
    save: Callable[[Sequence[Score]], None],
) -> list[Score]:
    """One score per case and seed, saved as they come: a run cut short leaves what it has."""
    task = progress.add_task("", total=len(cases) * len(seeds))
    places = {case.name: place for place, case in enumerate(cases)}
    scores: list[Score] = []

    def place(score: Score) -> tuple[int, int]:
        return places[score.case], score.seed

    for attempt in attempts:
        if isinstance(attempt, str):
            # Without a reference there is nothing to compare with; better a visible gap than a wrong yardstick.
            progress.console.print(f"[red]no reference[/] for {escape(attempt)}")
        else:
            insort(scores, attempt, key=place)
            save(scores)
            progress.console.print(_line(attempt), highlight=False)
        progress.advance(task)
    return scores


def one_by_one(
    cases: Sequence[Case], seeds: Sequence[int], estimator: Estimator, book: ReferenceBook, progress: Progress
) -> Iterator[Score | str]:
    """Every case and seed in this process."""
    for case in cases:
        for seed in seeds:
            progress.update(progress.task_ids[0], description=escape(case.name))
            yield attempt(case, seed, estimator, book)


def side_by_side(
    cases: Sequence[Case], seeds: Sequence[int], estimator: Estimator, book: ReferenceBook, jobs: int
) -> Iterator[Score | str]:
    """Every case and seed in one of `jobs` processes of one thread, the largest first."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, context, torch.set_num_threads, (1,)) as pool:
        pairs = [(case, seed) for seed in seeds for case in reversed(cases)]
        yield from (
            done.result()
            for done in as_completed([pool.submit(attempt, case, seed, estimator, book) for case, seed in pairs])
        )


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


def provenance(seeds: Sequence[int], scores: Sequence[Score], jobs: int) -> list[str]:
    """What the numbers depend on."""
    threads = f"{jobs} processes of one thread" if jobs > 1 else f"{torch.get_num_threads()} threads"
    return [
        f"basinscope {bs.__version__}, torch {torch.__version__}, Python {platform.python_version()}",
        f"{threads} on {platform.machine()}",
        f"{len({score.case for score in scores})} landscapes, seeds {seeds[0]} to {seeds[-1]}",
    ]


def _default(land: bs.Landscape, seed: int) -> bs.Estimate:
    return bs.llc(land, seed=seed, progress=False)


def _minibatch(land: bs.Landscape, seed: int) -> bs.Estimate:
    return bs.llc(land, seed=seed, progress=False, **MINIBATCH_OPTIONS)


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
    parser.add_argument("--minibatch", action="store_true", help="n = 100,000 and batches of 256 only")
    parser.add_argument("--seed", type=int, default=0, help="first seed")
    parser.add_argument("--seeds", type=int, default=1, metavar="K", help="how many seeds")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes side by side")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write a Markdown report here and a CSV beside it")
    parser.add_argument("--references", type=Path, default=REFERENCES, metavar="FILE", help="where references are kept")
    parser.add_argument("--references-only", action="store_true", help="compute the missing references and stop")
    parser.add_argument("--recompute", action="store_true", help="compute references even if they are known")
    return parser


if __name__ == "__main__":
    sys.exit(main())
