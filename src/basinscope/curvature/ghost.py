"""Traces of F and C from the norms of gradient rows that are never written out ("ghost norms").

Tr F = (1/n) Σ_i Σ_k ‖J_iᵀ s_ik‖² with B_i = Σ_k s_ik s_ikᵀ, and Tr C = (1/n) Σ_i ‖∇l_i‖². For a linear layer a row is
δ ⊗ a, and its squared norm is ‖δ‖² ‖a‖²; over positions t it is Σ_ts (δ_t·δ_s)(a_t·a_s).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ..checks import whole_seed
from ..landscape import Landscape
from ..progress import Report
from ..samples import Samples
from .gradients import Gradients
from .likelihood import count, random_root, with_drawn_labels
from .stack_traces import stack_traces
from .trace import TraceEstimate

MAX_ROOTS = 128  # backward passes beyond which a trace is sampled instead
DRAWS_AT_ONCE = 12  # independent random roots or labels before a standard error is believed
MAX_DRAWS = 400

Block = Callable[[int, int], dict[str, Tensor]]  # (seed, number) -> that many independent traces, by parameter


def layer_traces(
    land: Landscape,
    matrix: str,
    *,
    rtol: float = 0.01,
    seed: int = 0,
    memory: int | None = None,
    report: Report = lambda fraction, text: None,
) -> TraceEstimate:
    """Tr F (`matrix="fisher"`) or Tr C (`"covariance"`), whole and with a block for each parameter.

    The trace is exact for plain stacks of linear layers, in closed form, and otherwise by one backward pass for each of
    the r roots of B, up to r = 128. Beyond that (a vocabulary at every position of a sequence) it is estimated from
    random roots s = L u, B = L Lᵀ, u of random signs for each sample, until the standard error meets `rtol`: their
    errors average out over samples, so that a few suffice. A loss of your own with a method `sample` gets random labels
    in the same way.

    Examples:
        >>> import torch, basinscope as bs
        >>> land = bs.Landscape(torch.nn.Linear(2, 1, bias=False), "mse", (torch.ones(5, 2), torch.ones(5, 1)))
        >>> layer_traces(land, "fisher").value
        2.0
    """
    if matrix == "fisher" and land.loss.family == "custom":
        return _sampled(land, lambda first, number: _labels(land, first, number, memory), rtol, seed, report)
    stack = stack_traces(land, curved=False, memory=memory, report=report) if matrix == "fisher" else None
    if stack is not None:
        return TraceEstimate.exact(stack.fisher.values(), "closed form", 1)
    roots = count(land, matrix)
    if roots > MAX_ROOTS:
        return _sampled(land, lambda first, number: _norms(_Random(land, first, number, memory)), rtol, seed, report)
    norms = _norms(Gradients(land, matrix, memory), report)
    traces = (float(norms[name].sum()) if name in norms else 0.0 for name in land.parameters)
    return TraceEstimate.exact(traces, "gradient norms", roots)


class _Random(Gradients):
    """Gradient rows of random roots L u instead of all columns of L."""

    def __init__(self, land: Landscape, seed: int, number: int, memory: int | None) -> None:
        self._number = number
        self._generator = torch.Generator(device=land.device).manual_seed(whole_seed(seed))
        super().__init__(land, "fisher", memory)

    def _cotangents(self, value: Tensor, batch: Samples) -> list[Tensor]:
        return [random_root(self.land, value, batch.target, self._generator) for _ in range(self._number)]


def _norms(gradients: Gradients, report: Report = lambda fraction, text: None) -> dict[str, Tensor]:
    """(1/n) Σ_i ‖g_ik‖² over the samples, by parameter and root k."""
    norms: dict[str, Tensor] = {}
    n, done = gradients.land.n, 0
    for tile in gradients.squares():
        for name, squares in tile.items():
            norms[name] = norms.get(name, 0) + squares.sum(0).cpu() / n
        done += len(next(iter(tile.values())))
        report(done / n, "")
    return norms


def _labels(land: Landscape, seed: int, number: int, memory: int | None) -> dict[str, Tensor]:
    """Tr C by parameter for `number` independent sets of labels drawn from the model."""
    sets = [_norms(Gradients(with_drawn_labels(land, seed=seed + j), "covariance", memory)) for j in range(number)]
    return {name: torch.cat([traces[name] for traces in sets]) for name in sets[0]}


def _sampled(land: Landscape, block: Block, rtol: float, seed: int, report: Report) -> TraceEstimate:
    """Independent estimates until their standard error meets rtol."""
    traces: dict[str, Tensor] = {}  # k estimates of each parameter's trace
    while True:
        k = len(next(iter(traces.values()))) if traces else 0
        fresh = block(seed + k, DRAWS_AT_ONCE)
        traces = {name: torch.cat([traces[name], part]) if k else part for name, part in fresh.items()}
        k += DRAWS_AT_ONCE
        total = torch.stack(list(traces.values())).sum(0)
        value, stderr = float(total.mean()), float(total.std()) / math.sqrt(k)
        report(min(1.0, rtol * value / max(stderr, 1e-300)) ** 2, f"{value:.4g} ± {stderr:.2g}")
        if stderr <= rtol * value or k >= MAX_DRAWS:
            zero = torch.zeros(k)
            parts = [traces.get(name, zero) for name in land.parameters]
            blocks = tuple((float(part.mean()), float(part.std()) / math.sqrt(k)) for part in parts)
            return TraceEstimate(value, stderr, k - 1, "sampled gradient norms", k, blocks)
