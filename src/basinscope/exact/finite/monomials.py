"""Monomials K = Π w_i^(2k_i): on the unit cube, and localised by a Gaussian."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from ...errors import InputError
from .._checks import integers, positive, prior_exponents
from ._mellin import log_mass, moments


def monomial(k: Sequence[int], nbeta: float, h: Sequence[int | Fraction] | None = None) -> float:
    """λ_t of K = Π w_i^(2k_i) under the prior ∝ Π w_i^h_i on the cube [0, 1]^d.

    −log K is a sum of independent exponential variables with rates r_i = (h_i + 1)/(2k_i) (a phase-type law), so
    E[K^(−s)] = Π r_i/(r_i − s), from which λ_t follows by one Mellin–Barnes integral. The limit is `normal_crossing`.

    Source: the phase-type law; for two equal rates λ_t = λ − 1/(log t − ψ(λ)) up to exponentially small terms.

    Examples:
        >>> round(monomial([1, 1], nbeta=1000), 6)
        0.387277
    """
    return _on_cube(k, nbeta, h)[0]


def monomial_heat_capacity(k: Sequence[int], nbeta: float, h: Sequence[int | Fraction] | None = None) -> float:
    """t²Var[K] of K = Π w_i^(2k_i) on the unit cube. Arguments and source as in `monomial`.

    Examples:
        >>> round(monomial_heat_capacity([1, 1], nbeta=1000), 6)
        0.37457
    """
    return _on_cube(k, nbeta, h)[1]


def monomial_mean(
    k: Sequence[int], powers: Sequence[int | Fraction], nbeta: float, h: Sequence[int | Fraction] | None = None
) -> float:
    """E[Π w_i^p_i] over the posterior of K = Π w_i^(2k_i) under the prior ∝ Π w_i^h_i on the cube [0, 1]^d.

    The power shifts the prior's exponents from h to h + p, so that the mean is a ratio of two masses. A covariance of
    two powers is E[w^(p+q)] − E[w^p] E[w^q]. As nβ grows, coordinates with the least rate (h_i + 1)/(2k_i) tend to
    zero, and the others to a law of their own.

    Args:
        k: exponents of K.
        powers: p, at least 0 each.
        nbeta: t = nβ.
        h: exponents of the prior; zero unless given.

    Source: the phase-type law of `monomial`. For K = w₁⁴w₂² the mean of w₂² tends to 1/5.

    Examples:
        >>> round(monomial_mean([2, 1], [0, 2], nbeta=1e12), 3)
        0.2
    """
    exponents = prior_exponents(h, len(integers("k", k, 0)))
    shifts = prior_exponents(powers, len(exponents))
    if min(shifts) < 0:
        raise InputError(f"powers must not be negative, got {min(shifts)} — a mean of 1/w may be infinite")
    raised = [exponent + shift for exponent, shift in zip(exponents, shifts, strict=True)]
    volume = math.prod(float((before + 1) / (after + 1)) for before, after in zip(exponents, raised, strict=True))
    masses = [log_mass(*_law_on_cube(k, prior), math.log(positive("nbeta", nbeta))) for prior in (raised, exponents)]
    return volume * math.exp(masses[0] - masses[1])


def monomial_localized(k: Sequence[int], nbeta: float, gamma: float, scale: float = 1.0) -> float:
    """λ_t of K = scale · Π w_i^(2k_i), localised at the origin by the Gaussian exp(−γ‖w‖²/2).

    E[K^(−s)] = scale^(−s) Π (γ/2)^(k_i s) Γ(½ − k_i s)/Γ(½) under the Gaussian, and λ_t follows by one Mellin–Barnes
    integral. `hyperbola` is the case k = (1, 1), scale = ½.

    Source: moments of a Gaussian.

    Examples:
        >>> round(monomial_localized([1, 1], nbeta=5453, gamma=1, scale=0.5), 6)
        0.401096
    """
    return _localized(k, nbeta, gamma, scale)[0]


def monomial_localized_heat_capacity(k: Sequence[int], nbeta: float, gamma: float, scale: float = 1.0) -> float:
    """t²Var[K] of K = scale · Π w_i^(2k_i) with a Gaussian localiser. Arguments and source as in `monomial_localized`.

    Examples:
        >>> round(monomial_localized_heat_capacity([1, 1], nbeta=5453, gamma=1, scale=0.5), 6)
        0.391351
    """
    return _localized(k, nbeta, gamma, scale)[1]


def _on_cube(k: Sequence[int], nbeta: float, h: Sequence[int | Fraction] | None) -> tuple[float, float]:
    return moments(*_law_on_cube(k, h), math.log(positive("nbeta", nbeta)))


def _law_on_cube(k: Sequence[int], h: Sequence[int | Fraction] | None) -> tuple[Callable[[Any], Any], float]:
    """log E[K^(−s)] under the prior on the cube, and the width of the strip where it is analytic."""
    import numpy as np

    powers = integers("k", k, 0)
    exponents = prior_exponents(h, len(powers))
    rates = [float(exponent + 1) / (2 * power) for power, exponent in zip(powers, exponents, strict=True) if power]
    if not rates:
        raise InputError(f"k must have a positive entry, got {powers} — K = 1 vanishes nowhere")
    return (lambda s: -sum(np.log(1 - s / rate) for rate in rates)), min(rates)


def _localized(k: Sequence[int], nbeta: float, gamma: float, scale: float) -> tuple[float, float]:
    from scipy.special import loggamma

    powers = [power for power in integers("k", k, 0) if power]  # a free direction only sees the localiser
    if not powers:
        raise InputError(f"k must have a positive entry, got {list(k)} — K is constant otherwise")
    stretch = sum(powers) * math.log(2 / positive("gamma", gamma))
    log_t = math.log(positive("nbeta", nbeta)) + math.log(positive("scale", scale)) + stretch

    def log_moment(s: Any) -> Any:
        return sum(loggamma(0.5 - power * s) - loggamma(0.5) for power in powers)

    return moments(log_moment, 0.5 / max(powers), log_t)
