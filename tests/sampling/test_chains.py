from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.func import grad

import basinscope as bs
from basins import classifier
from basinscope.sampling import chains, linear
from basinscope.sampling.chains import ChainLosses

f64 = torch.float64
CHAINS, SAMPLES = 3, 40


class Network(nn.Module):
    """A tanh network, plain or with something that vmap cannot follow."""

    def __init__(self, obstacle=None, dtype=f64):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.first, self.second = nn.Linear(3, 4).to(dtype), nn.Linear(4, 3).to(dtype)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=f64) / 2)
        self.obstacle = obstacle

    def forward(self, inputs):
        hidden = self.first(inputs).tanh()
        if self.obstacle == "branch on a hidden value" and hidden.abs().max() > 2:
            hidden = hidden * 0
        if self.obstacle == "item of a weight":
            hidden = hidden * (1 if self.second.weight.sum().item() < 1e6 else 0)
        if self.obstacle == "check of the inputs" and not torch.isfinite(inputs).all():
            raise ValueError("inputs must be finite")
        return self.second(hidden)


def data(seed=1):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(SAMPLES, 3, generator=generator, dtype=f64)
    return x, torch.randint(3, (SAMPLES,), generator=generator)


def network(obstacle=None, dtype=f64):
    return bs.Landscape(Network(obstacle, dtype), "cross_entropy", data())


def displacements(land, size=0.3, seed=2):
    generator = torch.Generator().manual_seed(seed)
    return size * torch.randn(CHAINS, land.dimension, generator=generator, dtype=f64).to(land.dtype)


def indices(seed=3, m=7):
    return torch.randint(SAMPLES, (CHAINS, m), generator=torch.Generator().manual_seed(seed))


def by_hand(land, delta, chosen=None):
    """Excess loss and gradient chain by chain, straight from the landscape."""
    excess, slopes = [], []
    for c, move in enumerate(delta):
        part = land if chosen is None else land.subset(chosen[c])

        def mean(w, part=part):
            return part.losses(part.unflatten(w), part.samples).mean()

        point = land.flatten(land.parameters) + move
        excess.append(part.per_sample(land.unflatten(point)).mean() - part.per_sample().mean())
        slopes.append(grad(mean)(point))
    return torch.stack(excess), torch.stack(slopes)


@pytest.mark.parametrize("dtype", [torch.float32, f64])
def test_chains_in_one_batch_are_chains_one_by_one(dtype):
    land = network(dtype=dtype)
    delta = displacements(land)
    together, apart = ChainLosses(land), ChainLosses(land)
    assert together.batched
    apart.batched = False
    tolerance = {"rtol": 1e-10, "atol": 1e-12} if dtype == f64 else {"rtol": 1e-5, "atol": 1e-6}
    for call in (
        lambda losses: losses.full(delta),
        lambda losses: losses.minibatch(delta, indices()),
        lambda losses: (losses.excess(delta), losses.per_sample(delta)),
        lambda losses: losses.gradient(delta),
    ):
        torch.testing.assert_close(call(together), call(apart), **tolerance)


def test_large_chains_run_one_after_the_other(monkeypatch):
    land = network()
    delta, indices = displacements(land), torch.arange(12).view(CHAINS, 4)
    losses = ChainLosses(land)
    together = losses.full(delta), losses.minibatch(delta, indices)
    calls = []
    plain = bs.Landscape.losses
    monkeypatch.setattr(bs.Landscape, "losses", lambda self, *args: calls.append(1) or plain(self, *args))
    monkeypatch.setattr(chains, "APART", 4 * losses._sample_bytes)  # four samples are not too many yet
    few = losses.minibatch(delta, indices)
    assert len(calls) == 1
    many = losses.full(delta)
    assert len(calls) == 1 + CHAINS
    for found, expected in zip((many, few), together, strict=True):
        for one, other in zip(found, expected, strict=True):
            assert torch.allclose(one, other, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    ("device", "count", "convolved", "apart"),
    [
        ("cpu", 2, False, False),
        ("cpu", 2, True, True),
        ("cuda", 2, False, False),
        ("cuda", 5, True, True),
        ("cuda", 6, True, False),
    ],
)
def test_convolutions_run_chain_by_chain_on_a_processor_and_few_of_them_on_a_gpu(device, count, convolved, apart):
    assert chains.quicker_apart(device, count, chains.APART, convolved) == apart
    assert chains.quicker_apart("cpu", count, chains.APART + 1, convolved)


@pytest.mark.parametrize(("count", "size", "apart"), [(6, 0, False), (6, 1, True), (11, 1, True), (12, 1, False)])
def test_on_many_images_it_takes_more_chains_to_run_together(count, size, apart):
    assert chains.quicker_apart("cuda", count, chains.LONG + size, True) == apart


class Viewing(nn.Module):
    """Takes a view of what a convolution gives, which has none where its channels are last."""

    def forward(self, x):
        return x.view(len(x), -1)


@pytest.mark.parametrize(("flat", "takes"), [(nn.Flatten(), True), (Viewing(), False)])
def test_channels_go_last_where_the_network_takes_them_so(flat, takes, monkeypatch):
    net = nn.Sequential(nn.Conv2d(3, 2, 3), nn.ReLU(), flat, nn.Linear(8, 3)).double()
    x = torch.randn(SAMPLES, 3, 4, 4, generator=torch.Generator().manual_seed(0), dtype=f64)
    land = bs.Landscape(net, "cross_entropy", (x, data()[1]))
    assert chains.takes_channels_last(land) == takes
    losses, delta = ChainLosses(land), displacements(land)
    monkeypatch.setattr(chains, "quicker_apart", lambda *_: True)
    found = []
    for last in (False, takes):
        losses._channels_last = last
        found.append((*losses.full(delta), *losses.minibatch(delta, indices())))
    torch.testing.assert_close(*found, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("axis", [None, 0])
def test_convolutions_are_seen_and_chains_of_them_agree(axis, monkeypatch):
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3)).double()
    x = torch.randn(SAMPLES, 1, 4, 4, generator=torch.Generator().manual_seed(0), dtype=f64)
    land = bs.Landscape(net, "cross_entropy", (x, data()[1]))
    losses, delta = ChainLosses(land), displacements(land)
    assert losses._convolved
    assert not ChainLosses(network())._convolved
    found = []
    for apart in (False, True):
        monkeypatch.setattr(chains, "quicker_apart", lambda *_, apart=apart: apart)
        found.append(losses.full(delta) if axis is None else losses.minibatch(delta, indices()))
    torch.testing.assert_close(*found, rtol=1e-10, atol=1e-12)


def test_full_pass_against_the_landscape():
    land = network()
    losses, delta = ChainLosses(land), displacements(land)
    excess, slope = by_hand(land, delta)
    found = losses.full(delta)
    assert found[0].dtype == f64
    torch.testing.assert_close(found, (excess, slope), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(losses.excess(delta), excess, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(losses.gradient(delta), slope, rtol=1e-10, atol=1e-12)
    expected = torch.stack([land.per_sample(land.unflatten(losses.origin + move)) for move in delta])
    torch.testing.assert_close(losses.per_sample(delta), expected, rtol=1e-10, atol=1e-12)
    assert losses.dimension == land.dimension


def test_minibatches_belong_to_their_chains():
    land = network()
    losses, delta = ChainLosses(land), displacements(land)
    torch.testing.assert_close(
        losses.minibatch(delta, indices()), by_hand(land, delta, indices()), rtol=1e-10, atol=1e-12
    )


def test_a_minibatch_of_all_data_is_the_full_pass():
    land = network()
    losses, delta = ChainLosses(land), displacements(land)
    order = torch.stack([torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(c)) for c in range(CHAINS)])
    torch.testing.assert_close(losses.minibatch(delta, order), losses.full(delta), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("obstacle", ["branch on a hidden value", "item of a weight", "check of the inputs"])
def test_what_vmap_cannot_batch_runs_chain_by_chain_with_the_same_results(obstacle):
    land, plain = network(obstacle), network()
    losses, reference = ChainLosses(land), ChainLosses(plain)
    delta = displacements(land)
    if obstacle != "check of the inputs":
        assert not losses.batched
    assert reference.batched
    torch.testing.assert_close(losses.full(delta), reference.full(delta), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(losses.excess(delta), reference.excess(delta), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(
        losses.minibatch(delta, indices()), reference.minibatch(delta, indices()), rtol=1e-10, atol=1e-12
    )


class Entangled(torch.nn.Module):
    """Weights that a linear layer uses twice, another one turned over, a third also outside of it, and one nobody."""

    def __init__(self):
        super().__init__()
        self.twice = torch.nn.Linear(3, 3)
        self.turned = torch.nn.Parameter(torch.randn(3, 4))
        self.also = torch.nn.Linear(4, 2, bias=False)
        self.plain = torch.nn.Linear(2, 2)
        self.unused = torch.nn.Parameter(torch.ones(2, 2))

    def forward(self, x):
        hidden = self.twice(self.twice(x).tanh())
        hidden = torch.nn.functional.linear(hidden, self.turned.T)
        return self.plain(self.also(hidden)) * (1 + self.also.weight.square().sum())


@pytest.mark.parametrize("dtype", [torch.float32, f64])
def test_gradients_that_are_put_in_place_are_the_same(dtype, monkeypatch):
    monkeypatch.setattr(linear, "LARGE", 1)
    torch.manual_seed(0)
    x, y = torch.randn(SAMPLES, 3, dtype=dtype), torch.randint(2, (SAMPLES,))
    land = bs.Landscape(Entangled().to(dtype), "cross_entropy", (x, y))
    losses, delta = ChainLosses(land), displacements(land)
    assert losses.batched
    tolerance = {"rtol": 1e-10, "atol": 1e-12} if dtype == f64 else {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(losses.full(delta), by_hand(land, delta), **tolerance)
    torch.testing.assert_close(losses.minibatch(delta, indices()), by_hand(land, delta, indices()), **tolerance)
    part = land.restrict("twice*", "plain.bias")
    few = displacements(part)
    torch.testing.assert_close(ChainLosses(part).full(few), by_hand(part, few), **tolerance)


@pytest.mark.parametrize("memory", [1, 2000, 10_000])
def test_tiles_change_nothing(memory):
    land = network()
    delta = displacements(land)
    whole, tiled = ChainLosses(land), ChainLosses(land, memory=memory)
    assert tiled._tile(CHAINS) < SAMPLES <= whole._tile(CHAINS)
    torch.testing.assert_close(tiled.full(delta), whole.full(delta), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(tiled.excess(delta), whole.excess(delta), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(tiled.per_sample(delta), whole.per_sample(delta), rtol=1e-10, atol=1e-12)


def test_excess_is_zero_at_the_origin():
    for dtype, bound in ((f64, 1e-15), (torch.float32, 1e-7)):
        land = network(dtype=dtype)
        losses = ChainLosses(land)
        zero = torch.zeros(CHAINS, land.dimension, dtype=dtype)
        assert losses.excess(zero).abs().max() <= bound
        assert losses.minibatch(zero, indices())[0].abs().max() <= bound


def test_excess_keeps_its_digits_in_single_precision():
    # A loss of 1000 with an excess of 1e-3: one mean in float32 would know it to 6 %, pairs of samples know it to 1 %.
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2000, 1, generator=generator, dtype=f64)
    y = 1000 + torch.rand(2000, 1, generator=generator, dtype=f64)

    def offset(output, target):
        return (output**2 / 2 + target).squeeze(1)

    found, exact = (
        ChainLosses(bs.Landscape(zero_linear(dtype), offset, (x, y))).excess(torch.full((2, 1), 0.045, dtype=dtype))
        for dtype in (torch.float32, f64)
    )
    assert float(exact[0]) == pytest.approx(0.045**2 / 2 * float(x.square().mean()), rel=1e-8)
    assert found.tolist() == pytest.approx(exact.tolist(), rel=0.01)


def zero_linear(dtype):
    net = nn.Linear(1, 1, bias=False, dtype=dtype)
    nn.init.zeros_(net.weight)
    return net


@pytest.mark.parametrize("form", ["pair", "dict"])
def test_several_inputs_have_minibatches_too(form):
    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.left, self.right = nn.Linear(3, 3).double(), nn.Linear(2, 3).double()

        def forward(self, a, b):
            return self.left(a).tanh() + self.right(b)

    x, y = data()
    other = torch.randn(SAMPLES, 2, generator=torch.Generator().manual_seed(5), dtype=f64)
    land = bs.Landscape(Pair(), "cross_entropy", ((x, other) if form == "pair" else {"a": x, "b": other}, y))
    losses, delta = ChainLosses(land), displacements(land)
    for batched in (True, False):
        losses.batched = batched
        torch.testing.assert_close(losses.full(delta), by_hand(land, delta), rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(
            losses.minibatch(delta, indices()), by_hand(land, delta, indices()), rtol=1e-10, atol=1e-12
        )


@pytest.mark.parametrize("model", ["transformer", "recurrent", "tied", "normalized"])
def test_usual_architectures(model):
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    sequences = torch.randn(SAMPLES, 5, 4, generator=generator, dtype=f64)
    y = torch.randint(3, (SAMPLES,), generator=generator)
    if model == "transformer":
        layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.2, batch_first=True)
        net = nn.Sequential(layer, nn.Flatten(), nn.Linear(20, 3))
    elif model == "recurrent":
        net = nn.Sequential(nn.GRU(4, 3, batch_first=True), Last())
    elif model == "tied":
        shared = nn.Linear(4, 4)
        net = nn.Sequential(shared, nn.Tanh(), shared, nn.Flatten(), nn.Linear(20, 3))
    else:
        net = nn.Sequential(nn.Flatten(), nn.Linear(20, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)).eval()
    land = bs.Landscape(net.double(), "cross_entropy", (sequences, y))
    losses, delta = ChainLosses(land), displacements(land, size=0.1)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        expected, own = by_hand(land, delta), by_hand(land, delta, indices())
    torch.testing.assert_close(losses.full(delta), expected, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(losses.minibatch(delta, indices()), own, rtol=1e-8, atol=1e-10)


class Last(nn.Module):
    def forward(self, pair):
        return pair[0][:, -1]


def test_a_restricted_landscape_moves_its_part_only():
    land = classifier()
    part = land.restrict("2.*")
    delta = displacements(part)
    found = ChainLosses(part).full(delta)
    whole = torch.zeros(CHAINS, land.dimension, dtype=f64)
    whole[:, -part.dimension :] = delta
    excess, slope = ChainLosses(land).full(whole)
    torch.testing.assert_close(found, (excess, slope[:, -part.dimension :]), rtol=1e-10, atol=1e-12)


def test_global_precision_is_left_as_it_was():
    before = torch.get_float32_matmul_precision()
    land = network(dtype=torch.float32)
    ChainLosses(land).minibatch(displacements(land), indices())
    assert torch.get_float32_matmul_precision() == before


def test_a_perfect_fit_is_batched():
    """At w* its gradients are rounding, and as large in float32 as activations make them."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(*(torch.nn.Linear(20, 20, bias=False) for _ in range(5)))
    x = 100 * torch.randn(30, 20)
    land = bs.Landscape(net, "gaussian", (x, net(x).detach()))
    assert ChainLosses(land).batched


class _Mixing(torch.autograd.Function):
    """The identity, with a rule for vmap that takes the mean over chains."""

    @staticmethod
    def forward(x):
        return x.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, slope):
        return slope

    @staticmethod
    def vmap(info, in_dims, x):
        return x.mean(0, keepdim=True).expand_as(x).clone(), 0


def test_a_model_that_mixes_its_chains_is_not_batched():
    class Mixed(torch.nn.Linear):
        def forward(self, x):
            return _Mixing.apply(super().forward(x))

    torch.manual_seed(0)
    land = bs.Landscape(Mixed(3, 1), "gaussian", (torch.randn(8, 3), torch.randn(8, 1)))
    assert not ChainLosses(land).batched


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_energies_and_forces_are_in_true_float32(kind, monkeypatch):
    """What a program has set for its own products, or torch for convolutions on a GPU, does not reach them."""
    losses = ChainLosses(classifier())
    monkeypatch.setattr(losses, "land", SimpleNamespace(device=torch.device(kind)))
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        with losses.precise(), losses.precise():
            assert torch.get_float32_matmul_precision() == "highest"
            assert not torch.backends.cudnn.allow_tf32
        assert torch.get_float32_matmul_precision() == "high"
        assert torch.backends.cudnn.allow_tf32
    finally:
        torch.set_float32_matmul_precision(before)
    with losses.precise():
        assert torch.backends.cudnn.allow_tf32 == (kind == "cpu")  # nothing to do where there are no such convolutions
