"""`basinscope develop`: a network growing up, from its checkpoints."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from ..errors import InputError
from .options import Device, Gamma, Json, Loss, Nbeta, Quiet, Sampler, Seed


def develop(
    checkpoints: Annotated[
        str,
        typer.Argument(
            metavar="CHECKPOINTS",
            help="A folder of checkpoints or of saved Hugging Face models, or the name of a model on the Hub.",
        ),
    ],
    data: Annotated[
        str, typer.Option("--data", metavar="PKG.MOD:LOAD", help="A function that loads (x, y), tokens or batches.")
    ],
    model: Annotated[
        str,
        typer.Option("--model", metavar="PKG.MOD:BUILD", help="A function that builds the network of plain weights."),
    ] = "",
    revisions: Annotated[
        str, typer.Option("--revisions", help="Revisions of a model on the Hub, with commas between them.")
    ] = "",
    loss: Loss = "cross_entropy",
    parts: Annotated[
        str, typer.Option("--parts", help="Kinds of parts to measure as well, with commas between; none for none.")
    ] = "layer,head",
    out: Annotated[Path, typer.Option("--out", help="File to write; .html, .json and .csv are known.")] = Path(
        "development.html"
    ),
    keep: Annotated[
        Path | None, typer.Option("--keep", help="Folder that keeps each checkpoint's numbers, to go on after a stop.")
    ] = None,
    nbeta: Nbeta = None,
    gamma: Gamma = None,
    sampler: Sampler = "auto",
    rtol: Annotated[float, typer.Option("--rtol", help="Wanted standard error of each λ̂, relative to it.")] = 0.05,
    budget: Annotated[
        float,
        typer.Option(
            "--budget", help="Most seconds of sampling for the network at a checkpoint, and for each kind of part."
        ),
    ] = 10.0,
    device: Device = "cpu",
    seed: Seed = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show how a network grew up: λ̂ of it and of its parts, loss, in-context learning and stages through training."""
    from ..report.development import FORMATS

    kind = out.suffix.removeprefix(".").lower()
    if kind not in FORMATS:
        raise InputError(f"--out must end in one of {', '.join(FORMATS)}, got {str(out)!r}")
    if revisions and model:
        raise InputError("--revisions are of a model on the Hub and --model builds one of your own — leave out one")
    from ..report.checkpoints import Subject, loaded
    from ..report.development import develop as developed

    sys.path.insert(0, str(Path.cwd()))  # as `python -m` has it: functions of the folder one works in
    subject = Subject.load(model, data, loss, device) if model else None
    result = developed(
        checkpoints,
        model=None if subject is None else subject.network,
        loss=loss if subject is None else subject.loss,
        data=loaded("--data", data) if subject is None else subject.data,
        revisions=_split(revisions), parts=_split(parts) if parts != "none" else (), nbeta=nbeta, gamma=gamma,
        sampler=sampler, rtol=rtol, budget=budget, seed=seed, keep=keep, progress=not quiet,
    )  # fmt: skip
    result.write(out)
    console = Console(highlight=False, quiet=quiet or as_json)
    console.print(escape(str(result)), soft_wrap=True)
    console.print(f"\nwrote [bold]{escape(str(out))}[/bold]", soft_wrap=True)
    if as_json:
        typer.echo(json.dumps(result.to_dict(), ensure_ascii=False, allow_nan=False))


def _split(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())
