"""Every limit is said once: verdict, warnings and the page on trust follow when it changes."""

import importlib.util
import math
from pathlib import Path

import pytest

import basinscope as bs
from basinscope.measures import checks, coefficient, llc_checks
from basinscope.sampling import convergence

ROOT = Path(__file__).parents[2]

SOUND = {
    "started": 8, "diverged": 0, "interrupted": False, "sampler": "hmc", "acceptance": 0.8, "rhat": 1.01, "drift": 0.0,
    "virial": 1.0, "virial_stderr": 0.001, "slope": 0.0, "nbeta": 10.0, "gamma": 1.0, "largest_eigenvalue": 0.01,
    "gamma_slope": -2.0, "rtol": 0.02,
}  # fmt: skip

# Each limit with a λ̂ = 10 ± 0.2 that passes, and a limit under which the same run would not.
LIMITS = {
    "MIN_ACCEPTANCE": ({"acceptance": 0.15}, 0.2),
    "MAX_DRIFT_STDERRS": ({"drift": 1.0}, 3.0),
    "MAX_VIRIAL_ERROR": ({"virial": 1.04}, 0.03),
    "MAX_VIRIAL_STDERRS": ({"virial": 1.3, "virial_stderr": 0.1}, 2.0),
    "MAX_STEP_BIAS": ({"slope": 0.1, "sampler": "minibatch"}, 0.05),
    "PRECISE": ({"rhat": 1.3, "stderr": 0.09}, 0.4),
    "MAX_LOCALISER_SHARE": ({"largest_eigenvalue": 0.01}, 0.1),
    "MAX_RHAT": ({"rhat": 1.05}, 1.01),
    "MAX_RHAT_OF_PRECISE": ({"rhat": 1.4, "stderr": 0.01}, 1.2),
    "MAX_RELATIVE_STDERR": ({"stderr": 0.9}, 0.05),
}


def estimate(changes):
    """λ̂ of a run without fault but for the changes."""
    seen = {**SOUND, **changes}
    stderr = seen.pop("stderr", 0.2)
    return bs.Estimate("llc", 10.0, stderr, llc_checks.llc_checks(10.0, stderr, seen), seen)


def limit_of_llc(monkeypatch, name, value):
    module = next(module for module in (llc_checks, checks, convergence) if hasattr(module, name))
    monkeypatch.setattr(module, name, value)


@pytest.fixture
def page():
    """The script that makes the tables of docs/trust.md."""
    spec = importlib.util.spec_from_file_location("docs_checks", ROOT / "docs" / "checks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", LIMITS)
def test_a_limit_moves_the_verdict_the_warnings_and_the_page(name, page, monkeypatch):
    changes, other = LIMITS[name]
    before, table = estimate(changes), page.tables()["llc"]
    assert before.verdict == "ok", before.warnings
    limit_of_llc(monkeypatch, name, other)
    after = estimate(changes)
    assert after.verdict == "doubtful"
    assert len(after.warnings) == 1
    assert [check.wanted for check in after.checks] != [check.wanted for check in before.checks]
    assert page.tables()["llc"] != table


MINIMUM = {"drop": 0.9, "drop_stderr": 0.01, "basin": 10.9, "smallest_eigenvalue": -0.05, "nbeta": 10.0, "gamma": 1.0}


@pytest.mark.parametrize(
    ("name", "other", "answer"),
    [("MAX_DROP_SHARE", 0.08, "no"), ("MAX_DOWNWARD_CURVATURE", 0.1, "no"), ("MAX_DROP_ERROR", 5e-4, "unknown")],
)
def test_a_limit_moves_whether_it_is_a_minimum_and_the_page(name, other, answer, page, monkeypatch):
    table = page.tables()["minimum"]
    assert coefficient.at_minimum(10.0, MINIMUM) == "yes"
    monkeypatch.setattr(coefficient, name, other)
    assert coefficient.at_minimum(10.0, MINIMUM) == answer
    if answer == "no":
        assert page.tables()["minimum"] != table


# The limits of the other measures, by the module that says them.
OTHER_LIMITS = {
    "curvature.averages": ("MAX_ROUNDING_OF_RTOL", "MAX_STDERR_OF_RTOL"),
    "curvature.calibration": ("CALIBRATED_RATIOS",),
    "curvature.sandwich": ("MAX_DECREMENT_SHARE",),
    "measures.checks": ("MAX_RELATIVE_STDERR",),
    "measures.evidence": ("MAX_DRAW_BIAS",),
    "measures.gap": ("MAX_PARAMETERS_PER_SAMPLE",),
    "measures.psis": ("MAX_SHAPE",),
    "measures.selftest": ("MAX_DOUBTFUL_ERROR", "MAX_ERROR", "MAX_ERROR_STDERRS", "CHANCE_STDERRS"),
    "measures.symmetries": ("MAX_EXCESS_STDERRS",),
    "measures.temperature": ("MAX_DIVERGENT_SHARE", "MIN_R_SQUARED", "MAX_STDERR_OF_PRECISE"),
    "measures.trace": ("MAX_STDERR_OF_RTOL",),
    "measures.volume": ("MAX_CHI_SQUARED", "MAX_MISSED", "MIN_BETTER_FIT"),
    "measures.waic": ("MAX_DESCENT", "MAX_IRREGULARITY", "MAX_VARIANCE"),
    "runs.chains": ("MIN_AGREEMENT",),
    "sampling.convergence": ("MAX_RHAT", "MAX_RHAT_OF_PRECISE"),
}


@pytest.mark.parametrize(("path", "name"), [(path, name) for path, names in OTHER_LIMITS.items() for name in names])
def test_the_page_shows_every_limit_of_the_other_measures(path, name, page, monkeypatch):
    module = importlib.import_module(f"basinscope.{path}")
    before, value = page.tables()["others"], getattr(module, name)
    monkeypatch.setattr(module, name, (0.4, 4.0) if isinstance(value, tuple) else 0.7 * value)
    assert page.tables()["others"] != before


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
    shaky = estimate(changes)
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
