"""Numbers that the matrices of a network give at its weight decay: each exact, by KFAC, by EKFAC and by the diagonal.

With λ the weight decay, soft rank Σ σ/(σ + λ), its second order Σ (σ/(σ + λ))², log-det ½ Σ log(1 + σ/λ) over
eigenvalues σ. The exact ones need no eigenvalues: with M = (F + λI)⁻¹ by Cholesky, they are d − λ Tr M,
d − 2λ Tr M + λ² ‖M‖² and Σ log L_ii − (d/2) log λ, a hundred times faster on a GPU than a spectrum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from basinscope.errors import InputError

from .matrices import Layer, Matrices, cosine

TRUNCATION = 1e-3  # Thomas et al. invert F on eigenvalues above this fraction of the largest
_BLOCK, _POWERS = 512, 2  # vectors that find the leading eigenvalues, and how often F is applied to them
_DENSE = 1024  # up to this size all eigenvalues are found at once


@dataclass(frozen=True)
class Regularized:
    """F + λI, factorized once.

    Attributes:
        inverse: (F + λI)⁻¹.
        half_log_det: ½ log det(F/λ + I).
        level: λ.
    """

    inverse: Tensor
    half_log_det: float
    level: float

    @property
    def soft_rank(self) -> float:
        """Tr F (F + λI)⁻¹."""
        return len(self.inverse) - self.level * float(self.inverse.trace())

    @property
    def soft_rank_2(self) -> float:
        """Tr (F (F + λI)⁻¹)²."""
        squares = float(self.inverse.square().sum())
        return len(self.inverse) - 2 * self.level * float(self.inverse.trace()) + self.level**2 * squares

    def trace_with(self, matrix: Tensor) -> float:
        """Tr A (F + λI)⁻¹."""
        return float((matrix * self.inverse).sum())


def regularized(fisher: Tensor, level: float) -> Regularized:
    """Factorize F + λI.

    Examples:
        >>> spectrum = regularized(torch.diag(torch.tensor([1.0, 3.0], dtype=torch.float64)), 1.0)
        >>> [round(value, 6) for value in (spectrum.soft_rank, spectrum.soft_rank_2, spectrum.half_log_det)]
        [1.25, 0.8125, 1.039721]
    """
    if not 0 < level < math.inf:
        raise InputError(f"the weight decay must be positive and finite, got {level!r}")
    matrix = fisher.clone()
    matrix.diagonal().add_(level)
    root, failed = torch.linalg.cholesky_ex(matrix)
    if bool(failed):
        raise InputError(f"F + λI is not positive definite at λ = {level:g}: F holds numbers that are not finite")
    logs = float(root.diagonal().log().sum())
    return Regularized(torch.cholesky_inverse(root), logs - len(root) / 2 * math.log(level), level)


def leading(matrix: Tensor, fraction: float, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Eigenvalues above `fraction` of the largest, descending, and their eigenvectors as columns.

    By subspace iteration with a block that grows until its smallest Ritz value is below half of what is asked for.

    Examples:
        >>> values, vectors = leading(torch.diag(torch.tensor([4.0, 1e-9, 1.0], dtype=torch.float64)), 1e-3)
        >>> values.tolist(), vectors.shape
        ([4.0, 1.0], torch.Size([3, 2]))
    """
    size = len(matrix)
    block = size if size <= _DENSE else _BLOCK
    while True:
        if 2 * block >= size:
            values, vectors = torch.linalg.eigh(matrix)
        else:
            generator = torch.Generator().manual_seed(seed)
            start = torch.randn(size, block, generator=generator, dtype=torch.float64)
            basis = torch.linalg.qr(matrix @ start.to(matrix)).Q
            for _ in range(_POWERS):
                basis = torch.linalg.qr(matrix @ basis).Q
            values, rotation = torch.linalg.eigh(basis.T @ (matrix @ basis))
            vectors = basis @ rotation
        cut = fraction * float(values[-1])
        if 2 * block >= size or float(values[0]) < 0.5 * cut:
            large = values > cut
            return values[large].flip(0), vectors[:, large].flip(1)
        block *= 2


@dataclass(frozen=True)
class Newton:
    """How far a network is from a minimum of L_n + (Λ/2)‖θ‖², and how far a minimum is from the truth.

    Attributes:
        inverse: F + ΛI, factorized.
        residual: r = ∇L_n + Λθ, float64.
        tic: (1/n) Tr C_Λ (F + Λ)⁻¹ with C_Λ the second moment of ∇l + Λθ, the gap to be expected at a minimum.
        decrement: rᵀ(F + Λ)⁻¹r, twice what a Newton step would gain.
    """

    inverse: Regularized
    residual: Tensor
    tic: float
    decrement: float


def newton(matrices: Matrices, weight_decay: float, samples: int, point: Tensor) -> Newton:
    """The Newton step of a network with weights `point`, Λ its `weight_decay`, n = `samples`."""
    inverse = regularized(matrices.fisher, weight_decay)
    shift = weight_decay * point.to(matrices.gradient)
    crossed = torch.outer(matrices.gradient, shift)
    penalized = matrices.covariance + crossed + crossed.T + torch.outer(shift, shift)
    residual = matrices.gradient + shift
    return Newton(
        inverse, residual, inverse.trace_with(penalized) / samples, float(residual @ inverse.inverse @ residual)
    )


def numbers(
    matrices: Matrices, turned: Sequence[Basis], weight_decay: float, samples: int, point: Tensor
) -> dict[str, float]:
    """All numbers of one network on one set of samples.

    `turned` are the bases of its layers, `samples` the n of its training set, `point` its weights θ.

    `tic` and `decrement` are those of `Newton`, `tic_plain` has C for C_Λ; `trace_ratio` is Tr C/Tr F; `thomas_rank`
    the number of eigenvalues of F above 0.001 ‖F‖ and `thomas_tic` (1/n) Tr C F⁺ on those. Numbers of F̄ and C̄ are
    there only where these are.
    """
    fisher, covariance = matrices.fisher, matrices.covariance
    step = newton(matrices, weight_decay, samples, point)
    inverse = step.inverse
    values, vectors = leading(fisher, TRUNCATION)
    inner = ((covariance @ vectors) * vectors).sum(0)
    row = {
        "trace_f": float(fisher.trace()),
        "trace_c": float(covariance.trace()),
        "trace_ratio": float(covariance.trace() / fisher.trace()),
        "norm_f": float(values[0]) if len(values) else 0.0,
        "soft_rank": inverse.soft_rank,
        "soft_rank_2": inverse.soft_rank_2,
        "log_det": inverse.half_log_det,
        "tic": step.tic,
        "tic_plain": inverse.trace_with(covariance) / samples,
        "decrement": step.decrement,
        "gradient_norm": float(step.residual.norm()),
        "thomas_rank": float(len(values)),
        "thomas_tic": float((inner / values).sum()) / samples,
        "cosine_cf": cosine(covariance, fisher),
        "size_c": float(covariance.norm()),
        "size_f": float(fisher.norm()),
    }
    for letter, matrix, apart in (("c", covariance, matrices.covariance_apart), ("f", fisher, matrices.fisher_apart)):
        if apart is not None:
            row |= {f"size_{letter}_apart": float(apart.norm()), f"cosine_{letter}": cosine(matrix, apart)}
    stand_ins = {
        "kfac": torch.cat([basis.products.flatten() for basis in turned]),
        "ekfac": torch.cat([basis.moments.flatten() for basis in turned]),
        "diagonal": fisher.diagonal(),
    }
    for name, spectrum in stand_ins.items():
        row |= of_eigenvalues(spectrum, weight_decay, name)
    return row


def of_eigenvalues(values: Tensor, level: float, name: str) -> dict[str, float]:
    """Soft ranks and log-det of eigenvalues.

    Examples:
        >>> of_eigenvalues(torch.tensor([1.0, 3.0]), 1.0, "kfac")["soft_rank_kfac"]
        1.25
    """
    shares = values.clamp(min=0) / (values.clamp(min=0) + level)
    return {
        f"soft_rank_{name}": float(shares.sum()),
        f"soft_rank_2_{name}": float(shares.square().sum()),
        f"log_det_{name}": float((values.clamp(min=0) / level).log1p().sum() / 2),
    }


@dataclass(frozen=True)
class Basis:
    """The eigenbasis of a layer's Kronecker factors, and what F is in it.

    Attributes:
        index: as in `Layer`.
        outward, inward: eigenvectors U_B (o, o) and U_A (i, i), as columns.
        products: eigenvalues of B ⊗ A, (o, i): KFAC.
        moments: the diagonal of (U_B ⊗ U_A)ᵀ F (U_B ⊗ U_A), (o, i): EKFAC.
    """

    index: Tensor
    outward: Tensor
    inward: Tensor
    products: Tensor
    moments: Tensor


def bases(fisher: Tensor, layers: list[Layer]) -> list[Basis]:
    """The eigenbases of all layers. Their factors are small, and small eigenproblems are a CPU's work."""
    results = []
    for layer in layers:
        (outer, outward), (inner, inward) = (torch.linalg.eigh(side.cpu()) for side in (layer.outward, layer.inward))
        outward, inward = outward.to(fisher), inward.to(fisher)
        places = layer.index.flatten()
        block = fisher[places[:, None], places].view(*layer.index.shape, *layer.index.shape)
        turned = torch.einsum("oipb,pa->oiab", block @ inward, outward)
        moments = ((turned * inward[None, :, None]).sum(1) * outward[:, :, None]).sum(0)
        results.append(Basis(layer.index, outward, inward, torch.outer(outer, inner).to(fisher), moments))
    return results
