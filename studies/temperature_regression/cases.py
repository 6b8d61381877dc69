"""The models: three of known λ, and the networks of Murfet et al. (2020), all with the prior N(0, I) on every weight.

The networks have two inputs, uniform on [−1, 1]², one hidden layer with biases, and one output; noise is N(0, 1). The
truth is zero, or a polygon: hidden unit k of m has the weights (cos φ_k, sin φ_k), bias −0.3 and outer weight 1. This
is how the authors' own code has it (github.com/suswei/RLCT, notebooks/mcmc_symmetry_pyro.py), with 1,000 samples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor, nn

from basinscope.exact import Coefficient
from basinscope.landscape import Landscape
from studies.common.planted import PLANTED, averaged_tanh


@dataclass(frozen=True)
class Network:
    """One of the networks.

    Attributes:
        title: for tables.
        hidden: number of hidden units.
        silu: SiLU in place of ReLU.
        sides: of the polygon that is the truth; 0 for the truth zero.
        coefficient: (λ, θ) where it is known. With ReLU and the truth zero, the prior gives positive probability to
            weights of which no unit is active on any input; only the output's bias is left, so that λ = ½.
    """

    title: str
    hidden: int
    silu: bool = False
    sides: int = 0
    coefficient: Coefficient | None = None

    def module(self) -> nn.Sequential:
        """The network with all weights zero."""
        layers = nn.Linear(2, self.hidden), nn.SiLU() if self.silu else nn.ReLU(), nn.Linear(self.hidden, 1)
        net = nn.Sequential(*layers).double()
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.zero_()
        return net

    def draw(self, n: int, seed: int) -> tuple[Tensor, Tensor]:
        """n inputs and noisy outputs of the truth."""
        generator = torch.Generator().manual_seed(seed)
        x = 2 * torch.rand(n, 2, generator=generator, dtype=torch.float64) - 1
        noise = torch.randn(n, 1, generator=generator, dtype=torch.float64)
        angles = math.pi / max(self.sides, 1) * (1 - 2 * torch.arange(self.sides, dtype=torch.float64))
        units = nn.functional.relu(x @ torch.stack([angles.cos(), angles.sin()]) - 0.3)
        return x, units.sum(1, keepdim=True) + noise

    @property
    def parameters(self) -> int:
        """Number of weights."""
        return 4 * self.hidden + 1


HALF = Fraction(1, 2)

NETWORKS = {
    "relu-3": Network("ReLU 2–3–1, truth zero", 3, coefficient=(HALF, 1)),
    "relu-4": Network("ReLU 2–4–1, truth zero", 4, coefficient=(HALF, 1)),
    "relu-5": Network("ReLU 2–5–1, truth zero", 5, coefficient=(HALF, 1)),
    "relu-10": Network("ReLU 2–10–1, truth zero", 10, coefficient=(HALF, 1)),
    "relu-5-pentagon": Network("ReLU 2–5–1, truth a pentagon", 5, sides=5),
    "silu-5": Network("SiLU 2–5–1, truth zero", 5, silu=True),
}
MODELS = (*PLANTED, *NETWORKS)


def title(model: str) -> str:
    """For tables."""
    return NETWORKS[model].title if model in NETWORKS else PLANTED[model].title


def coefficient(model: str) -> Coefficient | None:
    """(λ, θ) where it is known."""
    return NETWORKS[model].coefficient if model in NETWORKS else PLANTED[model].coefficient


def landscape(model: str, samples: int, seed: int) -> tuple[Landscape, float]:
    """The data set's landscape at weights zero, whose localiser is then the prior, and the weight of each observation.

    The tanh network's data are averaged at fifty places, so that each observation stands for many.
    """
    if model in NETWORKS:
        network = NETWORKS[model]
        return Landscape(network.module(), "gaussian", network.draw(samples, seed), sigma=1.0), 1.0
    if model == "tanh":
        land = averaged_tanh(samples, seed)
        return land, samples / land.n
    land = PLANTED[model].draw(samples, seed)
    return land.at({name: torch.zeros_like(value) for name, value in land.parameters.items()}), 1.0
