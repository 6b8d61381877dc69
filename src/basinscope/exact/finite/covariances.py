"""Covariances of two observables over the local posterior: what influence functions and susceptibilities estimate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import InputError
from .._checks import positive, real


@dataclass(frozen=True)
class Observable:
    """φ(δ) = aᵀδ + ½ δᵀPδ, an observable's Taylor expansion at w*; its value there does not matter.

    Attributes:
        gradient: a, one number per parameter.
        curvature: P, a symmetric matrix; zero when None.
    """

    gradient: Sequence[float]
    curvature: Sequence[Sequence[float]] | None = None


def covariance(
    phi: Observable,
    psi: Observable,
    hessian: Sequence[Sequence[float]],
    nbeta: float,
    gamma: float = 0.0,
    cubic: Any = None,
    quartic: Any = None,
) -> float:
    """Cov(φ, ψ) over the density ∝ exp(−t K(δ) − γ‖δ‖²/2), to second order in Σ = (tH + γI)⁻¹.

    K = ½ δᵀHδ + ⅙ T[δ, δ, δ] + ¹⁄₂₄ Q[δ, δ, δ, δ] with t = nβ. With φ = aᵀδ + ½ δᵀPδ, ψ = bᵀδ + ½ δᵀRδ:

        Cov = aᵀΣb + ½ Tr(PΣRΣ)
              − (t/2) (T[Σa, ΣRΣ] + T[ΣRΣa, Σ] + T[Σb, ΣPΣ] + T[ΣPΣb, Σ])
              + (Σa)ᵀ M (Σb) + O(t⁻³),
        M_ij = −(t/2) Q_ijkl Σ_kl + (t²/2) (T_ikl Σ_km Σ_ln T_mnj + T_ijk Σ_kl T_lmn Σ_mn).

    For a quadratic K the first line is exact. The leading term aᵀΣb is the classical influence function.

    Args:
        phi: the first observable.
        psi: the second observable.
        hessian: H, symmetric.
        nbeta: t = nβ.
        gamma: precision γ of the localising Gaussian.
        cubic: T, third derivatives of K, shape (d, d, d) and symmetric; zero when None.
        quartic: Q, fourth derivatives of K, shape (d, d, d, d) and symmetric; zero when None.

    Source: Wick's theorem. In one dimension Cov(x², x) = −2α/(λ³t²) for K = λx²/2 + αx³/6.

    Examples:
        >>> line, square = Observable([1.0]), Observable([0.0], [[2.0]])
        >>> round(covariance(line, square, [[1.0]], nbeta=100, cubic=[[[1.0]]]), 9)
        -0.0002
    """
    import numpy as np

    t, pull = positive("nbeta", nbeta), real("gamma", gamma)
    matrix = _tensor("hessian", hessian, None, 2)
    d = len(matrix)
    precision = t * matrix + pull * np.eye(d)
    least = float(np.linalg.eigvalsh(precision)[0])
    if least <= 0:
        raise InputError(
            f"the posterior has no finite mass: nbeta·hessian + gamma must be positive definite, its least eigenvalue "
            f"is {least:g} — raise gamma"
        )
    sigma = np.linalg.inv(precision)
    a, b = (sigma @ _gradient(name, observable, d) for name, observable in (("phi", phi), ("psi", psi)))
    p, r = (sigma @ _curvature(name, observable, d) @ sigma for name, observable in (("phi", phi), ("psi", psi)))
    value = a @ precision @ b + 0.5 * np.sum((p @ precision) * (r @ precision).T)
    if cubic is not None:
        third = _tensor("cubic", cubic, d, 3)
        mean_force = np.einsum("ijk,jk->i", third, sigma)
        for force, bend in ((a, r), (b, p)):
            value -= t / 2 * (np.einsum("ijk,i,jk->", third, force, bend) + mean_force @ bend @ precision @ force)
        bubble = np.einsum("ikl,km,ln,mnj->ij", third, sigma, sigma, third, optimize=True)
        tadpole = np.einsum("ijk,kl,l->ij", third, sigma, mean_force)
        value += t**2 / 2 * (a @ (bubble + tadpole) @ b)
    if quartic is not None:
        value -= t / 2 * np.einsum("ijkl,i,j,kl->", _tensor("quartic", quartic, d, 4), a, b, sigma, optimize=True)
    return float(value)


def _gradient(name: str, observable: Observable, d: int) -> Any:
    return _tensor(f"{name}.gradient", observable.gradient, d, 1)


def _curvature(name: str, observable: Observable, d: int) -> Any:
    import numpy as np

    if observable.curvature is None:
        return np.zeros((d, d))
    return _tensor(f"{name}.curvature", observable.curvature, d, 2)


def _tensor(name: str, values: Any, d: int | None, order: int) -> Any:
    """A finite symmetric tensor of the given order with d entries along every axis; None: as many as it has."""
    import numpy as np

    try:
        tensor = np.array(values, dtype=float)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be numbers in a list nested {order} deep, got {values!r}") from None
    size = len(tensor) if d is None and tensor.ndim else d
    if tensor.shape != (size,) * order or not tensor.size:
        expected = "be a square matrix" if d is None else f"have shape {(d,) * order}"
        raise InputError(f"{name} must {expected}, got shape {tensor.shape}")
    if not np.isfinite(tensor).all():
        raise InputError(f"{name} must be finite, got {tensor[~np.isfinite(tensor)][0]}")
    rounding = 1e-9 * float(np.abs(tensor).max())
    for axis in range(1, order):
        if np.abs(tensor - tensor.swapaxes(0, axis)).max() > rounding:
            raise InputError(f"{name} must be symmetric in all its indices, but exchanging 0 and {axis} changes it")
    return tensor
