"""What is measured of a language model in place, in one go: λ̂, its heads, and curvature where there is time for it."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any, Unpack

import torch

from ..curvature.language import LanguageOperator
from ..errors import BasinscopeError
from ..estimates import Estimate
from ..language.model import LanguageModel
from ..progress import duration, part, tracked
from ..samples import digest, tensors
from ..sampling.clock import Schedule
from .coefficient import LearningCoefficient
from .llc import llc
from .llc_by_part import llc_by_part
from .measured import ChainTraces, LandscapeFacts, Measurement
from .remedies import followable
from .settings import Sampling, checked, takes_settings
from .soft_rank import soft_rank
from .trace import trace

_TRACE_PRODUCTS, _RANK_PRODUCTS = 16, 400  # with H, that a trace and a soft rank take
_STEPS_PER_HEAD = 400  # that λ̂ of a head takes at least, tuning included
_SAMPLING, _HEADS = 0.5, 0.75  # of the progress bar
_SEEN = 64  # sequences whose digest tells data apart


@takes_settings
def language_measurement(land: LanguageModel, *, progress: bool = True, **settings: Unpack[Sampling]) -> Measurement:
    """λ̂ of a language model in place and of its heads; ½ soft rank and trace where they are done within the budget.

    What would take longer is an estimate that failed, which says how long it would take and with what call.

    Args:
        land: the language model.
        progress: show a bar.
        settings: those of `posterior`; heads get as much again as `budget`, and curvature, too.
    """
    _, _, chosen = checked(settings)
    budget = chosen.budget.seconds if isinstance(chosen.budget, Schedule) else float(chosen.budget)
    seconds: dict[str, float] = {}
    with tracked("measuring", progress) as report:
        began = time.perf_counter()
        with part(report, 0.0, _SAMPLING):
            whole = followable("llc", llc(land, progress=progress, **settings))
        seconds["llc"] = time.perf_counter() - began
        report(_SAMPLING, "heads")
        began = time.perf_counter()
        heads = _heads(land, whole, budget, settings)
        seconds["heads"] = time.perf_counter() - began
        report(_HEADS, "curvature")
        began = time.perf_counter()
        half, others = _curvature(land, whole, budget, chosen.seed)
        seconds["curvature"] = time.perf_counter() - began
    return Measurement(
        _facts(land, whole), whole, half, [], {**others, **heads}, ChainTraces.of(whole), None,
        list(_notes(land, whole)), seconds,
    )  # fmt: skip


def _heads(
    land: LanguageModel, whole: LearningCoefficient, budget: float, settings: Mapping[str, Any]
) -> dict[str, Estimate]:
    """λ̂ of every head, if there is time for all of them."""
    heads = land.parts("head")
    needed = len(heads) * _STEPS_PER_HEAD * whole.diagnostics.get("step_seconds", math.inf)
    if not heads or needed > budget:
        call = f"bs.llc_by_part(land, budget={needed:.0f})"
        reason = f"{len(heads)} heads would take about {duration(needed)} — call {call}" if heads else ""
        return {"llc_of_heads": Estimate.failed("llc_of_heads", reason)} if heads else {}
    given = {name: value for name, value in settings.items() if name not in ("nbeta", "gamma")}
    by_head = llc_by_part(land, progress=False, nbeta=whole.diagnostics["nbeta"], **given)
    return {f"llc_of_{name.replace(' ', '_')}": followable("llc", estimate) for name, estimate in by_head.items()}


def _curvature(
    land: LanguageModel, whole: LearningCoefficient, budget: float, seed: int
) -> tuple[Estimate, dict[str, Estimate]]:
    """½ soft rank of the Fisher matrix and trace of the Hessian, as far as products are quick enough."""
    decay = whole.diagnostics["gamma"] / whole.diagnostics["nbeta"]
    try:
        price = _price(land)
    except BasinscopeError as error:
        return Estimate.failed("half_soft_rank", error), {"hessian_trace": Estimate.failed("hessian_trace", error)}
    half = _affordable(
        "half_soft_rank", _RANK_PRODUCTS * price, budget, f"bs.soft_rank(land, weight_decay={decay:.3g})",
        lambda: soft_rank(land, weight_decay=decay, seed=seed, rtol=0.05, progress=False),
    )  # fmt: skip
    if math.isfinite(half.value):
        half = Estimate(
            "half_soft_rank", half.value / 2, half.stderr / 2, half.checks,
            {**half.diagnostics, "matrix": "fisher"}, half.freedom,
        )  # fmt: skip
    most = max(_TRACE_PRODUCTS, int(min(budget / price, 2000)))
    curved = _affordable(
        "hessian_trace", _TRACE_PRODUCTS * price, budget, "bs.trace(land)",
        lambda: trace(land, rtol=0.1, max_products=most, seed=seed, progress=False),
    )  # fmt: skip
    return followable("half_soft_rank", half), {"hessian_trace": followable("hessian_trace", curved)}


def _price(land: LanguageModel) -> float:
    """Seconds of a product with the Hessian over all data, from one with part of them."""
    product = LanguageOperator(land, "hessian")
    vector = torch.ones(land.dimension, device=land.device, dtype=land.dtype)
    product.sampled(vector)  # which fills caches
    began = time.perf_counter()
    used = product.sampled(vector)
    return (time.perf_counter() - began) * land.n / used


def _affordable(name: str, needed: float, budget: float, call: str, compute: Any) -> Estimate:
    """An estimate, or what it would cost."""
    if needed > budget:
        return Estimate.failed(name, f"not measured: it would take about {duration(needed)} — call {call}")
    try:
        estimate: Estimate = compute()
        return estimate
    except BasinscopeError as error:
        return Estimate.failed(name, error)


def _facts(land: LanguageModel, whole: LearningCoefficient) -> LandscapeFacts:
    return LandscapeFacts(
        network=type(land.module).__name__,
        parameters=land.dimension,
        layers=[[name, list(tensor.shape)] for name, tensor in land.parameters.items()],
        samples=land.count,
        loss=f"cross_entropy per {land.units}",
        loss_value=whole.diagnostics["loss"],
        dtype=str(land.dtype).removeprefix("torch."),
        device=str(land.device),
        weights_sha256=digest(leaf.value() for leaf in land.leaves().values()),
        data_sha256=digest(tensors(land.take_first(min(land.n, _SEEN)).inputs)),
    )


def _notes(land: LanguageModel, whole: LearningCoefficient) -> Any:
    """What a reader of language models wants to know, in words."""
    seen = whole.diagnostics
    yield (
        f"{land.n:,} sequences of {land.length:,} tokens, {land.tokens:,} of which are predicted; loss "
        f"{seen['loss_per_token']:.4g} nats per token"
    )
    yield f"nβ = {seen['nbeta_per_token']:.4g} per token, which is {seen['nbeta_per_sequence']:.4g} per sequence"
    yield (
        f"{seen['tokens_per_second']:,.0f} tokens per second, gradients included; {seen['bytes_per_parameter']:.3g} "
        f"bytes a parameter beside activations"
    )
    if land.device.type == "cuda":
        yield f"{torch.cuda.max_memory_allocated(land.device) / 1e9:.1f} GB at the most"
