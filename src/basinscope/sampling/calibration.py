"""What a measurement needs to know before it starts: resolution, curvature at w*, and what things will cost."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ..checks import positive
from ..curvature.eigen import EigenPairs, top_eigenpairs
from ..curvature.operators import CurvatureOperator, Operator, hessian
from ..curvature.tiles import MAX_PROBES
from ..errors import InputError
from ..landscape import Landscape, watanabe_nbeta
from .chains import ChainLosses
from .clock import Clock
from .cost import Cost
from .target import Whitening

CURVATURE_SHARE = 0.12  # of the budget, for curvature at w*, and as much where the chains are
CURVATURE_POINTS = 6  # chain positions over which it is averaged
_LEAST = 1e-30  # of nβ and γ, whose inverse is the largest: their squares and products stay within floats
_DENSE = 1024  # up to this many parameters the whole Hessian is cheaper than Lanczos
_PAIRS, _FEWEST_PAIRS = 64, 8
_ENTRIES = 2**27  # of the eigenvectors, which a step of the sampler reads four times; of 10 M parameters 13
_PRODUCTS = 160
_FEW_PRODUCTS = 48  # for which samples are given up
_CONVERGED = 0.1  # residual of an eigenpair, over its value
_BASIS = 8 * 2**30  # bytes that the vectors of these products may take; of 100 M parameters 21
FEWEST_PRODUCTS = 8
_SAMPLES = 4096  # curvature steers the sampler and enters no result: for large networks a part of the data is enough
_WORK = 40_000_000  # samples times parameters that are cheap enough to use them all
PRODUCT_PRICE = 3.0  # loss-and-gradients that a product costs
_DENSE_SAMPLES, FEWEST_SAMPLES = 512, 128  # of all points together: for all of a Hessian, and for its leading pairs
_PATIENCE = 2.0  # times as long as thought, that all of a Hessian may take
_SLOPE_PRODUCTS, _FEWEST_SLOPE_PRODUCTS = 32, 4  # of a Lanczos run from the gradient
_SLOPE_SHARE = 0.5  # of what the curvature itself may take


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
        if value is not None and not _LEAST <= positive(name, value) <= 1 / _LEAST:
            raise InputError(f"{name} must lie between {_LEAST:g} and {1 / _LEAST:g}, got {value!r}")
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
        products: with it that a look at the gradient may take.
    """

    values: Tensor
    vectors: Tensor
    least: float
    gradient: Tensor
    hessian: Operator
    products: int = _SLOPE_PRODUCTS

    @property
    def complete(self) -> bool:
        return len(self.values) == len(self.vectors)

    def whitening(self, at: Resolution) -> Whitening:
        """(nβH + γI)^(−1/2), as far as H is known."""
        return Whitening.from_eigenpairs(self.values, self.vectors, at.nbeta, at.gamma)


@dataclass(frozen=True)
class Effort:
    """How well curvature is looked at.

    Attributes:
        samples: for each point.
        products: with the Hessian; None: as many as it has columns.
        seconds: that they may take.
    """

    samples: int
    products: int | None
    seconds: float


def affordable_effort(land: Landscape, points: int, price: Cost, seconds: float) -> Effort:
    """What so many seconds pay for at so many points, within reason.

    A product costs about three loss-and-gradients of one chain, and leaves a vector in memory. All of a small Hessian
    is taken from enough samples or not at all.
    """
    useful = min(land.n, math.ceil(max(_SAMPLES, _WORK / land.dimension) / points))

    def paid(products: float, fixed: float) -> int:
        """Samples for each point."""
        return int((seconds / (PRODUCT_PRICE * products * points) - fixed) / price.each)

    if land.dimension <= _DENSE:
        samples = min(useful, paid(land.dimension, price.fixed / MAX_PROBES))
        if samples >= min(land.n, math.ceil(_DENSE_SAMPLES / points)):
            return Effort(samples, None, seconds)
    samples = max(math.ceil(FEWEST_SAMPLES / points), min(useful, paid(_FEW_PRODUCTS, price.fixed)))
    products = int(seconds / (PRODUCT_PRICE * points * (price.fixed + price.each * samples)))
    most = max(FEWEST_PRODUCTS, _BASIS // (land.dimension * land.dtype.itemsize))
    return Effort(min(land.n, samples), min(most, _PRODUCTS, max(FEWEST_PRODUCTS, products), land.dimension), seconds)


def gradient_at(losses: ChainLosses) -> Tensor:
    """∇L_n(w*), (d,); refused where it is not finite, for no chain could leave w* by it."""
    gradient = losses.gradient(torch.zeros_like(losses.origin)[None])[0]
    _refuse_infinite(losses.land, gradient, "gradient of the loss")
    return gradient


def _refuse_infinite(land: Landscape, derivatives: Tensor, name: str) -> None:
    """Derivatives (d,) that do not exist are an error that names their parameters."""
    pieces = land.unflatten(derivatives).items()
    names = [parameter for parameter, piece in pieces if not bool(torch.isfinite(piece).all())]
    if names:
        raise InputError(
            f"the {name} with respect to {', '.join(names)} is not finite at w*, as that of a square root or a norm is "
            f"at zero — add a small number under the root, or restrict the landscape to other parameters"
        )


def geometry(
    land: Landscape, losses: ChainLosses, displacements: Tensor, effort: Effort, clock: Clock, price: Cost,
    seed: int = 0,
) -> Geometry:  # fmt: skip
    """The curvature of L_n averaged over the points w* + δ, one row of `displacements` (P, d) each.

    At w* alone (P = 1, δ = 0) this is the local Hessian. Averaged over where chains have been, it also knows the
    directions that are flat at w* and stiff elsewhere, which is what limits a sampler's step on a curved valley.
    The first product is timed: where it takes longer than the effort says, there are fewer of them.
    """
    gradient = gradient_at(losses)
    probes = MAX_PROBES if effort.products is None else 1
    views = _views(land, losses.origin + displacements, effort.samples)
    operator = _Mean([hessian(part, probes=probes, checked=False) for part in views])  # it only shapes the steps
    eye = torch.eye(land.dimension, probes, dtype=land.dtype, device=land.device)
    seconds = PRODUCT_PRICE * len(displacements) * (price.fixed + price.each * effort.samples * probes)
    each = clock.price(lambda: float((operator @ eye).sum()), lambda: seconds)
    if effort.products is None and land.dimension / probes * each <= _PATIENCE * effort.seconds:
        matrix = (operator @ torch.eye(land.dimension, dtype=land.dtype, device=land.device)).double()
        clock.spend(land.dimension / probes * seconds)
        _refuse_infinite(land, matrix.diagonal(), "curvature of the loss")
        _refuse_infinite(land, matrix.sum(1), "curvature of the loss")
        values, vectors = torch.linalg.eigh((matrix + matrix.T) / 2)
        return Geometry(values.flip(0).cpu(), vectors.flip(1).to(land.dtype), float(values[0]), gradient, operator)
    paid = int(effort.seconds / max(each, 1e-9))
    products = min(effort.products or _PRODUCTS, max(FEWEST_PRODUCTS, paid), land.dimension)
    count = max(1, min(_PAIRS, products // 2, max(_FEWEST_PAIRS, _ENTRIES // land.dimension)))
    pairs = top_eigenpairs(operator, count, seed=seed, tol=0.05, max_steps=products)
    clock.spend(products * seconds)
    if not bool(torch.isfinite(pairs.values).all()):
        _refuse_infinite(land, operator @ torch.ones_like(gradient), "curvature of the loss")
    known = _known(pairs)
    affordable = max(_FEWEST_SLOPE_PRODUCTS, min(_SLOPE_PRODUCTS, int(_SLOPE_SHARE * effort.seconds / max(each, 1e-9))))
    return Geometry(
        pairs.values[:known].cpu(), pairs.vectors[:, :known], pairs.smallest, gradient, operator, affordable
    )


def _known(pairs: EigenPairs) -> int:
    """How many of the leading eigenpairs are known, and one more: what is left of the curvature is below that one.

    Ritz values that have not converged lie between eigenvalues, and directions which no pair knows may be stiffer.
    """
    converged = (pairs.residuals <= _CONVERGED * pairs.values.abs()).tolist()
    return min(len(converged), 1 + next((place for place, good in enumerate(converged) if not good), len(converged)))


def _views(land: Landscape, points: Tensor, samples: int) -> Iterator[Landscape]:
    """The landscape seen from each point, each on its own part of the data when there are many."""
    stride = max(1, land.n // samples)
    for number, point in enumerate(points):
        part = land.subset(slice(number % stride, land.n, stride)) if stride > 1 else land
        yield part.at(land.unflatten(point))


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
