"""The no-U-turn sampler on a torch log-density, by nutpie: slower than the engine, and nothing of it is ours."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..checks import whole
from ..errors import InputError
from ..landscape import math_attention
from .chains import ChainLosses

Array = NDArray[np.float64]
LogDensity = Callable[[Tensor], Tensor]

_POLL = 0.1  # seconds
_FAREWELL = 30.0  # seconds at most that threads are waited for


@dataclass(frozen=True)
class NutsRun:
    """Draws of several chains, warm-up left out.

    Attributes:
        draws: positions, (chains, draws, d).
        divergences: transitions of each chain, (chains,), whose energy error was so large that the integrator must have
            left the typical set; any of them makes the draws doubtful.
        warmup: draws that were spent on adaptation, of each chain.
        warmup_divergences: divergences among those, (chains,); harmless.
        step_size: mean leapfrog step.
        gradients: evaluations of the gradient, warm-up included.
    """

    draws: Array
    divergences: NDArray[np.int64]
    warmup: int
    warmup_divergences: NDArray[np.int64]
    step_size: float
    gradients: int


def nuts(
    log_density: LogDensity,
    start: Tensor,
    *,
    draws: int = 1000,
    warmup: int = 500,
    chains: int = 4,
    acceptance: float = 0.9,
    jitter: float = 1e-3,
    seed: int = 0,
) -> NutsRun:
    """Sample exp(log_density(w)) over w ∈ ℝ^d by NUTS with an adapted diagonal mass matrix (nutpie).

    Args:
        log_density: a differentiable function of one vector (d,), in float64; constants do not matter.
        start: where the chains start, (d,), each displaced by `jitter` times normal noise.
        draws, warmup: draws of each chain to keep, and to adapt on before.
        chains: number of chains.
        acceptance: wanted acceptance of the leapfrog steps; higher is slower and goes further into narrow places.
        jitter: see `start`.
        seed: of all random numbers.

    Examples:
        >>> run = nuts(lambda w: -0.5 * (w**2).sum(), torch.zeros(2), draws=200, warmup=200, chains=2)
        >>> run.draws.shape, bool(abs(run.draws.var() - 1) < 0.3)
        ((2, 200, 2), True)
    """
    nutpie = _nutpie()
    for name, value, least in (("draws", draws, 4), ("warmup", warmup, 50), ("chains", chains, 2)):
        whole(name, value, least)
    whole("seed", seed, 0)
    if not 0 < acceptance < 1:
        raise InputError(f"acceptance must lie strictly between 0 and 1, got {acceptance}")
    density = _Density(log_density)
    model = _model(nutpie, density, _checked_start(density, start), jitter)
    with warnings.catch_warnings(), ThreadPoolExecutor(1) as pool:
        warnings.simplefilter("ignore")
        sampler = nutpie.sample(
            model, draws=draws, tune=warmup, chains=chains, cores=1, seed=seed, target_accept=acceptance,
            progress_bar=False, save_warmup=True, blocking=False,
        )  # fmt: skip
        waiting = pool.submit(sampler.wait)
        try:
            # In its own waiting nutpie may miss Ctrl-C, or take it for the end; a signal may reach any thread.
            while not waiting.done():
                wait([waiting], timeout=_POLL)
        except BaseException:
            density.stopped = True
            wait([waiting])
            sampler.cancel()
            _see_off()
            raise
    return _run_of(waiting.result(), warmup)


def _see_off() -> None:
    """Wait for nutpie's threads, which end a moment after their chains: Python crashes if it ends before them."""
    until = time.monotonic() + _FAREWELL
    while _at_work() and time.monotonic() < until:
        time.sleep(_POLL)


def _at_work() -> bool:
    """Whether threads of nutpie are left, where the system tells the names of threads."""
    for name in Path("/proc/self/task").glob("*/comm"):
        with suppress(OSError):  # it has just ended
            if name.read_text().startswith("nutpie"):
                return True
    return False


class _Density:
    """A log-density and its gradient as functions of an array, which refuse to go on once they are `stopped`."""

    def __init__(self, log_density: LogDensity) -> None:
        self._log_density = log_density
        self.stopped = False

    def __call__(self, position: Array) -> tuple[float, Array]:
        if self.stopped:
            raise RuntimeError("the run was interrupted")  # which ends the chains
        point = torch.tensor(position, requires_grad=True)
        with torch.enable_grad():
            value = self._log_density(point)
            (gradient,) = torch.autograd.grad(value, point)
        return float(value.detach()), gradient.numpy()


def _checked_start(density: _Density, start: Tensor) -> Array:
    """Where chains start, if the density and its gradient are finite there."""
    first: Array = start.detach().double().cpu().reshape(-1).numpy()
    value, slope = density(first)
    if not (np.isfinite(value) and np.isfinite(slope).all()):
        raise InputError(
            f"the log-density must be finite at the start with its gradient, got {value:g} and a gradient of length "
            f"{np.linalg.norm(slope):g} — start elsewhere"
        )
    return first


def _model(nutpie: Any, density: _Density, first: Array, jitter: float) -> Any:
    """What nutpie samples."""
    return nutpie.compiled_pyfunc.from_pyfunc(
        ndim=len(first),
        make_logp_fn=lambda: density,
        make_expand_fn=lambda *seeds: lambda position: {"w": position},
        expanded_dtypes=[np.dtype("float64")],
        expanded_shapes=[(len(first),)],
        expanded_names=["w"],
        make_initial_point_fn=lambda chain: first + jitter * np.random.default_rng(chain).standard_normal(len(first)),
    )


def _run_of(trace: Any, warmup: int) -> NutsRun:
    """Draws and what nutpie tells of them."""
    after, before = trace.sample_stats, trace.warmup_sample_stats
    return NutsRun(
        draws=np.ascontiguousarray(trace.posterior["w"].values),
        divergences=after["diverging"].values.sum(1),
        warmup=warmup,
        warmup_divergences=before["diverging"].values.sum(1),
        step_size=float(after["step_size"].values.mean()),
        gradients=int(after["n_steps"].values.sum() + before["n_steps"].values.sum()),
    )


def local_density(losses: ChainLosses, nbeta: float, gamma: float) -> LogDensity:
    """log p(δ) = −nβ (L_n(w* + δ) − L_n(w*)) − (γ/2)‖δ‖² of one displacement δ (d,), for `nuts`."""
    land = losses.land
    whole_batch = next(land.batches())
    base = losses.base.mean()

    def density(delta: Tensor) -> Tensor:
        point = losses.origin + delta.to(losses.origin)
        with math_attention():
            loss = land.losses(land.unflatten(point), whole_batch).double().mean()
        return -nbeta * (loss - base).to(delta) - 0.5 * gamma * delta.square().sum()

    return density


def _nutpie() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its plotting library announces its own future
            import nutpie
            import nutpie.compiled_pyfunc
    except ImportError:
        raise InputError("NUTS needs nutpie: install basinscope[nuts]") from None
    return nutpie
