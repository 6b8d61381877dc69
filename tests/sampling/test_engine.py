import math

import numpy as np
import pytest
import torch

from basinscope.sampling.engine import Engine
from basinscope.sampling.kernels import HMC, SGLD, SGNHT, LeimkuhlerMatthews, RMSPropSGLD
from basinscope.sampling.target import Evaluation
from basinscope.sampling.trace import STATISTICS, Trace

f64 = torch.float64
CHAINS = 5
EXCESS = STATISTICS.index("excess")


def bowl(curvature):
    """U = ½ a_c ‖z‖² with a curvature for every chain, (C,)."""
    a = torch.as_tensor(curvature, dtype=f64).expand(CHAINS)[:, None]

    def evaluate(z):
        return Evaluation(0.5 * (a * z.square()).sum(1), a * z, z.square().sum(1))

    return evaluate


def engine(kernel, evaluate, seed=0, ceiling=1e3):
    position = torch.zeros(CHAINS, 2, dtype=f64)
    return Engine(kernel, evaluate, position, torch.Generator().manual_seed(seed), ceiling)


KERNELS = {
    "sgld": SGLD(0.1),
    "rmsprop": RMSPropSGLD(0.1, floor=1.0),
    "leimkuhler-matthews": LeimkuhlerMatthews(0.1),
    "baoab": LeimkuhlerMatthews(0.1, persistence=0.7),
    "sgnht": SGNHT(0.1),
    "mala": HMC(0.7, 1, lambda here: here.excess, lambda z: bowl(1.0)(z).gradient, jittered=False),
    "hmc": HMC(0.5, 3, lambda here: here.excess, lambda z: bowl(1.0)(z).gradient),
    "hmc, drift first": HMC(0.5, 3, lambda here: here.excess, lambda z: bowl(1.0)(z).gradient, drift_first=True),
}


@pytest.mark.parametrize("name", KERNELS)
def test_same_seed_same_bits(name):
    kernel = KERNELS[name]
    first, again, other = (engine(kernel, bowl(1.0), seed).run(40) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert first.shape == (40, CHAINS, len(STATISTICS))


@pytest.mark.parametrize("name", KERNELS)
def test_pieces_of_a_run_are_the_run(name):
    kernel = KERNELS[name]
    whole = engine(kernel, bowl(1.0)).run(30)
    pieces = engine(kernel, bowl(1.0))
    np.testing.assert_array_equal(np.concatenate([pieces.run(7), pieces.run(1), pieces.run(22)]), whole)


def test_statistics_are_what_they_are_called():
    a = 2.0
    run = engine(SGLD(0.1), bowl(a))
    first = run.run(1)
    position = run.position.clone()
    second = run.run(1)[0]
    square = position.square().sum(1).numpy()
    expected = {
        "excess": a * square / 2,
        "excess_squared": (a * square / 2) ** 2,
        "virial": a * square,
        "distance": square,
        "acceptance": np.ones(CHAINS),
    }
    for name, values in expected.items():
        np.testing.assert_allclose(second[:, STATISTICS.index(name)], values, rtol=1e-12)
    assert (first[0, :, EXCESS] == 0).all(), "the first draw is w* itself"


@pytest.mark.parametrize("name", ["sgld", "leimkuhler-matthews", "sgnht"])
def test_a_diverging_chain_is_stopped_and_the_others_do_not_notice(name):
    stable, wild = torch.ones(CHAINS, dtype=f64), torch.ones(CHAINS, dtype=f64)
    wild[2] = 1e3  # far beyond what the step bears
    calm, broken = engine(KERNELS[name], bowl(stable)), engine(KERNELS[name], bowl(wild))
    reference = calm.run(200)
    record = broken.run(200)
    others = [0, 1, 3, 4]
    np.testing.assert_array_equal(record[:, others], reference[:, others])
    assert broken.alive.tolist() == [True, True, False, True, True]
    assert calm.alive.all()
    dead = np.isnan(record[:, 2])
    last = int(np.argmax(dead[:, EXCESS]))
    assert last > 0
    assert dead[last:].all(), "dead for good"
    assert (record[:last, 2, EXCESS] < 1e3).all()
    assert torch.isfinite(broken.living()).all()
    assert any(torch.equal(broken.living()[2], broken.position[c]) for c in others), "goes on from where one lives"
    broken.alive[:] = False
    assert not broken.living().any(), "or from w* where none does"
    broken.alive[others] = True
    assert torch.equal(broken.living()[others], broken.position[others])


def test_a_dead_chain_never_reaches_a_mean():
    wild = torch.ones(CHAINS, dtype=f64)
    wild[2] = 1e3
    calm, broken = engine(SGLD(0.1), bowl(1.0)), engine(SGLD(0.1), bowl(wild))
    traces = []
    for run in (calm, broken):
        trace = Trace(CHAINS, blocks=8)
        trace.append(run.run(100))
        traces.append(trace)
    alive = broken.alive.numpy()
    expected = traces[0].values("excess")[[0, 1, 3, 4]]
    np.testing.assert_array_equal(traces[1].values("excess", chains=alive), expected)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_no_number_ends_the_chain(bad):
    def evaluate(z):
        excess, gradient, distance = bowl(1.0)(z)
        broken = torch.zeros(CHAINS, dtype=torch.bool)
        broken[1] = distance[1] > 0
        return Evaluation(torch.where(broken, bad, excess), gradient, distance)

    run = engine(SGLD(0.1), evaluate)
    record = run.run(10)
    assert run.alive.tolist() == [True, False, True, True, True]
    assert np.isnan(record[1:, 1]).all()
    assert np.isfinite(record[:, [0, 2, 3, 4]]).all()


def test_a_gradient_that_is_no_number_ends_the_chain():
    def evaluate(z):
        excess, gradient, distance = bowl(1.0)(z)
        gradient = gradient.clone()
        gradient[3] = math.nan
        return Evaluation(excess, gradient, distance)

    run = engine(SGLD(0.1), evaluate)
    run.run(3)
    assert run.alive.tolist() == [True, True, True, False, True]


def test_settings_change_without_losing_the_state():
    run = engine(SGLD(0.1), bowl(1.0))
    run.run(20)
    before = run.position.clone()
    run.use(SGLD(1e-12))
    run.run(1)
    assert torch.allclose(run.position, before, atol=1e-4)
