"""Learning coefficients side by side with devinterp 1.3.2 and 2.0.1, each in an environment of its own.

Times plain SGLD, draw by draw, on the same networks, data and number of draws; then sets error against time on deep
linear networks whose λ is known. Everything runs on one thread. Exits with status 1 if a target is missed.

    python benchmarks/llc_speed.py                     everything; writes benchmarks/results/llc_speed.md and .csv
    python benchmarks/llc_speed.py --only timing       or accuracy
    python benchmarks/llc_speed.py --repeats 1         quicker and rougher
"""

from __future__ import annotations

import argparse
import platform
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console
from rich.markdown import Markdown
from speed import accuracy, timing
from speed.networks import deep_linear
from speed.report import goals, markdown, write_csv
from truth.references import ReferenceBook

import basinscope as bs
from basinscope.files import write_whole

RESULTS = Path(__file__).parent / "results"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 0 when every target is met."""
    options = _parser().parse_args(arguments)
    torch.set_num_threads(1)
    console = Console()
    timings: list[timing.Timing] = []
    scores: list[accuracy.Score] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.only in (None, "timing"):
            for setup in timing.setups(folder):
                console.print(f"timing {setup.network}, batch {setup.batch_size}", highlight=False)
                timings += timing.measure(setup, options.repeats, options.draws)
        if options.only in (None, "accuracy"):
            networks = list(accuracy.truths(deep_linear(options.networks), folder))
            book = ReferenceBook(options.references)
            for plan in accuracy.PLANS:
                console.print(f"estimating with {plan.tool.label}, {plan.label}", highlight=False)
                scores += accuracy.measure(plan, networks, book)
    text = markdown(timings, scores, provenance(options))
    console.print(Markdown(text))
    if options.out is not None:
        write_whole(options.out, text.encode())
        for kind, rows in (("timing", timings), ("accuracy", scores)):
            if rows:
                write_csv(options.out.with_name(f"{options.out.stem}_{kind}.csv"), rows)
        console.print(f"\nwrote {options.out}", markup=False)
    return 0 if all(goal.met for goal in goals(timings)) else 1


def provenance(options: argparse.Namespace) -> list[str]:
    """What the numbers depend on."""
    return [
        f"basinscope {bs.__version__}; devinterp 1.3.2 and 2.0.1 from PyPI, each in an environment of its own",
        f"torch {torch.__version__} and Python {platform.python_version()} for all, one thread, {platform.machine()}",
        f"CPU seconds of the process; medians of {options.repeats} repeats, the tools by turns",
    ]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("timing", "accuracy"), help="one of the two parts")
    parser.add_argument("--repeats", type=int, default=3, metavar="K", help="of every timing")
    parser.add_argument("--draws", type=int, default=timing.DRAWS, metavar="N", help="over all chains, of every timing")
    parser.add_argument("--networks", type=int, default=6, metavar="K", help="deep linear networks to estimate")
    parser.add_argument("--out", type=Path, default=RESULTS / "llc_speed.md", metavar="FILE", help="where to write")
    parser.add_argument(
        "--references", type=Path, default=RESULTS / "llc_speed_references.json", help="where λ_t is kept"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
