import pytest
import torch
from torch import nn

import basinscope as bs
from basins import classifier
from basinscope.report.checkpoints import Subject


@pytest.fixture(scope="session")
def report():
    """A report of a network so small that measuring it takes a moment."""
    return bs.measure(classifier(n=60, hidden=2), budget=0.5, title="Tiny classifier", progress=False)


@pytest.fixture
def subject():
    """A network with data, without weights."""
    x = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    return Subject(nn.Linear(2, 1), (x, x.sum(1, keepdim=True)), "mse")
