import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import basinscope as bs

generator = torch.Generator().manual_seed(0)
x = torch.randn(60, 4, generator=generator)
y = torch.randn(60, 2, generator=generator)
sequences = torch.randn(60, 5, 4, generator=generator)


class Network(nn.Module):
    """Two linear layers with any function between them."""

    def __init__(self, between, scale=1.0):
        super().__init__()
        self.first, self.second, self.between, self.calls = nn.Linear(4, 6), nn.Linear(6, 2), between, 0
        self.scale = scale
        for number, parameter in enumerate(self.parameters()):
            nn.init.uniform_(parameter, -1, 1, generator=torch.Generator().manual_seed(number))

    def forward(self, inputs):
        self.calls += 1
        return self.scale * self.second(self.between(self, self.first(inputs)))


class Recurrent(nn.Module):
    def __init__(self, kind, batch_first):
        super().__init__()
        torch.manual_seed(0)
        self.cell, self.head = kind(4, 3, batch_first=batch_first), nn.Linear(3, 2)

    def forward(self, inputs):
        return self.head(self.cell(inputs)[0][:, -1])


class Attention(nn.Module):
    def __init__(self, batch_first):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.head = nn.MultiheadAttention(4, 2, batch_first=batch_first), nn.Linear(4, 2)

    def forward(self, inputs):
        return self.head(self.layer(inputs, inputs, inputs, need_weights=False)[0].mean(1))


def batch_norm(net, h):
    return functional.batch_norm(h, None, None, training=True)


def neighbours(net, h):
    return h.tanh() + 0.01 * torch.cat([h[1:], h[:1]])


MIXING = {
    "functional batch norm": lambda: Network(batch_norm),
    "centred": lambda: Network(lambda net, h: h - h.mean(0)),
    "standardized": lambda: Network(lambda net, h: (h - h.mean(0)) / (h.std(0) + 1e-5)),
    "divided by the largest": lambda: Network(lambda net, h: h / h.abs().max()),
    "normalized over the batch": lambda: Network(lambda net, h: h.softmax(0)),
    "a neighbour's share": lambda: Network(neighbours),
    "pairs of neighbours": lambda: Network(lambda net, h: h + 0.1 * h.view(-1, 2, 6).flip(1).reshape(h.shape)),
    "the number of samples": lambda: Network(lambda net, h: h / len(h)),
    "many samples alone": lambda: Network(lambda net, h: h - h.mean(0) if len(h) > 32 else h),
    "a branch on the batch": lambda: Network(lambda net, h: h.tanh() if len(h) > 2 and h.std() > 0 else h),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", MIXING)
def test_models_that_mix_samples_are_refused(case, dtype):
    with pytest.raises(bs.InputError, match=r"sample \d+ has [-\d.e]+ among 60 and [-\d.e]+ beside sample \d+ alone"):
        bs.Landscape(MIXING[case]().to(dtype), "mse", (x, y))


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_recurrent_layers_that_take_samples_for_time(kind):
    with pytest.raises(bs.InputError, match="batch_first=True where samples come first"):
        bs.Landscape(Recurrent(kind, batch_first=False), "mse", (sequences, y))
    assert bs.Landscape(Recurrent(kind, batch_first=True), "mse", (sequences, y)).n == 60


def test_attention_that_takes_samples_for_positions():
    with pytest.raises(bs.InputError, match="batch_first=True where samples come first"):
        bs.Landscape(Attention(batch_first=False), "mse", (sequences, y))
    assert bs.Landscape(Attention(batch_first=True), "mse", (sequences, y)).n == 60


def test_a_loss_that_mixes_samples_is_refused():
    def loss(output, target):
        values = (output - target).square().sum(1)
        return values / values.mean()

    with pytest.raises(bs.InputError, match="must not depend on the others of its batch"):
        bs.Landscape(nn.Linear(4, 2), loss, (x, y))


@pytest.mark.parametrize("n", [2, 3, 5])
def test_few_samples_that_mix_are_refused(n):
    with pytest.raises(bs.InputError, match=f"among {n} and"):
        bs.Landscape(Network(lambda net, h: h - h.mean(0)), "mse", (x[:n], y[:n]))


def test_one_sample_has_no_others():
    assert bs.Landscape(Network(lambda net, h: h - h.mean(0)), "mse", (x[:1], y[:1])).n == 1


# ---------------------------------------------------------------------- what changes from call to call


def drawing(source, chance):
    return lambda net, h: h * (0.0 if source() < chance else 1.0)


def test_drift_over_many_calls_is_found():
    for late in (3, 10, 30):
        net = Network(lambda net, h, late=late: h * (1 + 0.01 * max(0, net.calls - late)))
        with pytest.raises(bs.InputError, match="its output changes from call to call"):
            bs.Landscape(net, "mse", (x, y))


def test_depth_at_random_is_found():
    # Without the random states, 36 calls would have to agree: at a chance of 1/2 once in 10¹⁰.
    for source in (np.random.default_rng(0).random, random.Random(0).random):
        with pytest.raises(bs.InputError, match="its output changes from call to call"):
            bs.Landscape(Network(drawing(source, 0.5)), "mse", (x, y))


@pytest.mark.parametrize(
    "source", [lambda: float(torch.rand(())), random.random, np.random.rand], ids=["torch", "Python", "NumPy"]
)
def test_random_numbers_are_found_whatever_they_do(source):
    net = Network(drawing(source, -1))
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()  # noqa: NPY002
    with pytest.raises(bs.InputError, match="its output changes from call to call"):
        bs.Landscape(net, "mse", (x, y))
    assert torch.equal(states[0], torch.get_rng_state())
    assert states[1] == random.getstate()
    assert np.array_equal(states[2][1], np.random.get_state()[1])  # noqa: NPY002


def test_randomness_in_large_batches_alone_is_found():
    def noisy(net, h):
        return h + torch.randn(len(h), 6) if len(h) > 32 else h

    with pytest.raises(bs.InputError, match="its output changes from call to call"):
        bs.Landscape(Network(noisy), "mse", (x, y))


class Writing(nn.Linear):
    def forward(self, inputs):
        return super().forward(inputs.add_(1))


def test_models_that_write_into_their_inputs_are_refused():
    with pytest.raises(bs.InputError, match="must not write into its inputs"):
        bs.Landscape(Writing(4, 2), "mse", (x.clone(), y))


# ---------------------------------------------------------------------- what must pass


class Language(nn.Module):
    """A causal language model that masks padding."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(11, 8, padding_idx=0)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.head = nn.Linear(8, 11)

    def forward(self, tokens):
        causal = torch.ones(tokens.shape[1], tokens.shape[1]).triu(1).bool()
        return self.head(self.layer(self.table(tokens), causal, tokens == 0, is_causal=True))


class Residual(nn.Module):
    def __init__(self, depth):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(depth))
        self.head = nn.Linear(4, 2)

    def forward(self, inputs):
        for layer in self.layers:
            inputs = inputs + layer(inputs).relu()
        return self.head(inputs)


class Frozen(nn.Module):
    """A frozen base of lower precision under a head that is zero."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.base = nn.Sequential(nn.Linear(4, 300), nn.Tanh(), nn.Linear(300, 2)).bfloat16().requires_grad_(False)
        self.inner, self.outer = nn.Parameter(torch.randn(4, 1)), nn.Parameter(torch.zeros(1, 2))

    def forward(self, inputs):
        return self.base(inputs.bfloat16()).float() + inputs @ self.inner @ self.outer


class Squeezed(nn.Module):
    """A network that cannot take a sample alone, as a careless squeeze has it."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 1)

    def forward(self, inputs):
        return self.linear(inputs).squeeze()


def convolutional(norm):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), norm, nn.ReLU(), nn.Dropout(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 2)
    ).eval()


def tokens():
    tokens = torch.randint(1, 11, (60, 7), generator=torch.Generator().manual_seed(0))
    tokens[::3, 5:] = 0
    return tokens, torch.where(tokens == 0, -100, tokens)


def fitted(scale):
    """Data without a residual: the losses are squares of rounding errors."""
    net = Network(lambda net, h: h.tanh(), scale)
    with torch.no_grad():
        return net, "mse", (x, torch.cat([net(part) for part in x.split(7)]))


images = torch.randn(60, 3, 8, 8, generator=generator)
labels = torch.randint(2, (60,), generator=generator)
PASSING = {
    "convolutions and batch norm in evaluation": lambda: (convolutional(nn.BatchNorm2d(8)), "mse", (images, y)),
    "group norm": lambda: (convolutional(nn.GroupNorm(2, 8)), "mse", (images, y)),
    "instance norm": lambda: (convolutional(nn.InstanceNorm2d(8)), "cross_entropy", (images, labels)),
    "a language model": lambda: (Language(), "cross_entropy", tokens()),
    "a deep residual network": lambda: (Residual(40), "mse", (x, y)),
    "a frozen base in bfloat16": lambda: (Frozen(), "mse", (x, y)),
    "losses of 10⁹": lambda: (Network(lambda net, h: h.tanh(), 1e5), "mse", (x, y)),
    "no residual": lambda: fitted(1.0),
    "no residual at large outputs": lambda: fitted(1e4),
    "certain classes": lambda: (Network(lambda net, h: h.tanh(), 1e3), "cross_entropy", (x, labels)),
    "a large constant": lambda: (Network(lambda net, h: h), lambda o, t: (o - t).square().sum(1) + 1e6, (x, y)),
    "a sharp loss": lambda: (Network(lambda net, h: h), lambda o, t: (30 * (o - t)).sin().sum(1), (x, y)),
    "no single samples": lambda: (Squeezed(), "mse", (x, y[:, 0])),
    "weights of zero": lambda: (
        nn.Linear(4, 2).apply(lambda m: [nn.init.zeros_(p) for p in m.parameters()]),
        "mse",
        (x, y),
    ),
}


@pytest.mark.parametrize("repeats", [1, 100])
@pytest.mark.parametrize("case", PASSING)
def test_legitimate_models_pass(case, repeats):
    model, loss, data = PASSING[case]()
    data = tuple(torch.cat([part] * repeats) for part in data)
    assert bs.Landscape(model, loss, data).n == 60 * repeats


def test_the_check_takes_few_calls_and_no_dependence_on_n():
    counts = []
    for n in (60, 4000):
        net = Network(lambda net, h: h.tanh())
        net.calls = calls = torch.zeros(())

        def count(module, inputs, output, calls=calls):
            calls += 1

        net.first.register_forward_hook(count)
        bs.Landscape(net, "mse", (x.repeat(67, 1)[:n], y.repeat(67, 1)[:n]))
        counts.append(int(calls))
    assert counts[0] == counts[1]
