"""Every limit is said once: verdict, warnings and the page on trust follow when it changes."""

import ast
import importlib
import importlib.util
import inspect
import math
import sys
from pathlib import Path

import numpy as np
import pytest

import basinscope as bs
from basinscope.measures import coefficient as minimum
from basinscope.measures import llc_checks
from basinscope.verdict import Check
from limits import MINIMUM, OF_LLC, OF_MINIMUM, OF_OTHERS, SOUND, coefficient, set_limit

ROOT = Path(__file__).parents[2]
PACKAGE = Path(bs.__file__).parent


@pytest.fixture
def page():
    """The script that makes the tables of docs/trust.md."""
    spec = importlib.util.spec_from_file_location("docs_checks", ROOT / "docs" / "checks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", OF_LLC)
def test_a_limit_moves_the_verdict_the_warnings_and_the_page(name, page, monkeypatch):
    changes, other = OF_LLC[name]
    before, table = coefficient(changes), page.tables()["llc"]
    assert before.verdict == "ok", before.warnings
    set_limit(monkeypatch, name, other)
    after = coefficient(changes)
    assert after.verdict == "doubtful"
    assert len(after.warnings) == 1
    assert [check.wanted for check in after.checks] != [check.wanted for check in before.checks]
    assert page.tables()["llc"] != table


@pytest.mark.parametrize("name", OF_MINIMUM)
def test_a_limit_moves_whether_it_is_a_minimum_and_the_page(name, page, monkeypatch):
    table, (other, answer) = page.tables()["minimum"], OF_MINIMUM[name]
    assert minimum.at_minimum(10.0, MINIMUM) == "yes"
    monkeypatch.setattr(minimum, name, other)
    assert minimum.at_minimum(10.0, MINIMUM) == answer
    if answer == "no":
        assert page.tables()["minimum"] != table


@pytest.mark.parametrize(("path", "name"), [(path, name) for path, names in OF_OTHERS.items() for name in names])
def test_the_page_shows_every_limit_of_the_other_measures(path, name, page, monkeypatch):
    module = importlib.import_module(f"basinscope.{path}")
    before, value = page.tables()["others"], getattr(module, name)
    monkeypatch.setattr(module, name, (0.4, 4.0) if isinstance(value, tuple) else 0.7 * value)
    assert page.tables()["others"] != before


def made_checks():
    """Where the package makes a check that need not pass: file, line, and the function around it."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef):
                for call in ast.walk(function):
                    made = isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Check"
                    passed = made and len(call.args) > 3 and getattr(call.args[3], "value", None) is True
                    if made and not passed:
                        yield path, call.lineno, function


def test_the_page_shows_every_check_of_the_package(page, monkeypatch):
    seen, make = set(), Check.__init__

    def noted(self, *given, **named):
        caller = inspect.currentframe().f_back
        seen.add((caller.f_code.co_filename, caller.f_lineno))
        make(self, *given, **named)

    monkeypatch.setattr(Check, "__init__", noted)
    page.tables()
    assert not [f"{path}:{line}" for path, line, _ in made_checks() if (str(path), line) not in seen]


def test_no_limit_of_a_check_goes_untried():
    tried = {*OF_LLC, *OF_MINIMUM, *(name for names in OF_OTHERS.values() for name in names)}
    names = set()
    for path, _, function in made_checks():
        module = sys.modules["basinscope." + ".".join(path.relative_to(PACKAGE).with_suffix("").parts)]
        for part in ast.walk(function):
            name = part.id if isinstance(part, ast.Name) else part.attr if isinstance(part, ast.Attribute) else ""
            holder = getattr(module, getattr(getattr(part, "value", None), "id", ""), module)
            if name.isupper() and np.asarray(getattr(holder, name, "")).dtype.kind in "if":
                names.add(name)
    assert len(names) > 20
    assert names <= tried, names - tried


def test_the_page_on_trust_has_the_tables_of_the_checks(page):
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.filled(text) == text, "run python docs/checks.py"
    assert "| split-R̂ between chains | below 1.1" in text


@pytest.mark.parametrize(
    ("changes", "trouble", "verdict"),
    [
        ({"interrupted": True}, "partial", "doubtful"),
        ({"diverged": 1}, "diverged chains", "doubtful"),
        ({"gamma_slope": -9.5}, "prior-dominated", "doubtful"),
        ({"virial": 0.5}, "not in equilibrium", "doubtful"),
        ({"stderr": math.nan}, "imprecise", "doubtful"),
        ({"rhat": math.nan}, "not converged", "doubtful"),
    ],
)
def test_a_verdict_always_has_a_check_that_did_not_pass(changes, trouble, verdict):
    shaky = coefficient(changes)
    assert shaky.verdict == verdict
    assert [warning.partition(":")[0] for warning in shaky.warnings] == [trouble]
    assert [check.passed for check in shaky.checks].count(False) == 1


def test_a_value_that_is_not_positive_has_failed():
    lost = llc_checks.llc_checks(-1.0, 0.1, SOUND)
    assert bs.Estimate("llc", -1.0, 0.1, lost).verdict == "failed"
    assert "lower loss" in bs.Estimate("llc", -1.0, 0.1, lost).warnings[0]
    assert bs.Estimate("llc", math.nan, 0.1, llc_checks.llc_checks(math.nan, 0.1, SOUND)).verdict == "failed"


def test_far_below_zero_no_more_draws_are_asked_for():
    names = [check.name for check in llc_checks.llc_checks(-10.0, 2.0, SOUND)]
    assert "standard error" not in names
    assert "standard error" in [check.name for check in llc_checks.llc_checks(-1.0, 2.0, SOUND)]


def test_below_a_displaced_point_the_basin_is_judged():
    displaced = {**SOUND, "basin": 50.0}
    assert bs.Estimate("llc", -300.0, 1.0, llc_checks.llc_checks(-300.0, 1.0, displaced)).verdict == "ok"
    shaky = bs.Estimate("llc", -300.0, 6.0, llc_checks.llc_checks(-300.0, 6.0, displaced))
    assert shaky.warnings == ("imprecise: the standard error is 12% of the basin — raise budget",)
    lower = bs.Estimate("llc", -300.0, 1.0, llc_checks.llc_checks(-300.0, 1.0, {**SOUND, "basin": -2.0}))
    assert lower.verdict == "failed"
    assert lower.warnings[0].startswith("not in a basin")
