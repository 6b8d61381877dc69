"""Extreme eigenpairs of a symmetric operator, repeated ones included, with residuals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ..checks import whole_seed
from ..errors import InputError
from ..progress import Report
from .lanczos import LanczosRuns, Tridiagonal
from .operators import Operator

Which = Literal["largest", "smallest", "magnitude"]
MIN_RELATIVE_SIZE = 0.01  # eigenvalues below this fraction of the norm count as that large in the tolerance
REPEAT_TOLERANCE = 0.01  # relative residual in the search for repeated eigenvalues


@dataclass(frozen=True)
class EigenPairs:
    """Extreme eigenpairs of a symmetric operator.

    Attributes:
        values: (k,) float64, in the order asked for.
        vectors: (d, k), orthonormal, in the operator's dtype.
        residuals: (k,) ‖A x − θ x‖: an eigenvalue lies within this distance of each value.
        smallest, largest: the ends of the spectrum as Ritz values show them, from inside.
        products: matrix–vector products spent.
        converged: whether every residual met the tolerance.
    """

    values: Tensor
    vectors: Tensor
    residuals: Tensor
    smallest: float
    largest: float
    products: int
    converged: bool


def top_eigenpairs(
    operator: Operator,
    k: int,
    *,
    which: Which = "largest",
    seed: int = 0,
    tol: float = 1e-3,
    max_steps: int | None = None,
    deflated: EigenPairs | None = None,
    report: Report = lambda fraction, text: None,
) -> EigenPairs:
    """The k largest eigenvalues with their vectors, by Lanczos.

    A Krylov space sees a repeated eigenvalue once. So after the first run converged, another starts from a random
    vector orthogonal to the eigenvectors so far, and so on until nothing larger than the kth value turns up.
    Each residual ‖A x − θ x‖ is brought below tol · max(|θ|, ‖A‖/100).

    Args:
        operator: any symmetric operator.
        k: the number of eigenpairs.
        which: `largest` or `smallest` by algebraic value, or largest by `magnitude`.
        seed: of the random start vectors.
        tol: relative residual.
        max_steps: most matrix–vector products, 20 k + 200 unless given; the residuals show what was reached.
        deflated: eigenpairs that are known already, when others are wanted.
        report: called with the fraction of converged pairs and a line of text.

    Examples:
        >>> import torch
        >>> from basinscope.curvature.operators import Dense
        >>> top_eigenpairs(Dense(torch.diag(torch.tensor([1.0, -5.0, 3.0, 3.0]))), 2).values.round(decimals=4).tolist()
        [3.0, 3.0]
    """
    room = operator.dimension - (0 if deflated is None else len(deflated.values))
    if not 1 <= k <= room:
        raise InputError(f"k must lie in 1..{room}, the number of parameters, got {k}")
    if not tol > 0:
        raise InputError(f"tol must be positive, got {tol}")
    if which not in ("largest", "smallest", "magnitude"):
        raise InputError(f"which must be 'largest', 'smallest' or 'magnitude', got {which!r}")
    budget = max(k, 20 * k + 200 if max_steps is None else max_steps)
    generator = torch.Generator(device=operator.device).manual_seed(whole_seed(seed))
    pairs = _search(operator, k, which, tol, budget, generator, deflated, None, report)
    while pairs.converged and 1 < k < room and pairs.products < budget:
        more = _search(operator, k, which, tol, budget - pairs.products, generator, deflated, pairs, report)
        pairs = _merged(pairs, more, k, which)
        if len(more.values) == 0:
            break
    return pairs


@dataclass(frozen=True)
class _RitzPairs:
    """Approximate eigenpairs of a Lanczos run, ranked: x_j = basisᵀ rotation[:, j]."""

    ranks: Tensor
    values: Tensor
    rotation: Tensor
    residuals: Tensor
    norm: float

    def converged(self, tol: float) -> Tensor:
        """A mask of the pairs whose residuals meet the tolerance."""
        return self.residuals <= tol * torch.clamp(self.values.abs(), min=MIN_RELATIVE_SIZE * self.norm)


def _search(
    operator: Operator,
    k: int,
    which: Which,
    tol: float,
    budget: int,
    generator: torch.Generator,
    deflated: EigenPairs | None,
    first: EigenPairs | None,
    report: Report,
) -> EigenPairs:
    """One Lanczos run: k eigenpairs or, orthogonal to the `first` k already converged, all that outrank their last."""
    # Deflation: the run stays orthogonal to all eigenvectors that are known, and starts with a scale for rounding.
    locked_pairs = [pairs for pairs in (deflated, first) if pairs is not None]
    locked = torch.cat([pairs.vectors.T for pairs in locked_pairs]) if locked_pairs else None
    scale = max((abs(end) for pairs in locked_pairs for end in (pairs.smallest, pairs.largest)), default=0.0)
    max_steps = min(budget, operator.dimension - sum(len(pairs.values) for pairs in locked_pairs))
    run = LanczosRuns(operator, _random_vector(operator, generator), locked=locked, scale=scale, memory=math.inf)
    checked, count, done = 0, 0, False
    while not done and run.steps < max_steps:
        # An invariant space may lack some of the eigenvalues: go on in its complement.
        if bool(run.exhausted):
            run.restart(_random_vector(operator, generator))
        run.grow(1)
        if run.steps == max_steps or run.steps > 1.1 * checked:  # the small eigenproblem must not outgrow the products
            checked = run.steps
            ritz = _ritz(run.tridiagonal, which, scale)
            if first is None:
                count, ready = min(k, run.steps), int(ritz.converged(tol)[:k].sum())
                done = ready == k
                report(ready / k, f"{ready} of {k} eigenvalues, {run.steps} products")
            else:
                # Only what is larger than the kth value counts; the next one, loosely converged, shows it is not.
                last = first.values[-1]
                least = _rank(last, which) + tol * max(abs(float(last)), MIN_RELATIVE_SIZE * ritz.norm)
                count = min(k, int((ritz.ranks > least).sum()))
                done = bool(ritz.converged(tol)[:count].all())
                done = done and bool(ritz.converged(REPEAT_TOLERANCE)[: count + 1].all())
    vectors = run.basis[0].T @ ritz.rotation[:, :count].to(run.basis)
    # The locked vectors are eigenvectors only up to their own residuals, which reach into this run's.
    inherited = math.hypot(*(float(pairs.residuals.norm()) for pairs in locked_pairs))
    residuals = ritz.residuals[:count].hypot(torch.tensor(inherited, dtype=torch.float64))
    ends = float(ritz.values.min()), float(ritz.values.max())
    return EigenPairs(ritz.values[:count], vectors, residuals, *ends, products=run.steps, converged=done)


def _merged(one: EigenPairs, other: EigenPairs, k: int, which: Which) -> EigenPairs:
    """The k first of both."""
    values = torch.cat([one.values, other.values])
    order = torch.argsort(_rank(values, which), descending=True)[:k]
    return EigenPairs(
        values=values[order],
        vectors=torch.cat([one.vectors, other.vectors], 1)[:, order.to(one.vectors.device)],
        residuals=torch.cat([one.residuals, other.residuals])[order],
        smallest=min(one.smallest, other.smallest),
        largest=max(one.largest, other.largest),
        products=one.products + other.products,
        converged=one.converged and other.converged,
    )


def _ritz(run: Tridiagonal, which: Which, scale: float) -> _RitzPairs:
    (values, rotation), residuals = (part[0] for part in run.eigensystem), run.residuals[0]
    order = torch.argsort(_rank(values, which), descending=True)
    values = values[order]
    norm = max(scale, float(values.abs().max()))
    return _RitzPairs(_rank(values, which), values, rotation[:, order], residuals[order], norm)


def _rank(values: Tensor, which: Which) -> Tensor:
    return {"largest": values, "smallest": -values, "magnitude": values.abs()}[which]


def _random_vector(operator: Operator, generator: torch.Generator) -> Tensor:
    return torch.randn(operator.dimension, device=operator.device, dtype=operator.dtype, generator=generator)
