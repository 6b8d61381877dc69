"""λ of a polynomial K, from its formula."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import gcd
from typing import Any

from ..errors import InputError
from ._checks import Coefficient, prior_exponents
from ._faces import Point, compact_faces, edges, lattice_coordinates
from ._reading import Polynomial, read
from ._zeros import Terms, Zeros, zeros
from .bounds import hessian_bounds
from .polyhedra import newton
from .polynomials import normal_crossing

_MAX_SHEARS = 12


@dataclass(frozen=True)
class Bound:
    """λ of a polynomial: exact, or an upper bound.

    Attributes:
        value: λ if `exact`, else a number that λ does not exceed.
        multiplicity: θ if `exact`, else None.
        exact: which of the two it is.
        lower: half the rank of the Hessian at the origin: λ is at least this (0 under a prior that vanishes there).
        reason: what makes it exact, or what keeps it from being so.
        coordinates: the substitutions made on the way, in order.
    """

    value: Fraction
    multiplicity: int | None
    exact: bool
    lower: Fraction
    reason: str
    coordinates: tuple[str, ...] = ()

    def __str__(self) -> str:
        theta = f", multiplicity θ = {self.multiplicity}" if self.exact else ""
        return f"λ {'=' if self.exact else '≤'} {self.value}{theta} ({self.reason})"


def polynomial(expr: Any, variables: Sequence[Any] | None = None, h: Sequence[int | Fraction] | None = None) -> Bound:
    """(λ, θ) at the origin of a polynomial K ≥ 0 with K(0) = 0, exactly or as an upper bound, and which of the two.

    K lies below a multiple of the sum of the monomials at the corners of its Newton polyhedron, so the polyhedron's
    value (`newton`) always bounds λ from above. It is λ itself if K is nondegenerate: for no compact face of the
    polyhedron do the terms of K on it vanish together anywhere off the coordinate planes. That is tested here, with
    rational arithmetic, for every compact face. Where an edge fails the test, its zero names a change of coordinates
    w_i → w_i + c·w^m under which the polyhedron is looked at afresh; λ does not depend on coordinates. In two
    variables a degenerate K whose zeros along the edge that the diagonal meets are of no higher order than the
    polyhedron's distance has the same λ (coordinates are then called adapted).

    Args:
        expr: a sympy expression, or text of whole numbers, names, + - * / ** ^ and round brackets. Text is read by a
            grammar of its own and never evaluated; coefficients are rational.
        variables: those of K, in the order of `h`; all of its symbols by name unless given. Variables that K does
            not contain add nothing to λ.
        h: exponents of a prior ∝ Π |w_i|^h_i; such a prior permits no change of coordinates.

    Source: Varchenko (1976); Watanabe (2009); for two variables Phong, Stein and Sturm, "On the growth and stability of
    real-analytic functions", American Journal of Mathematics 121 (1999), and Ikromov and Müller (2011).

    Examples:
        >>> print(polynomial("x**2*y**2 + y**2*z**2 + x**2*z**2"))
        λ = 3/4, multiplicity θ = 1 (nondegenerate: 7 compact faces, none with a zero)
        >>> polynomial("(x**2 - y**3)**2").value
        Fraction(5, 12)
        >>> polynomial("(x**2 + y**2 - z**2)**2").exact
        False
    """
    terms, names = _read(expr, variables)
    prior = prior_exponents(h, len(names))
    flat = not any(prior)
    lower = Fraction(_hessian_rank(terms), 2) if flat else Fraction(0)
    crossing = _crossing(terms) if flat else None
    if crossing is not None:
        return Bound(*crossing, True, lower, "a product of powers of independent coordinates")
    # Test every compact face; where an edge fails, change coordinates along its zero and look again.
    substitutions: list[str] = []
    while True:
        value, theta = newton([list(e) for e in terms], prior)
        faces = compact_faces(terms)
        if faces is None:
            return _bounded(terms, value, flat, lower, substitutions, "the polyhedron has too many faces to test")
        verdicts = {face: _face_zeros(terms, face, names) for face in faces}
        if all(verdict is Zeros.NONE for verdict in verdicts.values()):
            counted = f"{len(faces)} compact face{'s' * (len(faces) > 1)}, none with a zero"
            return Bound(value, theta, True, lower, f"nondegenerate: {counted}", tuple(substitutions))
        if flat and len(names) == 2:
            order = _highest_order(terms, faces, value)
            if order <= 1 / value:
                theta = 2 if order == 1 / value else theta
                return Bound(value, theta, True, lower, "degenerate, in adapted coordinates", tuple(substitutions))
        sheared = _sheared(terms, value, edges(faces), names) if flat else None
        if sheared is None or len(substitutions) == _MAX_SHEARS:
            failing_face = next((face for face, verdict in verdicts.items() if verdict is Zeros.SOME), None)
            reason = (
                f"degenerate: {_factored(terms, failing_face, names)} vanishes off the coordinate planes"
                if failing_face is not None
                else "not known to be nondegenerate: no proof that every face is free of zeros"
            )
            return _bounded(terms, value, flat, lower, substitutions, reason)
        terms, text = sheared
        substitutions.append(text)


def _bounded(
    terms: Terms, value: Fraction, flat: bool, lower: Fraction, substitutions: Sequence[str], reason: str
) -> Bound:
    """The upper bound, tightened by what the Hessian alone says."""
    if flat:
        d = len(next(iter(terms)))
        value = min(value, hessian_bounds(d, int(2 * lower))[1])
    return Bound(value, None, False, lower, reason, tuple(substitutions))


def _read(expr: Any, variables: Sequence[Any] | None) -> tuple[Polynomial, list[str]]:
    """The terms {exponents: coefficient} and the names of the variables of what can be a K."""
    terms, names = read(expr, variables)
    if not terms:
        raise InputError("K must not be zero everywhere: λ is 0 then, and nothing can be learned")
    if (constant := terms.get((0,) * len(names))) is not None:
        raise InputError(f"K must vanish at the origin, got K(0) = {constant} — subtract the minimum")
    return terms, names


def _crossing(terms: Terms) -> Coefficient | None:
    """(λ, θ) if the factors g_i^p_i of K that vanish at the origin have independent gradients there: they are new
    coordinates, and K is their normal crossing times a unit."""
    import sympy

    origin = (0,) * len(next(iter(terms)))
    unit, factors = _poly(terms).factor_list()
    vanishing = []
    for factor, power in factors:
        at_origin = dict(factor.terms()).get(origin, 0)
        if at_origin:
            unit *= at_origin**power
        else:
            vanishing.append((dict(factor.terms()), power))
    axes = [tuple(int(i == j) for j in range(len(origin))) for i in range(len(origin))]
    gradients = sympy.Matrix([[factor.get(axis, 0) for axis in axes] for factor, _ in vanishing])
    if gradients.rank() < len(vanishing) or unit < 0 or any(power % 2 for _, power in vanishing):
        return None
    return normal_crossing([power // 2 for _, power in vanishing])


def _face_zeros(terms: Terms, face: frozenset[Point], names: Sequence[str]) -> Zeros:
    """The zeros off the coordinate planes of K's terms on a face, as far as they are known."""
    places = lattice_coordinates(face)
    verdict = zeros({places[e]: terms[e] for e in face})
    if verdict is Zeros.NEGATIVE or (len(face) == 1 and _negative(terms, *face)):
        raise InputError(
            f"K must not be negative, but near the origin its part {_factored(terms, face, names)} is — pass an excess "
            f"loss, such as a sum of squares"
        )
    return verdict


def _negative(terms: Terms, corner: Point) -> bool:
    """Whether the term at a corner of the polyhedron takes negative values."""
    return terms[corner] < 0 or any(e % 2 for e in corner)


def _highest_order(terms: Terms, faces: Sequence[frozenset[Point]], value: Fraction) -> int:
    """The highest multiplicity of a real zero off the axes on the edge whose inside the diagonal meets, at (1/λ, 1/λ).

    0 if it meets a corner or an unbounded edge: coordinates are adapted then whatever the other edges hold.
    """
    entry = 1 / value
    for edge in edges(faces):
        (x0, y0), (x1, y1) = min(edge), max(edge)
        if (y1 - y0) * (entry - x0) == (x1 - x0) * (entry - y0) and x0 < entry < x1:
            places = lattice_coordinates(edge)
            _, factors = _poly({places[e]: terms[e] for e in edge}).factor_list()
            return max((power for factor, power in factors if factor.count_roots()), default=0)
    return 0


def _sheared(
    terms: Terms, value: Fraction, candidates: Sequence[frozenset[Point]], names: Sequence[str]
) -> tuple[Polynomial, str] | None:
    """K after a substitution w_i → w_i + c·w^m that lowers the polyhedron's value, and the substitution in words.

    An edge whose direction is a unit vector i less m ≥ 0 has the terms w^e·p(w_i/w^m); a rational zero c of p is a
    graph w_i = c·w^m along which K is flatter than its polyhedron says.
    """
    import sympy

    symbols = [sympy.Symbol(name) for name in names]
    k = _poly(terms, names).as_expr()
    for edge in candidates:
        for i, m in _graphs(edge):
            least = min(e[i] for e in edge)
            section = _poly({(e[i] - least,): terms[e] for e in edge})
            for root in sorted(section.ground_roots(), key=abs):
                shift = root * sympy.Mul(*(x**power for x, power in zip(symbols, m, strict=True)))
                moved = sympy.Poly(sympy.expand(k.subs(symbols[i], symbols[i] + shift)), *symbols)
                new = _terms(moved)
                if root and newton([list(e) for e in new])[0] < value:
                    return new, f"{names[i]} → {symbols[i] + shift}"
    return None


def _graphs(edge: frozenset[Point]) -> Iterator[tuple[int, Point]]:
    """The pairs (i, m) for which the edge runs along the i-th unit vector less m ≥ 0."""
    difference = [b - a for a, b in zip(min(edge), max(edge), strict=True)]
    step = [x // gcd(*difference) for x in difference]
    for direction in (step, [-x for x in step]):
        for i, x in enumerate(direction):
            m = tuple(0 if i == j else -y for j, y in enumerate(direction))
            if x == 1 and min(m) >= 0:
                yield i, m


def _hessian_rank(terms: Terms) -> int:
    import sympy

    d = len(next(iter(terms)))
    matrix = sympy.zeros(d, d)
    for exponents, coefficient in terms.items():
        if sum(exponents) == 2:
            i, j = [place for place, e in enumerate(exponents) for _ in range(e)]
            matrix[i, j] += sympy.Rational(coefficient.numerator, coefficient.denominator)
            matrix[j, i] += sympy.Rational(coefficient.numerator, coefficient.denominator)
    return int(matrix.rank())


def _factored(terms: Terms, face: frozenset[Point], names: Sequence[str]) -> str:
    """The terms of K on a face as text, in factors."""
    import sympy

    return str(sympy.factor(_poly({e: terms[e] for e in face}, names).as_expr()))


def _poly(terms: Terms, names: Sequence[str] | None = None) -> Any:
    import sympy

    labels = [f"s{i}" for i in range(len(next(iter(terms))))] if names is None else names
    coefficients = {e: sympy.Rational(c.numerator, c.denominator) for e, c in terms.items()}
    return sympy.Poly(coefficients, *map(sympy.Symbol, labels))


def _terms(poly: Any) -> Polynomial:
    return {tuple(map(int, e)): Fraction(int(c.p), int(c.q)) for e, c in poly.terms()}
