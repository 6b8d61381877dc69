"""What all tests share: a seed that can be changed from outside, and a last word on what this machine lacks."""

import os
import zlib

import pytest
import torch

import lacking

SEED = int(os.environ.get("BASINSCOPE_TEST_SEED", "0"))


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """A seed of this test's own; `BASINSCOPE_TEST_SEED` changes the seeds of all tests at once."""
    return zlib.crc32(f"{SEED} {request.node.nodeid}".encode()) >> 1


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was left out, why, and what brings it: a line each."""
    lines = lacking.told(terminalreporter.stats.get("skipped", []))
    if lines:
        terminalreporter.section("what this machine lacks")
        for line in lines:
            terminalreporter.write_line(line)


@pytest.fixture(autouse=True)
def _own_random_numbers(seed: int) -> None:
    """Torch's global generator starts from the test's seed, whichever tests ran before in the same process."""
    torch.manual_seed(seed)
