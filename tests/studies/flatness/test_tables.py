"""Tables, figures and the page from made-up networks whose answers are known."""

import numpy as np
import pandas as pd
import pytest
import torch

from studies.flatness.adding import conditional, granulated, group_taus
from studies.flatness.criterion import criterion_table
from studies.flatness.figures import draw
from studies.flatness.matrices import Outputs
from studies.flatness.measures import MEASURES, PREDICTIONS
from studies.flatness.report import page
from studies.flatness.tables import cell_table, joined, kendall_table
from studies.flatness.tables import tables as without_criterion

ORIGIN = {"device": {"cpu": 1}}


def tables(table):
    made = without_criterion(table)
    return {**made, "criterion": criterion_table({"printed": made["networks"]})}


def made_up(seed=0):
    """A grid in which rank_λ(F)/n is the gap up to a factor of two, Tr F is noise, and KFAC is three times too high."""
    rng = np.random.default_rng(seed)
    rows = []
    for data in ("mnist", "svhn"):
        for samples in (100, 400):
            for decay in (1.0, 10.0, 100.0):
                for lr in (0.01, 0.001):
                    gap = float(rng.uniform(0.01, 1))
                    row = {
                        "part": "grid", "architecture": "mlp", "data": data, "samples": samples, "decay": decay,
                        "batch_size": 64, "lr": lr, "outcome": "finished", "gap": gap, "gap_held": gap**2,
                        "loss_train": 1.0, "loss_test": 1 + gap, "accuracy_train": 0.1 if decay == 100 else 0.9,
                        "weight_norm": 1.0,
                        "llc": gap * samples / 2, "llc_verdict": "ok", "llc_bayes": gap * samples / 2,
                        "llc_bayes_verdict": "ok", "fluctuation": gap * samples / 4, "waic": 1 + gap, "wbic": samples,
                        "half_soft_rank_llc": 1.0, "half_soft_rank_llc_bayes": 1.0, "half_tic_fluctuation": 1.0,
                        "train_seconds": 0.5, "curvature_seconds": 0.25, "sampling_seconds": 0.25,
                    }  # fmt: skip
                    for part in ("train", "test"):
                        rank = 2 * gap * samples
                        row |= {f"{name}_{part}": float(rng.uniform(0.5, 1)) for name in (
                            "trace_f", "trace_c", "norm_f", "size_c", "size_c_apart", "size_f", "size_f_apart",
                            "cosine_b", "cosine_c", "cosine_f", "cosine_cf", "thomas_tic")}  # fmt: skip
                        row |= {
                            f"trace_ratio_{part}": 0.5, f"soft_rank_{part}": rank, f"log_det_{part}": rank,
                            f"soft_rank_2_{part}": rank, f"thomas_rank_{part}": 5.0, f"tic_{part}": gap,
                            f"tic_plain_{part}": gap, f"decrement_{part}": 1e-6,
                        }  # fmt: skip
                        for kind in ("kfac", "ekfac", "diagonal"):
                            row |= {f"soft_rank_{kind}_{part}": 3 * rank, f"log_det_{kind}_{part}": rank}
                    rows.append(row)
                    if lr == 0.01:
                        names = ("architecture", "data", "samples", "decay", "batch_size", "lr")
                        same = {name: row[name] for name in names}
                        rows.append({**same, "part": "folds", "outcome": "finished", "cv_gap": gap, "cv_seconds": 1.0})
    return pd.DataFrame(rows)


def test_cross_validation_stands_beside_its_network_and_failures_are_left_out():
    table = made_up()
    table.loc[0, "llc_verdict"] = "failed"
    grid = joined(table)
    assert len(grid) == 24
    assert (grid["part"] == "grid").all()
    held = grid[grid["lr"] == 0.01]
    assert np.allclose(held["cv_gap"], held["gap"])
    assert grid[grid["lr"] == 0.001]["cv_gap"].isna().all()
    assert np.isnan(grid["llc"].iloc[0])
    assert grid["llc"].notna().sum() == 23


def test_correlations_are_those_of_the_grid():
    grid = joined(made_up())
    table = kendall_table(grid)
    held = table[table["against"] == "held out"].set_index(["scope", "way", "measure"])
    assert held.loc[("all", "within", "soft_rank_train"), "tau"] == 1  # the square has the same order
    table = table[table["against"] == "test set"].set_index(["scope", "way", "measure"])
    assert table.loc[("all", "per sample", "soft_rank_train"), "tau"] == 1
    assert table.loc[("all", "within", "soft_rank_train"), ["tau", "low", "high"]].tolist() == [1, 1, 1]
    assert table.loc[("all", "as printed", "soft_rank_train"), "tau"] < 1
    assert abs(table.loc[("all", "per sample", "trace_f_train"), "tau"]) < 0.7
    assert table.loc[("all", "as printed", "soft_rank_train"), "paper"] == 0.84
    assert np.isnan(table.loc[("all", "as printed", "less_loss_train"), "tau"])  # all equal: no order to speak of
    assert table.loc[("learned", "as printed", "soft_rank_train"), "networks"] == 16
    assert table.loc[("cross-validated", "as printed", "cv_gap"), "tau"] == 1
    assert set(kendall_table(grid, only=["all"])["scope"]) == {"all"}
    cells = cell_table(grid)
    assert len(cells.groupby(["data", "samples"])) == 4
    assert (cells[cells["measure"] == "soft_rank_train"]["tau"] == 1).all()


def test_predictions_are_compared_with_the_gap_itself():
    table = tables(made_up())["predictions"]
    held = table[table["against"] == "held out"].set_index("prediction")
    assert held.loc["eq8_test", "factor"] > 1.2  # the square of a gap below 1 is less
    assert held.loc["eq8_test", "tau"] == 1
    table = table[table["against"] == "test set"].set_index("prediction")
    assert table.loc["eq8_test", "factor"] == pytest.approx(1)  # ratio ½ times twice the gap
    assert table.loc["rank_train", "factor"] == pytest.approx(2)
    assert table.loc["eq8_kfac_test", "factor"] == pytest.approx(3)
    assert table.loc["eq8_kfac_test", "error"] == pytest.approx(np.log10(3))
    assert table.loc["eq8_test", "within_two"] == 1
    assert table.loc["eq8_kfac_test", "within_two"] == 0
    assert table.loc["fluctuation_gap", "factor"] == pytest.approx(0.5)
    assert set(table.index) <= set(PREDICTIONS)


@pytest.mark.slow
def test_networks_that_diverged_or_have_no_gap_do_no_harm(tmp_path):
    table = made_up()
    grid = table["part"] == "grid"
    lost = table[grid].index[:2]
    table.loc[lost, [name for name in table if name.endswith(("_train", "_test")) or name in ("gap", "gap_held")]] = (
        np.nan
    )
    table.loc[lost, "outcome"] = "diverged"
    table.loc[table[grid].index[3], "gap"] = -0.01
    made = tables(table)
    assert len(made["networks"]) == 24
    assert made["kendall"]["networks"].max() == 22
    assert made["predictions"].set_index(["prediction", "against"]).loc[("eq8_test", "test set"), "without_sign"] == 1
    assert len(draw(made, tmp_path)) == 11
    text = page(made, ORIGIN)
    assert "2 diverged" in text
    assert "| rank_λ(F) | 0.84 |" in text


@pytest.mark.slow
def test_without_sampling_and_cross_validation_the_rest_is_there(tmp_path):
    table = made_up()
    table = table[table["part"] == "grid"].drop(
        columns=[name for name in table if name.startswith(("llc", "fluct", "waic", "wbic", "cv_", "half_"))]
    )
    made = tables(table)
    assert {measure.column for measure in MEASURES} > set(made["kendall"]["measure"])
    assert {path.stem for path in draw(made, tmp_path)} >= {"table1", "best_where", "figure2_training_data"}
    assert "λ̂, ν̂" not in page(made, ORIGIN).split("## What it cost")[0]


def test_a_measure_that_knows_the_decay_alone_adds_nothing_to_it():
    """A gap of a part that the decay sets, and a part of the rate; one measure knows the first, another the second."""
    table = made_up()
    grid = table[table["part"] == "grid"].copy()
    by_decay = {1.0: 0.9, 10.0: 0.5, 100.0: 0.1}
    grid["gap"] = grid["decay"].map(by_decay) + 0.01 * (grid["lr"] > 0.005)
    grid["soft_rank_train"] = grid["samples"] * grid["decay"].map(by_decay)
    grid["trace_f_train"] = grid["samples"] * (grid["lr"] > 0.005).astype(float)
    grid["accuracy_train"] = 0.9
    grid = joined(pd.concat([grid, table[table["part"] == "folds"]]))
    found = granulated(grid).query("against == 'test set'").set_index(["measure", "axis"])
    assert found.loc[("soft_rank_train", "decay"), ["tau", "low", "high"]].tolist() == [1.0, 1.0, 1.0]
    assert np.isnan(found.loc[("soft_rank_train", "lr"), "tau"])  # it is the same at both rates
    assert found.loc[("trace_f_train", "lr"), "tau"] == 1.0
    assert found.loc[("less_decay", "decay"), "tau"] == 1.0
    inside = conditional(grid).query("against == 'test set' and scope == 'all'").set_index(["measure", "fixed"])["tau"]
    assert inside["soft_rank_train", "nothing"] > 0.8
    assert np.isnan(inside["soft_rank_train", "data set, n, weight decay"])
    assert inside["trace_f_train", "data set, n, weight decay"] == 1.0


def test_groups_of_one_and_of_ties_have_no_rank_correlation():
    values, gap = np.array([1.0, 2.0, 5.0, 3.0, 3.0]), np.array([2.0, 1.0, 0.0, 1.0, 2.0])
    assert group_taus(values, gap, ["a", "a", "b", "c", "c"]).tolist() == [-1.0]


def test_the_margin_is_the_tenth_percentile_of_the_lead_of_the_true_class():
    scores = torch.tensor([[2.0, 0.0, 1.0], [0.0, 3.0, 1.0], [1.0, 0.0, 0.5]], dtype=torch.float64)
    margins = [1.0, 2.0, -0.5]  # leads of classes 0, 1 and 2
    found = Outputs(scores, torch.tensor([0, 1, 2])).numbers()["margin"]
    assert found == pytest.approx(np.quantile(margins, 0.1))
