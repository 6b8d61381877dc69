"""The density of a symmetric operator's eigenvalues, by stochastic Lanczos quadrature.

For a random unit vector v, Σ_j τ_j² δ(x − θ_j) with the nodes θ_j and weights τ_j² of a Lanczos run from v has the
first 2m moments of vᵀ δ(x − A) v, whose mean over v is the eigenvalue density (1/d) Σ_i δ(x − λ_i).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import InputError
from ..progress import Report
from .lanczos import Krylov
from .operators import Operator


@dataclass(frozen=True)
class Quadrature:
    """Nodes and weights (P, m) of P probes; each probe's weights add up to `mass`, the eigenvalues they stand for."""

    nodes: Tensor
    weights: Tensor
    mass: int

    def average(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Mean over probes, and its standard error, of Σ_j w_j f(θ_j) for `values` f(θ) of shape (P, m, …)."""
        shape = self.weights.shape + (1,) * (values.ndim - 2)
        sums = (self.weights.view(shape) * values).sum(1)
        return sums.mean(0), sums.std(0) / math.sqrt(len(sums))


def lanczos_quadrature(
    operator: Operator,
    *,
    probes: int = 8,
    steps: int = 60,
    deflated: Tensor | None = None,
    seed: int = 0,
    report: Report = lambda fraction, text: None,
) -> Quadrature:
    """Quadrature rules for the eigenvalue density, apart from the eigenvectors `deflated` (d, k).

    Examples:
        >>> import torch
        >>> from basinscope.curvature.operators import Dense
        >>> rule = lanczos_quadrature(Dense(torch.diag(torch.arange(1.0, 6.0))), steps=5)
        >>> mean, _ = rule.average(torch.ones_like(rule.nodes))
        >>> round(mean.item(), 6)
        5.0
    """
    if probes < 2:
        raise InputError(f"probes must be at least 2 for a standard error, got {probes}")
    if steps < 1:
        raise InputError(f"steps must be at least 1, got {steps}")
    locked = None if deflated is None else deflated.T
    mass = operator.dimension - (0 if locked is None else len(locked))
    if mass == 0:
        return Quadrature(torch.zeros(probes, 0).double(), torch.zeros(probes, 0).double(), 0)
    steps = min(steps, mass)
    generator = torch.Generator(device=operator.device).manual_seed(seed)
    nodes = torch.zeros(probes, steps, dtype=torch.float64)
    weights = torch.zeros_like(nodes)
    for probe in range(probes):
        start = torch.randn(operator.dimension, device=operator.device, dtype=operator.dtype, generator=generator)
        run = Krylov(operator, start, locked)
        start = run.orthogonal(start)
        run.restart(start / start.norm())
        while len(run) < steps and not run.exhausted:
            run.step()
            report((probe + len(run) / steps) / probes, f"probe {probe + 1} of {probes}")
        values, vectors = torch.linalg.eigh(run.result().matrix())
        nodes[probe, : len(run)] = values
        weights[probe, : len(run)] = mass * vectors[0].square()
    return Quadrature(nodes, weights, mass)
