import numpy as np
import pytest
import torch
from scipy import stats
from scipy.integrate import quad
from scipy.special import k0

from basinscope.sampling.volume import multilevel_splitting
from chance import assert_within

GROUPS = 32


def assert_volumes(found, exact):
    assert found.stderr[-1] < 0.15
    assert_within(found.log_volume, exact, found.stderr, freedom=GROUPS - 1)


@pytest.mark.parametrize("d", [1, 3])
def test_volumes_of_balls_are_chi_squared(d, seed):
    found = multilevel_splitting(
        lambda w: w.square().sum(1) / 2, d, 4.0, smallest=1e-5, groups=GROUPS, particles=256, seed=seed
    )
    assert_volumes(found, stats.chi2.logcdf(2 * 4.0 * found.levels, d))
    assert found.levels[-1] == pytest.approx(1e-5)


def test_volumes_of_a_long_ellipsoid(seed):
    # P(Σ c_i x_i² < 2ε) for tiny ε is the volume of the ellipsoid times the density at the origin.
    scales = torch.tensor([1.0, 1e2, 1e4], dtype=torch.float64)
    found = multilevel_splitting(
        lambda w: (w.square() * scales).sum(1) / 2, 3, 1.0, smallest=1e-5, groups=GROUPS, particles=256, seed=seed
    )
    ellipsoid = 4 / 3 * np.pi * (2e-5) ** 1.5 / float(scales.prod().sqrt()) * (2 * np.pi) ** -1.5
    assert found.stderr[-1] < 0.2
    assert_within(found.log_volume[-1], np.log(ellipsoid), found.stderr[-1], freedom=GROUPS - 1)


def test_volumes_of_the_hyperbola(seed):
    found = multilevel_splitting(
        lambda w: w.prod(1).square() / 2, 2, 1.0, smallest=1e-8, groups=GROUPS, particles=256, seed=seed
    )
    exact = np.array([np.log(2 / np.pi * quad(k0, 0, np.sqrt(2 * level))[0]) for level in found.levels])
    assert_volumes(found, exact)


def test_a_seed_repeats_and_groups_differ():
    first, second = (multilevel_splitting(lambda w: w.square().sum(1), 2, 1.0, smallest=1e-2, seed=3) for _ in "ab")
    assert np.array_equal(first.log_ratios, second.log_ratios)
    assert len(np.unique(first.log_ratios[:, 0])) > 1


def test_a_loss_that_is_zero_on_a_set_of_positive_volume_ends_the_ladder():
    found = multilevel_splitting(lambda w: (w.square().sum(1) - 2).clamp(min=0), 2, 1.0, smallest=1e-6)
    assert len(found.levels) < 5
