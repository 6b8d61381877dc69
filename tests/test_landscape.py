import copy
import math
import re

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, jacrev
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import basinscope as bs
from basins import classifier
from basinscope.landscape import math_attention, watanabe_nbeta

f64 = torch.float64
x = torch.randn(10, 3, generator=torch.Generator().manual_seed(0))
z = torch.randn(10, 2, generator=torch.Generator().manual_seed(1))
y = torch.arange(10) % 3
UNEVEN = ((0, 4), (4, 5), (5, 10))


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.left, self.right = nn.Linear(3, 3), nn.Linear(2, 3)

    def forward(self, a, b):
        return self.left(a) + self.right(b)


def mean_gradient(land):
    """∇L_n at w* as a flat vector."""

    def mean(parameters):
        with math_attention():
            return torch.cat([land.losses(parameters, batch) for batch in land.batches()]).mean()

    return land.flatten(grad(mean)(land.parameters))


# ---------------------------------------------------------------------- data


TWO_INPUTS = {
    "pair and target": lambda: ((x, z), y),
    "triple": lambda: (x, z, y),
    "arrays": lambda: ((x.numpy(), z.numpy()), y.numpy()),
    "double arrays": lambda: (x.numpy().astype(np.float64), z.numpy().astype(np.float64), y.numpy()),
    "dict": lambda: {"a": x, "b": z, "labels": y},
    "dict and target": lambda: ({"b": z, "a": x}, y),
    "Dataset": lambda: TensorDataset(x, z, y),
    "DataLoader": lambda: DataLoader(TensorDataset(x, z, y), batch_size=4),
    "uneven batches": lambda: [((x[i:j], z[i:j]), y[i:j]) for i, j in UNEVEN],
    "uneven dicts": lambda: [{"a": x[i:j], "b": z[i:j], "y": y[i:j]} for i, j in UNEVEN],
}


@pytest.mark.parametrize("form", TWO_INPUTS)
def test_every_form_of_the_data_gives_the_same_losses(form):
    model = TwoInputs()
    by_hand = -model(x, z).log_softmax(1)[torch.arange(10), y]
    land = bs.Landscape(model, "cross_entropy", TWO_INPUTS[form]())
    assert land.n == 10
    assert land.per_sample().tolist() == pytest.approx(by_hand.tolist(), rel=1e-6)


def test_uneven_pieces_weigh_every_sample_alike():
    land = classifier(n=11)
    whole = land.per_sample()
    for size in (1, 4, 10, 11, 100):
        assert torch.allclose(land.per_sample(batch_size=size), whole, rtol=1e-12)
        assert sum(batch.n for batch in land.batches(size)) == 11


def test_data_follow_the_type_of_the_parameters():
    for dtype in (torch.float32, f64):
        net = nn.Linear(3, 1).to(dtype)
        land = bs.Landscape(net, "mse", (x.double(), z[:, 0]))
        assert land.dtype == dtype
        assert land.samples.inputs.dtype == dtype
        assert land.per_sample().dtype == f64
        expected = (net(x.to(dtype)).squeeze(1) - z[:, 0].to(dtype)).square() / 2
        assert land.per_sample().tolist() == pytest.approx(expected.tolist(), rel=1e-6)
    # Indices stay indices.
    assert bs.Landscape(nn.Embedding(3, 4), "cross_entropy", (y, y)).samples.inputs.dtype == torch.int64


def test_double_precision_is_kept():
    net = nn.Linear(1, 1, bias=False).double()
    nn.init.constant_(net.weight, 1 + 1e-12)
    land = bs.Landscape(net, "mse", (torch.ones(2, 1, dtype=f64), torch.ones(2, 1, dtype=f64)))
    assert land.per_sample().tolist() == pytest.approx([0.5e-24] * 2, rel=1e-3)


def test_one_sample_and_one_class():
    land = bs.Landscape(nn.Linear(3, 2), "cross_entropy", (x[:1], y[:1]))
    assert land.n == 1
    assert land.per_sample().shape == (1,)
    land = bs.Landscape(nn.Linear(3, 1), "cross_entropy", (x, torch.zeros(10, dtype=torch.long)))
    assert land.per_sample().tolist() == [0.0] * 10
    assert not mean_gradient(land).any()


# ---------------------------------------------------------------------- losses


@pytest.mark.parametrize("loss", ["gaussian", "mse", "bernoulli", "cross_entropy"])
def test_named_losses_through_a_network(loss):
    net = nn.Linear(3, 3).double()
    output = net(x.double()).detach()
    target = y if loss == "cross_entropy" else torch.rand(10, 3, dtype=f64)
    expected = {
        "gaussian": lambda: ((output - target).square() / 2 / 0.09 + 0.5 * math.log(2 * math.pi * 0.09)).sum(1),
        "mse": lambda: (output - target).square().sum(1) / 2,
        "bernoulli": lambda: -(target * output.sigmoid().log() + (1 - target) * (-output).sigmoid().log()).sum(1),
        "cross_entropy": lambda: output.exp().sum(1).log() - output[torch.arange(10), y],
    }[loss]()
    land = bs.Landscape(net, loss, (x, target), sigma=0.3 if loss == "gaussian" else None)
    assert land.per_sample().tolist() == pytest.approx(expected.tolist(), rel=1e-6)


def test_a_callable_loss():
    net = nn.Linear(3, 2)
    land = bs.Landscape(net, lambda output, target: (output - target).abs().sum(1), (x, z))
    assert land.per_sample().tolist() == pytest.approx((net(x) - z).abs().sum(1).tolist(), rel=1e-6)


class Tokens(nn.Module):
    """Scores for every position; the head shares its weights with the embedding."""

    def __init__(self, classes_last=True, vocabulary=7):
        super().__init__()
        torch.manual_seed(3)
        self.embedding = nn.Embedding(vocabulary, 4)
        self.mix = nn.Linear(4, 4)
        self.head = nn.Linear(4, vocabulary, bias=False)
        self.head.weight = self.embedding.weight
        self.classes_last = classes_last

    def forward(self, tokens):
        scores = self.head(self.mix(self.embedding(tokens)).tanh())
        return scores if self.classes_last else scores.transpose(1, 2)


@pytest.mark.parametrize("classes_last", [True, False])
def test_a_sequence_is_one_sample(classes_last):
    tokens = torch.randint(7, (6, 5), generator=torch.Generator().manual_seed(0))
    model = Tokens(classes_last)
    target = tokens.roll(-1, 1)
    target[:, -1] = -100  # nothing follows the last token
    land = bs.Landscape(model, "cross_entropy", (tokens, target))
    log_p = Tokens()(tokens).log_softmax(-1).detach()
    by_hand = [-sum(float(log_p[i, t, tokens[i, t + 1]]) for t in range(4)) for i in range(6)]
    assert land.n == 6
    assert land.per_sample().tolist() == pytest.approx(by_hand, rel=1e-5)


def test_as_many_positions_as_classes():
    tokens = torch.randint(7, (6, 7))
    with pytest.raises(
        bs.InputError, match=r"cannot tell classes from positions.*\(6, 7, 7\).*\(6, 7\).*callable loss"
    ):
        bs.Landscape(Tokens(), "cross_entropy", (tokens, tokens))

    def named_axis(output, target):
        return functional.cross_entropy(output.transpose(1, 2), target, reduction="none")

    land = bs.Landscape(Tokens(), named_axis, (tokens, tokens))
    by_hand = -Tokens()(tokens).log_softmax(-1).gather(-1, tokens[..., None]).sum((1, 2))
    assert land.per_sample().tolist() == pytest.approx(by_hand.tolist(), rel=1e-5)


# ---------------------------------------------------------------------- parameters


def test_tied_weights_count_once_and_their_gradient_has_both_parts():
    shared = nn.Linear(3, 3, bias=False).double()
    model = nn.Sequential(shared, nn.Tanh(), shared)
    land = bs.Landscape(model, "mse", (x, x))
    assert land.dimension == 9
    w = shared.weight.detach()
    hidden = (x.double() @ w.T).tanh()
    error = (hidden @ w.T - x.double()) / 10
    # d/dW of ½‖W tanh(Wx) − x‖²: from the outer use and from the inner one
    expected = error.T @ hidden + ((error @ w) * (1 - hidden**2)).T @ x.double()
    assert torch.allclose(mean_gradient(land), expected.reshape(-1), rtol=1e-8)


def test_tied_embedding_and_head():
    tokens = torch.randint(7, (6, 5), generator=torch.Generator().manual_seed(0))
    model = Tokens()
    land = bs.Landscape(model, "cross_entropy", (tokens, tokens))
    assert land.dimension == 7 * 4 + 4 * 4 + 4
    functional.cross_entropy(model(tokens).transpose(1, 2), tokens, reduction="sum").div(6).backward()
    expected = torch.cat([parameter.grad.reshape(-1) for parameter in model.parameters()])
    assert torch.allclose(mean_gradient(land), expected, rtol=1e-4, atol=1e-6)
    # A move of the shared weight moves both places.
    moved = {**land.parameters, "embedding.weight": land.parameters["embedding.weight"] * 2}
    other = Tokens()
    with torch.no_grad():
        other.embedding.weight.mul_(2)
    by_hand = functional.cross_entropy(other(tokens).transpose(1, 2), tokens, reduction="none").sum(1)
    assert land.per_sample(moved).tolist() == pytest.approx(by_hand.tolist(), rel=1e-5)


def test_frozen_parameters_are_held_fixed():
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3))
    model[0].weight.requires_grad_(False)
    land = bs.Landscape(model, data=(x, y))
    assert sorted(land.parameters) == ["0.bias", "2.bias", "2.weight"]
    assert land.dimension == 4 + 12 + 3
    assert land.per_sample().tolist() == pytest.approx(
        functional.cross_entropy(model(x), y, reduction="none").tolist(), rel=1e-6
    )


def test_restrict_changes_the_variables_and_not_the_function():
    land = classifier()
    part = land.restrict("0.*")
    assert sorted(part.parameters) == ["0.bias", "0.weight"]
    assert part.dimension == 16
    assert torch.equal(part.per_sample(), land.per_sample())
    assert torch.equal(mean_gradient(part), mean_gradient(land)[:16])
    assert sorted(land.restrict("*bias", "2.weight").parameters) == ["0.bias", "2.bias", "2.weight"]
    assert part.restrict("*.bias").dimension == 4
    assert land.dimension == 31, "the original is untouched"
    moved = {name: tensor + 0.1 for name, tensor in part.parameters.items()}
    whole = {**land.parameters, **moved}
    assert torch.equal(part.per_sample(moved), land.per_sample(whole))


def test_restrict_without_a_match():
    with pytest.raises(bs.InputError, match=r"no parameter matches \('weigth',\): names are like .*weight.*'\*'"):
        classifier().restrict("weigth")
    with pytest.raises(bs.InputError, match="no parameter matches"):
        classifier().restrict()


def test_subset():
    land = classifier(n=12)
    whole = land.per_sample()

    def holds(part, chosen):
        assert torch.equal(part.samples.inputs, land.samples.inputs[chosen])
        assert torch.equal(part.samples.target, land.samples.target[chosen])
        torch.testing.assert_close(part.per_sample(), whole[chosen], rtol=1e-12, atol=0)  # batches round by their size

    for indices in ([3, 0, 7], torch.tensor([3, 0, 7]), np.array([3, 0, 7])):
        holds(land.subset(indices), [3, 0, 7])
    holds(land.subset(slice(2, 9, 3)), slice(2, 9, 3))
    holds(land.subset(range(4)), slice(4))
    mask = torch.arange(12) % 5 == 0
    holds(land.subset(mask), mask)
    assert land.n == 12


@pytest.mark.parametrize(
    "indices",
    [[], slice(5, 5), [0, 12], [-1], [[0, 1]], [0.5, 1.0], "abc", torch.ones(5, dtype=torch.bool)],
    ids=["empty", "empty slice", "too large", "negative", "two axes", "fractions", "text", "short mask"],
)
def test_subset_of_what_is_not_there(indices):
    with pytest.raises(bs.InputError, match=r"0\.\.11|empty"):
        classifier(n=12).subset(indices)


def test_at_moves_the_point():
    land = classifier()
    moved = {name: tensor + 1 for name, tensor in land.parameters.items()}
    other = land.at(moved)
    assert torch.equal(other.per_sample(), land.per_sample(moved))
    assert not torch.equal(other.per_sample(), land.per_sample())
    moved["0.bias"] += 5
    assert not torch.equal(other.parameters["0.bias"], moved["0.bias"]), "the point is a copy"


def test_at_checks_names_shapes_and_values():
    land = classifier()
    with pytest.raises(bs.InputError, match=r"\['2.bias'\] differ"):
        land.at({name: tensor for name, tensor in land.parameters.items() if name != "2.bias"})
    with pytest.raises(bs.InputError, match=r"0.bias must have shape \(4,\), got \(1, 4\)"):
        land.at({**land.parameters, "0.bias": torch.zeros(1, 4)})
    with pytest.raises(bs.InputError, match=r"'0\.bias' contains NaN"):
        land.at({**land.parameters, "0.bias": torch.full((4,), math.nan)})


def test_relabel():
    land = bs.Landscape(nn.Linear(3, 1), "mse", (x, torch.zeros(10, 1)))
    assert torch.allclose(
        land.relabel(torch.ones(10, 1)).per_sample(),
        bs.Landscape(nn.Linear(3, 1), "mse", (x, torch.ones(10, 1))).at(land.parameters).per_sample(),
    )
    with pytest.raises(bs.InputError, match=r"10 samples, one per input, got \[9\]"):
        land.relabel(torch.ones(9, 1))


def test_flatten_and_unflatten_are_inverse():
    land = classifier()
    vector = land.flatten(land.parameters)
    assert vector.shape == (31,)
    back = land.unflatten(vector)
    assert list(back) == list(land.parameters)
    assert all(torch.equal(back[name], land.parameters[name]) for name in back)
    other = torch.randn(31, dtype=f64)
    assert torch.equal(land.flatten(land.unflatten(other)), other)
    # differentiable: the gradient through unflatten is the flat gradient
    slope = grad(lambda w: land.losses(land.unflatten(w), land.samples).mean())(vector)
    assert torch.allclose(slope, mean_gradient(land), rtol=1e-12)


# ---------------------------------------------------------------------- models


def test_dropout_is_off():
    model = nn.Sequential(nn.Linear(3, 50), nn.Dropout(0.5), nn.Linear(50, 3)).train()
    land = bs.Landscape(model, data=(x, y))
    expected = functional.cross_entropy(copy.deepcopy(model).eval()(x), y, reduction="none")
    assert land.per_sample().tolist() == pytest.approx(expected.tolist(), rel=1e-5)
    assert model.training
    assert model[1].training


def test_batch_normalization():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    with torch.no_grad():
        model(x)  # moves the running statistics
    with pytest.raises(bs.InputError, match=r"BatchNorm layer '1' uses the statistics of the batch.*model\.eval\(\)"):
        bs.Landscape(model.train(), data=(x, y))
    land = bs.Landscape(model.eval(), data=(x, y))
    expected = functional.cross_entropy(model(x), y, reduction="none")
    assert land.per_sample().tolist() == pytest.approx(expected.tolist(), rel=1e-5)
    assert land.per_sample(batch_size=3).tolist() == pytest.approx(expected.tolist(), rel=1e-5)
    stateless = nn.Sequential(nn.BatchNorm1d(3, track_running_stats=False), nn.Linear(3, 3)).eval()
    with pytest.raises(bs.InputError, match="track_running_stats=True"):
        bs.Landscape(stateless, data=(x, y))


class Encoder(nn.Module):
    def __init__(self, **options):
        super().__init__()
        torch.manual_seed(4)
        layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.3, batch_first=True, **options)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(4, 3)

    def forward(self, sequence):
        return self.head(self.encoder(sequence).mean(1))


@pytest.mark.parametrize("options", [{}, {"norm_first": True, "activation": "gelu"}])
def test_transformer_layers_without_dropout_and_with_derivatives(options):
    sequences = torch.randn(6, 5, 4, generator=torch.Generator().manual_seed(0))
    model = Encoder(**options).train()
    labels = torch.arange(6) % 3
    land = bs.Landscape(model, data=(sequences, labels))
    reference = copy.deepcopy(model).eval()
    assert land.per_sample().tolist() == pytest.approx(
        functional.cross_entropy(reference(sequences), labels, reduction="none").tolist(), rel=1e-4
    )
    # The gradient against autograd on the user's own module, dropout set to zero by hand.
    for module in reference.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if isinstance(module, nn.MultiheadAttention):
            module.dropout = 0.0
    functional.cross_entropy(reference.train()(sequences), labels).backward()
    expected = torch.cat([parameter.grad.reshape(-1) for parameter in reference.parameters()])
    assert torch.allclose(mean_gradient(land), expected, rtol=1e-3, atol=1e-5)
    # It can be differentiated twice: the Hessian of the head is that of a softmax, which has null vector (1, 1, 1).
    head = land.restrict("head.bias")
    with math_attention():
        second = jacrev(grad(lambda w: head.losses(head.unflatten(w), head.samples).mean()))(
            head.flatten(head.parameters)
        )
    probabilities = reference.eval()(sequences).softmax(1)
    exact = (torch.diag_embed(probabilities) - probabilities[:, :, None] * probabilities[:, None]).mean(0)
    assert torch.allclose(second, exact, atol=1e-5)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrent_layers(kind):
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.cells, self.head = kind(4, 5, batch_first=True), nn.Linear(5, 3)

        def forward(self, sequence):
            return self.head(self.cells(sequence)[0][:, -1])

    model, sequences, labels = Recurrent(), torch.randn(6, 5, 4), torch.arange(6) % 3
    land = bs.Landscape(model, data=(sequences, labels))
    functional.cross_entropy(model(sequences), labels).backward()
    expected = torch.cat([parameter.grad.reshape(-1) for parameter in model.parameters()])
    assert torch.allclose(mean_gradient(land), expected, rtol=1e-4, atol=1e-6)


def test_reparametrized_weights():
    model = nn.utils.parametrizations.weight_norm(nn.Linear(3, 3))
    land = bs.Landscape(model, data=(x, y))
    assert land.dimension == 9 + 3 + 3
    functional.cross_entropy(model(x), y).backward()
    expected = torch.cat([parameter.grad.reshape(-1) for parameter in model.parameters()])
    assert torch.allclose(mean_gradient(land), expected, rtol=1e-4, atol=1e-6)


def test_the_model_is_never_touched():
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.BatchNorm1d(4), nn.Linear(4, 3))
    model[2].eval()
    calls = []
    handle = model[0].register_forward_hook(lambda *_: calls.append(1))
    model[0].weight.grad = torch.ones(4, 3)
    model[3].bias.requires_grad_(False)

    def picture():
        modules = list(model.modules())
        return {
            "tensors": {name: tensor.clone() for name, tensor in model.state_dict(keep_vars=True).items()},
            "identity": [id(tensor) for tensor in (*model.parameters(), *model.buffers())],
            "trainable": [parameter.requires_grad for parameter in model.parameters()],
            "grads": [None if p.grad is None else p.grad.clone() for p in model.parameters()],
            "modes": [module.training for module in modules],
            "hooks": [(len(m._forward_hooks), len(m._forward_pre_hooks), len(m._backward_hooks)) for m in modules],
            "rng": torch.get_rng_state(),
        }

    before = picture()
    land = bs.Landscape(model, data=(x, y))
    bs.llc(land, sampler="sgld", draws=16, progress=False)
    bs.llc(land, sampler="mala", draws=16, progress=False)
    after = picture()
    torch.testing.assert_close(after, before, rtol=0, atol=0)
    handle.remove()


def test_the_landscape_does_not_follow_the_model():
    model = nn.Linear(3, 3)
    land = bs.Landscape(model, data=(x, y))
    losses = land.per_sample()
    with torch.no_grad():
        model.weight.mul_(3)
    assert torch.equal(land.per_sample(), losses)
    assert all(tensor.is_meta for tensor in land.module.parameters())


def test_repr_says_what_it_is():
    land = bs.Landscape(nn.Linear(3, 3), data=(x, y))
    assert repr(land) == "Landscape(Linear, loss=cross_entropy, n=10, parameters=12, float32 on cpu)"


def test_outputs_match_functional_call():
    model = TwoInputs()
    land = bs.Landscape(model, data=((x, z), y))
    expected = functional_call(model, land.parameters, (x, z))
    assert torch.equal(land.outputs(land.parameters, (x, z)), expected)
    assert torch.equal(land.outputs(land.parameters, {"b": z, "a": x}), expected)


# ---------------------------------------------------------------------- bad input


class Counter(nn.Module):
    """Counts its calls in a buffer."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, inputs):
        self.calls += 1
        return self.linear(inputs)


class Remembers(nn.Module):
    """Its output depends on how often it was called."""

    def __init__(self):
        super().__init__()
        self.linear, self.scale = nn.Linear(3, 3), 1.0

    def forward(self, inputs):
        self.scale += 1
        return self.scale * self.linear(inputs)


class Noisy(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.linear, self.kind = nn.Linear(3, 3), kind

    def forward(self, inputs):
        if self.kind == "torch":
            return self.linear(inputs + torch.randn_like(inputs))
        if self.kind == "numpy":
            return self.linear(inputs + float(np.random.normal()))  # noqa: NPY002
        return self.linear(functional.dropout(inputs))


class Integers(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.codes = nn.Parameter(torch.arange(3), requires_grad=False)

    def forward(self, inputs):
        return self.linear(inputs) * self.codes


def broken_weights(value):
    model = nn.Linear(3, 3)
    with torch.no_grad():
        model.weight[0, 0] = value
    return model


def broken_buffer():
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 3)).eval()
    model[0].running_var[1] = math.inf
    return model


def frozen(model):
    return model.requires_grad_(False)


def two_types():
    return nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3).double())


linear = nn.Linear(3, 3)
BAD = {
    # name: (arguments, what the message must say)
    "scalar loss": (
        lambda: (linear, lambda output, target: functional.cross_entropy(output, target), (x, y)),
        r'one value per sample: expected shape \(8,\), got \(\) — pass reduction="none"',
    ),
    "loss is a number": (
        lambda: (linear, lambda output, target: 1.0, (x, y)),
        r"one value per sample: expected shape \(8,\), got float",
    ),
    "loss is nothing": (
        lambda: (linear, lambda output, target: None, (x, y)),
        r"one value per sample: expected shape \(8,\), got NoneType",
    ),
    "loss of the wrong length": (
        lambda: (linear, lambda output, target: output.flatten(), (x, y)),
        r"one value per sample: expected shape \(8,\), got \(24,\)",
    ),
    "NaN data": (lambda: (linear, "cross_entropy", (x * math.nan, y)), "NaN or infinite values in 10 of 10 samples"),
    "infinite data": (
        lambda: (linear, "cross_entropy", (x / torch.arange(10)[:, None], y)),
        "data contain NaN or infinite values in 1 of 10 samples — clean or drop",
    ),
    "NaN weights": (lambda: (broken_weights(math.nan), "cross_entropy", (x, y)), "'weight' contains NaN or infinite"),
    "infinite weights": (lambda: (broken_weights(math.inf), "cross_entropy", (x, y)), "'weight' contains NaN or infi"),
    "infinite buffer": (lambda: (broken_buffer(), "cross_entropy", (x, y)), "'0.running_var' contains NaN or infinite"),
    "NaN loss": (
        lambda: (
            linear,
            lambda output, target: (output[:, 0] - output[:, 0].detach() + x[0, 0] * 0 - 1).sqrt(),
            (x, y),
        ),
        r"loss is NaN or infinite on 10 of 10 samples at w\* — check the checkpoint, the targets and the loss",
    ),
    "infinite loss on one sample": (
        lambda: (linear, lambda output, target: output[:, 0] + 1 / (target - 9), (x, torch.arange(10.0))),
        r"loss is NaN or infinite on 1 of 10 samples at w\*",
    ),
    "label too large": (
        lambda: (linear, "cross_entropy", (x, torch.arange(10) % 4)),
        r"labels must lie in 0\.\.2 for 3 classes, got values 0\.\.3",
    ),
    "negative label": (
        lambda: (linear, "cross_entropy", (x, y - 1)),
        r"labels must lie in 0\.\.2 for 3 classes, got values -1\.\.1",
    ),
    "negative label among ignored ones": (
        lambda: (linear, "cross_entropy", (x, torch.where(y == 0, -100, y - 2))),
        r"labels must lie in 0\.\.2 for 3 classes, got",
    ),
    "fractional labels": (
        lambda: (linear, "cross_entropy", (x, y.float())),
        r"integer class labels, got torch.float32 — convert with \.long\(\)",
    ),
    "bernoulli target": (
        lambda: (linear, "bernoulli", (x, torch.full((10, 3), 2.0))),
        r"bernoulli targets must lie in \[0, 1\], got values 2\.\.2",
    ),
    "empty data": (lambda: (linear, "cross_entropy", (x[:0], y[:0])), "data is empty: expected at least one sample"),
    "no data": (lambda: (linear, "cross_entropy", None), r"data is missing: pass data=\(x, y\)"),
    "data elsewhere": (
        lambda: (linear, "cross_entropy", (x.to("meta"), y.to("meta"))),
        r"different devices: data on \['meta'\], model on cpu — move one with \.to\(\)",
    ),
    "half of the data elsewhere": (
        lambda: (linear, "cross_entropy", (x.to("meta"), y)),
        r"different devices: data on \['cpu', 'meta'\], model on cpu",
    ),
    "model elsewhere": (
        lambda: (nn.Linear(3, 3, device="meta"), "cross_entropy", (x, y)),
        r"meta",
    ),
    "model on two devices": (
        lambda: (nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3, device="meta")), "cross_entropy", (x, y)),
        r"share one device and one dtype.*float32 on cpu.*float32 on meta.*model\.to\(device\)",
    ),
    "counter": (
        lambda: (Counter(), "cross_entropy", (x, y)),
        r"must be a fixed function: buffers \['calls'\] change from call to call — remove the randomness",
    ),
    "memory": (lambda: (Remembers(), "cross_entropy", (x, y)), r"fixed function: its output changes.*model\.eval\(\)"),
    "noise": (lambda: (Noisy("torch"), "cross_entropy", (x, y)), r"fixed function: its output changes"),
    "noise from elsewhere": (lambda: (Noisy("numpy"), "cross_entropy", (x, y)), r"fixed function: its output changes"),
    "dropout function": (lambda: (Noisy("dropout"), "cross_entropy", (x, y)), r"fixed function: its output changes"),
    "integer parameters": (
        lambda: (Integers(), "cross_entropy", (x, y)),
        r"'codes' has dtype torch.int64: only real floating-point weights .* dequantize",
    ),
    "all frozen": (
        lambda: (frozen(nn.Linear(3, 3)), "cross_entropy", (x, y)),
        "no trainable parameters: set requires_grad=True",
    ),
    "no parameters": (lambda: (nn.Identity(), "mse", (x, x)), "no trainable parameters: set requires_grad=True"),
    "half precision": (
        lambda: (nn.Linear(3, 3).half(), "cross_entropy", (x, y)),
        r"float32 or float64: got \['torch.float16 on cpu'\] — convert with model\.float\(\)",
    ),
    "bfloat16": (
        lambda: (nn.Linear(3, 3).bfloat16(), "cross_entropy", (x, y)),
        r"float32 or float64: got \['torch.bfloat16 on cpu'\] — convert with model\.float\(\)",
    ),
    "two types": (lambda: (two_types(), "cross_entropy", (x, y)), r"one dtype.*float32 on cpu.*float64 on cpu"),
    "no module": (lambda: (lambda inputs: inputs, "mse", (x, x)), r"model must be a torch\.nn\.Module, got function"),
    "output and target differ": (
        lambda: (nn.Linear(3, 2), "mse", (x, x)),
        r"mse expects output and target of one shape: got \(8, 2\) and \(8, 3\) — reshape the target",
    ),
    "a model that ignores its weights": (
        lambda: (Detached(), "cross_entropy", (x, y)),
        r"depend",
    ),
}


class Detached(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, inputs):
        return self.linear(inputs).detach()


@pytest.mark.parametrize("case", BAD)
def test_bad_input_names_value_expectation_and_remedy(case):
    build, message = BAD[case]
    model, loss, data = build()
    with pytest.raises(bs.InputError) as caught:
        bs.Landscape(model, loss, data)
    assert re.search(message, str(caught.value)), str(caught.value)


def test_the_check_leaves_the_random_state_alone():
    model = Noisy("torch")
    before = torch.get_rng_state()
    with pytest.raises(bs.InputError):
        bs.Landscape(model, data=(x, y))
    assert torch.equal(before, torch.get_rng_state())


def test_a_nan_beyond_the_first_few_samples_is_found():
    def loss(output, target):
        return torch.where(target == 1, torch.nan, 1.0) * output[:, 0]

    labels = torch.zeros(5000)
    labels[4500:4503] = 1
    with pytest.raises(bs.InputError, match="on 3 of 5000 samples"):
        bs.Landscape(nn.Linear(3, 1), loss, (torch.ones(5000, 3), labels))


def test_watanabe_temperature():
    assert watanabe_nbeta(1000) == pytest.approx(1000 / math.log(1000))
    assert watanabe_nbeta(3) == pytest.approx(2.7307, abs=1e-4)
    for n in (1, 2):
        with pytest.raises(bs.InputError, match=f"n/log n needs at least 3 samples, got n={n} — pass nbeta yourself"):
            watanabe_nbeta(n)
