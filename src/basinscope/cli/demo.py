"""`basinscope demo`: train a small network, measure it, say what was found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, Group
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table

if TYPE_CHECKING:
    from ..demo import Demo
    from ..estimates import Estimate

COLOURS = {"ok": "green", "doubtful": "yellow", "failed": "red"}


def demo(
    out: Annotated[Path, typer.Option("--out", help="Folder to write to.")] = Path("basinscope-demo"),
    hidden: Annotated[int, typer.Option("--hidden", min=1, max=64, help="Hidden units.")] = 8,
    samples: Annotated[int | None, typer.Option("--samples", help="Use only the first so many images.")] = None,
    budget: Annotated[float, typer.Option("--budget", help="Most sampling, in nominal seconds.")] = 20.0,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the training and of the chains.")] = 0,
) -> None:
    """Train a small network on scikit-learn's digits and measure how complex it is."""
    from .. import demo as demonstration  # brings torch with it

    found = demonstration.run(hidden=hidden, samples=samples, budget=budget, seed=seed)
    written = demonstration.write(found, out)
    console = Console(highlight=False)
    console.print(summary(found))
    console.print(f"\nwrote {', '.join(path.name for path in written)} to [bold]{escape(str(out))}[/bold]")


def summary(demo: Demo) -> Group:
    """What a reader wants to know, the verdict first."""
    llc, trained = demo.llc, demo.trained
    colour = COLOURS[llc.verdict]
    panel = Panel(
        Group(_values(demo), *_reasons(llc)),
        title=f"[bold {colour}]{llc.verdict}[/]",
        title_align="left",
        border_style=colour,
        expand=False,
        padding=(0, 1),
    )
    widths = "-".join(str(width) for width in _widths(demo))
    about = _pairs(
        ("data", f"{len(demo.digits.labels):,} of scikit-learn's digits, 4 × 4 pixels, a fifth of the labels random"),
        ("network", f"{widths} with ReLU, {llc.diagnostics['dimension']:,} parameters"),
        (
            "training",
            f"loss {trained.loss:.4f}, ‖gradient‖ {trained.gradient:.1e}, {trained.accuracy:.0%} of true labels met, "
            f"{trained.seconds:.0f} s",
        ),
    )
    return Group(panel, "", about, "", _pairs(*_details(llc)))


def _widths(demo: Demo) -> Iterator[int]:
    yield demo.digits.inputs.shape[1]
    for name, tensor in demo.trained.network.state_dict().items():
        if name.endswith("bias"):
            yield len(tensor)


def _values(demo: Demo) -> Table:
    table = Table.grid(padding=(0, 3))
    table.add_column()
    table.add_column(justify="right", style="bold")
    table.add_column(style="dim")
    half = dict(demo.curve)[demo.llc.diagnostics["gamma"]]
    table.add_row("learning coefficient λ̂", _error(demo.llc), _interval(demo.llc))
    table.add_row("½ soft rank of the Hessian", f"{half:.1f}", "λ̂ of a quadratic basin")
    table.add_row("½ number of parameters", f"{demo.llc.diagnostics['dimension'] / 2:.1f}", "λ of a regular model")
    table.add_row("WBIC", _error(demo.wbic), _interval(demo.wbic))
    return table


def _reasons(llc: Estimate) -> list[str]:
    return [f"[yellow]•[/] {escape(warning)}" for warning in llc.warnings]


def _details(llc: Estimate) -> Iterator[tuple[str, str]]:
    found = llc.diagnostics
    yield "resolution", f"nβ = n/log n = {found['nbeta']:.1f}, γ = d/‖w*‖² = {found['gamma']:.3g}"
    kind = "on all data" if found["batch_size"] is None else f"on batches of {found['batch_size']}"
    yield "sampler", f"{found['sampler']} {kind}, {found['chains']} chains of {found['draws']} draws, half burn-in"
    if "rhat" in found:
        yield "convergence", f"split-R̂ {found['rhat']:.3f}, effective sample size {found['ess']:.0f}"
        yield "equilibrium", f"virial ratio {found['virial']:.3f} ± {found['virial_stderr']:.3f} (1 when reached)"
    if found.get("heat_capacity") is not None:
        yield "heat capacity", f"(nβ)² Var L = {found['heat_capacity']:.1f}"
    yield "gradient term", f"{found['gradient_term']:.2g} (0 at a minimum)"
    if "gamma_slope" in found:
        yield "localisation", f"∂λ̂/∂log γ = {found['gamma_slope']:.1f} ± {found['gamma_slope_stderr']:.1f}"


def _pairs(*rows: tuple[str, str]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    for name, text in rows:
        table.add_row(name, text)
    return table


def _error(estimate: Estimate) -> str:
    return f"{estimate.value:,.1f} ± {estimate.stderr:.1f}"


def _interval(estimate: Estimate) -> str:
    low, high = estimate.interval(0.9)
    return f"90 %: {low:,.1f} … {high:,.1f}"
