"""Chains on a GPU against the same chains on the processor."""

import pytest
import torch

import basinscope as bs
import lacking
from basinscope.sampling import linear
from basinscope.sampling.adjusted import hamiltonian
from basinscope.sampling.chains import ChainLosses
from basinscope.sampling.target import Target, Whitening
from chance import SAMPLED, assert_within

pytestmark = lacking.GPU.mark


def land_on(device, dtype):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(7, 33), torch.nn.Tanh(), torch.nn.Linear(33, 3)).to(device, dtype)
    x, y = torch.randn(50, 7, dtype=dtype), torch.randint(3, (50,))
    return bs.Landscape(net, "cross_entropy", (x.to(device), y.to(device)))


@pytest.mark.parametrize("large", [1, 2**14], ids=["in place", "as vmap does"])
def test_losses_and_gradients_are_those_of_the_processor(large, monkeypatch):
    monkeypatch.setattr(linear, "LARGE", large)
    here, there = land_on("cpu", torch.float64), land_on("cuda", torch.float64)
    delta = 0.1 * torch.randn(5, here.dimension, dtype=torch.float64)
    indices = torch.randint(50, (5, 8))
    moved = ChainLosses(there).full(delta.cuda())
    torch.testing.assert_close([tensor.cpu() for tensor in moved], list(ChainLosses(here).full(delta)))
    moved = ChainLosses(there).minibatch(delta.cuda(), indices.cuda())
    torch.testing.assert_close([tensor.cpu() for tensor in moved], list(ChainLosses(here).minibatch(delta, indices)))


@pytest.mark.parametrize("network", ["feedforward", "convolutional"])
def test_energies_and_forces_are_precise_whatever_the_program_has_set(network):
    """TF32 has errors of 1e-4 to 1e-3."""
    torch.manual_seed(0)
    first, width = (torch.nn.Linear(100, 64), 64) if network == "feedforward" else (torch.nn.Conv2d(4, 8, 2), 128)
    net = torch.nn.Sequential(first, torch.nn.Tanh(), torch.nn.Flatten(), torch.nn.Linear(width, 3)).cuda()
    x, y = torch.randn(50, 100, device="cuda"), torch.randint(3, (50,), device="cuda")
    x = x if network == "feedforward" else x.view(50, 4, 5, 5)
    d = sum(weight.numel() for weight in net.parameters())
    vectors, place = torch.linalg.qr(torch.randn(d, 9, device="cuda"))[0], torch.randn(4, d, device="cuda")

    def evaluation(dtype):
        land = bs.Landscape(net.to(dtype), "cross_entropy", (x.to(dtype), y))
        scales = torch.linspace(0.01, 0.1, 9, dtype=dtype, device="cuda")
        target = Target(ChainLosses(land), 100.0, 2.0, Whitening(vectors.to(dtype), scales, 0.1))
        return *target.full(place.to(dtype)), target.force(place.to(dtype)), target.force(place.to(dtype), rounded=True)

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        found = evaluation(torch.float32)
    finally:
        torch.set_float32_matmul_precision(before)
    errors = [
        float((ours.double() - exact).norm() / exact.norm())
        for ours, exact in zip(found, evaluation(torch.float64), strict=True)
    ]
    assert max(errors[:-1]) < 1e-5
    assert 1e-5 < errors[-1] < 1e-2


@pytest.mark.parametrize("network", ["feedforward", "convolutional"])
def test_captured_evaluations_are_the_evaluations(network):
    """Again and again, in any order, with results that later calls leave alone."""
    land = land_on("cuda", torch.float64)
    if network == "convolutional":
        net = torch.nn.Sequential(torch.nn.Conv2d(1, 3, 2), torch.nn.Flatten(), torch.nn.Linear(12, 3))
        images = torch.randn(50, 1, 3, 3, dtype=torch.float64)
        land = bs.Landscape(net.double().cuda(), "cross_entropy", (images, land.samples.target.cpu()))
    target = Target(ChainLosses(land), 10.0, 2.0, Whitening.identity(land.flatten(land.parameters), 0.5))
    full, kernel = hamiltonian(target)
    force = kernel(1.0, 1).forces
    places = [0.3 * torch.randn(4, land.dimension, dtype=torch.float64, device="cuda") for _ in range(3)]
    forces = [force(place) for place in places]
    evaluations = [full(place) for place in places]
    forces += [force(place) for place in places]
    assert force._graph is not None
    assert full._graph is not None
    for place, found in zip(places + places, forces, strict=True):
        torch.testing.assert_close(found, target.force(place))
    for place, evaluation in zip(places, evaluations, strict=True):
        torch.testing.assert_close(tuple(evaluation), tuple(target.full(place)))


def test_hamiltonian_chains_find_a_quadratic(seed):
    """λ̂ = ½ Σ nβσ/(nβσ + γ), exactly."""
    torch.manual_seed(0)
    net, x = torch.nn.Linear(20, 1, bias=False).cuda(), torch.randn(200, 20, device="cuda")
    land = bs.Landscape(net, "mse", (x, net(x).detach()))
    stiffness = 200.0 * torch.linalg.eigvalsh(2 * x.T @ x / 200)
    found = bs.llc(land, nbeta=200.0, gamma=1.0, sampler="hmc", draws=200, chains=8, seed=seed)
    exact = 0.5 * float((stiffness / (stiffness + 1.0)).sum())
    assert found.stderr < 0.05 * exact
    assert_within(found.value, exact, found.stderr, SAMPLED, bias=1e-3 * exact)


def test_a_recorded_step_is_the_step(seed):
    """A CUDA graph replays what plain calls would have done: λ̂ of a quadratic, known to a few per cent on either."""
    found = []
    for device in ("cpu", "cuda"):
        torch.manual_seed(0)
        net, x = torch.nn.Linear(20, 1, bias=False), torch.randn(200, 20)
        land = bs.Landscape(net.to(device), "mse", (x.to(device), net(x.to(device)).detach()))
        settings = {"nbeta": 200.0, "gamma": 1.0, "step_size": 2e-3, "chains": 8, "draws": 1500, "batch_size": 200}
        found.append(bs.llc(land, sampler="sgld", seed=seed, **settings))
    spread = (found[0].stderr ** 2 + found[1].stderr ** 2) ** 0.5
    assert spread < 0.05 * found[0].value
    assert_within(found[0].value, found[1].value, spread, SAMPLED)
