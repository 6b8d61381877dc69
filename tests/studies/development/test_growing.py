"""Tasks and trainings of the study of development: data, checkpoints, and going on after a stop."""

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

import basinscope as bs
from basinscope.runs.driver import run
from basinscope.runs.files import Files
from basinscope.runs.results import Results
from basinscope.runs.scratch import Scratch, Unfinished
from basinscope.runs.settings import resolved
from basinscope.runs.store import Store
from studies.common.checkpoints import checkpoints, moments
from studies.development.corpus import corpus, gathered
from studies.development.report import answer, induction_heads, shared_ends
from studies.development.study import STUDY
from studies.development.tasks import encoded, regression_task, text_task


def trained(task, when, rate, batch, seed, scratch):
    return checkpoints(
        task.network, (task.x, task.y), task.loss, when, rate=rate, batch=batch, seed=seed, scratch=scratch
    )


SMALL = {"tasks": 16, "dimension": 2, "examples": 8, "layers": 1, "width": 8, "heads": 2}


@pytest.fixture
def texts(tmp_path, monkeypatch):
    (tmp_path / "text").mkdir()
    for name in ("shakespeare", "wikitext2_valid", "wikitext2_test"):
        (tmp_path / "text" / f"{name}.txt").write_text(f"{name} says so. " * 40)
    monkeypatch.setenv("BASINSCOPE_DATA", str(tmp_path))


def test_text_comes_in_the_order_of_the_files(texts):
    assert corpus(0.0001) == ("shakespeare says so. " * 40)[:100]
    longer = corpus(0.0015)
    assert len(longer) == 1500
    assert "wikitext2_valid" in longer
    assert len(corpus(0.01)) == 10_000  # sources of packages follow


def test_gathered_text_is_the_same_text(texts, tmp_path, monkeypatch):
    whole = corpus(0.002)
    monkeypatch.setattr("studies.development.corpus.MEGABYTES", 0.002)
    assert gathered(tmp_path / "elsewhere").name == "corpus.txt.xz"
    monkeypatch.setenv("BASINSCOPE_DATA", str(tmp_path / "elsewhere"))
    assert corpus(0.002) == whole
    assert corpus(0.001) == whole[:1000]


def test_bytes_are_tokens():
    assert encoded("ab c", 256).tolist() == list(b"ab c")


def test_pairs_of_bytes_are_learnt():
    pytest.importorskip("tokenizers")
    tokens = encoded("the cat and the dog and the bird " * 30, 280)
    assert int(tokens.max()) < 280
    assert len(tokens) < 30 * 33


def test_targets_are_the_next_tokens(texts):
    task = text_task(0, megabytes=0.001, vocabulary=256, context=16, width=8, heads=2)
    assert torch.equal(task.x[:, 1:], task.y[:, :-1])
    assert not any("feedforward" in name for name, _ in task.network.named_parameters())


def test_missing_text_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("BASINSCOPE_DATA", str(tmp_path))
    with pytest.raises(bs.InputError, match=r"there is no text at .*point BASINSCOPE_DATA"):
        corpus(1.0)


def test_a_regression_is_answered_at_x_alone():
    task = regression_task(0, **SMALL)
    assert task.x.shape == (16, 16, 3)
    assert torch.equal(task.x[:, 1::2, 0], task.y)
    assert not task.x[:, ::2, 0].any()
    changed = task.x.clone()
    changed[:, -1] += 1.0  # the last y comes after the last x
    assert torch.equal(task.network(task.x), task.network(changed))
    assert task.network(task.x).shape == task.y.shape


def test_checkpoints_do_not_depend_on_stops(tmp_path):
    task = regression_task(0, **SMALL)
    whole = trained(task, (1, 3, 6), 1e-2, 4, 0, Scratch(Files(str(tmp_path / "a")), "job"))
    scratch = Scratch(Files(str(tmp_path / "b")), "job")
    trained(task, (1, 3), 1e-2, 4, 0, scratch)
    pieces = trained(task, (1, 3, 6), 1e-2, 4, 0, scratch)
    names = sorted(file.name for file in whole.iterdir())
    assert names == ["step-00000001.safetensors", "step-00000003.safetensors", "step-00000006.safetensors"]
    for name in names:
        first, second = load_file(whole / name), load_file(pieces / name)
        assert all(torch.equal(first[key], second[key]) for key in first)


def test_a_training_without_time_says_so(tmp_path):
    with pytest.raises(Unfinished):
        trained(regression_task(0, **SMALL), (1, 2), 1e-2, 4, 0, Scratch(Files(str(tmp_path)), "job", until=0.0))


def test_moments_rise():
    assert (np.diff(moments(50_000, 44)) > 0).all()
    assert len(moments(50_000, 44)) >= 40
    assert len(moments(100_000, 44)) >= 40


def test_ends_of_stages_are_shared_where_intervals_overlap():
    rows = [("loss", 10, 5, 20), ("llc_basin", 15, 12, 18), ("llc_basin", 90, 80, 95)]
    stages = pd.DataFrame(
        [{"task": "text", "seed": 0, "curve": curve, "end": end, "end_low": low, "end_high": high}
         for curve, end, low, high in rows]
    )  # fmt: skip
    assert shared_ends(stages) == (1, 2)
    checkpoints = pd.DataFrame({
        "task": "text", "seed": 0, "step": [1, 2, 3], "part": "", "loss": [3.0, 2.0, 1.0], "llc_basin": [1.0, 2.0, 1.5],
        "llc_basin_stderr": 0.1, "in_context_score": -0.1, "in_context_score_stderr": 0.01, "prefix_matching": np.nan,
    })  # fmt: skip
    said = answer({"checkpoints": checkpoints, "stages": stages})
    assert "Of 2 ends of stages that the basin has, 1 overlap" in said
    assert "the basin rises in 50%" in said


def test_the_best_head_is_put_beside_the_others():
    rows = []
    for step, best in ((1, 0.1), (100, 0.9)):
        for head, basin in (("layer 0 head 0", 2.0), ("layer 0 head 1", 4.0), ("layer 1 head 0", 3.0 * step)):
            rows.append({"task": "text", "seed": 0, "step": step, "part": head, "llc_basin": basin, "llc_verdict": "ok",
                         "llc_basin_stderr": 0.1, "prefix_matching": best if head == "layer 1 head 0" else 0.05,
                         "prefix_matching_stderr": 0.01})  # fmt: skip
    (found,) = induction_heads(pd.DataFrame(rows)).to_dict("records")
    assert (found["head"], found["first"], found["last"], found["others"]) == ("layer 1 head 0", 3.0, 300.0, 3.0)
    assert (found["ok"], found["known"]) == (6, 6)


@pytest.mark.slow
def test_a_small_study_from_end_to_end(tmp_path, texts):
    changes = {"tasks": ["regression"]}
    assert run(STUDY, tmp_path / "store", scale="smoke", settings=changes, progress=False).complete
    results = Results(STUDY, resolved(STUDY, "smoke", changes), Store(tmp_path / "store"))
    written = results.write(tmp_path / "out")
    assert [path.name for path in written[-2:]] == ["regression.png", "README.md"]
