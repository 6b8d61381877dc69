import numpy as np
import pytest

from basinscope.sampling.trace import STATISTICS, Trace


def stream(draws, chains=3, seed=0):
    return np.random.default_rng(seed).normal(size=(draws, chains, len(STATISTICS)))


def fed(data, blocks, sizes):
    """A trace that received `data` in pieces of the given sizes, over and over."""
    trace, start = Trace(data.shape[1], blocks), 0
    while start < len(data):
        for size in sizes:
            trace.append(data[start : start + size])
            start += size
    return trace


@pytest.mark.parametrize("sizes", [(1,), (7,), (64,), (1, 13, 2), (1000,)])
@pytest.mark.parametrize("draws", [1, 15, 16, 17, 100, 517, 1000])
def test_block_means_are_exact(draws, sizes):
    data = stream(draws)
    trace = fed(data, 8, sizes)
    assert trace.draws == draws
    whole = draws // trace.width
    expected = data[: whole * trace.width].reshape(whole, trace.width, 3, len(STATISTICS)).mean(1)
    for number, name in enumerate(STATISTICS):
        found = trace.values(name)
        assert found.shape == (3, whole)
        np.testing.assert_allclose(found, expected[:, :, number].T, rtol=0, atol=1e-12)
    assert whole < 16 or draws < 16
    assert trace.width & (trace.width - 1) == 0


def test_no_more_blocks_than_promised_and_no_fewer_than_half():
    trace = Trace(2, blocks=32)
    for piece in range(300):
        trace.append(stream(17, chains=2, seed=piece))
        blocks = trace.values("excess").shape[1]
        assert blocks < 64
        assert blocks >= 31 or trace.width == 1


def held(trace):
    """Numbers that a trace keeps in memory."""
    return sum(value.size for value in vars(trace).values() if isinstance(value, np.ndarray))


def test_memory_does_not_grow_with_the_number_of_draws():
    piece = np.zeros((50, 2, len(STATISTICS)))
    trace, most = Trace(2, blocks=8), []
    for _ in range(5):
        peak = 0
        for _ in range(100):
            trace.append(piece)
            peak = max(peak, held(trace))
        most.append(peak)
    assert trace.draws == 25_000
    assert max(most) <= 4 * 8 * 2 * len(STATISTICS), f"numbers held in each fifth of the run: {most}"


def test_the_beginning_can_be_left_out():
    data = stream(40, chains=2)
    trace = fed(data, 32, (8,))
    assert trace.width == 1
    virial = data[:, :, STATISTICS.index("virial")].T
    np.testing.assert_array_equal(trace.values("virial", discard=0.5), virial[:, 20:])
    np.testing.assert_array_equal(trace.values("virial", discard=0.99), virial[:, 40:])
    np.testing.assert_array_equal(trace.values("virial", discard=0.0), virial)


def test_one_chain_does_not_spoil_another():
    data = stream(200)
    data[150:, 1] = np.nan
    trace = fed(data, 16, (10,))
    assert np.isnan(trace.values("excess")[1]).any()
    kept = trace.values("excess", chains=np.array([True, False, True]))
    assert kept.shape[0] == 2
    assert np.isfinite(kept).all()
