"""The density of a symmetric operator's eigenvalues, by stochastic Lanczos quadrature (Gauss rules alone).

For a random unit vector v, Σ_j τ_j² δ(x − θ_j) with the nodes θ_j and weights τ_j² of a Lanczos run from v has the
first 2m moments of vᵀ δ(x − A) v, whose mean over v is the eigenvalue density (1/d) Σ_i δ(x − λ_i) (Lin, Saad and
Yang, "Approximating spectral densities of large matrices", 2016, https://doi.org/10.1137/130934283).

Traces of smooth functions, whose value a bracket encloses, are in `stochastic`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ..checks import whole_seed
from ..errors import InputError
from ..progress import Report
from .bracket import gauss_rule
from .lanczos import LanczosRuns
from .operators import Operator


@dataclass(frozen=True)
class Quadrature:
    """The Gauss rules of P probes: nodes (ascending) and weights, (P, m) each.

    Each probe's weights add up to `mass`, the number of eigenvalues they stand for. `exact` (P,) marks probes whose
    Krylov space was exhausted: their nodes are eigenvalues, but for those of weight 0.
    """

    nodes: Tensor
    weights: Tensor
    exact: Tensor
    mass: int

    def average(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Mean over probes, and its standard error, of Σ_j w_j f(θ_j) for `values` f(θ) of shape (P, m, …)."""
        return _mean(torch.einsum("pm,pm...->p...", self.weights, values))

    def above(self, levels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The number of eigenvalues above each level: mean over probes, standard error, and error of the rule.

        The number at or above a node lies between the weights beyond it and those with its own (Chebyshev, Markov and
        Stieltjes). So it is taken as the middle at nodes and interpolated between them, and between two nodes half
        of their weights bounds the error.
        """
        counts, slack = torch.zeros(2, len(self.nodes), len(levels), dtype=torch.float64)
        for probe, (nodes, weights) in enumerate(zip(self.nodes, self.weights, strict=True)):
            beyond = weights.flip(0).cumsum(0).flip(0)
            place = torch.searchsorted(nodes, levels, right=True)  # the first node above
            padded = torch.cat([beyond.new_zeros(1), weights, beyond.new_zeros(1)])
            if self.exact[probe]:  # nodes are eigenvalues: a step function, without error
                counts[probe] = torch.cat([beyond, beyond.new_zeros(1)])[place]
            else:
                middle = np.interp(levels, nodes, beyond - weights / 2, left=self.mass, right=0.0)
                counts[probe] = torch.from_numpy(middle)
                slack[probe] = (padded[place] + padded[place + 1]) / 2
        return *_mean(counts), slack.mean(0)


def _mean(values: Tensor) -> tuple[Tensor, Tensor]:
    return values.mean(0), values.std(0) / math.sqrt(len(values))


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
        nothing = torch.zeros(probes, 0, dtype=torch.float64)
        return Quadrature(nothing, nothing, torch.ones(probes, dtype=torch.bool), mass)
    generator = torch.Generator(device=operator.device).manual_seed(whole_seed(seed))
    # Gaussian vectors without their part in the deflated eigenvectors, whose eigenvalues are known.
    starts = torch.randn(operator.dimension, probes, device=operator.device, dtype=operator.dtype, generator=generator)
    runs, steps = LanczosRuns(operator, starts, locked=locked), min(steps, mass)
    for step in range(steps):
        runs.grow(1)
        report((step + 1) / steps, f"{step + 1} of {steps} Lanczos steps from {probes} probes")
    nodes, weights = gauss_rule(replace(runs.tridiagonal, squares=torch.full((probes,), mass, dtype=torch.float64)))
    return Quadrature(nodes, weights, runs.exhausted | (steps == mass), mass)
