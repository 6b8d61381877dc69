"""Kept results shown again, compared, and judged for scripts; names completed for people."""

import json
import math
import sys

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from typer.testing import CliRunner

import basinscope as bs
from basinscope.cli import app, options
from basinscope.losses import named_loss
from basinscope.sampling.plain import KERNELS
from chance import assert_within

OWN = """
import torch
from torch import nn

def build():
    return nn.Linear(3, 1, bias=False)

def load():
    x = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    return x, x.sum(1, keepdim=True)
"""
COMMON = ["--model", "own.py:build", "--data", "own.py:load", "--loss", "mse", "--budget", "0.3"]


def run(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Checkpoints at the minimum and twice as far out, and a report of each at a resolution of its own."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "own.py").write_text(OWN)
    for name, size in (("near", 1.0), ("far", 1.2)):
        save_file({"weight": torch.full((1, 3), size)}, folder / f"{name}.safetensors")
    return folder


@pytest.fixture
def folder(home, monkeypatch):
    monkeypatch.chdir(home)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return home


@pytest.fixture(scope="module")
def reports(home):
    x = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    net = nn.Linear(3, 1, bias=False)
    nn.init.ones_(net.weight)
    land = bs.Landscape(net, "mse", (x, x.sum(1, keepdim=True)))
    settings = {"budget": 0.3, "progress": False}
    made = {name: bs.measure(land, gamma=gamma, seed=seed, **settings) for name, gamma, seed in
            (("a", 1.0, 0), ("b", 1.0, 1), ("c", 2.0, 2))}  # fmt: skip
    for name, report in made.items():
        report.save(home / name)
    return made


def test_reports_of_one_resolution_are_compared(folder, reports):
    told = run("compare", "a", "b/report.json", "--json")
    assert told.exit_code == 0, told.output
    first, second = json.loads(told.stdout)["rows"]
    a, b = reports["a"]["llc"], reports["b"]["llc"]
    assert (first["name"], second["name"]) == ("a", "b")
    assert second["difference"] == pytest.approx(b.value - a.value)
    assert second["difference_stderr"] == pytest.approx(math.hypot(a.stderr, b.stderr))
    assert_within(b.value, a.value, second["difference_stderr"], freedom=20)
    shown = run("compare", "a", "b")
    assert "minus a" in shown.stdout
    assert "γ = 1" in shown.stdout


def test_reports_of_two_resolutions_are_refused(folder, reports):
    told = run("compare", "a", "c")
    assert told.exit_code == 2
    assert "different resolutions" in told.stderr
    assert "--gamma" in told.stderr


def test_checkpoints_are_measured_at_one_resolution(folder):
    told = run("compare", "near.safetensors", "far.safetensors", *COMMON, "--json")
    assert told.exit_code == 0, told.output
    near, far = json.loads(told.stdout)["rows"]
    assert near["gamma"] == far["gamma"] == pytest.approx(1.0)  # d/‖w*‖² is 1 and 0.69: the larger of the two
    assert near["nbeta"] == far["nbeta"] == pytest.approx(50 / math.log(50))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["a"], "two paths or more"),
        (["a", "a"], "named once"),
        (["a", "near.safetensors"], "cannot be mixed"),
        (["near.safetensors", "far.safetensors"], "checkpoints need --model and --data"),
        (["a", "b", "--gamma", "1"], "reports have their resolution"),
        (["nowhere.json", "a"], "there is no report at nowhere.json"),
    ],
)
def test_what_cannot_be_compared_is_said_in_one_line(folder, reports, arguments, told):
    result = run("compare", *arguments)
    assert result.exit_code == 2
    assert told in result.stderr


def test_a_kept_result_is_shown_and_written_again(folder, reports):
    told = run("report", "a", "--out", "again.md")
    assert told.exit_code == 0, told.output
    assert "wrote again.md" in told.stdout
    assert (folder / "again.md").read_text() == bs.Report.load(folder / "a").to_markdown()
    assert json.loads(run("report", "a", "--json").stdout) == json.loads((folder / "a" / "report.json").read_text())
    assert run("report", "a", "--quiet").stdout == ""


def failed(folder):
    """A kept result whose λ̂ is negative."""
    facts = json.loads((folder / "a" / "report.json").read_text())
    check = {"name": "λ̂", "seen": "-1", "wanted": "positive", "passed": False, "remedy": "", "severity": "failure"}
    facts["points"][0]["measured"]["llc"]["checks"].append({**check, "reason": "not at a minimum"})
    (folder / "bad.json").write_text(json.dumps(facts))
    return "bad.json"


def test_strict_ends_with_one_where_a_number_has_failed(folder, reports):
    bad = failed(folder)
    assert run("report", bad).exit_code == 0
    assert run("report", bad, "--strict").exit_code == 1
    assert run("report", "a", "--strict").exit_code == 0
    assert run("compare", "b", bad, "--strict").exit_code == 1


def test_json_and_silence_of_measuring(folder):
    told = run("measure", "near.safetensors", *COMMON, "--json", "--out", "kept.json")
    assert told.exit_code == 0, told.output
    assert json.loads(told.stdout) == json.loads((folder / "kept.json").read_text())
    silent = run("measure", "near.safetensors", *COMMON, "--quiet", "--strict", "--out", "kept.json")
    assert (silent.exit_code, silent.output) == (0, "")


def test_completion_offers_the_names_that_exist():
    assert set(options.SAMPLERS) == {"auto", "hmc", "minibatch", "lean", *KERNELS}
    assert [named_loss(name, None).name for name in options.LOSSES] == list(options.LOSSES)
    assert options.complete_sampler("sg") == ["sgld", "sgnht"]
    assert options.complete_loss("m") == ["mse"]
    assert options.complete_device("c") == ["cpu", "cuda"]
    assert options.complete_data("m") == ["mnist"]
    assert [name for name, _ in options.complete_study("quad")] == ["quadratics"]
