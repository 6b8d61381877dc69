import math

import numpy as np
import pytest

from basinscope.sampling.adaptation import DualAveraging


@pytest.mark.parametrize("first", [1e-3, 0.2, 20.0])
def test_it_finds_the_step_of_the_wanted_acceptance(first):
    # Acceptance exp(−h) with noise of a few chains: 0.8 is reached at h = −log 0.8.
    noise = np.random.default_rng(0)
    tuner = DualAveraging(first, target=0.8)
    for _ in range(2000):
        tuner.update(min(1.0, max(0.0, math.exp(-tuner.step_size) + 0.1 * noise.normal())))
    assert tuner.final == pytest.approx(-math.log(0.8), rel=0.1)
