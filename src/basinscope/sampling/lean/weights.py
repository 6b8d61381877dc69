"""The weights that a chain walks on: the network's own, beside w*, which is kept once and put back in the end."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from ...errors import InputError
from ...language.model import DELTAS
from ...parts import Piece
from .noise import CounterNoise, stochastically_rounded
from .team import Team, team_of


@dataclass(frozen=True)
class Step:
    """One Langevin step w' = w − (ε/2) P ∇U + √(εP) (ξ_k + ξ_{k+1})/2 with a constant P for each tensor.

    With the `persistence` c of the momentum it is the BAOAB step of `kernels.LeimkuhlerMatthews`.

    Attributes:
        size: ε.
        gamma: the localiser's γ.
        scales: P, tensor by tensor.
        persistence: c in [0, 1).
        heat: factor of the noise; 0 is a descent that stays as noisy as its minibatches are.
    """

    size: float
    gamma: float
    scales: Sequence[float]
    persistence: float = 0.0
    heat: float = 1.0

    @property
    def reach(self) -> float:
        """ε(1 + c)/(1 − c), by which positions spread and gradient noise lifts the mean."""
        return self.size * (1 + self.persistence) / (1 - self.persistence)


class Weights:
    """Leaves w, their w*, and what else a chain keeps of their size.

    Weights of 32 bits and more hold w = w* + δ themselves, in all 4 bytes for w* besides. Others are the rounded
    w* + δ of a δ that is kept apart: in float32, or in bfloat16 with stochastic rounding.

    Args:
        leaves: the tensors, by name.
        delta: how δ is kept, one of `DELTAS`.
        slices: of those that are free in part, which part it is.

    Attributes:
        team: the processes over which they are spread.
        sizes: the number of entries of each, wherever they are.
    """

    def __init__(
        self, leaves: Mapping[str, Tensor], delta: str | None = None, slices: Mapping[str, Piece] | None = None
    ) -> None:
        if delta not in DELTAS:
            raise InputError(f"delta must be one of {', '.join(map(repr, DELTAS))}, got {delta!r}")
        self.names = list(leaves)
        self.leaves = list(leaves.values())
        self.team: Team = team_of(self.leaves)
        self._slices = [_on((slices or {}).get(name), leaf.device) for name, leaf in leaves.items()]
        self._whole = [local(leaf.detach()) for leaf in self.leaves]
        self._here = [self.part(number, whole) for number, whole in enumerate(self._whole)]
        self.sizes = [
            leaf.numel() if piece is None else here.numel()
            for leaf, piece, here in zip(self.leaves, self._slices, self._here, strict=True)
        ]
        self._star = [here.clone() for here in self._here]
        self._away: list[Tensor] | None = None
        if delta is not None or any(here.dtype.itemsize < 4 for here in self._here):
            kind = torch.bfloat16 if delta == "bfloat16" else torch.float32
            self._away = [torch.zeros_like(here, dtype=kind) for here in self._here]
        self._momentum: list[Tensor] | None = None
        self._at_star = [False] * len(self._here)  # whether w holds w*, and, with no δ apart, `_star` holds w

    def part(self, number: int, tensor: Tensor) -> Tensor:
        """What is free of a tensor, or of its gradient, as far as this process has it."""
        piece, here = self._slices[number], local(tensor)
        return here if piece is None else here.index_select(piece.axis, piece.index)  # type: ignore[arg-type]

    def _written(self, number: int) -> None:
        """What is free of a tensor into the tensor; it is the tensor itself, unless it is a slice."""
        piece = self._slices[number]
        if piece is not None:
            self._whole[number].index_copy_(piece.axis, piece.index, self._here[number])  # type: ignore[arg-type]

    def summed(self, values: Tensor) -> Tensor:
        """Sums over what this process has of each tensor, on the CPU, as sums over all of it."""
        return self.team.summed(values.to(self._here[0].device)).cpu()

    def star(self) -> list[Tensor]:
        """w*, while the network is not exchanged for it."""
        return self._star

    def bytes(self) -> int:
        """Memory that is held beside the weights themselves."""
        tensors = [*self._star, *(self._away or []), *(self._momentum or [])]
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    # ------------------------------------------------------------------ a chain

    def begin(self, step: Step, noise: CounterNoise) -> None:
        """Put a chain at w*, with fresh momenta if it has any."""
        self.restore()
        for away in self._away or []:
            away.zero_()
        self._momentum = None
        if step.persistence:
            self._momentum = [torch.zeros_like(here, dtype=work(here)) for here in self._here]
            if step.heat:
                for number, momentum in enumerate(self._momentum):
                    noise.fill(momentum, 0, number).mul_(step.heat)

    def rest(self) -> None:
        """Forget the momenta, whose memory others need."""
        self._momentum = None

    @torch.no_grad()
    def move(self, number: int, gradient: Tensor, step: Step, noise: CounterNoise, time: int) -> None:
        """Step number `time` of one tensor, by the gradient of nβL in what is free of it."""
        here, star = self._here[number], self._star[number]
        if self._away is None:
            self._push(number, here, star, gradient, step, noise, time)
            self._written(number)
            return
        away = self._away[number]
        delta = away.to(work(here))  # itself, if it is kept so
        self._push(number, delta, None, gradient.to(delta.dtype), step, noise, time)
        if away.dtype is torch.bfloat16:
            rounding = noise.generator(away.device, -1 - time, number)
            away.copy_(stochastically_rounded(delta, rounding))
            delta = away.to(delta.dtype)
        torch.add(star, delta, out=here) if here.dtype == delta.dtype else here.copy_(delta.add(star))
        self._written(number)

    def _push(
        self,
        number: int,
        at: Tensor,
        centre: Tensor | None,
        gradient: Tensor,
        step: Step,
        noise: CounterNoise,
        time: int,
    ) -> None:
        """Move `at`, which the localiser pulls towards `centre`, or 0."""
        scale = step.scales[number]
        if self._momentum is None:
            drift = 0.5 * step.size * scale
            _pull(at, centre, drift * step.gamma)
            at.add_(gradient, alpha=-drift)
            if step.heat:
                size, xi = 0.5 * step.heat * math.sqrt(step.size * scale), torch.empty_like(at)
                at.add_(noise.fill(xi, time, number), alpha=size).add_(noise.fill(xi, time + 1, number), alpha=size)
            return
        momentum, stride = self._momentum[number], math.sqrt(step.size * scale)
        momentum.add_(gradient, alpha=-stride).add_(at, alpha=-stride * step.gamma)
        if centre is not None:
            momentum.add_(centre, alpha=stride * step.gamma)
        at.add_(momentum, alpha=0.5 * stride)
        momentum.mul_(step.persistence)
        if step.heat:
            xi = noise.fill(torch.empty_like(momentum), time + 1, number)
            momentum.add_(xi, alpha=step.heat * math.sqrt(1 - step.persistence**2))
        at.add_(momentum, alpha=0.5 * stride)

    # ------------------------------------------------------------------ places

    def displacement(self, number: int) -> Tensor:
        """δ of one tensor."""
        if self._away is not None:
            return self._away[number].to(work(self._here[number]))
        return self._here[number] - self._star[number]

    @torch.no_grad()
    def aim(self, number: int, direction: Tensor, length: float) -> None:
        """Put one tensor at w* + length·direction."""
        delta = local(direction).to(work(self._here[number])) * length
        if self._away is not None:
            self._away[number].copy_(delta)
        self._here[number].copy_(delta.add_(self._star[number]))
        self._written(number)

    @torch.no_grad()
    def mirror(self) -> None:
        """From w* + δ to w* − δ."""
        for number, (here, star) in enumerate(zip(self._here, self._star, strict=True)):
            self.aim(number, self.displacement(number), -1.0) if self._away is not None else here.lerp_(star, 2.0)
            self._written(number)

    @contextmanager
    def at_star(self) -> Iterator[None]:
        """The network at w*; then again where the chain is."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange_back()

    @torch.no_grad()
    def _exchange(self) -> None:
        """w and w* in each other's place, tensor by tensor; at every moment one of the two holds w*."""
        for number, (here, star) in enumerate(zip(self._here, self._star, strict=True)):
            copy = here.clone() if self._away is None else None
            here.copy_(star)
            self._at_star[number] = True
            if copy is not None:
                star.copy_(copy)
            self._written(number)

    @torch.no_grad()
    def _exchange_back(self) -> None:
        for number, (here, star) in enumerate(zip(self._here, self._star, strict=True)):
            if self._away is not None:
                self._at_star[number] = False
                here.copy_(self._away[number].to(work(here)) + star)
            else:
                copy = star.clone()
                star.copy_(here)
                self._at_star[number] = False
                here.copy_(copy)
            self._written(number)

    @torch.no_grad()
    def restore(self) -> None:
        """w* into the network, to the bit; may be called again and again."""
        for number, (here, star) in enumerate(zip(self._here, self._star, strict=True)):
            if not self._at_star[number]:
                here.copy_(star)
            elif self._away is None:
                star.copy_(here)
            self._at_star[number] = False
            self._written(number)


def _on(piece: Piece | None, device: torch.device) -> Piece | None:
    """A slice with its places on a device."""
    return None if piece is None or piece.index is None else Piece(piece.parameter, piece.axis, piece.index.to(device))


def local(tensor: Tensor) -> Tensor:
    """This process's part of a tensor that is spread over several."""
    part: Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return part


def work(tensor: Tensor) -> torch.dtype:
    """The type in which a tensor's steps are computed: its own, but no less than float32."""
    return tensor.dtype if tensor.dtype.itemsize >= 4 else torch.float32


def _pull(at: Tensor, centre: Tensor | None, share: float) -> None:
    """Bring `at` nearer to `centre`, or 0, by a share of the way."""
    if centre is None:
        at.mul_(1 - share)
    else:
        at.lerp_(centre, share)
