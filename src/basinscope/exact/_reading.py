"""A polynomial from its text or from a sympy expression, by a grammar that knows sums, products and powers alone.

    sum     := product (("+" | "-") product)*
    product := signed (("*" | "/") signed)*
    signed  := ("+" | "-") signed | power
    power   := atom (("**" | "^") signed)?
    atom    := whole number | name | "(" sum ")"

Text is never evaluated: what the grammar does not know is refused, and so is what would be too large to write out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any, NoReturn

from ..errors import InputError
from ._checks import items
from ._faces import Point

Polynomial = dict[Point, Fraction]  # {exponents: coefficient}, without zeros

_TOKEN = re.compile(r"\s*(?:(?P<number>\.?\d[\d.]*)|(?P<name>[^\W\d]\w*)|(?P<sign>\*\*|[-+*/^()]))")
_CONSTANTS = ("E", "I", "pi")  # what sympy reads as numbers
_MAX_CHARACTERS = 20_000
_MAX_DEPTH = 50  # of brackets, signs and towers of powers
_MAX_DEGREE = 1_000
_MAX_MIXED_DEGREE = 100  # of several terms
_MAX_SIZE = 3_000  # terms times degree
_MAX_TERMS = 500
_MAX_BITS = 4_000  # of a numerator or a denominator
_MAX_PRODUCTS = 200_000  # of two terms, in writing K out


def read(expr: Any, variables: Sequence[Any] | None) -> tuple[Polynomial, list[str]]:
    """The terms {exponents: coefficient} of `expr` and the names of its variables.

    Examples:
        >>> read("(x - y/2)^2", None)[0]
        {(2, 0): Fraction(1, 1), (1, 1): Fraction(-1, 1), (0, 2): Fraction(1, 4)}
    """
    if isinstance(expr, str):
        tokens = _tokens(expr)
        variable_names = {name for (name, _), (after, _) in pairwise(tokens) if _names(name, after)}
    else:
        expr = _sympy(expr)
        variable_names = {symbol.name for symbol in expr.free_symbols}
        if len(variable_names) < len(expr.free_symbols):
            raise InputError(
                f"variables need names of their own, got several of one name among {sorted(variable_names)}"
            )
    names = sorted(variable_names) if variables is None else list(map(str, items("variables", variables)))
    if not names:
        raise InputError(f"K must depend on a variable, got {_short(expr)}")
    if len(set(names)) < len(names):
        raise InputError(f"variables must differ, got {names} — name each once")
    algebra = _Algebra(_short(expr), names)
    terms = _Text(tokens, algebra).read() if isinstance(expr, str) else _walk(expr, algebra)
    algebra.refuse_endless(terms)
    return terms, names


def _short(expr: Any) -> str:
    excerpt = repr(expr)
    return excerpt if len(excerpt) <= 80 else f"{excerpt[:80]}…"


class _Algebra:
    """Sums, products and powers of polynomials in given variables, of bounded size."""

    def __init__(self, excerpt: str, names: Sequence[str]) -> None:
        self.excerpt, self.names = excerpt, names
        self.products = 0

    def refuse(self, reason: str) -> NoReturn:
        raise InputError(f"expr must be a polynomial in {', '.join(self.names)}: {reason}, got {self.excerpt}")

    def irrational(self, reason: str) -> NoReturn:
        raise InputError(
            f"coefficients must be rational: {reason}, got {self.excerpt} — write decimals as fractions, name every "
            f"variable"
        )

    def _large(self, reason: str) -> NoReturn:
        raise InputError(
            f"expr is too large to be written out: {reason}, got {self.excerpt} — expected at most degree "
            f"{_MAX_DEGREE:,}, {_MAX_TERMS} terms and coefficients of {_MAX_BITS * 3 // 10:,} digits"
        )

    def refuse_endless(self, terms: Polynomial) -> None:
        """Refuse what has several terms and too high a degree to be factored in seconds."""
        degree = _degree(terms)
        if len(terms) > 1 and (degree > _MAX_MIXED_DEGREE or degree * len(terms) > _MAX_SIZE):
            raise InputError(
                f"expr is too large to be factored: {len(terms)} terms and degree {degree}, got {self.excerpt} — "
                f"expected a degree up to {_MAX_MIXED_DEGREE}, and terms times degree up to {_MAX_SIZE:,}"
            )

    def constant(self, value: Fraction) -> Polynomial:
        return {(0,) * len(self.names): value} if value else {}

    def number(self, digits: str) -> Polynomial:
        if not (digits.isascii() and digits.isdigit()):
            self.irrational(f"{digits} is no whole number")
        if len(digits) > _MAX_BITS * 3 // 10:
            self._large(f"a number of {len(digits):,} digits")
        return self.constant(Fraction(int(digits)))

    def variable(self, name: str) -> Polynomial:
        if name in self.names:
            return {tuple(int(name == variable) for variable in self.names): Fraction(1)}
        self.irrational(f"{name} is no variable")

    def add(self, total: Polynomial, other: Polynomial, sign: int = 1) -> None:
        """Add to `total`, in place."""
        for exponents, coefficient in other.items():
            value = total.get(exponents, 0) + sign * coefficient
            if value:
                total[exponents] = self._bounded(value)
            else:
                del total[exponents]
        if len(total) > _MAX_TERMS:
            self._large(f"more than {_MAX_TERMS} terms")

    def multiply(self, a: Polynomial, b: Polynomial) -> Polynomial:
        self.products += len(a) * len(b)
        if self.products > _MAX_PRODUCTS:
            self._large(f"more than {_MAX_PRODUCTS:,} products of terms")
        if (degree := _degree(a) + _degree(b)) > _MAX_DEGREE:
            self._large(f"degree {degree:,}")
        total: Polynomial = {}
        for e, c in a.items():
            self.add(total, {tuple(map(sum, zip(e, f, strict=True))): c * d for f, d in b.items()})
        return total

    def divide(self, a: Polynomial, b: Polynomial) -> Polynomial:
        if not b:
            self.refuse("it divides by zero")
        if _degree(b):
            self.refuse("it divides by what is not a number")
        return self.multiply(a, self.constant(1 / next(iter(b.values()))))

    def power(self, base: Polynomial, exponent: Polynomial) -> Polynomial:
        value = next(iter(exponent.values()), Fraction(0))
        if _degree(exponent) or value < 0 or value.denominator > 1:
            self.refuse("exponents must be whole numbers from 0 up")
        if value > _MAX_DEGREE:
            self._large(f"an exponent above {_MAX_DEGREE:,}")
        result, rest = self.constant(Fraction(1)), int(value)
        while rest:
            result = self.multiply(result, base) if rest % 2 else result
            rest //= 2
            base = self.multiply(base, base) if rest else base
        return result

    def _bounded(self, value: Fraction) -> Fraction:
        if max(value.numerator.bit_length(), value.denominator.bit_length()) > _MAX_BITS:
            self._large("a coefficient of too many digits")
        return value


def _degree(terms: Polynomial) -> int:
    return max(map(sum, terms), default=0)


# ---------------------------------------------------------------------- text


def _names(token: str, after: str) -> bool:
    """Whether a token names a variable, seen with the one after it."""
    return token.isidentifier() and token not in _CONSTANTS and after != "("


def _tokens(text: str) -> list[tuple[str, int]]:
    """The tokens of a text with where they start; the last one is empty."""
    if len(text) > _MAX_CHARACTERS:
        raise InputError(f"expr must be a polynomial of at most {_MAX_CHARACTERS:,} characters, got {len(text):,}")
    tokens, place, end = [], 0, len(text.rstrip())
    while place < end:
        match = _TOKEN.match(text, place)
        if match is None:
            wrong = text[place:].lstrip()[0]
            raise InputError(
                f"expr must be a polynomial of numbers, names, + - * / ** ^ and round brackets, got {wrong!r} in "
                f"{_short(text)}"
            )
        assert match.lastgroup is not None
        tokens.append((match[match.lastgroup], match.start(match.lastgroup)))
        place = match.end()
    return [*tokens, ("", end)]


class _Text:
    """Recursive descent through the grammar."""

    def __init__(self, tokens: Sequence[tuple[str, int]], algebra: _Algebra) -> None:
        self.tokens, self.algebra = tokens, algebra
        self.place = self.depth = 0

    def read(self) -> Polynomial:
        result = self._sum()
        if self._next:
            self._unexpected()
        return result

    @property
    def _next(self) -> str:
        return self.tokens[self.place][0]

    def _take(self, *signs: str) -> str:
        """The next token if it is one of `signs`, else nothing."""
        token = self._next if self._next in signs else ""
        self.place += bool(token)
        return token

    def _unexpected(self) -> NoReturn:
        token, start = self.tokens[self.place]
        self.algebra.refuse(f"unexpected {token!r} at character {start + 1}" if token else "it ends too early")

    def _sum(self) -> Polynomial:
        total = dict(self._product())
        while sign := self._take("+", "-"):
            self.algebra.add(total, self._product(), 1 if sign == "+" else -1)
        return total

    def _product(self) -> Polynomial:
        result = self._signed()
        while sign := self._take("*", "/"):
            result = (self.algebra.multiply if sign == "*" else self.algebra.divide)(result, self._signed())
        return result

    def _signed(self) -> Polynomial:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            self.algebra.refuse(f"brackets, signs or powers are nested more than {_MAX_DEPTH} deep")
        sign = self._take("+", "-")
        result = self._signed() if sign else self._power()
        self.depth -= 1
        return {exponents: -c for exponents, c in result.items()} if sign == "-" else result

    def _power(self) -> Polynomial:
        base = self._atom()
        return self.algebra.power(base, self._signed()) if self._take("**", "^") else base

    def _atom(self) -> Polynomial:
        if self._take("("):
            inner = self._sum()
            if not self._take(")"):
                self._unexpected()
            return inner
        token = self._next
        if not token or not (token.isidentifier() or token[0] in ".0123456789"):
            self._unexpected()
        self.place += 1
        if not token.isidentifier():
            return self.algebra.number(token)
        if self._next == "(":
            self.algebra.refuse(f"{token}(…) is a function")
        return self.algebra.variable(token)


# ---------------------------------------------------------------------- sympy


def _sympy(expr: Any) -> Any:
    import sympy

    try:
        parsed = sympy.sympify(expr, strict=True)  # which reads no text
    except (sympy.SympifyError, AttributeError, TypeError) as error:
        raise InputError(f"expr must be a polynomial, got {_short(expr)} — a sympy expression or its text") from error
    return parsed.as_expr() if isinstance(parsed, sympy.Poly) else parsed


def _walk(expr: Any, algebra: _Algebra) -> Polynomial:
    """The terms of a sympy expression."""
    import sympy

    if isinstance(expr, sympy.Symbol):
        return algebra.variable(expr.name)
    if isinstance(expr, sympy.Rational) and expr.is_finite:
        return algebra.constant(Fraction(int(expr.p), int(expr.q)))
    if isinstance(expr, sympy.Add):
        total: Polynomial = {}
        for part in expr.args:
            algebra.add(total, _walk(part, algebra))
        return total
    if isinstance(expr, sympy.Mul):
        result = algebra.constant(Fraction(1))
        for part in expr.args:
            result = algebra.multiply(result, _walk(part, algebra))
        return result
    if isinstance(expr, sympy.Pow):
        return algebra.power(*(_walk(part, algebra) for part in expr.args))
    if not getattr(expr, "free_symbols", True):
        algebra.irrational(f"{expr} is not rational")
    algebra.refuse(f"{type(expr).__name__} is neither a sum, a product nor a power")
