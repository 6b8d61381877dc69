"""`basinscope demo`: train a small network, measure it, say what came out."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.control import Control
from rich.markup import escape
from rich.segment import ControlType

from ..errors import InputError
from ..progress import part


def demo(
    out: Annotated[Path, typer.Option("--out", help="Folder to write to.")] = Path("basinscope-demo"),
    hidden: Annotated[int, typer.Option("--hidden", min=1, max=64, help="Hidden units.")] = 8,
    samples: Annotated[int | None, typer.Option("--samples", help="Use only the first so many images.")] = None,
    budget: Annotated[float, typer.Option("--budget", help="Most sampling for λ̂, in seconds.")] = 10.0,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the training and of the chains.")] = 0,
) -> None:
    """Train a small network on scikit-learn's digits, measure how complex it is, and write a report.

    It takes half a minute or so on one processor, downloads nothing and opens nothing.
    """
    if out.exists() and not out.is_dir():
        raise InputError(f"--out must be a folder, and {str(out)!r} is a file — name another place")
    with _step("loading torch and scikit-learn"):
        from .. import demo as demonstration

        digits = demonstration.load_digits(samples)
    with demonstration.one_thread():
        with _step(f"training a network on {len(digits.labels):,} digits, a fifth of them with random labels") as say:
            trained = demonstration.train(digits, hidden, seed)
            say(f"{trained.widths} with ReLU, loss {trained.loss:.4f}, {trained.accuracy:.0%} of true labels met")
        with _step("measuring the basin it has reached"):
            report = demonstration.measure(trained, digits, budget, seed, _command(hidden, samples, budget, seed))
    with _step("writing the report"):
        page, *others = demonstration.write(report, trained.network, out)
    console = Console(highlight=False)
    console.print(report)
    console.print(f"\n{' and '.join(path.name for path in others)} are beside the report:")
    console.print(f"[bold]{escape(str(page))}[/bold]", soft_wrap=True)


def _command(hidden: int, samples: int | None, budget: float, seed: int) -> str:
    given = [] if samples is None else ["--samples", str(samples)]
    return shlex.join(
        ["basinscope", "demo", "--hidden", str(hidden), *given, "--budget", f"{budget:g}", "--seed", str(seed)]
    )


@contextmanager
def _step(name: str) -> Iterator[Callable[[str], None]]:
    """A line on standard error as a step begins, which gets its seconds, and what the step has to say, at the end.

    On a terminal a bar may come and go below the line, which is then written anew; elsewhere there is no other line.
    """
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    remark = ""

    def say(text: str) -> None:
        nonlocal remark
        remark = f": {text}"

    started = time.monotonic()
    console.print(f"{name} …", end="\n" if console.is_terminal else "")
    try:
        with nullcontext() if console.is_terminal else part(lambda fraction, text: None, 0.0, 1.0):
            yield say
    except BaseException:
        if not console.is_terminal:
            console.print()  # the error gets a line of its own
        raise
    if console.is_terminal:
        console.control(Control((ControlType.CURSOR_UP, 1), (ControlType.ERASE_IN_LINE, 2)))
        console.print(f"{name} …", end="")
    console.print(f" {time.monotonic() - started:.1f} s{escape(remark)}")
