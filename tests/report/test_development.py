"""A network growing up: from folders, Hub-like folders and landscapes to one page, with what is kept."""

import json
import math

import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

import basinscope as bs
from basinscope.cli import app
from basinscope.measures.checkpoint_series import series_of
from basinscope.measures.coefficient import LearningCoefficient
from basinscope.measures.llc_by_part import LlcByPart
from basinscope.report import development
from basinscope.report.development_page import page, summary
from basinscope.zoo import models

WORDS, LENGTH = 7, 16
QUICK = {"sampler": "sgld", "step_size": 1e-5, "draws": 20, "chains": 2}


def tokens(count=8):
    data = torch.randint(WORDS, (count, LENGTH + 1), generator=torch.Generator().manual_seed(0))
    return data[:, :-1], data[:, 1:]


def build():
    torch.manual_seed(0)
    return models.transformer(WORDS, LENGTH, layers=2, width=4, heads=2)


@pytest.fixture
def without_sampling(monkeypatch):
    """λ̂ of a mere count: what is tested is what is made of it."""

    def counted(land, **settings):
        facts = {"basin": land.dimension / 2, "basin_stderr": 0.1, "nbeta": settings["nbeta"], "gamma": 1.0}
        return LearningCoefficient("llc", land.dimension / 2, 0.1, diagnostics={**facts, "at_minimum": "yes"})

    def by_part(land, kind, **settings):
        parts = land.parts(kind)
        settings.pop("progress")
        return LlcByPart(parts, tuple(counted(land.restrict(each.name), **settings) for each in parts))

    monkeypatch.setattr(development, "llc", counted)
    monkeypatch.setattr(development, "llc_by_part", by_part)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    tmp_path, net = tmp_path_factory.mktemp("checkpoints"), build()
    x, y = tokens()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for step in range(9):
        if step in (0, 2, 8):
            save_file({k: v.contiguous() for k, v in net.state_dict().items()}, tmp_path / f"step-{step}.safetensors")
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x).movedim(-1, 1), y).backward()
        optimizer.step()
    return tmp_path


def test_a_folder_of_weights(folder, without_sampling):
    found = bs.develop(folder, model=build(), data=tokens(), parts=("head",), **QUICK, progress=False)
    assert found.steps == (0, 2, 8)
    assert found.times == [1.0, 2.0, 8.0]
    assert found.parts == ("layer 0 head 0", "layer 0 head 1", "layer 1 head 0", "layer 1 head 1")
    land = series_of(folder, model=build(), data=tokens()).load(2)
    assert found.rows[2]["loss"] == pytest.approx(float(land.per_sample().mean()))
    assert found.rows[2]["parts"]["layer 0 head 1"]["llc"] == land.restrict("layer 0 head 1").dimension / 2
    assert found.settings["nbeta"] == pytest.approx(land.n / math.log(land.n))
    assert set(found.rows[0]["heads"]) == set(found.parts)
    assert all(math.isfinite(row["in_context_score"]) for row in found.rows)
    assert found.missing == {}
    assert sum(found.shares) == pytest.approx(1, abs=1e-6)
    table = found.to_dataframe()
    assert len(table) == 3 * 5
    assert set(table["part"]) == {"", *found.parts}


@pytest.mark.slow
def test_parts_are_measured_at_the_common_resolution(folder):
    land = series_of(folder, model=build(), data=tokens()).load(2)
    found = bs.develop([land], parts=("head",), **QUICK, progress=False)
    at = {name: found.settings[name] for name in ("nbeta", "gamma", "rtol", "budget", "seed")}
    own = bs.llc_by_part(land, "head", **at, **QUICK, progress=False)
    assert {name: row["llc"] for name, row in found.rows[0]["parts"].items()} == {
        name: estimate.value for name, estimate in own.items()
    }


def test_all_formats(folder, tmp_path, without_sampling):
    found = bs.develop(folder, model=build(), data=tokens(), parts=(), **QUICK, progress=False)
    text = page(found)
    assert summary(found) in text
    assert "Prefix matching" in text
    assert "<script" not in text
    kept = json.loads(found.write(tmp_path / "d.json").read_text())
    assert [row["step"] for row in kept["checkpoints"]] == [0, 2, 8]
    assert found.write(tmp_path / "d.csv").read_text().startswith("checkpoint,step,part,loss")
    with pytest.raises(bs.InputError, match="written as one of html, json, csv, got 'txt'"):
        found.write(tmp_path / "d.txt")


def test_what_is_kept_is_not_measured_again(folder, tmp_path, monkeypatch, without_sampling):
    how = {**QUICK, "parts": (), "model": build(), "data": tokens(), "keep": tmp_path / "kept"}
    first = bs.develop(folder, **how, progress=False)
    assert len(list((tmp_path / "kept").glob("*.json"))) == 3
    monkeypatch.setattr(development, "llc", None)
    assert bs.develop(folder, **how, progress=False).to_dict() == first.to_dict()


def test_one_checkpoint_is_in_memory_at_a_time(folder, monkeypatch):
    import gc
    import weakref

    alive, most = [], []

    def counted(land, *args, **kwargs):
        alive.append(weakref.ref(land))
        gc.collect()
        most.append(sum(each() is not None for each in alive))
        return LearningCoefficient("llc", 1.0, 0.1)

    monkeypatch.setattr(development, "llc", counted)
    bs.develop(folder, model=build(), data=tokens(), parts=(), **QUICK, progress=False)
    assert max(most) == 1


def test_saved_models(tmp_path, without_sampling):
    transformers = pytest.importorskip("transformers")
    data = tokens()[0]
    for step in (1, 4):
        config = transformers.GPT2Config(vocab_size=WORDS, n_positions=LENGTH, n_embd=4, n_layer=1, n_head=1)
        torch.manual_seed(step)
        transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path / f"checkpoint-{step}")
    found = bs.develop(tmp_path, data=data, parts=(), **QUICK, progress=False)
    assert found.steps == (1, 4)
    assert list(found.rows[0]["heads"]) == ["layer 0 head 0"]


def test_a_plain_network_says_what_it_lacks(without_sampling):
    x = torch.randn(30, 2, generator=torch.Generator().manual_seed(0))
    lands = [bs.Landscape(torch.nn.Linear(2, 1), "mse", (x, x.sum(1, keepdim=True))) for _ in range(2)]
    found = bs.develop(lands, **QUICK, progress=False)
    assert set(found.missing) == {"parts of kind layer", "parts of kind head", "in-context score", "prefix matching"}
    assert "Not measured" in page(found)


def test_what_is_refused(folder):
    with pytest.raises(bs.InputError, match="needs the network and its data"):
        bs.develop(folder)
    with pytest.raises(bs.InputError, match="kinds of parts, of layer"):
        bs.develop(folder, model=build(), data=tokens(), parts=("neuron",))
    with pytest.raises(bs.InputError, match="at least one, got none"):
        bs.develop([])


def test_the_command(folder, tmp_path, monkeypatch, without_sampling):
    (tmp_path / "grown.py").write_text(
        "import torch\nfrom basinscope.zoo import models\n"
        f"def build():\n    return models.transformer({WORDS}, {LENGTH}, layers=2, width=4, heads=2)\n"
        f"def load():\n    t = torch.randint({WORDS}, (6, {LENGTH + 1}))\n    return t[:, :-1], t[:, 1:]\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    command = ["develop", str(folder), "--model", "grown:build", "--data", "grown:load", "--parts", "none",
               "--sampler", "sgld", "--budget", "0.2"]  # fmt: skip
    outcome = CliRunner().invoke(app, [*command, "--out", "page.html"])
    assert outcome.exit_code == 0, outcome.output
    assert "3 checkpoints, step 0 to 8" in outcome.output
    assert (tmp_path / "page.html").read_text().count("<svg") >= 5
    refused = CliRunner().invoke(app, [*command, "--out", "page.pdf"])
    assert refused.exit_code == 2
    assert "--out must end in one of html, json, csv" in refused.output
