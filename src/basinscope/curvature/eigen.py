"""Extreme eigenpairs of a symmetric operator, repeated ones included, with residuals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ..errors import InputError
from ..progress import Report
from .lanczos import Krylov
from .operators import Operator

Which = Literal["largest", "smallest", "magnitude"]
SMALL = 0.01  # eigenvalues below this fraction of the norm count as that large in the tolerance
CHECK = 0.01  # tolerance of the search for repeated eigenvalues


@dataclass(frozen=True)
class EigenPairs:
    """Extreme eigenpairs of a symmetric operator.

    Attributes:
        values: (k,) float64, in the order asked for.
        vectors: (d, k), orthonormal, in the operator's dtype.
        residuals: (k,) ‖A x − θ x‖: an eigenvalue lies within this distance of each value.
        smallest, largest: the ends of the spectrum as far as seen, from inside.
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
    vector orthogonal to what was found, and so on until nothing larger than the kth value turns up.
    Each residual ‖A x − θ x‖ is brought below tol · max(|θ|, ‖A‖/100).

    Args:
        operator: any symmetric operator.
        k: how many.
        which: `largest` or `smallest` by algebraic value, or largest by `magnitude`.
        seed: of the random start vectors.
        tol: relative residual.
        max_steps: most matrix–vector products, 20 k + 200 unless given; the residuals tell what was reached.
        deflated: eigenpairs that are known already, to look for others.
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
    generator = torch.Generator(device=operator.device).manual_seed(seed)
    found = _search(operator, k, which, tol, budget, generator, deflated, None, report)
    while found.converged and 1 < k < room and found.products < budget:
        more = _search(operator, k, which, tol, budget - found.products, generator, deflated, found, report)
        found = _merged(found, more, k, which)
        if len(more.values) == 0:
            break
    return found


@dataclass(frozen=True)
class _Ritz:
    """Approximate eigenpairs of a Lanczos run, ranked: x_j = basisᵀ rotation[:, j]."""

    ranks: Tensor
    values: Tensor
    rotation: Tensor
    residuals: Tensor
    norm: float

    def small(self, tol: float) -> Tensor:
        """Which residuals meet the tolerance."""
        return self.residuals <= tol * torch.clamp(self.values.abs(), min=SMALL * self.norm)


def _search(
    operator: Operator,
    k: int,
    which: Which,
    tol: float,
    budget: int,
    generator: torch.Generator,
    deflated: EigenPairs | None,
    found: EigenPairs | None,
    report: Report,
) -> EigenPairs:
    """One Lanczos run: the first k eigenpairs or, orthogonal to those `found`, all that outrank the last of them."""
    known = [pairs for pairs in (deflated, found) if pairs is not None]
    locked = torch.cat([pairs.vectors.T for pairs in known]) if known else None
    scale = max((abs(end) for pairs in known for end in (pairs.smallest, pairs.largest)), default=0.0)
    most = min(budget, operator.dimension - sum(len(pairs.values) for pairs in known))
    run = Krylov(operator, _random_vector(operator, generator, locked), most, locked, scale)
    checked, wanted, done = 0, 0, False
    while not done and len(run) < most:
        if run.exhausted:
            run.restart(_random_vector(operator, generator, locked, run.basis))
        run.step()
        if len(run) == most or len(run) > 1.1 * checked:  # the small eigenproblem must not outgrow the products
            checked = len(run)
            ritz = _ritz(run, which)
            if found is None:
                wanted, ready = min(k, len(run)), int(ritz.small(tol)[:k].sum())
                done = ready == k
                report(ready / k, f"{ready} of {k} eigenvalues, {len(run)} products")
            else:
                last = found.values[-1]
                least = _rank(last, which) + tol * max(abs(float(last)), SMALL * ritz.norm)
                wanted = min(k, int((ritz.ranks > least).sum()))
                done = bool(ritz.small(tol)[:wanted].all()) and bool(ritz.small(CHECK)[: wanted + 1].all())
    vectors = run.basis.T @ ritz.rotation[:, :wanted].to(run.basis)
    # The locked vectors are eigenvectors only up to their own residuals, which reach into this run's.
    inherited = math.hypot(*(float(pairs.residuals.norm()) for pairs in known))
    residuals = ritz.residuals[:wanted].hypot(torch.tensor(inherited, dtype=torch.float64))
    ends = float(ritz.values.min()), float(ritz.values.max())
    return EigenPairs(ritz.values[:wanted], vectors, residuals, *ends, products=len(run), converged=done)


def _merged(found: EigenPairs, more: EigenPairs, k: int, which: Which) -> EigenPairs:
    values = torch.cat([found.values, more.values])
    first = torch.argsort(_rank(values, which), descending=True)[:k]
    return EigenPairs(
        values=values[first],
        vectors=torch.cat([found.vectors, more.vectors], 1)[:, first.to(found.vectors.device)],
        residuals=torch.cat([found.residuals, more.residuals])[first],
        smallest=min(found.smallest, more.smallest),
        largest=max(found.largest, more.largest),
        products=found.products + more.products,
        converged=found.converged and more.converged,
    )


def _ritz(run: Krylov, which: Which) -> _Ritz:
    values, rotation = torch.linalg.eigh(run.result().matrix())
    order = torch.argsort(_rank(values, which), descending=True)
    values, rotation = values[order], rotation[:, order]
    return _Ritz(_rank(values, which), values, rotation, run.off_diagonal[-1] * rotation[-1].abs(), run.scale)


def _rank(values: Tensor, which: Which) -> Tensor:
    return {"largest": values, "smallest": -values, "magnitude": values.abs()}[which]


def _random_vector(operator: Operator, generator: torch.Generator, *rows: Tensor | None) -> Tensor:
    """A random unit vector orthogonal to the given rows."""
    vector = torch.randn(operator.dimension, device=operator.device, dtype=operator.dtype, generator=generator)
    for _ in range(2):
        for known in rows:
            if known is not None:
                vector = vector - known.T @ (known @ vector)
        vector = vector / vector.norm()
    return vector
