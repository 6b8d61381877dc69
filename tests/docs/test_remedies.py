"""Every warning names an option that exists where it is read: of the measure that warned, or of the whole report."""

import ast
import importlib.util
import inspect
import re

import pytest
import typer

import basinscope as bs
from basinscope.cli import app
from basinscope.measures import remedies
from documented import ROOT

spec = importlib.util.spec_from_file_location("checks_page", ROOT / "docs" / "checks.py")
page = importlib.util.module_from_spec(spec)
spec.loader.exec_module(page)

MADE = [("llc", check) for check in page.of_llc()] + list(page.of_others())
FUNCTIONS = {
    "tic by Lanczos": ["tic"],
    "distances": ["parameter_error", "loss_distance"],
    "parts on a cluster": [],
    "measured_gap": ["gap"],
}
ENGLISH = {"only", "order", "data", "a", "values", "draws_per_chain", "model", "loss"}
# Places of the remedies.
MAKERS = {"Check": 4, "check_mixing": 1, "check_precision": 3, "check_rounding": 2, "check_survival": 2}


def parameters(name):
    return set(inspect.signature(getattr(bs, name)).parameters)


MEASURES = [name for name in bs.__all__ if inspect.isfunction(getattr(bs, name))]
OPTIONS = set().union(*map(parameters, MEASURES)) - ENGLISH - {"land", "progress", "seed"}


def named(remedy):
    """Words that are options of some measure, or look like one; what calls name themselves does not count."""
    words = re.findall(r"[a-z][a-z_]*(?==)?", re.sub(r"bs\.\w+\([^)]*\)", "", remedy))
    return {word for word in words if word in OPTIONS or "_" in word}


def functions(measures):
    """The measures that a row of the page on trust names; what stands in parentheses is how they were run."""
    return [name for each in re.sub(r" \(.*?\)", "", measures).split(", ") for name in FUNCTIONS.get(each, [each])]


@pytest.mark.parametrize(("measures", "check"), MADE, ids=lambda value: getattr(value, "name", value))
def test_a_remedy_names_options_of_the_measures_that_warn(measures, check):
    for measure in functions(measures):
        assert named(check.remedy) <= parameters(measure), check.warning


@pytest.mark.parametrize("check", [check for _, check in MADE if not check.passed], ids=lambda check: check.name)
def test_a_warning_says_what_to_do(check):
    assert check.remedy


@pytest.mark.parametrize(("measures", "check"), MADE, ids=lambda value: getattr(value, "name", value))
def test_in_a_report_an_option_of_one_measure_is_named_with_its_call(measures, check):
    for measure in functions(measures):
        name = {"soft_rank": "half_soft_rank", "trace": "hessian_trace"}.get(measure, measure)
        if name in remedies._MEASURES:
            (worded,) = remedies.followable(name, bs.Estimate(name, 1.0, 0.1, (check,))).checks
            beyond = named(check.remedy) - set(remedies.OPTIONS)
            call = f"bs.{measure}(land, "
            assert (call in worded.remedy) == bool(beyond)
            assert all(f"{option}=…" in worded.remedy for option in beyond)


def test_the_options_of_a_whole_measurement_are_those_of_measure_and_of_the_command_line():
    command = typer.main.get_command(app).commands["measure"]
    flags = {option.name for option in command.params}
    assert set(remedies.OPTIONS) <= parameters("measure")
    assert set(remedies.OPTIONS) <= flags


def literals(node):
    """The texts that a remedy's expression may come out as; other expressions are passed on from elsewhere."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return {node.value}
    return literals(node.body) | literals(node.orelse) if isinstance(node, ast.IfExp) else set()


def in_the_code():
    """Every remedy that a check in the sources is made with."""
    for module in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(module.read_text())):
            name = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
            if name in MAKERS:
                given = [keyword.value for keyword in node.keywords if keyword.arg in ("remedy", "few")]
                for part in (*node.args[MAKERS[name] : MAKERS[name] + 1], *given):
                    yield from ((module.name, remedy) for remedy in literals(part))


@pytest.mark.parametrize(("module", "remedy"), sorted(set(in_the_code())))
def test_every_remedy_in_the_code_names_options_that_exist(module, remedy):
    assert named(remedy) <= OPTIONS
