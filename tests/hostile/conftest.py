"""A report to damage, and the benchmark's modules, which the tests of faults share."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import basinscope as bs

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))


@pytest.fixture(scope="session")
def report():
    """A report of a network so small that measuring it takes a moment."""
    x = torch.linspace(-1, 1, 40)[:, None]
    land = bs.Landscape(nn.Linear(1, 1), "mse", (x, 2 * x))
    return bs.measure(land, budget=0.2, title="A line", progress=False)
