"""`basinscope data`: list the data sets and fetch them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from .options import complete_data

app = typer.Typer(no_args_is_help=True, help="Data sets: what there is, and how to get it.")

Folder = Annotated[
    Path | None, typer.Option("--folder", help="Where data sets live, if not $BASINSCOPE_DATA or the user's cache.")
]
Names = Annotated[
    list[str],
    typer.Argument(metavar="NAME...", help="mnist, fashion_mnist, cifar10 or svhn.", autocompletion=complete_data),
]


@app.command("list")
def list_data(folder: Folder = None) -> None:
    """The data sets, and which of them are here."""
    from ..zoo.data.catalogue import SOURCES, data_folder, md5, small_file

    place = data_folder(folder)
    table = Table(box=None, pad_edge=False)
    for column in ("name", "what", "download", "here"):
        table.add_column(column)
    table.add_row("digits", "1,437 + 360 handwritten digits, 8 × 8 grey", "with scikit-learn", "")
    for source in SOURCES.values():
        set_folder = place / source.name
        digests = {md5(path) for path in set_folder.glob("*") if path.is_file()}
        whole = all(file.md5 in digests for file in source.files)
        reduced = (set_folder / small_file(source.name)).is_file()
        partly = reduced or not digests.isdisjoint(source.editions.values())
        what = source.what + (f" ({source.licence})" if source.licence else "")
        size = sum(file.megabytes for file in source.files)
        table.add_row(source.name, what, f"{size:.0f} MB", "yes" if whole else "reduced" if partly else "no")
    console = Console(highlight=False)
    console.print(table)
    console.print(f"\nin {place}", soft_wrap=True)


@app.command()
def fetch(
    names: Names,
    folder: Folder = None,
) -> None:
    """Download data sets from their usual places; an interrupted download goes on where it stopped."""
    from ..zoo.data.fetching import fetch as bring

    for name in names:
        for path in bring(name, folder):
            typer.echo(f"{path}")


@app.command()
def shrink(
    names: Names,
    to: Annotated[Path, typer.Option("--to", help="Another folder of data sets.")],
    folder: Folder = None,
) -> None:
    """Write the 7 × 7 view of data sets to files of some megabytes, to be copied where the whole is too large."""
    from ..zoo.data.loading import shrink as write_small

    for name in names:
        typer.echo(f"{write_small(name, to, folder)}")
