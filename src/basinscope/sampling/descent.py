"""The minimum ŵ of nβL + (γ/2)‖w − w*‖² near w*: the bottom of the basin that chains sample."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..curvature.conjugate import inverse_form
from ..curvature.operators import hessian
from .target import Target

ROUNDS = 8  # of quasi-Newton steps, each with a certificate after it
SUFFICIENT = 1e-4  # Armijo: share of the gain that the slope promises, which a step must bring
FORM_RTOL, FORM_PRODUCTS = 0.05, 24  # of the certificate
FORM_SHARE = 3  # one of so many gradients is kept for it
PRODUCT = 3  # gradients that a product with the Hessian costs
PAIRS, ENTRIES = 12, 2**27  # of steps and changes of the gradient: how many are remembered, and their numbers in all
SHORTEST = 2.0**-30  # part of a step below which no descent is left but rounding


@dataclass(frozen=True)
class Bottom:
    """A point near the minimum ŵ of U = nβL + (γ/2)‖w − w*‖².

    Attributes:
        displacement: ŵ − w*, (d,).
        nbeta: nβ.
        excess: L(ŵ) − L(w*).
        remaining: ½ gᵀA⁻¹g with g = ∇U and A its Hessian there, in nats: by so much U would still fall.
        localiser: (γ/2)‖ŵ − w*‖², in nats.
        downward: whether a direction was met along which U curves downwards, so that this is no minimum.
        evaluations: losses with gradients on all data that it took; products with the Hessian count three times.
    """

    displacement: Tensor
    nbeta: float
    excess: float
    remaining: float
    localiser: float
    downward: bool
    evaluations: int

    @property
    def drop(self) -> float:
        """nβ(L(w*) − L(ŵ)), in nats."""
        return -self.nbeta * self.excess

    @property
    def energy(self) -> float:
        """U(ŵ) − U(w*)."""
        return self.localiser - self.drop

    @property
    def error(self) -> float:
        """By how many nats the drop may be off that of the exact ŵ."""
        return _error(self.remaining, self.localiser)

    def certain(self, tolerance: float) -> bool:
        """Whether this is the minimum, to so many nats."""
        return self.error <= tolerance and not self.downward


def _error(remaining: float, localiser: float) -> float:
    """By how many nats nβL is off that of the minimum, where U is off by `remaining` = ½ gᵀA⁻¹g.

    With e = A⁻¹g the way that is left, nβL differs by nβ∇L·e to first order, and nβ∇L(ŵ) = −γ(ŵ − w*) at the minimum:
    by Cauchy and Schwarz at most √(γ‖ŵ − w*‖² · eᵀAe), beside the ½ gᵀA⁻¹g itself.
    """
    return remaining + 2 * math.sqrt(localiser * remaining)


def bottom(
    target: Target, starts: Tensor, *, tolerance: float, evaluations: int, known: Bottom | None = None
) -> Bottom:
    """The minimum of U that a descent on all data leads to, from the lowest of several points.

    A quasi-Newton descent (L-BFGS) in whitened coordinates, and Newton steps by conjugate gradients, which also tell
    how much is left.

    Args:
        target: the posterior.
        starts: points to choose from, whitened (P, d).
        tolerance: error of nβL(ŵ) that is small enough, in nats.
        evaluations: most gradients on all data, or a few more.
        known: what an earlier descent found, which is the answer if it was good enough and no start is lower.
    """
    descent = _Descent(target, evaluations)
    point = descent.lowest(starts)
    if known is not None and not _height(point.energy) < known.energy:
        if known.certain(tolerance):
            return known
        point = descent.at(target.whitening.inverse()(known.displacement[None])[0])
    for _ in range(ROUNDS):
        point = descent.descended(point, tolerance)
        certified, ways = descent.certificate(point, tolerance)
        if descent.exhausted or certified.certain(tolerance) or not ways:
            break
        lower = min((descent.at(point.position + way) for way in ways), key=lambda candidate: _height(candidate.energy))
        if not lower.energy <= point.energy + descent.rounding:
            break
        point = lower
    return certified


@dataclass(frozen=True)
class _Point:
    position: Tensor  # (d,), whitened
    energy: float  # U − U(w*)
    excess: float
    distance: float
    gradient: Tensor  # whitened


class _Descent:
    """A descent on all data, and what it has spent."""

    def __init__(self, target: Target, evaluations: int) -> None:
        self.target = target
        self.limit = evaluations
        self.steps = evaluations - PRODUCT * min(FORM_PRODUCTS, evaluations // (FORM_SHARE * PRODUCT))
        self.spent = 0
        losses = target.losses
        self.rounding = target.nbeta * torch.finfo(losses.land.dtype).eps * float(losses.base.abs().mean())

    @property
    def exhausted(self) -> bool:
        return self.spent >= self.limit

    def at(self, position: Tensor) -> _Point:
        """U and its gradient at one point."""
        self.spent += 1
        new = self.target.full(position[None])
        energy = float(self.target.energy(new)[0])
        return _Point(position, energy, float(new.excess[0]), float(new.distance[0]), new.gradient[0])

    def lowest(self, positions: Tensor) -> _Point:
        """The lowest of several points."""
        return min((self.at(position) for position in positions), key=lambda point: _height(point.energy))

    def descended(self, point: _Point, tolerance: float) -> _Point:
        """Where L-BFGS steps (Nocedal 1980) lead, from the identity as first inverse Hessian."""
        memory: list[tuple[Tensor, Tensor, float]] = []
        most = max(3, min(PAIRS, ENTRIES // len(point.position)))
        while self.spent < self.steps:
            step = -_inverse(memory, point.gradient)
            slope = _dot(step, point.gradient)
            if not slope < 0 or _error(-slope / 2, 0.5 * self.target.gamma * point.distance) <= tolerance / 2:
                return point
            lower = self._along(point, step, slope)
            if lower is None:
                return point
            moved, change = lower.position - point.position, lower.gradient - point.gradient
            product = _dot(moved, change)
            if product > 1e-8 * math.sqrt(_dot(moved, moved) * _dot(change, change)):
                memory = [*memory, (moved, change, product)][-most:]
            point = lower
        return point

    def _along(self, point: _Point, step: Tensor, slope: float) -> _Point | None:
        """The first point that is low enough along a step, which is shortened until there is one."""
        length = 1.0
        while length > SHORTEST and self.spent < self.steps:
            candidate = self.at(point.position + length * step)
            if candidate.energy <= point.energy + SUFFICIENT * length * slope + self.rounding and bool(
                torch.isfinite(candidate.gradient).all()
            ):
                return candidate
            bend = candidate.energy - point.energy - length * slope  # of the parabola through both
            best = -0.5 * slope * length / bend if math.isfinite(bend) and bend > 0 else 0.0
            length *= min(0.5, max(0.1, best))
        return None

    def certificate(self, point: _Point, tolerance: float) -> tuple[Bottom, list[Tensor]]:
        """The point with what U would still fall by, and where to go on: by the Newton step −A⁻¹g, or to either side
        along a direction in which U curves downwards.

        Where L does not curve downwards, whitened curvature is at least γr² with r the scale of unknown directions:
        if the gradient is small enough for that, nothing is left to be told by products with the Hessian.
        """
        target, losses = self.target, self.target.losses
        delta = target.whitening(point.position[None])[0]
        localiser = 0.5 * target.gamma * point.distance

        def bottom(remaining: float, downward: bool) -> Bottom:
            return Bottom(delta, target.nbeta, point.excess, remaining, localiser, downward, self.spent)

        least = min(1.0, target.gamma * target.whitening.rest**2)
        bound = 0.5 * _dot(point.gradient, point.gradient) / least
        if not math.isfinite(bound + point.excess):  # there is no lower end
            return bottom(math.inf, True), []
        if _error(bound, localiser) <= tolerance:
            return bottom(bound, False), []
        operator = hessian(losses.land.at(losses.land.unflatten(losses.origin + delta)), probes=1, checked=False)

        def product(v: Tensor) -> Tensor:
            way = target.whitening(v[None])
            return target.whitening(target.nbeta * (operator @ way[0])[None] + target.gamma * way)[0]

        products = max(1, min(FORM_PRODUCTS, (self.limit - self.spent) // PRODUCT))
        form = inverse_form(product, point.gradient, rtol=FORM_RTOL, max_products=products, least=least)
        self.spent += PRODUCT * form.products
        if not math.isfinite(form.value):
            return bottom(math.inf, True), []
        if form.descent is None:
            remaining = 0.5 * form.value if form.settled else min(bound, 0.5 * form.upper)
            return bottom(remaining, False), [-form.solution]
        side = form.descent / torch.linalg.vector_norm(form.descent)
        return bottom(0.5 * form.value, True), [side, -side]


def _inverse(memory: list[tuple[Tensor, Tensor, float]], vector: Tensor) -> Tensor:
    """The inverse Hessian that steps and changes of the gradient tell, on a vector, by two loops."""
    shares = []
    for moved, change, product in reversed(memory):
        shares.append(_dot(moved, vector) / product)
        vector = vector - shares[-1] * change
    if memory:
        _, change, product = memory[-1]
        vector = vector * (product / _dot(change, change))
    for (moved, change, product), share in zip(memory, reversed(shares), strict=True):
        vector = vector + (share - _dot(change, vector) / product) * moved
    return vector


def _height(energy: float) -> float:
    """An energy to compare by: one that is not a number is as high as can be."""
    return energy if math.isfinite(energy) else math.inf


def _dot(a: Tensor, b: Tensor) -> float:
    return float(torch.dot(a.double(), b.double()))
