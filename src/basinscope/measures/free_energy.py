"""The free energy by thermodynamic integration."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..estimates import Check, Estimate
from ..landscape import Landscape, check_landscape
from ..progress import tracked
from ..sampling.calibration import Resolution, resolution
from ..sampling.clock import checked_budget
from ..sampling.local import Outcome, Sampler, Settings
from .checks import check_mixing, check_precision
from .evidence import temperature

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


def free_energy(
    land: Landscape,
    *,
    nbeta: float | None = None,
    gamma: float | None = None,
    sampler: str = "auto",
    chains: int | None = None,
    rtol: float = 0.02,
    budget: float = 60.0,
    seed: int = 0,
    progress: bool = True,
    beta: float | None = None,
) -> Estimate:
    """F = −log ∫ exp(−nβ L_n(w)) N(w; w*, I/γ) dw = ∫₀^β E_b[n L_n(w)] db, in nats.

    The mean is over the local posterior at inverse temperature b, sampled at the 15 nodes of a Gauss–Kronrod rule in
    u = log(1 + nbσ/γ), σ the largest curvature: every direction of the basin then turns from prior to data within a
    few units of u. At β = 1 this is minus the log evidence of the prior N(w*, I/γ).

    Args:
        land: the landscape.
        nbeta: nβ up to which to integrate; n unless given, so that β = 1. Its former name is `beta`, for β.
        gamma: precision γ of the prior around w*; d/‖w*‖² unless given.
        sampler: `auto`, `hmc` or `minibatch`.
        chains: per temperature; chosen unless given.
        rtol: wanted standard error of the mean excess loss at each temperature, relative to it.
        budget: most work of all temperatures together, in nominal seconds.
        seed: of all random numbers.
        progress: show a bar when it takes over a second.

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
    check_landscape(land)
    if sampler not in ("auto", "hmc", "minibatch"):
        raise InputError(f"unknown sampler {sampler!r}: expected one of auto, hmc, minibatch")
    highest = temperature(land, nbeta, beta)
    at = resolution(land, highest * land.n, gamma)
    nodes, fine, coarse = rule()
    share = checked_budget(budget) / len(nodes)
    settings = Settings(sampler, chains=chains, rtol=rtol, budget=share, seed=seed)
    with tracked("free energy", progress) as report:
        ensemble = Sampler(land, settings)
        stiffness = land.n * float(ensemble.geometry.values[0].clamp(min=0))
        scale = max(1.0, stiffness / at.gamma)  # nbσ/γ at b = 1
        reach = math.log1p(scale * highest)
        steps = 0.5 * reach * (nodes + 1)
        temperatures = np.expm1(steps) / scale
        jacobian = 0.5 * reach * np.exp(steps) / scale * land.n
        coldest_first = [Resolution(float(b) * land.n, at.gamma) for b in temperatures[::-1]]
        outcomes = list(ensemble.ladder(coldest_first, report))[::-1]
    loss = float(land.per_sample().sum())
    return _integrated(loss, temperatures, jacobian, fine, coarse, outcomes, land, at)


def _integrated(
    loss: float,
    temperatures: Array,
    jacobian: Array,
    fine: Array,
    coarse: Array,
    outcomes: list[Outcome],
    land: Landscape,
    at: Resolution,
) -> Estimate:
    values = jacobian * np.array([outcome.excess for outcome in outcomes])
    errors = jacobian * np.array([outcome.stderr for outcome in outcomes])
    excess = float(fine @ values)
    noise = float(np.linalg.norm(fine * errors))
    apart = float((fine - coarse) @ values)
    bend = math.sqrt(max(0.0, apart**2 - float(((fine - coarse) * errors) @ ((fine - coarse) * errors))))
    stderr = math.hypot(noise, bend)
    diagnostics: dict[str, Any] = {
        "beta": at.nbeta / land.n,
        "gamma": at.gamma,
        "n": land.n,
        "dimension": land.dimension,
        "loss": loss / land.n,
        "monte_carlo_stderr": noise,
        "rule_error": bend,
        "ladder": [
            (float(b), loss + land.n * found.excess, land.n * found.stderr)
            for b, found in zip(temperatures, outcomes, strict=True)
        ],
        "rhat": max(found.rhat for found in outcomes),
        "diverged": sum(found.diverged for found in outcomes),
    }
    value = at.nbeta / land.n * loss + excess
    return Estimate(
        "free_energy", value, stderr, free_energy_checks(excess, stderr, temperatures, outcomes), diagnostics
    )


def free_energy_checks(excess: float, stderr: float, temperatures: Array, outcomes: list[Outcome]) -> tuple[Check, ...]:
    """Whether chains agree at every temperature, and the integral of their means is known."""
    apart = [number for number, outcome in enumerate(outcomes) if not _mixing(outcome).passed]
    worst = max((outcomes[number] for number in apart or range(len(outcomes))), key=lambda outcome: outcome.rhat)
    where = f"between chains, at β = {', '.join(f'{temperatures[number]:.2g}' for number in apart)}"
    agreement = _mixing(worst, where)
    if math.isfinite(excess):
        return agreement, check_precision(stderr, max(abs(excess), 1.0), "the integral, or of 1 nat", "raise budget")
    lost = sum(not math.isfinite(outcome.excess) for outcome in outcomes)
    diverged = Check(
        "temperatures without a mean", f"{lost} of {len(outcomes)}", "none", False, "raise gamma", "failure",
        f"diverged: chains at {lost} temperatures",
    )  # fmt: skip
    return diverged, agreement


def _mixing(outcome: Outcome, where: str = "between chains") -> Check:
    """Runs that met their tolerance early are too short for R̂ to come near 1."""
    return check_mixing(
        outcome.rhat, "raise budget", precise=not outcome.exhausted, when="where rtol was met", where=where
    )
