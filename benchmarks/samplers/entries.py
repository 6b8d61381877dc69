"""The samplers of the leaderboard, a function each.

An entry takes a landscape (`problem.land`, `nbeta`, `gamma`, and `stiffest`, the largest curvature that is met there),
a number of gradients on all data, and a seed, and returns λ̂. To add one, write such a function and name it by
`@entry("what the table calls it")`. It may take fewer gradients than it was given, never more.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import torch

import basinscope as bs
from basinscope.sampling.chains import ChainLosses
from basinscope.sampling.kernels import HMC, SGLD, SGNHT, Kernel, LeimkuhlerMatthews, RMSPropSGLD
from basinscope.sampling.kernels.base import Random
from basinscope.sampling.minibatches import minibatches
from basinscope.sampling.target import Target, Whitening

from .counting import counted
from .elsewhere import BLACKJAX, CANONICAL, ONE, TWO, elsewhere
from .problem import Problem

Entry = Callable[[Problem, int, int], float]
ENTRIES: dict[str, Entry] = {}
CHAINS = 4


def entry(name: str) -> Callable[[Entry], Entry]:
    """Put a function on the leaderboard under this name."""

    def add(function: Entry) -> Entry:
        ENTRIES[name] = function
        return function

    return add


# ---------------------------------------------------------------------- kernels of ours, with nothing tuned


def walked(problem: Problem, kernel: Callable[[Target], Kernel], gradients: int, seed: int, *, each: int = 1,
           batch: int | None = None) -> float:  # fmt: skip
    """λ̂ of chains from w* by a kernel that takes `each` gradients a step, the first quarter of them left out."""
    generator = torch.Generator().manual_seed(seed)
    losses = ChainLosses(problem.land)
    target = Target(losses, problem.nbeta, problem.gamma, Whitening.identity(losses.origin))
    evaluate = target.full if batch is None else minibatches(target, batch, generator, None)
    steps = int(gradients / CHAINS / each * (1 if batch is None else problem.n / batch)) - 1
    random, made = Random.seeded(generator), kernel(target)
    state = made.init(torch.zeros(CHAINS, losses.dimension), evaluate, random)
    excess = []
    for _ in range(steps):
        state, draw = made.step(state, evaluate, random)
        excess.append(draw.evaluation.excess)
    return problem.nbeta * float(torch.stack(excess[steps // 4 :]).mean())


@entry("SGLD")
def sgld(problem: Problem, gradients: int, seed: int) -> float:
    return walked(problem, lambda target: SGLD(0.5 / problem.stiffest), gradients, seed)


@entry("SGLD, batches of 250")
def sgld_on_batches(problem: Problem, gradients: int, seed: int) -> float:
    return walked(problem, lambda target: SGLD(0.2 / problem.stiffest), gradients, seed, batch=250)


@entry("RMSProp-SGLD")
def rmsprop(problem: Problem, gradients: int, seed: int) -> float:
    steps = gradients // CHAINS
    step = 0.5 / math.sqrt(problem.stiffest)  # it is divided by the root of the curvature
    return walked(problem, lambda target: RMSPropSGLD(step, warmup=steps // 4), gradients, seed)


@entry("SGNHT")
def sgnht(problem: Problem, gradients: int, seed: int) -> float:
    return walked(problem, lambda target: SGNHT(0.3 / math.sqrt(problem.stiffest)), gradients, seed)


@entry("underdamped (BAOAB)")
def underdamped(problem: Problem, gradients: int, seed: int) -> float:
    step = 0.5 / math.sqrt(problem.stiffest)
    kept = math.exp(-2 * math.sqrt(problem.gamma) * step)
    return walked(problem, lambda target: LeimkuhlerMatthews(step**2, persistence=kept), gradients, seed)


@entry("MALA")
def mala(problem: Problem, gradients: int, seed: int) -> float:
    step = 1 / math.sqrt(problem.stiffest) / problem.land.dimension ** (1 / 6)
    return walked(
        problem, lambda target: HMC(step, 1, target.energy, target.force, jittered=False), gradients, seed
    )  # fmt: skip


@entry("HMC")
def hmc(problem: Problem, gradients: int, seed: int) -> float:
    step = 1 / math.sqrt(problem.stiffest) / problem.land.dimension ** (1 / 4)
    return walked(problem, lambda target: HMC(step, 10, target.energy, target.force), gradients, seed, each=10)


@entry("bs.llc")
def ours(problem: Problem, gradients: int, seed: int) -> float:
    """Nothing set but the budget: the largest of a few whose count, curvature and tuning included, is within it."""
    within = [value for count, value in ladder(problem, seed) if count <= gradients]
    return within[-1] if within else math.nan


@cache
def ladder(problem: Problem, seed: int) -> list[tuple[float, float]]:
    """Gradients taken and λ̂ found with growing budgets."""
    found = []
    for seconds in np.geomspace(0.02, 0.64, 16):
        with counted() as count:
            estimate = bs.llc(problem.land, nbeta=problem.nbeta, gamma=problem.gamma, rtol=1e-4, seed=seed,
                              budget=bs.Nominal(seconds), progress=False)  # fmt: skip
        found.append((count.gradients, estimate.value))
    return found


# ---------------------------------------------------------------------- other packages, each in its environment


@entry("devinterp 1.3.2, SGLD")
def devinterp_1(problem: Problem, gradients: int, seed: int) -> float:
    return elsewhere(ONE, "devinterp_1", problem, gradients, seed, method="sgld", step_size=0.5 / problem.stiffest)


@entry("devinterp 2.0.1, SGLD")
def devinterp_2(problem: Problem, gradients: int, seed: int) -> float:
    step = 0.5 / problem.stiffest
    return elsewhere(TWO, "devinterp_2", problem, gradients, seed, method="sgmcmc_sgld", step_size=step)


@entry("devinterp 2.0.1, RMSProp-SGLD")
def devinterp_2_rmsprop(problem: Problem, gradients: int, seed: int) -> float:
    step = 0.05 / problem.stiffest  # it is divided by what its gradients are, and 0.1 at least
    return elsewhere(TWO, "devinterp_2", problem, gradients, seed, method="rmsprop_sgld", step_size=step)


@entry("canonical-interp 0.1.5, SGLD")
def canonical(problem: Problem, gradients: int, seed: int) -> float:
    return elsewhere(CANONICAL, "canonical", problem, gradients, seed, step_size=0.5 / problem.stiffest)


@entry("blackjax 1.7.1, MCLMC")
def mclmc(problem: Problem, gradients: int, seed: int) -> float:
    return elsewhere(BLACKJAX, "microcanonical", problem, gradients, seed, method="mclmc")


@entry("blackjax 1.7.1, MAMS")
def mams(problem: Problem, gradients: int, seed: int) -> float:
    return elsewhere(BLACKJAX, "microcanonical", problem, gradients, seed, method="mams")
