"""The settings of every measure that samples: said once, and checked once."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypedDict, TypeVar, get_type_hints

from ..errors import InputError
from ..sampling.clock import Schedule
from ..sampling.local import Settings


class Sampling(TypedDict, total=False):
    """How to sample a local posterior ∝ exp(−nβ L_n(w) − (γ/2)‖w − w*‖²); what each means, `posterior` tells."""

    nbeta: float | None
    gamma: float | None
    sampler: str
    chains: int | None
    draws: int | None
    step_size: float | None
    batch_size: int | None
    burn_in: float | None
    rtol: float
    budget: float | Schedule
    seed: int


DEFAULTS: Mapping[str, Any] = {
    "nbeta": None, "gamma": None, **{entry.name: entry.default for entry in dataclasses.fields(Settings)}
}  # fmt: skip
LADDERS = ("auto", "hmc", "minibatch")  # samplers whose chains go on at another resolution
Measure = TypeVar("Measure", bound=Callable[..., Any])


def takes_settings(measure: Measure) -> Measure:
    """Show the settings with their defaults in the signature of a measure that takes `**settings`.

    Examples:
        >>> import inspect, basinscope as bs
        >>> inspect.signature(bs.llc).parameters["rtol"].default
        0.02
    """
    parameters = [
        parameter
        for parameter in inspect.signature(measure).parameters.values()
        if parameter.kind is not parameter.VAR_KEYWORD
    ]
    hints = get_type_hints(Sampling)
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=DEFAULTS[name], annotation=hints[name])
        for name in hints
        if all(parameter.name != name for parameter in parameters)
    ]
    measure.__signature__ = inspect.Signature([*parameters, *shared])  # type: ignore[attr-defined]
    return measure


def checked(settings: Mapping[str, Any]) -> tuple[float | None, float | None, Settings]:
    """nβ and γ, as far as given, and the sampler's settings; a name that is none is refused.

    Examples:
        >>> nbeta, gamma, settings = checked({"gamma": 2.0, "chains": 4})
        >>> nbeta, gamma, settings.chains
        (None, 2.0, 4)
    """
    refuse_unknown(settings)
    sampler = {name: value for name, value in settings.items() if name not in ("nbeta", "gamma")}
    return settings.get("nbeta"), settings.get("gamma"), Settings(**sampler)


def checked_of_ladders(settings: Mapping[str, Any]) -> tuple[float | None, float | None, Settings]:
    """The same where chains go on from one run to the next, which not all samplers can.

    Examples:
        >>> checked_of_ladders({"sampler": "sgld"})
        Traceback (most recent call last):
        ...
        basinscope.errors.InputError: unknown sampler 'sgld': expected one of auto, hmc, minibatch
    """
    sampler = settings.get("sampler", "auto")
    if sampler not in LADDERS:
        raise InputError(f"unknown sampler {sampler!r}: expected one of {', '.join(LADDERS)}")
    return checked(settings)


def refuse_unknown(settings: Mapping[str, Any]) -> None:
    """Refuse names that are no settings, and say which may have been meant.

    Examples:
        >>> refuse_unknown({"step_sise": 0.1})
        Traceback (most recent call last):
        ...
        basinscope.errors.InputError: no setting is called 'step_sise' — did you mean 'step_size'?
    """
    for name in settings:
        if name not in DEFAULTS:
            near = difflib.get_close_matches(name, DEFAULTS, 1)
            remedy = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(DEFAULTS)}"
            raise InputError(f"no setting is called {name!r} — {remedy}")


def refuse_settings(settings: Mapping[str, Any], of: str, *, allowed: tuple[str, ...] = ()) -> None:
    """Refuse settings where the draws are made already; one that is left at its default is none.

    Args:
        settings: as given.
        of: what the draws come in, in words.
        allowed: names that may be given all the same.
    """
    refuse_unknown(settings)
    for name, value in settings.items():
        if name not in allowed and value != DEFAULTS[name]:
            raise InputError(f"{name}={value!r} is about drawing from a landscape, got {of} — leave it out")
