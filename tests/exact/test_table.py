"""Every known coefficient of the table, by the function that claims it."""

import csv
import json
from fractions import Fraction
from pathlib import Path

import pytest

from basinscope import exact

TABLE = Path(__file__).parent / "data" / "learning_coefficients.csv"
ROWS = list(csv.DictReader(TABLE.read_text().splitlines()))

CROSSING = exact.normal_crossing([1, 1])
BY_PARTS = {
    ("(w0w1)^2", "(w2w3)^2"): exact.sum_rule(CROSSING, CROSSING),
    ("(w0w1)^2", "w2^2"): exact.sum_rule(CROSSING, exact.regular(1)),
    ("(w0^2+w1^2)^2", "w2^2"): exact.product_rule(exact.power_rule(exact.regular(2), 2), exact.regular(1)),
}
BY_POINT = {
    (0, 0): exact.power_rule(exact.power_rule(exact.regular(2), 2), 2),  # |w|^8 near the isolated point
    (1, 0): exact.regular(1),
}
FUNCTIONS = {
    "regular": lambda p: exact.regular(p["d"]),
    "normal_crossing": lambda p: exact.normal_crossing(p["k"], p["h"]),
    "brieskorn": lambda p: exact.brieskorn(p["p"]),
    "sum_rule": lambda p: BY_PARTS[tuple(p["parts"])],
    "product_rule": lambda p: BY_PARTS[tuple(p["parts"])],
    "newton": lambda p: exact.newton(p["exponents"]),
    "curve_squared": lambda p: exact.curve_squared(p["p"], p["q"]),
    "two_component": lambda p: BY_POINT[tuple(p["at"])],
    "tanh_one_input": lambda p: exact.tanh_one_input(p["hidden"]),
    "normal_mixture": lambda p: exact.normal_mixture(2 if "c" in p["learner"] else 1),
    "deep_linear": lambda p: exact.deep_linear(p["H"], p["r"], p["output_bias"]),
    "two_layer_linear_local": lambda p: exact.deep_linear_local(
        [p["M"], p["H"], p["N"]], p["r"], (p["rankA"], p["rankB"])
    ),
    "relu_kink_pair": lambda p: exact.relu_kink_pair("slopes" in p["free"]),
}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['model']}-{row['params']}")
def test_the_function_gives_the_known_coefficient(row):
    value, theta = FUNCTIONS[row["model"]](json.loads(row["params"]))
    assert (value, theta) == (Fraction(row["lambda"]), int(row["theta"]))
    assert type(value) is Fraction
    assert type(theta) is int


# At a kink K is not analytic, and its third-order term exceeds what the bound allows.
@pytest.mark.parametrize("row", [row for row in ROWS if row["hessian_rank"] and row["model"] != "relu_kink_pair"])
def test_the_coefficient_lies_between_the_hessian_bounds(row):
    low, high = exact.hessian_bounds(int(row["d"]), int(row["hessian_rank"]))
    assert low <= Fraction(row["lambda"]) <= high <= Fraction(int(row["d"]), 2)
