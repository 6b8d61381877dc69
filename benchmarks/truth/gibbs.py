"""An exact sampler for the local posterior of a deep linear network.

With squared loss every factor of W = W_L…W_1 is Gaussian given the others, so a sweep over the factors needs no step
size and no Metropolis test. Everything enters through Σ = XᵀX/n and C = YᵀX/n, so a sweep costs O(width³), whatever n.

Two kinds of move alternate:

* a factor given the rest, precision t (AᵀA ⊗ BΣBᵀ) + γ with A the layers above and B those below;
* hidden-layer moves W_l → g W_l, W_{l+1} → W_{l+1} g⁻¹, which leave the network's map, hence the loss, as it is.
  Factor by factor a chain creeps along these orbits (about tσs²/γ sweeps), drawing g crosses them at once.

The recorded energy is the conditional expectation of t(L − L*) given all factors but one (Rao–Blackwell): the thermal
noise of the regular directions, most of the variance, never enters.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

NEGLIGIBLE = 1e-10  # relative precision below which a shear does nothing but amplify rounding


@dataclass(frozen=True)
class LinearPosterior:
    """∝ exp(−t L_n(w) − (γ/2)‖w−w*‖²) for L_n = ½ tr(WΣWᵀ) − tr(WCᵀ) + const, W = product of the factors.

    Attributes:
        second_moment: Σ = XᵀX/n, inputs × inputs.
        cross: C = YᵀX/n, outputs × inputs.
        centre: the factors of w*, input side first, each of shape (width out, width in).
        t: nβ.
        gamma: precision of the localiser.
    """

    second_moment: Array
    cross: Array
    centre: tuple[Array, ...]
    t: float
    gamma: float

    @property
    def depth(self) -> int:
        return len(self.centre)

    @property
    def dimension(self) -> int:
        return sum(factor.size for factor in self.centre)

    @property
    def offset(self) -> float:
        """t L_n(w*) up to the same constant that `energies` leaves out."""
        return float(self.energies([factor[None] for factor in self.centre])[0])

    def energies(self, state: list[Array]) -> Array:
        """t L_n up to a constant, one per chain."""
        product = state[0]
        for factor in state[1:]:
            product = factor @ product
        quadratic: Array = 0.5 * np.einsum("coi,coi->c", product @ self.second_moment, product)
        linear: Array = np.einsum("coi,oi->c", product, self.cross)
        return self.t * (quadratic - linear)

    def start(self, chains: int) -> list[Array]:
        """Every chain at w*."""
        return [np.repeat(factor[None], chains, axis=0) for factor in self.centre]


def sweep(posterior: LinearPosterior, state: list[Array], rng: np.random.Generator, *, upward: bool) -> Array:
    """Redraw every factor once, from the input upward or back, then every hidden basis; returns E[tL | rest] + const.

    `state` is updated in place. The returned energies, one per chain, are the means over the factors.
    """
    depth = posterior.depth
    total = np.zeros(len(state[0]))
    order = range(depth) if upward else range(depth - 1, -1, -1)
    above, below = _products_above(state), _products_below(state)
    for index in order:
        state[index], expected = _draw_factor(posterior, index, above[index], below[index], rng)
        total += expected
        if upward and index + 1 < depth:
            below[index + 1] = state[index] if index == 0 else state[index] @ _some(below[index])
        if not upward and index > 0:
            above[index - 1] = state[index] if index == depth - 1 else _some(above[index]) @ state[index]
    for index in range(depth - 1):
        draw_shear(posterior, state, index, rng)
        draw_scales(posterior, state, index, rng)
        flip_signs(posterior, state, index, rng)
    return total / depth


def _products_above(state: list[Array]) -> list[Array | None]:
    """A_l = W_L…W_{l+1}; None stands for the identity."""
    products: list[Array | None] = [None]
    for factor in reversed(state[1:]):
        products.append(factor if products[-1] is None else products[-1] @ factor)
    return products[::-1]


def _products_below(state: list[Array]) -> list[Array | None]:
    """B_l = W_{l−1}…W_1; None stands for the identity."""
    products: list[Array | None] = [None]
    for factor in state[:-1]:
        products.append(factor if products[-1] is None else factor @ products[-1])
    return products


def _some(product: Array | None) -> Array:
    assert product is not None
    return product


def _draw_factor(
    posterior: LinearPosterior, index: int, above: Array | None, below: Array | None, rng: np.random.Generator
) -> tuple[Array, Array]:
    """One factor given the others, in the eigenbases of AᵀA and BΣBᵀ; and E[tL | the others] + const."""
    t, gamma = posterior.t, posterior.gamma
    pull = posterior.cross[None] if below is None else posterior.cross @ _t(below)
    if above is not None:
        pull = _t(above) @ pull
    centre = posterior.centre[index]
    gram_below = posterior.second_moment[None] if below is None else below @ posterior.second_moment @ _t(below)
    b, right = np.linalg.eigh(gram_below)
    if above is None:
        a = np.ones((1, centre.shape[0]))
        left = None
        pull, home = pull @ right, centre @ right
    else:
        a, left = np.linalg.eigh(_t(above) @ above)
        pull, home = _t(left) @ pull @ right, _t(left) @ centre @ right
    stiffness = t * np.maximum(a, 0)[:, :, None] * np.maximum(b, 0)[:, None, :]
    precision = stiffness + gamma
    mean = (t * pull + gamma * home) / precision
    expected = np.sum(0.5 * stiffness * (mean**2 + 1 / precision) - t * pull * mean, axis=(1, 2))
    draw = mean + rng.standard_normal(mean.shape) / np.sqrt(precision)
    factor = draw @ _t(right)
    return (factor if left is None else left @ factor), expected


def draw_shear(posterior: LinearPosterior, state: list[Array], index: int, rng: np.random.Generator) -> None:
    """Add a random combination S of half of the hidden units to the other half, exactly from its conditional.

    With P = W_l (rows are hidden units), Q = W_{l+1} and the units split into I and J: P_I += S P_J, Q_J −= Q_I S.
    The product QP and the volume stay as they are, and the localiser is quadratic in S with precision
    γ (S P_J P_Jᵀ + Q_Iᵀ Q_I S), so S is Gaussian.
    """
    lower, upper = state[index], state[index + 1]
    hidden = lower.shape[1]
    if hidden < 2:
        return
    order = rng.permutation(hidden)
    moved, fixed = order[: hidden // 2], order[hidden // 2 :]
    for to, source in ((moved, fixed), (fixed, moved)):
        p_source, q_to = lower[:, source], upper[:, :, to]
        away_p = lower[:, to] - posterior.centre[index][to]
        away_q = upper[:, :, source] - posterior.centre[index + 1][:, source]
        c, left = np.linalg.eigh(_t(q_to) @ q_to)
        e, right = np.linalg.eigh(p_source @ _t(p_source))
        precision = np.maximum(c, 0)[:, :, None] + np.maximum(e, 0)[:, None, :]
        live = precision > NEGLIGIBLE * (c[:, -1] + e[:, -1])[:, None, None]
        precision = np.where(live, precision, 1.0)
        pull = _t(left) @ (_t(q_to) @ away_q - away_p @ _t(p_source)) @ right
        noise = rng.standard_normal(precision.shape) / np.sqrt(posterior.gamma * precision)
        shear = left @ np.where(live, pull / precision + noise, 0.0) @ _t(right)
        lower[:, to] += shear @ p_source
        upper[:, :, source] -= q_to @ shear


def draw_scales(posterior: LinearPosterior, state: list[Array], index: int, rng: np.random.Generator) -> None:
    """Metropolis steps on the scale of every hidden unit: row p → eᵘp, column q → e⁻ᵘq, volume e^{u(dim p − dim q)}."""
    lower, upper = state[index], state[index + 1]
    p_star, q_star = posterior.centre[index], posterior.centre[index + 1]
    jacobian = lower.shape[2] - upper.shape[1]
    pp, qq = np.sum(lower**2, axis=2), np.sum(upper**2, axis=1)
    ps, qs = np.sum(lower * p_star, axis=2), np.sum(upper * q_star, axis=1)

    def log_density(u: Array) -> Array:
        grown, shrunk = np.exp(u), np.exp(-u)
        distance = grown * (grown * pp - 2 * ps) + shrunk * (shrunk * qq - 2 * qs)
        result: Array = -0.5 * posterior.gamma * distance + jacobian * u
        return result

    # No single step size suits all units: the units of a strongly curved layer need small ones, idle ones large.
    u = np.zeros_like(pp)
    current = log_density(u)
    for width in np.exp(rng.uniform(np.log(0.02), np.log(2.0), size=3)):
        proposal = u + width * rng.standard_normal(u.shape)
        proposed = log_density(proposal)
        accept = np.log(rng.random(u.shape)) < proposed - current
        u, current = np.where(accept, proposal, u), np.where(accept, proposed, current)
    lower *= np.exp(u)[:, :, None]
    upper *= np.exp(-u)[:, None, :]


def flip_signs(posterior: LinearPosterior, state: list[Array], index: int, rng: np.random.Generator) -> None:
    """Metropolis test of the opposite sign for one direction v of the hidden layer: P → gP, Q → Qg, g = 1 − 2vvᵀ.

    A hidden layer no wider than the rank has two separate orbits, det g > 0 and < 0, which no continuous move connects.
    The localiser sees g through tr(gT), T = P P*ᵀ + QᵀQ*, and v is a right singular vector of T, mostly one with a
    small singular value, where a flip is cheap. A flip takes T to gT, which has the same right singular vectors: the
    proposal is symmetric.
    """
    lower, upper = state[index], state[index + 1]
    overlap = lower @ posterior.centre[index].T + _t(upper) @ posterior.centre[index + 1]
    vectors = np.linalg.eigh(_t(overlap) @ overlap)[1]
    chains, hidden = np.arange(len(lower)), lower.shape[1]
    v = vectors[chains, :, np.minimum(rng.geometric(0.5, len(lower)) - 1, hidden - 1)]
    cost = 2 * np.einsum("ci,cij,cj->c", v, overlap, v)
    accept = np.log(rng.random(len(lower))) < -posterior.gamma * cost
    v = v[accept]
    vp, qv = np.einsum("ch,chi->ci", v, lower[accept]), np.einsum("coh,ch->co", upper[accept], v)
    lower[accept] -= 2 * v[:, :, None] * vp[:, None, :]
    upper[accept] -= 2 * qv[:, :, None] * v[:, None, :]


def _t(matrix: Array) -> Array:
    return np.swapaxes(matrix, -1, -2)
