"""What a posterior predicts, with the spread of its draws, and whether its probabilities mean what they say."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..checks import whole
from ..errors import InputError
from ..estimates import Check
from ..landscape import Landscape
from ..losses import logits
from ..progress import tracked
from ..verdict import Checked
from .evidence import posterior_for_draws, temperature
from .observables import observe
from .posterior import Posterior, landscape_of
from .settings import Sampling, takes_settings

Array = NDArray[np.float64]
_BATCH = 4096


class Scores(NamedTuple):
    """How good probabilities of classes are.

    Attributes:
        accuracy: share of samples whose most probable class is right.
        log_loss: mean of −log p(right class).
        brier: mean of Σ_k (p_k − [k is right])².
        calibration_error: mean over samples of |share that is right − mean probability| in the bin of the most probable
            class's probability: the expected calibration error (Naeini, Cooper and Hauskrecht 2015).
    """

    accuracy: float
    log_loss: float
    brier: float
    calibration_error: float


class Calibration(NamedTuple):
    """Scores of the posterior's predictions, and of those of w* alone."""

    posterior: Scores
    point: Scores


@dataclass(frozen=True)
class Predictions(Checked):
    """Means over a posterior of what a network says of inputs.

    Attributes:
        family: `categorical` or `bernoulli`, of whose probabilities these are the means; or `gaussian`: of outputs.
        mean, stderr: with Monte Carlo standard errors, (m, K).
        variance: over the posterior, (m, K): what the network does not know, without the noise of the data.
        point: what the network says at w*, (m, K).
        checks: whether the draws are those of the posterior.
        facts: settings and diagnostics of the chains.
    """

    family: str
    mean: Array
    stderr: Array
    variance: Array
    point: Array
    checks: tuple[Check, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    def calibration(self, target: Any, bins: int = 15) -> Calibration:
        """Scores on known classes (m,), of the posterior's probabilities and of those at w*."""
        if self.family == "gaussian":
            raise InputError("calibration is that of probabilities of classes, got outputs — compare variance yourself")
        classes = torch.as_tensor(target).reshape(-1).cpu().numpy()
        count = 2 if self.family == "bernoulli" else self.mean.shape[1]
        if len(classes) != len(self.mean):
            raise InputError(f"target must have a class for each of {len(self.mean)} inputs, got {len(classes)}")
        if not np.isin(classes, np.arange(count)).all():
            raise InputError(f"target must be classes from 0 to {count - 1}, got {np.unique(classes)[:5].tolist()}")
        whole("bins", bins, 1)
        both = (self.mean, self.point)
        return Calibration(*(scores(self._classes(each), classes.astype(int), bins) for each in both))

    def _classes(self, probabilities: Array) -> Array:
        return np.hstack([1 - probabilities, probabilities]) if self.family == "bernoulli" else probabilities

    def __repr__(self) -> str:
        return f"Predictions for {len(self.mean):,} inputs, {self.family} ({self.verdict})"


@takes_settings
def predict(
    source: Landscape | Posterior, inputs: Tensor, *, progress: bool = True, **settings: Unpack[Sampling]
) -> Predictions:
    """E[p(y | x, w)] over the local posterior, for every input: probabilities of classes, or outputs.

    Args:
        source: the posterior, or a landscape whose posterior is sampled; at nβ = n unless given, where it is Bayes's.
        inputs: x, a tensor whose first axis runs over them.
        progress: show a bar when it takes over a second.
        settings: of a landscape, those of `posterior`.

    Examples:
        >>> import torch, basinscope as bs
        >>> x = torch.randn(60, 2, generator=torch.Generator().manual_seed(0))
        >>> y = (x[:, 0] > 0).long()
        >>> land = bs.Landscape(torch.nn.Linear(2, 2), "cross_entropy", (x, y))
        >>> found = bs.predict(land, x, gamma=1.0, draws=50, progress=False)
        >>> found.mean.shape, bool(abs(found.mean.sum(1) - 1).max() < 1e-6)
        ((60, 2), True)
        >>> round(found.calibration(y).posterior.accuracy, 1) >= 0.5
        True
    """
    land = landscape_of(source)
    family = land.loss.family
    if family not in ("categorical", "bernoulli", "gaussian"):
        raise InputError(f"predictions are those of a likelihood, got {land.loss.name!r} — take post.observe instead")
    if not isinstance(inputs, Tensor) or not inputs.ndim or not len(inputs):
        raise InputError(f"inputs must be a tensor with a row for each, got {inputs!r}")
    inputs = inputs.to(land.device)

    def said(parameters: Mapping[str, Tensor]) -> Tensor:
        outputs = torch.cat([logits(land.outputs(parameters, rows)) for rows in inputs.split(_BATCH)])
        if outputs.ndim == 1:
            outputs = outputs[:, None]
        if outputs.ndim != 2:
            raise InputError(f"predictions need outputs (m, K), got shape {tuple(outputs.shape)} — use post.observe")
        return (
            outputs.softmax(1) if family == "categorical" else outputs.sigmoid() if family == "bernoulli" else outputs
        )

    with tracked("predictions", progress) as report:
        post = posterior_for_draws(source, temperature(source, settings.get("nbeta"), None), settings, report)
        with torch.no_grad():
            point = said(land.parameters).double().cpu().numpy()
        result = observe(post, said, report)
    mean, stderr, variance = (part.reshape(point.shape) for part in (result.mean, result.stderr, result.variance))
    return Predictions(family, mean, stderr, variance, point, result.checks, result.facts)


def scores(probabilities: Array, classes: NDArray[np.int_], bins: int) -> Scores:
    """The scores of probabilities (m, K) on known classes (m,).

    Examples:
        >>> half = np.full((4, 2), 0.5)
        >>> scores(half, np.array([0, 0, 0, 1]), 10)
        Scores(accuracy=0.75, log_loss=0.6931471805599453, brier=0.5, calibration_error=0.25)
    """
    named, confidence = probabilities.argmax(1), probabilities.max(1)
    right = (named == classes).astype(float)
    of_right = probabilities[np.arange(len(classes)), classes]
    with np.errstate(divide="ignore"):
        log_loss = -float(np.log(of_right).mean())
    wanted = np.zeros_like(probabilities)
    wanted[np.arange(len(classes)), classes] = 1.0
    place = np.minimum((confidence * bins).astype(int), bins - 1)
    apart = np.abs(np.bincount(place, right - confidence, bins)).sum() / len(classes)
    brier = float(np.square(probabilities - wanted).sum(1).mean())
    return Scores(float(right.mean()), log_loss if math.isfinite(log_loss) else math.inf, brier, float(apart))
