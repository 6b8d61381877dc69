"""The benchmark of the lean walk at its smallest sizes."""

import json

import lean_walk
import pytest
import torch
from lean.page import page
from lean.quadratic import chain_on_quadratic, plain_chain
from lean.text import as_bytes

import lacking
from basinscope.sampling.lean.weights import Step

CPU = torch.device("cpu")


def rows(tmp_path, *asked):
    file = tmp_path / "rows.jsonl"
    assert lean_walk.main([*asked, "--device", "cpu", "--out", str(file)]) == 0
    return [json.loads(line) for line in file.read_text().splitlines()]


def text(tmp_path):
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "a.txt").write_text("the quick brown fox jumps over the lazy dog. " * 100)
    return str(tmp_path / "words")


def test_draws_beside_the_bare_loop(tmp_path):
    lacking.package("transformers")
    (row,) = rows(tmp_path, "draws", "--shape", "tiny", "--batch", "2", "--length", "8", "--steps", "4")
    assert row["parameters"] == 120_576
    assert row["lean_bytes_per_parameter"] == 12
    assert row["ratio"] > 0


def test_a_deep_linear_network(tmp_path):
    (row,) = rows(tmp_path, "linear", "--width", "8", "--layers", "2", "--seeds", "1", "--budget", "1")
    assert row["case"] == "deep linear 128"
    assert row["exact"] > 0


def test_rounding():
    right = chain_on_quadratic(2000, 3e4, Step(1e-6, 1e-3, (1.0, 1.0)), 300, "bfloat16", CPU)
    assert 0.9 < right < 1.1
    assert plain_chain(2000, 3e5, 1e-7, 300, CPU) > 0


@pytest.mark.slow
def test_against_hmc_and_heads(tmp_path):
    small = ["--width", "8", "--layers", "1", "--sequences", "20", "--budget", "0.5", "--train", "0.2", "--text"]
    found = rows(tmp_path, "hmc", *small, text(tmp_path), "--seeds", "1")
    assert [row["sampler"] for row in found] == ["lean", "hmc"]
    assert found[0]["gamma"] == pytest.approx(found[1]["gamma"])
    ways = rows(tmp_path, "heads", *small, str(tmp_path / "words"), "--some", "1")[2:]
    assert [row["way"] for row in ways] == [
        "a step of all heads",
        "side by side",
        "lean, one by one",
        "the engine, one by one",
    ]


def test_text(tmp_path):
    assert bytes(as_bytes(19, tmp_path / text(tmp_path)).tolist()) == b"the quick brown fox"


def test_the_page_is_that_of_its_rows():
    results = lean_walk.RESULTS
    assert (results / "lean_walk.md").read_text() == page(results / "lean_walk.jsonl")
