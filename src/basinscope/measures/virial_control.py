"""A susceptibility with most of its noise taken out, by Stein's identity."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..curvature.kronecker import Inverse
from ..errors import InputError
from ..sampling.chains import ChainLosses


class VirialControl:
    """V = δᵀM∇U/nβ, which is nearly L_n in a quadratic basin, and whose covariances are means.

    For the posterior ∝ exp(−U) and any matrix M, Cov(δᵀM∇U, ψ) = E[δᵀM∇ψ] by one integration by parts. Therefore

        Cov(L_n, ψ) = Cov(L_n − V, ψ) + E[δᵀM∇ψ(w* + δ) − (A∇U)ᵀM∇ψ(w*)]/nβ

    holds exactly for any M and A, as E[∇U] = 0. With A = (nβF + γI)⁻¹ by EK-FAC and M = ½(I − γA) both L_n − V and what
    varies most in the bracket vanish where losses are quadratic and F is H.

    Args:
        losses: of the landscape.
        nbeta, gamma: the resolution.
        probes: losses of the probes, at the same w*.
    """

    def __init__(self, losses: ChainLosses, nbeta: float, gamma: float, probes: Sequence[ChainLosses]) -> None:
        self._losses, self._nbeta, self._gamma, self._probes = losses, nbeta, gamma, probes
        land = losses.land
        self._inverse = Inverse.of(land, "covariance" if land.loss.family == "custom" else "fisher", nbeta, gamma)
        self._slope = losses.gradient(torch.zeros_like(losses.origin)[None])[0]

    def at(self, delta: Tensor, averaged: bool) -> tuple[Tensor, Tensor]:
        """V (C, 1), and the bracket over nβ for ψ = ℓ_x − L_n of every probe (C, columns), float64.

        Args:
            delta: of all chains.
            averaged: whether ψ is that of each probe's mean loss rather than of each sample.
        """
        data = self._losses.gradient(delta, self._nbeta)
        slope = data + self._gamma * delta
        first, second = self._projected(delta), self._projected(self._inverse(slope))
        virial = (first * slope).sum(1, keepdim=True).double() / self._nbeta
        own = (first * data).sum(1, keepdim=True).double() / self._nbeta - (second @ self._slope).double()[:, None]
        start = torch.zeros_like(delta)
        parts = [_along(each, delta, first) - _along(each, start, second) for each in self._probes]
        probed = torch.cat([part.mean(1, keepdim=True) for part in parts] if averaged else parts, 1)
        return virial, (probed - own) / self._nbeta

    def _projected(self, rows: Tensor) -> Tensor:
        """M of every row."""
        return 0.5 * (rows - self._gamma * self._inverse(rows))


def _along(losses: ChainLosses, delta: Tensor, direction: Tensor) -> Tensor:
    try:
        return losses.along(delta, direction)
    except (NotImplementedError, RuntimeError) as error:
        raise InputError(
            f"method='controlled' needs a network that can be differentiated forward ({error}) — take method='draws'"
        ) from error
