import math

import numpy as np
import pytest
import torch
from scipy import stats

import basinscope as bs
import small_studies
from basins import quadratic
from basinscope.errors import InputError
from basinscope.exact import finite
from basinscope.runs.chains import merged, part_estimate, part_result, part_seed
from basinscope.runs.driver import run
from basinscope.runs.executors.local import Local
from basinscope.runs.results import Results
from basinscope.runs.settings import resolved
from basinscope.runs.store import Store
from chance import FALSE_ALARM, assert_within


def parts_of(store, settings):
    study = small_studies.CHAINS
    results = Results(study, resolved(study, "smoke", settings), Store(store))
    return results, [part_estimate(row) for row in results.arrow.to_pylist()]


@pytest.mark.slow
def test_spread_chains_merge_to_the_bits_of_one_process_and_to_the_exact_value(tmp_path, seed):
    parts = 16
    settings = {"grid": {"part": list(range(parts))}, "common": {"seed": seed}}
    for name, on in (("here", None), ("spread", Local(2))):
        assert run(small_studies.CHAINS, tmp_path / name, settings=settings, on=on, progress=False).complete
    (_, here), (results, spread) = (parts_of(tmp_path / name, settings) for name in ("here", "spread"))
    assert merged(here) == merged(spread) == merged(spread[::-1])
    estimate = merged(spread)
    # Plain SGLD: the merged value is the mean over all chains of all parts, second halves only.
    traces = [results.arrays(plan)["trace"] for plan in results.jobs]
    pooled = np.concatenate(traces)
    assert pooled.shape[0] == estimate.diagnostics["chains"] == 2 * parts
    assert estimate.value == pytest.approx(pooled[:, pooled.shape[1] // 2 :].mean(), rel=1e-9)
    exact = finite.quadratic(small_studies.CURVATURES, estimate.diagnostics["nbeta"], estimate.diagnostics["gamma"])
    # The chains are independent; SGLD has a bias of its step size.
    means = pooled[:, pooled.shape[1] // 2 :].mean(1)
    assert_within(estimate.value, exact, means.std(ddof=1) / math.sqrt(2 * parts), 2 * parts - 1, bias=0.03 * exact)
    assert estimate.stderr < 0.6 * np.mean([part.stderr for part in spread])


def test_merged_error_bars_are_honest(seed):
    rng, repeats = np.random.default_rng(seed), 1000
    off = []
    for _ in range(repeats):
        errors = rng.uniform(0.1, 0.5, 4)
        whole = merged([bs.Estimate("llc", 5 + error * rng.normal(), error) for error in errors])
        off.append((whole.value - 5) / whole.stderr)
    low, high = stats.chi2.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], repeats)
    assert low < np.square(off).sum() < high


def test_parts_that_disagree_are_doubted():
    doubtful = merged([bs.Estimate("llc", value, 0.1) for value in (1.0, 1.1, 3.0)])
    assert doubtful.verdict == "doubtful"
    assert "parts disagree" in doubtful.warnings[0]
    assert doubtful.stderr == pytest.approx(np.std([1.0, 1.1, 3.0], ddof=1) / math.sqrt(3))


def test_the_worst_part_decides_the_verdict():
    parts = [bs.Estimate("llc", 1.0, 0.1), bs.Estimate("llc", 1.05, 0.1, (bs.Check.not_passed("slow — raise budget"),))]
    assert merged(parts).verdict == "doubtful"
    assert merged(parts).warnings == ("slow — raise budget",)


def test_one_part_is_itself():
    one = merged([bs.Estimate("llc", 1.5, 0.25)])
    assert (one.value, one.stderr) == (1.5, 0.25)


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ([], "no part to merge"),
        ([bs.Estimate("llc", 1.0, 0.1), bs.Estimate("wbic", 2.0, 0.1)], "must share name"),
        ([bs.Estimate("llc", v, 0.1, diagnostics={"gamma": v}) for v in (1.0, 2.0)], "must share gamma"),
        ([bs.Estimate("llc", 1.0, 0.1)] * 2, "very same value"),
    ],
)
def test_what_cannot_be_merged(parts, told):
    with pytest.raises(InputError, match=told):
        merged(parts)


def test_a_measured_estimate_survives_the_store():
    land = quadratic([1.0, 4.0], dtype=torch.float64)
    estimate = bs.llc(land, sampler="sgld", chains=2, draws=64, seed=part_seed(0, 0), progress=False)
    back = part_estimate(part_result(estimate).rows[0])
    assert (back.value, back.stderr, back.verdict, back.warnings) == (
        estimate.value,
        estimate.stderr,
        estimate.verdict,
        estimate.warnings,
    )


def test_seeds_of_parts_are_far_apart():
    seeds = [part_seed(seed, part) for seed in range(20) for part in range(20)]
    assert len(set(seeds)) == 400
    assert min(np.diff(sorted(seeds))) > 1000
