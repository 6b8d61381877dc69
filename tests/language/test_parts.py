import math

import pytest
import torch
from torch import nn

import basinscope as bs
from basinscope.restriction import whole
from basinscope.sampling.chains import ChainLosses
from language.families import FAMILIES, LAYERS, LENGTH, OUTPUTS, VOCABULARY, Lens, made, tokens

GROUPED = ("Llama", "Qwen2", "Qwen3")


def landscape(family):
    net = made(family).double()
    return net, bs.Landscape.from_pretrained(net, tokens())


@pytest.mark.parametrize("family", FAMILIES)
def test_parts_cover_the_network_once(family):
    net, land = landscape(family)
    kinds = ("embedding", "positions", "layer", "unembedding")
    rough = [part for part in land.parts() if part.kind in kinds or part.name == "final norm"]
    assert sum(part.parameters for part in rough) == land.dimension
    names = [piece.parameter for part in rough for piece in part.pieces]
    assert sorted(names) == sorted(name for name, _ in net.named_parameters())
    for layer in range(LAYERS):
        inside = [part for part in land.parts() if part.layer == layer and part.kind in ("attention", "mlp", "norm")]
        assert sum(part.parameters for part in inside) == land.restrict(f"layer {layer}").dimension
    assert len(land.parts("head")) == 4 * LAYERS
    assert len(land.parts("group")) == (2 * LAYERS if family in GROUPED else 0)
    tied = net.config.tie_word_embeddings
    assert [part.name for part in land.parts("unembedding")] == ([] if tied else ["unembedding"])


def head_outputs(net, family, ids, layer):
    """What the heads of one layer give, side by side: (n, T, heads, size)."""
    module = dict(net.named_modules())
    place = [name for name in module if name.endswith(f".{OUTPUTS[family]}") and "mlp" not in name][layer]
    seen = []
    handle = module[place].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    with torch.no_grad():
        net(input_ids=ids)
    handle.remove()
    return seen[0].unflatten(-1, (4, -1)), place


@pytest.mark.parametrize(
    ("family", "kind"), [(family, "head") for family in FAMILIES] + [(family, "group") for family in GROUPED]
)
def test_moving_a_head_moves_what_that_head_computes_and_nothing_else(family, kind):
    net, land = landscape(family)
    part = land.restrict(f"layer 1 {kind} 1")
    moved = {name: tensor + 0.5 * torch.randn_like(tensor) for name, tensor in part.parameters.items()}
    before, place = head_outputs(net, family, tokens(), 1)
    state = whole({**part._frozen, **moved}, part._slices)
    old = net.state_dict()
    written = dict(net.named_parameters())[f"{place}.weight"].detach().clone()
    net.load_state_dict({**old, **{name: state[name] for name in state if name in old}}, strict=False)
    net.tie_weights()
    after, _ = head_outputs(net, family, tokens(), 1)
    changed = [bool((before[:, :, head] != after[:, :, head]).any()) for head in range(4)]
    mine = [1] if kind == "head" else [2, 3]
    assert changed == [head in mine for head in range(4)]
    # and of the output weights, those that take what these heads compute
    difference = (dict(net.named_parameters())[f"{place}.weight"].detach() - written) != 0
    by_head = difference if family == "GPT-2" else difference.T
    assert by_head.unflatten(0, (4, -1)).all((1, 2)).tolist() == [head in mine for head in range(4)]
    assert by_head.unflatten(0, (4, -1)).any(1).any(1).tolist() == [head in mine for head in range(4)]
    # the landscape's own losses are those of the network with these weights
    with torch.no_grad():
        logits = net(input_ids=tokens()).logits[:, :-1]
    theirs = nn.functional.cross_entropy(logits.transpose(1, 2), tokens()[:, 1:], reduction="none").sum(1)
    torch.testing.assert_close(part.per_sample(moved), theirs, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("family", ["GPT-2", "Llama"])
def test_curvature_of_a_head_is_a_block_of_the_networks(family):
    part = bs.Landscape.from_pretrained(made(family), tokens()).restrict("l0h2")
    point = part.flatten(part.parameters)

    def loss(vector):
        return part.losses(part.unflatten(vector), part.take(torch.arange(part.n))).mean()

    exact = torch.func.jacrev(torch.func.grad(loss))(point)
    for matrix in ("covariance", "fisher"):
        assert bs.trace(part, matrix=matrix).verdict == "ok"
    assert bs.trace(part).value == pytest.approx(float(exact.trace()), rel=1e-4, abs=1e-4)


def test_a_slice_can_be_restricted_further_and_seen_from_elsewhere():
    _, land = landscape("Llama")
    group = land.restrict("layer 0 group 1")
    names = [part.name for part in group.parts()]
    assert "layer 0 head 3" in names
    assert "layer 0 head 1" not in names
    head = group.restrict("layer 0 head 3")
    assert sorted(head.parameters) == sorted(land.restrict("layer 0 head 3").parameters)
    both = land.restrict("layer 0 head 2", "layer 0 head 3")
    assert both.dimension == 2 * head.dimension
    assert land.restrict("layer * head *").dimension == sum(part.parameters for part in land.parts("head"))
    elsewhere = head.at({name: tensor + 1 for name, tensor in head.parameters.items()})
    assert not torch.equal(elsewhere.per_sample(), head.per_sample())
    on = head.on(land.samples)
    assert torch.equal(on.per_sample(), head.per_sample())
    plain = {"sampler": "sgld", "chains": 2, "draws": 20, "step_size": 1e-5, "gamma": 100.0, "progress": False}
    assert math.isfinite(bs.llc(head, **plain).value)


def test_transformer_lens_and_plain_modules():
    torch.manual_seed(0)
    ids = tokens()
    land = bs.Landscape(Lens(), "cross_entropy", (ids[:, :-1], ids[:, 1:]))
    assert [part.name for part in land.parts() if part.kind in ("embedding", "positions", "unembedding")] == [
        "embedding", "positions", "unembedding",
    ]  # fmt: skip
    assert land.restrict("layer 1 head 0").dimension == 4 * 8 * 4 + 3 * 4
    assert sum(part.parameters for part in land.parts("layer")) == land.restrict("blocks.*").dimension

    own = bs.zoo.models.transformer(VOCABULARY, LENGTH, layers=LAYERS, width=8, heads=2)
    land = bs.Landscape(own, "cross_entropy", (ids[:, :-1], ids[:, 1:]))
    assert [part.kind for part in land.parts() if part.layer is None] == [
        "embedding", "positions", "norm", "unembedding",
    ]  # fmt: skip
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    x = torch.randn(5, 3, 8)
    land = bs.Landscape(nn.Sequential(nn.Linear(8, 8), layer), "mse", (x, x))
    assert land.restrict("layer 0 head 1").dimension == 8 * 12 + 12 + 8 * 4
    assert bs.Landscape(nn.Linear(8, 8), "mse", (x, x)).parts() == ()


def test_chains_of_a_head_run_side_by_side():
    net = bs.zoo.models.transformer(8, 6, layers=2, width=8, heads=2)
    ids = torch.randint(8, (5, 6), generator=torch.Generator().manual_seed(0))
    land = bs.Landscape(net, "cross_entropy", (ids, ids.roll(-1, 1)))
    head = land.restrict("layer 1 head 0")
    silent = {name: torch.zeros_like(tensor) for name, tensor in head.parameters.items()}
    with torch.no_grad():
        net.blocks[1].attention.output.weight[:, :4] = 0  # the columns that read head 0
    exact = bs.Landscape(net, "cross_entropy", (ids, ids.roll(-1, 1))).per_sample()
    torch.testing.assert_close(head.per_sample(silent), exact, rtol=1e-5, atol=1e-5)
    assert ChainLosses(head).batched


def test_names_that_are_no_part():
    land = bs.Landscape.from_pretrained(made("Llama"), tokens())
    with pytest.raises(bs.InputError, match=r"parts like \['layer 0 head 3'"):
        land.restrict("layer 0 head 4")
    with pytest.raises(bs.InputError, match="kind must be one of"):
        land.parts("heads")
    with pytest.raises(bs.InputError, match=r"land\.parts"):
        land.restrict("layer 0 head 1", "layer 9 mlp")


def test_adapters_move_alone():
    """As PEFT wraps layers: what is frozen stays so, and parts are those of the adapters."""
    net = made("GPT-2").requires_grad_(False)

    class Adapted(nn.Module):
        def __init__(self, layer):
            super().__init__()
            self.base_layer = layer
            self.lora_A = nn.ModuleDict({"default": nn.Linear(8, 2, bias=False)})
            self.lora_B = nn.ModuleDict({"default": nn.Linear(2, 24, bias=False)})

        def forward(self, x):
            return self.base_layer(x) + self.lora_B["default"](self.lora_A["default"](x))

    for block in net.transformer.h:
        block.attn.c_attn = Adapted(block.attn.c_attn)
    land = bs.Landscape.from_pretrained(net, tokens())
    assert land.dimension == LAYERS * (8 * 2 + 2 * 24)
    assert [part.name for part in land.parts()] == ["layer 0", "layer 0 attention", "layer 1", "layer 1 attention"]
    assert bs.trace(land.restrict("layer 0 attention"), matrix="fisher").verdict == "ok"
