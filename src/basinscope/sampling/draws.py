"""Draws of the posterior, one after the other, from chains that have already converged."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ..errors import InputError
from .adjusted import ceiling, hamiltonian
from .engine import Engine
from .kernels.base import Kernel
from .local import Outcome, Sampler
from .minibatches import evaluations
from .target import Evaluate
from .unadjusted import FRACTIONS


def draws(
    sampler: Sampler, outcome: Outcome, count: int, *, seed: int, thin: int = 1
) -> Iterator[tuple[Tensor, Tensor]]:
    """Displacements δ = w − w* (C, d) of all chains, `count` times, and which chains are alive (C,).

    The chains of `outcome` go on with the settings that they were tuned to; on minibatches all of them take the
    smallest step. A dead chain stands where one that lives is.

    Args:
        sampler: that gave the outcome.
        outcome: of a run by `hmc` or `minibatch`.
        count: draws per chain.
        seed: of all random numbers.
        thin: steps from one draw to the next.
    """
    run = outcome.main
    target = run.target
    generator = torch.Generator(run.position.device).manual_seed(seed)
    kernel: Kernel
    evaluate: Evaluate
    if outcome.sampler == "hmc":
        evaluate, made = hamiltonian(target, rounded=bool(run.settings["rounded"]))
        kernel = made(run.step_size, int(run.settings["leaps"]))
    elif outcome.sampler == "minibatch":
        assert outcome.pace is not None
        kernel = outcome.pace.kernel(torch.tensor(FRACTIONS[-1:], device=run.position.device))
        mean = sampler.geometry.gradient if outcome.control_variates else None
        evaluate = evaluations(target, outcome.pace.batch, generator, mean)
    else:
        raise InputError(f"draws of the posterior come from 'hmc' or 'minibatch', got sampler {outcome.sampler!r}")
    engine = Engine(kernel, evaluate, run.position, generator, ceiling(target))
    for _ in range(count):
        engine.run(thin)
        yield target.whitening(engine.living()), engine.alive
