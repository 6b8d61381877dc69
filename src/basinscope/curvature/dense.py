"""H, F and C written out: the d × d matrix, or the Gram matrix of the gradient rows when that is smaller."""

from __future__ import annotations

import glob

import torch
from torch import Tensor

from ..landscape import Landscape
from .gradients import Gradients, Outer, Piece, Rows
from .operators import hessian
from .roots import count
from .tiles import memory_bound

WRITTEN = 4  # times the memory bound of a tile may go into rows written out


def dense(land: Landscape, matrix: str, scale: Tensor | None = None, memory: int | None = None) -> Tensor:
    """The whole matrix A (d, d) in float64, or diag(scale) A diag(scale).

    F and C are sums of products of gradient rows. For two layers whose rows are outer products,
    Σ_ik (δ_ik ⊗ a_i)(δ'_ik ⊗ a'_i)ᵀ = Σ_i (Σ_k δ_ik δ'_ikᵀ) ⊗ a_i a'_iᵀ: summed over classes first, the large
    contraction over samples is one matrix product, r times smaller than the one over rows.
    """
    if matrix == "hessian":
        found = _hessian(land)
        return found if scale is None else scale[:, None] * found * scale
    gradients = Gradients(land, matrix, memory)
    blocks: dict[tuple[int, int], Tensor] = {}
    pieces: list[Piece] = []
    for tile in gradients:
        pieces = merged([scaled(piece, scale) for piece in tile])
        for row, first in enumerate(pieces):
            for column, second in enumerate(pieces[: row + 1]):
                _add(blocks, (row, column), first, second)
    whole = torch.zeros(land.dimension, land.dimension, dtype=torch.float64, device=land.device)
    for (row, column), block in blocks.items():
        first, second = pieces[row], pieces[column]
        full = _unpacked(block, first, second) / land.n
        rows, columns = first.index.flatten(), second.index.flatten()
        whole[rows[:, None], columns] = full
        whole[columns[:, None], rows] = full.T
    return whole


def gram(land: Landscape, matrix: str, scale: Tensor | None = None, memory: int | None = None) -> Tensor:
    """G Gᵀ / n (n·r, n·r) in float64 for the gradient rows G (n·r, d) of F or C: it has their nonzero eigenvalues.

    For rows that are outer products, g_ik·g_jl = (δ_ik·δ_jl)(a_i·a_j): the rows themselves are never formed. Others
    are, for as many layers at a time as the memory bound allows.
    """
    rows = land.n * count(land, matrix)
    room = WRITTEN * memory_bound(land, memory) // (rows * torch.finfo(land.dtype).bits // 8 + 1)
    whole = torch.zeros(rows, rows, dtype=torch.float64, device=land.device)
    for names in _groups(land, room):
        whole += _gram(*restricted(land, names, scale), matrix, memory)
    return whole


def layers(land: Landscape) -> list[list[str]]:
    """The names of the parameters, layer by layer."""
    found: dict[str, list[str]] = {}
    for name in land.parameters:
        found.setdefault(name.rpartition(".")[0], []).append(name)
    return list(found.values())


def restricted(land: Landscape, names: list[str], scale: Tensor | None) -> tuple[Landscape, Tensor | None]:
    """The landscape as a function of some parameters, and their part of a scale."""
    part = land.restrict(*map(glob.escape, names))
    if scale is None:
        return part, None
    return part, part.flatten({name: piece for name, piece in land.unflatten(scale).items() if name in part.parameters})


def _groups(land: Landscape, room: int) -> list[list[str]]:
    """Layers together that have at most `room` parameters, but at least one layer."""
    groups: list[list[str]] = []
    held = 0
    for names in layers(land):
        size = sum(land.parameters[name].numel() for name in names)
        if groups and held + size <= room:
            groups[-1] += names
            held += size
        else:
            groups.append(list(names))
            held = size
    return groups


def _gram(land: Landscape, scale: Tensor | None, matrix: str, memory: int | None) -> Tensor:
    gradients = Gradients(land, matrix, memory)
    tiles = [merged([scaled(piece, scale) for piece in tile]) for tile in gradients]
    size = land.n * gradients.roots
    whole = torch.zeros(size, size, dtype=torch.float64, device=land.device)
    for column in zip(*tiles, strict=True):
        outers = [piece for piece in column if isinstance(piece, Outer)]
        if outers:
            left = torch.cat([piece.left.flatten(0, 2) for piece in outers]).double()
            right = torch.cat([piece.right.flatten(0, 1) for piece in outers]).double()
            shared = (right @ right.T).repeat_interleave(gradients.roots, 0).repeat_interleave(gradients.roots, 1)
            whole += (left @ left.T) * shared
        else:
            rows = torch.cat([piece.values.flatten(0, 1) for piece in column if isinstance(piece, Rows)])
            for part in rows.split(4096, 1):  # in float64 a few columns at a time
                whole.addmm_(part.double(), part.double().T)
    return whole / land.n


def scaled(piece: Piece, scale: Tensor | None) -> Piece:
    """The rows times diag(scale); outer products survive a scale that is the same for all outputs of a layer."""
    if scale is None:
        return piece
    factor = scale[piece.index].to(piece.left if isinstance(piece, Outer) else piece.values)
    if isinstance(piece, Rows):
        return Rows(piece.names, piece.index, piece.values * factor)
    if bool((factor == factor[0]).all()):
        return Outer(piece.names, piece.index, piece.left, piece.right * factor[0], piece.table)
    rows = piece.rows()
    return Rows(rows.names, rows.index, rows.values * factor.flatten())


def merged(pieces: list[Piece]) -> list[Piece]:
    """Outer products with one position each, and everything else as one set of rows."""
    outers: list[Piece] = [piece for piece in pieces if isinstance(piece, Outer) and piece.single]
    others = [piece.rows() for piece in pieces if isinstance(piece, Rows) or not piece.single]
    if not others:
        return outers
    names = tuple(name for piece in others for name in piece.names)
    index, values = torch.cat([piece.index for piece in others]), torch.cat([piece.values for piece in others], 2)
    return [*outers, Rows(names, index, values)]


def _add(blocks: dict[tuple[int, int], Tensor], place: tuple[int, int], first: Piece, second: Piece) -> None:
    """Add Σ_ik g_ik g'_ikᵀ of a tile to the block at `place`, in a layout that `_unpacked` undoes."""
    left, right = _sides(first, second)
    if place not in blocks:
        blocks[place] = left.new_zeros(left.shape[1], right.shape[1])
    blocks[place].addmm_(left.T, right)


def _sides(first: Piece, second: Piece) -> tuple[Tensor, Tensor]:
    """Two matrices, one row a sample (or gradient row), whose product over rows is the block."""
    if isinstance(first, Rows) and isinstance(second, Rows):
        return first.values.double().flatten(0, 1), second.values.double().flatten(0, 1)
    if isinstance(first, Rows):
        assert isinstance(second, Outer)
        mixed = first.values.double().mT @ second.left[:, :, 0].double()
        return mixed.flatten(1), second.right[:, 0].double()
    assert isinstance(second, Outer)
    outputs = first.left[:, :, 0].double().mT @ second.left[:, :, 0].double()
    inputs = first.right[:, 0, :, None].double() * second.right[:, 0, None, :].double()
    if first is second:  # symmetric in outputs and in inputs: half of each says it all
        return _half(outputs), _half(inputs)
    return outputs.flatten(1), inputs.flatten(1)


def _unpacked(block: Tensor, first: Piece, second: Piece) -> Tensor:
    """The block as a matrix over the two pieces' flat entries."""
    if isinstance(first, Rows):
        if isinstance(second, Rows):
            return block
        o, i = second.index.shape
        return block.view(len(first.index), o * i)
    assert isinstance(second, Outer)
    (o, i), (p, j) = first.index.shape, second.index.shape
    if first is second:
        block = block[_pairs(o, block.device)][..., _pairs(i, block.device)]
    return block.view(o, p, i, j).transpose(1, 2).reshape(o * i, p * j)


def _half(squares: Tensor) -> Tensor:
    """The upper triangles of symmetric matrices (m, k, k), as rows."""
    k = squares.shape[-1]
    upper = torch.triu_indices(k, k, device=squares.device)
    return squares.flatten(1)[:, upper[0] * k + upper[1]]


def _pairs(k: int, device: torch.device) -> Tensor:
    """Where entry (a, b) of a symmetric k × k matrix stands in its upper triangle, as a k × k table."""
    table = torch.zeros(k, k, dtype=torch.long, device=device)
    upper = torch.triu_indices(k, k, device=device)
    table[upper[0], upper[1]] = table[upper[1], upper[0]] = torch.arange(upper.shape[1], device=device)
    return table


def _hessian(land: Landscape) -> Tensor:
    product = hessian(land)
    columns = []
    for start in range(0, land.dimension, product.tiles.probes):
        stop = min(start + product.tiles.probes, land.dimension)
        unit = torch.zeros(land.dimension, stop - start, dtype=land.dtype, device=land.device)
        unit[range(start, stop), range(stop - start)] = 1
        columns.append((product @ unit).double())
    found = torch.cat(columns, 1)
    return (found + found.T) / 2
