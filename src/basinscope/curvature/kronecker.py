"""Cheap stand-ins for F and C: Kronecker factors a layer (KFAC), corrected in their eigenbasis (EKFAC), the diagonal.

All keep the layers apart. The eigenvalues of a matrix majorize its diagonal in any orthonormal basis, so soft rank and
log-det of `diagonal` and `ekfac` are upper bounds (Shoham, Mor-Yosef and Avron, "Flatness After All?", 2025,
https://arxiv.org/abs/2506.17809, Theorem C.2). A Kronecker product is a further approximation and its soft rank may lie
on either side.

KFAC: Martens and Grosse (2015, https://arxiv.org/abs/1503.05671). EKFAC: George et al. (2018,
https://arxiv.org/abs/1806.03884). Weights used at several positions, `expand` and `reduce`: Eschenhagen et al. (2023,
https://arxiv.org/abs/2311.00636).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from ..errors import InputError
from ..landscape import Landscape
from .dense import scaled
from .gradients import Gradients, Outer, Piece, Rows

Sharing = Literal["expand", "reduce"]
Factors = tuple[Tensor, Tensor | None]  # (B, A) of a layer, or (its whole block, None)
Bases = tuple[Tensor | None, Tensor | None]  # U_B and U_A; None stands for the unit vectors

# Few parameters and no matrix among them: the blocks of such a layer are kept whole.
_NORMS = (nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.modules.batchnorm._NormBase)


def kfac(land: Landscape, matrix: str, scale: Tensor | None = None, sharing: Sharing = "expand") -> Tensor:
    """Eigenvalues of ⊕_layers B ⊗ A with A = E[a aᵀ] over a layer's inputs and B = E[Σ_k δ_k δ_kᵀ] at its outputs.

    A weight used at T positions of a sample (convolution, sequence, a layer called twice) has gradient Σ_t δ_t a_tᵀ.
    `expand` drops the products of different positions: A = E_it[a aᵀ], B = E_i[Σ_t δ_t δ_tᵀ]. `reduce` takes the
    position away first: a_i = mean_t a_it and δ_i = Σ_t δ_it.
    """
    values = []
    for outputs, inputs in _factors(land, matrix, scale, sharing):
        side = torch.linalg.eigvalsh(outputs)
        values.append(side if inputs is None else torch.outer(side, _eigenvalues(inputs)).flatten())
    return torch.cat(values)


def ekfac(land: Landscape, matrix: str, scale: Tensor | None = None, sharing: Sharing = "expand") -> Tensor:
    """The diagonal of F (or C) in the eigenbasis of its Kronecker factors: E[Σ_k (U_Bᵀ G_k U_A)²], G_k a gradient."""
    bases = [_bases(factors) for factors in _factors(land, matrix, scale, sharing)]
    return torch.cat(_moments_in(land, bases, _tiles(land, matrix, scale)))


@dataclass(frozen=True)
class Inverse:
    """(nβM + γI)⁻¹ with M the EKFAC approximation of F or C; of parameters without Kronecker factors, M's diagonal.

    Attributes:
        layers: indices into the flat parameter vector, the bases U_B and U_A, and 1/(nβm + γ) in them, of each piece.
    """

    layers: list[tuple[Tensor, Bases, Tensor]]

    @classmethod
    def of(cls, land: Landscape, matrix: str, nbeta: float, gamma: float) -> Inverse:
        """The inverse at w*, from two passes over the data."""
        factors: list[Factors] = []
        for pieces in Gradients(land, matrix):
            new = [moments(piece, "expand") if _structured(land, piece) else _diagonal(piece) for piece in pieces]
            factors = [plus(old, more) for old, more in zip(factors, new, strict=True)] if factors else new
        bases = [_bases(each) for each in factors]
        diagonals = _moments_in(land, bases, Gradients(land, matrix))
        pieces = Gradients(land, matrix).of(land.take(torch.arange(1)))
        inverses = [1 / (nbeta * moment + gamma) for moment in diagonals]
        return cls(
            [(piece.index, *rest) for piece, rest in zip(pieces, zip(bases, inverses, strict=True), strict=True)]
        )

    def __call__(self, rows: Tensor) -> Tensor:
        """The inverse applied to every row of (k, d)."""
        solved = torch.zeros_like(rows)
        for index, (outward, inward), inverse in self.layers:
            part = rows[:, index.flatten()].to(inverse).unflatten(1, index.shape)
            part = _turned(_turned(part, outward, -2 if index.ndim > 1 else -1), inward, -1)
            part = part * inverse.view(index.shape)
            part = _turned(_turned(part, inward, -1, back=True), outward, -2 if index.ndim > 1 else -1, back=True)
            solved[:, index.flatten()] = part.flatten(1).to(rows)
        return solved


def _turned(rows: Tensor, basis: Tensor | None, axis: int, *, back: bool = False) -> Tensor:
    """Rows in a basis along one axis, or back from it; None stands for the unit vectors."""
    if basis is None:
        return rows
    return (rows.movedim(axis, -1) @ (basis.T if back else basis)).movedim(-1, axis)


def _structured(land: Landscape, piece: Piece) -> bool:
    """Whether a piece is a layer's outer products, or all of a normalization layer."""
    if not isinstance(piece, Rows):
        return True
    modules = dict(land.module.named_modules())
    return all(isinstance(modules.get(name.rpartition(".")[0]), _NORMS) for name in piece.names)


def _diagonal(piece: Piece) -> Factors:
    """n times the diagonal of a piece's block, as the factors of an embedding hold theirs."""
    return piece.rows().values.double().square().sum((0, 1)), None


def _bases(factors: Factors) -> Bases:
    """Eigenvectors of both factors."""
    outputs, inputs = factors
    return _basis(outputs), None if inputs is None else _basis(inputs)


def _moments_in(land: Landscape, bases: list[Bases], tiles: Iterable[list[Piece]]) -> list[Tensor]:
    """The exact second moments in the bases, which the products of the factors' eigenvalues only imitate."""
    sums = [torch.zeros((), dtype=torch.float64, device=land.device) for _ in bases]
    for pieces in tiles:
        for place, (piece, (outward, inward)) in enumerate(zip(pieces, bases, strict=True)):
            sums[place] = sums[place] + _squares(_rotated(piece, outward, inward))
    return [each / land.n for each in sums]


def diagonal(land: Landscape, matrix: str, scale: Tensor | None = None) -> Tensor:
    """diag(F) or diag(C), (d,) in flat order and in float64: E[Σ_k g_k²]."""
    total = torch.zeros(land.dimension, dtype=torch.float64, device=land.device)
    for pieces in Gradients(land, matrix):
        for piece in pieces:
            total[piece.index.flatten()] += _squares(piece)
    return total / land.n if scale is None else total / land.n * scale.square()


def _tiles(land: Landscape, matrix: str, scale: Tensor | None) -> Iterator[list[Piece]]:
    """The scaled gradient rows, tile by tile, if each layer has Kronecker factors or is a normalization."""
    for tile in Gradients(land, matrix):
        pieces = [scaled(piece, scale) for piece in tile]
        for before, after in zip(tile, pieces, strict=True):
            if isinstance(before, Rows):
                check_layer(land, before.names)
            elif isinstance(after, Rows):
                raise InputError(
                    f"KFAC needs a weight decay that is the same for all outputs of a layer, but that of "
                    f"{before.names[0]!r} differs — take method='block', 'diagonal' or 'lanczos'"
                )
        yield pieces


def check_layer(
    land: Landscape,
    names: tuple[str, ...],
    remedy: str = "take method='block', 'diagonal' or 'lanczos', or leave it out with land.restrict()",
) -> None:
    """Refuse parameters without Kronecker factors."""
    for name in names:
        owner = name.rpartition(".")[0]
        layer = land.module.get_submodule(owner)
        if not isinstance(layer, _NORMS):
            raise InputError(
                f"KFAC does not cover parameter {name!r} of layer {owner or 'model'!r} ({type(layer).__name__}): it "
                f"knows Linear, Conv2d, Embedding and attention projections, each weight used in one way only — "
                f"{remedy}"
            )


def _factors(land: Landscape, matrix: str, scale: Tensor | None, sharing: Sharing) -> list[Factors]:
    """B and A of every piece; A is a vector where it is diagonal."""
    if sharing not in ("expand", "reduce"):
        raise InputError(f"sharing must be 'expand' or 'reduce', got {sharing!r}")
    sums: list[Factors] = []
    for pieces in _tiles(land, matrix, scale):
        new = [moments(piece, sharing) for piece in pieces]
        sums = [plus(old, more) for old, more in zip(sums, new, strict=True)] if sums else new
    return [(outputs / land.n, None if inputs is None else inputs / land.n) for outputs, inputs in sums]


def moments(piece: Piece, sharing: Sharing) -> Factors:
    """n·B and n·A of the samples of one piece, in float64; a piece of rows gives n times its whole block."""
    if isinstance(piece, Rows):
        rows = piece.values.double().flatten(0, 1)
        return rows.T @ rows, None
    left, right = piece.left.double(), piece.right.double()
    if sharing == "reduce":
        left, right = left.sum(2, keepdim=True), right.mean(1, keepdim=True)
    # Positions count as samples of their own from here on: n·A is their sum over T, for a mean over n·T of them.
    positions = right.shape[1]
    left, right = left.flatten(0, 2), right.flatten(0, 1)
    # Unit vectors as inputs: expanded, A is diagonal, and a vocabulary may be large.
    if piece.table and sharing == "expand":
        return left.T @ left, right.square().sum(0) / positions
    return left.T @ left, right.T @ right / positions


def plus(old: Factors, more: Factors) -> Factors:
    """The moments of two sets of samples together."""
    return old[0] + more[0], None if old[1] is None or more[1] is None else old[1] + more[1]


def _eigenvalues(matrix: Tensor) -> Tensor:
    """Eigenvalues of a matrix, or of a diagonal one that is held as a vector."""
    return matrix if matrix.ndim == 1 else torch.linalg.eigvalsh(matrix)


def _basis(matrix: Tensor) -> Tensor | None:
    """Eigenvectors; None stands for the unit vectors of a diagonal matrix."""
    return None if matrix.ndim == 1 else torch.linalg.eigh(matrix).eigenvectors


def _rotated(piece: Piece, outward: Tensor | None, inward: Tensor | None) -> Piece:
    """The rows in the basis U_B ⊗ U_A, U_Bᵀ G U_A; None stands for the unit vectors."""
    if isinstance(piece, Rows):
        return piece if outward is None else Rows(piece.names, piece.index, piece.values.double() @ outward)
    left = piece.left.double() if outward is None else piece.left.double() @ outward
    right = piece.right.double() if inward is None else piece.right.double() @ inward
    return Outer(piece.names, piece.index, left, right, piece.table)


def _squares(piece: Piece) -> Tensor:
    """Σ_ik g_ik² by parameter, as one vector."""
    if isinstance(piece, Outer) and piece.single:
        return (piece.left[:, :, 0].double().square().sum(1).T @ piece.right[:, 0].double().square()).flatten()
    return piece.rows().values.double().square().sum((0, 1))
