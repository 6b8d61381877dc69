"""The models of the study: their data, their posteriors by exact integration, and the truth as quadrature."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from studies.common.collapsed import Features, collapsed, gaussians
from studies.common.planted import PLANTED, Planted

from . import mixture, rules

Array = NDArray[np.float64]

EDGE = 2e-6  # most of the posterior that may lie at the cut ends of a rule: n · error then changes by 1e-3 at most


class Posterior(Protocol):
    """Expectations over a posterior, observation by observation."""

    def log_mean_power(self, power: float, x: Array, y: Array) -> Array:
        """log E_w[p(y_i|x_i, w)^power]."""

    def log_moments(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Mean and variance of log p(y_i|x_i, w)."""


@dataclass(frozen=True)
class Case:
    """A model with a prior N(0, I) on all its weights, and a truth.

    Attributes:
        planted: title, learning coefficient, data.
        integrate: the posterior given data x, y at inverse temperature β, on a rule of some fineness.
        truth: observations x, y and weights of an expectation over new data, at some fineness.
        log_truth: log of the true density at observations.
    """

    planted: Planted
    integrate: Callable[[Array, Array, float, float], Posterior]
    truth: Callable[[float], tuple[Array, Array, Array]]
    log_truth: Callable[[Array, Array], Array]

    def draw(self, n: int, seed: int) -> tuple[Array, Array]:
        """n observations."""
        samples = self.planted.draw(n, seed).samples
        x, y = samples.inputs.numpy(), samples.target.numpy()
        return x.reshape(n, -1), y.reshape(n, -1)


def _mixture(x: Array, y: Array, beta: float, fineness: float) -> Posterior:
    rule = rules.mixture(len(x) * beta, beta, fineness)
    posterior, weights = mixture.posterior(rule.nodes, rule.log_prior, x, beta)
    _within(rule, weights)
    return posterior


def _mixture_truth(fineness: float) -> tuple[Array, Array, Array]:
    x = np.linspace(-mixture.REACH, mixture.REACH, round(160 * fineness) + 1)[:, None]
    weights = np.exp(-0.5 * x[:, 0] ** 2)
    return x, x, weights / weights.sum()


def _tanh_features(nodes: Array, x: Array) -> Array:
    return np.tanh(nodes[:, None, :] * x[None, :, :])


def _tanh(x: Array, y: Array, beta: float, fineness: float) -> Posterior:
    rule = rules.tanh(len(x) * beta, beta, fineness)
    gram, cross = np.empty((len(rule.nodes), 2, 2)), np.empty((len(rule.nodes), 2, 1))
    for number, node in enumerate(rule.nodes):
        phi = np.tanh(x * node)
        gram[number], cross[number] = phi.T @ phi, phi.T @ y
    return _regression(rule, _tanh_features, gram, cross, y, beta)


def _tanh_truth(fineness: float) -> tuple[Array, Array, Array]:
    x = np.linspace(-7, 7, round(120 * fineness) + 1)
    weights = np.exp(-0.5 * x**2)
    noise, shares = rules.gauss_hermite(round(7 * fineness))
    together = np.outer(weights / weights.sum(), shares).ravel()
    return np.repeat(x, len(noise))[:, None], np.tile(noise, len(x))[:, None], together


def _rank_features(nodes: Array, x: Array) -> Array:
    return x[None] @ _upper(nodes).transpose(0, 2, 1)


def _upper(nodes: Array) -> Array:
    first, cross, last = nodes.T
    return np.stack([np.stack([first, cross], 1), np.stack([np.zeros_like(last), last], 1)], 1)


def _rank(x: Array, y: Array, beta: float, fineness: float) -> Posterior:
    rule = rules.rank(len(x) * beta, beta, fineness)
    upper = _upper(rule.nodes)
    return _regression(rule, _rank_features, upper @ (x.T @ x) @ upper.transpose(0, 2, 1), upper @ (x.T @ y), y, beta)


def _rank_truth(fineness: float) -> tuple[Array, Array, Array]:
    """Gauss–Hermite in both inputs and all four outputs: exact where log E[p] is a polynomial of degree 5 and 9."""
    points, shares = rules.gauss_hermite(round(5 * fineness))
    inputs = np.array(list(itertools.product(points, repeat=2)))
    input_weights = np.outer(shares, shares).ravel()
    ends, end_shares = rules.gauss_hermite(round(3 * fineness))
    noise = np.array(list(itertools.product(ends, repeat=4)))
    noise_weights = np.array(list(itertools.product(end_shares, repeat=4))).prod(1)
    x, noises = np.repeat(inputs, len(noise), axis=0), np.tile(noise, (len(inputs), 1))
    return x, _rank_map(x) + noises, np.outer(input_weights, noise_weights).ravel()


def _rank_map(x: Array) -> Array:
    """The true map of rank one: the first input is the first output."""
    return x[:, :1] * np.eye(1, 4)


def _regression(rule: rules.Rule, features: Features, gram: Array, cross: Array, y: Array, beta: float) -> Posterior:
    given = gaussians(gram, cross, float((y**2).sum()), len(y), beta, 1.0, 1.0)
    posterior, _, weights = collapsed(features, rule.nodes, rule.log_prior, given, 1.0)
    _within(rule, weights)
    return posterior


def _within(rule: rules.Rule, weights: Array) -> None:
    outside = float(weights[rule.edge].sum())
    if not outside < EDGE:
        raise ValueError(f"{outside:.1e} of the posterior lies at the ends of the grid, expected below {EDGE:g}")


def _normal(residual: Array) -> Array:
    return -0.5 * (residual**2).sum(1) - 0.5 * residual.shape[1] * np.log(2 * np.pi)


CASES = {
    "mixture": Case(PLANTED["mixture"], _mixture, _mixture_truth, lambda x, y: _normal(x)),
    "tanh": Case(PLANTED["tanh"], _tanh, _tanh_truth, lambda x, y: _normal(y)),
    "reduced-rank": Case(PLANTED["reduced-rank"], _rank, _rank_truth, lambda x, y: _normal(y - _rank_map(x))),
}
