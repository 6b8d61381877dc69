"""λ̂ of all heads: gradients and chains of parts side by side are those of each part alone."""

import math

import pytest
import torch

import basinscope as bs
import lacking
from basinscope.sampling.lean.together import Together


def landscape(layers=2, n=60):
    torch.manual_seed(0)
    net = bs.zoo.models.transformer(8, 6, layers=layers, width=8, heads=2)
    ids = torch.randint(8, (n, 6), generator=torch.Generator().manual_seed(0))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(30):
        loss = torch.nn.functional.cross_entropy(net(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return bs.Landscape(net.double(), "cross_entropy", (ids[:, :-1], ids[:, 1:]))


@pytest.mark.parametrize("kind", ["head", "mlp"])
def test_losses_gradients_and_curvature_are_those_of_each_part_alone(kind):
    land = landscape()
    parts = [each for each in land.parts(kind) if each.layer == 1]
    walk = Together(land, parts, 3.0, 20, land.per_sample(), 0)
    away = [slot.star + 0.1 * torch.randn_like(slot.star) for slot in walk.slots]
    indices = torch.arange(20)
    sums, slopes = walk.gradients(away, indices)
    largest = walk.stiffest(torch.ones(len(parts), len(walk.slots)).numpy(), torch.arange(land.n))
    for place, each in enumerate(parts):
        alone = land.restrict(each.name)
        moved = {name: rows[place].clone() for name, rows in zip(alone.parameters, away, strict=True)}
        point = {name: tensor.requires_grad_() for name, tensor in moved.items()}
        losses = alone.losses(point, alone.take(indices))
        assert float(sums[place]) == pytest.approx(float(losses.detach().sum()))
        theirs = torch.autograd.grad(losses.mean() * 3.0, list(point.values()))
        for ours, slope in zip(slopes, theirs, strict=True):
            torch.testing.assert_close(ours[place], slope)

        def loss(vector, alone=alone):
            return alone.losses(alone.unflatten(vector), alone.take(torch.arange(land.n))).mean()

        hessian = torch.func.jacrev(torch.func.grad(loss))(alone.flatten(alone.parameters))
        exact = 3.0 * float(torch.linalg.eigvalsh(hessian).abs().max())
        assert 0.5 * exact < largest[place] / 1.2 < 1.05 * exact


@pytest.mark.slow
def test_side_by_side_and_alone_agree():
    land = landscape(layers=1)
    settings = {"nbeta": 20.0, "gamma": 20.0, "progress": False}
    together = bs.llc_by_part(land, sampler="lean", budget=bs.Nominal(60), draws=300, chains=6, **settings)
    alone = bs.llc_by_part(land, sampler="hmc", budget=10, **settings)
    for name in together:
        ours, theirs = together[name], alone[name]
        assert ours.diagnostics["gamma"] == 20.0
        assert abs(ours.value - theirs.value) < 6 * math.hypot(ours.stderr, theirs.stderr)
        assert abs(ours.basin.value / theirs.basin.value - 1) < 0.25


def test_a_table_a_mapping_and_one_gamma():
    land = landscape()
    found = bs.llc_by_part(land, sampler="lean", budget=bs.Nominal(1), draws=16, chains=4, progress=False)
    assert list(found) == [each.name for each in land.parts("head")]
    assert len({estimate.diagnostics["gamma"] for estimate in found.values()}) == 1
    assert found["layer 1 head 0"].diagnostics["dimension"] == land.restrict("layer 1 head 0").dimension
    again = bs.llc_by_part(land, sampler="lean", budget=bs.Nominal(1), draws=16, chains=4, progress=False)
    assert [each.value for each in again.estimates] == [each.value for each in found.estimates]
    with pytest.raises(KeyError):
        found["layer 9 head 0"]
    with pytest.raises(bs.InputError, match="has no part of kind 'group': it has attention"):
        bs.llc_by_part(land, "group", progress=False)


def test_in_place_and_figures():
    lacking.package("matplotlib")
    lacking.package("pandas")
    net = bs.zoo.models.transformer(8, 6, layers=1, width=8, heads=2)
    land = bs.LanguageModel(net, torch.randint(8, (40, 6)))
    settings = {"gamma": 50.0, "budget": bs.Nominal(2), "draws": 16, "chains": 4, "batch_size": 8, "progress": False}
    for kind in ("head", "mlp"):
        found = bs.llc_by_part(land, kind, **settings)
        table = found.to_dataframe()
        assert list(table["part"]) == list(found)
        assert {"llc", "llc_stderr", "parameters"} <= set(table)
        assert found.plot() is not None
