"""Entropy-SGD: descent on the local entropy, whose gradient comes from a Langevin loop.

P. Chaudhari et al., "Entropy-SGD: biasing gradient descent into wide valleys" (2017, https://arxiv.org/abs/1611.01838).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..checks import positive, whole
from ..errors import InputError


class EntropySGD(Optimizer):
    """Descent on −log ∫ exp(−f(x') − (γ/2)‖x − x'‖²) dx', which is low in wide valleys of f.

    Its gradient γ(x − ⟨x'⟩) comes from L Langevin steps around x, each on a fresh batch (Algorithm 1):

        x' ← x' − η'[∇f(x') − γ(x − x')] + √η'·ε·N(0, I),    μ ← a·μ + (1 − a)·x',    both from x' = μ = x
        x  ← x − lr·γ·(x − μ)        or, as the authors run it,    x ← x − lr·(x − μ)

    and γ = γ₀(1 + γ₁)ᵗ grows from step to step (scoping): wide valleys first, then their bottom. The second form
    keeps that growth out of the step length. With momentum m both loops move along v ← m·v + u, u being what they
    move along without it; the inner loop's v starts at 0 in every step, the outer one's is kept.

    A step calls its closure L times; each call must draw the next batch, and leave its gradient in `.grad`. `norms`
    holds what the last step did: `direction` ‖x − μ‖ (times γ in the first form) and `update`, how far x moved.

    Args:
        parameters: tensors, or groups of them.
        lr: step length η of the outer loop; 1 jumps to the mean of the inner loop (second form).
        inner_steps: L.
        inner_lr: η'.
        gamma: γ₀.
        scoping: γ₁.
        noise: ε, thermal noise.
        averaging: a, the weight of the past in μ.
        momentum: m, of both loops.
        times_gamma: take the first form of the outer step.
        weight_decay: adds (weight_decay/2)‖x'‖² to f.
        seed: of the noise.

    Examples:
        >>> import torch, basinscope as bs
        >>> x = torch.nn.Parameter(torch.tensor([4.0]))
        >>> step = bs.optim.EntropySGD([x], lr=1.0, inner_steps=1, inner_lr=0.5, averaging=0.0, noise=0.0)
        >>> def closure():
        ...     x.grad = x.detach().clone()  # f = x²/2
        ...     return x.detach().square().sum() / 2
        >>> _ = step.step(closure)
        >>> x.item()
        2.0
    """

    norms: dict[str, Tensor]

    def __init__(
        self,
        parameters: Iterable[Any],
        *,
        lr: float = 1.0,
        inner_steps: int = 20,
        inner_lr: float = 0.1,
        gamma: float = 1e-4,
        scoping: float = 1e-3,
        noise: float = 1e-4,
        averaging: float = 0.75,
        momentum: float = 0.0,
        times_gamma: bool = False,
        weight_decay: float = 0.0,
        seed: int = 0,
    ) -> None:
        for name, value in {"lr": lr, "inner_lr": inner_lr, "gamma": gamma}.items():
            positive(name, value)
        for name, value in {"scoping": scoping, "noise": noise, "weight_decay": weight_decay}.items():
            if not (isinstance(value, (int, float)) and 0 <= value < math.inf):
                raise InputError(f"{name} must be a finite number of at least 0, got {value!r}")
        if not (isinstance(averaging, (int, float)) and 0 <= averaging < 1):
            raise InputError(f"averaging, the weight of the past, must lie in [0, 1), got {averaging!r}")
        if not (isinstance(momentum, (int, float)) and 0 <= momentum < 1):
            raise InputError(f"momentum must lie in [0, 1), got {momentum!r}")
        self.inner_steps = whole("inner_steps", inner_steps, least=1)
        options = {
            "lr": lr, "inner_lr": inner_lr, "gamma": gamma, "scoping": scoping, "noise": noise, "averaging": averaging,
            "momentum": momentum, "times_gamma": times_gamma, "weight_decay": weight_decay,
        }  # fmt: skip
        super().__init__(parameters, options)
        self.steps = 0
        self.norms = {}
        devices = {parameter.device for group in self.param_groups for parameter in group["params"]}
        if len(devices) != 1:
            raise InputError(f"parameters must be on one device, got {sorted(map(str, devices))}")
        self._generator = torch.Generator(devices.pop()).manual_seed(whole("seed", seed))

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """L Langevin steps and one of the outer loop; returns the closure's first loss, that of a batch at x."""
        if closure is None:
            raise InputError("Entropy-SGD needs a closure: its inner loop asks for the gradient L times a step")
        centres = [[parameter.clone() for parameter in group["params"]] for group in self.param_groups]
        means = [[parameter.clone() for parameter in group["params"]] for group in self.param_groups]
        velocities = [
            [torch.zeros_like(parameter) for parameter in group["params"]] if group["momentum"] else []
            for group in self.param_groups
        ]
        losses = []
        for _ in range(self.inner_steps):
            with torch.enable_grad():
                losses.append(closure())
            for group, centre, mean, velocity in zip(self.param_groups, centres, means, velocities, strict=True):
                self._langevin(group, centre, mean, velocity)
        direction, update = [], []
        for group, centre, mean in zip(self.param_groups, centres, means, strict=True):
            away = list(torch._foreach_sub(centre, mean))
            if group["times_gamma"]:
                torch._foreach_mul_(away, self._gamma(group))
            direction.append(_squared_length(away))
            move = self._with_momentum(group, away)
            torch._foreach_copy_(group["params"], centre)
            torch._foreach_add_(group["params"], move, alpha=-group["lr"])
            update.append(_squared_length(move) * group["lr"] ** 2)
        self.norms = {"direction": torch.stack(direction).sum().sqrt(), "update": torch.stack(update).sum().sqrt()}
        self.steps += 1
        return losses[0]

    def _with_momentum(self, group: dict[str, Any], away: list[Tensor]) -> list[Tensor]:
        """The outer loop's velocities after a step in the direction `away`."""
        if not group["momentum"]:
            return away
        states = [self.state[parameter] for parameter in group["params"]]
        velocities = [
            state.setdefault("velocity", torch.zeros_like(tensor)) for state, tensor in zip(states, away, strict=True)
        ]
        torch._foreach_mul_(velocities, group["momentum"])
        torch._foreach_add_(velocities, away)
        return velocities

    def _gamma(self, group: dict[str, Any]) -> float:
        return float(group["gamma"] * (1 + group["scoping"]) ** self.steps)

    def _langevin(
        self, group: dict[str, Any], centre: list[Tensor], mean: list[Tensor], velocity: list[Tensor]
    ) -> None:
        """One step of the inner loop, and its share in the running mean."""
        parameters, rate, gamma = group["params"], group["inner_lr"], self._gamma(group)
        force = [
            torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()
            for parameter in parameters
        ]
        if group["weight_decay"]:
            torch._foreach_add_(force, parameters, alpha=group["weight_decay"])
        torch._foreach_add_(force, torch._foreach_sub(parameters, centre), alpha=gamma)
        if velocity:
            torch._foreach_mul_(velocity, group["momentum"])
            torch._foreach_add_(velocity, force)
        torch._foreach_add_(parameters, velocity or force, alpha=-rate)
        if group["noise"]:
            kicks = [torch.empty_like(p).normal_(generator=self._generator) for p in parameters]
            torch._foreach_add_(parameters, kicks, alpha=math.sqrt(rate) * group["noise"])
        torch._foreach_mul_(mean, group["averaging"])
        torch._foreach_add_(mean, parameters, alpha=1 - group["averaging"])

    def state_dict(self) -> dict[str, Any]:
        """Everything a resumed run needs, the state of the noise included."""
        return {**super().state_dict(), "steps": self.steps, "generator": self._generator.get_state()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over the state of another Entropy-SGD."""
        if "generator" not in state_dict:
            raise InputError(
                "this is not the state of EntropySGD: it has no 'generator' — load it into the optimizer that saved it"
            )
        super().load_state_dict({key: state_dict[key] for key in ("state", "param_groups")})
        self.steps = state_dict["steps"]
        self._generator.set_state(state_dict["generator"].cpu())


def _squared_length(tensors: list[Tensor]) -> Tensor:
    return torch.stack(torch._foreach_norm(tensors)).double().square().sum()
