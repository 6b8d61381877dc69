"""λ̂ of each layer beside the whole: exact in a deep linear network, whose loss is quadratic in every layer alone."""

import pytest
import torch
from torch import nn

import basinscope as bs
import lacking
from basins import classifier, white
from basinscope.curvature.dense import dense
from chance import SAMPLED, assert_within

FAST = {"budget": bs.Nominal(4), "progress": False}


def deep_linear():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 2, bias=False), nn.Linear(2, 3, bias=False), nn.Linear(3, 4, bias=False)).double()
    x = white(80, 4)
    return bs.Landscape(net, "mse", (x, net(x).detach()))


class Odd(nn.Module):
    """Two layers in a row, of which one has a name that is a pattern for the other's."""

    def __init__(self):
        super().__init__()
        self.named = nn.ModuleDict({"a[0]": nn.Linear(2, 2), "a0": nn.Linear(2, 1)})

    def forward(self, x):
        return self.named["a0"](self.named["a[0]"](x))


def test_each_layer_is_half_the_soft_rank_of_its_block(seed):
    land = deep_linear()
    found = bs.llc(land, per_layer=True, seed=seed, nbeta=400.0, gamma=2.0, **FAST)
    assert list(found.layers) == ["0", "1", "2"]
    for name, layer in found.layers.items():
        values = torch.linalg.eigvalsh(dense(land.restrict(f"{name}.*"), "hessian")).clamp(min=0)
        exact = 0.5 * float((values / (values + 2.0 / 400.0)).sum())
        assert_within(layer.value, exact, layer.stderr, SAMPLED, bias=1e-6)
        assert layer.stderr < 0.05 * exact
        assert (layer.diagnostics["nbeta"], layer.diagnostics["gamma"]) == (400.0, 2.0)


def test_the_whole_is_as_it_was_and_layers_share_its_resolution(seed):
    land = classifier()
    found = bs.llc(land, per_layer=True, seed=seed, **FAST)
    alone = bs.llc(land, seed=seed, **{**FAST, "budget": FAST["budget"] / 2})
    assert (found.value, found.stderr) == (alone.value, alone.stderr)
    for name, layer in found.layers.items():
        assert layer.diagnostics["gamma"] == found.diagnostics["gamma"]
        assert layer.diagnostics["dimension"] == land.restrict(f"{name}.*").dimension


def test_layers_are_kept_tabled_and_drawn(tmp_path):
    lacking.package("pandas")
    lacking.package("matplotlib")
    found = bs.llc(classifier(), per_layer=True, draws=16, **FAST)
    table = found.to_dataframe()
    assert table["part"].tolist() == ["all", "0", "2"]
    assert table["parameters"].tolist() == [found.diagnostics["dimension"], 16, 15]
    assert table["llc"].tolist() == [found.value, *(layer.value for layer in found.layers.values())]
    again = type(found).load(found.save(tmp_path / "llc.json"))
    assert again.to_dataframe().equals(table)
    assert "λ̂ of each layer, the others held at w*" in [axes.get_xlabel() for axes in found.plot().axes]
    assert again.plot() is not None
    assert found.layers.plot() is not None


def test_a_transformer_has_its_layers_and_odd_names_are_no_patterns():
    net = bs.zoo.models.transformer(8, 6, layers=2, width=4, heads=2, feedforward=False)
    ids = torch.randint(8, (20, 5))
    land = bs.Landscape(net, "cross_entropy", (ids[:, :-1], ids[:, 1:]))
    found = bs.llc(land, per_layer=True, gamma=50.0, draws=16, budget=bs.Nominal(0.5), progress=False)
    assert list(found.layers) == ["layer 0", "layer 1"]
    land = bs.Landscape(Odd(), "mse", (torch.ones(9, 2), torch.ones(9, 1)))
    found = bs.llc(land, per_layer=True, draws=16, **FAST)
    assert [layer.diagnostics["dimension"] for layer in found.layers.values()] == [6, 3]


def test_what_has_no_layers_says_so():
    land = classifier()
    with pytest.raises(bs.InputError, match=r"call bs\.llc\(land, per_layer=True\)"):
        _ = bs.llc(land, draws=16, **FAST).layers
    with pytest.raises(bs.InputError, match="got Posterior — pass the landscape itself"):
        bs.llc(bs.posterior(land, draws=16, **FAST), per_layer=True)
    with pytest.raises(bs.InputError, match=r"give bs\.Nominal"):
        bs.llc(land, per_layer=True, budget=bs.Schedule(1.0, ()))
