import io
import math
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file
from typer.testing import CliRunner

import basinscope as bs
import lacking
from basinscope import demo
from basinscope.cli import app
from basinscope.cli import demo as cli_demo
from basinscope.report.report import Report

lacking.package("sklearn")
FAST = ["--hidden", "2", "--samples", "200", "--budget", "1"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "deeper"
    return folder, CliRunner().invoke(app, ["demo", "--out", str(folder), *FAST])


def test_the_verdict_comes_first_and_the_report_last(finished):
    folder, result = finished
    assert result.exit_code == 0, result.output
    report = Report.load(folder / "report.json")
    lines = [line for line in result.stdout.splitlines() if line.strip()]
    assert report["llc"].verdict in lines[0]
    for name in ("λ̂", "½ soft rank", "WBIC", "WAIC"):
        assert name in result.stdout
    assert result.stdout.replace("\n", "").endswith(str(folder / "report.html"))


def test_each_step_is_one_line_with_its_seconds(finished):
    _, result = finished
    steps = [line.partition(" …")[0].split()[0] for line in result.stderr.splitlines()]
    assert steps == ["loading", "training", "measuring", "writing"]
    assert all(re.search(r" … \d+\.\d s(: |$)", line) for line in result.stderr.splitlines())


def test_on_a_terminal_a_step_is_named_before_it_begins_and_its_line_written_anew(monkeypatch):
    console = Console(file=io.StringIO(), force_terminal=True, width=80, highlight=False)
    monkeypatch.setattr(cli_demo, "Console", lambda **options: console)
    with cli_demo._step("resting") as say:
        assert console.file.getvalue() == "resting …\n"
        say("well")
    assert re.fullmatch(r"resting …\n\x1b\[1A\x1b\[2Kresting … \d+\.\d s: well\n", console.file.getvalue())


def test_the_numbers_in_the_report_belong_together(finished):
    folder, _ = finished
    report = Report.load(folder / "report.json")
    llc, wbic, subject = report["llc"], report["wbic"], report.final.subject
    n = subject.samples
    assert n == 200
    assert llc.diagnostics["nbeta"] == pytest.approx(n / math.log(n))
    assert wbic.value == pytest.approx(n * subject.loss_value + math.log(n) * llc.value)
    assert wbic.stderr == pytest.approx(math.log(n) * llc.stderr)
    halves = dict(report.final.curve)
    own = min(halves, key=lambda gamma: abs(gamma - llc.diagnostics["gamma"]))
    assert own == pytest.approx(llc.diagnostics["gamma"], rel=1e-3)
    assert halves[own] == pytest.approx(llc.diagnostics["half_soft_rank"], rel=1e-3)
    assert np.all(np.diff(list(halves.values())) < 0)


def test_the_report_names_the_command_that_makes_it_again(finished):
    folder, _ = finished
    command = Report.load(folder / "report.json").command
    assert command == "basinscope demo --hidden 2 --samples 200 --budget 1 --seed 0"


def test_the_weights_are_the_measured_minimum(finished):
    folder, _ = finished
    weights = load_file(folder / "model.safetensors")
    network = torch.nn.Sequential(torch.nn.Linear(16, 2), torch.nn.ReLU(), torch.nn.Linear(2, 10))
    network.load_state_dict(weights)
    digits = demo.load_digits(200)
    land = bs.Landscape(network, "cross_entropy", (digits.inputs.float(), digits.labels))
    report = Report.load(folder / "report.json")
    assert float(land.per_sample().mean()) == pytest.approx(report.final.subject.loss_value)


def test_training_ends_at_a_minimum_of_the_mean_loss():
    digits = demo.load_digits(200)
    trained = demo.train(digits, 2, 0)
    network = trained.network.double()
    loss = torch.nn.functional.cross_entropy(network(digits.inputs), digits.labels)
    gradient = torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(network.parameters()))])
    assert loss.item() == pytest.approx(trained.loss, rel=1e-5)
    assert trained.gradient < 0.01
    assert float(gradient.norm()) < 0.01
    assert trained.widths == "16-2-10"


def test_a_file_in_the_place_of_the_folder_is_refused_at_once(tmp_path):
    (tmp_path / "taken").touch()
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "taken")])
    assert result.exit_code == 2
    assert "--out must be a folder" in result.stderr


def test_without_scikit_learn_the_error_names_the_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert "scikit-learn" in result.stderr
    assert "basinscope[demo]" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_too_few_samples_are_refused(tmp_path):
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path), "--samples", "5"])
    assert result.exit_code == 2
    assert "samples must lie in 50..1797, got 5" in result.stderr


def test_help_does_not_load_torch():
    code = (
        "import sys; from basinscope.cli import app; app(['demo', '--help'], standalone_mode=False); "
        "print(sorted({'torch', 'numpy', 'scipy'} & set(sys.modules)))"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.splitlines()[-1] == "[]"
