"""Losses along Langevin chains of a quadratic whose λ_t is known, sound and with one defect each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Array = NDArray[np.float64]
SIGMA = np.array([30.0, 10.0, 3.0, 1.0])  # curvatures of the quadratic
NBETA, GAMMA, INIT = 100.0, 100.0, 0.7
LLC = float(0.5 * np.sum(NBETA * SIGMA / (NBETA * SIGMA + GAMMA)))
TRACE = float(SIGMA.sum())
KNOWN = {"init_loss": INIT, "nbeta": NBETA, "gamma": GAMMA, "step_size": 1e-4}  # what the auditor is told


def sgld(
    seed: int, *, step: float = 1e-4, steps: int = 4000, chains: int = 4, gamma: float = GAMMA, start: float = 0.0,
    apart: Sequence[float] | None = None,
) -> Array:  # fmt: skip
    """Losses (chains, steps) from w* + start; `apart` moves the localisers of the chains."""
    rng = np.random.default_rng(seed)
    delta = np.full((chains, len(SIGMA)), start)
    centre = np.zeros((chains, 1)) if apart is None else np.asarray(apart)[:, None]
    losses = np.empty((chains, steps))
    for t in range(steps):
        losses[:, t] = INIT + 0.5 * (SIGMA * delta**2).sum(1)
        slope = NBETA * SIGMA * delta + gamma * (delta - centre)
        delta = delta - 0.5 * step * slope + np.sqrt(step) * rng.normal(size=delta.shape)
    return losses


def rounded(seed: int, steps: int = 600) -> Array:
    """Losses along chains whose weights are moved in bfloat16."""
    generator = torch.Generator().manual_seed(seed)
    weights = torch.ones(4, 64, dtype=torch.bfloat16)
    losses = []
    for _ in range(steps):
        delta = weights - 1
        losses.append(INIT + (delta.float().square().sum(1) * 0.5).to(torch.bfloat16).float())
        weights -= (0.5 * 1e-5 * (NBETA + GAMMA) * delta).to(torch.bfloat16)
        weights += 1e-5**0.5 * torch.randn(weights.shape, generator=generator).to(torch.bfloat16)
    recorded: Array = torch.stack(losses, 1).to(torch.bfloat16).float().numpy()
    return recorded


# Each kind, as the auditor names it: chains that have it, and what else is known of them.
DEFECTS: dict[str, Callable[[int], tuple[Array, dict[str, Any]]]] = {
    "burn-in averaged in": lambda seed: (sgld(seed, start=1.0, steps=2000), {}),
    "drift": lambda seed: (sgld(seed) + np.linspace(0, 0.08, 4000), {"burn_in": 400}),
    "chains disagree": lambda seed: (sgld(seed, apart=[0.0, 0.0, 0.5, 1.5]), {"burn_in": 400}),
    "too few effective draws": lambda seed: (
        sgld(seed, chains=2, steps=8)[:, np.repeat(np.arange(8), 100)], {}
    ),
    "diffusion instead of equilibrium": lambda seed: (
        sgld(seed, step=1e-8, chains=64, gamma=0.0), {"gamma": 0.0, "step_size": 1e-8}
    ),
    "16-bit weights": lambda seed: (rounded(seed), {"step_size": 1e-5, "weight_scale": 1.0, "burn_in": 300}),
    "step-size bias": lambda seed: (
        sgld(seed, step=5e-4), {"step_size": 5e-4, "burn_in": 400, "hessian_trace": TRACE}
    ),
}  # fmt: skip
SOUND: dict[str, Any] = {"burn_in": 400, "hessian_trace": TRACE, "noise_trace": 0.0}
