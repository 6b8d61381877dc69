"""Truths to learn from, and the candidates of growing size that try.

Inputs are uniform on finitely many places, so that expectations over new data are sums, and sums over the data need
counts alone. Noise is N(0, 1); the prior of every weight of every candidate is N(0, 1/γ). Mixtures of normals, which
have no inputs, are in mixtures.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .mixtures import MixtureTruth

Array = NDArray[np.float64]

SIZES = (1, 2, 3, 4)


@dataclass(frozen=True)
class Candidates:
    """Regressions y = Aᵀφ_b(x) of growing size h: φ has h features, A is h × outputs.

    Attributes:
        inner: number of inner weights b of each feature; none where the model is linear.
        features: φ_b(x) from b (nodes, h, inner) and x (n, inputs): (nodes, n, h).
        slopes: derivatives of the outputs in b, from one b (h, inner), A and x: (n, outputs, h, inner).
        bilinear: whether φ is linear in b.
    """

    inner: int
    features: Callable[[Array, Array], Array]
    slopes: Callable[[Array, Array, Array], Array]
    bilinear: bool = False

    def parameters(self, size: int, outputs: int) -> int:
        """Number of weights."""
        return size * (self.inner + outputs)


@dataclass(frozen=True)
class Truth:
    """A regression function on its places, and who is to learn it.

    Attributes:
        title: for tables.
        places: (m, inputs), the inputs there are, all as likely.
        values: (m, outputs), the true regression function.
        candidates: the models.
        size: that of the smallest candidate which is the truth; None where none is.
    """

    title: str
    places: Array
    values: Array
    candidates: Candidates
    size: int | None

    def draw(self, n: int, seed: int) -> tuple[NDArray[np.int64], Array]:
        """Indices of places, and noisy outputs."""
        rng = np.random.default_rng([seed, n])
        at = rng.integers(len(self.places), size=n)
        return at, self.values[at] + rng.normal(size=(n, self.values.shape[1]))


def _legendre(nodes: Array, x: Array) -> Array:
    """Normalized Legendre polynomials of degree 0, …, h − 1 on [−2, 2]; the nodes only say how many."""
    degrees = np.arange(nodes.shape[1])
    values = np.polynomial.legendre.legvander(x[:, 0] / 2, degrees[-1]) * np.sqrt(2 * degrees + 1)
    return np.broadcast_to(values, (len(nodes), *values.shape))


def _tanh(nodes: Array, x: Array) -> Array:
    return np.tanh(nodes[:, :, 0][:, None, :] * x[None])


def _tanh_slopes(node: Array, outer: Array, x: Array) -> Array:
    steep = (1 - np.tanh(node[:, 0] * x) ** 2) * x
    return (steep[:, None, :] * outer.T[None])[..., None]


def _linear(nodes: Array, x: Array) -> Array:
    return x[None] @ nodes.transpose(0, 2, 1)


def _linear_slopes(node: Array, outer: Array, x: Array) -> Array:
    return outer.T[None, :, :, None] * x[:, None, None, :]


def _none(node: Array, outer: Array, x: Array) -> Array:
    return np.zeros((len(x), outer.shape[1], *node.shape))


POLYNOMIALS = Candidates(0, _legendre, _none)
TANH = Candidates(1, _tanh, _tanh_slopes)
RANKS = Candidates(4, _linear, _linear_slopes, bilinear=True)

_LINE = (np.arange(32) + 0.5)[:, None] / 8 - 2  # [−2, 2]
_CORNERS = np.array(list(itertools.product([-1.0, 1.0], repeat=4)))

TRUTHS: dict[str, Truth | MixtureTruth] = {
    "regular": Truth(
        "realizable, regular: polynomials",
        _LINE,
        _legendre(np.zeros((1, 3, 0)), _LINE)[0] @ np.array([[0.5], [-1.0], [0.4]]),
        POLYNOMIALS,
        3,
    ),
    "singular-ranks": Truth(
        "realizable, singular: ranks", _CORNERS, _CORNERS * np.array([1.0, 0.5, 0.0, 0.0]), RANKS, 2
    ),
    "singular-tanh": Truth(
        "realizable, singular: tanh units", _LINE, 2 * np.tanh(2 * _LINE) - 1.5 * np.tanh(0.7 * _LINE), TANH, 2
    ),
    "singular-mixture": MixtureTruth("realizable, singular: components", (-0.35, 0.5)),
    "unrealizable": Truth("not realizable: tanh units for a sine", _LINE, 1.2 * np.sin(2 * _LINE), TANH, None),
}
