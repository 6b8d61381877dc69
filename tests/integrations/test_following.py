"""Following a training: one resolution, what it may cost, its table and figure."""

import math

import pytest
import torch
from torch import nn

import basinscope as bs
from basinscope.integrations.following import Following, numbers
from basinscope.integrations.loops import Measurements
from basinscope.training import Every, Measure, train
from basinscope.training.hooks import TrainingClock

X = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
Y = X.sum(1, keepdim=True)
LLC = Measure(bs.llc, Every(steps=1), options={"sampler": "sgld", "step_size": 1e-3, "draws": 16, "chains": 2})


def sgd(net):
    return torch.optim.SGD(net.parameters(), lr=0.1)


def test_a_run_has_the_resolution_of_its_first_measurement():
    run = train(nn.Linear(3, 1), (X, Y), sgd, loss="mse", epochs=3, batch_size=40, measures=[LLC], progress=False)
    gammas = run.history["llc_gamma"].dropna()
    assert len(gammas) == 3
    assert gammas.nunique() == run.history["llc_nbeta"].dropna().nunique() == 1
    alone = LLC.columns(bs.Landscape(run.model, "mse", (X, Y)))
    assert not math.isclose(alone["llc_gamma"], gammas.iloc[0], rel_tol=1e-2)  # γ = d/‖w*‖² would have moved


def test_a_resolution_that_is_given_is_kept_and_measures_without_one_get_none():
    given = Measure(bs.llc, Every(steps=1), options={**LLC.options, "gamma": 3.0})
    rows = [{"llc_nbeta": 7.0, "llc_gamma": 2.0}]
    land = bs.Landscape(nn.Linear(3, 1), "mse", (X, Y))
    assert given.columns(land, rows)["llc_gamma"] == 3.0
    assert LLC.columns(land, rows)["llc_gamma"] == 2.0
    assert LLC.columns(land, rows)["llc_nbeta"] == 7.0
    assert LLC.columns(land, [{"llc": math.nan, "llc_verdict": "failed"}])["llc_gamma"] != 2.0
    plain = Measure(lambda land: 1.0, name="llc")
    assert plain.columns(land, rows) == {"llc": 1.0}


def test_a_hand_written_loop_is_followed():
    net, seen = nn.Linear(3, 1), []
    optimizer = sgd(net)
    follow = Measurements(net, [LLC, Measure(bs.trace, Every(epochs=1, start=True))], (X, Y), "mse",
                          steps_per_epoch=2, log=[seen.append])  # fmt: skip
    for _ in range(4):
        optimizer.zero_grad()
        nn.functional.mse_loss(net(X), Y).backward()
        optimizer.step()
        follow.step()
    assert [row["step"] for row in follow.rows] == [0, 1, 2, 3, 4]
    assert ["trace" in row for row in follow.rows] == [True, False, True, False, True]
    assert seen == follow.rows
    assert follow.history["llc_gamma"].dropna().nunique() == 1
    assert {"llc_nbeta", "llc_gamma"} <= set(numbers(follow.rows[-1]))
    assert "measuring took" in follow.cost
    assert [axes.get_title() for axes in follow.plot().axes if "γ" in axes.get_title()]
    with pytest.raises(bs.InputError, match="pass steps_per_epoch"):
        Measurements(net, [Measure(bs.trace, Every(epochs=1))], (X, Y), "mse")


class Seconds:
    """A clock that moves by so many seconds a step, and by what a measurement says it took."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def followed(share, cost, budgeted, steps=100):
    """Rows of a training of a second a step, measured at every tenth for so many seconds."""
    clock = Seconds()

    def free(land):
        clock.now += cost
        return cost

    def limited(land, budget=60.0):
        clock.now += min(budget, cost)
        return budget

    measure = Measure(limited if budgeted else free, Every(steps=10), name="looked")
    follow = Following([measure], lambda net: None, share, clock)
    net = nn.Linear(1, 1)
    follow.look(net, None, TrainingClock(0, 0, 10))
    for step in range(1, steps + 1):
        clock.now += 1.0
        follow.look(net, TrainingClock(step - 1, step - 1, 10), TrainingClock(step, step, 10))
    return follow


def test_what_is_due_waits_until_there_is_time_for_it():
    assert [row["step"] for row in followed(None, 5.0, False).rows] == list(range(10, 101, 10))
    assert [row["step"] for row in followed(0.5, 5.0, False).rows] == list(range(10, 101, 10))
    slow = followed(0.1, 5.0, False, steps=95)
    assert sum(row["measuring_seconds"] for row in slow.rows) <= 0.1 * 95 + 5.0
    assert [row["step"] for row in slow.rows] == [10]
    assert "1 measurement waits for time" in slow.cost
    assert [row["step"] for row in followed(0.1, 5.0, False, steps=105).rows] == [10, 100]


def test_a_budget_is_no_larger_than_the_time_there_is():
    rows = followed(0.1, 60.0, True).rows
    assert [row["step"] for row in rows] == list(range(10, 101, 10))
    assert sum(row["measuring_seconds"] for row in rows) <= 0.1 * 100 + 1e-9
    assert all(row["looked"] <= 60.0 for row in rows)
    with pytest.raises(bs.InputError, match="share"):
        Following([LLC], lambda net: None, 0.0)
