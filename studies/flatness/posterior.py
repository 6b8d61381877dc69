"""The local posteriors of many networks at once: HMC on all data, one chain a network.

At inverse temperature nβ = t, network θ with weight decay w has the density exp(−U(δ)) over displacements δ,

    U(δ) = t [L_n(θ + δ) − L_n(θ) − ∇L_n(θ)·δ] + (γ/2) ‖δ‖²,      γ = t w + γ₀.

At a minimum of the penalized loss L_n + (w/2) ‖·‖² the slope ∇L_n(θ) is −w θ: this is the tempered posterior of just
that loss, held at θ by γ₀. The hold is needed even at large w, where the loss alone may bend down as steeply as the
penalty bends up. Minibatch noise leaves networks beside their minimum: without its slope the loss is measured by the
shape of the basin, not by how far θ can still fall. Coordinates are those in which the quadratic picture by EKFAC is
round, so that hardly any step is wasted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from basinscope.errors import InputError
from basinscope.sampling.adaptation import DualAveraging
from basinscope.sampling.diagnostics import effective_size
from basinscope.sampling.kernels import HMC, Random
from basinscope.sampling.target import Evaluation

from .spectra import Basis
from .stacks import Stack

ACCEPTANCE = 0.8


@dataclass(frozen=True)
class Chains:
    """What the chains of M networks saw at one temperature.

    Attributes:
        excess: L_n(θ + δ) − L_n(θ) of every kept draw, (M, S).
        virial: δ·∇U/d of every kept draw; its mean is 1 for the true posterior.
        acceptance: mean acceptance after warm-up, (M,).
        functional_variance: V = Σ_i Var[l_i], (M,).
        bayes_loss: BtL = −(1/n) Σ_i log E[p_i], (M,).
        gibbs_loss: GtL = (1/n) Σ_i E[l_i], (M,).
    """

    excess: np.ndarray
    virial: np.ndarray
    acceptance: np.ndarray
    functional_variance: np.ndarray
    bayes_loss: np.ndarray
    gibbs_loss: np.ndarray

    def stderr(self, number: int) -> float:
        """Standard error of the mean excess of one network."""
        row = self.excess[number : number + 1]
        size = effective_size(row)
        return float(row.std() / math.sqrt(size)) if size > 0 else math.nan

    def verdict(self, number: int) -> str:
        """`ok` where the virial is within 10 % of 1, the standard error within 10 % of the mean, and the halves of the
        chain within 10 % (or four standard errors) of each other; `failed` where the mean is not positive."""
        row, virial = self.excess[number], float(self.virial[number].mean())
        mean = float(row.mean())
        if not (math.isfinite(mean) and mean > 0 and math.isfinite(virial)):
            return "failed"
        half = len(row) // 2
        apart, error = abs(float(row[:half].mean() - row[half:].mean())), self.stderr(number)
        steady = error <= 0.1 * mean and apart <= max(0.1 * mean, 4 * error)
        return "ok" if steady and abs(virial - 1) <= 0.1 and self.acceptance[number] >= 0.4 else "doubtful"


@dataclass
class _Moments:
    """Running sums over draws of every sample's loss, (M, n)."""

    first: Tensor
    second: Tensor
    log_sum: Tensor
    base: Tensor
    draws: int = 0

    @classmethod
    def of(cls, base: Tensor) -> _Moments:
        return cls(torch.zeros_like(base), torch.zeros_like(base), torch.full_like(base, -torch.inf), base)

    def add(self, losses: Tensor) -> None:
        change = losses - self.base
        self.first += change
        self.second += change.square()
        self.log_sum = torch.logaddexp(self.log_sum, -losses)
        self.draws += 1

    def variance(self) -> Tensor:
        return (self.second / self.draws - (self.first / self.draws).square()).sum(1)


@dataclass
class Posterior(Stack):
    """Networks of one architecture on the same data, and how their posteriors are reached.

    Attributes:
        bases: for each the bases of its layers.
        weight_decays: w of each.
        hold: γ₀.
    """

    bases: Sequence[Sequence[Basis]]
    weight_decays: Sequence[float]
    hold: float
    _stacks: list[Basis] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if len(self.weights) != len(self.bases) or len(self.bases) != len(self.weight_decays):
            raise InputError(
                f"every network needs its bases and its weight decay: got {len(self.weights)} networks, "
                f"{len(self.bases)} sets of bases and {len(self.weight_decays)} weight decays"
            )
        super().__post_init__()
        self._decay = torch.tensor(self.weight_decays, dtype=torch.float64, device=self.land.device)
        self._stacks = [
            Basis(
                layers[0].index,
                *(
                    torch.stack([getattr(layer, name) for layer in layers]).to(self.land.device, self.land.dtype)
                    for name in ("outward", "inward", "products", "moments")
                ),
            )
            for layers in zip(*self.bases, strict=True)
        ]
        self.base = self.losses(torch.zeros_like(self.weights))

    # ------------------------------------------------------------------ coordinates

    def gammas(self, nbeta: float) -> Tensor:
        """γ of every network."""
        return nbeta * self._decay + self.hold

    def _scales(self, nbeta: float) -> list[Tensor]:
        gamma = self.gammas(nbeta).to(self.weights)[:, None, None]
        return [(nbeta * stack.moments.clamp(min=0) + gamma).rsqrt() for stack in self._stacks]

    def _move(self, z: Tensor, scales: Sequence[Tensor]) -> Tensor:
        """δ = U D z."""
        delta = torch.empty_like(z)
        for stack, scale in zip(self._stacks, scales, strict=True):
            places = stack.index.flatten()
            inner = scale * z[:, places].unflatten(1, stack.index.shape)
            delta[:, places] = (stack.outward @ inner @ stack.inward.mT).flatten(1)
        return delta

    def _pull(self, gradient: Tensor, scales: Sequence[Tensor]) -> Tensor:
        """D Uᵀ g: the gradient with respect to z."""
        pulled = torch.empty_like(gradient)
        for stack, scale in zip(self._stacks, scales, strict=True):
            places = stack.index.flatten()
            outer = gradient[:, places].unflatten(1, stack.index.shape)
            pulled[:, places] = (scale * (stack.outward.mT @ outer @ stack.inward)).flatten(1)
        return pulled

    def slopes(self) -> Tensor:
        """∇L_n(θ), (M, d)."""
        return self.gradient(torch.zeros_like(self.weights))

    # ------------------------------------------------------------------ sampling

    @torch.no_grad()
    def sample(self, nbeta: float, *, draws: int, warmup: int, leapfrogs: int, seeds: Sequence[int]) -> Chains:
        """Draws of all posteriors at nβ, from θ on; each network's random numbers come from its own seed."""
        scales, gamma, level = self._scales(nbeta), self.gammas(nbeta), self.slopes()
        proposed = self.base  # the losses of all samples where the density was evaluated last

        def force(z: Tensor) -> Tensor:
            delta = self._move(z, scales)
            return self._pull(nbeta * (self.gradient(delta) - level) + gamma.to(delta)[:, None] * delta, scales)

        def evaluate(z: Tensor) -> Evaluation:
            nonlocal proposed
            delta = self._move(z, scales)
            proposed, wide = self.losses(delta), delta.double()
            tilted = (proposed - self.base).mean(1) - (level.double() * wide).sum(1)
            return Evaluation(tilted, force(z), wide.square().sum(1))

        def kernel(sizes: list[float]) -> HMC:
            steps = torch.tensor(sizes, dtype=torch.float64)
            return HMC(steps, leapfrogs, lambda at: nbeta * at.excess + gamma / 2 * at.distance, force)

        random, tuners = _streams(seeds), [DualAveraging(0.1, ACCEPTANCE) for _ in seeds]
        state = kernel([tuner.step_size for tuner in tuners]).init(torch.zeros_like(self.weights), evaluate, random)
        losses, sums = proposed, _Moments.of(self.base)
        recorded: list[tuple[Tensor, Tensor]] = []
        accepted = torch.zeros(len(seeds), dtype=torch.float64)
        for number in range(warmup + draws):
            sizes = [tuner.step_size if number < warmup else tuner.final for tuner in tuners]
            new, draw = kernel(sizes).step(state, evaluate, random)
            moved = (new.position != state.position).any(1, keepdim=True)
            losses, state = torch.where(moved, proposed, losses), new
            if number < warmup:
                for tuner, share in zip(tuners, draw.acceptance.tolist(), strict=True):
                    tuner.update(share)
            else:
                accepted += draw.acceptance.cpu()
                sums.add(losses)
                virial = (draw.position.double() * draw.evaluation.gradient.double()).mean(1)
                recorded.append(((losses - self.base).mean(1), virial))
        excesses, virials = (torch.stack(column, 1).cpu().numpy() for column in zip(*recorded, strict=True))
        predictive = (sums.log_sum - math.log(draws)).mean(1)
        return Chains(
            excesses,
            virials,
            acceptance=(accepted / draws).numpy(),
            functional_variance=sums.variance().cpu().numpy(),
            bayes_loss=-predictive.cpu().numpy(),
            gibbs_loss=(self.base + sums.first / draws).mean(1).cpu().numpy(),
        )


def _streams(seeds: Sequence[int]) -> Random:
    """Random numbers of every network from a generator of its own, whoever is beside it."""
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]

    def rows(draw: Callable[..., Tensor], like: Tensor) -> Tensor:
        return torch.stack(
            [draw(like.shape[1:], generator=generator, dtype=like.dtype) for generator in generators]
        ).to(like)

    return Random(lambda like: rows(torch.randn, like), lambda like: rows(torch.rand, like))
