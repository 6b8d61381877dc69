"""`basinscope measure MODEL --text FILE`, and `bs.measure` of a language model in place."""

import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import basinscope as bs
import lacking
from basinscope.cli import app
from basinscope.language.text import tokens_in
from language.families import LENGTH, gpt2, made, tokens

transformers = lacking.package("transformers")
SHORT = {"budget": bs.Nominal(40), "draws": 16, "chains": 4, "batch_size": 8, "progress": False}


@pytest.mark.slow
def test_a_report_says_what_people_with_language_models_ask(monkeypatch):
    module = "basinscope.measures.language_measurement"
    monkeypatch.setattr(f"{module}._price", lambda land: 1e-3)
    monkeypatch.setattr(f"{module}._STEPS_PER_HEAD", 1)
    monkeypatch.setattr(f"{module}.soft_rank", lambda land, **_: bs.Estimate("soft_rank", 4.0, 0.2))
    monkeypatch.setattr(f"{module}.trace", lambda land, **_: bs.Estimate("hessian_trace", 3.0, 0.1))
    net = gpt2(n_layer=1, n_head=2)
    report = bs.measure(bs.LanguageModel(net, tokens(40), units="token"), gamma=50.0, **SHORT)
    notes = " ".join(report.final.notes)
    for words in ("nats per token", "per sequence", "tokens per second", "bytes a parameter"):
        assert words in notes
    heads = [name for name in report.final.by_name if name.startswith("llc_of_layer")]
    assert heads == ["llc_of_layer_0_head_0", "llc_of_layer_0_head_1"]
    assert report.final.subject.samples == 40 * (LENGTH - 1)
    assert (report["half_soft_rank"].value, report["hessian_trace"].value) == (2.0, 3.0)
    again = bs.Report.from_dict(json.loads(report.to_json()))
    assert again["llc"].value == report["llc"].value
    assert "tokens per second" in report.to_html()


def test_what_would_take_too_long_says_how_long(monkeypatch):
    monkeypatch.setattr("basinscope.measures.language_measurement._price", lambda land: 3600.0)
    land = bs.LanguageModel(made("GPT-2"), tokens(40))
    report = bs.measure(land, gamma=50.0, **{**SHORT, "budget": bs.Nominal(1e-3)})
    for name, call in (
        ("half_soft_rank", "bs.soft_rank"), ("hessian_trace", "bs.trace"), ("llc_of_heads", "bs.llc_by_part"),
    ):  # fmt: skip
        assert report[name].verdict == "failed"
        assert call in " ".join(report[name].warnings)


@pytest.mark.slow
def test_a_saved_model_and_a_text(tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {word: number for number, word in enumerate("abcdefghijklmnop")}
    plain = Tokenizer(models.WordLevel(words, unk_token="a"))
    plain.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    transformers.PreTrainedTokenizerFast(tokenizer_object=plain).save_pretrained(tmp_path / "model")
    gpt2(n_layer=1, n_head=1).save_pretrained(tmp_path / "model")
    drawn = torch.randint(16, (400,), generator=torch.Generator().manual_seed(0)).tolist()
    (tmp_path / "text.txt").write_text("".join("abcdefghijklmnop"[number] for number in drawn))
    np.save(tmp_path / "ids.npy", np.array(drawn, dtype=np.uint16))
    for file in ("text.txt", "ids.npy"):
        assert tokens_in(tmp_path / file, str(tmp_path / "model")).tolist() == drawn
    asked = [
        "measure", str(tmp_path / "model"), "--text", str(tmp_path / "text.txt"), "--length", "8", "--budget", "1",
        "--gamma", "50", "--out", str(tmp_path / "report.json"), "--quiet",
    ]  # fmt: skip
    result = CliRunner().invoke(app, asked)
    assert result.exit_code == 0, result.output
    assert bs.Report.load(tmp_path / "report.json").final.subject.samples == 50 * 7


def test_what_is_refused(tmp_path):
    def said(*asked):
        result = CliRunner().invoke(app, ["measure", str(tmp_path / "model"), *asked])
        assert result.exit_code != 0
        return str(result.exception) + result.output

    assert "--model and --data are missing" in said()
    gpt2().save_pretrained(tmp_path / "model")
    assert "no file at" in said("--text", str(tmp_path / "nothing.txt"))
    (tmp_path / "a.txt").write_text("abc")
    assert "expected no --quick" in said("--text", str(tmp_path / "a.txt"), "--quick")
    assert "makes no tokens of" in said("--text", str(tmp_path / "a.txt"))
