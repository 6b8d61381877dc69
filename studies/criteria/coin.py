"""A coin whose log-odds are a function of parameters: regular and singular models without a sampling error.

Heads have probability s(θ₀ + c(w)), and c = 0 is the truth. All that n tosses say is their number of heads, and
all that a parameter does is in c: posterior means are one-dimensional integrals, and means over data sets are sums
over the binomial distribution. So the asymptotic laws can be seen to ten digits at n up to a million.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.polynomial.legendre import leggauss
from numpy.typing import NDArray
from scipy.special import log_expit, logit, logsumexp
from scipy.stats import binom, norm

Array = NDArray[np.float64]

TRUTH = 0.1  # probability of heads; far from 1/2, so that the score is skewed
INFORMATION = TRUTH * (1 - TRUTH)
KINDS = {"regular": 0.5, "square": 0.25, "product": 0.5}  # c = a, a², ab with a, b uniform on [−1, 1]; and their λ
_NODES = 500
_DEVIATIONS = 8  # of the number of heads that are summed over


@dataclass(frozen=True)
class Means:
    """Means over data sets: errors times n, V as it is; `gap` is the root mean square of CvL − WAIC."""

    bayes: float
    bayes_training: float
    gibbs: float
    gibbs_training: float
    cross_validation: float
    variance: float
    gap: float
    symmetry: float  # n (Bg + Cv) − (β − 1) V
    spread: float  # its standard deviation over data sets
    correlation: float  # of Bg and Cv


def prior(kind: str, reach: float) -> tuple[Array, Array]:
    """Nodes c within `reach` and the logarithms of their prior weights."""
    x, w = leggauss(_NODES)
    x, w = (x + 1) / 2, w / 2  # on [0, 1]
    if kind == "regular":
        return reach * (2 * x - 1), np.log(w)
    if kind == "square":
        return reach * x**2, np.log(w)
    t, jacobian = reach * x**3, 3 * x**2  # c = ab has density −½ log|c|
    weights = np.log(-np.log(np.minimum(t, 1 - 1e-15))) + np.log(w * jacobian)
    return np.concatenate([-t, t]), np.concatenate([weights, weights])


def means(kind: str, n: int, beta: float) -> Means:
    """Every law's left-hand side at n tosses and inverse temperature β."""
    reach = min(1.0, (_DEVIATIONS + 10 / math.sqrt(beta)) / math.sqrt(n * INFORMATION))
    c, weight = prior(kind, reach)
    heads, tails = log_expit(logit(TRUTH) + c), log_expit(-logit(TRUTH) - c)
    middle, spread = n * TRUTH, _DEVIATIONS * math.sqrt(n * INFORMATION)
    counts = np.arange(max(0, math.floor(middle - spread)), min(n, math.ceil(middle + spread)) + 1)
    chance = binom.pmf(counts, n, TRUTH)
    parts = [
        _of_counts(block, n, beta, heads, tails, weight) for block in np.array_split(counts, 1 + len(counts) // 500)
    ]
    bayes, training, gibbs, gibbs_training, waic, cv, variance = np.concatenate(parts, axis=1)

    def mean(values: Array) -> float:
        return float(chance @ values / chance.sum())

    both = n * (bayes + cv) - (beta - 1) * variance
    centred = [values - mean(values) for values in (bayes, cv)]
    correlation = mean(centred[0] * centred[1]) / math.sqrt(mean(centred[0] ** 2) * mean(centred[1] ** 2))
    return Means(
        n * mean(bayes), n * mean(training), n * mean(gibbs), n * mean(gibbs_training), n * mean(cv), mean(variance),
        gap=math.sqrt(mean((cv - waic) ** 2)), symmetry=mean(both),
        spread=math.sqrt(mean((both - mean(both)) ** 2)), correlation=correlation,
    )  # fmt: skip


def _of_counts(counts: NDArray[Any], n: int, beta: float, heads: Array, tails: Array, weight: Array) -> Array:
    """Bg, Bt, Gg, Gt, WAIC and Cv as errors, and V, for each number of heads."""
    k = counts[:, None]
    posterior = beta * (k * heads + (n - k) * tails) + weight
    posterior -= logsumexp(posterior, axis=1, keepdims=True)
    probability = np.exp(posterior)
    share = np.stack([counts / n, 1 - counts / n])  # of heads and tails in the data
    truth = np.array([TRUTH, 1 - TRUTH])
    faces = (heads - math.log(TRUTH), tails - math.log(1 - TRUTH))  # log p(x|w) − log q(x)

    def power(alpha: float) -> Array:
        return np.stack([np.log(probability @ np.exp(alpha * face)) for face in faces])

    predictive = power(1.0)
    average = np.stack([probability @ face for face in faces])
    variance = np.stack(
        [(probability * (face - mean[:, None]) ** 2).sum(1) for face, mean in zip(faces, average, strict=True)]
    )
    functional = n * (share * variance).sum(0)
    training = -(share * predictive).sum(0)
    return np.stack(
        [
            -truth @ predictive,
            training,
            -truth @ average,
            -(share * average).sum(0),
            training + beta / n * functional,
            -(share * (power(1 - beta) - power(-beta))).sum(0),
            functional,
        ]
    )


def fluctuation(kind: str, beta: float) -> float:
    """ν(β) in the limit n → ∞: (β/2) E_ξ[Var_ξ(u)], the density of u ∝ exp(β(ξu − u²/2)) times that of the prior.

    ½ for `regular`, and for `product`, whose prior density −log|c| is flat on the scale of the posterior in the end.
    """
    if kind != "square":
        return 0.5
    x, w = leggauss(400)
    reach = 9 + 8 / math.sqrt(beta)
    u, weight = reach * ((x + 1) / 2) ** 2, np.log(w)  # u = v², v uniform
    xi = np.linspace(-8, 8, 1601)[:, None]
    density = np.exp(beta * (xi * u - u**2 / 2) + weight - (beta * np.maximum(xi, 0) ** 2 / 2))
    density /= density.sum(1, keepdims=True)
    first = density @ u
    spread = density @ u**2 - first**2
    chance = norm.pdf(xi[:, 0])
    return 0.5 * beta * float(chance @ spread / chance.sum())
