"""What a network's outputs alone tell: loss, accuracy, calibration, and error against uncertainty."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from basinscope.landscape import Landscape

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
        """Mean loss and accuracy; MSE = Tr E[B]; uncertainty = Tr E[Σ]; the expected calibration error over 15 bins of
        confidence; and the cosine of the angle between E[B] and E[Σ] (Shoham et al., Fig. 7)."""
        losses = self.scores.logsumexp(1) - self.scores.gather(1, self.labels[:, None])[:, 0]
        error, doubt = self.mean_error(), self.mean_uncertainty()
        return {
            "loss": float(losses.mean()),
            "accuracy": float((self.scores.argmax(1) == self.labels).double().mean()),
            "mse": float(error.trace()),
            "uncertainty": float(doubt.trace()),
            "calibration_error": self._calibration_error(),
            "cosine_b": cosine(error, doubt),
        }

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
