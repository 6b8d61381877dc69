import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from basinscope.sampling.runs import UNSEEN, Run, below_zero, converged
from basinscope.sampling.trace import STATISTICS, Trace
from chance import assert_within, deviations

DIMENSION, WEIGHTS = 6, (1.0, 0.8, 0.5)
TARGET = SimpleNamespace(
    losses=SimpleNamespace(dimension=DIMENSION), weights=lambda: torch.tensor(WEIGHTS, dtype=torch.float64), nbeta=1.0
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
    value, stderr = run_of(quadratic_draws(0, remainder=0.0)).excess()
    assert value == pytest.approx(EXACT, rel=1e-9)
    plain = math.sqrt(0.5 * sum(weight**2 for weight in WEIGHTS) / 800)
    assert stderr == pytest.approx(UNSEEN * plain, rel=0.2)
    # What is left is the part that it does not explain, and what rare excursions may hide.
    value, stderr = run_of(quadratic_draws(0)).excess()
    assert stderr == pytest.approx(math.hypot(0.1 / math.sqrt(800), UNSEEN * plain), rel=0.2)


def test_controlled_means_scatter_by_their_standard_error(seed):
    # z over 400 runs: mean zero, and a spread of at most one but for chance and 5 % for the fitted slopes. It is less
    # than one by the part kept for what no draw has seen.
    found = [run_of(quadratic_draws([seed, run])).excess() for run in range(400)]
    z = np.array([(value - EXACT) / stderr for value, stderr in found])
    assert_within(z.mean(), 0.0, z.std() / math.sqrt(400))
    assert 0.55 < z.std() < 1.05 + deviations() / math.sqrt(800)


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
    assert run.drift(control=True) == pytest.approx(0.25, abs=0.05)
    assert not converged(run, 0.01)


def test_convergence():
    run = run_of(quadratic_draws(3, draws=2000))
    _, stderr = run.excess()
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
