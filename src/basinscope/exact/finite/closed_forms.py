"""Posteriors whose mean loss has a closed form: the quadratic basin and the crossing of two valleys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...errors import InputError
from .._checks import positive, real, reals


def quadratic(
    eigenvalues: Sequence[float], nbeta: float, gamma: float, gradient: Sequence[float] | None = None
) -> float:
    """λ_t of the quadratic basin K = Σ (g_i δ_i + σ_i δ_i²/2), localised at δ = 0.

    With a_i = tσ_i + γ:  λ_t = ½ Σ tσ_i/a_i − Σ t²g_i²(tσ_i/2 + γ)/a_i². Without a gradient it is half the soft rank
    of the Hessian at weight decay γ/t. A gradient, because w* is no exact minimum, makes λ_t smaller and even negative.

    Args:
        eigenvalues: σ_i, of the Hessian of the mean loss.
        nbeta: t = nβ.
        gamma: precision γ of the localising Gaussian; may be 0 if all eigenvalues are positive.
        gradient: g_i, components of the gradient of the mean loss along the eigenvectors; zero by default.

    Source: Gaussian integrals.

    Examples:
        >>> quadratic([1.0, 1.0], nbeta=99, gamma=1)
        0.99
    """
    modes = _modes(eigenvalues, nbeta, gamma, gradient)
    return sum(0.5 * stiff / a - force**2 * (stiff / 2 + pull) / a**2 for stiff, pull, a, force in modes)


def quadratic_heat_capacity(
    eigenvalues: Sequence[float], nbeta: float, gamma: float, gradient: Sequence[float] | None = None
) -> float:
    """t²Var[K] of the quadratic basin: ½ Σ (tσ_i/a_i)² + Σ t²g_i²γ²/a_i³. Arguments as in `quadratic`.

    Source: Gaussian integrals.

    Examples:
        >>> quadratic_heat_capacity([1.0, 1.0], nbeta=9, gamma=1)
        0.81
    """
    modes = _modes(eigenvalues, nbeta, gamma, gradient)
    return sum(0.5 * (stiff / a) ** 2 + (force * pull) ** 2 / a**3 for stiff, pull, a, force in modes)


def hyperbola(nbeta: float, gamma: float) -> float:
    """λ_t of K = (w₁w₂)²/2, localised at the origin, where two valleys cross.

    λ_t = ½ + x − x K₁(x)/K₀(x) with x = γ²/(4t) and modified Bessel functions. The limit is λ = ½ with θ = 2.

    Source: integrate w₂ out; what is left is a Bessel integral, e^x K₀(x)/√t.

    Examples:
        >>> round(hyperbola(nbeta=5453, gamma=1), 6)
        0.401096
    """
    return _hyperbola(nbeta, gamma)[0]


def hyperbola_heat_capacity(nbeta: float, gamma: float) -> float:
    """t²Var[K] of the hyperbola: 2(1 + x)λ_t − λ_t² − ¼, with x = γ²/(4t).

    Source: λ_t − t dλ_t/dt of `hyperbola`, simplified with the Bessel recurrences.

    Examples:
        >>> round(hyperbola_heat_capacity(nbeta=5453, gamma=1), 6)
        0.391351
    """
    return _hyperbola(nbeta, gamma)[1]


def _modes(
    eigenvalues: Sequence[float], nbeta: float, gamma: float, gradient: Sequence[float] | None
) -> Iterator[tuple[float, float, float, float]]:
    """tσ, γ, tσ + γ and tg of every eigendirection."""
    t, pull = positive("nbeta", nbeta), real("gamma", gamma)
    if pull < 0:
        raise InputError(f"gamma must not be negative, got {pull}")
    sigma = reals("eigenvalues", eigenvalues)
    slopes = [0.0] * len(sigma) if gradient is None else reals("gradient", gradient)
    if len(slopes) != len(sigma):
        raise InputError(
            f"gradient needs one component per eigenvalue: expected {len(sigma)}, got {len(slopes)} — project it on "
            f"the eigenvectors"
        )
    if t * min(sigma) + pull <= 0:
        raise InputError(
            f"the posterior has no finite mass: nbeta·eigenvalue + gamma must be positive, got {t:g}·{min(sigma):g} "
            f"+ {pull:g} — raise gamma"
        )
    return ((t * s, pull, t * s + pull, t * g) for s, g in zip(sigma, slopes, strict=True))


def _hyperbola(nbeta: float, gamma: float) -> tuple[float, float]:
    from scipy.special import k0e, k1e

    x = positive("gamma", gamma) ** 2 / (4 * positive("nbeta", nbeta))
    if x > 100:
        # The closed forms subtract numbers of size x and x² here; their asymptotic series in 1/x is more accurate.
        terms = [coefficient / x**n for n, coefficient in enumerate((1 / 8, -1 / 8, 25 / 128, -13 / 32), start=1)]
        return sum(terms), sum((1 - n) * term for n, term in enumerate(terms, start=1))
    value = 0.5 + x - x * float(k1e(x) / k0e(x))
    return value, 2 * (1 + x) * value - value**2 - 0.25
