"""What all tests share: a seed from outside, no clock, and a last word on what this machine lacks."""

import os
import signal
import zlib
from collections.abc import Iterator

import pytest
import torch
from hypothesis import HealthCheck, settings

import lacking
from basinscope.sampling import clock

SEED = int(os.environ.get("BASINSCOPE_TEST_SEED", "0"))

# How long an example takes depends on the machine. The examples are the same in every run unless a seed is given.
settings.register_profile(
    "suite",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="BASINSCOPE_TEST_SEED" not in os.environ,
)
settings.load_profile("suite")


# Shells have their background jobs ignore Ctrl-C, and so would everything that is tested from there.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """A seed of this test's own; `BASINSCOPE_TEST_SEED` changes the seeds of all tests at once."""
    return zlib.crc32(f"{SEED} {request.node.nodeid}".encode()) >> 1


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was left out, why, and what brings it: a line each."""
    lines = lacking.summary_lines(terminalreporter.stats.get("skipped", []))
    if lines:
        terminalreporter.section("what this machine lacks")
        for line in lines:
            terminalreporter.write_line(line)


@pytest.fixture(autouse=True)
def _own_random_numbers(seed: int) -> None:
    """Torch's global generator starts from the test's seed, whichever tests ran before in the same process."""
    torch.manual_seed(seed)


@pytest.fixture(autouse=True, scope="session")
def _no_clock() -> Iterator[None]:
    """A budget that is a plain number counts arithmetic: what a test sees does not depend on the machine's load.

    It holds for the whole run, so that fixtures that several tests share are made under it, too.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock, "default_clock", clock.NominalClock)
        yield
