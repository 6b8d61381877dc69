import pytest
import torch
from torch import nn
from torch.func import functional_call, vmap

import basinscope as bs
from basinscope.errors import InputError
from basinscope.zoo import models
from chance import assert_within

BUILDERS = {
    "ffnn": (lambda: models.ffnn([9, 5, 4, 3], "tanh"), torch.rand(6, 1, 3, 3)),
    "deep_linear": (lambda: models.deep_linear([9, 4, 3], bias=True), torch.rand(6, 9)),
    "convnet": (lambda: models.convnet([1, 15, 20, 10]), torch.rand(6, 1, 7, 7)),
    "lenet5": (models.lenet5, torch.rand(6, 1, 28, 28)),
    "resnet": (lambda: models.resnet(1, 4), torch.rand(6, 3, 16, 16)),
    "transformer": (lambda: models.transformer(11, 5, layers=2, width=8, heads=2), torch.randint(11, (6, 5))),
}


def count(model):
    return sum(parameter.numel() for parameter in model.parameters())


def test_parameter_counts():
    assert count(models.convnet([1, 15, 20, 10])) == 4680
    assert count(models.lenet5()) == 61706
    assert count(models.ffnn([784, 1024, 1024, 10])) == 1863690
    # ResNet-20 of He et al. has 269,722 parameters with shortcuts that pad by zeros, 272,474 with 1 × 1 convolutions
    assert count(models.resnet(3, 16)) == 272474
    # embeddings 11·8 + 5·8, per block 2·16 + 4·64 + 32 + 2·8·32 + 40, final norm 16, read-out 88
    assert count(models.transformer(11, 5, layers=2, width=8, heads=2)) == 128 + 2 * (32 + 256 + 32 + 512 + 40) + 104


@pytest.mark.parametrize(
    ("former", "same"),
    [
        ("flatness_mlp", lambda: models.ffnn([49, 70, 10])),
        ("flatness_big_mlp", lambda: models.ffnn([49, 70, 70, 10])),
        ("flatness_cnn", lambda: models.convnet([1, 15, 20, 10])),
    ],
)
def test_networks_of_a_study_are_still_there_by_their_former_names(former, same):
    with pytest.warns(DeprecationWarning, match=f"{former} is now called") as warned:
        build = getattr(models, former)
    assert warned[0].filename == __file__
    nets = []
    for make in (build, same):
        torch.manual_seed(0)
        nets.append(make())
    assert str(nets[0]) == str(nets[1])
    assert all(map(torch.equal, nets[0].parameters(), nets[1].parameters()))
    with pytest.raises(AttributeError, match="no attribute 'flatness'"):
        _ = models.flatness


@pytest.mark.parametrize("name", BUILDERS)
def test_a_model_is_a_landscape_and_can_be_stacked(name):
    build, x = BUILDERS[name]
    torch.manual_seed(0)
    nets = [build() for _ in range(3)]
    output = nets[0](x)
    target = torch.zeros(output.shape[:-1], dtype=torch.long)
    land = bs.Landscape(nets[0], data=(x, target))
    assert land.dimension == count(nets[0])
    stacked = {key: torch.stack([net.state_dict()[key] for net in nets]) for key in nets[0].state_dict()}
    together = vmap(lambda state: functional_call(nets[0], state, (x,)))(stacked)
    for net, rows in zip(nets, together, strict=True):
        torch.testing.assert_close(rows, net(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", BUILDERS)
def test_a_sample_does_not_see_its_batch(name):
    build, x = BUILDERS[name]
    torch.manual_seed(0)
    net = build().train()
    torch.testing.assert_close(net(x)[:1], net(x[:1]), rtol=1e-4, atol=1e-5)


def test_a_transformer_looks_only_back():
    torch.manual_seed(0)
    net = models.transformer(7, 6)
    tokens = torch.randint(7, (1, 6))
    changed = tokens.clone()
    changed[0, 4] = (tokens[0, 4] + 1) % 7
    before, after = net(tokens), net(changed)
    assert torch.equal(before[0, :4], after[0, :4])
    assert not torch.allclose(before[0, 4], after[0, 4])
    last = models.transformer(7, 6, predict="last")
    last.load_state_dict(net.state_dict())
    assert torch.allclose(last(tokens), before[:, -1])


def test_a_transformer_has_a_hessian(seed):
    net = models.transformer(5, 4, layers=1, width=4, heads=2).double()
    land = bs.Landscape(net, data=(torch.randint(5, (8, 4)), torch.randint(5, (8, 4))))
    few = next(iter(land.batches()))

    def loss(vector):
        return land.losses(land.unflatten(vector), few).mean()

    dense = torch.autograd.functional.hessian(loss, land.flatten(land.parameters))
    torch.testing.assert_close(dense, dense.T)
    estimate = bs.trace(land, rtol=0.01, seed=seed, progress=False)
    assert_within(estimate.value, float(dense.trace()), estimate.stderr, estimate.freedom, bias=1e-6)


def test_calibration_normalizes_every_layer():
    torch.manual_seed(0)
    x = 3 + 2 * torch.randn(32, 3, 16, 16)
    net = models.calibrate(models.resnet(2, 4), x)
    seen = []
    for module in net.modules():
        if isinstance(module, models.FrozenNorm):
            module.register_forward_hook(lambda module, inputs, output: seen.append(output))
    net(x)
    assert len(seen) == 15  # the stem, two in each of six blocks, two shortcuts
    for output in seen:
        assert output.mean((0, 2, 3)).abs().max() < 1e-3
        assert (output.std((0, 2, 3)) - 1).abs().max() < 1e-2


def test_freezing_batch_norm_keeps_the_function():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2))
    x = torch.rand(16, 1, 8, 8)
    for _ in range(3):
        net(x)
    expected = net.eval()(x)
    frozen = models.freeze_batch_norm(net).train()
    torch.testing.assert_close(frozen(x), expected)
    assert isinstance(frozen[1], models.FrozenNorm)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: models.ffnn([3]), "at least the input and the output"),
        (lambda: models.ffnn([3, 0]), "a width must be a whole number of at least 1, got 0"),
        (lambda: models.ffnn([3, 2], "step"), "activation must be one of"),
        (lambda: models.lenet5(size=30), "size must be 28 or 32, got 30"),
        (lambda: models.transformer(5, 4, width=6, heads=4), "multiple of heads"),
        (lambda: models.transformer(5, 4, predict="all"), "'next' or 'last'"),
        (lambda: models.transformer(5, 4)(torch.zeros(1, 5, dtype=torch.long)), "at most context=4"),
        (lambda: models.calibrate(nn.Linear(2, 2), torch.ones(1, 2)), "no FrozenNorm"),
        (lambda: models.freeze_batch_norm(nn.Sequential(nn.BatchNorm1d(2, track_running_stats=False))), "running stat"),
    ],
)
def test_bad_input(call, match):
    with pytest.raises(InputError, match=match):
        call()
