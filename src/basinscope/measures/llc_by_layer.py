"""λ̂ of each layer beside that of the whole network."""

from __future__ import annotations

import glob
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ..errors import InputError
from ..landscape import Landscape
from ..language.model import LanguageModel
from ..progress import Report, part
from ..sampling.clock import Schedule
from .coefficient import LearningCoefficient
from .settings import DEFAULTS

WHOLE_SHARE = 0.5  # of the budget, for λ̂ of the whole network
_LONGEST = 64  # numbers in a diagnostic of a layer that is kept: its chains are not

Measure = Callable[..., LearningCoefficient]


def with_layers(land: object, measure: Measure, settings: Mapping[str, Any], report: Report) -> LearningCoefficient:
    """λ̂ of a landscape, with that of each of its layers at the same nβ, γ and seed in its diagnostics."""
    if not isinstance(land, (Landscape, LanguageModel)):
        raise InputError(
            f"per_layer=True restricts a landscape to its layers, got {type(land).__name__} — pass the landscape itself"
        )
    budget = settings.get("budget", DEFAULTS["budget"])
    if isinstance(budget, Schedule):
        raise InputError("per_layer=True measures several times, and a schedule repeats one run — give bs.Nominal(…)")
    layers = layers_of(land)
    with part(report, 0.0, WHOLE_SHARE):
        whole = measure(land, progress=False, **{**settings, "budget": budget * WHOLE_SHARE})
    share = (1 - WHOLE_SHARE) / len(layers)
    same = {"nbeta": whole.diagnostics["nbeta"], "gamma": whole.diagnostics["gamma"], "budget": budget * share}
    found = {}
    for place, (name, patterns) in enumerate(layers.items()):
        begun = WHOLE_SHARE + share * place
        with part(report, begun, begun + share):
            alone = land.restrict(*patterns)
            estimate = measure(alone, progress=False, **{**settings, **same})
        found[name] = {"parameters": alone.dimension, **estimate.to_dict(_LONGEST)}
    return replace(whole, diagnostics={**whole.diagnostics, "per_layer": found})


def layers_of(land: Landscape | LanguageModel) -> dict[str, tuple[str, ...]]:
    """What to restrict to for each layer: the layers of a transformer, or else modules with parameters of their own.

    Examples:
        >>> import torch, basinscope as bs
        >>> net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1))
        >>> layers_of(bs.Landscape(net, "mse", (torch.ones(5, 2), torch.ones(5, 1))))
        {'0': ('0.weight', '0.bias'), '2': ('2.weight', '2.bias')}
    """
    known = land.parts("layer")
    if known:
        return {layer.name: (layer.name,) for layer in known}
    modules: dict[str, tuple[str, ...]] = {}
    for name in land.parameters:
        module = name.rpartition(".")[0] or name
        modules[module] = (*modules.get(module, ()), glob.escape(name))
    return modules
