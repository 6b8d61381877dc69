"""`basinscope compare`: λ̂ of several networks at one resolution, with the errors of its differences."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..errors import InputError
from .options import Device, Gamma, Json, Loss, Nbeta, Quiet, Sampler, Seed, Strict, judge

if TYPE_CHECKING:
    from ..estimates import Estimate
    from ..measures.comparison import Comparison


def compare(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATH...", help="Two or more reports (report.json or its folder), or checkpoints."),
    ],
    model: Annotated[
        str | None, typer.Option("--model", metavar="PKG.MOD:BUILD", help="For checkpoints: builds the network.")
    ] = None,
    data: Annotated[
        str | None, typer.Option("--data", metavar="PKG.MOD:LOAD", help="For checkpoints: loads the data.")
    ] = None,
    loss: Loss = "cross_entropy",
    nbeta: Nbeta = None,
    gamma: Gamma = None,
    sampler: Sampler = "auto",
    budget: Annotated[float, typer.Option("--budget", help="Most sampling for each checkpoint, in seconds.")] = 60.0,
    device: Device = "cpu",
    seed: Seed = 0,
    as_json: Json = False,
    quiet: Quiet = False,
    strict: Strict = False,
) -> None:
    """Compare the complexity of networks: λ̂ at one resolution, and each difference from the first with its error.

    Reports must have been measured at the same nβ and γ. Checkpoints are measured now, at a resolution they share.
    """
    if len(paths) < 2:
        raise InputError(f"a comparison needs two paths or more, got {len(paths)}")
    are_reports = [path.is_dir() or path.suffix.lower() == ".json" for path in paths]
    if any(are_reports) and not all(are_reports):
        raise InputError("reports and checkpoints cannot be mixed — name reports alone or checkpoints alone")
    if all(are_reports):
        if nbeta is not None or gamma is not None:
            raise InputError("reports have their resolution — compare checkpoints to choose --nbeta or --gamma")
        comparison = _of_reports(paths)
    else:
        if model is None or data is None:
            raise InputError("checkpoints need --model and --data, as for `basinscope measure`")
        settings = {"nbeta": nbeta, "gamma": gamma, "sampler": sampler, "budget": budget, "seed": seed}
        comparison = _of_checkpoints(paths, (model, data, loss, device), settings, not quiet)
    if as_json:
        typer.echo(json.dumps({"rows": _plain(comparison)}, ensure_ascii=False))
    elif not quiet:
        _show(comparison)
    judge(comparison.estimates.values(), strict)


def _of_reports(paths: Sequence[Path]) -> Comparison:
    from ..measures.comparison import Comparison
    from ..report.report import Report

    estimates: dict[str, Estimate] = {}
    for name, path in zip(_names(paths), paths, strict=True):
        estimates[name] = Report.load(path)["llc"]
    try:
        return Comparison(estimates)
    except InputError as error:
        remedy = str(error).replace("the same nbeta", "the same --nbeta").replace("the same gamma", "the same --gamma")
        raise InputError(remedy) from error


def _of_checkpoints(
    paths: Sequence[Path], subject: tuple[str, str, str, str], settings: dict[str, Any], progress: bool
) -> Comparison:
    from ..adapters.checkpoints import read_weights
    from ..measures.comparison import compare as measured_at_one_resolution
    from ..report.checkpoints import Subject

    sys.path.insert(0, str(Path.cwd()))  # as `python -m` has it: functions of the folder one works in
    loaded = Subject.load(*subject)
    landscapes = [loaded.at(read_weights(path), path) for path in paths]
    return measured_at_one_resolution(*landscapes, names=_names(paths), **settings, progress=progress)


def _names(paths: Sequence[Path]) -> list[str]:
    """What the paths are called: their last parts where these differ."""
    short = [path.parent.name if path.name == "report.json" else path.stem for path in paths]
    names = short if len(set(short)) == len(paths) and all(short) else [str(path) for path in paths]
    if len(set(names)) < len(names):
        raise InputError(f"each path can be named once, got {', '.join(names)}")
    return names


def _plain(comparison: Comparison) -> Any:
    from ..estimates import plain

    return plain(comparison.rows)


def _show(comparison: Comparison) -> None:
    from ..differences import resolution_in_words
    from ..measures.comparison import relation
    from ..report.words import interval, with_error

    console, differences = Console(highlight=False), comparison.differences
    first, reference = next(iter(comparison.estimates.items()))
    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2))
    for title in ("", "λ̂", "90 % interval", "verdict", f"minus {escape(first)}", "90 % interval", ""):
        table.add_column(title, justify="left" if title in ("", "verdict") else "right")
    for name, estimate in comparison.estimates.items():
        cells = [escape(name), with_error(estimate.value, estimate.stderr), interval(estimate), estimate.verdict]
        if name in differences:
            difference = differences[name]
            cells += [with_error(difference.value, difference.stderr), interval(difference), relation(difference)]
        table.add_row(*cells)
    console.print(table)
    console.print(f"\nat {resolution_in_words(reference.diagnostics)}")
    for name, estimate in comparison.estimates.items():
        for warning in estimate.warnings:
            console.print(f"[yellow]•[/] {escape(name)}: {escape(warning)}")
