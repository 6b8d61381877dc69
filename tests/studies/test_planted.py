import numpy as np
import pytest
import torch

from basinscope.exact import normal_mixture, reduced_rank
from studies.common.planted import PLANTED, averaged_tanh

f64 = torch.float64


def test_coefficients_are_the_exact_ones():
    assert PLANTED["mixture"].coefficient == normal_mixture(2)
    assert PLANTED["reduced-rank"].coefficient == reduced_rank(2, 2, 4, 1)


def test_averaged_observations_have_the_loss_of_all_of_them():
    # n observations at m places: nL_n is (n/m) times the summed loss of their means, up to a constant.
    rng = np.random.default_rng(0)
    land = averaged_tanh(50 * 20, seed=3)
    x, means = land.samples.inputs, land.samples.target
    noise = rng.normal(size=(50, 20))
    noise += means.numpy() - noise.mean(1, keepdims=True)
    weights = [torch.tensor([0.5, -0.2], dtype=f64), torch.tensor([0.3, 1.0], dtype=f64)]
    differences = []
    for scale in (0.0, 1.0):
        parameters = {name: scale * weight for name, weight in zip(land.parameters, weights, strict=True)}
        output = land.outputs(parameters, x).numpy()
        differences.append((0.5 * (noise - output) ** 2).sum() - 20 * 0.5 * ((means.numpy() - output) ** 2).sum())
    assert differences[0] == pytest.approx(differences[1])
