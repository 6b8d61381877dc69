"""From where training ended to a minimum: L-BFGS on all samples, preconditioned by (F + wI)⁻¹, for many networks.

The loss never rises. A ReLU network's loss has kinks, and where weak penalties let a few samples decide, its lowest
points may lie on them: there the gradient need not vanish, and no number of steps meets the aim.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from .cases import landscape, network_of, samples_of
from .fitting import Fitted
from .jobs import Network
from .matrices import matrices, outputs
from .spectra import Newton, newton
from .stacks import Stack

AIM = 0.05  # of the predicted gap: the decrement at which to stop; below a tenth a network counts as at a minimum
_ROUNDS = 2  # the second with a preconditioner from where the first ended, for networks that missed their aim
_PAIRS = 10  # of steps and changes of the gradient that are remembered
_SUFFICIENT = 1e-4  # Armijo: at least this share of the gain that the slope promises
_ROUNDING = 1e-7  # relative: how exactly float32 networks tell their losses


@dataclass(frozen=True)
class Polished:
    """Networks that went down to a minimum.

    Attributes:
        points: their weights (M, d), float64.
        decrements: rᵀMr with r the gradient of the penalized loss and M the preconditioner, (M,).
        steps: how many were tried for each, (M,).
    """

    points: Tensor
    decrements: Tensor
    steps: Tensor


def polished(
    jobs: Sequence[Network], fit: Fitted, numbers_of: Sequence[int]
) -> tuple[Fitted, dict[int, dict[str, Any]]]:
    """The fit with the networks of `jobs` at a minimum, and columns for each by its place in the fit.

    The jobs are on the same data, `numbers_of` are their places. Whether a network reached a minimum is told by its
    `decrement` and `tic` as they are measured afterwards. `polish_steps` is how many steps were tried,
    `polish_distance` how far its weights moved, `polish_decrement` its decrement before.
    """
    places = {number: job for job, number in zip(jobs, numbers_of, strict=True) if fit.diverged[number] < 0}
    if not jobs[0].polish or not places:
        return fit, {}
    began, start, after = time.monotonic(), fit.weights, replace(fit, weights=fit.weights.clone())
    columns: dict[int, dict[str, Any]] = {number: {"polish_steps": 0} for number in places}
    left = dict(places)
    for _ in range(_ROUNDS):
        steps, done = _round(left, after)
        after.weights[list(left)] = done.points.to(after.weights)
        for number, step, tried in zip(left, steps, done.steps.tolist(), strict=True):
            columns[number].setdefault("polish_decrement", step.decrement)
            columns[number]["polish_steps"] += tried
        missed = [float(now) > AIM * step.tic for now, step in zip(done.decrements, steps, strict=True)]
        left = {number: job for (number, job), miss in zip(left.items(), missed, strict=True) if miss}
        if not left:
            break
    for number, column in columns.items():
        column["polish_distance"] = float((after.weights[number] - start[number]).double().norm())
        column["polish_seconds"] = (time.monotonic() - began) / len(columns)
    return after, columns


def _round(places: Mapping[int, Network], fit: Fitted) -> tuple[list[Newton], Polished]:
    """The Newton steps of networks where they are, and where they get with these as preconditioners."""
    steps = [_step(job, fit, number) for number, job in places.items()]
    jobs = list(places.values())
    first = landscape(jobs[0], fit.point(next(iter(places)), network_of(jobs[0])), samples_of(jobs[0])[0])
    decays, aims = (
        torch.tensor(values, dtype=torch.float64, device=first.device)
        for values in ([job.weight_decay for job in jobs], [AIM * step.tic for step in steps])
    )
    inverses = [step.inverse.inverse for step in steps]  # not stacked: they take gigabytes
    return steps, descended(Stack(first, fit.weights[list(places)]), decays, inverses, aims, jobs[0].polish)


def _step(job: Network, fit: Fitted, number: int) -> Newton:
    land = landscape(job, fit.point(number, network_of(job)), samples_of(job)[0])
    whole = matrices(land, outputs(land), relations=False)
    return newton(whole, job.weight_decay, job.samples, land.flatten(land.parameters))


@torch.no_grad()
def descended(stack: Stack, decays: Tensor, inverses: Sequence[Tensor], aims: Tensor, steps: int) -> Polished:
    """Minimize L_n + (w/2)‖θ‖² for all networks of a stack, from its weights on.

    L-BFGS with the inverse Hessian M to begin with; a step that gains too little is halved. A network is left alone
    once rᵀMr is no more than its aim.

    Args:
        stack: the networks, M of them with d parameters.
        decays: w of each, (M,).
        inverses: M of each, symmetric and positive definite, (d, d) in float64.
        aims: (M,).
        steps: tries, at most; each takes one gradient.
    """
    start = stack.weights.double()
    point, decays = start.clone(), decays.to(start)[:, None]

    def value(where: Tensor) -> tuple[Tensor, Tensor]:
        delta = (where - start).to(stack.weights.dtype)
        penalty = decays[:, 0] / 2 * where.square().sum(1)
        return stack.losses(delta).mean(1) + penalty, stack.gradient(delta).double() + decays * where

    def applied(vector: Tensor) -> Tensor:
        return torch.stack([inverse @ row for inverse, row in zip(inverses, vector, strict=True)])

    loss, gradient = value(point)
    memory = _Memory.of(point)
    length = torch.ones_like(loss)
    tried = torch.zeros(len(loss), dtype=torch.long, device=loss.device)
    decrement = (gradient * applied(gradient)).sum(1)
    for _ in range(steps):
        active = decrement > aims.to(decrement)
        if not bool(active.any()):
            break
        direction = -memory.inverse_hessian(gradient, applied)
        slope = (gradient * direction).sum(1)
        trial = point + (length * active)[:, None] * direction
        lower, steeper = value(trial)
        enough = loss + _SUFFICIENT * length * slope + _ROUNDING * loss.abs()
        taken = active & (slope < 0) & (lower <= enough)
        memory.add(trial - point, steeper - gradient, taken)
        wide = taken[:, None]
        point, gradient = torch.where(wide, trial, point), torch.where(wide, steeper, gradient)
        loss = torch.where(taken, lower, loss)
        length = torch.where(taken, torch.ones_like(length), length / 2)
        tried += active
        decrement = (gradient * applied(gradient)).sum(1)
    return Polished(point, decrement, tried)


@dataclass
class _Memory:
    """The last steps s and changes y of the gradient of each network, (P, M, d), newest last, and 1/(s·y), (P, M); all
    zero, and without effect, where there were fewer."""

    steps: Tensor
    changes: Tensor
    weights: Tensor

    @classmethod
    def of(cls, point: Tensor) -> _Memory:
        steps = point.new_zeros(_PAIRS, *point.shape)
        return cls(steps, torch.zeros_like(steps), steps.new_zeros(_PAIRS, len(point)))

    def add(self, step: Tensor, change: Tensor, taken: Tensor) -> None:
        """Remember a pair of those networks that took a step along which the loss bends up."""
        product = (step * change).sum(1)
        sound = taken & (product > 1e-12 * step.norm(dim=1) * change.norm(dim=1))
        for old, new in ((self.steps, step), (self.changes, change), (self.weights, 1 / product)):
            where = sound.view(-1, *[1] * (new.ndim - 1))
            old.copy_(torch.where(where, torch.cat([old[1:], new[None]]), old))

    def inverse_hessian(self, vector: Tensor, applied: Callable[[Tensor], Tensor]) -> Tensor:
        """The L-BFGS approximation of H⁻¹ on a vector of each network, by the two loops of Nocedal (1980)."""
        shares = []
        for step, change, weight in zip(self.steps.flip(0), self.changes.flip(0), self.weights.flip(0), strict=True):
            shares.append(weight * (step * vector).sum(1))
            vector = vector - shares[-1][:, None] * change
        vector = applied(vector)
        for step, change, weight in zip(self.steps, self.changes, self.weights, strict=True):
            vector = vector + (shares.pop() - weight * (change * vector).sum(1))[:, None] * step
        return vector
