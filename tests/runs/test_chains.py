import math

import numpy as np
import pytest
import torch

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

SETTINGS = {"grid": {"part": [0, 1, 2, 3]}}


def parts_of(store):
    study = small_studies.CHAINS
    results = Results(study, resolved(study, "smoke", SETTINGS), Store(store))
    return results, [part_estimate(row) for row in results.arrow.to_pylist()]


def test_spread_chains_merge_to_the_bits_of_one_process_and_to_the_exact_value(tmp_path):
    for name, on in (("here", None), ("spread", Local(2))):
        assert run(small_studies.CHAINS, tmp_path / name, settings=SETTINGS, on=on, progress=False).complete
    (_, here), (results, spread) = (parts_of(tmp_path / name) for name in ("here", "spread"))
    assert merged(here) == merged(spread) == merged(spread[::-1])
    estimate = merged(spread)
    # Plain SGLD: the merged value is the mean over all chains of all parts, second halves only.
    traces = [results.arrays(plan)["trace"] for plan in results.jobs]
    pooled = np.concatenate(traces)
    assert pooled.shape[0] == estimate.diagnostics["chains"] == 8
    assert estimate.value == pytest.approx(pooled[:, pooled.shape[1] // 2 :].mean(), rel=1e-9)
    exact = finite.quadratic(small_studies.CURVATURES, estimate.diagnostics["nbeta"], estimate.diagnostics["gamma"])
    assert abs(estimate.value - exact) < 4 * estimate.stderr + 0.03 * exact  # SGLD's step-size bias
    assert estimate.stderr < 0.6 * np.mean([part.stderr for part in spread])


def test_merged_error_bars_are_honest():
    rng = np.random.default_rng(0)
    off = []
    for _ in range(300):
        errors = rng.uniform(0.1, 0.5, 4)
        whole = merged([bs.Estimate("llc", 5 + error * rng.normal(), error) for error in errors])
        off.append((whole.value - 5) / whole.stderr)
    assert abs(np.std(off) - 1) < 4 / math.sqrt(600)


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
