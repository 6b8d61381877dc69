"""`basinscope audit`: what chains that another tool made are worth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from .options import Json, Quiet, Strict, judge

Optional = float | None


def audit(
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="Zarr store, ArviZ file, or losses (.npy, .npz, .json).")
    ],
    init_loss: Annotated[Optional, typer.Option("--init-loss", help="Loss at w*.")] = None,
    reported: Annotated[Optional, typer.Option("--reported", help="λ̂ as the other tool gave it.")] = None,
    nbeta: Annotated[Optional, typer.Option("--nbeta", help="nβ of the chains.")] = None,
    gamma: Annotated[Optional, typer.Option("--gamma", help="Localisation of the chains.")] = None,
    step_size: Annotated[Optional, typer.Option("--step-size", help="Step ε of the chains.")] = None,
    batch_size: Annotated[Optional, typer.Option("--batch-size", help="Samples in a batch.")] = None,
    burn_in: Annotated[int | None, typer.Option("--burn-in", help="First steps that are not averaged over.")] = None,
    samples: Annotated[int | None, typer.Option("--samples", help="Number n of samples in the data.")] = None,
    hessian_trace: Annotated[Optional, typer.Option("--hessian-trace", help="Trace of the Hessian at w*.")] = None,
    noise_trace: Annotated[
        Optional, typer.Option("--noise-trace", help="Trace of one sample's gradient noise.")
    ] = None,
    weight_scale: Annotated[Optional, typer.Option("--weight-scale", help="Root mean square of the weights.")] = None,
    dtype: Annotated[str | None, typer.Option("--dtype", help="Type in which weights were moved.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Page to write, in HTML; none unless given.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
    strict: Strict = False,
) -> None:
    """Judge chains that another tool made: devinterp 1 and 2, ArviZ, or plain arrays of losses."""
    from ..report import audit as auditor

    result = auditor.audit(
        path, init_loss=init_loss, reported=reported, nbeta=nbeta, gamma=gamma, step_size=step_size,
        batch_size=batch_size, burn_in=burn_in, samples=samples, hessian_trace=hessian_trace, noise_trace=noise_trace,
        weight_scale=weight_scale, dtype=dtype,
    )  # fmt: skip
    console = Console(highlight=False, quiet=quiet, stderr=as_json)
    if as_json:
        typer.echo(json.dumps(result.to_dict(), ensure_ascii=False, allow_nan=False))
    else:
        console.print(f"[bold]{escape(result.source)}[/bold]: {result.verdict}\n")
        console.print(escape(auditor.in_words(result)), soft_wrap=True)
    if out is not None:
        result.to_html(out)
        console.print(f"\nwrote [bold]{escape(str(out))}[/bold]", soft_wrap=True)
    judge([result.llc], strict)
