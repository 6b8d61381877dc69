"""How minibatch chains find the posterior before any of their draws count."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..progress import Report
from .adjusted import ceiling
from .engine import Engine
from .kernels import LeimkuhlerMatthews
from .minibatches import evaluations, gradient_noise, later
from .pace import SMALLEST, Pace, Pacing, slowest_mode
from .target import Target
from .trace import STATISTICS

BLOCK = 64  # steps between two looks at the chains
PILOT_STEP = 0.5
FOUND = 0.98  # of the virial's exact mean, that chains have which found the posterior


def pilot(target: Target, position: Tensor, *, batch_size: int, seed: int, steps: int) -> tuple[Tensor, float]:
    """Where chains from `position` are after at most `steps` steps, and their mean excess loss in the last quarter.

    The step size is divided by 4 while chains diverge. Chains must leave w* before anything is measured: gradient
    noise is smallest there, and curvature not typical.
    """
    generator = torch.Generator(position.device).manual_seed(seed)
    evaluate = evaluations(target, batch_size, generator, None)
    size = PILOT_STEP
    while True:
        engine = Engine(LeimkuhlerMatthews(size), evaluate, position, generator, ceiling(target))
        length = max(16, math.ceil(min(steps, 4 / (size * slowest_mode(target)))))
        record = engine.run(length)
        if bool(engine.alive.all()) or size <= SMALLEST:
            last = record[-length // 4 :, engine.alive.cpu().numpy(), 0]
            return engine.living(), float(last.mean()) if last.size else 0.0
        size /= 4


def warmed(
    target: Target,
    position: Tensor,
    pacing: Pacing,
    *,
    generator: torch.Generator,
    mean: Tensor | None,
    budget: float,
    relaxations: float,
    report: Report,
) -> tuple[Tensor, float]:
    """Where chains that all take the largest step are once they have found the posterior, or spent the budget; and what
    was spent.

    They have found it when the slowest known mode has relaxed so many times and the virial E[δ·∇U] is no longer below
    d: other modes may be slower. Steps and batches are chosen anew as chains spread, because noise grows.

    Args:
        target: the posterior.
        position: where they start, whitened (C, d).
        pacing: chooses steps and batches, and takes note of what is seen.
        generator: source of all randomness.
        mean: g_n(w*) for control variates, or None.
        budget: what may be spent.
        relaxations: of the slowest known mode.
        report: progress.
    """
    now, spent, steps, look = pacing.best(), 0.0, 0, BLOCK
    alike = torch.ones(len(position), device=position.device)
    while True:
        evaluate = evaluations(target, now.batch, generator, mean)
        engine = Engine(now.kernel(alike), evaluate, position, generator, ceiling(target))
        goal = steps + relaxations * now.relaxation(1.0, slowest_mode(target))
        better: Pace | None = None
        virials: list[float] = []
        noises: list[Tensor] = []
        while better is None and spent < budget and not (steps >= goal and _found(virials)):
            block = engine.run(BLOCK)
            steps += BLOCK
            spent += now.price * BLOCK
            report(spent / budget, f"{steps} first steps, now of size {now.size:.3g} on {now.batch} samples")
            if not bool(engine.alive.all()):
                better = gentler(pacing, now, engine)
                continue
            virials.append(float(block[..., STATISTICS.index("virial")].mean()) / target.losses.dimension)
            if now.noisy:
                noises.append(gradient_noise(evaluate, engine.position))
                spent += 2 * now.price
            if now.persistence and steps >= look:
                look *= 2
                if noises:
                    seen = float(later(noises).mean())
                    pacing.noise(seen, target.nbeta * float(block[..., 0].mean()), now, 1.0)
                better = pacing.better(now, foreseen=True)
        position = engine.living()
        if better is None or better.size <= SMALLEST:
            return position, spent
        now = better


def gentler(pacing: Pacing, now: Pace, engine: Engine) -> Pace:
    """What to go on with where chains were lost."""
    pacing.lost(now, 2 if float(engine.alive.double().mean()) > 0.75 else 4)
    return pacing.best()


def _found(virials: list[float]) -> bool:
    last = virials[len(virials) // 2 :]
    return bool(last) and sum(last) >= FOUND * len(last)
