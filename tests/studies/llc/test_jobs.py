"""The jobs cover what the settings name, and keep within the time they are given."""

from collections import Counter

import pytest

from basinscope.exact import deep_linear
from basinscope.runs.settings import resolved
from basinscope.runs.units import planned, units
from studies.llc.jobs import random_widths, size_of
from studies.llc.settings import PARTS, LlcSettings
from studies.llc.study import STUDY


def all_units(settings):
    return units(STUDY, planned(STUDY, settings), lambda key: False)


@pytest.mark.parametrize("scale", ["smoke", "paper"])
def test_all_parts_have_jobs(scale):
    assert Counter(job.part for job in STUDY.jobs(resolved(STUDY, scale))).keys() == set(PARTS)


def test_the_paper_scale_fits_the_device():
    seconds = [unit.cost for unit in all_units(LlcSettings())]
    assert sum(seconds) < 2.25 * 3600
    assert max(seconds) <= 300


def test_populations_stay_together():
    listed = all_units(LlcSettings(parts=("entropy", "cost"), entropy_seeds=27))
    assert sorted(len(unit.keys) for unit in listed) == [1] * 5 + [7, 7, 20, 20]


@pytest.mark.parametrize("decade", [2, 4, 7])
def test_random_networks(decade):
    layers = set()
    for seed in range(40):
        widths, rank = random_widths(decade, seed)
        assert 10**decade <= size_of(widths) <= 10 ** (decade + 1)
        assert 0 <= rank <= min(widths)
        assert deep_linear(list(widths), rank)[0] > 0
        layers.add(len(widths) - 2)
    assert layers == {1, 2, 3, 4, 5}
