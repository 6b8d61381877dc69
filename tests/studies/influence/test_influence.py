"""What the study of influence is made of, each beside a brute force; its page from what little there is."""

import numpy as np
import pandas as pd
import pytest
import torch

import basinscope as bs
from basinscope.exact.finite import Observable, covariance
from studies.influence import cases, chains, measuring
from studies.influence.report import answers, page, scores, standing_out, tables
from studies.influence.study import STUDY


def test_networks_that_are_trained_together_are_those_trained_alone():
    x, y = torch.randn(20, 6, generator=torch.Generator().manual_seed(0)), torch.arange(20) % 10
    chosen = torch.stack([torch.ones(20), (torch.arange(20) < 10).float()])
    both = cases.trained((x, y), chosen, 1e-2, 30, seed=0)
    alone = cases.trained((x, y), chosen[1:], 1e-2, 30, seed=0)
    for name, tensor in alone.items():
        assert torch.allclose(tensor[0], both[name][1], atol=1e-5)
    net = cases.network({name: tensor[1] for name, tensor in both.items()})
    rows = torch.nn.functional.cross_entropy(net(x), y, reduction="none")
    assert torch.allclose(rows, cases.row_losses(both, x, y)[1], atol=1e-5)


def test_wrong_labels_are_wrong_and_as_many_as_said():
    labels = torch.arange(200) % 10
    given, wrong = cases.flipped(labels, 0.1, seed=0)
    assert int(wrong.sum()) == 20
    assert torch.equal(given != labels, wrong)


def test_segments_repeat_and_attention_is_read_where_they_do():
    rows = cases.repeating(torch.arange(12)[None], torch.tensor([5]), 12)
    assert rows[0].tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1]
    torch.manual_seed(0)
    net = cases.AttentionOnly(12, 12, 8, 2)
    found = cases.attention_to_what_followed(net, rows, 5)
    assert found.shape == (2, 2)
    stream = net.tokens(rows) + net.positions
    query, key, _ = net.blocks[0].project(stream)[0].view(12, 3, 2, 4).unbind(1)
    scores_ = torch.einsum("qhs,khs->hqk", query, key) / 2
    weights = torch.tril(scores_.exp())
    weights = weights / weights.sum(-1, keepdim=True)
    assert torch.allclose(found[0], torch.stack([weights[:, t, t - 4] for t in range(5, 11)]).mean(0), atol=1e-6)


def test_exact_influences_are_those_of_the_library():
    x = torch.randn(12, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    residual = torch.linspace(-1, 1, 12, dtype=torch.float64)
    found = measuring._exact(x, residual, 9, 9.0, 1.0)
    hessian = (x[:9].T @ x[:9] / 9).tolist()
    of = [
        Observable((-float(r) * row).tolist(), torch.outer(row, row).tolist())
        for r, row in zip(residual, x, strict=True)
    ]
    expected = [[covariance(of[i], of[j], hessian, 9.0, 1.0) for j in range(9, 12)] for i in range(9)]
    assert found == pytest.approx(np.array(expected))


def test_chances_of_being_above():
    rng = np.random.default_rng(0)
    one, other = rng.normal(size=30), rng.normal(size=40)
    assert measuring._above(one, other) == pytest.approx((one[:, None] > other).mean())


def test_every_defect_has_chains_of_one_length():
    for kind, made in chains.DEFECTS.items():
        if kind != "diffusion instead of equilibrium":  # 64 chains, which take a while
            losses, facts = made(0)
            assert np.isfinite(losses).all()
            assert set(facts) <= {"burn_in", "gamma", "step_size", "weight_scale", "hessian_trace"}
    assert bs.audit(chains.sgld(3), **chains.KNOWN, **chains.SOUND).verdict == "ok"


def test_the_page_says_what_there_is():
    settings = STUDY.Settings().model_dump() if hasattr(STUDY.Settings, "model_dump") else vars(STUDY.Settings())
    origin = {"study": "influence", "settings": settings, "jobs": 9, "results": 2, "seconds": 60.0}
    table = pd.DataFrame([
        {"part": "retraining", "data": "digits", "method": name, "dampened": damping, "seed": 0, "score": score,
         "stderr": 0.01, "accuracy": 0.9, "parameters": 100}
        for name, damping, score in (("draws", 10, 0.8), ("controlled", 10, 0.7), ("EK-FAC", 1, 0.6),
                                     ("EK-FAC", 10, 0.5), ("gradients", float("nan"), 0.4))
    ])  # fmt: skip
    made = tables(table)
    assert scores(made)["score"].tolist() == [0.8, 0.7, 0.6, 0.4]
    text = page(made, origin)
    assert "rank correlation of 0.80, EK-FAC with 0.60, products of gradients with 0.40" in text
    assert "## Heads" not in text
    assert answers(tables(pd.DataFrame({"part": []}))) == ["Nothing has been measured yet"]


def test_heads_stand_out_where_their_errors_let_them():
    def rows(first, stderr):
        return pd.DataFrame({"probe": "repeating", "attends": [0.5, 0.0], "value": [first, 0.0], "stderr": stderr})

    assert standing_out(rows(-1.0, 0.1)).endswith("they stand out.")
    assert standing_out(rows(-0.1, 0.1)).endswith("they do not stand out.")
    assert standing_out(rows(0.0, 0.1).iloc[1:]) == "No head is an induction head."
