"""The criterion against a brute-force bootstrap, and on the networks of the study's first grid."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from studies.common.kendall import resampled
from studies.flatness.criterion import PAPER, criterion_table, distance
from studies.flatness.measures import CLUSTER

STORED = Path(__file__).parents[3] / "results" / "flatness" / "networks.parquet"


def grid(seed=0, networks=24):
    """Networks in pairs of one setting."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({name: rng.normal(size=networks) for name in PAPER})
    table["gap"] = table["soft_rank_train"] + rng.normal(size=networks)
    for name in CLUSTER:
        table[name] = np.arange(networks) // 2
    return table.assign(
        outcome="finished", accuracy_train=0.9, decrement_train=1.0, tic_train=1.0, lr=0.01, batch_size=64
    )


def brute(table, counts):
    """The distance over networks of which each stands there so many times, by SciPy."""
    rows = np.repeat(np.arange(len(table)), counts)
    chosen = table.iloc[rows]
    squares = [(stats.kendalltau(chosen[name], chosen["gap"]).statistic - tau) ** 2 for name, tau in PAPER.items()]
    return np.sqrt(np.mean(squares))


def test_the_papers_numbers_are_those_of_its_table():
    assert PAPER == {
        "soft_rank_train": 0.84, "log_det_train": 0.82, "soft_rank_kfac_train": 0.78, "log_det_kfac_train": 0.76,
        "log_det_diagonal_train": 0.72, "soft_rank_diagonal_train": 0.68, "trace_f_train": 0.28, "norm_f_train": 0.08,
    }  # fmt: skip


def test_value_and_interval_are_those_of_brute_force():
    table = grid()
    interval = distance(table, repetitions=60)
    assert interval.value == pytest.approx(brute(table, np.ones(24, dtype=int)))
    settings = [tuple(row) for row in table[list(CLUSTER)].to_numpy()]
    draws = resampled(settings, 60).astype(int)
    assert (draws[:, 0] == draws[:, 1]).all()  # whole settings
    spread = [brute(table, counts) for counts in draws]
    assert [interval.low, interval.high] == pytest.approx(np.quantile(spread, [0.025, 0.975]), rel=1e-5)
    assert interval.count == 24


def test_an_arm_that_orders_by_the_gap_alone_is_as_far_as_the_paper_is_from_one():
    table = grid().assign(**dict.fromkeys(PAPER, np.arange(24.0)), gap=np.arange(24.0))
    expected = np.sqrt(np.mean([(1 - tau) ** 2 for tau in PAPER.values()]))
    assert distance(table).value == pytest.approx(expected)


def test_networks_without_a_number_do_not_count():
    table = grid()
    table.loc[3, "trace_f_train"] = np.nan
    table.loc[5, "gap"] = np.inf
    assert distance(table, repetitions=5).count == 22
    assert distance(table, repetitions=5).value == pytest.approx(distance(table.drop([3, 5]), repetitions=5).value)
    nothing = distance(table.head(2))
    assert np.isnan([nothing.value, nothing.low, nothing.high]).all()


def test_dead_and_unsettled_networks_are_counted():
    table = grid()
    table.loc[:4, "accuracy_train"] = 0.1
    table.loc[:1, "decrement_train"] = 0.05
    table.loc[23, ["outcome", *PAPER, "gap"]] = ["diverged", *[np.nan] * 9]
    row = criterion_table({"printed": table}).iloc[0]
    assert (row["networks"], row["diverged"], row["learned"], row["at_minimum"]) == (23, 1, 18, 2)
    assert row["soft_rank_train"] == pytest.approx(
        stats.kendalltau(table["soft_rank_train"][:23], table["gap"][:23]).statistic
    )


def test_the_first_grid_is_0_184_from_the_paper():
    table = pd.read_parquet(STORED)
    assert distance(table, repetitions=2).value == pytest.approx(0.184, abs=5e-4)
    assert distance(table, "gap_held", repetitions=2).value == pytest.approx(0.192, abs=5e-4)
