"""`basinscope measure`: a user's own checkpoint, or a folder of them, as a report."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from ..errors import InputError
from .options import Device, Gamma, Json, Loss, Nbeta, Quiet, Sampler, Seed, Strict, judge


def measure(
    checkpoint: Annotated[
        Path,
        typer.Argument(
            metavar="CKPT",
            help="A checkpoint (.safetensors, or .pt of tensors alone), or a folder of them; with --text, the folder "
            "or name of a language model.",
        ),
    ],
    model: Annotated[
        str, typer.Option("--model", metavar="PKG.MOD:BUILD", help="A function that builds the network.")
    ] = "",
    data: Annotated[
        str, typer.Option("--data", metavar="PKG.MOD:LOAD", help="A function that loads (x, y), a Dataset or batches.")
    ] = "",
    text: Annotated[
        Path | None,
        typer.Option("--text", help="A text, or an .npy array of tokens, on which to measure a saved language model."),
    ] = None,
    length: Annotated[int, typer.Option("--length", help="Tokens of a sequence, into which --text is cut.")] = 256,
    units: Annotated[str, typer.Option("--units", help="What nβ counts with --text: token or sequence.")] = "token",
    loss: Loss = "cross_entropy",
    held_out: Annotated[
        str,
        typer.Option("--held-out", metavar="PKG.MOD:LOAD", help="Loads data not trained on, to measure the gap there."),
    ] = "",
    out: Annotated[Path | None, typer.Option("--out", help="File to write; report.html unless given.")] = None,
    kind: Annotated[str, typer.Option("--format", metavar="html|md|json|parquet", help="Format of the file.")] = "",
    keep: Annotated[
        Path | None,
        typer.Option("--keep", help="Folder that keeps each result, to go on after a stop and to follow live."),
    ] = None,
    nbeta: Nbeta = None,
    gamma: Gamma = None,
    weight_decay: Annotated[
        float | None, typer.Option("--weight-decay", help="Λ of the predicted gap and log-det; γ/(nβ) unless given.")
    ] = None,
    sampler: Sampler = "auto",
    rtol: Annotated[
        float | None, typer.Option("--rtol", help="Wanted standard error, relative to λ̂; 0.02 unless given.")
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option("--budget", help="Most sampling for λ̂, in seconds; 60, or 10 for each of several checkpoints."),
    ] = None,
    selftest: Annotated[
        bool,
        typer.Option("--selftest", help="First try these settings on a network of the same size whose λ is known."),
    ] = False,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Answer within ten seconds: λ̂ alone, from as much of the data as that allows."),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Say how λ̂ would be sampled and what that would take, and measure nothing."),
    ] = False,
    title: Annotated[str, typer.Option("--title", help="Title of the report.")] = "",
    device: Device = "cpu",
    seed: Seed = 0,
    as_json: Json = False,
    quiet: Quiet = False,
    strict: Strict = False,
) -> None:
    """Measure how complex your own network is, and write the report."""
    path, kind = target(out, kind)
    console = Console(highlight=False, quiet=quiet or as_json)
    if text is not None:
        others = {"--model": model, "--data": data, "--held-out": held_out, "--weight-decay": weight_decay,
                  "--keep": keep, "--selftest": selftest, "--quick": quick, "--dry-run": dry_run}  # fmt: skip
        given = {"nbeta": nbeta, "gamma": gamma, "rtol": rtol, "budget": budget, "seed": seed}
        report = _of_text(checkpoint, text, length, units, device, title, given, others, not quiet)
        _shown(report, path, kind, console, as_json, strict)
        return
    if not model or not data:
        raise InputError("--model and --data are missing: name functions, or a text by --text for a language model")
    from ..report.checkpoints import Subject, measure_checkpoints  # brings torch with it

    sys.path.insert(0, str(Path.cwd()))  # as `python -m` has it: functions of the folder one works in
    subject = Subject.load(model, data, loss, device, held_out)
    settings: dict[str, Any] = {
        "nbeta": nbeta,
        "gamma": gamma,
        "weight_decay": weight_decay,
        "sampler": sampler,
        "rtol": rtol,
        "budget": budget,
        "seed": seed,
    }
    if dry_run:
        _plan(subject, checkpoint, settings, console)
        return
    if quick:
        settings = _quick_settings(settings, held_out, selftest)
    if selftest:
        _selftest(subject, checkpoint, settings, console)
    report = measure_checkpoints(
        subject, checkpoint, settings, command=_command(), title=title, keep=keep, progress=not quiet, quick=quick
    )
    _shown(report, path, kind, console, as_json, strict)


def _shown(report: Any, path: Path, kind: str, console: Console, as_json: bool, strict: bool) -> None:
    """Write the report, show it, and end as its verdict says."""
    report.write(path, kind)
    console.print(report)
    console.print(f"\nwrote [bold]{escape(str(path))}[/bold]", soft_wrap=True)
    if as_json:
        typer.echo(report.to_json(), nl=False)
    judge([report["llc"]], strict)


def _of_text(
    model: Path, text: Path, length: int, units: str, device: str, title: str, given: dict[str, Any],
    others: dict[str, Any], progress: bool,
) -> Any:  # fmt: skip
    """The report of a language model on a text."""
    unfit = [option for option, value in others.items() if value not in ("", None, False)]
    if unfit:
        raise InputError(f"--text measures a saved language model in place: expected no {', '.join(unfit)}")
    from ..adapters.hugging_face import pretrained  # bring torch with them
    from ..language.model import LanguageModel
    from ..language.text import tokens_in
    from ..report.measure import measure as measured

    name, _, revision = str(model).partition("@")
    network = pretrained(str(model)).to(device)
    land = LanguageModel(network, tokens_in(text, name, revision or None), length=length, units=units)
    settings = {key: value for key, value in given.items() if value is not None}
    return measured(land, title=title or f"{model.name} on {text.name}", progress=progress, **settings)


def _plan(subject: Any, checkpoint: Path, settings: dict[str, Any], console: Console) -> None:
    """Say how each checkpoint would be sampled."""
    from ..adapters.checkpoints import checkpoints_in, read_weights
    from ..measures.posterior import plan
    from ..report.checkpoints import with_budget

    files = checkpoints_in(checkpoint)
    land = subject.at(read_weights(files[-1]), files[-1])
    options = with_budget(settings, len(files) > 1)
    options.pop("weight_decay", None)
    console.print(f"{land}", soft_wrap=True, markup=False)
    console.print(f"{plan(land, **options)}", soft_wrap=True, markup=False)
    console.print(
        f"Curvature takes about as long again, WAIC and LOO a quarter of it; {len(files)} checkpoint"
        f"{'s, all but the last in brief' if len(files) > 1 else ''}. Nothing was measured.",
        soft_wrap=True, markup=False,
    )  # fmt: skip


def _quick_settings(settings: dict[str, Any], held_out: str, selftest: bool) -> dict[str, Any]:
    """The settings that a quick look has; those that it has not are refused."""
    others = [name for name in ("weight_decay", "rtol", "budget") if settings[name] is not None]
    others += ["sampler"] * (settings["sampler"] != "auto") + ["held_out"] * bool(held_out) + ["selftest"] * selftest
    if others:
        listed = ", ".join(f"--{name.replace('_', '-')}" for name in others)
        raise InputError(f"a quick look chooses for itself: expected no {listed} — leave out that, or --quick")
    return {name: settings[name] for name in ("nbeta", "gamma", "seed")}


def _selftest(subject: Any, checkpoint: Path, settings: dict[str, Any], console: Console) -> None:
    """Say how well these settings do on a network like this one."""
    from ..adapters.checkpoints import read_weights
    from ..measures.selftest import selftest

    if not checkpoint.is_file():
        raise InputError(f"--selftest needs one checkpoint, and {str(checkpoint)!r} is none — name a file")
    options = {name: value for name, value in settings.items() if name != "weight_decay" and value is not None}
    estimate = selftest(subject.at(read_weights(checkpoint), checkpoint), **options)
    planted = estimate.diagnostics
    console.print(
        f"[bold]selftest {estimate.verdict}[/bold]: a linear network {'-'.join(map(str, planted['widths']))} of rank "
        f"{planted['rank']} has {planted['reference']:.5g} (λ = {planted['exact']:g}), and these settings find "
        f"{planted['llc']:.5g} ± {planted['llc_stderr']:.2g} ({estimate.value:+.1%})",
        soft_wrap=True,
    )
    for warning in estimate.warnings:
        console.print(f"  {escape(warning)}", soft_wrap=True)


def target(out: Path | None, kind: str) -> tuple[Path, str]:
    """The file to write and its format, checked before any computing starts."""
    if out is not None and out.is_dir():
        raise InputError(f"--out must be a file, and {str(out)!r} is a folder — for example {out / 'report.html'}")
    from ..report.report import FORMATS

    kind = kind or (out.suffix.removeprefix(".").lower() if out is not None else "html")
    if kind not in FORMATS:
        raise InputError(f"--format must be one of {', '.join(FORMATS)}, got {kind!r}")
    return out or Path(f"report.{kind}"), kind


def _command() -> str:
    return shlex.join(["basinscope", *sys.argv[1:]])
