"""Processes killed at random moments; the benchmark does it fifty times."""

import pytest
from survival.kills import attacked, undisturbed

SETTINGS = ("count=48", "pause=0.15")


@pytest.mark.slow
def test_whatever_is_killed_the_table_is_the_same_to_the_bit(tmp_path, seed):
    """How many kills a run gets before it ends depends on the machine; that none costs a job or a bit does not."""
    sound = undisturbed(tmp_path / "sound", SETTINGS)
    attack = attacked(tmp_path / "attacked", SETTINGS, number=5, seed=seed, grace=60)
    assert not attack.complaints
    assert attack.digest == sound
    assert attack.strikes.total() >= 1
    assert attack.begun - 48 <= attack.in_flight
    assert attack.orphans == 0
