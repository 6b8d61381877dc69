"""Samplers beside each other on landscapes with exact answers, with equal numbers of gradients.

    python benchmarks/leaderboard.py                     what benchmarks/results/samplers.csv lacks, and the page
    python benchmarks/leaderboard.py --afresh            everything again
    python benchmarks/leaderboard.py --samplers SGLD     this one alone
    python benchmarks/leaderboard.py --landscapes w1     only landscapes whose name contains w1

Samplers of other packages run in environments of their own, made on first use.
"""

from __future__ import annotations

import argparse
import platform
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import ledger
import torch
from samplers.contest import BUDGETS, Outcome, outcomes
from samplers.entries import ENTRIES
from samplers.problem import problems
from samplers.table import figure, page
from truth.references import ReferenceBook

import basinscope as bs
from basinscope.files import write_whole

RESULTS = Path(__file__).parent / "results"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is missing, then write the page."""
    options = _parser().parse_args(arguments)
    torch.set_num_threads(1)
    rows = options.out.with_suffix(".csv")
    names = options.samplers or list(ENTRIES)
    if strange := set(names) - set(ENTRIES):
        raise SystemExit(f"no such sampler: {', '.join(sorted(strange))} — there are {', '.join(ENTRIES)}")
    if options.afresh:
        ledger.keep(rows, [each for each in ledger.read(rows, Outcome) if each.sampler not in names])
    done = {each.key for each in ledger.read(rows, Outcome)}
    book = ReferenceBook(options.out.with_name("samplers_references.json"))
    with tempfile.TemporaryDirectory() as folder:
        found = problems(Path(folder), book, options.landscapes)
        for outcome in outcomes(found, names, options.seeds, done):
            ledger.add(rows, outcome)
            print(
                f"{outcome.landscape}, {outcome.sampler}, {outcome.gradients:,}: {outcome.error:.1%} off, "
                f"{outcome.seconds:.1f} s", flush=True,
            )  # fmt: skip
    known = [each for each in ledger.read(rows, Outcome) if each.gradients in BUDGETS]
    write_whole(options.out, page(known, provenance(known)).encode())
    figure(known, options.out.with_suffix(".svg"))
    print(f"wrote {options.out}")
    return 0


def provenance(known: Sequence[Outcome]) -> list[str]:
    """What the numbers depend on."""
    return [
        f"basinscope {bs.__version__}, torch {torch.__version__}, Python {platform.python_version()}, one thread of "
        f"{platform.machine()}, float32",
        "devinterp 1.3.2 and 2.0.1, canonical-interp 0.1.5 and blackjax 1.7.1 from PyPI, each in an environment of its "
        "own",
        f"`make bench-samplers`: {len(known):,} runs in {sum(each.seconds for each in known) / 60:.0f} minutes; every "
        f"one is in `samplers.csv`",
    ]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samplers", nargs="*", metavar="NAME", help="these alone")
    parser.add_argument("--landscapes", default="", metavar="TEXT", help="only those whose name contains it")
    parser.add_argument("--seeds", type=int, default=2, metavar="K", help="of each run")
    parser.add_argument("--afresh", action="store_true", help="run what was run already, too")
    parser.add_argument("--out", type=Path, default=RESULTS / "samplers.md", metavar="FILE", help="where to write")
    return parser


if __name__ == "__main__":
    sys.exit(main())
