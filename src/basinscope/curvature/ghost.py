"""Traces of F and C from the norms of gradient rows that are never written out ("ghost norms").

Tr F = (1/n) Σ_i Σ_k ‖J_iᵀ s_ik‖² with B_i = Σ_k s_ik s_ikᵀ, and Tr C = (1/n) Σ_i ‖∇l_i‖². For a linear layer a row is
δ ⊗ a, and its squared norm is ‖δ‖² ‖a‖²; over positions t it is Σ_ts (δ_t·δ_s)(a_t·a_s).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ..landscape import Landscape
from ..progress import Report
from ..samples import Samples
from .gradients import Gradients, Outer, Piece
from .likelihood import drawn, random_root
from .roots import count
from .tiles import activation_bytes

MOST_ROOTS = 128  # backward passes beyond which a trace is sampled instead
DRAWS = 12  # random roots or labels before a standard error is believed
MOST_DRAWS = 400

Block = Callable[[int, int], dict[str, Tensor]]  # (seed, number) -> that many independent traces, by parameter


@dataclass(frozen=True)
class LayerTraces:
    """Traces of the diagonal blocks (value, standard error) by parameter name, and of the whole matrix.

    `passes` backward passes over the data were made; a standard error of 0 means that the trace is exact.
    """

    layers: dict[str, tuple[float, float]]
    value: float
    stderr: float
    freedom: float
    passes: int


def layer_traces(
    land: Landscape,
    matrix: str,
    *,
    rtol: float = 0.01,
    seed: int = 0,
    memory: int | None = None,
    report: Report = lambda fraction, text: None,
) -> LayerTraces:
    """Tr F (`matrix="fisher"`) or Tr C (`"covariance"`), whole and by parameter.

    Exact, one backward pass for each of the r roots of B, up to r = 128. Beyond that (a vocabulary at every position
    of a sequence) random roots s = L u, B = L Lᵀ, u of random signs for each sample, until the standard error meets
    `rtol`: their errors average out over samples, so that a few suffice. A loss of your own that brings `sample` gets
    random labels in the same way.

    Examples:
        >>> import torch, basinscope as bs
        >>> land = bs.Landscape(torch.nn.Linear(2, 1, bias=False), "mse", (torch.ones(5, 2), torch.ones(5, 1)))
        >>> layer_traces(land, "fisher").value
        2.0
    """
    if matrix == "fisher" and land.loss.family == "custom":
        return _sampled(lambda first, number: _labels(land, first, number, memory), rtol, seed, report)
    roots = count(land, matrix)
    if roots > MOST_ROOTS:
        return _sampled(lambda first, number: _norms(_Random(land, first, number, memory)), rtol, seed, report)
    found = {name: float(part.sum()) for name, part in _norms(Gradients(land, matrix, memory), report).items()}
    layers = {name: (found.get(name, 0.0), 0.0) for name in land.parameters}
    return LayerTraces(layers, math.fsum(found.values()), 0.0, math.inf, roots)


class _Random(Gradients):
    """Gradient rows of random roots L u instead of all columns of L."""

    def __init__(self, land: Landscape, seed: int, number: int, memory: int | None) -> None:
        self._number = number
        self._generator = torch.Generator(device=land.device).manual_seed(seed)
        super().__init__(land, "fisher", memory)

    def _cotangents(self, value: Tensor, batch: Samples) -> list[Tensor]:
        return [random_root(self.land, value, batch.target, self._generator) for _ in range(self._number)]


def _norms(gradients: Gradients, report: Report = lambda fraction, text: None) -> dict[str, Tensor]:
    """(1/n) Σ_i ‖g_ik‖² over the samples, by parameter and root k."""
    land, found, done = gradients.land, dict[str, Tensor](), 0
    for batch in land.batches(_tile(gradients)):
        for piece in gradients.of(batch):
            for name, squares in _squares(piece):
                found[name] = found.get(name, 0) + squares / land.n
        done += batch.n
        report(done / land.n, "")
    return found


def _labels(land: Landscape, seed: int, number: int, memory: int | None) -> dict[str, Tensor]:
    """Tr C by parameter for `number` independent sets of labels drawn from the model."""
    sets = [_norms(Gradients(drawn(land, seed=seed + j), "covariance", memory)) for j in range(number)]
    return {name: torch.cat([found[name] for found in sets]) for name in sets[0]}


def _sampled(block: Block, rtol: float, seed: int, report: Report) -> LayerTraces:
    """Independent estimates until their standard error meets rtol."""
    found: dict[str, Tensor] = {}
    while True:
        k = len(next(iter(found.values()))) if found else 0
        fresh = block(seed + k, DRAWS)
        found = {name: torch.cat([found[name], part]) if k else part for name, part in fresh.items()}
        k += DRAWS
        total = torch.stack(list(found.values())).sum(0)
        value, stderr = float(total.mean()), float(total.std()) / math.sqrt(k)
        report(min(1.0, rtol * value / max(stderr, 1e-300)) ** 2, f"{value:.4g} ± {stderr:.2g}")
        if stderr <= rtol * value or k >= MOST_DRAWS:
            layers = {name: (float(part.mean()), float(part.std()) / math.sqrt(k)) for name, part in found.items()}
            return LayerTraces(layers, value, stderr, k - 1, k)


def _squares(piece: Piece) -> Iterator[tuple[str, Tensor]]:
    """Σ_i ‖g_ik‖² of each parameter in the piece, (r,) in float64."""
    if not isinstance(piece, Outer):
        yield piece.names[0], piece.values.square().sum(2).double().sum(0).cpu()
        return
    sides = [piece.right] if len(piece.names) == 1 else [piece.right[..., :-1], piece.right[..., -1:]]  # bias last
    for name, right in zip(piece.names, sides, strict=True):
        yield name, _outer_squares(piece.left, right).double().cpu()


def _outer_squares(left: Tensor, right: Tensor) -> Tensor:
    """Σ_i ‖Σ_t δ_ikt ⊗ a_it‖² for δ (m, r, T, o) and a (m, T, i)."""
    positions, outputs, inputs = left.shape[2], left.shape[3], right.shape[2]
    if positions == 1:
        return (left[:, :, 0].square().sum(2) * right[:, 0].square().sum(1, keepdim=True)).sum(0)
    if positions * (outputs + inputs) <= outputs * inputs:
        return ((left @ left.mT) * (right @ right.mT).unsqueeze(1)).sum((0, 2, 3))
    return torch.stack([(left[:, k].mT @ right).square().sum() for k in range(left.shape[1])])


def _tile(gradients: Gradients) -> int:
    """Samples that go through together: larger than for products of rows, which need the rows written out."""
    held, largest, item = 0, 0, gradients.land.parameters[next(iter(gradients.land.parameters))].element_size()
    for piece in gradients.of(gradients.land.take(torch.arange(1))):
        if isinstance(piece, Outer):
            held += piece.left.numel() + piece.right.numel()
            largest = max(largest, min(piece.index.numel(), piece.left.shape[1] * piece.left.shape[2] ** 2))
        else:
            held += piece.values.numel()
    sample = item * (4 * held + 2 * largest) + 3 * activation_bytes(gradients.land)
    return max(1, min(gradients.land.n, gradients.memory // sample))
