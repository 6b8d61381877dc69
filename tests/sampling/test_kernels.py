"""Every kernel against laws that are known exactly.

The target is a Gaussian of condition number 1e3 in double precision. Stiff modes start at zero and must find their
variance; the slowest starts from the law it should have and is run for about one relaxation time, which would carry a
wrong variance most of the way to where the kernel wants it. Standard errors come from the scatter between chains, and
are below a percent in the stiff modes, where step sizes show.
"""

import math

import numpy as np
import pytest
import torch
from scipy.linalg import solve_discrete_lyapunov

from basinscope.sampling.kernels import HMC, SGLD, SGNHT, LeimkuhlerMatthews, Random, RMSPropSGLD
from basinscope.sampling.kernels.hmc import LEAPFROG, THREE_STAGES
from basinscope.sampling.kernels.metropolis import Point, choose
from basinscope.sampling.rows import LONG, row_dot
from basinscope.sampling.target import Evaluation
from chance import assert_within

f64 = torch.float64
CURVATURES = torch.tensor([1.0, 30.0, 1e3], dtype=f64)
STIFFEST = 1e3
CHAINS = 2000
FREEDOM = 50  # fewer than chains less one: squares of normal numbers are skew, and means of 2000 of them still a little


@pytest.fixture(autouse=True)
def own_seed(seed):
    """Torch's own seed, from which all generators here are made, is that of the test."""
    torch.manual_seed(seed)


def generator(stream):
    """One of several generators of the test."""
    return torch.Generator().manual_seed(torch.initial_seed() + stream)


def gaussian(curvatures=CURVATURES, noise=None):
    """U = Σ a z²/2, optionally with Gaussian noise of the given covariance on every gradient."""
    random = generator(1)
    root = None if noise is None else torch.linalg.cholesky(noise)

    def evaluate(z):
        gradient = curvatures * z
        if root is not None:
            gradient = gradient + torch.randn(z.shape, generator=random, dtype=f64) @ root.T
        return Evaluation(0.5 * (curvatures * z.square()).sum(1), gradient, z.square().sum(1))

    return evaluate


def energy(evaluation):
    return evaluation.excess


def forces(z):
    return CURVATURES * z


def mala(eps, gradient):
    """The Metropolis-adjusted Langevin algorithm."""
    return HMC(eps**0.5, 1, energy, gradient, jittered=False)


def start(slow_variance=1.0, chains=CHAINS):
    """Zero, but for the slowest mode, which has the variance it should keep."""
    position = torch.zeros(chains, 3, dtype=f64)
    position[:, 0] = slow_variance**0.5 * torch.randn(chains, generator=generator(2), dtype=f64)
    return position


def second_moments(kernel, evaluate, position, steps, burn):
    """Mean of z zᵀ over every fifth draw after `burn`, chain by chain (C, d, d)."""
    random = Random.seeded(generator(0))
    state = kernel.init(position, evaluate, random)
    total = torch.zeros(*position.shape, position.shape[1], dtype=f64)
    for step in range(steps):
        state, draw = kernel.step(state, evaluate, random)
        if step >= burn and step % 5 == 0:
            total += draw.position[:, :, None] * draw.position[:, None, :]
    return total / len(range(burn + -burn % 5, steps, 5))


def variances(*arguments, **options):
    return second_moments(*arguments, **options).diagonal(dim1=1, dim2=2)


def agrees(per_chain, expected, precision=(0.05, 0.01, 0.01), bias=0.0):
    """Assert that means over chains are as near as chance allows, a known bias aside, and that it allows little."""
    expected = torch.as_tensor(expected, dtype=f64)
    mean, error = per_chain.mean(0), per_chain.std(0) / math.sqrt(len(per_chain))
    limit = torch.as_tensor(precision, dtype=f64) * expected.abs()
    assert (error <= limit).all(), f"too few draws to tell: {error / expected}"
    assert_within(mean, expected, error, FREEDOM, bias)


def test_sgld_has_the_bias_of_its_formula():
    # Σ = 1/(a(1 − εa/4)): 60 % too much in the stiffest mode, nothing to speak of in the slowest.
    eps = 1.5 / STIFFEST
    expected = 1 / (CURVATURES * (1 - eps * CURVATURES / 4))
    assert float(expected[2] * STIFFEST) == pytest.approx(1.6)
    agrees(variances(SGLD(eps), gaussian(), start(), steps=1500, burn=300), expected)


def test_sgld_lifts_the_variance_by_gradient_noise():
    # z' = ρz + √ε ξ + (ε/2)η gives Σ_ij (1 − ρ_iρ_j) = ε δ_ij + ε² N_ij/4; on the diagonal a factor 1 + εN/4.
    eps = 1.0 / STIFFEST
    mix = torch.tensor([[1.0, 0.5, -0.3], [0.5, 0.7, 0.2], [-0.3, 0.2, 1.5]], dtype=f64)
    noise = 3.0 / eps * mix
    diagonal = (1 + eps * noise.diagonal() / 4) / (CURVATURES * (1 - eps * CURVATURES / 4))
    assert float(diagonal[0]) == pytest.approx(1.75, rel=1e-3)
    moments = second_moments(SGLD(eps), gaussian(noise=noise), start(1.75), steps=1500, burn=300)
    agrees(moments.diagonal(dim1=1, dim2=2), diagonal)
    rho = 1 - eps * CURVATURES[1:] / 2
    covariance = eps**2 * noise[1, 2] / 4 / (1 - rho[0] * rho[1])
    agrees(moments[:, 1, 2], covariance, precision=0.2)


def test_leimkuhler_matthews_is_exact_at_a_large_step():
    # εa = 3, where SGLD would be four times too wide.
    eps = 3.0 / STIFFEST
    agrees(variances(LeimkuhlerMatthews(eps), gaussian(), start(), steps=1000, burn=200), 1 / CURVATURES)


def test_leimkuhler_matthews_feels_gradient_noise():
    # The part that gradient noise adds is SGLD's: (ε²N/4)/(1 − ρ²) on top of 1/a.
    eps = 1.0 / STIFFEST
    noise = torch.diag(torch.tensor([2.0, 4.0, 1.0], dtype=f64) / eps)
    rho = 1 - eps * CURVATURES / 2
    expected = 1 / CURVATURES + eps**2 * noise.diagonal() / 4 / (1 - rho**2)
    found = variances(LeimkuhlerMatthews(eps), gaussian(noise=noise), start(1.5), steps=1500, burn=300)
    agrees(found, expected)


def test_persistence_leaves_positions_exact_at_a_large_step():
    # εa = 2.5 of at most 4, with a momentum that lasts ten steps.
    kernel = LeimkuhlerMatthews(2.5 / STIFFEST, persistence=0.9)
    agrees(variances(kernel, gaussian(), start(), steps=1000, burn=200), 1 / CURVATURES)


def test_every_chain_may_have_a_persistence_of_its_own():
    eps = 1.5 / STIFFEST
    own = torch.linspace(0.0, 0.95, CHAINS, dtype=f64)
    agrees(variances(LeimkuhlerMatthews(eps, own), gaussian(), start(), steps=1000, burn=200), 1 / CURVATURES)
    same = LeimkuhlerMatthews(eps, torch.full((CHAINS,), 0.8, dtype=f64)), LeimkuhlerMatthews(eps, 0.8)
    found = [variances(kernel, gaussian(), start(), steps=50, burn=0) for kernel in same]
    torch.testing.assert_close(*found)


def with_persistence(eps, kept, noise):
    """Variances of positions when every mode has gradient noise: the fixed point of their covariance with momenta."""
    h, found = math.sqrt(eps), []
    for a, n in zip(CURVATURES.tolist(), noise, strict=True):
        # p ← p − h(az + η), p' = cp + √(1 − c²)ξ, z' = z + (h/2)(p + p')
        half = 0.5 * h * (1 + kept)
        move = np.array([[1 - half * h * a, half], [-kept * h * a, kept]])
        kicks = np.outer(*[[half * h, kept * h]] * 2) * n + np.outer(*[[0.5 * h, 1.0]] * 2) * (1 - kept**2)
        found.append(float(solve_discrete_lyapunov(move, kicks)[0, 0]))
    return torch.tensor(found, dtype=f64)


def test_persistence_feels_gradient_noise_as_the_longer_step_does():
    eps, kept = 0.5 / STIFFEST, 0.8
    longer = eps * (1 + kept) / (1 - kept)
    noise = [1.0 / longer] * 3
    expected = with_persistence(eps, kept, noise)
    lift = expected * CURVATURES - 1
    assert float(lift[0]) == pytest.approx(longer * noise[0] / 4, rel=1e-3), "slow modes, as with one long step"
    assert float(lift[2]) == pytest.approx(longer * noise[0] / 4, rel=0.2), "and stiff ones nearly so"
    kernel = LeimkuhlerMatthews(eps, kept)
    found = variances(
        kernel, gaussian(noise=torch.diag(torch.tensor(noise, dtype=f64))), start(1.25), steps=1000, burn=200
    )
    agrees(found, expected)


def test_sgnht_finds_the_gaussian():
    # At h√a = 0.1 the bias h²a/4 is 0.25 %, below a standard error. One thermostat serves all modes, so all of them
    # start from their law; ten units of time are ten relaxation times at unit friction.
    kernel = SGNHT(0.1 / STIFFEST**0.5)
    position = torch.randn(CHAINS, 3, generator=generator(2), dtype=f64) / CURVATURES.sqrt()
    agrees(variances(kernel, gaussian(), position, steps=3200, burn=1300), 1 / CURVATURES, precision=0.03)


def test_sgnht_absorbs_isotropic_gradient_noise():
    # Noise of variance N adds hN/2 to the diffusion A; the thermostat settles at A + hN/2 and the law stays.
    h, level, chains = 0.01, 300.0, 1000
    curvatures = torch.tensor([1.0, 1.0, 4.0, 4.0], dtype=f64)
    kernel, evaluate = SGNHT(h), gaussian(curvatures, noise=level * torch.eye(4, dtype=f64))
    random = Random.seeded(generator(0))
    state = kernel.init(torch.zeros(chains, 4, dtype=f64), evaluate, random)
    squares, thermostat = torch.zeros(chains, 4, dtype=f64), torch.zeros(chains, dtype=f64)
    for step in range(2000):
        state, draw = kernel.step(state, evaluate, random)
        if step >= 800:
            squares += draw.position.square() / 1200
            thermostat += state.thermostat[:, 0] / 1200
    # Without a thermostat the variance would be 1 + hN/2 = 2.5 times too large. Its own mean is right to order h.
    agrees(squares * curvatures, torch.ones(4, dtype=f64), precision=0.03)
    settled = 1 + h * level / 2
    agrees(thermostat[:, None], [settled], precision=0.005, bias=0.02 * settled)


def test_rmsprop_is_sgld_in_scaled_coordinates_once_frozen():
    # Per chain and mode: variance 1/(a(1 − εGa/4)) with that chain's own frozen G = 1/(√v + α).
    kernel, evaluate = RMSPropSGLD(0.045, warmup=300), gaussian()
    random = Random.seeded(generator(0))
    position = torch.randn(CHAINS, 3, generator=generator(2), dtype=f64) / CURVATURES.sqrt()
    state = kernel.init(position, evaluate, random)
    seconds = []
    squares = torch.zeros_like(position)
    for step in range(1600):
        state, draw = kernel.step(state, evaluate, random)
        if step in (100, 299, 300, 1000, 1599):
            seconds.append(state.second.clone())
        if step >= 600:
            squares += draw.position.square() / 1000
    assert not torch.equal(seconds[0], seconds[1]), "it learns during warm-up"
    assert all(torch.equal(seconds[1], later) for later in seconds[2:]), "and is frozen after it"
    scale = 0.045 / (state.second.sqrt() + kernel.floor)
    bias = 1 / (1 - scale * CURVATURES / 4)
    assert float(bias[:, 2].mean()) > 1.3, "the stiffest mode must feel its step"
    agrees(squares * CURVATURES / bias, torch.ones(3, dtype=f64), precision=0.05)


def test_mala_is_exact_where_sgld_is_not():
    # εa = 1.5 in the stiffest mode: unadjusted it would be 60 % too wide.
    eps = 1.5 / STIFFEST
    agrees(variances(mala(eps, forces), gaussian(), start(), steps=1500, burn=300), 1 / CURVATURES)


@pytest.mark.parametrize("drift_first", [False, True])
@pytest.mark.parametrize(("integrator", "step"), [(LEAPFROG, 1.5), (THREE_STAGES, 3.8)])
def test_hmc_is_exact_where_its_integrator_is_not(integrator, step, drift_first):
    # h√a = 1.5 or 3.8, jittered. Unadjusted leapfrog would have 1/(1 − h²a/4) = 2.3 times the variance or as much less,
    # three stages 0.84 times at 3.8 and 0.3 times at 4.5, or as much more.
    step /= STIFFEST**0.5
    kernel = HMC(step, round(0.5 * math.pi / step), energy, forces, drift_first, integrator)
    position = torch.zeros(CHAINS, 3, dtype=f64)
    agrees(variances(kernel, gaussian(), position, steps=120, burn=40), 1 / CURVATURES, precision=0.02)


@pytest.mark.parametrize(("drift_first", "leaves"), [(False, False), (True, True)])
@pytest.mark.parametrize(("integrator", "step"), [(LEAPFROG, 0.1), (THREE_STAGES, 0.5)])
def test_chains_leave_a_minimum_of_high_dimension_by_steps_that_drift_first(integrator, step, drift_first, leaves):
    # After a quarter period z² is 1 instead of 0, and p² 0 instead of 1: leapfrog energies change by ± dh²/8 = 125.
    kernel = HMC(step, round(0.5 * math.pi / step), energy, lambda z: z, drift_first, integrator)
    random = Random.seeded(generator(0))
    state = kernel.init(torch.zeros(20, 100_000, dtype=torch.float32), unit, random)
    state, draw = kernel.step(state, unit, random)
    usual = draw.acceptance[draw.acceptance.argsort()][:10]  # the others may have taken a smaller step
    assert bool((usual == 1).all()) if leaves else bool((usual < 1e-10).all())


@pytest.mark.parametrize("drift_first", [False, True])
@pytest.mark.parametrize("integrator", [LEAPFROG, THREE_STAGES])
@pytest.mark.parametrize("leaps", [1, 2, 7])
def test_paths_are_reversible(leaps, integrator, drift_first):
    """The path back from its end, with momentum turned round, ends where it began."""
    kernel = HMC(0.3, leaps, energy, lambda z: z**3, drift_first, integrator)
    step, ahead = torch.tensor([[0.3]], dtype=f64), torch.tensor([[0.7, -1.1]], dtype=f64)
    position, momentum = torch.tensor([[0.4, 0.2]], dtype=f64), ahead
    for turn in (1, -1):
        momentum = turn * momentum
        position, momentum, _ = kernel.path(position, momentum, step, quartic(position).gradient, quartic)
    torch.testing.assert_close(position, torch.tensor([[0.4, 0.2]], dtype=f64))
    torch.testing.assert_close(-momentum, ahead)


@pytest.mark.parametrize("drift_first", [False, True])
def test_three_stages_follow_the_motion_better_than_leapfrog_with_as_many_gradients(drift_first):
    """A quarter of a circle: second order, with a fifth of the energy error, h²/8, of leapfrog steps at most."""
    position, momentum = torch.tensor([[1.0]], dtype=f64), torch.zeros(1, 1, dtype=f64)
    errors = []
    for leaps in (2, 4):
        h = 0.5 * math.pi / leaps
        kernel = HMC(h, leaps, energy, lambda z: z, drift_first, THREE_STAGES)
        *there, _ = kernel.path(position, momentum, torch.full((1, 1), h, dtype=f64), position, unit)
        errors.append(abs(sum(float(part.square()) for part in there) / 2 - 0.5))
        assert errors[-1] < 0.2 * (h / 3) ** 2 / 8
    assert 3 < errors[0] / errors[1] < 5


@pytest.mark.parametrize(("integrator", "each"), [(LEAPFROG, 1), (THREE_STAGES, 3)])
def test_a_path_takes_the_gradients_it_says(integrator, each):
    calls = []
    for drift_first in (False, True):
        kernel = HMC(0.3, 5, energy, lambda z: calls.append(0) or z, drift_first, integrator)
        assert kernel.gradients == 5 * each
        at = torch.ones(2, 3, dtype=f64)
        kernel.path(at, at, torch.full((2, 1), 0.3, dtype=f64), at, lambda z: calls.append(0) or unit(z))
    assert len(calls) == 2 * 5 * each + 1, "drifting first takes one more"


def unit(z):
    return Evaluation(0.5 * z.double().square().sum(1), z, z.double().square().sum(1))


def quartic(z):
    return Evaluation(0.25 * z.square().square().sum(1), z**3, z.square().sum(1))


@pytest.mark.parametrize("kind", ["mala", "hmc", "hmc, three stages"])
def test_metropolis_kernels_are_exact_on_a_quartic(kind):
    # π ∝ exp(−z⁴/4): E z⁴ = 1 by the virial identity, E z² = 2Γ(3/4)/Γ(1/4), E z⁶ = E (z⁴)^(3/2) = 8Γ(7/4)/Γ(1/4).
    kernels = {
        "mala": mala(0.8, lambda z: z**3),
        "hmc": HMC(0.9, 3, energy, lambda z: z**3),
        "hmc, three stages": HMC(2.0, 3, energy, lambda z: z**3, integrator=THREE_STAGES),
    }
    kernel = kernels[kind]
    random = Random.seeded(generator(0))
    position = torch.zeros(CHAINS, 1, dtype=f64)
    state = kernel.init(position, quartic, random)
    moments = torch.zeros(CHAINS, 3, dtype=f64)
    accepted = 0.0
    for step in range(600):
        state, draw = kernel.step(state, quartic, random)
        if step >= 100:
            moments += torch.cat([draw.position**2, draw.position**4, draw.position**6], 1) / 500
            accepted += float(draw.acceptance.mean()) / 500
    gamma = math.gamma
    exact = [2 * gamma(3 / 4) / gamma(1 / 4), 1.0, 8 * gamma(7 / 4) / gamma(1 / 4)]
    assert 0.3 < accepted < 0.9, "rejections must matter"
    agrees(moments, exact, precision=0.01)


@pytest.mark.parametrize(
    "kernel",
    [SGLD(1e-4), LeimkuhlerMatthews(1e-4), RMSPropSGLD(1e-3), SGNHT(1e-3), mala(1e-4, forces)],
    ids=lambda kernel: type(kernel).__name__,
)
def test_a_draw_is_evaluated_where_it_was_drawn(kernel):
    # A loss read after the step that its own minibatch made is biased by −(ε(nβ)²/2m) Tr C.
    random = Random.seeded(generator(0))
    state = kernel.init(start(chains=5), gaussian(), random)
    for _ in range(3):
        before = state.position
        state, draw = kernel.step(state, gaussian(), random)
        here = gaussian()(draw.position)
        assert torch.equal(draw.evaluation.gradient, here.gradient)
        assert torch.equal(draw.evaluation.excess, here.excess)
        expected = state.position if isinstance(kernel, HMC) else before
        assert torch.equal(draw.position, expected)


@pytest.mark.parametrize("build", [SGLD, LeimkuhlerMatthews, RMSPropSGLD, SGNHT, lambda e: mala(e, forces)])
def test_every_chain_may_have_its_own_step_size(build):
    sizes = torch.tensor([1e-4, 3e-5, 1e-5], dtype=f64)
    together = variances(build(sizes), gaussian(), start(chains=3), steps=20, burn=0)
    for chain, size in enumerate(sizes):
        alone = variances(build(float(size)), gaussian(), start(chains=3), steps=20, burn=0)
        assert torch.allclose(together[chain], alone[chain], rtol=1e-12)


def test_broken_proposals_are_rejected():
    def point(energies):
        energies = torch.tensor(energies, dtype=f64)
        position = energies[:, None].clone()
        return Point(position, energies, position, energies, energies)

    old, new = point([1.0, 2.0, 3.0, 4.0]), point([math.nan, math.inf, 0.0, 5.0])
    chosen, acceptance = choose(old, new, old.energy - new.energy, torch.tensor([0.0, 0.0, 0.9, 0.5], dtype=f64))
    assert chosen.energy.tolist() == [1.0, 2.0, 0.0, 4.0]
    assert chosen.position.squeeze(1).tolist() == [1.0, 2.0, 0.0, 4.0]
    assert acceptance.tolist() == pytest.approx([0.0, 0.0, 1.0, math.exp(-1)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [1, 7, LONG - 1, LONG])
def test_products_of_rows(size, dtype):
    generator = torch.Generator().manual_seed(size)
    a, b = (torch.randn(3, size + 5, generator=generator, dtype=dtype)[:, :size] for _ in range(2))
    exact = (a.double() * b.double()).sum(1)
    torch.testing.assert_close(row_dot(a, b).double(), exact, rtol=1e-5, atol=1e-3 if dtype == torch.float32 else 1e-9)
