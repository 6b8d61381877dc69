"""Entropy-SGD on a quadratic, where every number of its update is known."""

import math

import pytest
import torch

import basinscope as bs
from basinscope.optim import EntropySGD
from chance import assert_within

f64 = torch.float64


def quadratic(size=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    root = torch.randn(size, size, generator=generator, dtype=f64)
    return root @ root.T / size, torch.randn(size, generator=generator, dtype=f64)


def closure_for(x, hessian, centre):
    def closure():
        away = x.detach() - centre
        x.grad = hessian @ away
        return 0.5 * away @ hessian @ away

    return closure


def mean_of_inner_loop(x, hessian, centre, steps, rate, gamma, averaging):
    """μ in closed form: x'_l = x* + Aˡ(x − x*), A = I − η'(H + γ), x* = (H + γ)⁻¹(Hc + γx)."""
    identity = torch.eye(len(x), dtype=f64)
    resting = torch.linalg.solve(hessian + gamma * identity, hessian @ centre + gamma * x)
    contraction = identity - rate * (hessian + gamma * identity)
    mean = averaging**steps * x
    for l in range(1, steps + 1):
        inner = resting + torch.linalg.matrix_power(contraction, l) @ (x - resting)
        mean = mean + (1 - averaging) * averaging ** (steps - l) * inner
    return mean


@pytest.mark.parametrize("times_gamma", [False, True])
def test_update_on_a_quadratic_in_closed_form(times_gamma):
    hessian, centre = quadratic()
    x = torch.nn.Parameter(torch.ones(5, dtype=f64))
    settings = {"inner_steps": 7, "inner_lr": 0.1, "averaging": 0.75}
    optimizer = EntropySGD([x], lr=0.6, gamma=0.3, scoping=0.5, noise=0.0, times_gamma=times_gamma, **settings)
    for t in range(4):
        gamma = 0.3 * 1.5**t
        start = x.detach().clone()
        mean = mean_of_inner_loop(start, hessian, centre, 7, 0.1, gamma, 0.75)
        factor = gamma if times_gamma else 1.0
        optimizer.step(closure_for(x, hessian, centre))
        assert torch.allclose(x.detach(), start - 0.6 * factor * (start - mean), atol=1e-12)
        assert float(optimizer.norms["direction"]) == pytest.approx(factor * float((start - mean).norm()), rel=1e-9)
        assert float(optimizer.norms["update"]) == pytest.approx(float((x.detach() - start).norm()), rel=1e-9)


def test_momentum_in_both_loops_in_closed_form():
    """Inner: (x' − x*, v) moves by the powers of a matrix, from v = 0 in every step; outer: v is kept."""
    hessian, centre = quadratic()
    rate, gamma, keep, past, steps = 0.1, 0.3, 0.9, 0.25, 6
    x = torch.nn.Parameter(torch.ones(5, dtype=f64))
    optimizer = EntropySGD(
        [x], lr=0.4, inner_steps=steps, inner_lr=rate, gamma=gamma, scoping=0.0, noise=0.0, averaging=past,
        momentum=keep,
    )  # fmt: skip
    identity = torch.eye(5, dtype=f64)
    stiff = hessian + gamma * identity
    one = torch.cat(
        [torch.cat([identity - rate * stiff, -rate * keep * identity], 1), torch.cat([stiff, keep * identity], 1)]
    )
    velocity = torch.zeros(5, dtype=f64)
    for _ in range(4):
        start = x.detach().clone()
        resting = torch.linalg.solve(stiff, hessian @ centre + gamma * start)
        begin = torch.cat([start - resting, torch.zeros(5, dtype=f64)])
        mean = past**steps * start
        for l in range(1, steps + 1):
            inner = resting + (torch.linalg.matrix_power(one, l) @ begin)[:5]
            mean = mean + (1 - past) * past ** (steps - l) * inner
        velocity = keep * velocity + start - mean
        optimizer.step(closure_for(x, hessian, centre))
        assert torch.allclose(x.detach(), start - 0.4 * velocity, atol=1e-12)
        assert float(optimizer.norms["direction"]) == pytest.approx(float((start - mean).norm()), rel=1e-9)
        assert float(optimizer.norms["update"]) == pytest.approx(float((x.detach() - start).norm()), rel=1e-9)


def test_a_long_inner_loop_follows_the_gradient_of_the_local_entropy():
    """γ(x − ⟨x'⟩) = γ(H + γ)⁻¹H(x − c), the gradient of −log ∫ exp(−f(x') − γ‖x − x'‖²/2)dx'."""
    hessian, centre = quadratic()
    x = torch.nn.Parameter(torch.ones(5, dtype=f64))
    optimizer = EntropySGD(
        [x], lr=1.0, gamma=0.7, scoping=0.0, noise=0.0, inner_steps=2000, inner_lr=0.2, averaging=0.9, times_gamma=True
    )
    start = x.detach().clone()
    optimizer.step(closure_for(x, hessian, centre))
    point = start.clone().requires_grad_()
    identity = torch.eye(5, dtype=f64)
    # ∫ exp(−(x'−c)ᵀH(x'−c)/2 − γ‖x−x'‖²/2)dx' ∝ exp(−(x−c)ᵀM(x−c)/2), M = γH(H + γ)⁻¹
    energy = 0.5 * (point - centre) @ (0.7 * hessian @ torch.linalg.inv(hessian + 0.7 * identity)) @ (point - centre)
    (slope,) = torch.autograd.grad(energy, point)
    assert torch.allclose(start - x.detach(), slope, atol=1e-9)


def test_noise_has_the_stated_size(seed):
    """One inner step from rest: μ − x = √η'·ε·N(0, I) exactly, so its variance is η'ε²."""
    size = 20000
    x = torch.nn.Parameter(torch.zeros(size, dtype=f64))
    optimizer = EntropySGD([x], lr=1.0, inner_steps=1, inner_lr=0.04, noise=0.3, averaging=0.0, seed=seed)

    def closure():
        x.grad = torch.zeros_like(x)
        return torch.zeros(())

    optimizer.step(closure)
    truth = 0.04 * 0.09
    assert_within(float(x.detach().square().mean()), truth, truth * math.sqrt(2 / size))
    again = torch.nn.Parameter(torch.zeros(size, dtype=f64))
    twin = EntropySGD([again], lr=1.0, inner_steps=1, inner_lr=0.04, noise=0.3, averaging=0.0, seed=seed)

    def second():
        again.grad = torch.zeros_like(again)
        return torch.zeros(())

    twin.step(second)
    assert torch.equal(x, again)


def test_every_inner_step_asks_for_a_new_gradient():
    calls = []
    x = torch.nn.Parameter(torch.tensor([1.0]))

    def closure():
        calls.append(x.item())
        x.grad = torch.tensor([1.0])
        return torch.tensor(float(len(calls)))

    optimizer = EntropySGD([x], inner_steps=5, noise=0.0)
    assert optimizer.step(closure).item() == 1.0
    assert len(calls) == 5
    assert calls[0] == 1.0
    assert calls == sorted(calls, reverse=True)


def test_weight_decay_is_part_of_the_energy():
    hessian, centre = quadratic()
    x, y = (torch.nn.Parameter(torch.ones(5, dtype=f64)) for _ in range(2))
    decayed = EntropySGD([x], noise=0.0, weight_decay=0.2)
    plain = EntropySGD([y], noise=0.0)
    decayed.step(closure_for(x, hessian, centre))
    total = hessian + 0.2 * torch.eye(5, dtype=f64)
    plain.step(closure_for(y, total, torch.linalg.solve(total, hessian @ centre)))
    assert torch.allclose(x, y, atol=1e-12)


def test_bad_settings():
    x = [torch.nn.Parameter(torch.zeros(2))]
    for options, message in (
        ({"lr": 0}, "lr must be a positive"),
        ({"inner_steps": 0}, "inner_steps must be a whole number of at least 1"),
        ({"gamma": -1}, "gamma must be a positive"),
        ({"noise": float("nan")}, "noise must be a finite"),
        ({"averaging": 1.0}, "averaging"),
        ({"momentum": 1.0}, "momentum must lie in"),
    ):
        with pytest.raises(bs.InputError, match=message):
            EntropySGD(x, **options)
    with pytest.raises(bs.InputError, match="needs a closure"):
        EntropySGD(x).step()
