"""What the gradient and the curvature at w* alone say of the basin: the quadratic part of every reading."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ..curvature.lanczos import LanczosRuns
from .calibration import Geometry, Resolution

_ROUNDING = {torch.float32: 1e-5, torch.float64: 1e-10}  # eigenvalues so much below the largest are rounding errors
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Quadratic:
    """L(w*) + g·δ + ½ δᵀHδ, as far as it is known.

    Attributes:
        values: the known eigenvalues of H, descending.
        complete: whether these are all of them.
        nodes, weights: Σ_j weights_j f(nodes_j) is gᵀf(H)g: exactly where all eigenpairs are known, else by the Gauss
            rule of a Lanczos run from g, which bounds gᵀ(nβH + γI)⁻¹g from below.
        least: the smallest eigenvalue of H as far as seen, from above; 0 where it is a rounding error.
    """

    values: Array
    complete: bool
    nodes: Array
    weights: Array
    least: float

    @classmethod
    def of(cls, curvature: Geometry) -> Quadratic:
        """The quadratic part of L at w*."""
        values, gradient = curvature.values.double().cpu().numpy(), curvature.gradient.double()
        least, squared = curvature.least, float(gradient.square().sum())
        if curvature.complete:
            nodes, weights = values, (curvature.vectors.double().T @ gradient).square().cpu().numpy()
        elif squared > 0:
            run = LanczosRuns(curvature.hessian, curvature.gradient)
            run.grow(curvature.products)
            ritz, vectors = run.tridiagonal.eigensystem
            nodes, weights = ritz[0].numpy(), squared * vectors[0, 0].square().numpy()
            least = min(least, float(nodes[0]))
        else:
            nodes = weights = np.zeros(0)
        rounding = _ROUNDING[curvature.gradient.dtype] * abs(float(values[0]))
        return cls(values, curvature.complete, nodes, weights, least if abs(least) > rounding else 0.0)

    def downward(self, at: Resolution) -> float:
        """−nβσ/γ of the smallest eigenvalue σ: above 1 the localiser does not keep chains from falling."""
        return max(0.0, -at.nbeta * self.least) / at.gamma

    def basin(self, at: Resolution) -> float:
        """½ Σ nβσ/(nβσ + γ), half the soft rank, over the known eigenvalues."""
        stiffness = at.nbeta * self.values.clip(min=0)
        return 0.5 * float((stiffness / (stiffness + at.gamma)).sum())

    def drop(self, at: Resolution) -> float:
        """nβ(L(w*) − L(ŵ)) = ½(nβ)²gᵀA⁻¹g + (γ/2)(nβ)²gᵀA⁻²g with A = nβH + γI; ∞ where A has no minimum."""
        stiffness = at.nbeta * self.nodes.clip(min=self.least) + at.gamma
        if self.downward(at) >= 1 or (stiffness <= 0).any():
            return math.inf
        return float((at.nbeta**2 * self.weights * (0.5 / stiffness + 0.5 * at.gamma / stiffness**2)).sum())

    def finest(self, at: Resolution, share: float, decades: float = 8.0) -> float | None:
        """The largest nβ up to that of `at` at which the drop is at most `share` of λ̂ = basin − drop and A is positive,
        or None where there is none so many decades below."""
        for nbeta in np.geomspace(at.nbeta, at.nbeta * 10**-decades, int(40 * decades) + 1):
            here = Resolution(float(nbeta), at.gamma)
            drop = self.drop(here)
            if drop <= share * (self.basin(here) - drop):
                return here.nbeta
        return None
