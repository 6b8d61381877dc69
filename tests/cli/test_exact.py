import json
import subprocess
import sys
from fractions import Fraction

import pytest
from typer.testing import CliRunner

from basinscope import __version__, exact
from basinscope.cli import app


def run(*words):
    return CliRunner().invoke(app, [*map(str, words)])


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("deep-linear 10 5 10 --rank 3", exact.deep_linear([10, 5, 10], 3)),
        ("deep-linear 1 5 7 --rank 1 --bias", exact.deep_linear([1, 5, 7], 1, bias=True)),
        ("deep-linear 2 2 2 --rank 0 --local 2 0", exact.deep_linear_local([2, 2, 2], 0, (2, 0))),
        (
            "deep-linear 3 2 2 --rank 0 --local 2 0 --bias",
            exact.sum_rule(exact.deep_linear_local([3, 2, 2], 0, (2, 0)), exact.regular(3)),
        ),
        ("reduced-rank 4 2 3 --rank 1", exact.reduced_rank(4, 2, 3, 1)),
        ("normal-crossing 1 1", exact.normal_crossing([1, 1])),
        ("normal-crossing 1 1 --prior 1,-1/2", exact.normal_crossing([1, 1], [1, Fraction(-1, 2)])),
        ("newton 2,2,0 0,2,2 2,0,2", exact.newton([[2, 2, 0], [0, 2, 2], [2, 0, 2]])),
        ("relu 2 1 3,1 2,0 --output-bias", exact.relu_three_layer(2, 1, [(3, 1), (2, 0)], output_bias=True)),
        ("relu 2 1 --always-active 3,1", exact.relu_three_layer(2, 1, [], always_active=(3, 1))),
        ("tanh 4", exact.tanh_one_input(4)),
        ("regular 5", exact.regular(5)),
    ],
)
def test_coefficients_as_json(command, expected):
    result = run("exact", *command.split(), "--json")
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert answer["model"] == command.split()[0].replace("-", "_")
    assert (answer["lambda"], answer["multiplicity"]) == (str(expected[0]), expected[1])
    assert answer["value"] == float(expected[0])


def test_polynomials_say_whether_they_are_exact():
    answer = json.loads(run("exact", "polynomial", "(x**2 - y**3)**2", "--json").stdout)
    assert (answer["lambda"], answer["multiplicity"], answer["exact"]) == ("5/12", 1, True)
    bound = run("exact", "polynomial", "(a*b + c*d)**2")
    assert bound.stdout.startswith("λ ≤ 1")
    refused = run("exact", "polynomial", "x**3")
    assert refused.exit_code != 0


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("quadratic 1 0.1 --nbeta 100 --gamma 1", exact.finite.quadratic([1, 0.1], 100, 1)),
        ("quadratic 1 0.1 --nbeta 9 --gamma 1 --gradient 0,0.2", exact.finite.quadratic([1, 0.1], 9, 1, [0, 0.2])),
        ("hyperbola --nbeta 5453 --gamma 1", exact.finite.hyperbola(5453, 1)),
        ("monomial 1 2 --nbeta 100", exact.finite.monomial([1, 2], 100)),
        ("monomial 1 2 --nbeta 100 --prior 0,1", exact.finite.monomial([1, 2], 100, [0, 1])),
        (
            "monomial-localized 1 1 --nbeta 10 --gamma 2 --scale 0.5",
            exact.finite.monomial_localized([1, 1], 10, 2, 0.5),
        ),
        ("matrix-product 2 2 3 --nbeta 100 --gamma 1", exact.finite.matrix_product(2, 2, 3, 100, 1)),
    ],
)
def test_finite_values_as_json(command, expected):
    result = run("exact", "finite", *command.split(), "--json")
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert answer["lambda_t"] == expected
    assert answer["heat_capacity"] > 0


def test_a_sentence_for_people():
    output = run("exact", "deep-linear", 2, 2, 2, "--rank", 0).stdout
    assert output == "λ = 3/2 (1.5), multiplicity θ = 1   deep linear: widths 2 2 2, rank 0\n"
    output = run("exact", "finite", "hyperbola", "--nbeta", 5453, "--gamma", 1).stdout
    assert output == "λ_t = 0.4010961693, t²Var = 0.3913509792   hyperbola: nbeta 5453, gamma 1\n"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("deep-linear 10 5 10 --rank 7", "error: rank must be at most widths[1] = 5, got 7"),
        ("deep-linear 2 2 2 --rank 2 --local 1 1", "no such point exists"),
        ("newton 2,x", "error: a monomial must be numbers separated by commas, got '2,x'"),
        ("normal-crossing 1 1 --prior 1/0,0", "error: --prior must be numbers separated by commas"),
        ("relu 2 1 3", "error: a group must be UNITS,RANK, got '3'"),
        ("relu 2 1", "error: groups is empty"),
        ("finite hyperbola --nbeta -1 --gamma 1", "error: nbeta must be positive, got -1.0"),
        ("deep-linear 2 2", "Missing option '--rank'"),
        ("tanh many", "Invalid value for 'HIDDEN'"),
    ],
)
def test_bad_input_is_one_message_and_exit_code_two(command, message):
    result = run("exact", *command.split())
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.output
    assert result.stdout == ""


def test_version():
    assert run("--version").stdout.strip() == __version__


def test_exact_commands_load_neither_torch_nor_numpy():
    code = (
        "import sys; from basinscope.cli import app; app(['exact', 'regular', '3'], standalone_mode=False); "
        "print(sorted({'torch', 'numpy', 'scipy'} & set(sys.modules)))"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.splitlines()[-1] == "[]"
