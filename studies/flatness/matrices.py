"""F and C of one network, and what they would be if errors and Jacobians were independent; all from one Jacobian.

With J_i the Jacobian of the outputs, B_i = e_i e_iᵀ and Σ_i = diag(ŷ_i) − ŷ_i ŷ_iᵀ (Shoham et al., §5 and D.2):

    F = E[JᵀΣJ]      C = E[JᵀBJ]      F̄ = E[Jᵀ E[Σ] J]      C̄ = E[Jᵀ E[B] J]
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from basinscope.curvature.dense import Products
from basinscope.curvature.gradients import Gradients, Outer, Piece
from basinscope.curvature.kronecker import Factors, moments, plus
from basinscope.curvature.likelihood import roots
from basinscope.errors import InputError
from basinscope.landscape import Landscape
from basinscope.samples import Samples

from .outputs import Outputs

_MEMORY = {"cuda": 8 * 2**30}  # bytes of a tile: several processes share a card


@dataclass(frozen=True)
class Layer:
    """Kronecker factors of a layer's block of F.

    Attributes:
        index: which entry of the flat parameter vector each weight is, (o, i), the bias last.
        outward: B = E[Σ_kt δ δᵀ] (o, o).
        inward: A = E_t[a aᵀ] (i, i).
    """

    index: Tensor
    outward: Tensor
    inward: Tensor


@dataclass(frozen=True)
class Matrices:
    """F and C (d, d) in float64, the mean gradient (d,), the Kronecker factors of F by layer, and F̄ and C̄ if wanted."""

    fisher: Tensor
    covariance: Tensor
    gradient: Tensor
    layers: list[Layer]
    fisher_apart: Tensor | None = None
    covariance_apart: Tensor | None = None


class _Jacobians(Gradients):
    """The rows of J: one for each output of each sample."""

    def _cotangents(self, value: Tensor, batch: Samples) -> list[Tensor]:
        units = torch.eye(value.shape[1], dtype=value.dtype, device=value.device)
        return [unit.expand_as(value) for unit in units]


def matrices(land: Landscape, seen: Outputs, relations: bool = True) -> Matrices:
    """The matrices of a classifier made of linear and convolutional layers; `found` are its outputs.

    F̄ and C̄ only with `relations`: they have as many rows a sample as F, ten times those of C.
    """
    jacobians = _Jacobians(land, "fisher", _MEMORY.get(land.device.type))
    means = (seen.mean_uncertainty(), seen.mean_error()) if relations else ()
    apart = [_root(mean).T.contiguous() for mean in means]
    sums = [Products() for _ in range(2 + len(apart))]
    gradient = torch.zeros(land.dimension, dtype=torch.float64, device=land.device)
    factors: list[Factors] = []
    index: list[Tensor] = []
    done, errors = 0, seen.errors
    for pieces in jacobians:
        plain = [_layer(piece) for piece in pieces]
        tile = slice(done, done + len(plain[0].left))
        done = tile.stop
        fisher = torch.stack(list(roots(land, "fisher", seen.scores[tile], seen.labels[tile])), 1)
        mixtures = [fisher, errors[tile, None], *(mean.expand(len(fisher), *mean.shape) for mean in apart)]
        for number, (total, mixture) in enumerate(zip(sums, mixtures, strict=True)):
            mixed = [_mixed(piece, mixture) for piece in plain]
            total.add(list(mixed))
            if number == 0:
                new = [moments(piece, "expand") for piece in mixed]
                factors = [plus(old, more) for old, more in zip(factors, new, strict=True)] if factors else new
                index = [piece.index for piece in mixed]
            if number == 1:
                for piece in mixed:
                    gradient[piece.index.flatten()] += piece.rows().values.sum((0, 1)) / land.n
    fisher, covariance, *others = (total.matrix(land.dimension, land.device).div_(land.n) for total in sums)
    layers = [
        Layer(where, outward / land.n, inward / land.n)
        for where, (outward, inward) in zip(index, factors, strict=True)
        if inward is not None
    ]
    return Matrices(fisher, covariance, gradient, layers, *others)


def _layer(piece: Piece) -> Outer:
    if not isinstance(piece, Outer):
        raise InputError(f"parameter {piece.names[0]!r} belongs to no linear or convolutional layer")
    return replace(piece, left=piece.left.double(), right=piece.right.double())


def _mixed(piece: Outer, mixture: Tensor) -> Outer:
    """The rows Jᵀs of each sample for its vectors s (m, r, K)."""
    left = (mixture @ piece.left.flatten(2)).unflatten(2, piece.left.shape[2:])
    return replace(piece, left=left)


def _root(matrix: Tensor) -> Tensor:
    """R with R Rᵀ = matrix, without the directions that it maps to nothing."""
    values, vectors = torch.linalg.eigh(matrix)
    positive = values > 1e-12 * values[-1].clamp(min=0)
    return vectors[:, positive] * values[positive].sqrt()
