"""Nesterov's momentum: torch's own where natural gradient is plain, the formula where it is not."""

import pytest
import torch

import basinscope as bs
from basinscope.optim import KFAC, ExactNGD, OnlineNGD, preset
from basinscope.training.population import SGD, Member, Population
from basinscope.training.population import OnlineNGD as Stacked
from basinscope.zoo import models
from training_cases import data, network

f64 = torch.float64
MOMENTUM = {"momentum": 0.9, "nesterov": True}
BUILDERS = {
    "exact": lambda net, **options: ExactNGD(net, **options),
    "kfac": lambda net, **options: KFAC(net, **options),
    "online": lambda net, **options: OnlineNGD(net.parameters(), **options),
}


def train(net, optimizer, steps=12):
    x, y = data()
    for step in range(steps):
        few = torch.arange(5 * step, 5 * step + 20) % len(x)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x[few]), y[few]).backward()
        if hasattr(optimizer, "observe"):
            optimizer.observe(bs.samples.Samples(x[few], y[few], 20))
        optimizer.step()
    return torch.cat([parameter.detach().flatten() for parameter in net.parameters()])


@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize("name", BUILDERS)
def test_with_infinite_smoothing_every_step_is_that_of_torchs_sgd(name, nesterov):
    net, twin = (network(f64, dropout=0.0) for _ in range(2))
    own = {"lr": 0.1, "momentum": 0.9, "nesterov": nesterov, "weight_decay": 0.01}
    result = train(net, BUILDERS[name](net, alpha=1e12, rescale=True, **own))
    wanted = train(twin, torch.optim.SGD(twin.parameters(), **own))
    assert torch.allclose(result, wanted, rtol=0, atol=1e-9)


@pytest.mark.parametrize("alpha", [0.0, 0.3])
def test_a_step_goes_along_the_direction_and_the_velocity(alpha):
    """Directions d_t from an optimizer without momentum, w ← w − lr (d + μ v) with v ← μ v + d, summed up densely."""
    generator = torch.Generator().manual_seed(0)
    gradients = torch.randn(15, 4, 6, generator=generator, dtype=f64)
    settings = {"lr": 0.1, "alpha": alpha, "epsilon": 1e-3, "rank": 2}
    weight, plain = (torch.nn.Parameter(torch.zeros(4, 6, dtype=f64)) for _ in range(2))
    optimizer, direction_only = OnlineNGD([weight], **settings, **MOMENTUM), OnlineNGD([plain], **settings)
    directions = []
    for t, gradient in enumerate(gradients):
        before, old = weight.detach().clone(), plain.detach().clone()
        weight.grad, plain.grad = gradient.clone(), gradient.clone()
        optimizer.step()
        direction_only.step()
        directions.append((old - plain.detach()) / 0.1)
        velocity = sum(0.9 ** (t - s) * directions[s] for s in range(t + 1))
        move = directions[t] + 0.9 * velocity
        assert torch.allclose(before - weight, 0.1 * move, rtol=1e-9, atol=1e-12)
        assert float(optimizer.norms["update"]) == pytest.approx(0.1 * float(move.norm()), rel=1e-9)


def test_without_smoothing_a_direction_is_that_of_the_dense_inverse():
    """α = 0 and a rank of D − 1: X F⁻¹ with F = ηS + (1 − η)F, floors out of reach."""
    generator = torch.Generator().manual_seed(1)
    weight = torch.nn.Parameter(torch.zeros(50, 1, dtype=f64))
    options = {"lr": 1.0, "alpha": 0.0, "epsilon": 1e-2, "delta": 0.0, "rescale": False, "eta": 0.5}
    optimizer = OnlineNGD([weight], **options, update_period=1)
    fisher = None
    for _ in range(6):
        row = torch.randn(50, generator=generator, dtype=f64)
        before = weight.detach().clone()
        weight.grad = row[:, None].clone()
        optimizer.step()
        state = next(iter(optimizer._axes.states.values()))
        if fisher is not None:
            wanted = torch.linalg.solve(fisher, row)
            assert torch.allclose((before - weight)[:, 0], wanted, rtol=1e-8, atol=1e-10)
        fisher = state.basis.mT @ torch.diag(state.spectrum) @ state.basis + state.floor * torch.eye(50, dtype=f64)


def test_it_resumes_to_the_bit():
    nets = [network(torch.float32, dropout=0.0).double() for _ in range(2)]
    made = [OnlineNGD(net.parameters(), lr=0.05, **MOMENTUM) for net in nets]
    whole = [train(nets[0], made[0], 7), train(nets[0], made[0], 9)][-1]
    train(nets[1], made[1], 7)
    other = network(torch.float32, dropout=0.0).double()
    other.load_state_dict(nets[1].state_dict())
    resumed = OnlineNGD(other.parameters(), lr=0.05, **MOMENTUM)
    resumed.load_state_dict(made[1].state_dict())
    assert torch.equal(train(other, resumed, 9), whole)


def test_it_needs_a_momentum():
    net = network()
    for build in BUILDERS.values():
        with pytest.raises(bs.InputError, match="nesterov needs a momentum above 0"):
            build(net, nesterov=True)
    with pytest.raises(bs.InputError, match="nesterov needs a momentum above 0"):
        Stacked(nesterov=True)
    with pytest.raises(bs.InputError, match="alpha must be a positive finite number, got 0"):
        KFAC(net, alpha=0.0)


@pytest.mark.parametrize("kind", ["exact", "kfac", "online"])
def test_the_papers_presets_have_it(kind):
    options = preset("saghir-2024", kind)
    assert (options["momentum"], options["nesterov"]) == (0.9, True)


# ---------------------------------------------------------------------- populations

IMAGES = torch.rand(60, 9, generator=torch.Generator().manual_seed(0), dtype=f64)
LABELS = torch.arange(60) % 4
MEMBERS = [Member(seed=3, lr=0.01, batch_size=8), Member(seed=4, lr=0.02, batch_size=5), Member(seed=5, lr=0.01)]
ALPHAS, EPSILONS = (0.0, 0.1, 10.0), (1e-4, 1e-10, 1e-2)


def build():
    return models.ffnn([9, 6, 4]).double()


def twin(population, member, alpha, epsilon, steps):
    """A member trained alone on the same minibatches."""
    own = population.members[member]
    torch.manual_seed(own.seed)
    net = build()
    optimizer = OnlineNGD(net.parameters(), lr=own.lr, alpha=alpha, epsilon=epsilon, **MOMENTUM)
    for step in range(steps):
        few = population.batch(member, step)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(IMAGES[few]), LABELS[few]).backward()
        optimizer.step()
    return net


def test_members_with_smoothing_of_their_own_are_twins_trained_alone():
    optimizer = Stacked(alpha=ALPHAS, epsilon=EPSILONS, **MOMENTUM)
    population = Population(build, MEMBERS, (IMAGES, LABELS), optimizer=optimizer)
    population.train(40, progress=False)
    for m in range(3):
        alone = twin(population, m, ALPHAS[m], EPSILONS[m], 40)
        for ours, theirs in zip(population.model(m).parameters(), alone.parameters(), strict=True):
            # eigenvalue problems and divisions by small numbers magnify rounding
            assert torch.allclose(ours, theirs, rtol=1e-4, atol=1e-6)


def test_a_population_with_infinite_smoothing_is_one_trained_with_sgd():
    groups = [
        Population(build, MEMBERS, (IMAGES, LABELS), optimizer=optimizer)
        for optimizer in (Stacked(alpha=1e12, **MOMENTUM), SGD(0.9, nesterov=True))
    ]
    for group in groups:
        group.train(40, progress=False)
    for name, ours in groups[0].parameters.items():
        assert torch.allclose(ours, groups[1].parameters[name], rtol=0, atol=1e-9)


def test_a_population_resumes_to_the_bit(tmp_path):
    def make():
        optimizer = Stacked(alpha=ALPHAS, epsilon=EPSILONS, **MOMENTUM)
        return Population(build, MEMBERS, (IMAGES, LABELS), optimizer=optimizer)

    whole, first, last = make(), make(), make()
    whole.train(90, progress=False)
    first.train(64, checkpoint=tmp_path / "p.npz", progress=False)
    last.train(90, checkpoint=tmp_path / "p.npz", progress=False)
    for name, ours in whole.parameters.items():
        assert torch.equal(ours, last.parameters[name])


def test_as_many_values_as_members():
    with pytest.raises(bs.InputError, match="alpha must be a number or one for each of 3 members, got 2"):
        Population(build, MEMBERS, (IMAGES, LABELS), optimizer=Stacked(alpha=(0.1, 0.2)))
    with pytest.raises(bs.InputError, match="alpha must be a positive finite number, got -1"):
        Stacked(alpha=(0.1, -1.0))


# ---------------------------------------------------------------------- the published arithmetic


def directions(single, dtype, steps):
    generator = torch.Generator().manual_seed(2)
    scales = torch.logspace(0, -3, 60, dtype=f64)
    weight = torch.nn.Parameter(torch.zeros(30, 60, dtype=dtype))
    optimizer = OnlineNGD([weight], lr=1.0, alpha=0.01, single=single)
    moves = []
    for _ in range(steps):
        weight.grad = (torch.randn(30, 60, generator=generator, dtype=f64) * scales).to(dtype)
        before = weight.detach().clone()
        optimizer.step()
        moves.append((before - weight.detach()).double())
    return torch.stack(moves), optimizer._axes.states[0, 1]


def test_the_published_arithmetic_is_the_same_algorithm_where_nothing_is_rounded_away():
    ours, theirs = directions(False, f64, 40)[0], directions(True, f64, 40)[0]
    assert torch.allclose(ours, theirs, rtol=1e-4, atol=1e-6 * float(ours.abs().max()))


def test_in_single_precision_the_published_arithmetic_loses_its_orthonormal_basis():
    for single, lost in ((False, False), (True, True)):
        state = directions(single, torch.float32, 200)[1]
        products = state.basis.double() @ state.basis.double().mT
        error = float((products - torch.eye(len(products), dtype=f64)).abs().max())
        assert (error > 0.1) == lost
    assert preset("saghir-2024")["single"]
