"""Per-sample gradient rows g_ik = J_iᵀ s_ik, kept as outer products where a layer's structure allows it.

F = (1/n) Σ_i Σ_k g_ik g_ikᵀ, and C likewise with the one row g_i = ∇l_i per sample.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ..landscape import Landscape
from ..memory import memory_explained
from ..samples import Samples
from .calls import Call, Key, Recorder, Scaling
from .likelihood import count, head, roots
from .precision import full_precision
from .samplewise import gradients, one_by_one, side_by_side
from .tiles import activation_bytes, memory_bound


@dataclass(frozen=True)
class Outer:
    """Rows g_ik = Σ_t δ_ikt ⊗ a_it of one layer: `left` δ (m, r, T, o), `right` a (m, T, i).

    `names` are the parameters and `index` (o, i) tells which entry of the flat parameter vector each product is;
    `table` marks an embedding, whose a_it are unit vectors.
    """

    names: tuple[str, ...]
    index: Tensor
    left: Tensor
    right: Tensor
    table: bool

    @property
    def single(self) -> bool:
        """Whether every sample has one position, so that its rows are plain outer products."""
        return self.left.shape[2] == 1

    def rows(self) -> Rows:
        """The same rows written out."""
        values = torch.einsum("mrto,mti->mroi", self.left, self.right).flatten(2)
        return Rows(self.names, self.index.flatten(), values)

    def squares(self) -> list[tuple[str, Tensor]]:
        """‖g_ik‖² by parameter, (m, r) in float64."""
        sides = [self.right] if len(self.names) == 1 else [self.right[..., :-1], self.right[..., -1:]]  # bias last
        return [(name, self._squares(right).double()) for name, right in zip(self.names, sides, strict=True)]

    def _squares(self, right: Tensor) -> Tensor:
        left, positions = self.left, self.left.shape[2]
        if positions == 1:
            return left[:, :, 0].square().sum(2) * right[:, 0].square().sum(1, keepdim=True)
        if positions * (left.shape[3] + right.shape[2]) <= left.shape[3] * right.shape[2]:
            # ‖Σ_t δ_t a_tᵀ‖² = Σ_ts (δ_t·δ_s)(a_t·a_s): the gradient itself is not needed.
            return ((left @ left.mT) * (right @ right.mT).unsqueeze(1)).sum((2, 3))
        written = [(left[:, k].mT @ right).square().sum((1, 2)) for k in range(left.shape[1])]
        return torch.stack(written, 1) if written else left.new_zeros(left.shape[:2])


@dataclass(frozen=True)
class Rows:
    """Rows g_ik written out: `values` (m, r, p), `index` (p,) into the flat parameter vector."""

    names: tuple[str, ...]
    index: Tensor
    values: Tensor

    def rows(self) -> Rows:
        """The piece itself: an `Outer` has the same method."""
        return self

    def squares(self) -> list[tuple[str, Tensor]]:
        """‖g_ik‖² by parameter, (m, r) in float64; there is but one."""
        return [(self.names[0], self.values.square().sum(2).double())]


Piece = Outer | Rows


class Gradients:
    """The gradient rows of a landscape, tile by tile, in pieces that cover every parameter once.

    A layer's structure is used only after a check: on a few samples, the rows of one of them must reproduce its
    gradient as autograd gives it. Parameters that fail (used elsewhere too, or samples not along the first axis) are
    `unstructured`; their rows are written out, batched over samples and roots where that passes the same check, else
    one sample at a time.

    Args:
        land: the landscape.
        matrix: `fisher` or `covariance`.
        memory: bound in bytes on what a tile holds.
    """

    def __init__(self, land: Landscape, matrix: str, memory: int | None = None) -> None:
        self.land = land
        self.matrix = matrix
        self.roots = count(land, matrix)
        self.memory = memory_bound(land, memory)
        self._keys, self._scaled, self.unstructured = self._survey()
        self._side_by_side = not self.unstructured or self._batches()
        self.tile = self._tile()

    def __iter__(self) -> Iterator[list[Piece]]:
        """The pieces of one tile after the other, always in the same order."""
        for batch in self.land.batches(self.tile):
            yield self.of(batch)

    def squares(self) -> Iterator[dict[str, Tensor]]:
        """‖g_ik‖² by parameter, (m, r) in float64, of one tile after the other."""
        for batch in self.land.batches(self._wide_tile()):
            by_name: dict[str, Tensor] = {}
            for piece in self.of(batch):
                for name, squares in piece.squares():
                    by_name[name] = by_name.get(name, 0) + squares
            yield by_name

    def norms(self) -> Tensor:
        """Σ_k ‖g_ik‖² of all samples, (n,) in float64: their mean is the trace of the matrix."""
        return torch.cat([torch.stack([part.sum(1) for part in tile.values()]).sum(0) for tile in self.squares()])

    def of(self, batch: Samples) -> list[Piece]:
        """The pieces of one batch."""
        land = self.land
        with full_precision(), torch.enable_grad():
            recorder = Recorder(land.parameters, batch.n)
            with recorder:
                value = head(land, self.matrix, land.parameters, batch)
            cotangents = self._cotangents(value.detach(), batch)
            calls = [call for call in recorder.calls if call.key in self._keys]
            scalings = [scaling for scaling in recorder.scalings if scaling.name in self._scaled]
            layers = _layers(land, calls, scalings, value, cotangents)
            return layers + self._unstructured_rows(batch, value, cotangents) if self.unstructured else layers

    def _cotangents(self, value: Tensor, batch: Samples) -> list[Tensor]:
        return list(roots(self.land, self.matrix, value, batch.target))

    @memory_explained()
    def _survey(self) -> tuple[set[Key], set[str], list[str]]:
        """The calls and scalings that pass the check, and the parameters that belong to none of them."""
        land = self.land
        few = land.take(torch.arange(min(land.n, 3)))
        free = {name: tensor.detach().requires_grad_() for name, tensor in land.parameters.items()}
        with full_precision(), torch.enable_grad():
            recorder = Recorder(free, few.n)
            with recorder:
                value = head(land, self.matrix, free, few)
            # Only one sample's outputs move, so rows that mix up the samples cannot pass.
            chosen = few.n // 2
            cotangent = torch.zeros_like(value)
            generator = torch.Generator().manual_seed(0)
            cotangent[chosen] = torch.randn(value[chosen].shape, generator=generator).to(value)
            truth = land.flatten(dict(zip(free, gradients(value, list(free.values()), cotangent), strict=True)))
            calls = [call for call in recorder.calls if _fits(call, few.n)]
            scalings = [scaling for scaling in recorder.scalings if _divides(scaling)]
            layers = _layers(land, calls, scalings, value, [cotangent])
        written = torch.zeros_like(truth)
        for piece in layers:
            row = piece.rows() if isinstance(piece, Outer) else piece
            written[row.index] += row.values[chosen, 0]
        error, size = land.unflatten((written - truth).abs()), land.unflatten(truth.abs())
        slack = 1e3 * torch.finfo(land.dtype).eps
        wrong = {name for name in free if float(error[name].max()) > slack * float(size[name].max())}
        # Two layers of different kinds on one parameter: their rows would have to be added up before any product.
        owners: dict[str, set[tuple[str | None, str | None, bool]]] = {name: set() for name in free}
        for scaling in scalings:
            owners[scaling.name].add((None, None, False))
        for call in calls:
            for name in call.names:
                owners[name].add((call.weight, call.bias, call.table))
        wrong |= {name for name, kinds in owners.items() if len(kinds) != 1}
        keys = {call.key for call in calls if not wrong & set(call.names)}
        scaled = {scaling.name for scaling in scalings} - wrong
        structured = scaled | {name for call in calls if call.key in keys for name in call.names}
        return keys, scaled, [name for name in free if name not in structured]

    def _batches(self) -> bool:
        """Whether the rows of unstructured parameters can be batched over samples and roots.

        They must come out as one sample after the other gives them, for as many roots as samples and for one alone: a
        function that confuses the two axes shows in its values there.
        """
        land = self.land
        few = land.take(torch.arange(min(land.n, 3)))
        free = {name: land.parameters[name] for name in self.unstructured}
        with full_precision(), torch.enable_grad():
            value = head(land, self.matrix, land.parameters, few)
            generator = torch.Generator().manual_seed(0)
            cotangents = torch.randn(few.n, few.n, *value.shape[1:], generator=generator).to(value)
            truth = one_by_one(land, self.matrix, free, few, cotangents)
            try:
                several = side_by_side(land, self.matrix, free, few, cotangents)
                single = side_by_side(land, self.matrix, free, few, cotangents[:, :1])
            except RuntimeError:
                return False
        slack = 1e3 * torch.finfo(land.dtype).eps
        least = 1e-3 * max(float(rows.abs().max()) for rows in truth.values())  # rounding of what should be zero
        return all(
            float((batched - rows[:, : batched.shape[1]]).abs().max()) <= slack * max(least, float(rows.abs().max()))
            for name, rows in truth.items()
            for batched in (several[name], single[name])
        )

    def _unstructured_rows(self, batch: Samples, value: Tensor, cotangents: list[Tensor]) -> list[Piece]:
        """Rows by one backward pass per sample and root."""
        land = self.land
        stacked = torch.stack(cotangents, 1) if cotangents else value.new_zeros(batch.n, 0, *value.shape[1:])
        free = {name: land.parameters[name] for name in self.unstructured}
        rows_of = side_by_side if self._side_by_side else one_by_one
        rows = rows_of(land, self.matrix, free, batch, stacked)
        return [
            Rows((name,), _place(land, name).flatten(), tensor.reshape(*tensor.shape[:2], -1))
            for name, tensor in rows.items()
        ]

    def _tile(self) -> int:
        """Samples that go through together within the memory bound."""
        pieces = self.of(self.land.take(torch.arange(1)))
        plain = [piece for piece in pieces if isinstance(piece, Outer) and piece.single]
        written = sum(piece.index.numel() for piece in pieces) - sum(piece.index.numel() for piece in plain)
        numbers = self.roots * written  # per sample
        numbers += sum(piece.left.numel() + piece.right.numel() for piece in pieces if isinstance(piece, Outer))
        # What two layers are contracted through.
        products = max((max(o**2 + i**2, o * written) for o, i in (piece.index.shape for piece in plain)), default=0)
        sample = 16 * (numbers + products) + 3 * activation_bytes(self.land)
        return max(1, min(self.land.n, self.memory // sample))

    def _wide_tile(self) -> int:
        """Samples that go through together when only norms are wanted, which need fewer rows written out."""
        numbers, largest = 0, 0
        for piece in self.of(self.land.take(torch.arange(1))):
            if isinstance(piece, Outer):
                numbers += piece.left.numel() + piece.right.numel()
                largest = max(largest, min(piece.index.numel(), piece.left.shape[1] * piece.left.shape[2] ** 2))
            else:
                numbers += piece.values.numel()
        item = torch.finfo(self.land.dtype).bits // 8
        sample = item * (4 * numbers + 2 * largest) + 3 * activation_bytes(self.land)
        return max(1, min(self.land.n, self.memory // sample))


def _layers(
    land: Landscape, calls: list[Call], scalings: list[Scaling], value: Tensor, cotangents: list[Tensor]
) -> list[Piece]:
    """The pieces of layers: outer products of their calls, and the rows of normalization layers."""
    uses: list[Call | Scaling] = [*calls, *scalings]
    deltas: list[list[Tensor]] = [[] for _ in uses]  # of each use, by cotangent
    for cotangent in cotangents if uses else []:
        slopes = gradients(value, [use.output for use in uses], cotangent)
        for by_cotangent, use, gradient in zip(deltas, uses, slopes, strict=True):
            by_cotangent.append(use.outward(gradient))
    rows: dict[str, Tensor] = {}
    for scaling, by_cotangent in zip(scalings, deltas[len(calls) :], strict=True):
        sizes = len(value), 0, land.parameters[scaling.name].numel()
        values = torch.stack(by_cotangent, 1) if by_cotangent else value.new_zeros(sizes)
        rows[scaling.name] = rows.get(scaling.name, 0) + values
    written = [Rows((name,), _place(land, name).flatten(), values) for name, values in rows.items()]
    return [*_outers(land, calls, deltas[: len(calls)]), *written]


def _outers(land: Landscape, calls: list[Call], deltas: list[list[Tensor]]) -> list[Outer]:
    """One `Outer` per key: several calls of one key are further positions of the same samples."""
    sides: dict[Key, list[tuple[Tensor, Tensor]]] = {}
    for call, by_cotangent in zip(calls, deltas, strict=True):
        right = call.inward()
        width = call.rows.stop - call.rows.start
        left = torch.stack(by_cotangent, 1) if by_cotangent else right.new_zeros(len(right), 0, right.shape[1], width)
        if call.bias is not None:
            ones = right.new_ones(*right.shape[:2], 1)
            right = ones if call.weight is None else torch.cat([right, ones], -1)
        sides.setdefault(call.key, []).append((left, right))
    outers = []
    for call in {call.key: call for call in calls}.values():
        lefts, rights = zip(*sides[call.key], strict=True)
        outers.append(Outer(call.names, _index(land, call), torch.cat(lefts, 2), torch.cat(rights, 1), call.table))
    return outers


def _fits(call: Call, samples: int) -> bool:
    """Whether the call's tensors can be read as one block of positions per sample."""
    try:
        delta, inputs = call.outward(call.output), call.inward()
    except RuntimeError:  # sizes that do not divide by the number of samples
        return False
    return delta.shape[:2] == inputs.shape[:2] and len(delta) == samples


def _divides(scaling: Scaling) -> bool:
    """Whether the scaling's output can be read as one block per sample."""
    try:
        scaling.outward(scaling.output)
    except RuntimeError:
        return False
    return True


def _place(land: Landscape, name: str) -> Tensor:
    """Flat positions of one parameter, in its shape."""
    start = 0
    for other, tensor in land.parameters.items():
        if other == name:
            break
        start += tensor.numel()
    shape = land.parameters[name].shape
    return torch.arange(start, start + shape.numel(), device=land.device).view(shape)


def _index(land: Landscape, call: Call) -> Tensor:
    """Flat positions (o, i) of the products of a call, its bias last."""
    parts = []
    if call.weight is not None:
        place = _place(land, call.weight)
        parts.append(place.T if call.table else place.flatten(1)[call.rows])
    if call.bias is not None:
        parts.append(_place(land, call.bias)[call.rows, None])
    return torch.cat(parts, 1)
