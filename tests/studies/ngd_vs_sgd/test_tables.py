import math

import numpy as np
import pandas as pd
import pytest

from studies.ngd_vs_sgd.claims import claims
from studies.ngd_vs_sgd.tables import at_equal_loss, compared, corrected, sound, tables


def sizes(shift, seeds=6):
    """Rows of a comparison of sizes in which NGD is above SGD by `shift`, and SGD ended lower."""
    rng = np.random.default_rng(0)
    rows = []
    for network in ("1x8", "1x16"):
        for seed in range(seeds):
            case = {"part": "sizes", "data": "digits", "network": network, "epochs": 3, "seed": seed}
            case["outcome"] = "finished"
            noise = rng.normal(0, 0.1, 3)
            rows += [
                {**case, "optimizer": "online", "moment": "end", "train_loss": 0.5, "llc_paper": 5 + shift + noise[0]},
                {**case, "optimizer": "sgd", "moment": "end", "train_loss": 0.2, "llc_paper": 5 + noise[1]},
                {**case, "optimizer": "sgd", "moment": "matched", "train_loss": 0.5, "llc_paper": 4 + noise[2]},
            ]
    return pd.DataFrame(rows)


def test_a_planted_difference_is_found_at_the_end_and_at_equal_loss():
    made = tables(sizes(1.0))["sizes"].set_index(["network", "moment"])
    assert np.allclose(made.xs("end", level="moment")["difference"], 1, atol=0.2)
    assert np.allclose(made.xs("matched", level="moment")["difference"], 2, atol=0.2)
    assert (made["p_holm"] >= made["p"]).all()
    assert (made["p_holm"] < 1e-3).all()
    assert np.allclose(made.xs("matched", level="moment")[["ngd_loss", "sgd_loss"]], 0.5)


@pytest.mark.parametrize(("shift", "holds"), [(1.0, "yes"), (0.0, "undecided"), (-1.0, "no")])
def test_the_claim_about_sizes_follows_the_numbers(shift, holds):
    judged = claims(tables(sizes(shift)))
    assert judged.loc[judged["measurement"].str.contains("end"), "holds"].tolist() == [holds]


def test_depths_are_judged_apart():
    deeper = sizes(-1.0)
    deeper["network"] = deeper["network"].str.replace("1x", "2x")
    judged = claims(tables(pd.concat([sizes(1.0), deeper], ignore_index=True)))
    ended = judged[judged["way"] == "(i) λ̂, paper's SGLD"]
    assert dict(zip(ended["setting"], ended["holds"], strict=True)) == {
        "1 hidden layer": "yes",
        "2 hidden layers": "no",
    }


def test_equal_loss_takes_the_end_of_the_slower_twin():
    chosen = at_equal_loss(sizes(0.0, seeds=2))
    moments = set(zip(chosen["optimizer"], chosen["moment"], strict=True))
    assert moments == {("online", "end"), ("sgd", "matched")}


def test_failed_estimates_are_no_measurements():
    table = pd.DataFrame({"llc": [1.0, -3.0], "llc_verdict": ["doubtful", "failed"], "other": [1.0, 2.0]})
    measured = sound(table)
    assert measured["llc"].notna().tolist() == [True, False]
    assert measured["other"].tolist() == [1.0, 2.0]


def test_too_few_seeds_give_means_and_no_test():
    comparison = compared([3.0, math.nan], [1.0])
    assert (comparison["difference"], comparison["ngd_seeds"]) == (2.0, 1)
    assert "p" not in comparison
    assert corrected([comparison]) == [comparison]
    assert math.isnan(comparison["ngd_stderr"])
    alone = compared([math.nan, 3.0], [], [0.1, 0.2], [])
    assert (alone["ngd"], alone["ngd_stderr"]) == (3.0, 0.2)
    assert math.isnan(alone["sgd"])
    several = compared([1.0, 3.0], [2.0], [9.0, 9.0], [0.5])
    assert (several["ngd_stderr"], several["sgd_stderr"]) == (1.0, 0.5)


def trajectory(part, optimizer, seed, **columns):
    length = len(next(iter(columns.values())))
    case = {"part": part, "data": "digits", "network": "1x8", "epochs": 4, "optimizer": optimizer, "seed": seed}
    case |= {"outcome": "finished", "moment": "training"}
    return [{**case, "epoch": float(k), **{name: v[k] for name, v in columns.items()}} for k in range(length)]


def test_variants_are_interpolated_to_the_loss_at_which_the_slower_one_ended():
    rows = []
    for seed in range(3):
        wobble = 0.01 * seed
        rows += trajectory("variants", "sgd", seed, train_loss=[2.0, 1.0, 0.0], llc_paper=[0.0, 1.0 + wobble, 2.0])
        rows += trajectory("variants", "kfac", seed, train_loss=[2.0, 1.5, 1.0], llc_paper=[0.0, 3.0, 4.0 + wobble])
    made = tables(pd.DataFrame(rows))["variants"].set_index("moment")
    assert made.loc["matched", "ngd"] == pytest.approx(4.01)
    assert made.loc["matched", "sgd"] == pytest.approx(1.01)
    assert made.loc["end", "sgd"] == pytest.approx(2.0)


def test_overfitting_reports_lag_and_rank_correlation():
    epochs = np.arange(9.0)
    rows = trajectory("overfitting", "sgd", 0, validation_loss=(epochs - 3) ** 2, wbic_paper=(epochs - 5) ** 2)
    (row,) = tables(pd.DataFrame(rows))["overfitting"].to_dict("records")
    assert (row["validation_turns"], row["measure_turns"], row["lag"]) == (3.0, 5.0, 2.0)
    assert row["points_after"] == 6


def test_branches_are_measured_from_the_end_of_their_trunk():
    rows = []
    for seed in range(3):
        case = {"part": "branches", "data": "digits", "lr": 0.1, "seed": seed, "outcome": "finished"}
        case |= {"trunk_epochs": 1, "moment": "end"}
        rows.append({**case, "run": "trunk", "epoch": 1.0, "llc_paper": 5.0, "train_loss": 1.0})
        rows.append({**case, "run": "sgd@0.1", "epoch": 2.0, "llc_paper": 5.0 + 0.01 * seed, "train_loss": 0.9})
        rows.append({**case, "run": "online@0.1", "epoch": 2.0, "llc_paper": 8.0 + 0.01 * seed, "train_loss": 0.8})
    made = tables(pd.DataFrame(rows))
    table = made["branches"].set_index(["measurement", "run"])
    assert table.loc[("llc_paper", "sgd@0.1"), "rise"] == pytest.approx(0.01)
    assert table.loc[("llc_paper", "online@0.1"), "ahead"] == pytest.approx(3.0)
    assert claims(made)["holds"].tolist() == ["yes"]


def test_the_papers_value_at_the_end_is_the_mean_of_the_last_two_epochs():
    rows = []
    for seed in range(3):
        for optimizer, start in (("sgd", 4.0), ("online", 8.0)):
            run = trajectory("sizes", optimizer, seed, train_loss=[2.0, 1.0, 0.5], llc_paper=[0, start, start + 2])
            run[-1]["moment"] = "end"
            rows += run
    (row,) = tables(pd.DataFrame(rows))["sizes"].to_dict("records")
    assert (row["sgd"], row["ngd"]) == (5.0, 9.0)
