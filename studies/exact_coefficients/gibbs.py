"""Exact samples of deep linear and of ReLU networks: every layer given all others is a normal distribution.

The target is exp(−(T/2) Σ_i |f_w(x_i) − f_w*(x_i)|² − (γ/2)‖w − w*‖²), and λ_T = E[(T/2) Σ |f_w − f_w*|²]. Chains start
at w* and go up a ladder of T; at each rung the first third is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Sweep = Callable[[float], Array]  # one sweep at T; (T/2) Σ |f − f*|² of every chain after it


@dataclass(frozen=True)
class Rung:
    """E[(T/2) Σ |f − f*|²] at T, with its standard error from independent chains."""

    t: float
    mean: float
    stderr: float


def climbed(sweep: Sweep, ladder: Sequence[float], sweeps: int) -> list[Rung]:
    """The mean at every T of the ladder."""
    rungs = []
    for t in ladder:
        energies = np.array([sweep(t) for _ in range(sweeps)])[sweeps // 3 :].mean(axis=0)
        rungs.append(Rung(t, float(energies.mean()), float(energies.std(ddof=1)) / math.sqrt(len(energies))))
    return rungs


def layer(
    above: Array, below: Array, target: Array, t: float, gamma: float, centre: Array, rng: np.random.Generator
) -> Array:
    """Draws of W from exp(−(T/2)‖A W B − Y‖² − (γ/2)‖W − W*‖²), with A = `above`, B = `below` and Y = `target`.

    In the bases of the singular vectors of A and B the entries of W are independent.
    """
    out, sizes, turn = np.linalg.svd(above)
    across, others, into = np.linalg.svd(below)
    rows, columns = turn.shape[-1], across.shape[-1]
    seen = out.transpose(0, 2, 1) @ target @ into.transpose(0, 2, 1)
    scale, pull = np.zeros((len(above), rows, columns)), np.zeros((len(above), rows, columns))
    r, c = sizes.shape[-1], others.shape[-1]
    scale[:, :r, :c] = sizes[:, :, None] * others[:, None, :]
    pull[:, :r, :c] = seen[:, :r, :c]
    precision = t * scale**2 + gamma
    wanted = t * scale * pull + gamma * turn @ centre @ across
    draw = wanted / precision + rng.normal(size=precision.shape) / np.sqrt(precision)
    return np.asarray(turn.transpose(0, 2, 1) @ draw @ across.transpose(0, 2, 1), dtype=np.float64)


def linear(widths: Sequence[int], rank: int, gamma: float, chains: int, rng: np.random.Generator) -> Sweep:
    """y = W_L ⋯ W₁ x on orthonormal inputs, where every W* is the identity on the first `rank` coordinates."""
    centres = [np.eye(above, below) * (np.arange(below) < rank) for below, above in pairwise(widths)]
    weights = [np.broadcast_to(centre, (chains, *centre.shape)).copy() for centre in centres]
    true = _product(centres, widths[0])

    def sweep(t: float) -> Array:
        for place, centre in enumerate(centres):
            below, above = _product(weights[:place], widths[0]), _product(weights[place + 1 :], widths[place + 1])
            below, above = (np.broadcast_to(each, (chains, *each.shape[-2:])) for each in (below, above))
            weights[place] = layer(above, below, true, t, gamma, centre, rng)
        return np.asarray(0.5 * t * ((_product(weights, widths[0]) - true) ** 2).sum((1, 2)), dtype=np.float64)

    return sweep


def _product(matrices: Sequence[Array], width: int) -> Array:
    product = np.eye(width)
    for matrix in matrices:
        product = matrix @ product
    return product


@dataclass(frozen=True)
class Units:
    """A ReLU network y = B relu(A x̃) at w*, with x̃ = (x, 1), whose units fall into groups.

    Attributes:
        inner: A, (units, inputs + 1).
        outer: B, (outputs, units).
        x: x̃, (inputs + 1, n).
        group: of each unit; each unit is active on the inputs of its group and on no others.
        place: group of each input.
    """

    inner: Array
    outer: Array
    x: Array
    group: NDArray[np.int64]
    place: NDArray[np.int64]

    def outputs(self, inner: Array, outer: Array) -> Array:
        """Of weights (chains, …)."""
        return np.asarray(outer @ np.maximum(inner @ self.x, 0), dtype=np.float64)


def relu(units: Units, gamma: float, chains: int, rng: np.random.Generator) -> Sweep:
    """B given A is normal. A given B is normal as long as no unit changes sides: such draws are proposed and accepted
    by Metropolis and Hastings, group by group, with the network's own outputs."""
    inner = np.broadcast_to(units.inner, (chains, *units.inner.shape)).copy()
    outer = np.broadcast_to(units.outer, (chains, *units.outer.shape)).copy()
    true = units.outputs(units.inner, units.outer)

    def missed(weights: Array) -> Array:
        return np.asarray(((units.outputs(weights, outer) - true) ** 2).sum((1, 2)), dtype=np.float64)

    def as_linear(weights: Array) -> Array:
        active = units.group[:, None] == units.place
        return np.asarray(((outer @ (weights @ units.x * active) - true) ** 2).sum((1, 2)), dtype=np.float64)

    def sweep(t: float) -> Array:
        nonlocal outer
        hidden = np.maximum(inner @ units.x, 0)
        one = np.broadcast_to(np.eye(len(units.outer)), (chains, len(units.outer), len(units.outer)))
        outer = layer(one, hidden, true, t, gamma, units.outer, rng)
        for number in np.unique(units.group):
            of_group, seen = units.group == number, units.place == number
            x = np.broadcast_to(units.x[:, seen], (chains, len(units.x), seen.sum()))
            proposal = layer(outer[:, :, of_group], x, true[:, seen], t, gamma, units.inner[of_group], rng)
            proposed = inner.copy()
            proposed[:, of_group] = proposal
            gain = missed(inner) - as_linear(inner) - missed(proposed) + as_linear(proposed)
            accepted = np.log(rng.uniform(size=chains)) < 0.5 * t * gain
            inner[accepted] = proposed[accepted]
        return 0.5 * t * missed(inner)

    return sweep
