"""Pages of benchmarks say what was found first, and count it rightly."""

import auditing
import budgets
import coverage
import displaced
import influence
import numpy as np
import pytest
from truth.suite import COVERAGE

from chance import assert_within


def row(seed, value, stderr=0.05, sampler="hmc", verdict="ok"):
    return coverage.Row(
        sampler, COVERAGE[0].name, seed, 12, 1.0, value, stderr, abs(value - 1.0) < 1.6 * stderr, verdict, 1.5
    )


def test_coverage_counts_intervals_and_wrong_verdicts():
    rows = [row(0, 1.01), row(1, 1.2), row(2, 0.95, 0.01), row(3, 1.3, verdict="doubtful")]
    met = {goal.text: goal for goal in coverage.goals(rows)}
    assert met["90 % intervals of `hmc` cover 84 to 97 %"].reached == pytest.approx(0.25)
    assert met["no `ok` more than 10% off"].reached == 1
    far = met["at most 1 % of `ok` more than 3 standard errors and 3% off"]
    assert far.reached == pytest.approx(2 / 3)
    assert "25.0% of 4 intervals of 90 % hold the exact value" in coverage.page(rows).splitlines()[2]


def test_budgets_are_kept_or_a_larger_cost_was_named():
    def called(budget, least, processor):
        return budgets.Row("LeNet-5", 61706, 2000, budget, "hmc", 4, least, 99.0, processor, processor, 2.0, 0.1, "ok")

    rows = [called(3.0, 0.5, 3.3), called(3.0, 6.0, 6.6), called(10.0, 0.5, 13.0)]
    assert [round(each.over, 2) for each in rows] == [1.1, 1.1, 1.3]
    text = budgets.page(rows).splitlines()[2]
    assert text.startswith("2 of 3 calls took at most 1.2 times their budget")
    assert "The largest ratio is 1.30" in text


def test_displaced_points_lead_with_the_worst_of_them():
    rows = [
        displaced.Row("a", 3, 1.0, "ok", "no", 2.02, 0.1, 2.0, 0.0, 5.0, 0.1, 5.0),
        displaced.Row("b", 3, 1.0, "ok", "no", 1.94, 0.1, 2.0, 0.0, 5.1, 0.1, 5.0),
    ]
    first = displaced.markdown(rows, None, None).splitlines()[2]
    assert first.startswith("On 2 points off their minimum, basins are at most 3.0% and drops at most 2.00% away")


def test_the_auditor_is_counted_on_sound_chains_and_on_defects_apart():
    def said(tool, kind, right, *words):
        return auditing.Row(tool, kind, 0, 5.0, 4.0, 4.2, "ok" if right else "doubtful", "; ".join(words), right)

    one, two = auditing.TOOLS
    rows = [
        said(one, "sound", True), said(two, "sound", True), said(two, "drift", True, "drift", "chains disagree"),
        said(one, "step-size bias", False),
    ]  # fmt: skip
    text = auditing.page(rows)
    first = text.splitlines()[2]
    assert "names the defect in 1 of 2 runs of devinterp that have one, and passes 2 of 2 sound ones" in first
    assert f"| drift | {two} | 1 of 1 | 5 | 4.2 | chains disagree |" in text


def test_the_auditor_is_told_of_the_noise_that_batches_have():
    problem = auditing.regression()
    assert auditing.facts_for(problem, auditing.SAMPLES)["noise_trace"] == 0.0
    assert auditing.facts_for(problem, 1)["noise_trace"] == pytest.approx(problem.facts["noise_trace"], rel=0.01)
    assert 0 < problem.exact < auditing.INPUTS / 2


def test_influences_and_susceptibilities_are_compared_each_with_its_own():
    rows = [
        influence.Row(method, passes, 0, error)
        for method, passes, error in (
            ("bs.influence, draws", 100.0, 0.1), ("bs.susceptibilities", 100.0, 0.2),
            ("devinterp 2.0.1 influence, ε = 0.1/stiffest", 400.0, 0.1),
            ("devinterp 2.0.1 susceptibilities, ε = 0.1/stiffest", 100.0, 0.1),
        )
    ]  # fmt: skip
    text = influence.page(rows)
    first = text.splitlines()[2]
    assert "10.0% off with 400, and would take 4 times as many passes as ours" in first
    assert "10.0% off with 100, and would take 0.25 times as many passes as ours" in first
    assert "## Susceptibilities" in text


def test_exact_susceptibilities_are_those_of_draws_of_the_gaussian(seed):
    land, exact = influence.problem()
    x = land.samples.inputs.double().numpy()
    fitted = land.samples.inputs @ land.parameters["weight"].T
    residual = (land.samples.target - fitted).double().numpy()[:, 0]
    sigma = np.linalg.inv(x.T @ x + influence.GAMMA * np.eye(influence.INPUTS))
    delta = np.random.default_rng(seed).multivariate_normal(np.zeros(influence.INPUTS), sigma, size=200_000)
    losses = 0.5 * np.square(residual - delta @ x.T)
    mean = losses.mean(1)
    products = (mean - mean.mean())[:, None] * (losses - mean[:, None] - (losses - mean[:, None]).mean(0))
    stderr = products.std(0) / len(delta) ** 0.5
    assert_within(-products.mean(0), influence.susceptible(exact), stderr)
