"""The soft rank: how many directions of a basin are steep compared with the weight decay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, overload

from torch import Tensor

from ..curvature.decay import WeightDecay
from ..curvature.functions import SOFT_RANK, SOFT_RANK_SQUARED, trace_function
from ..curvature.kronecker import Sharing
from ..curvature.operators import check_differentiable
from ..errors import InputError
from ..estimates import Estimate
from ..landscape import Landscape
from ..language.model import LanguageModel

Method = Literal["auto", "exact", "dual", "lanczos", "block", "ekfac", "kfac", "diagonal"]
Matrix = Literal["fisher", "hessian", "covariance"]


@overload
def soft_rank(
    land: Landscape | LanguageModel, *, weight_decay: float | Mapping[str, float | Tensor], matrix: Matrix = ...,
    method: Method = ..., order: int = ..., sharing: Sharing = ..., seed: int = ..., rtol: float = ...,
    progress: bool = ...,
) -> Estimate: ...  # fmt: skip


@overload
def soft_rank(
    land: Landscape | LanguageModel, *, weight_decay: Sequence[float], matrix: Matrix = ..., method: Method = ...,
    order: int = ..., sharing: Sharing = ..., seed: int = ..., rtol: float = ..., progress: bool = ...,
) -> list[Estimate]: ...  # fmt: skip


def soft_rank(
    land: Landscape | LanguageModel,
    *,
    weight_decay: WeightDecay,
    matrix: Matrix = "fisher",
    method: Method = "auto",
    order: int = 1,
    sharing: Sharing = "expand",
    seed: int = 0,
    rtol: float = 0.02,
    progress: bool = True,
) -> Estimate | list[Estimate]:
    """rank_Λ(A) = Tr(A (A + Λ)⁻¹) = Σ_i σ_i / (σ_i + λ); order 2 is Tr((A (A + Λ)⁻¹)²).

    The definition is that of §2 of Shoham, Mor-Yosef and Avron 2025, https://arxiv.org/abs/2506.17809.
    Directions much steeper than the weight decay count as one, much flatter ones as nothing. With λ = γ/(nβ) half of
    the Hessian's soft rank is the learning coefficient of a quadratic basin. For a calibrated model rank_Λ(F)/n is
    the generalization gap up to O(‖Λ‖) (Prop. 4.2), and the second order over n the squared distance of losses.

    Args:
        land: the landscape, or a `LanguageModel`.
        weight_decay: λ > 0 of the penalty (λ/2)‖w‖² added to the mean loss; a sequence of them, which share one
            factorization and return a list; or a dict from name patterns to numbers or tensors, a diagonal Λ.
        matrix: `fisher` (model Fisher, = Gauss–Newton), `hessian` or `covariance` of the gradients.
        method: `exact` factors the d × d matrix and `dual` the n·r × n·r matrix of gradient products; `lanczos`
            brackets quadratic forms of random vectors; `block`, `ekfac` and `diagonal` are upper bounds for order 1,
            `kfac` an approximation. `auto` is exact or dual up to about 10⁴ rows, then Lanczos.
        order: 1, or 2 for the soft rank of second order (not concave, so the stand-ins bound nothing).
        sharing: how KFAC treats a weight used at several positions, `expand` or `reduce`.
        seed: of the random vectors.
        rtol: relative standard error that Lanczos aims at.
        progress: whether to show a progress bar.

    Returns:
        The estimate; `diagnostics["bound"]` is `exact`, `upper` or `neither`. Lanczos gives as `bounds` the Gauss and
        Gauss–Radau bracket widened by the Monte Carlo error (99.99 %), and the bare one as `diagnostics["bracket"]`.

    Examples:
        >>> import torch, basinscope as bs
        >>> x = torch.diag(torch.tensor([1.0, 2.0]))
        >>> land = bs.Landscape(torch.nn.Linear(2, 1, bias=False), "mse", (x, torch.ones(2, 1)))
        >>> bs.soft_rank(land, weight_decay=0.5).value  # F = diag(1/2, 2)
        1.3
        >>> [round(rank.value, 3) for rank in bs.soft_rank(land, weight_decay=[0.01, 0.1, 1.0])]
        [1.975, 1.786, 1.0]
    """
    check_differentiable(land)
    if isinstance(land, LanguageModel) and method not in ("auto", "lanczos"):
        raise InputError(f"method={method!r} needs a copy of the network: of a language model in place, take 'lanczos'")
    if order not in (1, 2):
        raise InputError(f"order must be 1 or 2, got {order}")
    return trace_function(
        land, SOFT_RANK if order == 1 else SOFT_RANK_SQUARED, weight_decay=weight_decay, matrix=matrix, method=method,
        seed=seed, rtol=rtol, sharing=sharing, progress=progress,
    )  # fmt: skip
