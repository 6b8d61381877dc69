"""Report, page and table show the checks that the verdict follows from, also of reports of earlier versions."""

import json
from dataclasses import replace

import pytest

import basinscope as bs
from basinscope.integrations.following import numbers
from basinscope.measures.measured import Measurement
from basinscope.report.catalogue import Catalogue
from basinscope.report.story import story
from basinscope.training import Measure
from limits import OF_LLC, coefficient, set_limit


def with_llc(report, changes):
    """The report, its λ̂ made anew of a sound run with these changes."""
    return replace(report, points=[replace(report.points[0], measured=replace(report.final, llc=coefficient(changes)))])


def table(report):
    """The table of checks of the page."""
    return report.to_html().split("What was checked before the number was believed", 1)[1].split("</table>", 1)[0]


@pytest.mark.parametrize("name", OF_LLC)
def test_a_limit_moves_the_page_the_table_the_text_the_live_page_and_the_callbacks(report, tmp_path, monkeypatch, name):
    changes, other = OF_LLC[name]
    before = with_llc(report, changes)
    assert "✗ no" not in table(before)
    assert "not passed" not in before.to_markdown()
    set_limit(monkeypatch, name, other)
    after = with_llc(report, changes)
    (warning,) = after["llc"].warnings
    assert after["llc"].verdict == "doubtful"
    assert table(after).count("✗ no") == 1
    assert after.to_markdown().count("| not passed |") == 1
    assert warning.partition(" — ")[0] in str(after)
    # Live page: what a folder of runs shows of the report that lies in it.
    for run, folder in ((before, tmp_path / "before"), (after, tmp_path / "after")):
        folder.mkdir()
        (folder / "report.json").write_text(run.to_json())
    catalogue = Catalogue(tmp_path)
    catalogue.scan()
    shown = {row["name"]: row["values"] for row in catalogue.changed(0)[1]}
    assert [shown[folder]["llc_verdict"] for folder in ("before", "after")] == ["ok", "doubtful"]
    # Callbacks: the columns that a training writes, and the curves that loggers draw.
    columns = Measure(lambda land: after["llc"], name="llc").columns(None)
    assert columns["llc_warnings"] == warning
    assert numbers(columns)["llc_verdict"] == 1.0


@pytest.mark.parametrize("changes", [{"interrupted": True}, {"gamma_slope": -9.5}])
def test_a_page_that_says_a_check_did_not_pass_shows_it(report, changes):
    shaky = with_llc(report, changes)
    assert "a check did not pass" in shaky.to_html()
    assert table(shaky).count("✗ no") == 1


def test_a_report_of_a_version_without_checks_still_loads(report, tmp_path):
    shaky = with_llc(report, {"rhat": 1.2, "drift": 5.0})
    old = json.loads(shaky.to_json())
    measured = old["points"][0]["measured"]
    for estimate in (measured["llc"], measured["quadratic"], *measured["estimates"].values()):
        del estimate["checks"]
    spectrum = measured["spectrum"]
    spectrum |= {"verdict": "ok", "warnings": []}
    del spectrum["checks"]
    (tmp_path / "report.json").write_text(json.dumps(old))
    again = bs.Report.load(tmp_path / "report.json")
    for name, estimate in shaky.final.by_name.items():
        assert (again[name].verdict, again[name].warnings) == (estimate.verdict, estimate.warnings)
        assert again[name].interval() == pytest.approx(estimate.interval(), nan_ok=True)
    assert table(again).count("✗ no") == 2
    assert "split-R̂ = 1.200 between chains" in str(again)


@pytest.mark.parametrize("verdict", ["ok", "doubtful", "failed"])
def test_an_estimate_of_a_version_without_checks_keeps_its_verdict(verdict):
    written = {
        "name": "llc", "value": 1.0, "stderr": 0.1, "verdict": verdict, "diagnostics": {},
        "warnings": [] if verdict == "ok" else ["diverged: 3 of 4 — use a smaller step", "slow: R̂ — raise budget"],
    }  # fmt: skip
    again = bs.Estimate.from_dict(written)
    assert again.verdict == verdict
    assert list(again.warnings) == written["warnings"]
    assert bs.Estimate.from_dict({**written, "warnings": []}).verdict == verdict


def test_a_measurement_comes_back_whole(report):
    written = json.loads(json.dumps(report.final.to_dict()))
    assert Measurement.from_dict(written).to_dict() == written
    assert Measurement.from_dict(written).llc.checks == report.final.llc.checks


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("llc", "value"), "3"), (("llc", "verdict"), "fine"), (("llc", "checks"), [{"name": "a"}]),
        (("llc", "freedom"), True), (("subject", "samples"), 1.5), (("curve",), [[1.0, "<b>"]]),
        (("spectrum", "largest"), ["x"]), (("trace", "mean"), [{}]),
    ],
)  # fmt: skip
def test_a_report_with_something_else_in_a_number_s_place_is_refused(report, tmp_path, place, value):
    facts = json.loads(report.to_json())
    part = facts["points"][0]["measured"]
    for name in place[:-1]:
        part = part[name]
    part[place[-1]] = value
    (tmp_path / "report.json").write_text(json.dumps(facts))
    with pytest.raises(bs.InputError, match="is no report of format 1"):
        bs.Report.load(tmp_path / "report.json")


def test_the_story_has_the_checks_of_the_estimate(report):
    assert story(report).checks == report["llc"].checks
