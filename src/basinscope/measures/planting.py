"""Deep linear networks at a minimum whose learning coefficient is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import torch
from torch import Tensor, nn

from ..checks import whole
from ..errors import InputError
from ..exact import deep_linear, finite
from ..landscape import Landscape


@dataclass(frozen=True)
class PlantedNetwork:
    """A deep linear network at a minimum of which everything is known.

    Attributes:
        land: the landscape at w*.
        widths: from input to output.
        rank: of the map, and of every factor at w*; the factors' singular values are 1.
        coefficient, multiplicity: λ and θ.
        curvature: second moment σ of the inputs; the Hessian's eigenvalues are Lσ, σ and 0 for L layers.
    """

    land: Landscape
    widths: tuple[int, ...]
    rank: int
    coefficient: Fraction
    multiplicity: int
    curvature: float

    def at(self, nbeta: float, gamma: float) -> float:
        """λ_t at finite resolution, t = nβ: the regular directions' half soft rank and the core's exact value.

        With r = rank and L layers, r² directions have curvature Lσ and r(inputs + outputs − 2r) have σ. What is left, a
        product of matrices at the origin of widths less r, has the value of `exact.finite.matrix_chain`; it needs
        r = the smallest width, or one less. How the localiser ties the two together is left out; exact block-Gibbs
        sampling found values within 0.6 % for nβσ from 50 to 1,000 times γ.
        """
        inputs, outputs, layers, rank = self.widths[0], self.widths[-1], len(self.widths) - 1, self.rank
        if layers == 1:
            return finite.quadratic([self.curvature], nbeta, gamma) * inputs * outputs
        steep = finite.quadratic([layers * self.curvature], nbeta, gamma) * rank**2
        rest = finite.quadratic([self.curvature], nbeta, gamma) * rank * (inputs + outputs - 2 * rank)
        core = [width - rank for width in self.widths]
        if min(core) == 0:
            return steep + rest
        return steep + rest + finite.matrix_chain(core, nbeta * self.curvature, gamma)


def plant(
    widths: Sequence[int],
    rank: int,
    n: int,
    *,
    curvature: float = 1.0,
    noise: float = 1.0,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> PlantedNetwork:
    """A deep linear network y = W_L ⋯ W₁ x + noise at a minimum, on n samples.

    Every factor has the rank of the map and singular values 1, the most degenerate of the minima, so that its λ is the
    least one, `exact.deep_linear(widths, rank)`. Inputs have the second moment σI exactly, and the noise is orthogonal
    to them: the planted map is the minimum of the sample, too.

    Args:
        widths: from input to output.
        rank: of the map.
        n: samples, more than inputs.
        curvature: second moment σ of the inputs.
        noise: standard deviation of what no linear map explains; the loss is Gaussian with variance 1.
        seed: of everything.
        dtype, device: of the network.

    Examples:
        >>> planted = plant([4, 3, 4], 2, n=100)
        >>> planted.coefficient, planted.multiplicity
        (Fraction(7, 1), 2)
        >>> planted.land.n, planted.land.dimension
        (100, 24)
    """
    sizes = [whole("a width", width, least=1) for width in widths]
    if n <= sizes[0]:
        raise InputError(f"n must exceed the number of inputs, {sizes[0]}, got {n}")
    coefficient, multiplicity = deep_linear(sizes, rank)
    generator = torch.Generator(device).manual_seed(whole("seed", seed))

    def normal(rows: int, columns: int) -> Tensor:
        return torch.randn(rows, columns, generator=generator, dtype=torch.float64, device=device)

    net = nn.Sequential(*(nn.Linear(below, above, bias=False, dtype=dtype) for below, above in pairwise(sizes)))
    net.to(device)
    plant_weights(net, rank, generator)
    basis = torch.linalg.qr(normal(n, sizes[0]))[0]
    inputs = (basis * (n * curvature) ** 0.5).to(dtype)
    residual = noise * normal(n, sizes[-1])
    residual -= basis @ (basis.T @ residual)
    mapped = inputs.double()
    for layer in net:
        mapped = mapped @ layer.weight.detach().double().T  # type: ignore[operator]
    land = Landscape(net, "gaussian", (inputs, (mapped + residual).to(dtype)), sigma=1.0)
    return PlantedNetwork(land, tuple(sizes), rank, coefficient, multiplicity, curvature)


def plant_weights(net: nn.Sequential, rank: int, generator: torch.Generator) -> None:
    """Set the weights of a deep linear network to partial isometries of that rank, each handing on to the next."""
    basis: Tensor | None = None
    with torch.no_grad():
        for layer in net:
            weight = layer.weight
            assert isinstance(weight, nn.Parameter)
            outputs, inputs = weight.shape
            if not 0 <= rank <= min(outputs, inputs):
                raise InputError(f"rank must lie between 0 and the smallest width, {min(outputs, inputs)}, got {rank}")
            options = {"generator": generator, "dtype": torch.float64, "device": weight.device}
            if basis is None:
                basis = torch.linalg.qr(torch.randn(inputs, rank, **options))[0]  # type: ignore[call-overload]
            above = torch.linalg.qr(torch.randn(outputs, rank, **options))[0]  # type: ignore[call-overload]
            weight.copy_(above @ basis.T)
            basis = above
