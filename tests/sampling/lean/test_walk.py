"""Chains on quadratics, where every step size gives the exact variance and bfloat16 weights do not."""

from __future__ import annotations

import math

import pytest
import torch

from basinscope.sampling.lean.noise import CounterNoise
from basinscope.sampling.lean.passes import Passes
from basinscope.sampling.lean.walk import LeanWalk, all_losses
from basinscope.sampling.lean.weights import Step, Weights
from sampling.lean.quadratic import Quadratic


def mean_excess(subject: Quadratic, step: Step, steps: int, *, delta: str | None = None, nbeta: float = 1.0) -> float:
    """The mean of nβ·excess after half of the steps."""
    weights = Weights(subject.leaves, delta)
    passes = Passes(subject, weights, 8)
    walk = LeanWalk(subject, weights, passes, nbeta, 8, all_losses(subject, passes, 8))
    with passes.listening():
        record = walk.chain(step, steps, CounterNoise(0, 0), subject.batches(8, 0))
    weights.restore()
    return float(record.after(0.5).excess.mean())


@pytest.mark.parametrize("kept", [0.0, 0.6])
@pytest.mark.parametrize("delta", [None, "float32", "bfloat16"])
def test_quadratics_are_exact_at_every_step(kept: float, delta: str | None) -> None:
    generator = torch.Generator().manual_seed(0)
    d, gamma = 4000, 0.5
    sigma = torch.logspace(0, 1, d)
    subject = Quadratic(0.03 * torch.randn(d, generator=generator), sigma)
    scales = (1.0, 0.3)
    step = Step(0.15, gamma, scales, kept)
    got = mean_excess(subject, step, 600, delta=delta)
    exact = 0.5 * float((sigma / (sigma + gamma)).sum())
    assert abs(got / exact - 1) < 5 * math.sqrt(2 / d / 15)  # the slowest modes relax in 20 steps


def test_plain_bfloat16_weights_are_wrong_where_stochastic_rounding_is_right() -> None:
    generator = torch.Generator().manual_seed(1)
    d, curvature, size = 20_000, 3e4, 1e-6
    star = (0.03 * torch.randn(d, generator=generator)).bfloat16()
    exact, steps = d / 2, 600
    step = Step(size, 1e-3, (1.0, 1.0))
    sigma = torch.full((d,), curvature)
    rounded = mean_excess(Quadratic(star.float(), sigma), step, steps, delta="bfloat16")
    kept_apart = mean_excess(Quadratic(star.float(), sigma), step, steps)
    assert abs(rounded / exact - 1) < 0.02
    assert abs(kept_apart / exact - 1) < 0.02
    assert plain_bfloat16(star, curvature, size, steps) > 1.1 * exact


def plain_bfloat16(star: torch.Tensor, curvature: float, size: float, steps: int) -> float:
    """The same chain on bfloat16 weights that every step rounds to the nearest."""
    generator = torch.Generator().manual_seed(2)
    weights, seen = star.clone(), []
    for _ in range(steps):
        delta = weights.float() - star.float()
        seen.append(0.5 * curvature * float(delta.square().sum()))
        gradient = (curvature * delta).bfloat16()
        weights.add_(gradient, alpha=-0.5 * size)
        weights.add_(torch.randn(len(star), generator=generator).bfloat16(), alpha=math.sqrt(size))
    return sum(seen[steps // 2 :]) / len(seen[steps // 2 :])


def test_the_same_seed_gives_the_same_chain_and_weights_come_back() -> None:
    star = torch.linspace(-1, 1, 10)
    subject = Quadratic(star, torch.ones(10))
    first, again = (mean_excess(subject, Step(0.2, 1.0, (1.0, 1.0)), 50) for _ in range(2))
    assert first == again
    assert torch.equal(torch.cat([leaf.detach() for leaf in subject.leaves.values()]), star)


@pytest.mark.parametrize("delta", [None, "float32", "bfloat16"])
def test_a_look_at_the_minimum_moves_nothing(delta: str | None) -> None:
    star = torch.linspace(-1, 1, 10)
    subject = Quadratic(star, torch.ones(10))
    weights = Weights(subject.leaves, delta)
    weights.begin(Step(0.2, 1.0, (1.0, 1.0)), CounterNoise(0, 0))
    for number in range(2):
        weights.move(number, torch.zeros(5), Step(0.2, 1.0, (1.0, 1.0)), CounterNoise(0, 0), 0)
    here, away = subject.leaves["a"].detach().clone(), weights.displacement(0).clone()
    for _ in range(2):
        with weights.at_star():
            assert torch.equal(subject.leaves["a"].detach(), star[:5])
        assert torch.equal(subject.leaves["a"].detach(), here)
        assert torch.equal(weights.displacement(0), away)


def test_an_exchange_that_is_cut_short_loses_nothing() -> None:
    star = torch.linspace(-1, 1, 10)
    subject = Quadratic(star, torch.ones(10))
    weights = Weights(subject.leaves)
    weights.begin(Step(0.2, 1.0, (1.0, 1.0)), CounterNoise(0, 0))
    for number in range(2):
        weights.move(number, torch.zeros(5), Step(0.2, 1.0, (1.0, 1.0)), CounterNoise(0, 0), 0)
    assert not torch.equal(subject.leaves["a"].detach(), star[:5])
    with weights.at_star():
        assert torch.equal(subject.leaves["a"].detach(), star[:5])
    assert not torch.equal(subject.leaves["a"].detach(), star[:5])
    weights._at_star[0] = True  # as if cut off after w* had come into the network, before w went out of it
    subject.leaves["a"].data.copy_(star[:5])
    weights.restore()
    assert torch.equal(torch.cat([leaf.detach() for leaf in subject.leaves.values()]), star)
