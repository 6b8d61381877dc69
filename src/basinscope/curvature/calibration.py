"""Error against uncertainty: does a model make as many mistakes as it expects to?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import InputError
from ..landscape import Landscape
from ..losses import logits
from .likelihood import IGNORED_LABEL, missing_likelihood

CALIBRATED_RATIOS = (0.5, 2.0)  # between which ratios leave the predicted gap within a factor of two


@dataclass(frozen=True)
class Ratio:
    """A ratio of two means over samples, with its standard error."""

    value: float
    stderr: float

    @property
    def calibrated(self) -> bool:
        """Whether the ratio is close enough to 1 for curvature to stand in for gradient noise."""
        return CALIBRATED_RATIOS[0] <= self.value <= CALIBRATED_RATIOS[1]


def ratio(above: Tensor, below: Tensor) -> Ratio:
    """mean(above) / mean(below) of per-sample values, its error by the delta method.

    Examples:
        >>> import torch
        >>> ratio(torch.tensor([1.0, 3.0]), torch.tensor([2.0, 6.0]))
        Ratio(value=0.5, stderr=0.0)
    """
    bottom = float(below.mean())
    if bottom <= 0:
        return Ratio(math.inf if float(above.mean()) > 0 else math.nan, math.inf)
    value = float(above.mean()) / bottom
    n = len(above)
    spread = float((above - value * below).std()) / math.sqrt(n) if n > 1 else math.inf
    return Ratio(value, spread / bottom)


def error_uncertainty(land: Landscape) -> Ratio:
    """MSE/uncertainty = Tr E[B] / Tr E[Σ], with B = ∇_z l ∇_z lᵀ and Σ its mean under the model.

    For classes it is E‖y − p‖² / E[1 − ‖p‖²]. It is 1 for a calibrated model, near 0 on data that the network has
    learned by heart, and above 1 where it is confidently wrong (Shoham, Mor-Yosef and Avron, "Flatness After All?",
    2025, https://arxiv.org/abs/2506.17809, Section 5 and Proposition 5.4).

    Examples:
        >>> import torch, basinscope as bs
        >>> net = torch.nn.Linear(1, 2)
        >>> land = bs.Landscape(net, "cross_entropy", (torch.zeros(4, 1), torch.tensor([0, 1, 0, 1])))
        >>> land = land.at({"weight": torch.zeros(2, 1), "bias": torch.zeros(2)})
        >>> error_uncertainty(land).value
        1.0
    """
    errors, uncertainties = [], []
    with torch.no_grad():
        for batch in land.batches(4096):
            scores = logits(land.outputs(land.parameters, batch.inputs)).double()
            error, uncertainty = _error_and_uncertainty(land, scores, batch.target)
            errors.append(error.flatten(1).sum(1))
            uncertainties.append(uncertainty.flatten(1).sum(1))
    return ratio(torch.cat(errors), torch.cat(uncertainties))


def _error_and_uncertainty(land: Landscape, scores: Tensor, target: Any) -> tuple[Tensor, Tensor]:
    """‖∇_z l‖² and its mean under the model, by sample and output."""
    if land.loss.family == "categorical":
        axis = land.loss.class_dimension(scores, target)
        chance = scores.softmax(axis).movedim(axis, -1)
        counted = (target != IGNORED_LABEL).unsqueeze(-1)
        label = torch.zeros_like(chance).scatter_(-1, target.long().clamp(min=0).unsqueeze(-1), 1.0)
        return counted * (label - chance).square(), counted * chance * (1 - chance)
    target = target.to(scores.dtype).view_as(scores)
    if land.loss.family == "bernoulli":
        chance = scores.sigmoid()
        return (target - chance).square(), chance * (1 - chance)
    if land.loss.family == "gaussian":
        return (target - scores).square() / land.loss.variance**2, torch.full_like(scores, 1 / land.loss.variance)
    raise InputError(missing_likelihood(land.loss.name))
