"""One kernel, one step size, as the papers run it: nothing is tuned and nothing corrected."""

from __future__ import annotations

import math

import torch

from ..progress import Report
from .adjusted import ceiling
from .calibration import Geometry, Resolution
from .chains import ChainLosses
from .engine import Engine
from .kernels import BAOAB, MALA, SGLD, SGNHT, Kernel, LeimkuhlerMatthews, RMSPropSGLD
from .minibatches import minibatches
from .runs import Run
from .target import Target, Whitening
from .trace import Trace

KERNELS = ("sgld", "rmsprop-sgld", "leimkuhler-matthews", "baoab", "sgnht", "mala")


def sample(
    name: str,
    losses: ChainLosses,
    at: Resolution,
    *,
    step_size: float,
    chains: int,
    draws: int,
    batch_size: int,
    burn_in: float | None,
    seed: int,
    report: Report,
) -> Run:
    """`draws` steps of the kernel `name` from w*, in the network's own coordinates.

    `mala` runs on all data, the others on minibatches with the loss read before the step.
    """
    target = Target(losses, at.nbeta, at.gamma, Whitening.identity(losses.origin))
    generator = torch.Generator(losses.origin.device).manual_seed(seed)
    position = torch.zeros(chains, losses.dimension, dtype=losses.origin.dtype, device=losses.origin.device)
    evaluate = target.full if name == "mala" else minibatches(target, batch_size, generator, None)
    engine = Engine(_kernel(name, step_size, target, draws), evaluate, position, generator, ceiling(target))
    trace = Trace(chains)
    interrupted = False
    try:
        while trace.draws < draws:
            trace.append(engine.run(min(64, draws - trace.draws)))
            report(trace.draws / draws, f"{trace.draws} draws")
    except KeyboardInterrupt:
        interrupted = True
        if trace.draws < 64:
            raise
    discard = 0.5 if burn_in is None else burn_in
    return Run(target, trace, engine.alive.cpu().numpy(), engine.living(), step_size, {}, interrupted, False, discard)


def stable_step(name: str, curvature: Geometry, at: Resolution) -> float:
    """Half the inverse of the stiffest curvature nβσ + γ, or half its root for kernels with momentum."""
    stiffest = at.nbeta * max(0.0, float(curvature.values[0])) + at.gamma
    return 0.5 / (math.sqrt(stiffest) if name in ("baoab", "sgnht") else stiffest)


def _kernel(name: str, size: float, target: Target, draws: int) -> Kernel:
    if name == "mala":
        return MALA(size, target.energy)
    if name == "rmsprop-sgld":
        return RMSPropSGLD(size, warmup=draws // 4)
    if name == "baoab":
        return BAOAB(size, friction=2 * math.sqrt(target.gamma))
    if name == "sgnht":
        return SGNHT(size)
    return SGLD(size) if name == "sgld" else LeimkuhlerMatthews(size)
