"""H, F and C written out: the d × d matrix, or the Gram matrix of the gradient rows when that is smaller."""

from __future__ import annotations

import glob
import math

import torch
from torch import Tensor

from ..landscape import Landscape
from ..progress import Report
from ..samples import Samples
from .gradients import Gradients, Outer, Piece, Rows
from .likelihood import count
from .operators import hessian
from .tiles import memory_bound

MAX_BLOCK_ROWS = 2048  # multiplied at once: of a symmetric product, only blocks on and below the diagonal are formed


def dense(
    land: Landscape,
    matrix: str,
    scale: Tensor | None = None,
    memory: int | None = None,
    report: Report = lambda fraction, text: None,
) -> Tensor:
    """The whole matrix A (d, d) in float64, or diag(scale) A diag(scale).

    F and C are sums of products of gradient rows. For two layers whose rows are outer products,
    Σ_ik (δ_ik ⊗ a_i)(δ'_ik ⊗ a'_i)ᵀ = Σ_i (Σ_k δ_ik δ'_ikᵀ) ⊗ a_i a'_iᵀ: summed over classes first, the large
    contraction over samples is one matrix product, r times smaller than the one over rows.
    """
    if matrix == "hessian":
        whole = _hessian(land, report)
        return whole if scale is None else scale[:, None] * whole * scale
    gradients = Gradients(land, matrix, memory)
    sums = Products()
    for number, tile in enumerate(gradients, 1):
        report(min(1.0, number * gradients.tile / land.n), "products of gradients")
        sums.add([scaled(piece, scale) for piece in tile])
    return sums.matrix(land.dimension, land.device).div_(land.n)


class Products:
    """Σ_ik g_ik g_ikᵀ of gradient rows that come in tiles, summed block by block of two layers each.

    All tiles must have the same layers. A block is summed in the layout that is cheapest to add to, and brought into
    that of the matrix once, at the end.
    """

    def __init__(self) -> None:
        self._blocks: dict[tuple[int, int], Tensor] = {}
        self._pieces: list[Piece] = []

    def add(self, tile: list[Piece]) -> None:
        """Add the rows of one tile."""
        self._pieces = merged(tile)
        for row, first in enumerate(self._pieces):
            for column, second in enumerate(self._pieces[: row + 1]):
                _add(self._blocks, (row, column), first, second)

    def matrix(self, dimension: int, device: torch.device) -> Tensor:
        """The sum (d, d) in float64."""
        whole = torch.zeros(dimension, dimension, dtype=torch.float64, device=device)
        for (row, column), block in self._blocks.items():
            first, second = self._pieces[row], self._pieces[column]
            full = _unpacked(block, first, second)
            rows, columns = first.index.flatten(), second.index.flatten()
            whole[rows[:, None], columns] = full
            whole[columns[:, None], rows] = full.T
        return whole


def gram(
    land: Landscape,
    matrix: str,
    scale: Tensor | None = None,
    memory: int | None = None,
    report: Report = lambda fraction, text: None,
) -> Tensor:
    """G Gᵀ / n (n·r, n·r) in float64 for the gradient rows G (n·r, d) of F or C: it has their nonzero eigenvalues.

    For rows that are outer products, g_ik·g_jl = (δ_ik·δ_jl)(a_i·a_j): the rows themselves are never formed. Others
    are, as many columns at a time as fit: beside the result, no more than the memory bound is held.
    """
    bound, size = memory_bound(land, memory), land.n * count(land, matrix)
    room = max(1, bound // 2 // (size * torch.finfo(land.dtype).bits // 8 + 1))
    whole = torch.zeros(size, size, dtype=torch.float64, device=land.device)
    # g·g' is a sum over layers, so that layers come one group after the other, as many as fit beside the result.
    done = 0
    for names in _groups(land, room) if size else []:
        part, factor = restricted(land, names, scale)
        _add_gram(whole, part, factor, matrix, bound, room)
        done += part.dimension
        report(done / land.dimension, "products of gradients")
    # Only the lower triangle was added up: mirror it, a block of rows at a time.
    block = _block(bound)
    for start in range(0, size, block):
        rows = slice(start, start + block)
        whole[:start, rows] = whole[rows, :start].T
        whole[rows, rows] = whole[rows, rows].tril() + whole[rows, rows].tril(-1).T
    return whole.div_(land.n)


def layers(land: Landscape) -> list[list[str]]:
    """The names of the parameters, layer by layer."""
    by_layer: dict[str, list[str]] = {}
    for name in land.parameters:
        by_layer.setdefault(name.rpartition(".")[0], []).append(name)
    return list(by_layer.values())


def restricted(land: Landscape, names: list[str], scale: Tensor | None) -> tuple[Landscape, Tensor | None]:
    """The landscape as a function of some parameters, and their part of a scale."""
    part = land.restrict(*map(glob.escape, names))
    if scale is None:
        return part, None
    return part, part.flatten({name: piece for name, piece in land.unflatten(scale).items() if name in part.parameters})


def _groups(land: Landscape, room: int) -> list[list[str]]:
    """Groups of layers with at most `room` parameters together, but with at least one layer each."""
    groups: list[list[str]] = []
    filled = 0
    for names in layers(land):
        size = sum(land.parameters[name].numel() for name in names)
        if groups and filled + size <= room:
            groups[-1] += names
            filled += size
        else:
            groups.append(list(names))
            filled = size
    return groups


def _add_gram(whole: Tensor, land: Landscape, scale: Tensor | None, matrix: str, bound: int, room: int) -> None:
    """Add G Gᵀ for the rows of a few layers to the lower triangle, `room` columns written out at a time."""
    gradients = Gradients(land, matrix, bound // 4)

    def pieces(batch: Samples) -> list[Piece]:
        return merged([scaled(piece, scale) for piece in gradients.of(batch)])

    # One sample shows how many pieces are outer products and how many columns the others have written out.
    first = pieces(land.take(torch.arange(1)))
    outers = sum(isinstance(piece, Outer) for piece in first)
    written = sum(piece.index.numel() for piece in first[outers:])
    # A scale may have turned outer products into rows, larger than the tile was made for.
    tile = max(1, min(gradients.tile, bound // 4 // (16 * gradients.roots * written + 1)))
    sides: list[tuple[list[Tensor], list[Tensor]]] = [([], []) for _ in range(outers)]

    def store(batch: Samples, start: int, rows: Tensor) -> None:
        """Put the columns from `start` on into `rows`, and the sides of outer products aside the first time."""
        for place, piece in enumerate(pieces(batch)):
            if isinstance(piece, Rows):
                rows.copy_(piece.values[..., start : start + rows.shape[1]].flatten(0, 1))
            elif start == 0:
                sides[place][0].append(piece.left.flatten(0, 2))
                sides[place][1].append(piece.right.flatten(0, 1))

    for start in range(0, max(written, 1), room):  # every block of columns takes its own passes through the network
        columns = torch.empty(len(whole), min(room, written - start), dtype=land.dtype, device=land.device)
        done = 0
        for batch in land.batches(tile):
            stop = done + batch.n * gradients.roots
            store(batch, start, columns[done:stop])
            done = stop
        _add_rows(whole, columns, bound)
        del columns
    # The sides of outer products are short, and were all put aside during the first passes.
    for left, right in sides:
        _add_outers(whole, torch.cat(left), torch.cat(right), bound)


def _add_rows(whole: Tensor, rows: Tensor, bound: int) -> None:
    """Add R Rᵀ, in float64 a few columns at a time."""
    block = _block(bound)
    for part in rows.split(max(1, bound // 16 // (8 * len(whole))), 1):
        wide = part.double()
        for start in range(0, len(whole), block):
            stop = start + block
            whole[start:stop, :stop].addmm_(wide[start:stop], wide[:stop].T)


def _add_outers(whole: Tensor, left: Tensor, right: Tensor, bound: int) -> None:
    """Add (δ_ik·δ_jl)(a_i·a_j) for δ (n·r, o) and a (n, i), in float64 a block of samples against another at a time."""
    n, roots = len(right), len(left) // len(right)
    step = max(1, min(_block(bound) // roots, bound // 256 // (roots * left.shape[1] + right.shape[1])))
    blocks = [slice(start, min(start + step, n)) for start in range(0, n, step)]
    for number, block in enumerate(blocks):
        rows = slice(block.start * roots, block.stop * roots)
        for other in blocks[: number + 1]:
            columns = slice(other.start * roots, other.stop * roots)
            shared = right[block].double() @ right[other].double().T  # a_i·a_j, the same for all roots
            product = left[rows].double() @ left[columns].double().T
            product.unflatten(0, (-1, roots)).unflatten(2, (-1, roots)).mul_(shared[:, None, :, None])
            whole[rows, columns] += product


def _block(bound: int) -> int:
    """Rows of a square block of which a few copies are small beside the memory bound."""
    return max(1, min(MAX_BLOCK_ROWS, math.isqrt(bound // 128)))


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
    """A k × k table with the place of entry (a, b) of a symmetric matrix in its upper triangle."""
    table = torch.zeros(k, k, dtype=torch.long, device=device)
    upper = torch.triu_indices(k, k, device=device)
    table[upper[0], upper[1]] = table[upper[1], upper[0]] = torch.arange(upper.shape[1], device=device)
    return table


def _hessian(land: Landscape, report: Report) -> Tensor:
    """H from its products with unit vectors, made symmetric to the last digit."""
    product = hessian(land)
    columns = []
    for start in range(0, land.dimension, product.tiles.probes):
        stop = min(start + product.tiles.probes, land.dimension)
        unit = torch.zeros(land.dimension, stop - start, dtype=land.dtype, device=land.device)
        unit[range(start, stop), range(stop - start)] = 1
        columns.append((product @ unit).double())
        report(stop / land.dimension, f"{stop} of {land.dimension} columns")
    whole = torch.cat(columns, 1)
    return (whole + whole.T) / 2
