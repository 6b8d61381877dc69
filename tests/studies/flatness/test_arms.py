"""What the networks of each arm are trained on, and how."""

import numpy as np
import pandas as pd
import pytest
import torch

from basinscope.errors import InputError
from basinscope.runs.units import planned, units
from basinscope.zoo.data import DataSet
from studies.flatness import cases
from studies.flatness.arms import ARMS, PRINTED, select
from studies.flatness.cases import data_set, held_out, samples_of
from studies.flatness.jobs import jobs
from studies.flatness.settings import SCALES, FlatnessSettings
from studies.flatness.study import STUDY


def table_of(**settings):
    return pd.DataFrame([job.config() for job in jobs(FlatnessSettings(parts=("grid",), **settings))])


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
        grid = select(table, name)
        assert len(grid) == 1701
        assert not grid.duplicated(["architecture", "data", "samples", "decay", "batch_size", "lr"]).any()
        assert sorted(set(grid["decay"])) == decays
        assert set(grid["inputs"]) == {inputs}
        assert set(grid["schedule"]) == {schedule}
        assert set(grid["polish"]) == {60 if schedule == "cosine" else 0}
    for name, divisor in (("hundredth", 100), ("thousandth", 1000)):
        assert ARMS[name].decays == pytest.approx([decay / divisor for decay in PRINTED], rel=1e-12)
    assert set(table["test_samples"]) == {0}
    assert set(table["draws"]) == {0}


def test_networks_of_two_arms_differ_in_nothing_else():
    table = table_of(arms=("printed", "annealed"))
    first, second = (select(table, name) for name in ("printed", "annealed"))
    same = [name for name in table if name not in ("inputs", "schedule", "polish")]
    assert first[same].equals(second[same])


def test_populations_are_of_one_arm_architecture_and_batch_size():
    listed = units(STUDY, planned(STUDY, FlatnessSettings(parts=("grid",))), lambda key: False)
    assert sorted(len(unit.keys) for unit in listed) == [189] * 18 + [297] * 9
    for unit in listed:
        for name in ("inputs", "schedule", "architecture", "batch_size"):
            assert len({config[name] for config in unit.configs}) == 1


def test_arms_and_decays_that_do_not_exist_are_refused():
    with pytest.raises(InputError, match="printed"):
        list(jobs(FlatnessSettings(arms=("printd",))))
    with pytest.raises(InputError, match="decays"):
        list(jobs(FlatnessSettings(decays=(0.5,))))


def test_standardized_inputs_have_one_mean_and_deviation_for_a_data_set():
    raw, standardized = data_set("digits"), data_set("digits", "standardized")
    pixels = raw.train[0].numpy().astype(np.float64)
    for part in ("train", "test"):
        expected = (getattr(raw, part)[0].numpy() - pixels.mean()) / pixels.std()
        assert np.allclose(getattr(standardized, part)[0].numpy(), expected, atol=1e-5)
        assert torch.equal(getattr(standardized, part)[1], getattr(raw, part)[1])
    job = next(jobs(FlatnessSettings(**SCALES["smoke"] | {"arms": ("standardized",)})))
    assert torch.equal(samples_of(job)[0][0], standardized.train[0][: job.samples].flatten(1))
    assert torch.equal(held_out(job)[0], standardized.train[0][job.samples :].flatten(1))


def test_samples_held_out_are_the_last_of_the_training_file_and_all_others_test(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    train, test = (
        (torch.rand(n, 1, 7, 7, generator=generator), torch.randint(10, (n,), generator=generator))
        for n in (32_000, 12_000)
    )
    monkeypatch.setattr(cases, "load", lambda name, view: DataSet(name, train, test, 10))
    data_set.cache_clear()
    try:
        whole = data_set("noise")
        job = next(jobs(FlatnessSettings(data=("noise",), samples=(20_000,), architectures=("cnn",))))
        assert torch.equal(samples_of(job)[0][0], whole.train[0][:20_000])
        assert len(samples_of(job)[1][1]) == 12_000
        assert torch.equal(held_out(job)[0], whole.train[0][-10_000:])
    finally:
        data_set.cache_clear()
