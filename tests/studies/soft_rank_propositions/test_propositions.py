"""What the study of the soft rank's propositions is made of, each beside a brute force; its page from a small run."""

import numpy as np
import pytest
import torch

import basinscope as bs
from basinscope.runs.driver import run
from basinscope.runs.results import Results
from basinscope.runs.settings import resolved
from basinscope.runs.store import Store
from studies.soft_rank_propositions import bounds, limits, penalised
from studies.soft_rank_propositions.report import bound_answer
from studies.soft_rank_propositions.study import STUDY
from studies.soft_rank_propositions.tables import bounds as bounds_table


@pytest.mark.parametrize("model", [limits.FIXED, "ridge", "logistic"])
def test_limits_satisfy_what_is_said_of_them(model):
    truth = limits.made(model, 1.0, 0.1)
    found = limits.limits(truth)
    star = found["star"]
    assert found["uncalibrated"] == pytest.approx(-0.1 * star @ star)
    if model == limits.FIXED:
        assert found["gap"] == pytest.approx(found["soft_rank"])
    free = limits.limits(limits.made(model, 1.0, 1e-9))
    assert free["gap"] == pytest.approx(limits.INPUTS)
    assert free["distance"] == pytest.approx(free["distance_bound"])


@pytest.mark.parametrize("model", [limits.FIXED, "ridge", "logistic"])
def test_errors_of_one_data_set_are_those_of_its_samples(model):
    truth = limits.made(model, 1.0, 0.1)
    star = limits.limits(truth)["star"]
    rng = np.random.default_rng(0)
    counts, sums = limits.drawn(truth, 512, 1, rng)
    theta = limits.fitted(truth, counts / 512, sums / 512)
    found = limits.errors(truth, star, theta, counts / 512, sums / 512)

    def losses(at, y):  # of every input with this y, up to what depends on y alone
        return truth.normalizer(at) - y * (truth.x @ at) + 0.05 * at @ at

    known = truth.mean(truth.theta)
    seen = [
        np.divide(counts[0] * truth.normalizer(at) - sums[0] * (truth.x @ at), 512).sum() + 0.05 * at @ at
        for at in (theta[0], star)
    ]
    new = [losses(at, known).mean() for at in (theta[0], star)]
    assert found["gap"][0] == pytest.approx((new[0] - new[1]) - (seen[0] - seen[1]))
    assert found["distance"][0] == pytest.approx(np.square(theta[0] - star).sum())
    if model == "logistic":
        squares = [np.square(losses(theta[0], y) - losses(star, y)) for y in (0.0, 1.0)]
        assert found["prediction"][0] == pytest.approx(((1 - known) * squares[0] + known * squares[1]).mean())
    else:
        y = known + rng.normal(size=(4000, limits.POINTS))
        drawn = np.square(losses(theta[0], y) - losses(star, y)).mean(1)
        assert abs(found["prediction"][0] - drawn.mean()) < 6.5 * drawn.std() / 4000**0.5
    slope = (counts[0] / 512 * truth.mean(theta[0]) - sums[0] / 512) @ truth.x + 0.1 * theta[0]
    assert np.abs(slope).max() < 1e-8


def test_stand_ins_are_those_of_the_library():
    (x, y), _ = bounds.images("digits", 30, 1, seed=0)
    net = bounds.trained("mlp", x, y, 0.01, 20, seed=0).double()
    land = bs.Landscape(net, "cross_entropy", (x.double(), y))
    fisher = bounds.dense(land, "fisher") / 0.01
    whole = bounds.totals([fisher])["soft rank"]
    parts = [fisher[part, part] for part in bounds.pinchings(land)["blocks of layers"]]
    assert whole == pytest.approx(bs.soft_rank(land, weight_decay=0.01, progress=False).value, rel=1e-6)
    blocks = bs.soft_rank(land, weight_decay=0.01, method="block", progress=False)
    assert bounds.totals(parts)["soft rank"] == pytest.approx(blocks.value, rel=1e-6)
    for metric, root in bounds.metrics(land, 0.01, seed=0):
        outside = torch.ones_like(root, dtype=torch.bool)
        for part in bounds.by_tensor(land):
            outside[part, part] = False
        assert not root[outside].any(), metric
        assert torch.linalg.eigvalsh(root)[0] > 0


def test_sam_takes_the_gradient_uphill_and_leaves_the_weights():
    torch.manual_seed(0)
    net, x, y = torch.nn.Linear(3, 2), torch.randn(5, 3), torch.arange(5) % 2
    before = [weight.detach().clone() for weight in net.parameters()]
    loss = torch.nn.functional.cross_entropy(net(x), y)
    slopes = torch.autograd.grad(loss, list(net.parameters()))
    size = torch.cat([slope.flatten() for slope in slopes]).norm()
    uphill = [weight + 0.3 * slope / size for weight, slope in zip(before, slopes, strict=True)]
    for each in uphill:
        each.requires_grad_()
    there = torch.nn.functional.cross_entropy(torch.nn.functional.linear(x, *uphill), y)
    expected = torch.autograd.grad(there, uphill)
    loss = torch.nn.functional.cross_entropy(net(x), y)
    loss.backward()
    penalised._climb(net, 0.3, x, y)
    for weight, old, slope in zip(net.parameters(), before, expected, strict=True):
        assert torch.equal(weight, old)
        assert torch.allclose(weight.grad, slope, atol=1e-6)


def test_a_small_study_from_end_to_end(tmp_path):
    settings = {
        "samples": [256, 512], "scales": [0.3, 1.0], "sets": 200, "network_samples": 20, "network_steps": 5,
        "batches": [10], "trained_samples": 64, "held": 20, "test": 20, "gradients": 600,
    }  # fmt: skip
    assert run(STUDY, tmp_path / "store", settings=settings, progress=False).complete
    results = Results(STUDY, resolved(STUDY, "smoke", settings), Store(tmp_path / "store"))
    written = results.write(tmp_path / "out")
    assert {"limits.csv", "bounds.csv", "penalty.csv", "propositions.png", "README.md"} <= {p.name for p in written}
    made = bounds_table(results.table)
    assert not made.loc[made["concave"], "below"].any()
    assert "all 12 inequalities" in bound_answer(made)
    made.loc[0, "below"] = 1
    assert "Of 12 inequalities for soft rank and log-determinant 1 fail" in bound_answer(made)
