"""Singular models whose truth and learning coefficient are known, as landscapes of data drawn from them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from scipy import stats
from torch import Tensor, nn

from basinscope.exact import Coefficient, normal_mixture, reduced_rank, tanh_one_input
from basinscope.landscape import Landscape

_OTHER = 10**6  # keeps the seeds of noise apart from those of inputs


@dataclass(frozen=True)
class Planted:
    """A model at its true parameter w₀.

    Attributes:
        title: for figures.
        coefficient: (λ, θ).
        gamma: precision of the prior N(w₀, I/γ).
        draw: a landscape at w₀ on n samples, from a seed.
        test: a landscape at w₀ whose mean loss stands for the expectation over new data, from a size and a seed.
    """

    title: str
    coefficient: Coefficient
    gamma: float
    draw: Callable[[int, int], Landscape]
    test: Callable[[int, int], Landscape]


class Tanh(nn.Module):
    """y = Σ_j a_j tanh(b_j x), zero at first."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.out = nn.Parameter(torch.zeros(hidden, dtype=torch.float64))
        self.inner = nn.Parameter(torch.zeros(hidden, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return (torch.tanh(x * self.inner) * self.out).sum(-1, keepdim=True)


class Mixture(nn.Module):
    """log of aN(b, 1) + (1 − a)N(c, 1) at x, with a = 1/(1 + e^(−logit)); N(0, 1) at first."""

    def __init__(self) -> None:
        super().__init__()
        self.logit = nn.Parameter(torch.zeros((), dtype=torch.float64))
        self.means = nn.Parameter(torch.zeros(2, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        weights = torch.stack([nn.functional.logsigmoid(self.logit), nn.functional.logsigmoid(-self.logit)])
        parts = weights - 0.5 * (x[:, None] - self.means) ** 2
        return torch.logsumexp(parts, 1) - 0.5 * math.log(2 * math.pi)


class Bottleneck(nn.Module):
    """y = A B x through `hidden` units; the true map is the identity on the first `rank` coordinates."""

    def __init__(self, inputs: int, hidden: int, outputs: int, rank: int) -> None:
        super().__init__()
        self.first = nn.Parameter(
            torch.eye(hidden, inputs, dtype=torch.float64) * (torch.arange(hidden) < rank)[:, None]
        )
        self.second = nn.Parameter(torch.eye(outputs, hidden, dtype=torch.float64) * (torch.arange(hidden) < rank))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.first.T @ self.second.T


def negative_log(output: Tensor, target: Tensor) -> Tensor:
    """The loss of a model whose output is the log-density of its input."""
    return -output


def regression(net: nn.Module, inputs: int, outputs: int) -> tuple[Callable[..., Landscape], Callable[..., Landscape]]:
    """Data y = net(x) + noise with normal inputs and noise, and a test set with each noise in both signs.

    The loss beyond the truth's is ½|Δ|² − Δ·noise: the signs take out its second part, and most of the variance.
    """

    def draw(n: int, seed: int) -> Landscape:
        x, noise = _normal(n, inputs, seed), _normal(n, outputs, seed + _OTHER)
        with torch.no_grad():
            return Landscape(net, "gaussian", (x, net(x) + noise), sigma=1.0)

    def test(n: int, seed: int) -> Landscape:
        x, noise = _normal(n // 2, inputs, seed), _normal(n // 2, outputs, seed + _OTHER)
        with torch.no_grad():
            y = net(x)
        return Landscape(net, "gaussian", (torch.cat([x, x]), torch.cat([y + noise, y - noise])), sigma=1.0)

    return draw, test


def averaged_tanh(observations: int, seed: int, inputs: int = 50) -> Landscape:
    """Two tanh units on a large data set whose truth is zero: `inputs` places, with the mean of the noise at each.

    Up to a constant, nL_n of n observations spread evenly over m places is n/m times the sum over the means, so that
    (n/m)β takes the place of β.
    """
    places = torch.tensor(stats.norm.ppf([(i + 0.5) / inputs for i in range(inputs)]), dtype=torch.float64)
    noise = _normal(inputs, 1, seed) / math.sqrt(observations / inputs)
    return Landscape(Tanh(2), "gaussian", (places[:, None], noise), sigma=1.0)


def _mixture(n: int, seed: int) -> Landscape:
    x = _normal(n, 1, seed)[:, 0]
    return Landscape(Mixture(), negative_log, (x, x))


def _mixture_test(n: int, seed: int) -> Landscape:
    """Quantiles of N(0, 1) instead of draws: an integral in one dimension."""
    x = torch.tensor(stats.norm.ppf([(i + 0.5) / n for i in range(n)]), dtype=torch.float64)
    return Landscape(Mixture(), negative_log, (x, x))


def _normal(n: int, width: int, seed: int) -> Tensor:
    return torch.randn(n, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


PLANTED = {
    "reduced-rank": Planted(
        "reduced-rank regression 2–2–4, rank 1",
        reduced_rank(2, 2, 4, 1),
        1.0,
        *regression(Bottleneck(2, 2, 4, 1), 2, 4),
    ),
    "tanh": Planted("two tanh units, truth zero", tanh_one_input(2), 1.0, *regression(Tanh(2), 1, 1)),
    "mixture": Planted("mixture of two normals, truth one", normal_mixture(2), 1.0, _mixture, _mixture_test),
}
