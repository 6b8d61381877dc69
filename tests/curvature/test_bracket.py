import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import basinscope as bs
from basinscope.curvature.averages import CERTAINTY
from basinscope.curvature.bracket import Function, nodes_of
from basinscope.curvature.functions import LOG_DET, SOFT_RANK, SOFT_RANK_SQUARED
from basinscope.curvature.lanczos import LanczosRuns
from basinscope.curvature.operators import Dense
from basinscope.curvature.stochastic import Whitened, traced
from chance import FALSE_ALARM, assert_share, assert_within

f64 = torch.float64
RESOLVENT = Function(None, lambda x: 1 / (x + 0.1))
FUNCTIONS = [SOFT_RANK.at(0.1), LOG_DET.at(0.1), SOFT_RANK_SQUARED.at(0.1), RESOLVENT]


def matrix_of(values, generator):
    frame = torch.linalg.qr(torch.randn(len(values), len(values), dtype=f64, generator=generator)).Q
    return (frame * values) @ frame.T, frame


def quietly(fraction, text):
    pass


@pytest.mark.parametrize("case", range(50))
def test_rules_bracket_quadratic_forms_at_every_step(case, seed):
    generator = torch.Generator().manual_seed(seed)
    size = int(torch.randint(5, 60, (1,), generator=generator))
    values = torch.rand(size, dtype=f64, generator=generator) ** (1 + case % 8)
    values[: case % 5] = 0
    matrix, frame = matrix_of(values, generator)
    starts = torch.randn(size, 3, dtype=f64, generator=generator)
    runs = LanczosRuns(Dense(matrix, psd=True), starts)
    weights = (frame.T @ starts).square()
    widths = []
    for _ in range(min(size, 12)):
        runs.grow(1)
        nodes = nodes_of(runs.tridiagonal, -1e-12)
        for function in FUNCTIONS:
            low, high = function.bracket(nodes)
            truth = (weights * function(values)[:, None]).sum(0)
            slack = 1e-9 * truth.abs() + 1e-12
            assert bool((low <= truth + slack).all())
            assert bool((truth <= high + slack).all())
        widths.append(float((high - low).sum()))
    assert all(late <= early * (1 + 1e-9) + 1e-9 for early, late in itertools.pairwise(widths))


def test_exhausted_runs_are_exact():
    values = torch.tensor([0.0, 0.0, 1.0, 1.0, 2.0], dtype=f64)
    runs = LanczosRuns(Dense(torch.diag(values), psd=True), torch.ones(5, 1, dtype=f64))
    runs.grow(5)  # three distinct eigenvalues: two steps too many
    low, high = SOFT_RANK.at(0.5).bracket(nodes_of(runs.tridiagonal, -1e-15))
    assert float(low) == pytest.approx(float(high), abs=1e-12) == pytest.approx(2 / 1.5 + 2 / 2.5, abs=1e-12)


@given(st.floats(1e-4, 10), st.lists(st.floats(0, 5), min_size=1, max_size=8))
def test_functions_are_what_they_say(level, values):
    x = torch.tensor(values, dtype=f64)
    assert torch.allclose(SOFT_RANK.at(level)(x), x / (x + level))
    assert torch.allclose(SOFT_RANK_SQUARED.at(level)(x), (x / (x + level)) ** 2, atol=1e-12)
    assert torch.allclose(LOG_DET.at(level)(x), 0.5 * torch.log(1 + x / level))


def test_bounds_hold_the_trace_of_every_kind_of_spectrum(seed):
    cases, misses = 50, np.zeros(3)
    for case in range(cases):
        generator = torch.Generator().manual_seed(seed + case)
        size = 60 + 7 * (case % 10)
        values = torch.rand(size, dtype=f64, generator=generator) ** (1 + case % 6)
        matrix, _ = matrix_of(values, generator)
        level = 10 ** (-1 - case % 3)
        functions = [kind.at(level) for kind in (SOFT_RANK, LOG_DET, SOFT_RANK_SQUARED)]
        operator = Dense(matrix, psd=True)
        results = traced(operator, functions, [level] * 3, seed=seed + case, rtol=0.05, report=quietly)
        for number, (average, function) in enumerate(zip(results, functions, strict=True)):
            truth = float(function(values).sum())
            misses[number] += not average.bounds[0] <= truth <= average.bounds[1]
            assert average.bracket[0] <= average.value <= average.bracket[1]
            assert average.bracket[1] - average.bracket[0] < 2 * 0.05 * truth
    assert misses.max() <= stats.binom.isf(FALSE_ALARM, cases, 1 - CERTAINTY)


def test_few_large_eigenvalues_are_split_off(seed):
    """Hutchinson alone would need over a thousand probes here."""
    generator = torch.Generator().manual_seed(0)
    flat = 1e-4 * torch.rand(295, dtype=f64, generator=generator)
    values = torch.cat([torch.tensor([5.0, 3.0, 2.0, 2.0, 1.0], dtype=f64), flat])
    matrix, _ = matrix_of(values, generator)
    function, repeats = SOFT_RANK.at(1.0), 20
    truth = float(function(values).sum())
    results = [
        traced(Dense(matrix, psd=True), [function], [1.0], seed=seed + k, rtol=0.01, report=quietly)[0]
        for k in range(repeats)
    ]
    assert max(average.stderr for average in results) < 0.01 * truth
    # Half of a bracket is no random error: it counts as a bias.
    value, width = np.array([(average.value, average.bracket[1] - average.bracket[0]) for average in results]).T
    assert_within(value.mean(), truth, value.std(ddof=1) / math.sqrt(repeats), repeats - 1, bias=width.mean() / 2)


def test_standard_error_covers_the_trace(seed):
    generator = torch.Generator().manual_seed(0)
    values = torch.rand(80, dtype=f64, generator=generator) ** 4
    matrix, _ = matrix_of(values, generator)
    operator, function, repeats = Dense(matrix, psd=True), SOFT_RANK.at(0.01), 100
    truth = float(function(values).sum())
    inside, found = 0, []
    for k in range(repeats):
        (average,) = traced(operator, [function], [0.01], seed=seed + k, rtol=0.03, report=quietly)
        low, high = average.estimate("soft_rank", 0.03, {}).interval(0.9)
        inside += low <= truth <= high
        found.append((average.value, average.stderr))
    assert_share(inside, repeats, 0.9)
    value, stderr = np.array(found).T
    squares = (repeats - 1) * value.var(ddof=1) / np.square(stderr).mean()
    low, high = stats.chi2.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], repeats - 1)
    assert low < squares < high


def test_indefinite_operators(seed):
    generator = torch.Generator().manual_seed(0)
    values = torch.linspace(-0.1, 2, 50, dtype=f64)
    matrix, _ = matrix_of(values, generator)
    operator = Dense(matrix)
    with pytest.raises(bs.InputError, match=r"eigenvalue -0\.[01].*raise the weight decay"):
        traced(operator, [SOFT_RANK.at(0.05)], [0.05], seed=seed, rtol=0.05, report=quietly)
    (average,) = traced(operator, [SOFT_RANK.at(0.5)], [0.5], seed=seed, rtol=0.02, report=quietly)
    assert_within(average.value, float(SOFT_RANK.at(0.5)(values).sum()), average.stderr, average.freedom)
    estimate = average.estimate("soft_rank", 0.02, {})
    assert estimate.verdict == "doubtful"
    assert "negative eigenvalues" in estimate.warnings[0]


def test_weight_decay_below_rounding_is_refused(seed):
    generator = torch.Generator().manual_seed(0)
    matrix, _ = matrix_of(torch.rand(50, dtype=f64, generator=generator), generator)
    operator = Dense(matrix.float(), psd=True)
    with pytest.raises(bs.InputError, match="float64"):
        traced(operator, [SOFT_RANK.at(1e-8)], [1e-8], seed=seed, rtol=0.05, report=quietly)


def test_whitened_operator_scales_both_sides():
    generator = torch.Generator().manual_seed(0)
    matrix, _ = matrix_of(torch.rand(6, dtype=f64, generator=generator), generator)
    scale = torch.arange(1.0, 7.0, dtype=f64)
    whitened = Whitened(Dense(matrix), scale)
    assert torch.allclose(whitened @ torch.eye(6, dtype=f64), scale[:, None] * matrix * scale)
    assert torch.allclose(whitened @ torch.ones(6, dtype=f64), (scale[:, None] * matrix * scale).sum(1))


@settings(max_examples=30)
@given(st.integers(0, 10_000))
def test_same_seed_same_number(seed):
    operator = Dense(torch.diag(torch.linspace(0, 1, 30, dtype=f64)), psd=True)
    first, second = (
        traced(operator, [SOFT_RANK.at(0.1)], [0.1], seed=seed, rtol=0.1, report=quietly) for _ in range(2)
    )
    assert first == second
