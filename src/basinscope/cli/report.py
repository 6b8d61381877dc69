"""`basinscope report`: a kept result, shown and written again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from .measure import target
from .options import Json, Quiet, Strict, judge


def report(
    source: Annotated[
        Path, typer.Argument(metavar="FILE", help="A report in JSON, or the folder that --keep or report.save() wrote.")
    ],
    out: Annotated[Path | None, typer.Option("--out", help="File to write; none unless given.")] = None,
    kind: Annotated[
        str, typer.Option("--format", metavar="html|md|json|parquet", help="Format of the file to write.")
    ] = "",
    as_json: Json = False,
    quiet: Quiet = False,
    strict: Strict = False,
) -> None:
    """Show a kept result again, and write it in another format. Nothing is measured."""
    path, kind = target(out, kind) if out is not None or kind else (None, "")
    from ..report.report import Report

    loaded = Report.load(source)
    console = Console(highlight=False, quiet=quiet)
    if as_json:
        typer.echo(loaded.to_json(), nl=False)
    else:
        console.print(loaded)
    if path is not None:
        loaded.write(path, kind)
        Console(highlight=False, quiet=quiet, stderr=as_json).print(
            f"\nwrote [bold]{escape(str(path))}[/bold]", soft_wrap=True
        )
    judge([loaded["llc"]], strict)
