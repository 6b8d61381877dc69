import json
import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import basinscope as bs
from basinscope import demo
from basinscope.cli import app

pytest.importorskip("sklearn")
FAST = ["--hidden", "2", "--samples", "200", "--budget", "1"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "deeper"
    return folder, CliRunner().invoke(app, ["demo", "--out", str(folder), *FAST])


def test_the_verdict_comes_first_and_the_folder_last(finished):
    folder, result = finished
    assert result.exit_code == 0, result.output
    summary = json.loads((folder / "summary.json").read_text())
    lines = [line for line in result.stdout.splitlines() if line.strip()]
    assert summary["llc"]["verdict"] in lines[0]
    assert lines[1].startswith("│ learning coefficient λ̂")
    assert f"{summary['llc']['value']:.1f} ± {summary['llc']['stderr']:.1f}" in lines[1]
    told = result.stdout.replace("\n", "")
    assert told.endswith(str(folder))
    for word in ("WBIC", "½ soft rank", "nβ", "γ", "split-R̂", "effective sample size", "virial", "gradient term"):
        assert word in result.stdout


def test_the_numbers_in_the_summary_belong_together(finished):
    folder, _ = finished
    summary = json.loads((folder / "summary.json").read_text())
    llc, wbic, found = summary["llc"], summary["wbic"], summary["llc"]["diagnostics"]
    n = summary["data"]["n"]
    assert n == 200
    assert found["nbeta"] == pytest.approx(n / math.log(n))
    assert wbic["value"] == pytest.approx(n * found["loss"] + math.log(n) * llc["value"])
    assert wbic["stderr"] == pytest.approx(math.log(n) * llc["stderr"])
    assert found["loss"] == pytest.approx(summary["training"]["loss"], rel=1e-5)
    halves = {point["gamma"]: point["value"] for point in summary["half_soft_rank"]}
    assert halves[found["gamma"]] == pytest.approx(found["half_soft_rank"], rel=1e-3)
    assert np.all(np.diff(list(halves.values())) < 0)


def test_the_weights_are_the_measured_minimum(finished):
    safetensors = pytest.importorskip("safetensors.torch")
    folder, _ = finished
    weights = safetensors.load_file(folder / "model.safetensors")
    network = torch.nn.Sequential(torch.nn.Linear(16, 2), torch.nn.ReLU(), torch.nn.Linear(2, 10))
    network.load_state_dict(weights)
    digits = demo.load_digits(200)
    land = bs.Landscape(network, "cross_entropy", (digits.inputs.float(), digits.labels))
    summary = json.loads((folder / "summary.json").read_text())
    assert float(land.per_sample().mean()) == pytest.approx(summary["llc"]["diagnostics"]["loss"])
    assert summary["training"]["gradient"] < 0.01


def test_a_figure_is_drawn(finished):
    pytest.importorskip("matplotlib")
    folder, _ = finished
    assert (folder / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(path.suffix for path in folder.iterdir()) == [".html", ".json", ".png", ".safetensors"]


def test_weights_without_safetensors_and_no_figure_without_matplotlib(monkeypatch, tmp_path):
    for module in ("safetensors.torch", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, module, None)
    digits = demo.load_digits(50)
    network = torch.nn.Sequential(torch.nn.Linear(16, 1), torch.nn.ReLU(), torch.nn.Linear(1, 10))
    estimate = bs.Estimate("llc", 1.0, 0.1)
    done = demo.Demo(digits, demo.Trained(network, 1.0, 0.5, 0.0, 0.0), estimate, estimate, [(1.0, 1.0)], 0.0)
    written = demo.write(done, tmp_path)
    assert [path.name for path in written] == ["summary.json", "model.npz"]
    assert np.array_equal(np.load(written[1])["0.weight"], network[0].weight.detach().numpy())


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
