import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from basinscope.sampling.convergence import below_zero, converged
from basinscope.sampling.equilibrium import Mean, Virials
from basinscope.sampling.runs import UNSEEN, Correction, Run
from basinscope.sampling.trace import STATISTICS, Trace
from chance import assert_within, deviations

DIMENSION, WEIGHTS = 6, (1.0, 0.8, 0.5)
TARGET = SimpleNamespace(
    losses=SimpleNamespace(dimension=DIMENSION),
    weights=lambda: torch.tensor(WEIGHTS, dtype=torch.float64),
    nbeta=1.0,
    drop=0.0,
)


def run_of(columns, alive=None, discard=0.0):
    """A run whose statistics are given by name, each (draws, chains)."""
    draws, chains = columns["excess"].shape
    data = np.zeros((draws, chains, len(STATISTICS)))
    for name, values in columns.items():
        data[:, :, STATISTICS.index(name)] = values
    data[:, :, STATISTICS.index("excess_squared")] = columns["excess"] ** 2
    trace = Trace(chains)
    trace.append(data)
    return Run(
        TARGET, trace, np.ones(chains, bool) if alive is None else alive, torch.zeros(chains, 1), 0.1, discard=discard
    )


def quadratic_draws(seed, draws=200, chains=4, remainder=0.1):
    """Independent draws of a Gaussian posterior: excess = ½ Σ m z² and a part that no virial knows."""
    rng = np.random.default_rng(seed)
    squares = rng.normal(size=(draws, chains, DIMENSION)) ** 2
    soft = squares[..., : len(WEIGHTS)] @ np.array(WEIGHTS)
    excess = 0.5 * soft + remainder * rng.normal(size=soft.shape)
    return {"excess": excess, "virial": squares.sum(-1), "soft_virial": soft}


EXACT = 0.5 * sum(WEIGHTS)


def test_the_virial_identity_takes_out_what_it_explains():
    run = run_of(quadratic_draws(0, remainder=0.0))
    value, stderr, _ = run.excess()
    assert value == pytest.approx(EXACT, rel=1e-9)
    # Four chains' own means may tell a larger error than 800 independent draws have.
    plain = math.sqrt(0.5 * sum(weight**2 for weight in WEIGHTS) / 800)
    assert 0.8 * plain < run.plain().stderr < 2 * plain
    assert stderr == pytest.approx(UNSEEN * run.plain().stderr, rel=1e-6)
    # What is left is the part that it does not explain, and what rare excursions may hide.
    value, stderr, _ = run_of(quadratic_draws(0)).excess()
    assert math.hypot(0.08 / math.sqrt(800), UNSEEN * 0.8 * plain) < stderr
    assert stderr < math.hypot(0.2 / math.sqrt(800), UNSEEN * 2 * plain)


def test_controlled_means_scatter_by_their_standard_error(seed):
    # z over 400 runs: mean zero, and a spread of at most one but for chance and 5 % for the fitted slopes. It is less
    # than one by the part kept for what no draw has seen, and because the larger of two errors counts.
    found = [run_of(quadratic_draws([seed, run])).excess() for run in range(400)]
    z = np.array([(value - EXACT) / stderr for value, stderr, _ in found])
    assert_within(z.mean(), 0.0, z.std() / math.sqrt(400))
    assert 0.4 < z.std() < 1.05 + deviations() / math.sqrt(800)


def unequal_draws(seen, shares, draws=4000):
    """Draws of a Gaussian posterior of which the chains have seen a part of the variance in each direction."""
    squares = np.array(seen) * np.random.default_rng(6).normal(size=(draws, 4, DIMENSION)) ** 2
    soft = squares[..., : len(WEIGHTS)] @ np.array(WEIGHTS)
    return {"excess": 0.5 * squares @ np.array(shares), "virial": squares.sum(-1), "soft_virial": soft}


def test_what_the_virials_lack_is_made_up_for_and_charged_by_half():
    # All of the stiff directions and a third of the softest. How much the data decide falls with what was seen.
    seen, shares = [1.0, 1.0, 1.0, 0.8, 0.6, 0.3], [1.0, 0.8, 0.5, 0.4, 0.3, 0.2]
    run, exact = run_of(unequal_draws(seen, shares)), 0.5 * sum(shares)
    value, stderr, _ = run.excess()
    raw, ratio = run.plain().value, np.mean(seen)
    assert raw < 0.92 * exact
    assert raw < exact < raw / ratio, "Chebyshev's bound"
    assert raw < value < raw / ratio
    assert abs(value - exact) < 2 * stderr
    assert stderr == pytest.approx((raw / ratio - raw) / math.sqrt(12), rel=0.3), "as of a uniform distribution"


def test_a_loss_of_high_degree_lacks_less_than_half_of_what_its_virial_does():
    """nβL ∝ ‖w‖⁸ in the directions that are known: nβ·excess is an eighth of its virial, not half of it."""
    columns = unequal_draws([0.7] * 3 + [1.0] * 3, (*WEIGHTS, 0.0, 0.0, 0.0))
    columns["excess"] = columns["soft_virial"] / 8
    run, exact = run_of(columns), sum(WEIGHTS) / 8
    value, stderr, _ = run.excess()
    raw = run.plain().value
    assert raw < 0.75 * exact
    assert value == pytest.approx((raw + exact) / 2, rel=0.03), "in the middle, though both virials lack the same"
    assert abs(value - exact) < 2.5 * stderr


def test_virials_that_explain_a_loss_of_high_degree_leave_it_more_of_its_error():
    """On a quadratic they know the loss; elsewhere a valley may move them where it does not move the loss."""
    columns = unequal_draws([1.0] * 6, (*WEIGHTS, 0.0, 0.0, 0.0))
    both = Correction(np.ones(2), True)
    for part, share in ((0.5, UNSEEN), (0.125, 0.75)):
        run = run_of({**columns, "excess": part * columns["soft_virial"]})
        assert run.corrected(both).stderr == pytest.approx(share * run.plain().stderr, rel=0.3)


def test_chains_that_did_not_relax_may_lack_what_chance_would_explain():
    columns = unequal_draws([1.0, 1.0, 1.0, 0.97, 0.95, 0.9], [1.0, 0.8, 0.5, 1.0, 1.0, 1.0], draws=100)
    whole, short = (replace(run_of(columns), relaxations=count) for count in (math.inf, 0.1))
    assert whole.virials().chance().tolist() == [1.0, 1.0]
    assert short.virials().chance().tolist() == pytest.approx([1 - math.exp(-0.2), 1.0])
    assert short.excess().stderr > whole.excess().stderr


def test_charges():
    chance = Virials(np.array([95.0, 48.0]), np.array([4.0, 1.5]), np.array([100.0, 50.0]))
    assert chance.chance().tolist() == [1.0, 1.0]
    assert chance.charge(20.0, 1.0) == 0
    off = Virials(np.array([80.0, 50.0]), np.array([2.5, 1.0]), np.array([100.0, 50.0]))
    assert off.chance().tolist() == pytest.approx([1 / 16, 1.0])  # eight standard errors, of which two are allowed
    lacking = 0.2 * 15 / 16
    assert off.charge(20.0, 1.0) == pytest.approx(20 * lacking / (1 - lacking / 2) / math.sqrt(12))
    high = replace(off, means=np.array([120.0, 50.0]))
    assert high.charge(20.0, 1.0) == off.charge(20.0, 1.0)
    # In the known directions, half of what the second virial lacks is what the loss lacks.
    known = Virials(np.array([100.0, 30.0]), np.array([50.0, 1.0]), np.array([100.0, 50.0]))
    assert known.charge(20.0, 4.0) == pytest.approx(0.5 * 20 * (1 - 1 / 100) / 4 / math.sqrt(12))
    assert Mean(3.0, 0.3, 4.0).widened(0.4) == (3.0, pytest.approx(0.5), pytest.approx(4 * (0.5 / 0.3) ** 4))


def test_chains_that_disagree_tell_their_error_themselves():
    columns = quadratic_draws(7, draws=2000, chains=5)
    apart = np.array([-0.3, 0.1, 0.0, 0.25, -0.05])
    columns["excess"] = columns["excess"] + apart
    mean = run_of(columns).plain()
    assert 4 <= mean.freedom < 5
    assert mean.stderr >= columns["excess"].mean(0).std(ddof=1) / math.sqrt(5)
    agreeing = run_of(quadratic_draws(7, draws=2000, chains=5)).plain()
    assert agreeing.freedom > 20, "what the chains' own draws explain is known better"


def test_dead_chains_and_burn_in_are_left_out():
    columns = quadratic_draws(1, chains=5)
    reference = run_of({name: values[100:, [0, 1, 3, 4]] for name, values in columns.items()})
    for values in columns.values():
        values[:100] = 1e6
        values[150:, 2] = np.nan
    run = run_of(columns, alive=np.array([True, True, False, True, True]), discard=0.5)
    assert run.excess() == pytest.approx(reference.excess())
    assert run.summary().mean == pytest.approx(reference.summary().mean)
    assert run.summary("virial").mean == pytest.approx(reference.summary("virial").mean)
    assert run.drift() == pytest.approx(reference.drift())


def test_drift_is_the_difference_of_the_last_quarters():
    columns = quadratic_draws(2, draws=400, remainder=0.0)
    columns["excess"][300:] += 0.25
    run = run_of(columns, discard=0.5)
    assert run.drift(Correction(np.ones(2), True)) == pytest.approx(0.25, abs=0.05)
    assert not converged(run, 0.01)


def test_convergence():
    run = run_of(quadratic_draws(3, draws=2000))
    _, stderr, _ = run.excess()
    assert converged(run, 2 * stderr / EXACT)
    assert not converged(run, 0.5 * stderr / EXACT)
    negative = quadratic_draws(3, draws=2000)
    negative["excess"] -= 10
    assert not converged(run_of(negative), 0.5), "a negative value is never known well enough"
    alone = run_of(quadratic_draws(3, draws=2000), alive=np.array([True, False, False, False]))
    assert not converged(alone, 0.5), "one chain has nothing to agree with"


def test_lower_ground_is_no_reason_to_go_on_unless_the_chains_come_back():
    assert not below_zero(run_of(quadratic_draws(3, draws=2000)))
    lower = quadratic_draws(3, draws=2000)
    lower["excess"] -= 10
    assert below_zero(run_of(lower))
    assert not below_zero(run_of(lower, alive=np.array([True, False, False, False])))
    falling = {name: values.copy() for name, values in lower.items()}
    falling["excess"] -= np.linspace(0, 5, 2000)[:, None]
    assert below_zero(run_of(falling))
    rising = {name: values.copy() for name, values in lower.items()}
    rising["excess"] += np.linspace(0, 5, 2000)[:, None]
    assert not below_zero(run_of(rising))


def test_chains_that_stand_still_have_not_converged():
    # No proposal was ever accepted: four points, repeated. They satisfy every identity of a quadratic by chance.
    columns = {name: np.repeat(values[:1], 500, axis=0) for name, values in quadratic_draws(4, remainder=0.0).items()}
    assert not converged(run_of(columns), 0.02)
