"""On a GPU: every optimizer trains as on the CPU, and a branch that carries everything over is the run itself."""

import pytest
import torch

import lacking
from basinscope.training import train
from training_cases import OPTIMIZERS, data, network

pytestmark = lacking.GPU.mark


# Entropy-SGD is left out: its noise is another on a GPU.
@pytest.mark.parametrize("name", [name for name in OPTIMIZERS if not name.startswith("entropy")])
def test_as_on_the_cpu(name):
    runs = [
        train(network(torch.float64, dropout=0.0).to(device), data(), OPTIMIZERS[name], steps=12, batch_size=8,
              progress=False)
        for device in ("cpu", "cuda")
    ]  # fmt: skip
    for one, two in zip(runs[0].model.parameters(), runs[1].model.parameters(), strict=True):
        assert torch.allclose(one, two.cpu(), atol=1e-6)
    for column in ("train_loss", "batch_loss", "direction_norm", "update_norm"):
        assert runs[0].rows[-1][column] == pytest.approx(runs[1].rows[-1][column], rel=1e-5)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_resumed_in_the_same_bits(name, tmp_path):
    """Dropout draws from the GPU's generator, whose state must come back too."""
    options = {"batch_size": 8, "progress": False}
    alone = train(network().cuda(), data(), OPTIMIZERS[name], steps=23, **options)
    train(network().cuda(), data(), OPTIMIZERS[name], steps=11, folder=tmp_path, **options)
    resumed = train(network().cuda(), data(), OPTIMIZERS[name], steps=23, folder=tmp_path, **options)
    for one, two in zip(alone.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(one, two)
