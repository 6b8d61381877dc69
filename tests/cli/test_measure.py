import json
import os
import subprocess
import sys

import pandas as pd
import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from typer.testing import CliRunner

import lacking
from basinscope.cli import app
from basinscope.report.checkpoints import Subject, read_weights
from chance import assert_within

OWN = """
import torch
from torch import nn

def build():
    return nn.Linear(2, 1)

def load():
    x = torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
    return x, x.sum(1, keepdim=True)

def others():
    x, y = load()
    return x[:20], y[:20] + 2

def robust(output, target):
    return (output - target).square().sum(1)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "own_network.py").write_text(OWN)
    net = nn.Linear(2, 1)
    nn.init.ones_(net.weight)
    nn.init.zeros_(net.bias)
    save_file(net.state_dict(), "net.safetensors")
    return tmp_path


def measure(*arguments):
    common = ["--model", "own_network.py:build", "--data", "own_network.py:load", "--loss", "mse", "--budget", "0.3"]
    return CliRunner().invoke(app, ["measure", *map(str, arguments), *common])


@pytest.mark.parametrize("kind", ["html", "md", "json", "parquet"])
def test_every_format_is_written(folder, kind, seed):
    told = measure("net.safetensors", "--format", kind, "--seed", seed)
    assert told.exit_code == 0, told.output
    assert f"wrote report.{kind}" in told.stdout
    data = (folder / f"report.{kind}").read_bytes()
    if kind == "parquet":
        row = pd.read_parquet(folder / "report.parquet").iloc[0]
        # A quadratic basin, where λ̂ is half the soft rank; its standard error comes from some dozens of draws.
        assert_within(row["llc"], row["half_soft_rank"], row["llc_stderr"], freedom=30)
    elif kind == "json":
        assert json.loads(data)["points"][0]["measured"]["subject"]["parameters"] == 3
    else:
        assert "½ soft rank" in data.decode()


@pytest.mark.slow
def test_the_command_to_make_it_again_makes_it_again(folder):
    """In processes of their own, as a user has it: the module of the working folder is found by its name.

    The budget counts arithmetic in them too, so that both spend it alike.
    """
    command = ["basinscope", "measure", "net.safetensors", "--model", "own_network:build", "--data", "own_network:load",
               "--loss", "mse", "--budget", "0.3", "--out", "a.json"]  # fmt: skip
    run = (
        "import sys; from basinscope.cli import main; from basinscope.sampling import clock; "
        "clock.default_clock = clock.NominalClock; sys.argv = sys.argv[1:]; main()"
    )
    first = subprocess.run([sys.executable, "-c", run, *command], capture_output=True, text=True)
    assert first.returncode == 0, first.stderr
    before = json.loads((folder / "a.json").read_text())
    assert before["command"] == " ".join(command)
    (folder / "a.json").unlink()
    subprocess.run([sys.executable, "-c", run, *before["command"].split()], check=True, capture_output=True)
    after = json.loads((folder / "a.json").read_text())
    for facts in (before, after):
        del facts["made"]
        for point in facts["points"]:
            del point["measured"]["seconds"]
    assert before == after


def test_an_own_loss_is_found(folder):
    told = CliRunner().invoke(
        app,
        ["measure", "net.safetensors", "--model", "own_network.py:build", "--data", "own_network.py:load", "--loss",
         "own_network.py:robust", "--budget", "0.3", "--out", "own.json"],
    )  # fmt: skip
    assert told.exit_code == 0, told.output
    assert json.loads((folder / "own.json").read_text())["points"][0]["measured"]["subject"]["loss"] == "robust"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nowhere.pt"], "there is no checkpoint at nowhere.pt"),
        (["net.safetensors", "--format", "docx"], "--format must be one of html, md, json, parquet, got 'docx'"),
        (["net.safetensors", "--out", "."], "--out must be a file"),
        (["net.safetensors", "--nbeta", "-1"], "nbeta must be a positive"),
        (["net.safetensors", "--sampler", "dice"], "sampler"),
        (["net.safetensors", "--device", "abacus"], "--device 'abacus' cannot be used"),
    ],
)
def test_mistakes_are_told_in_one_line_and_nothing_is_written(folder, arguments, told):
    before = sorted(os.listdir())
    result = measure(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("error: ")
    assert told in result.stderr
    assert sorted(os.listdir()) == before


def test_the_gap_is_measured_on_held_out_data(folder):
    told = measure("net.safetensors", "--held-out", "own_network.py:others", "--out", "gap.json", "--keep", "kept")
    assert told.exit_code == 0, told.output
    gap = json.loads((folder / "gap.json").read_text())["points"][0]["measured"]["estimates"]["measured_gap"]
    assert gap["value"] == pytest.approx(2.0)  # half the square of what others() adds to its targets
    without = measure("net.safetensors", "--out", "without.json", "--keep", "kept")
    assert without.exit_code == 0, without.output
    assert "measured_gap" not in json.loads((folder / "without.json").read_text())["points"][0]["measured"]["estimates"]


def bare(*arguments):
    common = ["--model", "own_network.py:build", "--data", "own_network.py:load", "--loss", "mse"]
    return CliRunner().invoke(app, ["measure", *map(str, arguments), *common])


def test_a_dry_run_says_what_it_would_take_and_writes_nothing(folder):
    told = bare("net.safetensors", "--dry-run")
    assert told.exit_code == 0, told.output
    assert "hmc: " in told.stdout
    assert "Nothing was measured" in told.stdout
    assert not (folder / "report.html").exists()


def test_a_quick_look_writes_a_report_of_its_coefficient(folder):
    told = bare("net.safetensors", "--quick", "--format", "json")
    assert told.exit_code == 0, told.output
    kept = json.loads((folder / "report.json").read_text())
    assert kept["points"][0]["measured"]["estimates"] == {}
    assert "a quick look" in kept["points"][0]["measured"]["notes"][0]


def test_a_quick_look_chooses_for_itself(folder):
    told = bare("net.safetensors", "--quick", "--budget", "3", "--held-out", "own_network.py:others")
    assert told.exit_code == 2
    assert "expected no --budget, --held-out" in told.stderr


def test_a_pickled_checkpoint_is_refused(folder):
    torch.save(nn.Linear(2, 1), "whole.pt")
    result = measure("whole.pt")
    assert result.exit_code == 2
    assert "could run any code" in result.stderr


def test_help_is_instant():
    code = (
        "import sys; from basinscope.cli import app; app([sys.argv[1], '--help'], standalone_mode=False); "
        "assert 'torch' not in sys.modules and 'starlette' not in sys.modules"
    )
    for command in ("measure", "serve"):
        subprocess.run([sys.executable, "-c", code, command], capture_output=True, check=True)


def test_a_selftest_is_told_before_the_report(folder):
    told = measure("net.safetensors", "--selftest", "--gamma", "1")
    assert told.exit_code == 0, told.output
    assert "selftest ok: a linear network 2-1 of rank 0 has" in told.stdout
    assert "λ = 1)" in told.stdout
    assert measure(".", "--selftest").exit_code == 2


# ---------------------------------------------------------------------- Hugging Face

LANGUAGE = """
import torch
from transformers import GPT2Config, GPT2LMHeadModel

def build():
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=4, n_positions=5, n_embd=2, n_layer=1, n_head=1, bos_token_id=0, eos_token_id=0)
    return GPT2LMHeadModel(config)

def load():
    return torch.randint(4, (12, 5), generator=torch.Generator().manual_seed(1))
"""
IMAGES = """
import torch
from transformers import ViTConfig, ViTForImageClassification

def build():
    torch.manual_seed(0)
    config = ViTConfig(
        hidden_size=4, num_hidden_layers=1, num_attention_heads=1, intermediate_size=4, image_size=4, patch_size=2,
        num_channels=1, num_labels=2,
    )
    return ViTForImageClassification(config)

def load():
    numbers = torch.Generator().manual_seed(1)
    return {
        "pixel_values": torch.randn(12, 1, 4, 4, generator=numbers),
        "labels": torch.randint(2, (12,), generator=numbers),
    }
"""


@pytest.mark.slow
@pytest.mark.parametrize(("code", "positions"), [(LANGUAGE, 4), (IMAGES, 1)], ids=["language", "images"])
def test_models_of_hugging_face(tmp_path, monkeypatch, code, positions):
    """The saved model, tied weights under one name, is measured with its own loss."""
    lacking.package("transformers")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "own_model.py").write_text(code)
    own = {}
    exec(code, own)
    net, data = own["build"]().eval(), own["load"]()
    net.save_pretrained("saved")
    arguments = ["saved/model.safetensors", "--model", "own_model.py:build", "--data", "own_model.py:load"]
    settings = ["--sampler", "sgld", "--budget", "0.05", "--format", "json", "--out", "report.json"]
    told = CliRunner().invoke(app, ["measure", *arguments, *settings])
    assert told.exit_code == 0, told.output
    with torch.no_grad():
        loss = net(**(data if isinstance(data, dict) else {"input_ids": data, "labels": data})).loss
    (point,) = json.loads((tmp_path / "report.json").read_text())["points"]
    assert point["error"] is None
    found = point["measured"]["llc"]["diagnostics"]
    assert found["loss"] == pytest.approx(positions * float(loss), rel=1e-4)
    assert found["dimension"] == sum(parameter.numel() for parameter in net.parameters())


def test_another_checkpoint_beside_a_saved_model_is_itself(tmp_path):
    lacking.package("transformers")
    own = {}
    exec(LANGUAGE, own)
    net = own["build"]()
    net.save_pretrained(tmp_path)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(2)
    torch.save(net.state_dict(), tmp_path / "later.pt")
    subject = Subject(net, own["load"](), "cross_entropy")
    files = [tmp_path / name for name in ("model.safetensors", "later.pt")]
    saved, later = (subject.at(read_weights(file), file).parameters for file in files)
    for name, weight in saved.items():
        torch.testing.assert_close(later[name], 2 * weight)
