"""What the networks of each arm are trained on, and how."""

import numpy as np
import pandas as pd
import pytest
import torch

from basinscope.errors import InputError
from basinscope.studies.flatness import cases, plan
from basinscope.studies.flatness.__main__ import PLAIN, main
from basinscope.studies.flatness.arms import ARMS, PRINTED, select
from basinscope.studies.flatness.cases import data_set, held_out, samples_of
from basinscope.zoo.data import DataSet


def table_of(**settings):
    return pd.DataFrame([job.config() for job in plan.jobs(plan.Plan(parts=("grid",), **settings))])


def test_every_arm_is_a_grid_of_1701_networks_with_its_own_decays():
    table = table_of()
    assert len(table) == (11 + 7 + 7) * 243  # each decay of raw inputs once, in whatever arms it is
    expected = {
        "printed": ("raw", "constant", [0.01, 0.1, 1, 10, 100, 1e4, 1e5]),
        "standardized": ("standardized", "constant", [0.01, 0.1, 1, 10, 100, 1e4, 1e5]),
        "hundredth": ("raw", "constant", [0.0001, 0.001, 0.01, 0.1, 1, 100, 1000]),
        "thousandth": ("raw", "constant", [0.00001, 0.0001, 0.001, 0.01, 0.1, 10, 100]),
        "annealed": ("standardized", "cosine", [0.01, 0.1, 1, 10, 100, 1e4, 1e5]),
        "hole-free": ("raw", "constant", [0.01, 0.1, 1, 10, 100, 1000, 10000]),
    }
    assert list(expected) == list(ARMS)
    for name, (inputs, schedule, decays) in expected.items():
        own = select(table, name)
        assert len(own) == 1701
        assert not own.duplicated(["architecture", "data", "samples", "decay", "batch_size", "lr"]).any()
        assert sorted(set(own["decay"])) == decays
        assert set(own["inputs"]) == {inputs}
        assert set(own["schedule"]) == {schedule}
        assert set(own["polish"]) == {60 if schedule == "cosine" else 0}
    for name, divisor in (("hundredth", 100), ("thousandth", 1000)):
        assert ARMS[name].decays == pytest.approx([decay / divisor for decay in PRINTED], rel=1e-12)
    assert set(table["test_samples"]) == {0}
    assert set(table["draws"]) == {0}


def test_networks_of_two_arms_differ_in_nothing_else():
    table = table_of(arms=("printed", "annealed"))
    first, second = (select(table, name) for name in ("printed", "annealed"))
    same = [name for name in table if name not in ("inputs", "schedule", "polish")]
    assert first[same].equals(second[same])


def test_the_smallest_batch_of_every_arm_comes_first():
    units = plan.units(plan.jobs(plan.Plan(parts=("grid",))))
    assert [unit[0].batch_size for unit in units] == [64] * 9 + [256] * 9 + [512] * 9
    assert {len(unit) for unit in units} == {297, 189}


def test_arms_and_decays_that_do_not_exist_are_refused():
    with pytest.raises(InputError, match="printed"):
        list(plan.jobs(plan.Plan(arms=("printd",))))
    with pytest.raises(InputError, match="decays"):
        list(plan.jobs(plan.Plan(decays=(0.5,))))


def test_standardized_inputs_have_one_mean_and_deviation_for_a_data_set():
    raw, found = data_set("digits"), data_set("digits", "standardized")
    pixels = raw.train[0].numpy().astype(np.float64)
    for part in ("train", "test"):
        expected = (getattr(raw, part)[0].numpy() - pixels.mean()) / pixels.std()
        assert np.allclose(getattr(found, part)[0].numpy(), expected, atol=1e-5)
        assert torch.equal(getattr(found, part)[1], getattr(raw, part)[1])
    job = next(plan.jobs(PLAIN.planned("smoke", ["arms=[standardized]"])))
    assert torch.equal(samples_of(job)[0][0], found.train[0][: job.samples].flatten(1))
    assert torch.equal(held_out(job)[0], found.train[0][job.samples :].flatten(1))


def test_a_packed_data_set_keeps_its_test_set_its_last_training_samples_and_its_standardization(tmp_path, monkeypatch):
    """32,000 training samples: packed are the first 20,000 and the last 10,000."""
    generator = torch.Generator().manual_seed(0)
    train, test = (
        (torch.rand(n, 1, 7, 7, generator=generator), torch.randint(10, (n,), generator=generator))
        for n in (32_000, 12_000)
    )
    monkeypatch.setattr(cases, "load", lambda name, view: DataSet(name, train, test, 10))
    data_set.cache_clear()
    try:
        whole = {inputs: data_set("noise", inputs) for inputs in ("raw", "standardized")}
        assert main(["pack", "--out", str(tmp_path), "--data", "noise"]) == 0
        job = next(plan.jobs(PLAIN.planned("paper", ["data=[noise]", "samples=[20000]", "architectures=[cnn]"])))
        before = held_out(job)
        monkeypatch.setenv(cases.PACKED, str(tmp_path))
        data_set.cache_clear()
        for inputs, expected in whole.items():
            found = data_set("noise", inputs)
            assert len(found.train[1]) == 30_000
            assert torch.equal(found.train[0][:20_000], expected.train[0][:20_000])
            assert torch.equal(found.test[0], expected.test[0])
        assert len(samples_of(job)[1][1]) == 12_000
        assert torch.equal(before[0], held_out(job)[0])
        assert torch.equal(before[0], whole["raw"].train[0][-10_000:])
    finally:
        data_set.cache_clear()
