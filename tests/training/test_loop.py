"""What the loop does: rows, measurements, stops, divergence."""

import itertools
import math

import pytest
import torch
from torch import nn

import basinscope as bs
from basinscope.landscape import Landscape
from basinscope.optim import KFAC, EntropySGD, ExactNGD, OnlineNGD
from basinscope.training import Below, EarlyStop, Every, Flat, Measure, histories, load_checkpoint, train
from basinscope.training.batches import Batches
from basinscope.training.hooks import TrainingClock
from training_cases import OPTIMIZERS, data, network

f64 = torch.float64


def sgd(lr=0.1, **options):
    return lambda net: torch.optim.SGD(net.parameters(), lr=lr, **options)


def plain(dtype=torch.float32):
    return network(dtype, dropout=0.0)


def go(model=None, optimizer=None, **options):
    settings = {"batch_size": 8, "progress": False, **options}
    return train(plain() if model is None else model, data(), sgd() if optimizer is None else optimizer, **settings)


# ---------------------------------------------------------------------- batches


@pytest.mark.parametrize(("n", "size"), [(10, 3), (10, 5), (1, 1), (7, 6)])
def test_every_epoch_has_every_sample_once(n, size):
    batches = Batches(n, size, seed=3)
    orders = []
    for epoch in range(3):
        drawn = [batches.indices(epoch * batches.per_epoch + k) for k in range(batches.per_epoch)]
        order = list(range(n)) if drawn[0] is None else torch.cat(drawn).tolist()
        assert sorted(order) == list(range(n))
        orders.append(order)
    if n > 5:
        assert orders[0] != orders[1] != orders[2]


def test_a_batch_is_a_function_of_its_number():
    first, second = Batches(20, 6, seed=1), Batches(20, 6, seed=1)
    late = second.indices(9).tolist()
    assert [first.indices(k).tolist() for k in range(10)][9] == late
    assert Batches(20, 6, seed=2).indices(9).tolist() != late


# ---------------------------------------------------------------------- steps


def test_loop_is_plain_gradient_descent():
    x, y = data()
    run = go(plain(f64), epochs=2, seed=4)
    net, batches = plain(f64), Batches(len(x), 8, seed=4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for number in range(2 * batches.per_epoch):
        chosen = batches.indices(number)
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x[chosen]), y[chosen]).backward()
        optimizer.step()
    for ours, theirs in zip(run.model.parameters(), net.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    assert run.rows[-1]["train_loss"] == pytest.approx(nn.functional.cross_entropy(net(x), y).item(), rel=1e-12)


def test_the_given_network_and_the_global_generator_stay_as_they_were():
    model = network()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    torch.manual_seed(11)
    state = torch.get_rng_state()
    first = go(model, epochs=1)
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(7)
    second = go(model, epochs=1)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    for one, two in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(one, two)
    assert first.model.training


def test_norms_with_and_without_the_learning_rate():
    """Of one step of full-batch descent: ‖v‖ is the norm of the gradient."""
    run = go(plain(f64), sgd(0.05), steps=1, batch_size=53, record=Every(steps=1))
    net = plain(f64)
    x, y = data()
    nn.functional.cross_entropy(net(x), y).backward()
    length = math.sqrt(sum(float(p.grad.square().sum()) for p in net.parameters()))
    assert run.rows[-1]["direction_norm"] == pytest.approx(length, rel=1e-9)
    assert run.rows[-1]["update_norm"] == pytest.approx(0.05 * length, rel=1e-9)
    assert run.rows[-1]["lr"] == 0.05


def test_norms_with_a_rate_for_each_group():
    def build(net):
        return torch.optim.SGD([{"params": net[0].parameters(), "lr": 0.1}, {"params": net[3].parameters()}], lr=0.3)

    run = go(plain(f64), build, steps=1, batch_size=53, record=Every(steps=1))
    one = go(plain(f64), sgd(0.2), steps=1, batch_size=53, record=Every(steps=1))
    assert run.rows[-1]["direction_norm"] == pytest.approx(one.rows[-1]["direction_norm"], rel=1e-9)
    assert run.rows[-1]["update_norm"] != pytest.approx(one.rows[-1]["update_norm"], rel=1e-3)


def test_rows_are_means_over_what_lies_between():
    every = go(steps=14, record=Every(steps=1))
    some = go(steps=14, record=Every(steps=7))
    for column in ("batch_loss", "direction_norm", "update_norm"):
        values = [row[column] for row in every.rows]
        assert some.rows[0][column] == pytest.approx(sum(values[:7]) / 7, rel=1e-9)
        assert some.rows[1][column] == pytest.approx(sum(values[7:]) / 7, rel=1e-9)


def test_entropy_sgd_draws_a_batch_for_every_inner_step():
    run = go(optimizer=lambda net: EntropySGD(net.parameters(), inner_steps=5), epochs=3)
    assert run.step == 5  # 7 batches an epoch: 21 of them are five steps, the last of which ends late
    assert run.epoch == pytest.approx(25 / 7)
    assert [row["step"] for row in run.rows] == [0, 2, 3, 5]


@pytest.mark.parametrize("name", ["exact dual", "kfac", "online", "entropy", "adam"])
def test_every_optimizer_learns(name):
    run = train(plain(), data(), OPTIMIZERS[name], epochs=12, batch_size=8, progress=False)
    assert run.rows[-1]["train_loss"] < 0.7 * run.rows[0]["train_loss"]


def test_other_inputs_and_losses():
    torch.manual_seed(0)

    class Sum(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(2, 1), nn.Linear(3, 1)

        def forward(self, left, right):
            return self.a(left) + self.b(right)

    left, right = torch.randn(9, 2), torch.randn(9, 3)
    y = left[:, :1] - right[:, 1:2]
    for inputs in ((left, right), {"left": left, "right": right}):
        run = train(Sum(), (inputs, y), sgd(), loss="gaussian", sigma=0.5, epochs=20, batch_size=4, progress=False)
        assert run.rows[-1]["train_loss"] < run.rows[0]["train_loss"]
    run = train(Sum(), ((left, right), y), sgd(), loss=lambda o, t: (o - t).abs().sum(1), steps=3, progress=False)
    assert run.step == 3


def test_one_sample():
    run = train(nn.Linear(2, 1), (torch.ones(1, 2), torch.ones(1, 1)), sgd(), loss="mse", epochs=30, progress=False)
    assert run.rows[-1]["train_loss"] < 1e-4


def test_lbfgs_needs_all_samples():
    def build(net):
        return torch.optim.LBFGS(net.parameters(), lr=0.5, max_iter=5)

    with pytest.raises(bs.InputError, match="batch_size must be 53"):
        go(optimizer=build, epochs=1)
    run = go(plain(f64), build, steps=20, batch_size=53)
    assert run.rows[-1]["train_loss"] < 0.5 * run.rows[0]["train_loss"]


# ---------------------------------------------------------------------- measuring


def test_every():
    clocks = [TrainingClock(step, 3 * step, 7) for step in range(30)]
    steps, epochs = Every(steps=4), Every(epochs=2)
    pairs = list(itertools.pairwise(clocks))
    assert [b.step for a, b in pairs if steps.due(a, b)] == [4, 8, 12, 16, 20, 24, 28]
    assert [b.step for a, b in pairs if epochs.due(a, b)] == [5, 10, 14, 19, 24, 28]
    assert [b.step for a, b in pairs if Every(at=(1, 4, 29)).due(a, b)] == [1, 4, 29]
    for bad in ({}, {"steps": 1, "epochs": 1}, {"steps": 0}, {"epochs": -1}, {"at": (0,)}, {"steps": 1, "at": (1,)}):
        with pytest.raises(bs.InputError):
            Every(**bad)


def test_estimates_become_columns():
    run = go(
        plain(f64),
        epochs=2,
        validation=data(20, seed=9),
        measures=[
            Measure(bs.trace, Every(epochs=1, start=True), options={"matrix": "fisher"}),
            Measure(bs.soft_rank, Every(epochs=2), options={"weight_decay": 0.1}),
            Measure(bs.trace, Every(epochs=1), "validation_trace", "validation", {"matrix": "fisher"}),
            Measure(lambda land: {"size": land.dimension, "count": land.n}, Every(epochs=1), name="counts"),
        ],
    )
    table = run.history
    assert table["step"].tolist() == [0, 7, 14]
    assert table["trace"].notna().tolist() == [True, True, True]
    assert table["soft_rank"].notna().tolist() == [False, False, True]
    assert table["trace_verdict"].tolist() == ["ok"] * 3
    assert table["count"].tolist()[1:] == [53, 53]
    land = Landscape(run.model, "cross_entropy", data())
    assert run.rows[-1]["trace"] == bs.trace(land, matrix="fisher").value
    assert run.rows[-1]["soft_rank"] == bs.soft_rank(land, weight_decay=0.1).value
    held = Landscape(run.model, "cross_entropy", data(20, seed=9))
    assert run.rows[-1]["validation_trace"] == bs.trace(held, matrix="fisher").value
    assert run.rows[-1]["validation_loss"] == pytest.approx(float(held.per_sample().mean()), rel=1e-12)
    assert run.rows[-1]["train_loss"] == pytest.approx(float(land.per_sample().mean()), rel=1e-12)


def test_the_learning_coefficient_can_be_followed():
    options = {"chains": 2, "draws": 60, "nbeta": 5.0, "gamma": 10.0, "sampler": "sgld", "step_size": 1e-3}
    run = go(plain(), epochs=1, measures=[Measure(bs.llc, options=options)])
    row = run.rows[-1]
    assert math.isfinite(row["llc"])
    assert row["llc_stderr"] > 0
    land = Landscape(run.model, "cross_entropy", data())
    assert row["llc"] == bs.llc(land, progress=False, **options).value


def test_a_measurement_that_fails_does_not_end_the_training():
    def refuses(land):
        raise bs.InputError("not here")

    run = go(epochs=2, measures=[Measure(refuses)])
    assert run.outcome == "finished"
    assert math.isnan(run.rows[-1]["refuses"])
    assert run.rows[-1]["refuses_verdict"] == "failed"
    assert run.rows[-1]["refuses_warnings"] == "not here"


def test_bad_measurements():
    with pytest.raises(bs.InputError, match="two columns of the history would be called 'trace'"):
        go(epochs=1, measures=[Measure(bs.trace), Measure(bs.soft_rank, name="trace")])
    with pytest.raises(bs.InputError, match="two columns of the history would be called 'lr'"):
        go(epochs=1, measures=[Measure(lambda land: {"lr": 1.0}, name="rates")])
    with pytest.raises(bs.InputError, match="pass validation"):
        go(epochs=1, measures=[Measure(bs.trace, on="validation")])
    with pytest.raises(bs.InputError, match="must return an Estimate"):
        go(epochs=1, measures=[Measure(lambda land: "high", name="words")])
    with pytest.raises(bs.InputError, match="a name of letters"):
        Measure(lambda land: 1.0)


# ---------------------------------------------------------------------- the end


def test_early_stop():
    run = go(epochs=100, optimizer=sgd(0.5), validation=data(20, seed=9), stop=[EarlyStop(patience=3)])
    assert run.outcome == "stopped"
    losses = [row["validation_loss"] for row in run.rows]
    best = losses.index(min(losses))
    assert len(losses) == best + 4
    assert "validation_loss has not fallen below" in run.reason


def test_stopping_at_a_training_loss(tmp_path):
    options = {"epochs": 100, "record": Every(steps=1), "folder": tmp_path}
    run = go(stop=[Below("train_loss", 0.8)], **options)
    assert run.outcome == "stopped"
    assert run.rows[-1]["train_loss"] <= 0.8 < run.rows[-2]["train_loss"]
    again = go(stop=[Below("train_loss", 0.8)], **options)
    assert (again.outcome, again.reason, again.step) == (run.outcome, run.reason, run.step)
    further = go(stop=[Below("train_loss", 0.7)], **options)
    assert further.step > run.step
    whole = go(stop=[Below("train_loss", 0.7)], epochs=100, record=Every(steps=1))
    assert further.rows == whole.rows


def test_unknown_columns_are_refused():
    with pytest.raises(bs.InputError, match="no column 'validation_loss' to stop on"):
        go(epochs=1, stop=[EarlyStop()])
    with pytest.raises(bs.InputError, match="no column 'lcl' to stop on"):
        go(epochs=4, stop=[Flat(("train_loss", "lcl"))], measures=[Measure(lambda land: 1.0, Every(epochs=2), "llc")])


def test_stopping_where_nothing_changes():
    """The rule waits for a column that is measured less often than rows are written."""
    values = iter([5.0, 2.0, 1.0, 1.01, 1.0, 9.0])
    rules = [Flat(("train_loss", "llc"), window=2, tolerance=0.1)]
    measures = [Measure(lambda land: next(values), Every(epochs=2), "llc")]
    run = go(optimizer=sgd(1e-4), epochs=20, measures=measures, stop=rules)
    assert run.outcome == "stopped"
    assert run.epoch == 8
    for bad in ({"window": 1}, {"tolerance": 0}, {"on": "llc"}):
        with pytest.raises(bs.InputError):
            Flat(**bad)


BUILDERS = {
    "sgd": lambda net: torch.optim.SGD(net.parameters(), lr=1e9),
    "exact dual": lambda net: ExactNGD(net, "mse", lr=1e9, alpha=1e-3, solve="dual"),
    "exact primal": lambda net: ExactNGD(net, "mse", lr=1e9, alpha=1e-3, solve="primal"),
    "kfac": lambda net: KFAC(net, "mse", lr=1e9, alpha=1e-3),
    "online": lambda net: OnlineNGD(net.parameters(), lr=1e9),
    "entropy": lambda net: EntropySGD(net.parameters(), lr=1e9, inner_lr=1e5),
}


@pytest.mark.parametrize("name", BUILDERS)
def test_divergence_is_reported_not_averaged(name, tmp_path):
    x = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
    net = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2))
    options = {"loss": "mse", "steps": 80, "batch_size": 10, "progress": False, "folder": tmp_path}
    run = train(net, (x, x[:, :2]), BUILDERS[name], record=Every(steps=1, start=True), **options)
    assert run.outcome == "diverged"
    assert 1 <= run.step < 80
    assert f"at step {run.step} — lower the learning rate" in run.reason
    assert [row["step"] for row in run.rows] == list(range(run.step))
    assert all(math.isfinite(row["train_loss"]) for row in run.rows)
    again = train(net, (x, x[:, :2]), BUILDERS[name], record=Every(steps=1, start=True), **options)
    assert (again.outcome, again.step) == (run.outcome, run.step)
    assert histories({"a": run})["outcome"].unique().tolist() == ["diverged"]
    with pytest.raises(bs.InputError, match="holds a run that diverged"):
        train(net, (x, x[:, :2]), BUILDERS["sgd"], start=run.checkpoint, loss="mse", steps=1, batch_size=10)


@pytest.mark.parametrize("name", BUILDERS)
def test_divergence_is_dated_even_if_seen_late(name):
    """The loss is looked at now and then only; the steps in between run on NaN without a complaint."""
    x = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
    net = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2))
    options = {"loss": "mse", "steps": 80, "batch_size": 10, "progress": False}
    early = train(net, (x, x[:, :2]), BUILDERS[name], record=Every(steps=1), **options)
    late = train(net, (x, x[:, :2]), BUILDERS[name], record=Every(steps=70), **options)
    assert (late.outcome, late.rows) == ("diverged", [])
    assert late.step - early.step in (0, 1)  # all data show it before the next batch does
    assert late.epoch == pytest.approx(late.step / 3 * (20 if name == "entropy" else 1))


def test_divergence_between_rows_is_seen():
    """A large but finite loss counts too, even if no row falls on it."""
    x = torch.randn(30, 4, generator=torch.Generator().manual_seed(0), dtype=f64)
    net = nn.Linear(4, 2).double()
    run = train(net, (x, x[:, :2]), sgd(10.0), loss="mse", epochs=50, progress=False, batch_size=30)
    assert run.outcome == "diverged"
    assert all(row["train_loss"] < 1e6 * max(1, run.rows[0]["train_loss"]) for row in run.rows)


def test_bad_arguments(tmp_path):
    for options, message in (
        ({}, "pass epochs or steps"),
        ({"epochs": 0}, "epochs must be a positive"),
        ({"steps": 1.5}, "steps must be a whole number"),
        ({"steps": 1, "batch_size": 0}, "batch_size must be a whole number of at least 1"),
        ({"steps": 1, "seed": -1}, "seed must be a whole number of at least 0"),
        ({"steps": 1, "save": Every(steps=1)}, "need a folder"),
        ({"steps": 1, "carry": True}, "pass start"),
        ({"steps": 1, "start": tmp_path / "none"}, "no checkpoint at"),
        (
            {"steps": 1, "optimizer": torch.optim.SGD(network().parameters(), lr=0.1)},
            "must be a function that makes one",
        ),
        ({"steps": 1, "optimizer": lambda net: 3}, r"must return a torch.optim.Optimizer"),
        ({"steps": 1, "optimizer": lambda net: sgd()(network())}, "parameters of another network"),
    ):
        with pytest.raises(bs.InputError, match=message):
            go(**options)


def test_batch_statistics_follow_the_training():
    """BatchNorm trains on batches and is measured with the statistics it has by then."""
    net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))
    run = go(net, epochs=3, measures=[Measure(lambda land: float(land.per_sample().mean()), name="seen")])
    assert run.rows[-1]["seen"] == pytest.approx(run.rows[-1]["train_loss"], rel=1e-9)
    assert not torch.equal(run.model[1].running_mean, net[1].running_mean)
    assert run.model[1].training


def test_what_a_checkpoint_holds(tmp_path):
    run = go(epochs=3, folder=tmp_path, keep=Every(epochs=1))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "checkpoint.safetensors",
        "step-00000007.safetensors",
        "step-00000014.safetensors",
        "step-00000021.safetensors",
    ]
    state = load_checkpoint(run.checkpoint)
    assert state["clock"] == [21, 21]
    assert len(state["rows"]) == 4
    assert run.history["epoch"].tolist() == [0, 1, 2, 3]
