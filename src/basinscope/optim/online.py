"""Online low-rank natural gradient (Povey et al. 2015): no Fisher matrix of samples, one of each tensor's axes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor

from ..checks import positive
from ..errors import InputError
from .lowrank import Due, LowRank, advanced, due, initial, preconditioned, weight_of_batch
from .natural import NaturalGradient

MOST_RANK = 80

Axis = tuple[int, int]  # a parameter's number, and one of its axes


class OnlineNGD(NaturalGradient):
    """Each gradient tensor, axis by axis, through the inverse of a low-rank-plus-identity matrix learned on the way.

    For an axis of size D the tensor is read as rows X (N, D), N the product of the other axes, and multiplied by
    G⁻¹ = [F + (α/D) tr F · I]⁻¹, F = RᵀDR + ρI following F ← ηXᵀX/N + (1 − η)F (see `lowrank`). The result goes on to
    the next axis. This is what papers 000/001 trained with: the rows are those of the averaged gradient, so F is no
    Fisher matrix of samples but a factor of the kind Shampoo uses. Axes of size 1 are left alone.

    With `rescale`, as in Kaldi, each axis keeps the norm of what came in: ‖direction‖ = ‖∇L‖ for every tensor, and
    α → ∞ is exactly gradient descent. Without it the direction is XG⁻¹ itself.

    Args:
        parameters: tensors, or groups of them (with options of their own).
        lr: learning rate.
        alpha: smoothing; Kaldi's 4 is strong.
        epsilon: floor of ρ and D. Since tr F ≥ D·ρ ≥ D·ε, it takes the place of the ε in κ = (α/d)·max(tr F, ε).
        eta: weight of the newest gradient in F; None: min(0.9, 1 − exp(−N/history)).
        history: rows over which the past fades where `eta` is None.
        delta: floor of ρ and D, relative to the largest eigenvalue.
        rank: r, or (r of the first axis, r of the others); None: min((D + 1)/2, 80). Never more than D − 1.
        rescale: keep the norm of the gradient.
        update_period: steps between two updates of F; the first ten steps always update it.
        momentum: of the direction.
        weight_decay: adds weight_decay·w to the gradient.

    Examples:
        >>> import torch, basinscope as bs
        >>> w = torch.nn.Parameter(torch.zeros(3, 4))
        >>> step = bs.optim.OnlineNGD([w], lr=0.1, alpha=0.1)
        >>> w.grad = torch.arange(12.0).view(3, 4)
        >>> step.step()
        >>> float(step.norms["update"]), round(float(w.detach().norm() / w.grad.norm()), 5)
        (2.2494..., 0.1)
    """

    def __init__(
        self,
        parameters: Iterable[Any],
        *,
        lr: float = 1e-2,
        alpha: float = 0.1,
        epsilon: float = 1e-10,
        eta: float | None = 0.9,
        history: float = 2000.0,
        delta: float = 5e-4,
        rank: int | tuple[int, int] | None = None,
        rescale: bool = True,
        update_period: int = 4,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
    ) -> None:
        positive("epsilon", epsilon)
        positive("history", history)
        if not (isinstance(delta, (int, float)) and 0 <= delta < 1):
            raise InputError(f"delta must lie in [0, 1), got {delta!r}")
        ranks = rank if isinstance(rank, tuple) else (rank, rank)
        if len(ranks) != 2 or any(r is not None and (not isinstance(r, int) or r < 1) for r in ranks):
            raise InputError(f"rank must be a whole number of at least 1, a pair of them or None, got {rank!r}")
        options = {
            "lr": lr, "alpha": alpha, "epsilon": epsilon, "eta": eta, "history": history, "delta": delta, "rank": rank,
            "rescale": rescale, "update_period": update_period, "momentum": momentum, "weight_decay": weight_decay,
        }  # fmt: skip
        super().__init__(parameters, options)
        self._states: dict[Axis, LowRank] = {}

    def _directions(self, gradients: list[Tensor]) -> list[Tensor]:
        groups = [group for group in self.param_groups for _ in group["params"]]
        updates: dict[Axis, Due] = {}
        directions = []
        for number, (gradient, group) in enumerate(zip(gradients, groups, strict=True)):
            found = gradient
            for axis, size in enumerate(gradient.shape):
                if size == 1:
                    continue
                rows = found.movedim(axis, -1)
                flat = rows.reshape(-1, size)
                eta = weight_of_batch(len(flat), group["history"]) if group["eta"] is None else group["eta"]
                settings = {"eta": eta, "epsilon": group["epsilon"], "delta": group["delta"]}
                if (number, axis) not in self._states:
                    rank = rank_of_axis(group["rank"], axis, size)
                    self._states[number, axis] = initial(flat, rank, **settings)
                state = self._states[number, axis]
                if self._due(group):
                    updates[number, axis] = due(state, flat, **settings)
                flat = preconditioned(state, flat, alpha=group["alpha"], rescale=group["rescale"])
                found = flat.view(rows.shape).movedim(-1, axis)
            directions.append(found.contiguous())
        self._states |= zip(updates, advanced(list(updates.values())), strict=True)  # after all of them were used
        return directions

    def _fisher_state(self) -> Any:
        return [[*place, *state] for place, state in self._states.items()]

    def _load_fisher_state(self, state: Any) -> None:
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        self._states = {
            (number, axis): LowRank(*(part.to(device=parameters[number].device, copy=True) for part in parts))
            for number, axis, *parts in state
        }


def rank_of_axis(rank: int | tuple[int, int] | None, axis: int, size: int) -> int:
    """The rank r that an axis of the given size gets: at most D − 1.

    Examples:
        >>> rank_of_axis(None, 0, 9), rank_of_axis((80, 20), 0, 64), rank_of_axis((80, 20), 1, 785)
        (5, 63, 20)
    """
    wanted = (rank[0] if axis == 0 else rank[1]) if isinstance(rank, tuple) else rank
    return min(size - 1, min((size + 1) // 2, MOST_RANK) if wanted is None else wanted)
