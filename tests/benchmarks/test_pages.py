"""Pages of benchmarks say what was found first, and count it rightly."""

import budgets
import coverage
import displaced
import pytest
from truth.suite import COVERAGE


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
