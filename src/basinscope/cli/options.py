"""Options that several commands share, and what completes them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ..estimates import Estimate

SAMPLERS = ("auto", "hmc", "minibatch", "lean", "sgld", "rmsprop-sgld", "leimkuhler-matthews", "baoab", "sgnht", "mala")
LOSSES = ("cross_entropy", "mse", "gaussian", "bernoulli")


def complete_sampler(incomplete: str) -> list[str]:
    """Samplers that begin so."""
    return [name for name in SAMPLERS if name.startswith(incomplete)]


def complete_loss(incomplete: str) -> list[str]:
    """Losses that begin so."""
    return [name for name in LOSSES if name.startswith(incomplete)]


def complete_device(incomplete: str) -> list[str]:
    """Devices that begin so."""
    return [name for name in ("cpu", "cuda", "mps") if name.startswith(incomplete)]


def complete_study(incomplete: str) -> list[tuple[str, str]]:
    """Studies that can be run by name, with their titles."""
    from ..studies import CATALOGUE, studies_in

    catalogue = {**CATALOGUE, **studies_in(Path("studies"))}
    return [(name, entry.title) for name, entry in catalogue.items() if name.startswith(incomplete)]


def complete_data(incomplete: str) -> list[str]:
    """Data sets that can be downloaded."""
    return [name for name in ("mnist", "fashion_mnist", "cifar10", "svhn") if name.startswith(incomplete)]


Loss = Annotated[
    str,
    typer.Option(
        "--loss",
        help="The loss: cross_entropy, mse, gaussian, bernoulli, or PKG.MOD:NAME of your own.",
        autocompletion=complete_loss,
    ),
]
Nbeta = Annotated[float | None, typer.Option("--nbeta", help="Inverse temperature nβ; n/log n unless given.")]
Gamma = Annotated[float | None, typer.Option("--gamma", help="Localisation γ; d/‖w*‖² unless given.")]
Sampler = Annotated[
    str,
    typer.Option(
        "--sampler",
        help="How to sample: auto, hmc, minibatch, or a kernel such as sgld.",
        autocompletion=complete_sampler,
    ),
]
Device = Annotated[str, typer.Option("--device", help="Where to compute: cpu, cuda, …", autocompletion=complete_device)]
Seed = Annotated[int, typer.Option("--seed", help="Seed of the chains.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on standard output instead of text.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")]
Strict = Annotated[
    bool, typer.Option("--strict", help="End with exit code 1 if a number that was asked for has failed.")
]


def judge(estimates: Iterable[Estimate], strict: bool) -> None:
    """Under `--strict`, end with exit code 1 where an estimate has failed."""
    if strict and any(estimate.verdict == "failed" for estimate in estimates):
        raise typer.Exit(1)
