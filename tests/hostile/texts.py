"""Hostile texts and numbers for the exact coefficients: formulas that are code, that never end, or that are none."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import sympy

import basinscope as bs
from hostile.outcomes import TRAP, Case, refused, works

exact = bs.exact


def _unharmed(text: str) -> Any:
    """Try a text, whose TRAP is the file that tells whether it was run."""
    return lambda folder: exact.polynomial(text.replace("TRAP", str(folder / TRAP)))


def known(text: str, value: Fraction) -> bool:
    bound = exact.polynomial(text)
    return bound.exact and bound.value == value


_CODE = [
    "__import__('os').system('touch TRAP')", "().__class__.__base__.__subclasses__()", "open('TRAP', 'w')",
    "exec('import os; os.mkdir(\"TRAP\")')", "eval('1+1')", "lambda: 0", "x if x else y", "[x for x in (1,)]", "x.__class__",
    "x = 3", "x; y", "x\nimport os", "x # y", "f'{x}'", "`touch TRAP`", "$(touch TRAP)", "x**2 and __import__('os')", "Symbol('x')",
    "sympify('x')", "x[0]", "{x}", "x@y", "x%y", "x//y", "x<<9", "x<y", "x==y", "~x", "x!", "not x", "x\0y", "x\\y", "\"x\"",
]  # fmt: skip

_ENDLESS = [
    "9**9**9**9", "2**2**2**2**2**2", "x**1000000", "(x+y)**5000", "(x+y)**100", "(x+y+z)**60", "(x+y)**99 + z", "x**2*(1+y)**400",
    "*".join(["(x+y)"] * 300), "(" * 10_000 + "x" + ")" * 10_000, "-" * 10_000 + "x", "x+" * 20_000 + "x", "9" * 100_000 + "*x",
    "x**" * 500 + "2", "1/3**4000*x", "((x+y)**20)**20", "+".join(f"x{i}" for i in range(3_000)), "x**(10**18)", "(x*y)**(2**62)",
    "+".join(f"x{i}*y{j}" for i in range(40) for j in range(40)), "(a+b+c+d+e+f)**12", "(x**500+y**499)**2",
]  # fmt: skip

_NONE = [
    "", " ", "x**", "**x", "x y", "x(y)", "sin(x)", "exp(x)", "sqrt(x)", "x-1", "1", "0", "x**2+1", "-x**2", "x**y", "x**-1", "1/x",
    "x**0.5", "x**(1/2)", "0.1*x**2", "1e5*x**2", "I*x**2", "pi*x**2", "E*x**2", "oo*x**2", "nan", "x/0", "x**2/(y-y)", "(x", "x)", "()",
    "x,y", "\u0661*x**2", "x\u00b2", "x**2 - 2*y**2", "x^2^", "١**x", "x**2" * 2_000,
]  # fmt: skip

_POLYNOMIALS = [
    *(refused(f"polynomial that is code: {text!r}", _unharmed(text)) for text in _CODE),
    *(refused(f"polynomial without end: {text[:40]!r}", _unharmed(text)) for text in _ENDLESS ),
    *(refused(f"polynomial that is none: {text[:40]!r}", _unharmed(text)) for text in _NONE),
    *(
        refused(f"polynomial that is a {type(value).__name__}: {value!r}"[:80], lambda _, v=value: exact.polynomial(v))
        for value in (None, 3, 1.5, b"x**2", ["x"], {"x": 2}, object, float("nan"), sympy.sin(sympy.Symbol("x")), sympy.Symbol("x") ** 0.5, sympy.oo)
    ),
    refused("variables of the wrong names", lambda _: exact.polynomial("x**2", ["y"])),
    refused("a variable twice", lambda _: exact.polynomial("x**2", ["x", "x"])),
    refused("variables as a number", lambda _: exact.polynomial("x**2", 3)),
    works("a square of a sum", lambda _: known("(x+y)**2", Fraction(1, 2))),
    works("the fiftieth power of a sum", lambda _: known("(x+y)**50", Fraction(1, 50))),
    works("a power of one variable", lambda _: known("x**1000", Fraction(1, 1000))),
    works("names that Python knows", lambda _: known("os**2 + exec**2", Fraction(1))),
    works("names of other alphabets", lambda _: known("α**2 + β**4", Fraction(3, 4))),
    works("deep_linear of a hundred thousand layers", lambda _: exact.deep_linear([3] * 10**5, 1)[0] > 0),
]  # fmt: skip

_EXACT: list[tuple[str, Any]] = [
    ("deep_linear of no widths", lambda: exact.deep_linear([], 1)), ("deep_linear of one width", lambda: exact.deep_linear([3], 0)),
    ("deep_linear of too large a rank", lambda: exact.deep_linear([3, 2, 3], 5)), ("deep_linear of a negative width", lambda: exact.deep_linear([3, -2, 3], 1)),
    ("deep_linear of half a unit", lambda: exact.deep_linear([3.5, 2, 3], 1)), ("deep_linear of text", lambda: exact.deep_linear("abc", 1)),
    ("deep_linear of None", lambda: exact.deep_linear(None, 1)), ("deep_linear with a NaN rank", lambda: exact.deep_linear([3, 2, 3], float("nan"))),
    ("reduced_rank of nothing", lambda: exact.reduced_rank(0, 0, 0, 0)), ("reduced_rank of text", lambda: exact.reduced_rank("a", 1, 1, 1)),
    ("regular of -1", lambda: exact.regular(-1)), ("regular of 1.5", lambda: exact.regular(1.5)), ("regular of True", lambda: exact.regular(True)),
    ("normal_crossing of nothing", lambda: exact.normal_crossing([])), ("normal_crossing of zeros", lambda: exact.normal_crossing([0, 0])),
    ("normal_crossing with a prior of no mass", lambda: exact.normal_crossing([1], h=[-1])), ("normal_crossing with too many priors", lambda: exact.normal_crossing([1], h=[0, 0])),
    ("newton of nothing", lambda: exact.newton([])), ("newton of ragged points", lambda: exact.newton([[1, 2], [1]])), ("newton of text", lambda: exact.newton("ab")),
    ("newton of a constant", lambda: exact.newton([[0, 0]])), ("newton of negative exponents", lambda: exact.newton([[-1, 2]])),
    ("brieskorn of 0", lambda: exact.brieskorn([0])), ("brieskorn of floats", lambda: exact.brieskorn([2.0])), ("curve_squared of 0", lambda: exact.curve_squared(0, 3)),
    ("quadratic unbounded below", lambda: exact.finite.quadratic([-5.0], 1, 1)), ("quadratic of NaN", lambda: exact.finite.quadratic([float("nan")], 1, 1)),
    ("quadratic at a negative nβ", lambda: exact.finite.quadratic([1.0], -1, 1)), ("quadratic of text", lambda: exact.finite.quadratic("a", 1, 1)),
    ("quadratic at γ < 0", lambda: exact.finite.quadratic([1.0], 1, -1)), ("quadratic of nothing", lambda: exact.finite.quadratic([], 1, 1)),
]  # fmt: skip

CASES: list[Case] = [*_POLYNOMIALS, *(refused(f"exact: {name}", lambda _, f=attempt: f()) for name, attempt in _EXACT)]
