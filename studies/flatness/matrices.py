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


_BINS = 15  # of the expected calibration error


@dataclass(frozen=True)
class Outputs:
    """Outputs of one network on one set of samples, in float64.

    Attributes:
        scores: logits z (n, K).
        labels: y (n,).
    """

    scores: Tensor
    labels: Tensor

    @property
    def chances(self) -> Tensor:
        """ŷ = softmax(z)."""
        return self.scores.softmax(1)

    @property
    def errors(self) -> Tensor:
        """e = ŷ − y (n, K), the gradient of the loss at the outputs."""
        differences = self.chances
        differences[torch.arange(len(differences), device=differences.device), self.labels] -= 1
        return differences

    def mean_error(self) -> Tensor:
        """E[B] = E[e eᵀ] (K, K)."""
        errors = self.errors
        return errors.T @ errors / len(errors)

    def mean_uncertainty(self) -> Tensor:
        """E[Σ] = E[diag(ŷ) − ŷ ŷᵀ] (K, K)."""
        chances = self.chances
        return torch.diag(chances.mean(0)) - chances.T @ chances / len(chances)

    def numbers(self) -> dict[str, float]:
        """Mean loss and accuracy; the margin; MSE = Tr E[B]; uncertainty = Tr E[Σ]; the expected calibration error over
        15 bins of confidence; and the cosine of the angle between E[B] and E[Σ] (Shoham et al., Fig. 7).

        The margin is the tenth percentile over the samples of the true class's score less the largest other one.
        """
        losses = self.scores.logsumexp(1) - self.scores.gather(1, self.labels[:, None])[:, 0]
        error, doubt = self.mean_error(), self.mean_uncertainty()
        return {
            "loss": float(losses.mean()),
            "accuracy": float((self.scores.argmax(1) == self.labels).double().mean()),
            "margin": float(self._margins().quantile(0.1)),
            "mse": float(error.trace()),
            "uncertainty": float(doubt.trace()),
            "calibration_error": self._calibration_error(),
            "cosine_b": cosine(error, doubt),
        }

    def _margins(self) -> Tensor:
        """The true class's score less the largest other one, of every sample."""
        true = self.scores.gather(1, self.labels[:, None])
        return (true - self.scores.scatter(1, self.labels[:, None], -float("inf")).amax(1, keepdim=True))[:, 0]

    def _calibration_error(self) -> float:
        confidence, choice = self.chances.max(1)
        place = (confidence * _BINS).long().clamp(max=_BINS - 1)
        excess = (choice == self.labels).double() - confidence
        sums = torch.zeros(_BINS, dtype=torch.float64, device=excess.device).index_add_(0, place, excess)
        return float(sums.abs().sum() / len(excess))


def outputs(land: Landscape) -> Outputs:
    """The outputs of a classifier on all its samples."""
    with torch.no_grad():
        scores = [land.outputs(land.parameters, batch.inputs).double() for batch in land.batches(8192)]
    labels = [batch.target for batch in land.batches(8192)]
    return Outputs(torch.cat(scores), torch.cat(labels).long())


def cosine(first: Tensor, second: Tensor) -> float:
    """⟨A, B⟩ / (‖A‖ ‖B‖), NaN if one of them is zero.

    Examples:
        >>> cosine(torch.eye(2), torch.diag(torch.tensor([1.0, 0.0])))
        0.7071067811865475
    """
    product = float((first.double() * second.double()).sum())
    size = float(first.double().norm()) * float(second.double().norm())
    return product / size if size > 0 else float("nan")
