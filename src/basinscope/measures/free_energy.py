"""The free energy by thermodynamic integration."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from ..estimates import Check, Estimate
from ..landscape import Landscape
from ..progress import Report, tracked
from ..sampling.calibration import Resolution, resolution
from ..sampling.convergence import max_drift
from ..sampling.local import Outcome, Sampler
from .checks import (
    Balance,
    Movement,
    balance_of,
    check_completion,
    check_drift,
    check_mixing,
    check_precision,
    check_survival,
    check_virial,
)
from .evidence import temperature
from .posterior import Posterior, landscape_of, refuse_plain
from .settings import Sampling, checked, refuse_settings, takes_settings

Array = NDArray[np.float64]

# Gauss–Kronrod rule on [−1, 1] with 15 nodes, every second of which makes Gauss's rule with 7: positive half.
_NODES = (
    0.991455371120812639, 0.949107912342758525, 0.864864423359769073, 0.741531185599394440,
    0.586087235467691130, 0.405845151377397167, 0.207784955007898468, 0.0,
)  # fmt: skip
_KRONROD = (
    0.022935322010529225, 0.063092092629978553, 0.104790010322250184, 0.140653259715525919,
    0.169004726639267903, 0.190350578064785410, 0.204432940075298892, 0.209482141084727828,
)  # fmt: skip
_GAUSS = (0.0, 0.129484966168869693, 0.0, 0.279705391489276668, 0.0, 0.381830050505118945, 0.0, 0.417959183673469388)


def rule() -> tuple[Array, Array, Array]:
    """Nodes in (−1, 1), Kronrod's weights and Gauss's, 15 each.

    Examples:
        >>> nodes, fine, coarse = rule()
        >>> abs(float(fine @ nodes**22) - 2 / 23) < 1e-15, abs(float(coarse @ nodes**12) - 2 / 13) < 1e-15
        (True, True)
    """

    def mirrored(half: tuple[float, ...], sign: float = 1.0) -> Array:
        return np.array([*(sign * value for value in half), *reversed(half[:-1])])

    return mirrored(_NODES, -1.0), mirrored(_KRONROD), mirrored(_GAUSS)


@takes_settings
def free_energy(
    land: Landscape | Posterior, *, progress: bool = True, beta: float | None = None, **settings: Unpack[Sampling]
) -> Estimate:
    """F = −log ∫ exp(−nβ L_n(w)) N(w; w*, I/γ) dw = ∫₀^β E_b[n L_n(w)] db, in nats.

    The mean is over the local posterior at inverse temperature b, sampled at the 15 nodes of a Gauss–Kronrod rule in
    u = log(1 + nbσ/γ), σ the largest curvature: every direction of the basin then turns from prior to data within a
    few units of u. At β = 1 this is minus the log evidence of the prior N(w*, I/γ).

    Args:
        land: the landscape, or its `posterior`, whose chains the ladder of temperatures then starts from.
        progress: show a bar when it takes over a second.
        beta: former name of `nbeta`, for β.
        settings: those of `posterior` with `hmc` or `minibatch`; `nbeta` is the nβ up to which to integrate, n unless
            given, so that β = 1; `chains` and `rtol` are those of each temperature, `budget` that of all together.

    Returns:
        The estimate; its standard error holds the draws' and the rule's. `diagnostics["ladder"]` lists b, E_b[n L_n]
        and its standard error.

    Examples:
        >>> import math, torch, basinscope as bs
        >>> x = torch.ones(50, 1, dtype=torch.float64)
        >>> net = torch.nn.Linear(1, 1, bias=False).double()
        >>> _ = torch.nn.init.zeros_(net.weight)
        >>> est = bs.free_energy(bs.Landscape(net, "mse", (x, 0 * x)), gamma=1.0, budget=5.0)
        >>> abs(est.value - 0.5 * math.log(1 + 50)) < 6 * est.stderr  # ½ log det(I + nH/γ)
        True
    """
    whole = landscape_of(land)
    highest = temperature(land, settings.get("nbeta"), beta)
    if isinstance(land, Posterior):
        refuse_settings(settings, "a posterior sampled already")
        chosen, at, start = land.settings, land.outcome.at, land.outcome
    else:
        _, gamma, chosen = checked(settings)
        at, start = resolution(whole, highest * whole.n, gamma), None
    refuse_plain(chosen.sampler)
    nodes, fine, coarse = rule()
    sampler = Sampler(whole, replace(chosen, budget=chosen.budget / len(nodes)))
    with tracked("free energy", progress) as report:
        stiffness = whole.n * float(sampler.geometry.values[0].clamp(min=0))
        scale = max(1.0, stiffness / at.gamma)  # nbσ/γ at b = 1
        reach = math.log1p(scale * highest)
        steps = 0.5 * reach * (nodes + 1)
        temperatures = np.expm1(steps) / scale
        jacobian = 0.5 * reach * np.exp(steps) / scale * whole.n
        coldest_first = [Resolution(float(b) * whole.n, at.gamma) for b in temperatures[::-1]]
        rungs = [Rung.of(outcome, whole.n) for outcome in _ladder(sampler, coldest_first, start, report)][::-1]
    return _integrated(jacobian, fine, coarse, rungs, whole, at, chosen.rtol)


def _ladder(
    sampler: Sampler, resolutions: list[Resolution], start: Outcome | None, report: Report
) -> Iterator[Outcome]:
    """Chains at every resolution in turn; from those of a posterior on, if there is one."""
    if start is None:
        yield from sampler.ladder(resolutions, report)
        return
    for number, at in enumerate(resolutions):
        report(number / len(resolutions), f"{number + 1} of {len(resolutions)} temperatures")
        start = sampler.run(at, lambda fraction, text: None, start, number + 1)
        yield start


@dataclass(frozen=True)
class Rung:
    """What the chains at one temperature of the ladder gave.

    Attributes:
        beta: β.
        excess, stderr: mean excess loss per sample, and its standard error.
        drift: of that mean over the last half of the run.
        rhat, balance: split-R̂ between the chains, and their virial ratio.
        chains, diverged: how many there were, and how many of them diverged.
        exhausted, interrupted: whether the budget ended the run, or somebody.
    """

    beta: float
    excess: float
    stderr: float
    drift: float
    rhat: float
    balance: Balance
    chains: int
    diverged: int
    exhausted: bool
    interrupted: bool

    @classmethod
    def of(cls, outcome: Outcome, n: int) -> Rung:
        """The rung that a run gave."""
        run = outcome.main
        return cls(
            beta=outcome.at.nbeta / n, excess=outcome.excess, stderr=outcome.stderr,
            drift=run.drift(run.correction()) if run.alive.sum() > 1 else math.nan, rhat=outcome.rhat,
            balance=balance_of(outcome), chains=len(run.alive), diverged=outcome.diverged,
            exhausted=outcome.exhausted, interrupted=outcome.interrupted,
        )  # fmt: skip


def _integrated(
    jacobian: Array, fine: Array, coarse: Array, rungs: list[Rung], land: Landscape, at: Resolution, rtol: float
) -> Estimate:
    values = jacobian * np.array([rung.excess for rung in rungs])
    errors = jacobian * np.array([rung.stderr for rung in rungs])
    excess = float(fine @ values)
    noise = float(np.linalg.norm(fine * errors))
    apart = float((fine - coarse) @ values)
    bend = math.sqrt(max(0.0, apart**2 - float(((fine - coarse) * errors) @ ((fine - coarse) * errors))))
    stderr = math.hypot(noise, bend)
    drift = abs(float((fine * jacobian) @ np.array([rung.drift for rung in rungs])))
    loss = float(land.per_sample().sum())
    diagnostics: dict[str, Any] = {
        "beta": at.nbeta / land.n,
        "gamma": at.gamma,
        "n": land.n,
        "dimension": land.dimension,
        "loss": loss / land.n,
        "monte_carlo_stderr": noise,
        "rule_error": bend,
        "ladder": [(rung.beta, loss + land.n * rung.excess, land.n * rung.stderr) for rung in rungs],
        "rhat": max(rung.rhat for rung in rungs),
        "diverged": sum(rung.diverged for rung in rungs),
        "drift": drift,
        "virial": [tuple(rung.balance) for rung in rungs],
    }
    moved = Movement(drift, max_drift(noise, excess, rtol), abs(excess))
    value = at.nbeta / land.n * loss + excess
    return Estimate("free_energy", value, stderr, free_energy_checks(excess, stderr, moved, rungs), diagnostics)


def free_energy_checks(excess: float, stderr: float, moved: Movement, rungs: list[Rung]) -> tuple[Check, ...]:
    """Whether chains agree and are in equilibrium at every temperature, and the integral of their means is known."""
    chains, diverged = sum(rung.chains for rung in rungs), sum(rung.diverged for rung in rungs)
    sampled = (
        check_survival(diverged, chains, "raise gamma"),
        check_completion(any(rung.interrupted for rung in rungs), "every temperature had converged"),
        _worst_mixing(rungs),
    )
    dead = sum(not math.isfinite(rung.excess) for rung in rungs)
    if dead:
        return (
            Check(
                "temperatures without a mean", f"{dead} of {len(rungs)}", "none", False, "raise gamma", "failure",
                f"diverged: chains at {dead} temperatures",
            ),
            *sampled,
        )  # fmt: skip
    return (
        *sampled,
        check_drift(moved, "the integral", "the last half", "raise budget"),
        _worst_balance(rungs),
        check_precision(stderr, max(abs(excess), 1.0), "the integral, or of 1 nat", "raise budget"),
    )


def _worst_mixing(rungs: list[Rung]) -> Check:
    """Agreement of chains where it is worst, at all temperatures at which it is too little."""
    apart = [rung for rung in rungs if not _mixing(rung).passed]
    where = f"between chains, at β = {', '.join(f'{rung.beta:.2g}' for rung in apart)}"
    return _mixing(max(apart or rungs, key=lambda rung: rung.rhat), where)


def _mixing(rung: Rung, where: str = "between chains") -> Check:
    """Runs that met their tolerance early are too short for R̂ to come near 1."""
    return check_mixing(rung.rhat, "raise budget", precise=not rung.exhausted, when="where rtol was met", where=where)


def _worst_balance(rungs: list[Rung]) -> Check:
    """The virial ratio where it is worst."""
    worst = max(rungs, key=lambda rung: (not check_virial(rung.balance).passed, abs(rung.balance.ratio - 1)))
    return check_virial(worst.balance, where=f", at β = {worst.beta:.2g}")
