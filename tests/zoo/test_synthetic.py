import math

import pytest
import torch

from basinscope.errors import InputError
from basinscope.zoo import data
from chance import assert_within


def test_a_reduced_rank_teacher_has_its_rank_and_unit_singular_values():
    made = data.reduced_rank(6, 5, 3, n=4000, noise=0.0)
    x, y = made.train
    values = torch.linalg.svdvals(torch.linalg.lstsq(x, y).solution)
    torch.testing.assert_close(values, torch.tensor([1.0, 1, 1, 0, 0], dtype=torch.float64), atol=1e-12, rtol=0)


def test_the_noise_is_what_was_asked_for(seed):
    x, y = data.deep_linear([4, 2, 3], rank=2, n=20_000, noise=0.5, seed=seed).train
    residual = y - x @ torch.linalg.lstsq(x, y).solution
    freedom = (20_000 - 4) * 3
    assert_within(float(residual.square().sum()) / freedom, 0.25, 0.25 * math.sqrt(2 / freedom))


def test_a_mixture_has_unit_clusters_at_its_distance(seed):
    dimension = 2000  # in which random directions are nearly at right angles
    x, labels = data.mixture(4, dimension, n=800, distance=6.0, seed=seed).train
    centres = torch.stack([x[labels == k].mean(0) for k in range(4)])
    counts = labels.bincount(minlength=4)
    freedom = (800 - 4) * dimension
    spread = float((x - centres[labels]).double().square().sum()) / freedom
    assert_within(spread, 1.0, math.sqrt(2 / freedom))
    # ‖m_a − m_b‖² of cluster means is 36 (1 − cos θ) and noise: each of its terms has standard deviation below 2.
    squares = torch.cdist(centres, centres).square() - dimension * (1 / counts[:, None] + 1 / counts)
    pairs = torch.triu_indices(4, 4, offset=1)
    assert_within(squares[pairs[0], pairs[1]], 36.0, 2.0)


def test_modular_addition_splits_all_sums():
    made = data.modular_addition(11, fraction=0.3, seed=4)
    tokens = torch.cat([made.train[0], made.test[0]])
    sums = torch.cat([made.train[1], made.test[1]])
    assert len({tuple(row) for row in tokens.tolist()}) == 121
    assert torch.equal(sums, (tokens[:, 0] + tokens[:, 1]) % 11)
    assert len(made.train[0]) == 36
    assert bool((tokens[:, 2] == 11).all())


def test_text_windows_follow_each_other():
    made = data.characters(20, length=16, seed=3)
    x, y = made.train
    assert "".join(data.decode(row) for row in x) == data.story(320, seed=6)
    assert torch.equal(x[:, 1:], y[:, :-1])
    assert torch.equal(x[1:, 0], y[:-1, -1])
    assert data.decode(made.test[0].flatten()) != data.story(3200, seed=6)


def test_the_same_seed_makes_the_same_data():
    for make in (
        lambda seed: data.reduced_rank(3, 3, 1, n=5, seed=seed),
        lambda seed: data.mixture(2, 2, n=5, seed=seed),
        lambda seed: data.modular_addition(5, seed=seed),
        lambda seed: data.characters(5, seed=seed),
    ):
        assert torch.equal(make(1).train[0], make(1).train[0])
        assert not torch.equal(make(1).train[0], make(2).train[0])


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: data.reduced_rank(3, 2, 3, n=5), "rank must lie in 0..2, got 3"),
        (lambda: data.deep_linear([3, 1, 3], 2, n=5), "narrowest width"),
        (lambda: data.deep_linear([3], 1, n=5), "at least the input and the output"),
        (lambda: data.reduced_rank(3, 2, 1, n=0), "n must be a whole number of at least 1"),
        (lambda: data.reduced_rank(3, 2, 1, n=5, noise=-1), "noise must be a positive"),
        (lambda: data.mixture(2, 2, n=5, distance=0), "distance must be a positive"),
        (lambda: data.modular_addition(1), "modulus must be a whole number of at least 2"),
        (lambda: data.modular_addition(5, fraction=1.0), "fraction must lie between 0 and 1"),
        (lambda: data.characters(0), "n must be a whole number"),
    ],
)
def test_bad_input(call, match):
    with pytest.raises(InputError, match=match):
        call()
