"""The inequalities of Shoham, Mor-Yosef and Avron 2025: Prop. 6.1, Thm C.2 and Thm C.3.

The rank rank⁽²⁾ is not concave and obeys none of them.
"""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from basinscope.curvature.functions import LOG_DET, SOFT_RANK

f64 = torch.float64
SLACK = 1e-9
seeds = st.integers(0, 2**31)
shapes = st.lists(st.integers(1, 4), min_size=2, max_size=4)
levels = st.floats(1e-3, 10)


def random_psd(size, rank, generator):
    rows = torch.randn(size, rank, dtype=f64, generator=generator)
    return rows @ rows.T


def value(kind, matrix, level):
    return float(kind.at(level)(torch.linalg.eigvalsh(matrix).clamp(min=0)).sum())


def pinched(matrix, sizes):
    kept = torch.block_diag(*(torch.ones(size, size, dtype=f64) for size in sizes))
    return matrix * kept


@settings(max_examples=60)
@given(seeds, shapes, levels)
def test_block_diagonal_never_lowers(seed, sizes, level):
    generator = torch.Generator().manual_seed(seed)
    matrix = random_psd(sum(sizes), max(1, sum(sizes) // 2), generator)
    decay = torch.rand(sum(sizes), dtype=f64, generator=generator) + 0.1
    whitened = matrix / (decay[:, None] * decay).sqrt()
    for kind in (SOFT_RANK, LOG_DET):
        assert value(kind, whitened, level) <= value(kind, pinched(whitened, sizes), level) + SLACK


@settings(max_examples=60)
@given(seeds, st.integers(2, 8), levels)
def test_the_diagonal_in_any_basis_never_lowers(seed, size, level):
    generator = torch.Generator().manual_seed(seed)
    matrix = random_psd(size, size, generator)
    basis = torch.linalg.qr(torch.randn(size, size, dtype=f64, generator=generator)).Q
    rotated = torch.diag((basis.T @ matrix @ basis).diagonal())
    for kind in (SOFT_RANK, LOG_DET):
        assert value(kind, matrix, level) <= value(kind, rotated, level) + SLACK


@settings(max_examples=60)
@given(seeds, st.integers(2, 6), st.integers(2, 5), levels)
def test_sums_are_bounded_by_their_parts(seed, size, parts, level):
    generator = torch.Generator().manual_seed(seed)
    pieces = [random_psd(size, 1 + number % size, generator) for number in range(parts)]
    for kind in (SOFT_RANK, LOG_DET):
        assert value(kind, sum(pieces), level) <= sum(value(kind, piece, level) for piece in pieces) + SLACK
