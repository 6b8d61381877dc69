"""What all tests share: a seed that can be changed from outside."""

import os
import zlib

import pytest
import torch

SEED = int(os.environ.get("BASINSCOPE_TEST_SEED", "0"))


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """A seed of this test's own; `BASINSCOPE_TEST_SEED` changes the seeds of all tests at once."""
    return zlib.crc32(f"{SEED} {request.node.nodeid}".encode()) >> 1


@pytest.fixture(autouse=True)
def _own_random_numbers(seed: int) -> None:
    """Torch's global generator starts from the test's seed, whichever tests ran before in the same process."""
    torch.manual_seed(seed)
