"""Ridge and logistic regression whose truth is known: many data sets beside the limits for large n."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Row = dict[str, Any]
Array = NDArray[np.float64]
POINTS, INPUTS = 256, 8  # of the inputs, which are drawn with replacement: expectations over new data are then sums
FIXED = "ridge, fixed inputs"
_NEWTON = 60  # steps at most; a handful is enough
_TOGETHER = 2000  # data sets solved at once


@dataclass(frozen=True)
class Truth:
    """Inputs x_j of equal probability, and y given x: N(xᵀθ₀, 1) for ridge, Bernoulli(σ(xᵀθ₀)) for logistic.

    With fixed inputs every data set has each of them equally often.
    """

    model: str
    x: Array
    theta: Array
    decay: float

    @property
    def gaussian(self) -> bool:
        return self.model != "logistic"

    @property
    def fixed(self) -> bool:
        return self.model == FIXED

    def mean(self, theta: Array) -> Array:
        """E[y | x_j] under the parameters."""
        score = theta @ self.x.T
        return score if self.gaussian else 1 / (1 + np.exp(-score))

    def variance(self, theta: Array) -> Array:
        """Var[y | x_j] under the parameters."""
        mean = self.mean(theta)
        return np.ones_like(mean) if self.gaussian else mean * (1 - mean)

    def normalizer(self, theta: Array) -> Array:
        """A(xᵀθ) of the exponential family, so that the loss is A − y xᵀθ and what does not depend on θ."""
        score = theta @ self.x.T
        return 0.5 * score**2 if self.gaussian else np.logaddexp(0.0, score)


def made(model: str, scale: float, decay: float) -> Truth:
    """The regression whose inputs are so many times as large: flatter where they are small."""
    rng = np.random.default_rng(0)
    x = scale * rng.normal(size=(POINTS, INPUTS)) * np.geomspace(1.0, 0.3, INPUTS)
    return Truth(model, x, rng.normal(size=INPUTS), decay)


def fitted(truth: Truth, weights: Array, sums: Array) -> Array:
    """Minima (sets, d) of Σ_j weights_j A(x_jᵀθ) − sums_j x_jᵀθ + (λ/2)‖θ‖², by Newton's method."""
    x, ridge = truth.x, truth.decay * np.eye(INPUTS)
    theta = np.zeros((len(weights), INPUTS))
    for _ in range(_NEWTON):
        slope = (weights * truth.mean(theta) - sums) @ x + truth.decay * theta
        curved = np.einsum("sj,ja,jb->sab", weights * truth.variance(theta), x, x, optimize=True) + ridge
        move = np.linalg.solve(curved, slope[..., None])[..., 0]
        theta = theta - move
        if np.abs(move).max() < 1e-10:
            break
    return theta


def limits(truth: Truth) -> Row:
    """The limits for n → ∞ at the minimum θ* of the population, and the bounds of Proposition 4.1 for them.

    With C the second moment of the regularized loss's gradient, H_Λ = F + Λ (both models are linear in θ):

        n E[Gap] → Tr(C H_Λ⁻¹)    n E‖θ̂ − θ*‖² → Tr(C H_Λ⁻²)    n E‖l̂ − l*‖² → Tr((C H_Λ⁻¹)²)

    and for a calibrated model these are at most rank_Λ(F), Tr((F + Λ)⁻¹) and rank⁽²⁾_Λ(F). With fixed inputs the
    gradient's mean varies by y alone: of C that part moves θ̂, which for ridge is F.
    """
    x, even = truth.x, np.full((1, POINTS), 1 / POINTS)
    known = truth.mean(truth.theta)
    star = fitted(truth, even, even * known)[0]
    error = truth.mean(star) - known
    second = error**2 + truth.variance(truth.theta)
    pull = truth.decay * star
    whole = (x.T * second) @ x / POINTS - np.outer(pull, pull)
    fisher = (x.T * truth.variance(star)) @ x / POINTS
    noise = (x.T * truth.variance(truth.theta)) @ x / POINTS if truth.fixed else whole
    inverse = np.linalg.inv(fisher + truth.decay * np.eye(INPUTS))
    return {
        "gap": float(np.trace(noise @ inverse)),
        "distance": float(np.trace(noise @ inverse @ inverse)),
        "prediction": float(np.trace(whole @ inverse @ noise @ inverse)),
        "soft_rank": float(np.trace(fisher @ inverse)),
        "corrected": float(np.trace(fisher @ inverse) - pull @ inverse @ pull),
        "distance_bound": float(np.trace(inverse)),
        "prediction_bound": float(np.trace(fisher @ inverse @ fisher @ inverse)),
        "uncalibrated": float(error @ (x @ star) / POINTS),
        "star": star,
    }


def measured(model: str, scale: float, decay: float, samples: int, sets: int, seed: int) -> Row:
    """Means over many data sets, with standard errors, beside the limits.

    The gap is taken less L(θ*) − L_n(θ*), which is zero on average and most of the noise.
    """
    truth = made(model, scale, decay)
    expected = limits(truth)
    star = expected.pop("star")
    rng = np.random.default_rng(seed)
    found: dict[str, list[Array]] = {"gap": [], "distance": [], "prediction": []}
    for start in range(0, sets, _TOGETHER):
        counts, sums = drawn(truth, samples, min(_TOGETHER, sets - start), rng)
        theta = fitted(truth, counts / samples, sums / samples)
        for name, values in errors(truth, star, theta, counts / samples, sums / samples).items():
            found[name].append(samples * values)
    row: Row = dict(expected)
    for name, parts in found.items():
        values = np.concatenate(parts)
        row |= {f"{name}_seen": float(values.mean()), f"{name}_stderr": float(values.std() / np.sqrt(len(values)))}
    return row


def drawn(truth: Truth, samples: int, sets: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """How often each input is in each of the data sets (sets, POINTS), and the sum of its y."""
    counts = rng.multinomial(samples, np.full(POINTS, 1 / POINTS), size=sets)
    if truth.fixed:
        counts = np.full_like(counts, samples // POINTS)
    mean = truth.mean(truth.theta)
    if not truth.gaussian:
        return counts.astype(float), rng.binomial(counts, mean).astype(float)
    return counts.astype(float), counts * mean + np.sqrt(counts) * rng.normal(size=counts.shape)


def errors(truth: Truth, star: Array, theta: Array, weights: Array, sums: Array) -> dict[str, Array]:
    """The gap, ‖θ̂ − θ*‖² and ‖l̂ − l*‖² of each data set."""
    moved = theta - star
    shift = moved @ truth.x.T  # of every score
    added = 0.5 * truth.decay * ((theta**2).sum(1) - (star**2).sum())  # to every loss, by the penalty
    rise = truth.normalizer(theta) - truth.normalizer(star)  # l̂ − l* = rise − y shift + added
    known = truth.mean(truth.theta)
    new = (rise - known * shift).mean(1)
    old = (weights * rise).sum(1) - (sums * shift).sum(1)
    squares = (rise - known * shift + added[:, None]) ** 2 + truth.variance(truth.theta) * shift**2
    return {"gap": new - old, "distance": (moved**2).sum(1), "prediction": squares.mean(1)}
