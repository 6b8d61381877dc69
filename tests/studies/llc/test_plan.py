"""The plan: jobs are plain values, cover what the settings name, and keep within the time they are given."""

import json
from collections import Counter

import pytest

from basinscope.exact import deep_linear
from studies.llc import plan
from studies.llc.__main__ import PLAIN


@pytest.mark.parametrize("scale", ["smoke", "paper"])
def test_jobs_are_plain_values(scale):
    found = list(plan.jobs(PLAIN.planned(scale, [])))
    assert Counter(job.part for job in found).keys() == set(plan.PARTS)
    keys = {PLAIN.key(job) for job in found}
    assert len(keys) == len(found)
    for job in found:
        assert plan.job_of(json.loads(json.dumps(job.config()))) == job


def test_the_paper_scale_fits_the_device():
    found = plan.units(plan.jobs(plan.Plan()))
    seconds = [sum(map(plan.cost, unit)) for unit in found]
    assert sum(seconds) < 2.25 * 3600
    assert max(seconds) <= 300


def test_populations_stay_together():
    found = plan.units(plan.jobs(plan.Plan(parts=("entropy", "cost"), entropy_seeds=27)))
    assert sorted(map(len, found)) == [1] * 5 + [7, 7, 20, 20]


@pytest.mark.parametrize("decade", [2, 4, 7])
def test_random_networks(decade):
    layers = set()
    for seed in range(40):
        widths, rank = plan.random_widths(decade, seed)
        assert 10**decade <= plan.size_of(widths) <= 10 ** (decade + 1)
        assert 0 <= rank <= min(widths)
        assert deep_linear(list(widths), rank)[0] > 0
        layers.add(len(widths) - 2)
    assert layers == {1, 2, 3, 4, 5}


def test_labels_choose_units(tmp_path, capsys):
    assert PLAIN.main(["plan", "--scale", "paper", "--out", str(tmp_path), "--only", "truth-decade7*"]) == 0
    assert "3 jobs in 3 units" in capsys.readouterr().out
