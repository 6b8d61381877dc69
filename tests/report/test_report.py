import csv
import dataclasses
import html
import io
import json
import math
import re

import pandas as pd
import pytest
from rich.console import Console

import basinscope as bs
from basinscope.report import figures
from basinscope.report.story import story
from basinscope.report.words import number, with_error
from hostile_names import NAMES


def renamed(report, text):
    facts = json.loads(report.to_json())
    facts["title"] = facts["command"] = text
    facts["points"][0]["name"] = text
    measured = facts["points"][0]["measured"]
    measured["subject"]["network"] = measured["subject"]["loss"] = text
    measured["llc"]["checks"].append(dataclasses.asdict(bs.Check(text, text, text, False, text, reason=text)))
    measured["notes"] = [text]
    return bs.Report.from_dict(facts)


def many(report, count):
    """A run of so many checkpoints, each with chains."""
    points = [dataclasses.replace(report.points[0], name=f"step-{10 * k:08d}", step=10 * k) for k in range(count)]
    history = [{"step": k, "train_loss": 1 / (k + 1), "validation_loss": 2 / (k + 1)} for k in range(10 * count)]
    return dataclasses.replace(report, points=points, history=history)


def test_a_report_knows_its_estimates(report):
    llc = report["llc"]
    assert math.isfinite(llc.value)
    assert llc.interval(0.9)[0] < llc.value < llc.interval(0.9)[1]
    assert {"half_soft_rank", "wbic", "waic", "loo", "gap", "hessian_trace"} <= {*report.rows()[0]}
    n = report.final.subject.samples
    loss = report.final.subject.loss_value
    assert report["wbic"].value == pytest.approx(n * loss + math.log(n) * llc.value)
    with pytest.raises(KeyError, match="was not measured"):
        report["nothing"]


def test_the_quadratic_part_is_half_the_soft_rank_at_the_measured_resolution(report):
    from basins import classifier

    found = report["llc"].diagnostics
    land = classifier(n=60, hidden=2)
    matrix = report["half_soft_rank"].diagnostics["matrix"]
    exact = bs.soft_rank(land, weight_decay=found["gamma"] / found["nbeta"], matrix=matrix).value
    assert report["half_soft_rank"].value == pytest.approx(exact / 2, rel=1e-6)


def test_the_slope_is_drawn_over_the_localisation(report):
    measured = report.final
    found = measured.llc.diagnostics
    assert found["gamma_slope"] < 0
    assert "slope ∂λ̂/∂log γ by sampling" in figures.resolutions(measured)
    flat = dataclasses.replace(measured.llc, diagnostics={"gamma": found["gamma"]})
    assert figures.resolutions(dataclasses.replace(measured, curve=(), llc=flat)) is None, "one point is no figure"


def test_json_comes_back_as_it_was(report, tmp_path):
    path = report.write(tmp_path / "deeper" / "report.json")
    again = bs.Report.load(path)
    assert again.to_json() == report.to_json()
    assert again.to_html() == report.to_html()
    assert again["llc"].interval() == pytest.approx(report["llc"].interval())


def test_what_is_saved_is_loaded_from_the_same_path(report, tmp_path):
    for name in ("folder", "v0.2", "file.json"):
        path = report.save(tmp_path / name)
        assert bs.Report.load(path).to_json() == report.to_json()
        assert path.is_file() == (name == "file.json")
    with pytest.raises(bs.InputError, match=r"page\.html — use report\.write"):
        report.save(tmp_path / "page.html")


def test_its_repr_is_short(report):
    assert len(repr(report)) < 200
    assert "1 checkpoint, Measurement(Estimate(llc = " in repr(report)


def test_its_rows_become_a_table(report):
    table = report.to_dataframe()
    assert table.to_dict("records")[0]["llc"] == report["llc"].value


def test_a_notebook_shows_the_picture_and_what_speaks_against_each(report):
    page = report._repr_html_()
    assert page.count("<svg") == 1
    assert "90 % interval" in page
    for warning in report["llc"].warnings:
        assert html.escape(warning) in page


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"format": 1}', '{"format": 99, "points": [1]}', '{"format": 1, "points": 3}']
)
def test_a_file_that_is_no_report_is_refused(tmp_path, text):
    (tmp_path / "report.json").write_text(text)
    with pytest.raises(bs.InputError, match="is no report"):
        bs.Report.load(tmp_path / "report.json")


def test_a_report_with_text_for_numbers_is_refused(report, tmp_path):
    facts = json.loads(report.to_json())
    facts["points"][0]["measured"]["llc"]["value"] = "<b>1</b>"
    (tmp_path / "report.json").write_text(json.dumps(facts))
    with pytest.raises(bs.InputError, match="is no report"):
        bs.Report.load(tmp_path / "report.json")


def test_parquet_and_csv_hold_the_rows(report, tmp_path):
    run = many(report, 3)
    table = pd.read_parquet(run.write(tmp_path / "report.parquet"))
    assert table["step"].tolist() == [0, 10, 20]
    assert table["llc"].tolist() == pytest.approx([report["llc"].value] * 3)
    rows = list(csv.DictReader(io.StringIO(run.to_csv())))
    assert float(rows[2]["llc"]) == report["llc"].value


def test_an_unknown_format_is_refused(report, tmp_path):
    with pytest.raises(bs.InputError, match="html, md, json, parquet, got 'docx'"):
        report.write(tmp_path / "report.docx")


def test_the_page_says_everything_and_loads_nothing(report):
    page = report.to_html()
    for words in (
        "learning coefficient",
        "½ soft rank",
        "burn-in",
        "WAIC",
        "WBIC",
        "Spectrum",
        "Make it again",
        "sha256",
    ):
        assert words in page
    assert report["llc"].verdict in page.split("<section", 1)[0]  # the verdict comes first
    assert "<script" not in page
    assert not re.findall(r'(?:src|href)="(?!#|data:)', page)
    assert "http" not in re.sub(r"http-equiv", "", page)


def test_a_hundred_checkpoints_stay_under_five_megabytes(report):
    page = many(report, 100).to_html()
    assert len(page.encode()) < 5e6
    assert page.count("<tr>") > 100


@pytest.mark.parametrize("text", NAMES)
def test_hostile_names_are_only_names(report, text):
    hostile = renamed(report, text)
    page = hostile.to_html()
    assert "<script" not in page
    assert "<img" not in page
    assert html.escape(text).replace("&#x27;", "&#39;").replace("&quot;", "&#34;") in page
    assert page.count("</style>") == 1
    fragment = hostile._repr_html_()
    assert "<script" not in fragment
    assert "<img" not in fragment
    Console(file=io.StringIO()).print(hostile)
    told, _, command = hostile.to_markdown().partition("## Reproduce")
    assert "<script" not in told
    assert command.count("```") == 2 or "`" in text


def test_the_terminal_and_the_notebook_show_the_verdict_and_a_table(report):
    out = io.StringIO()
    Console(file=out, width=100).print(report)
    for told in (out.getvalue(), str(report), report._repr_html_(), report.to_markdown()):
        assert report["llc"].verdict in told
        assert with_error(report["llc"].value, report["llc"].stderr) in told
    assert "<table>" in report._repr_html_()


def test_checks_have_the_limits_of_the_verdict(report):
    told = story(report)
    failed = [check.name for check in told.checks if not check.passed]
    assert bool(failed) == (report["llc"].verdict != "ok")


def test_a_network_away_from_its_minimum_says_so():
    from basins import quadratic

    land = quadratic([1.0, 2.0], offset=[3.0, 3.0])
    found = bs.measure(land, budget=0.5, progress=False)
    assert found["llc"].at_minimum == "no"
    assert "minimum" in str(found)
    assert "basin" in str(found)
    assert "minimum" in found.to_html().split("<section", 1)[0]


def test_a_part_that_refuses_is_told_and_the_rest_goes_on():
    import torch

    x = torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
    net = torch.nn.Linear(2, 1, bias=False)
    torch.nn.init.ones_(net.weight)

    def own(output, target):
        return (output - target).square().sum(1)

    found = bs.measure(bs.Landscape(net, own, (x, x.sum(1, keepdim=True))), budget=0.5, progress=False)
    assert found["gap"].verdict == "failed"
    assert found["gap"].warnings
    assert found["llc"].value > 0
    assert "Do not use" not in found.to_html().split("<section", 1)[0]


def test_measure_refuses_what_is_no_landscape():
    with pytest.raises(bs.InputError, match=r"make one with bs\.Landscape"):
        bs.measure(3)
    with pytest.raises(bs.InputError, match="weight_decay must be a positive"):
        bs.measure(3, weight_decay=-1.0)


@pytest.mark.parametrize("value", [0.0, -0.0, 1e-300, 1e300, -5.5, 3, 10**12, math.nan, math.inf, None, "text", True])
def test_any_value_can_be_written(value):
    assert number(value)
    assert with_error(value, value)


def at_gamma(point, gamma):
    llc = point.measured.llc
    other = dataclasses.replace(llc, diagnostics={**llc.diagnostics, "gamma": gamma})
    return dataclasses.replace(point, measured=dataclasses.replace(point.measured, llc=other))


def test_the_first_screen_says_what_else_is_doubtful_how_well_the_network_fits_and_what_counts(report):
    told, others = story(report), [e for n, e in report.final.by_name.items() if n not in ("llc", "aic", "bic")]
    shaky = sum(estimate.verdict == "doubtful" for estimate in others)
    assert f"of {len(others)} other numbers" in told.others
    assert (f"{shaky} doubtful" if shaky else "none doubtful") in told.others
    assert f"accuracy {report.final.subject.accuracy:.1%}" in told.fit
    seen = report["llc"].diagnostics
    assert number(seen["gamma"] / seen["nbeta"], 3) in told.resolution
    page = report.to_html()
    for words in (told.others, told.fit, told.methods, "@article{lau2023local", "for reference"):
        assert html.escape(words) in page
    assert page.count("for reference") == 2  # AIC and BIC


def test_checkpoints_at_different_resolutions_are_not_called_alike(report):
    alike = many(report, 3)
    assert "Every checkpoint was measured at nβ" in story(alike).alike
    gammas = [at_gamma(point, gamma) for point, gamma in zip(alike.points, (29.0, 3.0, 1.2), strict=True)]
    apart = dataclasses.replace(alike, points=gammas)
    assert "γ from 1.2 to 29" in story(apart).alike
    assert "must not be compared" in apart.to_html()


def test_the_trace_is_drawn_by_layer_where_there_are_several(report):
    names = [name for name, _ in report.final.subject.layers]

    def drawn(blocks):
        trace = dataclasses.replace(report["hessian_trace"], diagnostics={"per_layer": blocks})
        estimates = {**report.final.estimates, "hessian_trace": trace}
        return str(figures.by_layer(dataclasses.replace(report.final, estimates=estimates)))

    assert set(report["hessian_trace"].diagnostics["per_layer"]) == set(names)
    layers = list(dict.fromkeys(name.rpartition(".")[0] for name in names))
    assert len(layers) == 2
    picture = drawn({name: (3.0 if name.startswith(layers[0]) else 1.0, 0.0) for name in names})
    assert re.findall(r"(\d+)% of the trace", picture) == ["75", "25"]
    assert drawn({}) == drawn(None) == drawn(dict.fromkeys(names, (-1.0, 0.0))) == "None"


def test_an_interval_below_zero_is_drawn_where_it_is(report):
    below = dataclasses.replace(report["llc"], value=-2.0, stderr=0.1)
    picture = str(figures.resolutions(dataclasses.replace(report.final, llc=below)))
    assert re.search(r">[-−]\d", picture), "an axis that goes below zero"
