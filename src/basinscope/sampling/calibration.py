"""What a measurement needs to know before it starts: resolution, curvature at w*, and what things will cost."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ..checks import positive
from ..curvature.eigen import top_eigenpairs
from ..curvature.operators import CurvatureOperator, Operator, hessian
from ..curvature.tiles import MAX_PROBES
from ..errors import InputError
from ..landscape import Landscape, watanabe_nbeta
from .chains import ChainLosses
from .cost import Cost
from .target import Whitening

_DENSE = 1024  # up to this many parameters the whole Hessian is cheaper than Lanczos
_PAIRS, _FEWEST_PAIRS = 64, 8
_ENTRIES = 2**27  # of the eigenvectors, which a step of the sampler reads four times; of 10 M parameters 13
_PRODUCTS = 160
_FEW_PRODUCTS = 48
_BASIS = 8 * 2**30  # bytes that the vectors of these products may take; of 100 M parameters 21
_FEWEST_PRODUCTS = 8
_SAMPLES = 4096  # curvature steers the sampler and enters no result: for large networks a part of the data is enough
_WORK = 40_000_000  # samples times parameters that are cheap enough to use them all


@dataclass(frozen=True)
class Resolution:
    """(nβ, γ): how sharp the posterior is, and how far it may reach from w*. A λ̂ is a function of both."""

    nbeta: float
    gamma: float


def resolution(land: Landscape, nbeta: float | None = None, gamma: float | None = None) -> Resolution:
    """The asked-for resolution, or nβ = n/log n and γ = d/‖w*‖².

    This γ makes the localiser as wide as the weights are large: its typical displacement √(d/γ) is ‖w*‖. At w* = 0,
    which has no scale, γ = 1.

    Examples:
        >>> import torch, basinscope as bs
        >>> net = torch.nn.Linear(2, 1, bias=False)
        >>> _ = torch.nn.init.constant_(net.weight, 0.5)
        >>> land = bs.Landscape(net, "mse", (torch.ones(100, 2), torch.ones(100, 1)))
        >>> resolution(land).gamma
        4.0
    """
    for name, value in (("nbeta", nbeta), ("gamma", gamma)):
        if value is not None:
            positive(name, value)
    if nbeta is None:
        nbeta = watanabe_nbeta(land.n)
    if gamma is None:
        size = float(land.flatten(land.parameters).double().square().sum())
        gamma = land.dimension / size if size > 0 else 1.0
    return Resolution(float(nbeta), float(gamma))


@dataclass(frozen=True)
class Geometry:
    """Curvature of L_n at w*: the Hessian, its leading eigenpairs and the gradient.

    Attributes:
        values, vectors: eigenpairs of H, (k,) float64 descending and (d, k); all d of them for small networks.
        least: the smallest eigenvalue of H as far as seen, from above.
        gradient: ∇L_n(w*), (d,).
        hessian: H.
    """

    values: Tensor
    vectors: Tensor
    least: float
    gradient: Tensor
    hessian: Operator

    @property
    def complete(self) -> bool:
        return len(self.values) == len(self.vectors)

    def whitening(self, at: Resolution) -> Whitening:
        """(nβH + γI)^(−1/2), as far as H is known."""
        return Whitening.from_eigenpairs(self.values, self.vectors, at.nbeta, at.gamma)


def affordable_products(land: Landscape, points: int, price: Cost, budget: float) -> int:
    """Hessian-vector products for `geometry` at so many points that a third of the budget pays for, within reason.

    A product costs about three loss-and-gradients, and leaves a vector in memory.
    """
    samples = min(land.n, points * _share(land, points))
    paid = int(budget / (9 * (points * price.fixed + price.each * samples)))
    held = max(_FEWEST_PRODUCTS, _BASIS // (land.dimension * land.dtype.itemsize))
    return min(held, _PRODUCTS, max(_FEW_PRODUCTS, paid))


def gradient_at(losses: ChainLosses) -> Tensor:
    """∇L_n(w*), (d,); refused where it is not finite, for no chain could leave w* by it."""
    gradient = losses.gradient(torch.zeros_like(losses.origin)[None])[0]
    if bool(torch.isfinite(gradient).all()):
        return gradient
    pieces = losses.land.unflatten(gradient).items()
    names = [name for name, piece in pieces if not bool(torch.isfinite(piece).all())]
    raise InputError(
        f"the gradient of the loss with respect to {', '.join(names)} is not finite at w*, as that of a square root "
        f"or a norm is at zero — add a small number under the root, or restrict the landscape to other parameters"
    )


def geometry(
    land: Landscape, losses: ChainLosses, displacements: Tensor, seed: int = 0, products: int = _PRODUCTS
) -> Geometry:
    """The curvature of L_n averaged over the points w* + δ, one row of `displacements` (P, d) each.

    At w* alone (P = 1, δ = 0) this is the local Hessian. Averaged over where chains have been, it also knows the
    directions that are flat at w* and stiff elsewhere, which is what limits a sampler's step on a curved valley.
    """
    gradient = gradient_at(losses)
    dense = land.dimension <= _DENSE
    probes = MAX_PROBES if dense else 1
    views = _views(land, losses.origin + displacements)
    operator = _Mean([hessian(part, probes=probes, checked=False) for part in views])  # it only shapes the steps
    if dense:
        matrix = (operator @ torch.eye(land.dimension, dtype=land.dtype, device=land.device)).double()
        values, vectors = torch.linalg.eigh((matrix + matrix.T) / 2)
        return Geometry(values.flip(0).cpu(), vectors.flip(1).to(land.dtype), float(values[0]), gradient, operator)
    count = min(_PAIRS, products // 2, max(_FEWEST_PAIRS, _ENTRIES // land.dimension))
    pairs = top_eigenpairs(operator, count, seed=seed, tol=0.05, max_steps=products)
    return Geometry(pairs.values.cpu(), pairs.vectors, pairs.smallest, gradient, operator)


def _views(land: Landscape, points: Tensor) -> Iterator[Landscape]:
    """The landscape seen from each point, each on its own part of the data when there are many."""
    stride = max(1, land.n // _share(land, len(points)))
    for number, point in enumerate(points):
        part = land.subset(slice(number % stride, land.n, stride)) if stride > 1 else land
        yield part.at(land.unflatten(point))


def _share(land: Landscape, points: int) -> int:
    """Samples for each of so many points."""
    return math.ceil(max(_SAMPLES, _WORK / land.dimension) / points)


class _Mean:
    """The average of operators, itself an operator."""

    def __init__(self, operators: list[CurvatureOperator]) -> None:
        self._operators = operators
        self.dimension = operators[0].dimension
        self.device = operators[0].device
        self.dtype = operators[0].dtype
        self.psd = False

    def __matmul__(self, v: Tensor) -> Tensor:
        return torch.stack([operator @ v for operator in self._operators]).mean(0)
