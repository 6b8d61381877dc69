"""The local posterior in whitened coordinates: what every kernel samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from .chains import ChainLosses
from .rows import row_dot


class Evaluation(NamedTuple):
    """The posterior at the chains' positions z (C, d)."""

    excess: Tensor  # (C,) float64: L(w) − L(w*), on all data or on the chain's minibatch
    gradient: Tensor  # (C, d): ∇_z U, with U = nβ L + (γ/2)‖δ‖² and δ = S z
    distance: Tensor  # (C,) float64: ‖δ‖²


Evaluate = Callable[[Tensor], Evaluation]


@dataclass(frozen=True)
class Whitening:
    """S = r (I − V Vᵀ) + V diag(s) Vᵀ, the square root of an approximate posterior covariance.

    A constant linear map of the coordinates, so it changes the speed of every sampler and the answer of none.
    """

    vectors: Tensor  # (d, k), orthonormal columns
    scales: Tensor  # (k,)
    rest: float

    def __call__(self, rows: Tensor) -> Tensor:
        """S applied to every row of (C, d)."""
        if self.vectors.shape[1] == 0:
            return rows if self.rest == 1 else self.rest * rows
        return torch.addmm(rows, (rows @ self.vectors) * (self.scales - self.rest), self.vectors.T, beta=self.rest)

    def inverse(self) -> Whitening:
        """S⁻¹."""
        return Whitening(self.vectors, 1 / self.scales, 1 / self.rest)

    @staticmethod
    def identity(like: Tensor, scale: float = 1.0) -> Whitening:
        """The scalar map `scale`·I on vectors like `like` (d,)."""
        return Whitening(like.new_zeros(like.numel(), 0), like.new_zeros(0), scale)

    @staticmethod
    def from_eigenpairs(values: Tensor, vectors: Tensor, nbeta: float, gamma: float) -> Whitening:
        """(nβH + γI)^(−1/2) on the given eigenpairs of H; beyond them, on the smallest of those.

        Whitened curvature then lies in [γ/(nβσ_k + γ), 1] at w*, so a step size means the same on every network.
        """
        stiffness = nbeta * values.double().clamp(min=0) + gamma
        complete = len(values) == len(vectors)
        rest = float(stiffness.min()) if len(values) and not complete else gamma
        return Whitening(vectors, stiffness.rsqrt().to(vectors), rest**-0.5)


@dataclass(frozen=True)
class Target:
    """U(z) = nβ (L(w* + Sz) − L(w*)) + (γ/2)‖Sz‖² for all chains.

    Args:
        losses: excess losses of many chains.
        nbeta: inverse temperature nβ.
        gamma: precision γ of the localiser.
        whitening: the map S.
        drop: nβ(L(w*) − L(ŵ)) in nats, ŵ the minimum of U near w*, as far as it is known: tolerances are relative to
            the mean of nβ(L(w) − L(ŵ)), which is positive wherever w* is.
        centre: ŵ − w*, (d,); None where that is zero or unknown.
    """

    losses: ChainLosses
    nbeta: float
    gamma: float
    whitening: Whitening
    drop: float = 0.0
    centre: Tensor | None = None

    def full(self, position: Tensor) -> Evaluation:
        """U's pieces on all data."""
        with self.losses.precise():
            delta = self.whitening(position)
            excess, slope = self.losses.full(delta, self.nbeta)
            # In float64: the energies of large networks need the digits.
            distance = torch.linalg.vector_norm(delta, dim=1, dtype=torch.float64).square()
            return Evaluation(excess, self._gradient(delta, slope), distance)

    def force(self, position: Tensor, rounded: bool = False) -> Tensor:
        """∇_z U on all data without the energy, the same as `full` gives unless the loss's part may be `rounded`."""
        with self.losses.precise():
            delta = self.whitening(position)
        slope = self.losses.gradient(delta, self.nbeta, rounded)
        with self.losses.precise():
            return self._gradient(delta, slope)

    def minibatch(self, position: Tensor, indices: Tensor) -> Evaluation:
        """U's pieces on the samples `indices` (C, m)."""
        delta = self.whitening(position)
        return self._noisy(delta, *self.losses.minibatch(delta, indices, self.nbeta))

    def controlled(self, position: Tensor, indices: Tensor, mean: Tensor) -> Evaluation:
        """As `minibatch`, with the noise that the batch's gradient at w* explains taken out, of the gradient and of the
        excess loss: with e = g_B(w*) − g_n(w*), ĝ = g_B(w) − e and the excess less δ·e.

        e is zero on average over batches, so both stay unbiased; what is left grows with δ as fast as the curvature of
        one sample's loss differs from another's. `mean` is g_n(w*), shape (d,).
        """
        delta = self.whitening(position)
        excess, gradient = self.losses.minibatch(delta, indices, self.nbeta)
        _, reference = self.losses.minibatch(torch.zeros_like(delta), indices, self.nbeta)
        noise = reference.sub_(mean, alpha=self.nbeta)
        return self._noisy(delta, excess - row_dot(delta, noise).double() / self.nbeta, gradient.sub_(noise))

    def weights(self) -> Tensor:
        """m_k = nβσ_k/(nβσ_k + γ) = 1 − γ s_k² (k,): how much of each known direction the data decide."""
        return 1 - self.gamma * self.whitening.scales.square()

    def controls(self, position: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Statistics of positions and gradients whose means are known exactly, (C,) each: the virials about ŵ, which
        are d and Tr M = Σ_k m_k for δ·∇U and δᵀM∇U with M = Σ_k m_k v_k v_kᵀ, and a tilt, which is 0.

        On a quadratic the second is twice what nβL has of second order in the known directions, draw by draw, and the
        tilt is what nβL has of first order, −γ(ŵ − w*)·(w − ŵ), with the other sign, divided by nβ.
        """
        tilt = torch.zeros_like(gradient[:, 0])
        if self.centre is not None:
            centre, pull = self._pulled
            position = position - centre
            tilt = gradient @ pull
        vectors = self.whitening.vectors
        soft = ((position @ vectors) * (gradient @ vectors)) @ self.weights()
        return row_dot(position, gradient), soft, tilt

    @cached_property
    def _pulled(self) -> tuple[Tensor, Tensor]:
        """ŵ − w* whitened, and (γ/nβ) S(ŵ − w*): A⁻¹(ŵ − w*) is S² of it."""
        assert self.centre is not None
        rows = self.centre[None]
        return self.whitening.inverse()(rows)[0], self.gamma / self.nbeta * self.whitening(rows)[0]

    def energy(self, evaluation: Evaluation) -> Tensor:
        """U (C,) in float64."""
        return self.nbeta * evaluation.excess + 0.5 * self.gamma * evaluation.distance

    def _noisy(self, delta: Tensor, excess: Tensor, slope: Tensor) -> Evaluation:
        """On minibatches nothing is accepted or rejected by the distance, so that one quick pass for it is enough."""
        distance = torch.linalg.vector_norm(delta, dim=1).double().square()
        return Evaluation(excess, self._gradient(delta, slope), distance)

    def _gradient(self, delta: Tensor, slope: Tensor) -> Tensor:
        return self.whitening(slope.add_(delta, alpha=self.gamma))
