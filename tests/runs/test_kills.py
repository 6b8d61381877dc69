"""Processes killed at random moments; the benchmark does it fifty times."""

import pytest
from survival.kills import attacked, undisturbed

SETTINGS = ("count=24", "pause=0.15")


@pytest.mark.slow
def test_whatever_is_killed_the_table_is_the_same_to_the_bit(tmp_path):
    sound = undisturbed(tmp_path / "sound", SETTINGS)
    attack = attacked(tmp_path / "attacked", SETTINGS, kills=5, seed=0)
    assert not attack.complaints
    assert attack.digest == sound
    assert attack.kills.total() >= 3
    assert attack.begun - 24 <= attack.in_flight
    assert attack.orphans == 0
