"""The compact faces of a Newton polyhedron, as sets of exponents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import combinations
from math import gcd

Point = tuple[int, ...]
Facet = tuple[Point, int]  # (u, c): u·x ≥ c on the polyhedron, with equality on the facet

MAX_FACES = 5000  # beyond which they are not listed


def compact_faces(exponents: Iterable[Point]) -> list[frozenset[Point]] | None:
    """The exponents on each compact face of Γ = hull(exponents) + ℝ₊^d; None if there are too many faces to list.

    A face is compact when no coordinate direction is left free by all the facets that meet in it. All compact faces
    are intersections of facets.

    Examples:
        >>> sorted(sorted(face) for face in compact_faces([(2, 0), (1, 1), (0, 2), (3, 3)]))
        [[(0, 2)], [(0, 2), (1, 1), (2, 0)], [(2, 0)]]
    """
    points = sorted(set(exponents))
    normals = facets(points)
    members = [frozenset(p for p in points if _dot(u, p) == c) for u, c in normals]
    # All intersections of facets, those of one more facet in each round.
    faces = set(members)
    fresh = set(members)
    while fresh:
        fresh = {face & facet for face in fresh for facet in members} - faces - {frozenset()}
        faces |= fresh
        if len(faces) > MAX_FACES:
            return None
    d = len(points[0])
    return [
        face
        for face in faces
        if all(any(u[i] for (u, _), facet in zip(normals, members, strict=True) if face <= facet) for i in range(d))
    ]


def facets(points: Sequence[Point]) -> list[Facet]:
    """The facets u·x ≥ c of Γ, with u ≥ 0 in lowest integers.

    Qhull finds them on the exponents and copies of them far out along every axis; each normal is then computed anew
    from the points it rests on, in integers, so that nothing depends on rounding.

    Examples:
        >>> sorted(facets([(4, 0), (0, 6)]))
        [((0, 1), 0), ((1, 0), 0), ((3, 2), 12)]
    """
    from scipy.spatial import ConvexHull  # not at the top: most of `exact` answers without it, in an instant

    d = len(points[0])
    if d == 1:
        return [((1,), min(points)[0])]
    far = 16 * (1 + max(max(point) for point in points)) * d
    spread = [*points, *(tuple(x + far * (i == j) for j, x in enumerate(p)) for p in points for i in range(d))]
    hull = ConvexHull(spread)
    lowest: set[Facet] = set()
    for simplex in hull.simplices:
        normal = _normal([spread[i] for i in simplex])
        if normal is None:
            continue
        for u in (normal, tuple(-x for x in normal)):
            c = min(_dot(u, point) for point in points)
            if min(u) >= 0 and all(_dot(u, spread[i]) == c for i in simplex):
                lowest.add((u, c))
    return list(lowest)


def _normal(corners: Sequence[Point]) -> Point | None:
    """The normal of the hyperplane through d points, in lowest integers; None if they do not span one."""
    d = len(corners)
    rows = [[Fraction(x - y) for x, y in zip(corner, corners[0], strict=True)] for corner in corners[1:]]
    pivots: list[int] = []
    for column in range(d):
        row = len(pivots)
        pick = next((i for i in range(row, d - 1) if rows[i][column]), None)
        if pick is None:
            continue
        rows[row], rows[pick] = rows[pick], rows[row]
        rows[row] = [x / rows[row][column] for x in rows[row]]
        for i in range(d - 1):
            if i != row and rows[i][column]:
                factor = rows[i][column]
                rows[i] = [x - factor * y for x, y in zip(rows[i], rows[row], strict=True)]
        pivots.append(column)
    if len(pivots) < d - 1:
        return None
    (free,) = set(range(d)) - set(pivots)
    solution = [Fraction(0)] * d
    solution[free] = Fraction(1)
    for row, column in enumerate(pivots):
        solution[column] = -rows[row][free]
    scale = 1
    for x in solution:
        scale = scale * x.denominator // gcd(scale, x.denominator)
    whole = [int(x * scale) for x in solution]
    common = gcd(*whole)
    return tuple(x // common for x in whole)


def lattice_coordinates(face: Iterable[Point]) -> dict[Point, Point]:
    """Every point of a face in coordinates of its own: as many as the face has dimensions, from 0 up.

    w_i = Π_j s_j^V_ij with an integer matrix V of determinant ± 1 maps (ℝ∖0)^d to itself one to one, signs included,
    so that the face's polynomial has a zero there if and only if the one with these exponents has.

    Examples:
        >>> lattice_coordinates([(4, 0), (2, 3), (0, 6)])
        {(0, 6): (0,), (2, 3): (1,), (4, 0): (2,)}
    """
    points = sorted(face)
    rows = [[x - y for x, y in zip(point, points[0], strict=True)] for point in points]
    d, used = len(points[0]), 0
    for row in range(1, len(rows)):  # column operations of determinant ± 1 until each row ends in zeros
        while True:
            nonzero = [j for j in range(used, d) if rows[row][j]]
            if not nonzero:
                break
            pivot = min(nonzero, key=lambda j: abs(rows[row][j]))
            for j in nonzero:
                if j != pivot:
                    factor = rows[row][j] // rows[row][pivot]
                    for changed in rows:
                        changed[j] -= factor * changed[pivot]
            if len(nonzero) == 1:
                for changed in rows:
                    changed[used], changed[pivot] = changed[pivot], changed[used]
                used += 1
                break
    coordinates = [row[:used] for row in rows]
    least = [min(row[j] for row in coordinates) for j in range(used)]
    return {
        point: tuple(x - y for x, y in zip(row, least, strict=True))
        for point, row in zip(points, coordinates, strict=True)
    }


def edges(faces: Iterable[frozenset[Point]]) -> list[frozenset[Point]]:
    """The faces of dimension one."""
    return [face for face in faces if len(face) > 1 and _collinear(sorted(face))]


def _collinear(points: Sequence[Point]) -> bool:
    first = [x - y for x, y in zip(points[1], points[0], strict=True)]
    return all(
        (p[i] - points[0][i]) * first[j] == (p[j] - points[0][j]) * first[i]
        for p in points[2:]
        for i, j in combinations(range(len(first)), 2)
    )


def _dot(u: Sequence[int], x: Sequence[int]) -> int:
    return sum(a * b for a, b in zip(u, x, strict=True))
