"""λ̂(w*) = basin − drop away from minima: closed forms of quadratics, and exact posteriors of linear networks."""

import math

import pytest
import torch

import basinscope as bs
from basins import quadratic, saddle
from basinscope.measures.coefficient import LearningCoefficient
from basinscope.sampling import calibration
from chance import SAMPLED, assert_within

f64 = torch.float64
CHEAP = {"rtol": 0.02, "budget": 5.0, "progress": False}
N = 200
T = N / math.log(N)
SIGMA = [1.0, 1.0, 0.1, 0.01, 1e-4]


def quadratic_split(sigma, offset, nbeta, gamma):
    """½ Tr nβH A⁻¹, and nβ(L(w*) − L(ŵ)) at ŵ − w* = −nβA⁻¹g, with A = nβH + γ."""
    sigma, offset = torch.tensor(sigma, dtype=f64), torch.tensor(offset, dtype=f64)
    stiffness, slope = nbeta * sigma + gamma, sigma * offset
    delta = -nbeta * slope / stiffness
    return 0.5 * float((nbeta * sigma / stiffness).sum()), -nbeta * float(slope @ delta + 0.5 * sigma @ delta**2)


def right(found, basin, drop, precision=0.04):
    assert found.basin.stderr <= precision * basin
    assert_within(found.basin.value, basin, found.basin.stderr, SAMPLED, bias=1e-3 * basin)
    assert found.drop.value == pytest.approx(drop, rel=1e-5, abs=1.05 * found.drop.stderr + 1e-9)
    assert found.value == pytest.approx(found.basin.value - found.drop.value)


@pytest.mark.parametrize("dtype", [torch.float32, f64])
@pytest.mark.parametrize("offset", [[0.1, 0.1, 0.1, 0.1, 1.0], [1.0, -1.0, 1.0, 3.0, 30.0]])
def test_a_displaced_quadratic(dtype, offset, seed):
    found = bs.llc(quadratic(SIGMA, offset=offset, dtype=dtype), gamma=1.0, seed=seed, **CHEAP)
    basin, drop = quadratic_split(SIGMA, offset, T, 1.0)
    right(found, basin, drop)
    assert found.at_minimum == "no"
    assert found.note.startswith("at nβ = 37.75 w* is no minimum")
    assert not any(warning.startswith("not in a basin") for warning in found.warnings)


def test_flat_directions_change_nothing(seed):
    sigma, offset = [1.0, 0.0, 0.1, 0.0], [2.0, 0.0, 2.0, 0.0]
    found = bs.llc(quadratic(sigma, offset=offset), gamma=1.0, seed=seed, **CHEAP)
    right(found, *quadratic_split(sigma, offset, T, 1.0))


def test_a_minimum_is_one(seed):
    found = bs.llc(quadratic(SIGMA), gamma=1.0, seed=seed, **CHEAP)
    assert (found.at_minimum, found.note, found.verdict) == ("yes", "", "ok")
    assert found.drop.value == pytest.approx(0.0, abs=1e-6)
    assert found.basin.value == pytest.approx(found.value, rel=1e-6)
    assert found.basin.verdict == "ok"


def test_one_sample(seed):
    net = torch.nn.Linear(2, 1, bias=False, dtype=f64)
    torch.nn.init.ones_(net.weight)
    land = bs.Landscape(net, "mse", (torch.tensor([[1.0, 0.0]], dtype=f64), torch.tensor([[3.0]], dtype=f64)))
    found = bs.llc(land, nbeta=50.0, gamma=1.0, seed=seed, **CHEAP)
    right(found, *quadratic_split([1.0, 0.0], [-2.0, 0.0], 50.0, 1.0))


def test_a_saddle_that_the_localiser_outweighs_is_a_minimum(seed):
    found = bs.llc(saddle(), gamma=100.0, seed=seed, **CHEAP)
    assert found.at_minimum == "yes"
    assert found.drop.value == pytest.approx(0.0, abs=1e-9)


def test_a_saddle_is_no_minimum(seed):
    # Two components to learn and one learned: nothing at w* but the curvature says that there is lower ground.
    found = bs.llc(saddle(), nbeta=200.0, gamma=0.1, seed=seed, draws=60, **CHEAP)
    assert found.at_minimum == "no"
    assert "w* is no minimum" in found.note
    assert found.basin.value > 0
    assert found.drop.value == pytest.approx(200.0 * 0.5**2 / 2, rel=0.1), "what is there to learn"


def test_unknown_directions(monkeypatch, seed):
    # 8 of 60 eigenpairs are known, and the slope lies in the others, too: as with more than 1,024 parameters.
    monkeypatch.setattr(calibration, "_DENSE", 10)
    monkeypatch.setattr(calibration, "_PAIRS", 8)
    _unknown_directions(60, seed)


@pytest.mark.slow
def test_unknown_directions_of_a_large_network(seed):
    _unknown_directions(1200, seed)


def _unknown_directions(dimension, seed):
    generator = torch.Generator().manual_seed(seed)
    sigma = torch.logspace(0, -3, dimension, dtype=f64).tolist()
    offset = (1.5 * torch.randn(dimension, generator=generator, dtype=f64)).tolist()
    found = bs.llc(
        quadratic(sigma, n=dimension + 100, offset=offset), nbeta=100.0, gamma=1.0, draws=60, seed=seed, **CHEAP
    )
    basin, drop = quadratic_split(sigma, offset, 100.0, 1.0)
    right(found, basin, drop)
    assert found.at_minimum == "no"
    assert "it is one" in found.note


def test_a_plain_kernel_splits_too_but_knows_no_curvature(seed):
    land = quadratic([1.0, 0.5], offset=[1.0, 1.0])
    found = bs.llc(land, gamma=1.0, sampler="sgld", step_size=1e-3, draws=500, seed=seed, **CHEAP)
    assert found.drop.value == pytest.approx(quadratic_split([1.0, 0.5], [1.0, 1.0], T, 1.0)[1], rel=1e-3)
    assert found.at_minimum == "no"


def test_a_split_survives_a_file(seed):
    found = bs.llc(quadratic(SIGMA, offset=[1.0] * 5), gamma=1.0, seed=seed, **CHEAP)
    again = LearningCoefficient.from_dict(found.to_dict())
    assert (again.basin.value, again.drop.stderr) == (found.basin.value, found.drop.stderr)
    assert (again.at_minimum, again.note) == ("no", found.note)
    bare = LearningCoefficient("llc", 1.0, 0.1)
    assert (bare.at_minimum, bare.basin.verdict, bare.note) == ("unknown", "failed", "")


def test_columns_of_a_table(seed):
    found = bs.llc(quadratic(SIGMA, offset=[1.0] * 5), gamma=1.0, seed=seed, **CHEAP)
    row = found.columns()
    assert row["llc_basin"] == found.basin.value
    assert row["llc_drop_stderr"] == found.drop.stderr
    assert (row["llc_at_minimum"], row["llc_nbeta"], row["llc_gamma"]) == ("no", pytest.approx(T), 1.0)
