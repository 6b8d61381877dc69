"""One kernel, one step size, as the papers run it: nothing is tuned and nothing corrected."""

from __future__ import annotations

import math

import torch

from .adjusted import ceiling
from .calibration import Geometry, Resolution
from .chains import ChainLosses
from .engine import Engine
from .goal import Goal
from .kernels import HMC, SGLD, SGNHT, Kernel, LeimkuhlerMatthews, RMSPropSGLD
from .minibatches import minibatches
from .runs import Run
from .target import Target, Whitening
from .trace import Trace

KERNELS = ("sgld", "rmsprop-sgld", "leimkuhler-matthews", "baoab", "sgnht", "mala")
DRAWS = 2000  # unless told otherwise
_BLOCK = 64  # steps between two looks at the clock, at most


def sample(
    name: str, losses: ChainLosses, at: Resolution, goal: Goal, price: float, *, chains: int, step_size: float,
    batch_size: int,
) -> Run:  # fmt: skip
    """Steps of the kernel `name` from w*, in the network's own coordinates: as many as the goal names, or `DRAWS` if
    there is time for them.

    `mala` runs on all data, the others on minibatches with the loss read before the step; `price` is of a step.
    """
    target = Target(losses, at.nbeta, at.gamma, Whitening.identity(losses.origin))
    generator = torch.Generator(losses.origin.device).manual_seed(goal.seed)
    position = torch.zeros(chains, losses.dimension, dtype=losses.origin.dtype, device=losses.origin.device)
    evaluate = target.full if name == "mala" else minibatches(target, batch_size, generator, None)
    draws = goal.draws or DRAWS
    engine = Engine(_kernel(name, step_size, target, draws), evaluate, position, generator, ceiling(target))
    trace = Trace(chains)
    interrupted = exhausted = False
    try:
        while trace.draws < draws and not exhausted:
            block = engine.run(min(goal.block(price, _BLOCK), draws - trace.draws))
            trace.append(block)
            goal.clock.spend(len(block) * price)
            left = goal.clock.left()
            goal.tell(left, f"{trace.draws} draws")
            exhausted = goal.draws is None and left <= 0 and trace.draws >= _BLOCK
    except KeyboardInterrupt:
        interrupted = True
        if trace.draws < _BLOCK:
            raise
    alive = engine.alive.cpu().numpy()
    return Run(target, trace, alive, engine.living(), step_size, {}, interrupted, exhausted, goal.discard)


def stable_step(name: str, curvature: Geometry, at: Resolution) -> float:
    """Half the inverse of the stiffest curvature nβσ + γ, or half its root for kernels with momentum."""
    stiffest = at.nbeta * max(0.0, float(curvature.values[0])) + at.gamma
    return 0.5 / (math.sqrt(stiffest) if name in ("baoab", "sgnht") else stiffest)


def _kernel(name: str, size: float, target: Target, draws: int) -> Kernel:
    if name == "mala":
        return HMC(math.sqrt(size), 1, target.energy, target.force, jittered=False)
    if name == "rmsprop-sgld":
        return RMSPropSGLD(size, warmup=draws // 4)
    if name == "baoab":
        return LeimkuhlerMatthews(size**2, persistence=math.exp(-2 * math.sqrt(target.gamma) * size))
    if name == "sgnht":
        return SGNHT(size)
    return SGLD(size) if name == "sgld" else LeimkuhlerMatthews(size)
