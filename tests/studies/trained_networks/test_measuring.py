"""Spectra and data of the study beside dense computations, and the page that follows from them."""

import numpy as np
import pandas as pd
import pytest
import torch

from basinscope.runs.driver import run
from basinscope.runs.results import Results
from basinscope.runs.settings import resolved
from basinscope.runs.store import Store
from studies.trained_networks.cases import digits, half_square, network, noisy, one_hot, trained
from studies.trained_networks.measuring import fisher, half
from studies.trained_networks.report import answer, census, descent
from studies.trained_networks.study import STUDY


@pytest.mark.parametrize("samples", [5, 70])  # JJᵀ and JᵀJ are the smaller one
def test_fisher_spectra_are_those_of_the_jacobian(samples):
    net = network([3], 0)
    x = digits()[0][:samples]
    rows = []
    for one in x:
        for output in net(one):
            rows.append(
                torch.cat([each.flatten() for each in torch.autograd.grad(output, net.parameters(), retain_graph=True)])
            )
    expected = torch.linalg.svdvals(torch.stack(rows)).numpy() ** 2 / samples
    assert np.sort(fisher(net, x))[::-1][: len(expected)] == pytest.approx(expected, abs=1e-10 * expected.max())
    assert half(np.array([1.0, 0.0, 3.0]), 2.0, 0.5) == pytest.approx(0.5 * (2 / 2.5 + 6 / 6.5))


def test_noisy_labels_are_the_stated_share():
    x, y = noisy(1000, 0.2, 0)
    images, labels, _, _ = digits()
    own = {tuple(image.tolist()): int(label) for image, label in zip(images, labels, strict=True)}
    wrong = sum(own[tuple(image.tolist())] != int(target.argmax()) for image, target in zip(x, y, strict=True))
    assert y.sum(1).eq(1).all()
    assert 130 < wrong < 230  # 20 % are drawn anew, a tenth of which hit their own label


def test_training_ends_at_least_squares():
    x, y = noisy(30, 0.0, 1)
    net = torch.nn.Sequential(torch.nn.Linear(64, 10, dtype=torch.float64))
    design = torch.cat([x, torch.ones(30, 1, dtype=torch.float64)], 1)
    best = half_square(design @ torch.linalg.lstsq(design, y, driver="gelsd").solution, y).mean()
    loss = half_square(trained(net, lambda out: half_square(out, y).mean(), x, 2000, 0.02)(x), y).mean()
    assert loss.item() == pytest.approx(float(best), abs=1e-3)
    assert one_hot(torch.tensor([3]))[0].tolist() == [0.0] * 3 + [1.0] + [0.0] * 6


def _stored():
    rows = []
    for width, loss, llc in ((2, 0.5, 3.0), (10, 1.5, 6.0), (80, 0.4, 9.0)):
        shared = {"part": "descent", "width": width, "parameters": 75 * width + 10, "train_loss": 0.1}
        shared |= {"test_loss": loss, "test_error": 0.5, "half_soft_rank": 10.0, "verdict": "ok"}
        shared |= {"basin": llc + 1, "at_minimum": "yes" if width > 2 else "no"}
        rows += [{**shared, "llc": llc + seed} for seed in (0, 1)]
    rows += [{"part": "census", "architecture": [4], "seed": 0, "parameters": 310, "accuracy": 0.9, "idle": 13,
              "rescaling": 4, "proved": 17, "null": 18, "llc": 140.0, "llc_stderr": 1.0, "verdict": "ok",
              "half_soft_rank": 139.0}]  # fmt: skip
    return pd.DataFrame(rows)


def test_the_answer_follows_the_numbers():
    made = {"descent": descent(_stored()), "census": census(_stored())}
    text = answer(made, 100)
    assert "it has a peak of 1.50 at 760 weights, with 1,000 outputs to fit, and falls to 0.40 at 6,010. λ̂" in text
    assert "λ̂ is 3.5 in the narrowest network, 6.5 where that loss is largest, 9.5 in the widest, and nowhere" in text
    assert "1 of 1 trained classifiers have null directions (18 to 18, of which 17 to 17 are proved)" in text
    assert text.endswith("λ̂ keeps to its bound (d − k)/2, within two standard errors, in 1 of 1, 1 of which pass their "
                         "checks.")  # fmt: skip
    assert made["census"]["bound"].tolist() == [146.5]
    assert made["descent"]["basin"].tolist() == [4.0, 7.0, 10.0]
    assert made["descent"]["at_minimum"].tolist() == [0, 2, 2]


@pytest.mark.slow
def test_a_small_study_from_end_to_end(tmp_path):
    assert run(STUDY, tmp_path / "store", scale="smoke", progress=False).complete
    results = Results(STUDY, resolved(STUDY, "smoke", {}), Store(tmp_path / "store"))
    written = results.write(tmp_path / "out")
    assert [path.name for path in written[-4:]] == ["descent.csv", "census.csv", "trained.png", "README.md"]
    assert written[-1].read_text().splitlines()[2].startswith("Over width the loss on new digits ")
