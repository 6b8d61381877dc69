"""The command line: `basinscope COMMAND`. Nothing here imports torch before a command needs it."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from .._version import __version__
from ..errors import BasinscopeError
from . import audit, compare, data, demo, develop, exact, measure, report, serve, study


class Commands(TyperGroup):
    """Turns the library's errors, which say what to do, into one line and exit code 2."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BasinscopeError as error:
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(2) from error


app = typer.Typer(cls=Commands, no_args_is_help=True, help="How complex is a trained network really?")
app.add_typer(exact.app, name="exact")
app.add_typer(study.app, name="study")
app.add_typer(data.app, name="data")
app.command()(demo.demo)
app.command()(measure.measure)
app.command()(compare.compare)
app.command()(develop.develop)
app.command()(report.report)
app.command()(audit.audit)
app.command()(serve.serve)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of the program as a whole."""


def main() -> None:
    """Entry point of the `basinscope` command."""
    app()
