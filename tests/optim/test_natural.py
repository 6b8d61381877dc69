"""Natural gradient against its definition, solved densely in float64."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

import basinscope as bs
from basins import classifier
from basinscope.curvature.dense import dense
from basinscope.optim import KFAC, EntropySGD, ExactNGD, OnlineNGD, preset
from basinscope.samples import Samples, read

f64 = torch.float64


def network(dtype=f64, seed=0):
    """A network and data as of `classifier`, as modules."""
    land = classifier(dtype=dtype, seed=seed)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)).to(dtype)
    net.load_state_dict(land.parameters)
    return net, land


def backward(net, batch):
    net.zero_grad()
    loss = functional.cross_entropy(net(batch.inputs), batch.target)
    loss.backward()
    return loss.detach()


def gradient(net):
    return torch.cat([p.grad.flatten() for p in net.parameters()]).double()


def weights(net):
    return torch.cat([p.detach().flatten() for p in net.parameters()]).double()


def move(net, optimizer, batch):
    """The direction of one step: the change of the weights by −1/lr."""
    before = weights(net)
    backward(net, batch)
    optimizer.observe(batch)
    optimizer.step()
    return (before - weights(net)) / optimizer.param_groups[0]["lr"]


@pytest.mark.parametrize("solve", ["primal", "dual", "auto"])
@pytest.mark.parametrize("alpha", [1e-2, 1.0])
@pytest.mark.parametrize("samples", [1, 7, 40])
def test_exact_solves_the_damped_system(solve, alpha, samples):
    net, land = network()
    batch = land.samples.take(slice(0, samples))
    fisher = dense(land.subset(range(samples)), "fisher")
    d = len(fisher)
    kappa = alpha / d * max(float(fisher.trace()), 1e-10)
    backward(net, batch)
    truth = torch.linalg.solve(fisher + kappa * torch.eye(d, dtype=f64), gradient(net))
    result = move(net, ExactNGD(net, lr=1e-3, alpha=alpha, solve=solve), batch)
    assert torch.allclose(result, truth, rtol=1e-8, atol=1e-9 * float(truth.abs().max()))


def test_epsilon_acts_only_beyond_the_trace():
    directions = {}
    for epsilon in (1e-10, 1e-3, 1e3):
        net, land = network()
        directions[epsilon] = move(net, ExactNGD(net, lr=1e-3, epsilon=epsilon), land.samples)
    assert torch.equal(directions[1e-10], directions[1e-3])
    net, land = network()
    fisher = dense(land, "fisher")
    d = len(fisher)
    backward(net, land.samples)
    truth = torch.linalg.solve(fisher + 0.1 / d * 1e3 * torch.eye(d, dtype=f64), gradient(net))
    assert torch.allclose(directions[1e3], truth, atol=1e-9)


def test_single_precision_follows_double_precision():
    results = {}
    for dtype in (torch.float32, f64):
        net, land = network(dtype)
        results[dtype] = move(net, ExactNGD(net, lr=1.0, alpha=0.1), land.samples)
    assert torch.allclose(results[torch.float32], results[f64], rtol=1e-3, atol=1e-4 * float(results[f64].abs().max()))


def test_exact_averages_over_batches():
    net, land = network()
    optimizer = ExactNGD(net, lr=1e-3, eta=0.25)
    first, second = land.samples.take(slice(0, 15)), land.samples.take(slice(15, 40))
    old = dense(land.subset(range(15)), "fisher")
    move(net, optimizer, first)
    new = dense(land.at(dict(net.named_parameters())).subset(range(15, 40)), "fisher")
    mixed = 0.25 * new + 0.75 * old
    backward(net, second)
    kappa = 0.1 / len(mixed) * mixed.trace()
    truth = torch.linalg.solve(mixed + kappa * torch.eye(len(mixed), dtype=f64), gradient(net))
    assert torch.allclose(move(net, optimizer, second), truth, rtol=1e-8, atol=1e-9 * float(truth.abs().max()))


def test_kfac_inverts_damped_factors():
    net, land = network()
    x = land.samples.inputs
    one = torch.ones(len(x), 1, dtype=f64)
    hidden = net[0](x).tanh().detach()
    chance = net(x).softmax(1).detach()
    spread = torch.diag_embed(chance) - chance[:, :, None] * chance[:, None, :]
    jacobian = net[2].weight.detach() * (1 - hidden**2)[:, None, :]
    sides = [
        ((jacobian.mT @ spread @ jacobian).mean(0), torch.cat([x, one], 1)),
        (spread.mean(0), torch.cat([hidden, one], 1)),
    ]
    backward(net, land.samples)
    truth = []
    for layer, (outputs, inputs) in zip((net[0], net[2]), sides, strict=True):
        slope = torch.cat([layer.weight.grad, layer.bias.grad[:, None]], 1)
        factors = []
        for matrix in (outputs, inputs.T @ inputs / len(inputs)):
            kappa = 0.1 / len(matrix) * matrix.trace()
            factors.append(torch.linalg.inv(matrix + kappa * torch.eye(len(matrix), dtype=f64)))
        result = factors[0] @ slope @ factors[1]
        truth += [result[:, :-1].flatten(), result[:, -1]]
    truth = torch.cat(truth)
    result = move(net, KFAC(net, lr=1e-3, alpha=0.1), land.samples)
    assert torch.allclose(result, truth, rtol=1e-8, atol=1e-9 * float(truth.abs().max()))


def test_kfac_is_exact_for_linear_regression():
    torch.manual_seed(0)
    x = torch.randn(20, 4, dtype=f64)
    y = torch.randn(20, 3, dtype=f64)
    nets = [nn.Linear(4, 3).double() for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    # B = I has no damping to speak of; A has that of the whole.
    optimizers = [ExactNGD(nets[0], "mse", lr=1.0, alpha=1e-8), KFAC(nets[1], "mse", lr=1.0, alpha=1e-8)]
    for net, optimizer in zip(nets, optimizers, strict=True):
        ((net(x) - y).square().sum() / 40).backward()
        optimizer.observe(read((x, y)))
        optimizer.step()
        design = torch.cat([x, torch.ones(20, 1, dtype=f64)], 1)
        solution = torch.linalg.lstsq(design, y).solution.T
        assert torch.allclose(torch.cat([net.weight, net.bias[:, None]], 1), solution, atol=1e-5)


BUILDERS = {
    "exact": lambda net, **options: ExactNGD(net, **options),
    "exact primal": lambda net, **options: ExactNGD(net, eta=0.9, **options),
    "kfac": lambda net, **options: KFAC(net, **options),
    "online": lambda net, **options: OnlineNGD(net.parameters(), **options),
}


@pytest.mark.parametrize("dtype", [torch.float32, f64])
@pytest.mark.parametrize("name", BUILDERS)
def test_infinite_damping_is_gradient_descent(name, dtype):
    net, land = network(dtype)
    twin, _ = network(dtype)
    optimizer = BUILDERS[name](net, lr=0.5, alpha=1e12, rescale=True, momentum=0.5, weight_decay=0.1)
    sgd = torch.optim.SGD(twin.parameters(), lr=0.5, momentum=0.5, weight_decay=0.1)
    for start in range(0, 40, 15):
        batch = land.samples.take(slice(start, start + 15))
        move(net, optimizer, batch)
        backward(twin, batch)
        sgd.step()
    tolerance = 1e-5 if dtype == torch.float32 else 1e-10
    assert torch.allclose(weights(net), weights(twin), atol=tolerance)


def test_without_rescaling_infinite_damping_is_a_slower_gradient_descent():
    net, land = network()
    trace = float(dense(land, "fisher").trace())
    backward(net, land.samples)
    slope = gradient(net)
    result = move(net, ExactNGD(net, lr=1e9, alpha=1e9), land.samples)
    assert torch.allclose(result * (1e9 / len(slope) * trace), slope, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", BUILDERS)
def test_norms_with_and_without_the_learning_rate(name):
    net, land = network()
    optimizer = BUILDERS[name](net, lr=0.02)
    direction = move(net, optimizer, land.samples)
    assert float(optimizer.norms["direction"]) == pytest.approx(float(direction.norm()), rel=1e-9)
    assert float(optimizer.norms["update"]) == pytest.approx(0.02 * float(direction.norm()), rel=1e-9)


@pytest.mark.parametrize("name", ["exact", "kfac", "online"])
def test_rescaled_update_has_the_norm_of_the_gradient(name):
    net, land = network()
    backward(net, land.samples)
    length = float(gradient(net).norm())
    optimizer = BUILDERS[name](net, lr=1e-3, alpha=0.01, rescale=True)
    direction = move(net, optimizer, land.samples)
    assert float(direction.norm()) == pytest.approx(length, rel=1e-9)


def steps_to(loss, build, condition=1e4, limit=400):
    """Steps that linear regression with inputs of very different sizes takes to a loss, at the best of many rates."""
    generator = torch.Generator().manual_seed(0)
    basis, _ = torch.linalg.qr(torch.randn(64, 6, generator=generator, dtype=f64))
    x = basis * 8 * torch.logspace(0, -math.log10(condition) / 2, 6, dtype=f64)
    y = basis @ torch.randn(6, 2, generator=generator, dtype=f64)  # every direction counts the same
    best = limit
    for lr in (0.1, 0.3, 1.0, 1.9):
        net = nn.Linear(6, 2, bias=False).double()
        nn.init.zeros_(net.weight)
        optimizer = build(net, lr)
        first = None
        for step in range(best):
            optimizer.zero_grad()
            value = (net(x) - y).square().sum() / 128
            first = value.item() if first is None else first
            if value.item() < loss * first:
                best = step
                break
            value.backward()
            if hasattr(optimizer, "observe"):
                optimizer.observe(Samples(x, y, 64))
            optimizer.step()
    return best


def test_natural_gradient_needs_fewer_steps_on_an_ill_conditioned_problem():
    sgd = steps_to(1e-3, lambda net, lr: torch.optim.SGD(net.parameters(), lr=lr))
    exact = steps_to(1e-3, lambda net, lr: ExactNGD(net, "mse", lr=lr, alpha=1e-4))
    kfac = steps_to(1e-3, lambda net, lr: KFAC(net, "mse", lr=lr, alpha=1e-4))
    assert exact <= 5
    assert kfac <= 5
    assert sgd > 100


def test_layers_of_every_kind():
    """Convolution, embedding, attention and normalization go through the exact and the Kronecker form alike."""
    from gradient_cases import CASES

    for name in ("convolutions", "transformer", "twice"):
        land = CASES[name](f64)
        fisher = dense(land, "fisher")
        kappa = 0.1 / len(fisher) * fisher.trace()
        slope = torch.autograd.functional.jacobian(
            lambda flat, land=land: land.losses(land.unflatten(flat), land.samples).mean(),
            land.flatten(land.parameters),
        )
        truth = torch.linalg.solve(fisher + kappa * torch.eye(len(fisher), dtype=f64), slope)
        for build in (ExactNGD, KFAC):
            net = _module(land)
            for parameter, part in zip(net.parameters(), land.unflatten(slope).values(), strict=True):
                parameter.grad = part.clone()
            optimizer = build(net, land.loss.name, lr=1e-3, alpha=0.1)
            before = weights(net)
            optimizer.observe(land.samples)
            optimizer.step()
            result = (before - weights(net)) / 1e-3
            if build is ExactNGD:
                assert torch.allclose(result, truth, rtol=1e-6, atol=1e-8 * float(truth.abs().max()))
            else:
                assert float(result @ slope) > 0


def _module(land):
    """The landscape's network with its weights in it."""
    import copy

    net = copy.deepcopy(land.module).to_empty(device="cpu").to(f64)
    net.load_state_dict({**land._frozen, **land.parameters}, strict=False)
    return net


def test_bad_input_is_refused():
    net, land = network()
    for build in (ExactNGD, KFAC):
        backward(net, land.samples)
        with pytest.raises(bs.InputError, match="call observe"):
            build(net, lr=0.1).step()
        with pytest.raises(bs.InputError, match="alpha must be a positive finite number, got -1"):
            build(net, alpha=-1)
        with pytest.raises(bs.InputError, match="no known likelihood"):
            build(net, lambda output, target: output.square().sum(1)).observe(land.samples)
    with pytest.raises(bs.InputError, match="dual form knows one batch"):
        ExactNGD(net, eta=0.5, solve="dual")
    with pytest.raises(bs.InputError, match="solve must be"):
        ExactNGD(net, solve="cg")
    with pytest.raises(bs.InputError, match="must be a torch"):
        ExactNGD(list(net.parameters()))
    with pytest.raises(bs.InputError, match="eta"):
        OnlineNGD(net.parameters(), eta=2.0)
    with pytest.raises(bs.InputError, match="rank"):
        OnlineNGD(net.parameters(), rank=0)
    with pytest.raises(bs.InputError, match="momentum"):
        OnlineNGD(net.parameters(), momentum=1.0)
    with pytest.raises(bs.InputError, match="no preset 'kaldi' for 'exact'"):
        preset("kaldi", "exact")
    with pytest.raises(bs.InputError, match="not the state of ExactNGD"):
        ExactNGD(net).load_state_dict(torch.optim.SGD(net.parameters(), lr=0.1).state_dict())
    with pytest.raises(bs.InputError, match="not the state of EntropySGD"):
        EntropySGD(net.parameters()).load_state_dict(torch.optim.SGD(net.parameters(), lr=0.1).state_dict())


def test_large_networks_are_refused_by_the_exact_form():
    net = nn.Linear(20000, 2)
    optimizer = ExactNGD(net, "mse", eta=0.5)
    with pytest.raises(bs.InputError, match=r"primal form takes 40,002 × 40,002 matrices"):
        optimizer.observe(read((torch.randn(2, 20000), torch.randn(2, 2))))


def test_presets_are_still_there_by_their_former_names():
    for former, name in (("paper", "saghir-2024"), ("paper-figure-1", "saghir-2024-figure-1")):
        with pytest.warns(DeprecationWarning, match=f"preset '{former}' is now called '{name}'"):
            assert preset(former, "kfac") == preset(name, "kfac")


def test_presets_build_their_optimizers():
    net, land = network(torch.float32)
    for name in ("saghir-2024", "saghir-2024-figure-1"):
        for kind, build in (("exact", ExactNGD), ("kfac", KFAC)):
            move(net, build(net, **preset(name, kind)), land.samples)
        move(net, OnlineNGD(net.parameters(), **preset(name)), land.samples)
    move(net, OnlineNGD(net.parameters(), lr=0.01, **preset("kaldi")), land.samples)
    assert torch.isfinite(weights(net)).all()
