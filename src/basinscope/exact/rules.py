"""Rules for a K that is built from parts that share no variable."""

from __future__ import annotations

from fractions import Fraction

from ..errors import InputError
from ._checks import Coefficient, integer, rational


def sum_rule(*parts: Coefficient) -> Coefficient:
    """(λ, θ) of K = Σ K_i(w_i) in separate variables: λ = Σ λ_i and θ = 1 + Σ (θ_i − 1).

    Source: ∫exp(−tK) is the product of the parts' integrals, each ∝ t^(−λ_i) (log t)^(θ_i − 1).

    Examples:
        >>> sum_rule((Fraction(1, 2), 2), (Fraction(1, 2), 1))
        (Fraction(1, 1), 2)
    """
    checked = _parts(parts)
    return sum((value for value, _ in checked), Fraction(0)), 1 + sum(theta - 1 for _, theta in checked)


def product_rule(*parts: Coefficient) -> Coefficient:
    """(λ, θ) of K = Π K_i(w_i) in separate variables: λ = min λ_i, and the θ_i of the minima add up.

    Source: the zeta function ∫K^z is the product of the parts' zeta functions, so that equal poles add their orders.

    Examples:
        >>> product_rule((Fraction(1, 2), 1), (Fraction(1, 2), 1), (Fraction(1), 3))
        (Fraction(1, 2), 2)
    """
    checked = _parts(parts)
    least = min(value for value, _ in checked)
    return least, sum(theta for value, theta in checked if value == least)


def power_rule(part: Coefficient, power: int | Fraction) -> Coefficient:
    """(λ, θ) of K^p: λ/p with the same θ.

    Source: the poles of ∫K^(pz) are those of ∫K^z divided by p.

    Examples:
        >>> power_rule((Fraction(1), 1), 4)
        (Fraction(1, 4), 1)
    """
    ((value, theta),) = _parts((part,))
    exponent = rational("power", power)
    if exponent <= 0:
        raise InputError(f"power must be positive, got {exponent}")
    return value / exponent, theta


def _parts(parts: tuple[Coefficient, ...]) -> list[Coefficient]:
    if not parts:
        raise InputError("a rule needs at least one part (λ, θ), got none")
    checked = []
    for part in parts:
        if not isinstance(part, tuple) or len(part) != 2:
            raise InputError(f"a part must be a pair (λ, θ), got {part!r} — pass what the exact functions return")
        value = rational("λ", part[0])
        if value < 0:
            raise InputError(f"λ must not be negative, got {value}")
        checked.append((value, integer("θ", part[1], 1)))
    return checked
