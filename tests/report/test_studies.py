import base64

import pytest

from basinscope.report.studies import study_page
from basinscope.runs.driver import run
from basinscope.runs.results import Results
from basinscope.runs.store import Store
from basinscope.runs.study import Finding
from basinscope.runs.sweep import Sweep
from basinscope.studies.quadratics import STUDY as QUADRATICS
from hostile_names import NAMES
from live_pages import curve

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class Told(Sweep):
    """A sweep with a finding."""

    def findings(self, results):
        return [
            Finding("Slope (Fig. 1)", "1.00 in the paper", f"{results.table['llc'].max():.2f} here", "doubtful",
                    [{"width": 1, "paper": 1.0, "ours": 0.98}]),
            Finding("Order", "rising", "rising"),
        ]  # fmt: skip


def results_of(study, folder, **settings):
    run(study, folder, settings=settings, progress=False)
    scale = study.settings(**{**study.scales["smoke"], **settings})
    return Results(study, scale, Store(folder))


def test_findings_stand_beside_the_papers(tmp_path):
    study = Told("told", curve, {"grid": {"name": ["a"], "seed": [0, 1]}}, title="A study with findings")
    page = study_page(results_of(study, tmp_path), [], "basinscope study run told")
    assert "of 2 findings agree" in page
    for words in ("1.00 in the paper", "6.01 here", "doubtful", "λ̂ over training", "basinscope study run told", "0.98"):
        assert words in page
    assert "<script" not in page


def test_the_quadratics_say_what_theory_says(tmp_path):
    results = results_of(QUADRATICS, tmp_path, dimensions=[2], conditions=[1.0], seeds=1)
    (finding,) = QUADRATICS.findings(results)
    assert finding.verdict == "ok"
    assert finding.rows[0]["exact"] == pytest.approx(finding.rows[0]["λ̂, mean"], rel=0.1)
    assert "standard errors" in study_page(results, [], "again")


def test_hostile_settings_are_only_text(tmp_path):
    study = Told("told", curve, {"grid": {"name": NAMES, "seed": [0]}}, title=NAMES[0])
    page = study_page(results_of(study, tmp_path), [], NAMES[0])
    assert "<script" not in page
    assert "<img" not in page
    assert "{{ 7 * 7 }}" in page


def test_figures_are_taken_in(tmp_path):
    (tmp_path / "own_figure.png").write_bytes(PIXEL)
    (tmp_path / "notes.txt").write_text("not a figure")
    study = Told("told", curve, {"grid": {"name": ["a"], "seed": [0]}})
    page = study_page(results_of(study, tmp_path / "s"), [tmp_path / "own_figure.png", tmp_path / "notes.txt"], "")
    assert f"data:image/png;base64,{base64.b64encode(PIXEL).decode()}" in page
    assert 'alt="own figure"' in page


def test_a_part_of_a_study_says_so(tmp_path):
    study = Told("told", curve, {"grid": {"name": ["a", "fails"], "seed": [0]}})
    page = study_page(results_of(study, tmp_path), [], "")
    assert "1 of 2 jobs have no result yet" in page
