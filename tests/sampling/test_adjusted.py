"""How Hamiltonian chains start, and how long their paths are."""

import math

import pytest
import torch

from basins import quadratic
from basinscope.measures.planting import plant
from basinscope.sampling import adjusted
from basinscope.sampling.chains import ChainLosses
from basinscope.sampling.clock import NominalClock
from basinscope.sampling.goal import Goal
from basinscope.sampling.target import Target, Whitening
from chance import SAMPLED, assert_within

CHAINS = 8


def sampled(target, position, gradients, *, draws=None, rtol=0.02, seed=0, **settings):
    """A run that may take so many gradients, one second each."""
    goal = Goal(rtol, seed, NominalClock(gradients), lambda fraction, text: None, draws)
    return adjusted.sample(target, position, goal, 1.0, **settings)


def piloted(target, position, seed, gradients):
    """Where a pilot ends, its step size, and how many gradients it left."""
    clock = NominalClock(gradients)
    where, size, _ = adjusted.pilot(target, position, seed, 24, clock, 1.0)
    return where, size, clock.left()


def unknown(curvatures, gamma, chains=CHAINS):
    """A quadratic of which the sampler knows nothing but its stiffest curvature, 1: it is not whitened."""
    land = quadratic(curvatures, n=len(curvatures) + 8)
    losses = ChainLosses(land)
    return Target(losses, 1.0, gamma, Whitening.identity(losses.origin)), torch.zeros(chains, losses.dimension)


def test_a_pilot_brings_stiff_and_flat_modes_to_equilibrium(seed):
    gamma = 1e-4
    target, origin = unknown([1.0] * 50 + [0.0] * 50, gamma, chains=32)
    position, size, left = piloted(target, origin, seed, 16 * 1024)
    flights = 2 * min(1024, round(adjusted.path_length(target) / size))
    assert flights + 24 <= 16 * 1024 - left <= flights + 24 * adjusted.TUNING_PATH
    stiff, flat = position[:, :50].square().mean(), position[:, 50:].square().mean()
    # Variances 1/(1 + γ) and 1/γ; 1600 draws of each, a relative standard error of √(2/1600) if all are independent. A
    # chain in twenty has both long transitions rejected, and stays as flat as short ones leave it.
    assert_within(stiff, 1.0, math.sqrt(2 / 1600), bias=0.05)
    assert_within(gamma * float(flat), 0.85, math.sqrt(2 / 1600), bias=0.2)
    position, *_ = piloted(target, origin, seed, 16)
    assert gamma * float(position[:, 50:].square().mean()) < 0.2, "short transitions alone"


@pytest.mark.slow
def test_paths_are_as_long_as_the_slowest_mode_asks_for_if_the_budget_allows(seed):
    target, origin = unknown([1.0] * 20 + [0.0] * 20, 1e-4)

    def leaps(evaluations):
        run = sampled(target, origin, evaluations, seed=seed, draws=16)
        return run.settings["leaps"], adjusted.path_length(target) / run.step_size

    few, wanted = leaps(2000)
    assert wanted > few == adjusted.USUAL_PATH
    many, wanted = leaps(64 * 200)
    assert adjusted.USUAL_PATH < many <= min(200, round(wanted))
    assert many > 0.7 * min(200, wanted), "what tuning has left"


@pytest.mark.slow
def test_smaller_steps_are_paid_for_by_fewer_draws(monkeypatch, seed):
    target, origin = unknown([1.0] * 400 + [0.0] * 20, 1e-3, chains=4)
    monkeypatch.setattr(adjusted, "_tuned", lambda *given: (1.5, 1.0))  # far too large: nothing is accepted at first
    gradients = []
    monkeypatch.setattr(
        ChainLosses, "gradient", lambda *given, old=ChainLosses.gradient: gradients.append(0) or old(*given)
    )
    run = sampled(target, origin, 2400, seed=seed, rtol=1e-4)
    assert run.step_size < 1.0
    assert run.exhausted
    assert 1600 < len(gradients) <= 2400 + 48
    assert run.trace.draws < 2400 // round(adjusted.path_length(target) / 1.5)


def test_large_networks_take_steps_of_three_stages(monkeypatch, seed):
    monkeypatch.setattr(adjusted, "MIN_THREE_STAGE_DIMENSION", 100)
    for dimension, each in ((99, 1), (100, 3)):
        target, origin = unknown([1.0] * (dimension - 20) + [0.0] * 20, 1e-4)
        assert adjusted.integrator(dimension).gradients == each
        assert adjusted.expected_gradients(dimension, complete=False) == adjusted.USUAL_PATH
        run = sampled(target, origin, 2000, seed=seed, draws=16)
        assert run.settings["leaps"] == adjusted.USUAL_PATH // each
        assert run.alive.all()


@pytest.mark.parametrize(
    ("acceptances", "sizes", "last"),
    [
        ([0.9, 0.9], [1.0, 1.0], 1.0),
        ([0.9, 0.1], [1.0, 1.0], 0.5),
        ([0.1, 0.9], [1.0, 0.5], 0.5),
        ([0.1, 0.1, 0.1], [1.0, 0.5, 0.25], 0.125),  # one more only if none was accepted
    ],
)
def test_flights_go_on_in_smaller_steps_after_one_that_is_rejected(acceptances, sizes, last, monkeypatch):
    target, origin = unknown([1.0] * 20, 1e-3)
    given = iter(acceptances)
    monkeypatch.setattr(adjusted, "_tuned", lambda *_: (1.0, 1.0))
    monkeypatch.setattr(adjusted, "_accepted", lambda block: next(given))
    _, size, left = piloted(target, origin, 0, 6000)
    path = adjusted.path_length(target)
    assert 6000 - left == sum(round(path / one) for one in sizes)
    assert size == last


def test_flights_in_unstable_steps_are_rejected(monkeypatch, seed):
    target, origin = unknown([1.0] * 20, 1e-3)
    monkeypatch.setattr(adjusted, "_tuned", lambda *_: (2.4, 1.0))
    _, size, _ = piloted(target, origin, seed, 6000)
    assert size <= 1.2


def test_large_deep_networks_are_near_equilibrium_after_a_pilot(seed):
    planted = plant((30, 40, 40, 30), 30, 40, curvature=300.0, seed=0)
    losses = ChainLosses(planted.land)
    target = Target(losses, 1.0, 1.0, Whitening.identity(losses.origin, 300.0**-0.5))
    position, *_ = piloted(target, torch.zeros(CHAINS, losses.dimension), seed, 4000)
    excess = float(losses.excess(target.whitening(position)).mean())
    assert 0.6 < excess / float(planted.coefficient) < 2, "from zero at the minimum"


def test_chains_that_all_die_are_told_of_and_not_averaged():
    """No chain survives steps that are far too long, and no warning of an empty mean is seen."""
    target, origin = unknown([1.0] * 20, 1e-3)
    run = sampled(target, origin + 1e20, 300, draws=16)
    assert not run.alive.any()


def rounding(monkeypatch, losses, bits):
    """Forces as those of weights with so many bits: a function of the position, the gradient of nothing."""

    def rounded(weights):
        mantissa, exponent = torch.frexp(weights)
        return torch.ldexp(torch.round(mantissa * 2**bits) / 2**bits, exponent)

    def gradient(delta, scale=1.0, rounds=False):
        return losses.full(rounded(losses.origin + delta) - losses.origin if rounds else delta, scale)[1]

    monkeypatch.setattr(losses, "gradient", gradient)
    monkeypatch.setattr(losses, "can_round", True)


@pytest.mark.parametrize(("bits", "harmless"), [(20, True), (3, False)])
def test_forces_are_rounded_where_that_does_no_harm(bits, harmless, monkeypatch):
    target, origin = unknown([1.0] * 400 + [0.0] * 20, 1e-2)
    position = torch.randn(origin.shape, generator=torch.Generator().manual_seed(0))
    assert not adjusted.rounds_harmlessly(target, position), "nothing is rounded on a processor"
    rounding(monkeypatch, target.losses, bits)
    assert adjusted.rounds_harmlessly(target, position) == harmless


def test_what_rounded_forces_cost_is_estimated_from_their_error(monkeypatch):
    target, origin = unknown([1.0] * 400, 1e-2)
    rounding(monkeypatch, target.losses, 20)
    edge = adjusted.MAX_ROUNDED_ERROR / (
        adjusted.path_length(target) ** 0.5 * 20
    )  # |e|√t of an error in 400 directions
    for part, harmless in ((0.98, True), (1.02, False)):
        monkeypatch.setattr(
            target.losses,
            "gradient",
            lambda delta, scale=1.0, rounds=False, part=part: torch.full_like(delta, part * edge * rounds),
        )
        assert adjusted.rounds_harmlessly(target, origin) == harmless


@pytest.mark.slow
def test_chains_with_rounded_forces_are_exact(monkeypatch, seed):
    """E‖z‖² = Σ 1/(a + γ), though a tenth of the transitions and more is rejected for the rounding alone."""
    target, origin = unknown([1.0] * 30, 0.5)

    def run_of(draws):
        return sampled(target, origin, 10**6, seed=seed, draws=draws, step_size=0.3)

    precise = run_of(100).summary("acceptance").mean
    rounding(monkeypatch, target.losses, 2)
    monkeypatch.setattr(adjusted, "rounds_harmlessly", lambda *given: True)
    run = run_of(600)
    assert run.settings["rounded"]
    assert run.summary("acceptance").mean < precise - 0.1
    distance = run.summary("distance")
    assert distance.stderr < 0.4
    assert_within(distance.mean, 30 / 1.5, distance.stderr, SAMPLED)
