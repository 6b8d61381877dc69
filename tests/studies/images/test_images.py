"""Patches, masks, architectures at one test loss, and a small study from end to end."""

import numpy as np
import pandas as pd
import pytest
import torch

from basinscope.runs.driver import run
from basinscope.runs.results import Results
from basinscope.runs.settings import resolved
from basinscope.runs.store import Store
from basinscope.zoo.data import DataSet
from studies.images.cases import NETWORKS, network, patches
from studies.images.report import answer, equal_loss
from studies.images.study import STUDY


def test_patches_are_those_of_unfold():
    images = torch.randn(3, 2, 12, 12, generator=torch.Generator().manual_seed(0))
    expected = torch.nn.functional.unfold(images, 4, stride=4).transpose(1, 2)
    assert torch.equal(patches(images, 4), expected)


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32)])
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_score_the_classes(name, shape):
    images = torch.randn(4, *shape, generator=torch.Generator().manual_seed(0))
    data = DataSet("some", (images, torch.zeros(4)), (images, torch.zeros(4)), 10)
    assert network(name, data, 0)(images.to(next(network(name, data, 0).parameters()).device)).shape == (4, 10)


def test_patches_see_later_ones():
    images = torch.zeros(2, 1, 8, 8)
    images[1, 0, -1, -1] = 5.0
    data = DataSet("some", (images, torch.zeros(2)), (images, torch.zeros(2)), 10)
    net = network("vit", data, 0).cpu()
    seen = []
    net.blocks[0].register_forward_hook(lambda module, given, output: seen.append(output))
    net(images)
    assert not torch.equal(seen[0][0, 0], seen[0][1, 0])  # the first patch, which is black in both


def checkpoints():
    """λ̂ is 10 and 20 times −log of the test loss."""
    rows = []
    for scale, name, losses in ((10, "mlp", (2.0, 0.5, 0.1)), (20, "cnn", (2.0, 0.4, 0.2))):
        for step, loss in zip((1, 10, 100), losses, strict=True):
            row = {"network": name, "data": "digits", "seed": 0, "step": step, "parameters": 5, "test_loss": loss,
                   "test_accuracy": 0.5, "llc_verdict": "ok"}  # fmt: skip
            for column in ("llc", "llc_basin", "llc_drop"):
                row |= {column: -scale * np.log(loss), f"{column}_stderr": 0.1}
            rows.append(row)
    return pd.DataFrame(rows)


def test_architectures_are_compared_at_the_loss_that_all_reach():
    table = checkpoints()
    made = equal_loss(table).set_index("network")
    assert made["test_loss"].tolist() == [0.2, 0.2]
    assert made.loc["mlp", "llc"] == pytest.approx(-10 * np.log(0.2))
    assert made.loc["cnn", "llc"] == pytest.approx(-20 * np.log(0.2))
    assert made.loc["cnn", "step"] == 100
    said = answer({"checkpoints": table, "equal_loss": equal_loss(table)})
    assert said.startswith("100% of 6 λ̂ through training pass all their checks, at least")


@pytest.mark.slow
def test_a_small_study_from_end_to_end(tmp_path):
    pytest.importorskip("sklearn")
    assert run(STUDY, tmp_path / "store", scale="smoke", progress=False).complete
    results = Results(STUDY, resolved(STUDY, "smoke", {}), Store(tmp_path / "store"))
    written = results.write(tmp_path / "out")
    assert [path.name for path in written[-2:]] == ["trainings.png", "README.md"]
