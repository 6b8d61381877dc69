"""Newton polyhedra: λ of a nondegenerate K from the exponents of its monomials alone."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from ..errors import InputError
from ._checks import Coefficient, integers, items, prior_exponents

Row = list[Fraction]


def newton(exponents: Sequence[Sequence[int]], h: Sequence[int | Fraction] | None = None) -> Coefficient:
    """(λ, θ) at the origin of a nondegenerate K with these monomials, under a prior ∝ Π |w_i|^h_i.

    The Newton polyhedron Γ is the convex hull of the exponents plus the positive orthant. The ray along
    (1 + h_1, …, 1 + h_d) enters Γ at the point (1 + h)/λ, and θ is the codimension of the smallest face that holds
    it. As a linear programme, solved here in fractions: λ = max Σ x_e over x ≥ 0 with Σ x_e e ≤ 1 + h.

    Nondegenerate means that for every compact face the terms of K on it have no common zero off the coordinate
    planes, taken as one polynomial; sums of squared monomials always qualify. For a degenerate K, such as (x − y)²,
    the value is only an upper bound of λ.

    Args:
        exponents: one list per monomial of K: K = (w₀w₁)² + w₂² has [[2, 2, 0], [0, 0, 2]].
        h: exponents of the prior.

    Source: Varchenko, "Newton polyhedra and estimation of oscillating integrals", Functional Analysis and Its
    Applications 10 (1976); Watanabe, "Algebraic Geometry and Statistical Learning Theory" (2009).

    Examples:
        >>> newton([[2, 2, 0], [0, 2, 2], [2, 0, 2]])
        (Fraction(3, 4), 1)
        >>> newton([[2, 0, 0], [0, 2, 2]])
        (Fraction(1, 1), 2)
    """
    monomials = [integers(f"exponents[{i}]", monomial, 0) for i, monomial in enumerate(items("exponents", exponents))]
    lengths = {len(monomial) for monomial in monomials}
    if len(lengths) > 1:
        raise InputError(f"every monomial needs one exponent per variable, got lists of lengths {sorted(lengths)}")
    if any(not any(monomial) for monomial in monomials):
        raise InputError("a monomial with only zero exponents is a constant — K must vanish at the origin")
    direction = [1 + exponent for exponent in prior_exponents(h, lengths.pop())]

    rows = [[Fraction(monomial[i]) for monomial in monomials] for i in range(len(direction))]
    value, _ = maximize([Fraction(1)] * len(monomials), rows, direction)
    entry = [component / value for component in direction]
    return value, _face_codimension(monomials, entry)


def _face_codimension(monomials: Sequence[Sequence[int]], point: Row) -> int:
    """Codimension of the smallest face of the Newton polyhedron through a point of its boundary.

    It is the dimension of the normal cone {u ≥ 0 : u·(e − point) ≥ 0 for all e}. Raising a slack z_j ≤ 1 below every
    inequality as far as it goes separates the inequalities that can be strict in the cone from those that never are;
    the latter span the orthogonal complement of the cone.
    """
    d = len(point)
    unit = [[Fraction(i == j) for j in range(d)] for i in range(d)]
    normals = unit + [[e - p for e, p in zip(monomial, point, strict=True)] for monomial in monomials]
    count = len(normals)
    slack = [[Fraction(i == j) for j in range(count)] for i in range(count)]
    below = [[-component for component in normal] + slack[j] for j, normal in enumerate(normals)]
    capped = [[Fraction(0)] * d + row for row in slack]
    objective = [Fraction(0)] * d + [Fraction(1)] * count
    _, solution = maximize(objective, below + capped, [Fraction(0)] * count + [Fraction(1)] * count)
    return d - _rank([normal for normal, z in zip(normals, solution[d:], strict=True) if z == 0])


def _rank(rows: list[Row]) -> int:
    rank = 0
    rows = [list(row) for row in rows]
    for column in range(len(rows[0]) if rows else 0):
        pivot = next((i for i in range(rank, len(rows)) if rows[i][column]), None)
        if pivot is None:
            continue
        rows[rank], rows[pivot] = rows[pivot], rows[rank]
        for i in range(rank + 1, len(rows)):
            factor = rows[i][column] / rows[rank][column]
            rows[i] = [x - factor * y for x, y in zip(rows[i], rows[rank], strict=True)]
        rank += 1
    return rank


def maximize(
    objective: Sequence[Fraction], rows: Sequence[Sequence[Fraction]], limits: Sequence[Fraction]
) -> tuple[Fraction, list[Fraction]]:
    """Maximum of objective·x over x ≥ 0 with rows·x ≤ limits, and an x that attains it.

    The limits must not be negative, so that x = 0 is feasible, and the maximum must be finite. Bland's rule picks the
    pivots: it cannot cycle on the degenerate programmes that faces of a polyhedron lead to.

    Examples:
        >>> maximize([Fraction(1), Fraction(1)], [[Fraction(2), Fraction(1)]], [Fraction(3)])
        (Fraction(3, 1), [Fraction(0, 1), Fraction(3, 1)])
    """
    n = len(objective)
    table = [
        [*row, *(Fraction(i == j) for j in range(len(rows))), limit]
        for i, (row, limit) in enumerate(zip(rows, limits, strict=True))
    ]
    gains = [*objective, *[Fraction(0)] * (len(rows) + 1)]
    basis = list(range(n, n + len(rows)))
    while True:
        enter = next((j for j, gain in enumerate(gains[:-1]) if gain > 0), None)
        if enter is None:
            solution = dict(zip(basis, (row[-1] for row in table), strict=True))
            return -gains[-1], [solution.get(j, Fraction(0)) for j in range(n)]
        # Bland's rule: of the rows that limit x_enter most, the one whose variable comes first leaves the basis.
        *_, leave = min((row[-1] / row[enter], basis[i], i) for i, row in enumerate(table) if row[enter] > 0)
        basis[leave] = enter
        table[leave] = [x / table[leave][enter] for x in table[leave]]
        for i in range(len(table)):
            if i != leave and table[i][enter]:
                table[i] = _eliminate(table[i], table[leave], enter)
        gains = _eliminate(gains, table[leave], enter)


def _eliminate(row: Sequence[Fraction], pivot: Sequence[Fraction], column: int) -> list[Fraction]:
    factor = row[column]
    return [x - factor * y for x, y in zip(row, pivot, strict=True)]
