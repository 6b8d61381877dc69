import math

import pytest
import torch
from scipy import stats

from basinscope.errors import InputError
from basinscope.training.population.draws import draws, keys, mixed
from chance import FALSE_ALARM, assert_within


def reference(seed_key, step, batch, size):
    """The same in Python's own integers."""
    mask = 2**64 - 1
    numbers = []
    for j in range(1, -(-batch // 2) + 1):
        z = ((step * 2**20 + j) * 0x9E3779B97F4A7C15 + seed_key) & mask
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        z ^= z >> 31
        numbers += [(z >> 32) * size >> 32, (z & 0xFFFFFFFF) * size >> 32]
    return numbers[:batch]


@pytest.mark.parametrize("step", [0, 7, 199_999])
def test_draws_are_splitmix(step):
    streams, sizes = keys([0, 5, 2**40]), torch.tensor([1, 1000, 60_000])
    drawn = draws(streams, sizes, torch.tensor(step), 3, 5)
    for k in range(3):
        for m in range(3):
            expected = reference(int(streams[m]) % 2**64, step + k, 5, int(sizes[m]))
            assert drawn[k, m].tolist() == expected


def test_splitmix_against_its_published_first_output():
    # SplitMix64 started from 0 gives 0xE220A8397B1DCDAF first
    state = torch.tensor([0x9E3779B97F4A7C15 - 2**64])
    assert int(mixed(state)) % 2**64 == 0xE220A8397B1DCDAF


def test_draws_are_uniform_and_independent_between_members_and_steps(seed):
    drawn = draws(keys([seed, seed + 1]), torch.tensor([10, 10]), 0, 2000, 50)
    counts = torch.bincount(drawn[:, 0].flatten(), minlength=10).double()
    expected = 2000 * 50 / 10
    assert float(((counts - expected) ** 2 / expected).sum()) < stats.chi2.isf(FALSE_ALARM, 9)
    scores = (drawn.double() - 4.5) / math.sqrt((100 - 1) / 12)
    for one, two in (
        (scores[:, 0], scores[:, 1]),
        (scores[1:, 0], scores[:-1, 0]),
        (scores[:, 0, 1:], scores[:, 0, :-1]),
    ):
        assert_within(float((one * two).mean()), 0.0, 1 / math.sqrt(one.numel()))


def test_a_batch_is_the_start_of_a_larger_one():
    streams, sizes = keys([3]), torch.tensor([77])
    assert torch.equal(draws(streams, sizes, 5, 1, 9)[..., :4], draws(streams, sizes, 5, 1, 4))


def test_too_large_a_batch():
    with pytest.raises(InputError, match="batch_size must be at most"):
        draws(keys([0]), torch.tensor([5]), 0, 1, 2**22)
