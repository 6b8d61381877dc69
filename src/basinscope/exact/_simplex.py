"""A simplex method in fractions: small, slow and exact."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction


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
