import math

import numpy as np
import pytest

from basinscope.sampling.adaptation import DualAveraging
from chance import assert_within


@pytest.mark.parametrize("first", [1e-3, 0.2, 20.0])
def test_it_finds_the_step_of_the_wanted_acceptance(first, seed):
    # Acceptance exp(−h) with noise of a few chains: 0.8 is reached at h = −log 0.8, but for what noise bends.
    noise = np.random.default_rng(seed)
    exact, steps = -math.log(0.8), []
    for _ in range(20):
        tuner = DualAveraging(first, target=0.8)
        for _ in range(1000):
            tuner.update(min(1.0, max(0.0, math.exp(-tuner.step_size) + 0.1 * noise.normal())))
        steps.append(tuner.final)
    stderr = np.std(steps, ddof=1) / math.sqrt(20)
    assert stderr < 0.02 * exact
    assert_within(np.mean(steps), exact, stderr, freedom=19, bias=0.1 * exact)
