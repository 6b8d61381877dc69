"""Several temperatures of one landscape: curvature once, and chains that go on from one to the next."""

import numpy as np
import pytest

from basins import quadratic
from basinscope.sampling import adjusted, local
from basinscope.sampling.calibration import Resolution
from basinscope.sampling.local import Sampler, Settings
from basinscope.sampling.tempered import tempered_means
from chance import SAMPLED, assert_within

SIGMA = np.array([1.0, 0.3, 0.1, 0.01])
GAMMA = 1.0


def exact(nbeta):
    """½ Σ tσ/(tσ + γ)."""
    return float((0.5 * nbeta * SIGMA / (nbeta * SIGMA + GAMMA)).sum())


@pytest.mark.parametrize("sampler", ["hmc", "minibatch"])
def test_every_rung_has_its_own_mean(sampler, seed, monkeypatch):
    curvature, pilots = [], []
    geometry, pilot = local.geometry, adjusted.pilot
    monkeypatch.setattr(local, "geometry", lambda *args: curvature.append(1) or geometry(*args))
    monkeypatch.setattr(adjusted, "pilot", lambda *args: pilots.append(1) or pilot(*args))
    rungs = [300.0, 60.0, 10.0, 2.0]
    settings = Settings(sampler, rtol=0.03, budget=2.0, seed=seed)
    land = quadratic(SIGMA.tolist(), n=2000, noise=0.3)
    outcomes = list(Sampler(land, settings).ladder([Resolution(t, GAMMA) for t in rungs], lambda fraction, text: None))
    for nbeta, outcome in zip(rungs, outcomes, strict=True):
        assert outcome.at == Resolution(nbeta, GAMMA)
        value, stderr = nbeta * outcome.excess, nbeta * outcome.stderr
        assert stderr < 0.15 * exact(nbeta)
        assert_within(value, exact(nbeta), stderr, SAMPLED, bias=1e-3 * exact(nbeta))
    assert len(curvature) == 2, "at w* and where the first chains were"
    assert len(pilots) == (sampler == "hmc")


def test_means_come_in_the_order_they_were_asked_for(seed):
    land = quadratic(SIGMA.tolist(), n=500)
    betas, texts = [0.01, 0.2, 0.05], []
    settings = Settings("hmc", rtol=0.05, budget=1.0, seed=seed)
    means = tempered_means(land, betas, GAMMA, settings, lambda fraction, text: texts.append(fraction))
    assert [mean.beta for mean in means] == pytest.approx(betas)
    for beta, mean in zip(betas, means, strict=True):
        assert_within(beta * mean.mean, exact(500 * beta), beta * mean.stderr, SAMPLED, bias=1e-3)
    assert texts[0] == 0.0
    assert texts[-1] == 1.0
    assert texts == sorted(texts)


def test_rungs_have_random_numbers_of_their_own():
    land, at = quadratic([1.0, 0.5], n=100), Resolution(20.0, 1.0)
    settings = Settings("hmc", draws=16, chains=4, budget=0.2)
    runs = (Sampler(land, settings).run(at, lambda fraction, text: None, number=number) for number in (0, 0, 1))
    first, again, other = runs
    assert first.excess == again.excess != other.excess
