"""Cases made at random, a fixed number of each kind: nothing wrong, nothing that crashes, hangs or is executed."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from hostile.outcomes import tried
from hostile.strategies import FUZZERS


@pytest.mark.slow
@pytest.mark.parametrize("name", FUZZERS)
def test_no_case_made_at_random_does_harm(name):
    strategy, runs = FUZZERS[name]

    @settings(
        max_examples=runs,
        database=None,
        phases=[Phase.generate],  # what fails is as small as its kind allows already
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def attempt(case):
        with tempfile.TemporaryDirectory() as folder:
            outcome = tried(case, Path(folder))
        assert outcome.suits(case), f"{case.name}: {outcome.kind}: {outcome.words}"

    attempt()
