"""One posterior for many measures: the same numbers as by themselves, from chains that run once."""

import dataclasses
import inspect
import itertools
import typing

import numpy as np
import pytest
import torch

import basinscope as bs
from basins import quadratic
from basinscope.landscape import watanabe_nbeta
from basinscope.measures import free_energy as energies
from basinscope.measures.checks import Balance, Movement
from basinscope.measures.evidence import draws_checks, movement
from basinscope.measures.settings import Sampling
from basinscope.sampling import clock
from basinscope.sampling.local import Sampler, Settings
from chance import SAMPLED, assert_within
from conjugate import KNOWN, six

f64 = torch.float64
QUICK = {"rtol": 0.05, "budget": 1.0, "progress": False}
LAND = quadratic([1.0, 0.3, 0.05], n=60, noise=1.0, dtype=f64)


def line():
    """The six-point regression as a landscape whose localiser at w* = 0, γ = 1/4, is the prior."""
    model = six()
    net = torch.nn.Linear(1, 1).double()
    for parameter in net.parameters():
        torch.nn.init.zeros_(parameter)
    return bs.Landscape(net, "gaussian", (torch.tensor(model.x[:, 1:]), torch.tensor(model.y[:, None])), sigma=1.0)


@pytest.fixture
def runs(monkeypatch):
    """How often a sampler has run."""
    count, run = [], Sampler.run
    monkeypatch.setattr(Sampler, "run", lambda self, *args, **named: count.append(1) or run(self, *args, **named))
    return count


def test_means_of_the_run_are_those_of_a_landscape_by_itself(seed, runs):
    settings = {"gamma": 1.0, "seed": seed, **QUICK}
    post = bs.posterior(LAND, **settings)
    assert (post.nbeta, post.gamma) == (watanabe_nbeta(60), 1.0)
    together = [bs.llc(post), bs.wbic(post)]
    assert len(runs) == 1
    for ours, alone in zip(together, (bs.llc(LAND, **settings), bs.wbic(LAND, **settings)), strict=True):
        assert (ours.value, ours.stderr, ours.verdict) == (alone.value, alone.stderr, alone.verdict)


@pytest.mark.parametrize("beta", [1.0, 1 / np.log(6)])
def test_criteria_are_those_of_the_posterior_at_its_own_temperature(beta, seed, runs):
    gibbs, bayes, v, waic, loo, _, energy = KNOWN[beta]
    post = bs.posterior(line(), nbeta=6 * beta, gamma=0.25, chains=8, draws=400, seed=seed, **QUICK)
    table = bs.criteria(post, progress=False)
    exact = {
        "waic": waic, "loo": loo, "fluctuation": beta * v / 2, "bayes_training_loss": bayes,
        "gibbs_training_loss": gibbs, **({"wbic": energy} if beta < 1 else {}),
    }  # fmt: skip
    for name, value in exact.items():
        assert table[name].stderr < 0.1 * abs(value)
        assert_within(table[name].value, value, table[name].stderr, SAMPLED, bias=0.01 if name == "wbic" else 0.0)
    assert ("wbic" in table) == (beta < 1)
    assert bs.waic(post).value == table.waic.value
    assert bs.loo(post).value == table.loo.value
    assert bs.waic(bs.log_likelihood(post)).value == pytest.approx(table.waic.value, rel=1e-12)
    assert len(runs) == 1


@pytest.mark.slow
def test_a_ladder_goes_on_from_the_posterior(seed, runs):
    post = bs.posterior(line(), nbeta=3.0, gamma=0.25, seed=seed, **(QUICK | {"budget": 4.0}))
    integral = bs.free_energy(post, progress=False)
    assert integral.stderr < 0.1
    assert_within(integral.value, KNOWN[0.5][5], integral.stderr, SAMPLED)
    assert len(runs) == 16


def test_draws_are_the_same_whether_they_are_kept_or_walked_again(seed):
    settings = {"gamma": 1.0, "seed": seed, "draws": 20, "chains": 2, **QUICK}
    kept, walked = bs.posterior(LAND, **settings), bs.posterior(LAND, memory=1, **settings)
    first, again, other = ([delta for delta, _ in post.draws()] for post in (kept, kept, walked))
    assert len(first) == 20
    assert first[0].shape == (2, 3)
    for one, two, three in zip(first, again, other, strict=True):
        assert torch.equal(one, two)
        assert torch.equal(one, three)
    assert not walked._positions
    assert len(kept._positions) == 20


def test_a_plan_is_told_before_anything_is_sampled(runs):
    plan = bs.plan(LAND, gamma=1.0, chains=4, budget=bs.Nominal(5.0))
    assert not runs
    assert (plan.sampler, plan.chains, plan.batch_size) == ("hmc", 4, None)
    assert bs.posterior(LAND, gamma=1.0, chains=4, budget=bs.Nominal(5.0), progress=False).plan == plan
    assert bs.plan(LAND, batch_size=8).sampler == "minibatch"
    assert bs.plan(LAND, budget=1e-6).warning is not None
    with pytest.raises(bs.InputError, match="gamma must be a positive finite number, got -1"):
        bs.plan(LAND, gamma=-1)
    with pytest.raises(bs.InputError, match="land must be a Landscape"):
        bs.plan(3)


def test_a_criterion_is_replayed_by_its_schedule(monkeypatch, seed):
    ticks = itertools.count()
    monkeypatch.setattr(clock, "default_clock", lambda seconds: clock.WallClock(seconds, lambda: 1e-3 * next(ticks)))
    settings = {"gamma": 1.0, "chains": 4, "seed": seed, "progress": False, "rtol": 1e-4}
    first = bs.waic(LAND, budget=0.4, **settings)
    schedule = bs.Schedule.from_dict(first.diagnostics["schedule"])
    again = bs.waic(LAND, budget=schedule, **settings)
    assert (again.value, again.stderr) == (first.value, first.stderr)
    assert again.diagnostics["draws"] == first.diagnostics["draws"]


def test_whoever_stops_a_run_does_not_wait_for_many_draws():
    whole = bs.posterior(LAND, gamma=1.0, chains=4, draws=64, **QUICK)
    stopped = [dataclasses.replace(run, interrupted=True) for run in whole.outcome.runs]
    post = bs.Posterior(whole.sampler, dataclasses.replace(whole.outcome, runs=stopped), draws=64)
    assert (whole.count, post.count) == (64, 16)
    partial = bs.waic(post, progress=False)
    assert partial.verdict == "doubtful"
    assert any(warning.startswith("partial: sampling was interrupted") for warning in partial.warnings)


def test_a_posterior_says_what_it_is():
    post = bs.posterior(LAND, gamma=1.0, chains=4, draws=16, **QUICK)
    said = "Posterior at nβ = 14.65, γ = 1 of 3 parameters on 60 samples: 4 chains of hmc, split-R̂ "
    assert repr(post).startswith(said)


def test_what_has_been_sampled_takes_no_settings():
    post = bs.posterior(LAND, gamma=1.0, chains=4, draws=16, **QUICK)
    n = watanabe_nbeta(60)
    for measure in (bs.llc, bs.wbic, bs.waic, bs.loo, bs.fluctuation, bs.log_likelihood, bs.criteria, bs.free_energy):
        with pytest.raises(bs.InputError, match=r"chains=8 is about drawing from a landscape, got a posterior"):
            measure(post, chains=8, progress=False)
    for measure in (bs.waic, bs.loo, bs.fluctuation, bs.criteria, bs.free_energy):
        with pytest.raises(bs.InputError, match=rf"this posterior is at nbeta={n:.6g}, got nbeta=60 — .*bs.posterior"):
            measure(post, nbeta=60.0, progress=False)
    bayes = bs.posterior(LAND, nbeta=60.0, gamma=1.0, chains=4, draws=16, **QUICK)
    with pytest.raises(bs.InputError, match=r"WBIC is defined at nβ = n/log n = 14.65, got a posterior at 60"):
        bs.wbic(bayes)
    with pytest.raises(bs.InputError, match=r"got one at 60 — leave nbeta out"):
        bs.wbic(LAND, nbeta=60.0)
    with pytest.raises(bs.InputError, match="come from 'hmc' or 'minibatch', got sampler 'sgld'"):
        bs.waic(bs.posterior(LAND, gamma=1.0, sampler="sgld", draws=32, **QUICK))
    with pytest.raises(bs.InputError, match="unknown sampler 'sgld' of draws: expected one of auto, hmc, minibatch"):
        bs.waic(LAND, sampler="sgld")


@pytest.mark.parametrize("measure", [bs.posterior, bs.llc, bs.wbic, bs.waic, bs.free_energy, bs.selftest])
def test_a_setting_that_is_none_is_refused_with_the_one_that_was_meant(measure):
    with pytest.raises(bs.InputError, match="no setting is called 'step_sise' — did you mean 'step_size'"):
        measure(LAND, step_sise=0.1)
    with pytest.raises(bs.InputError, match="no setting is called 'temperature' — there are nbeta, gamma, sampler"):
        measure(LAND, temperature=0.1)


def test_settings_are_said_once():
    names = [entry.name for entry in dataclasses.fields(Settings)]
    assert list(typing.get_type_hints(Sampling)) == ["nbeta", "gamma", *names]
    for measure in (bs.posterior, bs.llc, bs.waic, bs.loo, bs.criteria, bs.free_energy, bs.selftest):
        parameters = inspect.signature(measure).parameters
        assert {name: parameters[name].default for name in names} == dataclasses.asdict(Settings())


# ---------------------------------------------------------------------- checks shared with λ̂

SOUND = {
    "dead": 0, "chains": 8, "interrupted": False, "rhat": 1.0, "slope": 0.0, "moved": Movement(0.0, 1.0, 1.0),
    "balance": Balance(1.0, 0.01),
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"moved": Movement(0.3, 0.2, 1.0)}, "not converged: the mean excess loss still moves by 30% over the draws"),
        ({"balance": Balance(0.8, 0.01)}, "not in equilibrium: the virial ratio is 0.80 instead of 1"),
        ({"rhat": 1.3}, "not converged: split-R̂"),
        ({"slope": 0.2}, "biased draws"),
    ],
)
def test_draws_that_are_not_those_of_the_posterior_are_doubted(changes, reason):
    assert all(check.passed for check in draws_checks(**SOUND))
    failed = [check for check in draws_checks(**(SOUND | changes)) if not check.passed]
    assert len(failed) == 1
    assert failed[0].warning.startswith(reason)


def test_a_mean_that_moves_is_seen(seed):
    rng = np.random.default_rng(seed)
    still = rng.normal(size=(8, 200))
    moved = movement(still, mean=0.0, rtol=0.02)
    assert moved.distance < moved.most < 0.5
    assert movement(still + np.linspace(0, 3, 200), mean=0.0, rtol=0.02).distance == pytest.approx(1.5, abs=0.2)
    stepped = movement(still + 2.0 * (np.arange(200) >= 100), mean=0.0, rtol=0.02)
    assert stepped.distance == pytest.approx(2.0, abs=0.2)
    assert movement(still, mean=1e3, rtol=0.02).most == 20.0


def rung(**changes):
    common = {
        "beta": 0.5, "excess": 1.0, "stderr": 0.01, "drift": 0.0, "rhat": 1.0, "balance": Balance(1.0, 0.01),
        "chains": 8, "diverged": 0, "exhausted": False, "interrupted": False,
    }  # fmt: skip
    return energies.Rung(**(common | changes))


@pytest.mark.parametrize(
    ("changes", "moved", "reason"),
    [
        ({"balance": Balance(0.7, 0.01)}, 0.0, "the virial ratio is 0.70 instead of 1, at β = 0.5"),
        ({"diverged": 1}, 0.0, "diverged chains: 1 of 16"),
        ({"interrupted": True}, 0.0, "partial"),
        ({}, 0.5, "the integral still moves by 50% over the last half"),
    ],
)
def test_a_ladder_is_doubted_for_any_of_its_rungs(changes, moved, reason):
    drift = Movement(moved, 0.1, 1.0)
    checks = energies.free_energy_checks(1.0, 0.01, drift, [rung(beta=1.0), rung(**changes)])
    failed = [check for check in checks if not check.passed]
    assert len(failed) == 1
    assert reason in failed[0].warning


@pytest.mark.slow
def test_a_report_of_a_posterior_is_that_of_its_landscape(runs):
    settings = {"gamma": 1.0, "chains": 4, **QUICK}
    post = bs.posterior(LAND, nbeta=60.0, **settings)
    report = bs.measure(post, weight_decay=0.1, progress=False)
    assert len(runs) == 1, "nβ = n: WAIC and LOO come from the same draws"
    assert report["llc"].value == bs.llc(post).value
    assert report["waic"].value == bs.waic(post).value
    assert report.settings["nbeta"] == 60.0
    assert report.settings["chains"] == 4
    assert report.command == (
        "bs.measure(bs.posterior(land, nbeta=60.0, gamma=1.0, chains=4, rtol=0.05, budget=1.0, seed=0), "
        "weight_decay=0.1)"
    )
    with pytest.raises(bs.InputError, match="budget=3 is about drawing from a landscape, got a posterior"):
        bs.measure(post, budget=3)
