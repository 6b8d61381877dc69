import math

import numpy as np
import pandas as pd
import pytest

from studies.ngd_vs_sgd.authors import agreement
from studies.ngd_vs_sgd.claims import claims
from studies.ngd_vs_sgd.tables import at_equal_loss, compared, corrected, sound, tables


def sizes(shift, seeds=6):
    """Rows of a comparison of sizes in which NGD is above SGD by `shift`, and SGD ended lower."""
    rng = np.random.default_rng(0)
    rows = []
    for network in ("1x8", "1x16"):
        for seed in range(seeds):
            case = {"part": "sizes", "data": "digits", "network": network, "epochs": 3, "seed": seed}
            case |= {"outcome": "finished", "validation_loss": 0.6, "accuracy": 0.8}
            noise = rng.normal(0, 0.1, 3)
            rows += [
                {**case, "optimizer": "online", "moment": "end", "train_loss": 0.5, "llc_paper": 5 + shift + noise[0]},
                {**case, "optimizer": "sgd", "moment": "end", "train_loss": 0.2, "llc_paper": 5 + noise[1]},
                {**case, "optimizer": "sgd", "moment": "matched", "train_loss": 0.5, "llc_paper": 4 + noise[2]},
            ]
    return pd.DataFrame(rows)


def test_a_planted_difference_is_found_at_the_end_and_at_equal_loss():
    made = tables(sizes(1.0))["sizes_compared"].set_index(["network", "moment"])
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
    ended = judged[judged["way"] == "as the authors measured"]
    assert dict(zip(ended["setting"], ended["holds"], strict=True)) == {
        "1 hidden layer": "yes",
        "2 hidden layers": "no",
    }


def test_test_loss_within_an_epoch_is_between_those_of_the_epochs():
    table = sizes(0.0, seeds=1)[:3].assign(epoch=[3.0, 3.0, 1.5])
    before = table.iloc[[1]].assign(moment="training", epoch=1.0, validation_loss=1.0)
    table.loc[table["moment"] == "matched", "validation_loss"] = math.nan
    chosen = at_equal_loss(pd.concat([table, before], ignore_index=True)).set_index("moment")
    assert chosen.loc["matched", "validation_loss"] == pytest.approx(0.75 * 1.0 + 0.25 * 0.6)


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
        case |= {"trunk_epochs": 1, "epochs": 2, "moment": "end"}
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
            run = trajectory("sizes", optimizer, seed, train_loss=[2.0, 1.0, 0.5], llc_paper=[0, start, start + 2],
                             validation_loss=[2.0, 1.0, 0.6], accuracy=[0.1, 0.5, 0.8])  # fmt: skip
            run[-1]["moment"] = "end"
            rows += run
    made = tables(pd.DataFrame(rows))
    (row,) = made["sizes_compared"].to_dict("records")
    assert (row["sgd"], row["ngd"]) == (5.0, 9.0)
    wanted = {"network": "1x8", "seeds": 3, "llc_sd": 0.0, "train_loss_mean": 0.5, "test_loss_mean": 0.6}
    assert [(row["optimizer"], row["llc_mean"]) for row in made["sizes"].to_dict("records")] == [
        ("sgd", 5.0),
        ("ngd", 9.0),
    ]
    assert all(
        row[name] == pytest.approx(value) for row in made["sizes"].to_dict("records") for name, value in wanted.items()
    )


def published(part, seeds=3, **columns):
    """Rows at the end of training of the networks of the paper, with a λ̂ that varies by 0.1 over the seeds."""
    case = {"part": part, "data": "mnist", "network": "2x256", "outcome": "finished", "moment": "end", "epoch": 1.0}
    case |= {"train_loss": 0.02, "validation_loss": 0.1, "accuracy": 0.98, "run": "online", **columns}
    return [{**case, "seed": seed, "llc_paper": case["llc_paper"] + 0.1 * (seed - 1)} for seed in range(seeds)]


def test_what_is_found_stands_beside_what_was_published():
    rows = published("sizes", optimizer="sgd", llc_paper=43.7)
    rows += published("sizes", optimizer="online", llc_paper=61.0)
    rows += published("smoothing", optimizer="online", alpha=0.0, epsilon=1e-13, llc_paper=56.07)
    rows += published("smoothing", optimizer="online", alpha=50.0, epsilon=1e-10, llc_paper=30.0)
    rows += published("branches", optimizer="branches", alpha=0.1, epsilon=1e-10, lr=1e-4, trunk_epochs=15, epochs=50,
                      run="sgd@0.001", llc_paper=46.0)  # fmt: skip
    found = pd.DataFrame(agreement(pd.DataFrame(rows)))
    assert found["figure"].tolist() == ["1", "1", "3", "3", "4–6"]
    assert found["published"].round(2).tolist() == [43.84, 55.92, 46.65, 56.07, 46.08]
    assert found["agrees"].tolist() == [True, False, False, True, True]
    assert np.allclose(found["llc_stderr"], 0.1 / math.sqrt(3))
    assert np.allclose(found["difference"], found["llc"] - found["published"])
    assert found["difference_stderr"].iloc[0] == pytest.approx(
        math.hypot(0.1 / math.sqrt(3), 1.33 / math.sqrt(30)), rel=0.1
    )
    assert found["published_stderr"].iloc[-1] == pytest.approx(0.1)  # a single run, taken to vary as the seeds do


def test_doubtful_values_and_few_seeds_decide_nothing():
    table = sizes(1.0)
    table["llc_basin"], table["llc_verdict"] = table["llc_paper"], "doubtful"
    made = claims(tables(table)).set_index("way")
    assert made.loc["as the authors measured", "holds"] == "yes"
    assert made.loc["without estimator bias", "holds"] == "undecided"
    few = claims(tables(sizes(1.0, seeds=2))).set_index("way")
    assert few.loc["as the authors measured", "holds"] == "undecided"


def test_a_plateau_below_a_falling_trace_and_uneven_steps():
    rows = []
    for seed in range(3):
        for optimizer, uneven in (("sgd", 0.0), ("online", 0.5)):
            epochs = np.arange(1.0, 21.0)
            rows += trajectory("epochs", optimizer, seed, train_loss=1 / epochs, llc_paper=20 - 10 / epochs**2,
                               hessian_trace=100 / epochs, update_norm=np.exp(uneven * (-1) ** epochs))  # fmt: skip
    held = claims(tables(pd.DataFrame(rows))).set_index(["claim", "variant"])["holds"]
    assert held["λ̂ reaches a plateau while Tr H goes on falling", "sgd"] == "yes"
    assert held["the update size of NGD fluctuates, that of SGD is steady", "online"] == "yes"
