"""Products of C and H_Λ⁻¹: the covariance of a fit around the population's minimum.

√n(θ̂ − θ*) is asymptotically normal with covariance H_Λ⁻¹ C_Λ H_Λ⁻¹, where H_Λ = H + Λ and C_Λ is the second moment of
the gradients ∇l_i + Λθ of the regularised loss, equal to C − Λθθᵀ Λ at its minimum (Shoham, Mor-Yosef and Avron,
"Flatness After All?", 2025, https://arxiv.org/abs/2506.17809, Eq. 11).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.func import vjp, vmap

from ..errors import InputError
from ..estimates import Check, Estimate
from ..landscape import Landscape
from .averages import indefinite
from .decay import Decay
from .dense import dense
from .gradients import Gradients
from .precision import full_precision
from .spectra import MAX_DIMENSION
from .stochastic import Starts
from .tiles import memory_bound, plan

MAX_DECREMENT_SHARE = 0.1  # of the criterion, that the Newton decrement may be at what counts as a minimum


@dataclass(frozen=True)
class SampleMean:
    """A quadratic form of the samples' gradients, averaged over samples.

    Attributes:
        value: the mean.
        stderr: its standard error over samples, where the value is a plain mean.
        criterion: (1/n) Tr(C_Λ H_Λ⁻¹), for comparison.
        decrement: gᵀ H_Λ⁻¹ g of the mean gradient g: a Newton step would lower the regularised loss by half of it.
    """

    value: float
    stderr: float | None
    criterion: float
    decrement: float

    def estimate(self, name: str, n: int, diagnostics: Mapping[str, Any]) -> Estimate:
        """The mean over n, with its check."""
        scatter = None if self.stderr is None else self.stderr / n
        details = {**diagnostics, "sampling_stderr": scatter, "decrement": self.decrement}
        return Estimate(name, self.value / n, 0.0, (self.check,), details)

    @property
    def check(self) -> Check:
        """Whether this is a minimum: the loss that a Newton step would still gain is small beside the predicted gap."""
        share = self.decrement / self.criterion if self.criterion > 0 else math.inf if self.decrement > 0 else 0.0
        return Check(
            "Newton decrement", f"{share:.1%} of the criterion", f"at most {MAX_DECREMENT_SHARE:.0%}",
            self.decrement <= MAX_DECREMENT_SHARE * self.criterion,
            "pass the weight_decay of the training, or train on",
            reason=f"not at a minimum: with this weight decay the loss can still fall by {self.decrement / 2:.2g}, "
            f"where the criterion is {self.criterion:.2g}",
        )  # fmt: skip


@dataclass(frozen=True)
class Sandwich:
    """H_Λ of one landscape, factorized, and the regularised gradients of its samples.

    Attributes:
        land: where matrices and gradients come from.
        curvature: `fisher` or `hessian`, taken for H.
        penalty: Λ as a vector (d,).
    """

    land: Landscape
    curvature: str
    penalty: Tensor

    @cached_property
    def matrix(self) -> Tensor:
        """H without its penalty, (d, d)."""
        if self.land.dimension > MAX_DIMENSION:
            raise InputError(
                f"this measure writes out a matrix over all parameters, and {self.land.dimension:,} of them are more "
                f"than {MAX_DIMENSION:,} — look at part of them with land.restrict()"
            )
        return dense(self.land, self.curvature)

    @cached_property
    def root(self) -> Tensor:
        """Cholesky factor of H_Λ."""
        root, failed = torch.linalg.cholesky_ex(self.matrix + torch.diag(self.penalty))
        if bool(failed):
            scale = self.penalty.rsqrt()
            smallest = float(torch.linalg.eigvalsh(scale[:, None] * self.matrix * scale).min())
            level = float(self.penalty.min())
            raise InputError(indefinite(smallest * level, level))
        return root

    @property
    def shift(self) -> Tensor:
        """Λθ, the gradient of the penalty."""
        return self.penalty * self.land.flatten(self.land.parameters).double()

    def gradients(self) -> Iterator[Tensor]:
        """∇l_i + Λθ of all samples, tiles of rows (m, d) in float64."""
        shift = self.shift
        for pieces in Gradients(self.land, "covariance", memory_bound(self.land, None) // 2):
            written = [piece.rows() for piece in pieces]
            rows = shift.repeat(len(written[0].values), 1)
            for piece in written:
                rows[:, piece.index] += piece.values[:, 0].double()
            yield rows

    def mean(self, form: Callable[[Tensor, Tensor], Tensor]) -> SampleMean:
        """The mean over samples of form(g, H_Λ⁻¹ g), for rows g and solutions (m, d)."""
        values, criteria, total = [], [], torch.zeros_like(self.penalty)
        for rows in self.gradients():
            solutions = self.solve(rows)
            values.append(form(rows, solutions))
            criteria.append((rows * solutions).sum(1))
            total += rows.sum(0)
        per_sample = torch.cat(values)
        error = float(per_sample.std()) / self.land.n**0.5 if self.land.n > 1 else math.inf
        return self._mean(float(per_sample.mean()), error, float(torch.cat(criteria).mean()), total)

    def squared(self) -> SampleMean:
        """Tr((C_Λ H_Λ⁻¹)²)."""
        product, total = torch.zeros_like(self.matrix), torch.zeros_like(self.penalty)
        for rows in self.gradients():
            product.addmm_(rows.T, self.solve(rows))
            total += rows.sum(0)
        product /= self.land.n
        return self._mean(float((product * product.T).sum()), None, float(product.trace()), total)

    def _mean(self, value: float, error: float | None, criterion: float, total: Tensor) -> SampleMean:
        gradient = total / self.land.n
        return SampleMean(value, error, criterion / self.land.n, float(gradient @ self.solve(gradient[None])[0]))

    def solve(self, rows: Tensor) -> Tensor:
        """H_Λ⁻¹ applied to every row."""
        return torch.cholesky_solve(rows.T, self.root).T


def gradient_signs(land: Landscape, decay: Decay, level: float) -> Starts:
    """Random vectors Λ₀^(−1/2) z, z = n^(−1/2) Σ_i ±(∇l_i + Λθ), so that E[z zᵀ] = C_Λ; Λ₀ is the decay's shape.

    They bring Tr(C_Λ H_Λ⁻¹) into the form Tr(M f(A)) that quadrature brackets, at one backward pass each.
    """
    shift = decay.diagonal(land, level) * land.flatten(land.parameters).double()

    def draw(count: int, generator: torch.Generator) -> Tensor:
        signs = torch.randint(2, (land.n, count), generator=generator).to(land.device, land.dtype) * 2 - 1
        total = torch.zeros(count, land.dimension, dtype=land.dtype, device=land.device)
        tiles = plan(land, None, copies=2)
        begin = 0
        with full_precision():
            for batch in land.batches(tiles.samples):
                back = vjp(lambda parameters, batch=batch: land.losses(parameters, batch), land.parameters)[1]
                rows = signs[begin : begin + batch.n].T
                total += vmap(lambda row, back=back: land.flatten(back(row)[0]), chunk_size=tiles.probes)(rows)
                begin += batch.n
        vectors = (total.T.double() + shift[:, None] * signs.double().sum(0)) / land.n**0.5
        return vectors if decay.whitening is None else decay.whitening[:, None] * vectors

    return draw
