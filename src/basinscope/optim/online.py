"""Online low-rank natural gradient (Povey et al. 2015): no Fisher matrix of samples, one of each tensor's axes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor

from ..checks import positive
from ..errors import InputError
from .axes import Axes, AxisSettings
from .lowrank import LowRank
from .natural import NaturalGradient


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
        alpha: smoothing; Kaldi's 4 is strong, 0 leaves only ε and δ.
        epsilon: floor of ρ and D. Since tr F ≥ D·ρ ≥ D·ε, it takes the place of the ε in κ = (α/d)·max(tr F, ε).
        eta: weight of the newest gradient in F; None: min(0.9, 1 − exp(−N/history)).
        history: rows over which the past fades where `eta` is None.
        delta: floor of ρ and D, relative to the largest eigenvalue.
        rank: r, or (r of the first axis, r of the others); None: min((D + 1)/2, 80). Never more than D − 1.
        rescale: keep the norm of the gradient.
        single: learn F as the published code of papers 000/001 does, whose rounding errors decide most of its
            directions (see `lowrank.due`); False: learn it accurately.
        update_period: steps between two updates of F; the first ten steps always update it.
        momentum: μ of v ← μ·v + direction, along which a step goes.
        nesterov: go along direction + μ·v instead.
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

    undamped = True

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
        single: bool = False,
        update_period: int = 4,
        momentum: float = 0.0,
        nesterov: bool = False,
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
            "rescale": rescale, "single": single, "update_period": update_period, "momentum": momentum,
            "nesterov": nesterov, "weight_decay": weight_decay,
        }  # fmt: skip
        super().__init__(parameters, options)
        self._axes = Axes({})

    def _directions(self, gradients: list[Tensor]) -> list[Tensor]:
        groups = [group for group in self.param_groups for _ in group["params"]]
        settings = [AxisSettings.of(group) for group in groups]
        return self._axes.directions(gradients, settings, [self._due(group) for group in groups])

    def _fisher_state(self) -> Any:
        return [[*place, *state] for place, state in self._axes.states.items()]

    def _load_fisher_state(self, state: Any) -> None:
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        self._axes = Axes(
            {
                (number, axis): LowRank(*(part.to(device=parameters[number].device, copy=True) for part in parts))
                for number, axis, *parts in state
            }
        )
