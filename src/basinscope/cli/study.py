"""`basinscope study`: list the studies, run one, see how far it is, make its tables and figures."""

from __future__ import annotations

import json
import shlex
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape

from ..errors import InputError
from ..studies import CATALOGUE, Known, studies_in
from .listing import table_of
from .options import Json, complete_study

if TYPE_CHECKING:
    from ..runs.driver import RunSummary
    from ..runs.executors.base import Executor
    from ..runs.references import Named
    from ..runs.status import Status

app = typer.Typer(no_args_is_help=True, help="Studies: many jobs, every result kept, here or on a cluster.")

Name = Annotated[
    str,
    typer.Argument(
        metavar="STUDY",
        help="A study's name or folder, file.yaml, file.py:name or package.module:name.",
        autocompletion=complete_study,
    ),
]
Where = Annotated[str, typer.Option("--store", help="Where results live: a folder or any fsspec path.")]
Scale = Annotated[str | None, typer.Option("--scale", help="smoke (minutes on a laptop) or paper.")]
Changes = Annotated[
    list[str] | None, typer.Option("-s", "--set", metavar="KEY=VALUE", help="Change a setting; dots descend.")
]

_SHOWN = 5  # failures shown in full
_REFRESH = 1.0


@app.command("list")
def listed(as_json: Json = False) -> None:
    """The studies that can be run by name: those that come with Basinscope, and those in the folder `studies` here."""
    if as_json:
        typer.echo(json.dumps({name: entry.title for name, entry in _catalogue().items()}))
        return
    console = Console(highlight=False)
    console.print(table_of(_catalogue(), Path("results")))
    console.print("\nbasinscope study run STUDY --scale smoke", markup=False)


@app.command()
def run(
    name: Name,
    scale: Scale = None,
    change: Changes = None,
    store: Where = "runs",
    on: Annotated[
        str, typer.Option("--on", metavar="here|local|ray|ray://HOST:PORT|slurm", help="Where to compute.")
    ] = "local",
    workers: Annotated[int | None, typer.Option("--workers", min=1, help="Processes, or tasks on a cluster.")] = None,
    gpus: Annotated[float | None, typer.Option("--gpus", min=0, help="GPUs per worker on a cluster.")] = None,
    minutes: Annotated[
        float | None, typer.Option("--minutes", min=0, help="Start nothing that would end later, and stop.")
    ] = None,
    only: Annotated[
        str, typer.Option("--only", metavar="PATTERN", help="Only jobs with such settings: 'part=truth seed=1*'.")
    ] = "",
) -> None:
    """Run the jobs of a study that have no stored result yet.

    It may be stopped at any time; the same command goes on where it stopped.
    """
    with _extra():
        from ..runs.driver import INTERRUPTED
        from ..runs.driver import run as drive
        from ..runs.settings import merged, overrides

        named = _named_study(name)
        settings = merged(named.settings, overrides(change or []))
        with _terminable():
            summary = drive(
                named.reference,
                store,
                scale=scale or named.scale or "smoke",
                settings=settings,
                on=_executor(on, workers, gpus),
                minutes=minutes,
                only=only,
            )
    _print_summary(summary)
    if summary.stopped == INTERRUPTED:
        raise typer.Exit(130)
    if summary.failed:
        raise typer.Exit(1)


@app.command()
def status(
    name: Annotated[
        str | None, typer.Argument(metavar="[STUDY]", help="Only this study.", autocompletion=complete_study)
    ] = None,
    store: Where = "runs",
    watch: Annotated[bool, typer.Option("--watch", help="Follow until the driver ends.")] = False,
    failures: Annotated[bool, typer.Option("--failures", help="Show tracebacks of failed jobs.")] = False,
    as_json: Json = False,
) -> None:
    """How far the studies in a store are. Reads only, while another terminal runs them."""
    with _extra():
        from ..runs.status import statuses
        from ..runs.store import Store

        opened = Store(store)
        rows = statuses(opened, name)
    console = Console(highlight=False)
    if as_json:
        typer.echo(json.dumps([vars(row) for row in rows]))
    elif watch:
        _follow(console, lambda: statuses(opened, name))
    else:
        console.print(_overview(rows))
    if failures:
        for failure in opened.failures():
            console.print(f"\n[bold red]{escape(_label(failure['config']))}[/]\n{escape(failure['traceback'])}")


@app.command()
def report(
    name: Name,
    scale: Scale = None,
    change: Changes = None,
    store: Where = "runs",
    out: Annotated[Path | None, typer.Option("--out", help="Folder to write to; results/NAME unless given.")] = None,
) -> None:
    """Make a study's page, table and figures from what is stored, at the settings it was last run with."""
    with _extra():
        from ..report.studies import write_study_page
        from ..runs.records import record
        from ..runs.references import load
        from ..runs.results import Results
        from ..runs.settings import merged, overrides, resolved
        from ..runs.status import last_asked
        from ..runs.store import Store

        opened, named = Store(store), _named_study(name)
        study = load(named.reference)
        manifest = last_asked(opened, study.name)
        if scale is None and not change and not named.settings and manifest is not None:
            settings = record(study.Settings, manifest["settings"], f"study {study.name!r}", "setting")
        else:
            changes = merged(named.settings, overrides(change or []))
            settings = resolved(study, scale or named.scale or (manifest or {}).get("scale", "smoke"), changes)
        results = Results(study, settings, opened)
        folder = out or Path("results") / study.name
        written = results.write(folder)
        again = _again(name, store, scale, change)
        written.append(write_study_page(results, folder, written, again))
    console = Console(highlight=False)
    if results.missing:
        console.print(f"[yellow]{len(results.missing)} of {len(results.jobs)} jobs have no result yet[/]")
    console.print(f"wrote {', '.join(path.name for path in written)} to [bold]{escape(str(folder))}[/]")


@app.command()
def restore(
    name: Name,
    source: Annotated[Path, typer.Argument(metavar="REPORT", help="Folder that `basinscope study report` wrote.")],
    store: Where = "runs",
) -> None:
    """Put the results of a report back into a store, to go on from there."""
    with _extra():
        from ..runs.restoring import restore as put_back
        from ..runs.store import Store

        named = _named_study(name)
        count, total = put_back(named.study, source, Store(store))
    typer.echo(f"{named.study.name}: {count} of {total} results put into {store}")


def _again(name: str, store: str, scale: str | None, change: list[str] | None) -> str:
    """The commands that make a report from nothing."""
    common = [name, *(["--store", store] if store != "runs" else []), *(["--scale", scale] if scale else [])]
    common += [part for setting in change or [] for part in ("-s", setting)]
    return "\n".join(shlex.join(["basinscope", "study", what, *common]) for what in ("run", "report"))


def _named_study(name: str) -> Named:
    from ..runs.references import find

    return find(name, {short_name: entry.reference for short_name, entry in _catalogue().items()})


def _catalogue() -> dict[str, Known]:
    return {**CATALOGUE, **studies_in(Path("studies"))}


def _executor(on: str, workers: int | None, gpus: float | None) -> Executor:
    from ..runs.executors.inline import Inline
    from ..runs.executors.local import Local
    from ..runs.executors.ray import Ray
    from ..runs.executors.slurm import Slurm

    if on == "here":
        return Inline()
    if on == "local":
        return Local(workers)
    if on == "ray" or on.startswith("ray://"):
        return Ray(None if on == "ray" else on, workers, gpus)
    if on == "slurm":
        return Slurm(gpus=gpus) if workers is None else Slurm(workers, gpus=gpus)
    raise InputError(f"--on must be here, local, ray, ray://host:port or slurm, got {on!r}")


@contextmanager
def _extra() -> Iterator[None]:
    """Studies need packages that measuring alone does not."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name in ("filelock", "fsspec", "pandas", "pyarrow", "yaml"):
            raise InputError(f"studies need {error.name} — pip install 'basinscope[studies]'") from error
        raise


@contextmanager
def _terminable() -> Iterator[None]:
    """A polite request to end (as schedulers send before they kill) ends the run as Ctrl-C does."""

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _print_summary(summary: RunSummary) -> None:
    console = Console(highlight=False)
    for key, reason in summary.aside.items():
        console.print(f"[yellow]damaged result[/] {key[:12]} set aside: {escape(reason)}")
    for label, error in list(summary.failed.items())[:_SHOWN]:
        console.print(f"[red]failed[/] {escape(label)}: {escape(error)}")
    if len(summary.failed) > _SHOWN:
        console.print(f"[red]and {len(summary.failed) - _SHOWN} more[/] — `basinscope study status --failures`")
    done = summary.known + summary.fresh
    console.print(
        f"[bold]{escape(summary.study)}[/]: {done} of {summary.total} jobs stored, {summary.fresh} of them now, "
        f"{len(summary.failed)} failed, {summary.seconds:.1f} s"
    )
    if summary.stopped:
        console.print(f"stopped because {summary.stopped} — the same command goes on from here")


def _follow(console: Console, look: Callable[[], list[Status]]) -> None:
    """Show the status until no driver is alive."""
    with Live(console=console, refresh_per_second=4) as live:
        try:
            while True:
                rows = look()
                live.update(_overview(rows))
                if not any(row.driver and row.driver["alive"] for row in rows):
                    return
                time.sleep(_REFRESH)
        except KeyboardInterrupt:
            return


def _overview(rows: list[Status]) -> Group:
    return Group(*(part for row in rows for part in _paragraph(row))) if rows else Group("nothing was run yet")


def _paragraph(status: Status) -> Iterator[str]:
    colour = "green" if status.done == status.total else "red" if status.failed else "yellow"
    yield (
        f"[bold]{escape(status.study)}[/] ({escape(status.scale)}): [{colour}]{status.done} of {status.total}[/] jobs "
        f"stored, {len(status.failed)} failed, {status.seconds:.1f} s of computing"
    )
    if status.driver is not None and status.driver["alive"]:
        driver = status.driver
        yield (
            f"  running: {driver['running']} at once on {driver['on']}, process {driver['process']} "
            f"on {escape(driver['host'])}" + (f", {driver['left']}" if driver["left"] else "")
        )
    elif status.driver is not None:
        yield "  [yellow]its driver died[/] — `basinscope study run` goes on from here"
    for label, error in list(status.failed.items())[:_SHOWN]:
        yield f"  [red]failed[/] {escape(label)}: {escape(error)}"


def _label(config: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in config.items())
