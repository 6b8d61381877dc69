"""The log-determinant: the volume of a basin compared with that of the prior."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import overload

from torch import Tensor

from ..curvature.decay import WeightDecay
from ..curvature.functions import LOG_DET, trace_function
from ..curvature.kronecker import Sharing
from ..estimates import Estimate
from ..landscape import Landscape, check_landscape
from .soft_rank import Matrix, Method


@overload
def log_det(
    land: Landscape, *, weight_decay: float | Mapping[str, float | Tensor], matrix: Matrix = ..., method: Method = ...,
    sharing: Sharing = ..., seed: int = ..., rtol: float = ..., progress: bool = ...,
) -> Estimate: ...  # fmt: skip


@overload
def log_det(
    land: Landscape, *, weight_decay: Sequence[float], matrix: Matrix = ..., method: Method = ...,
    sharing: Sharing = ..., seed: int = ..., rtol: float = ..., progress: bool = ...,
) -> list[Estimate]: ...  # fmt: skip


def log_det(
    land: Landscape,
    *,
    weight_decay: WeightDecay,
    matrix: Matrix = "fisher",
    method: Method = "auto",
    sharing: Sharing = "expand",
    seed: int = 0,
    rtol: float = 0.02,
    progress: bool = True,
) -> Estimate | list[Estimate]:
    """½ log det(I + Λ^(−1/2) A Λ^(−1/2)) = ½ Σ_i log(1 + σ_i/λ).

    This is the complexity term of Laplace's evidence, with the factor ½ that Shoham, Mor-Yosef and Avron (2025,
    https://arxiv.org/abs/2506.17809, App. B) drop. The prior is N(0, (nΛ)⁻¹), so that Λ means the same as in the mean
    loss. With λ = γ/(nβ) it is the local free energy of a quadratic basin.

    Args:
        land: the landscape.
        weight_decay: as in `soft_rank`: λ > 0, a sequence of them, or a dict from name patterns to numbers or tensors.
        matrix: `fisher`, `hessian` or `covariance`.
        method: as in `soft_rank`; `block`, `ekfac` and `diagonal` are upper bounds.
        sharing: how KFAC treats a weight used at several positions, `expand` or `reduce`.
        seed: of the random vectors.
        rtol: relative standard error that Lanczos aims at.
        progress: whether to show a progress bar.

    Examples:
        >>> import torch, basinscope as bs
        >>> x = torch.diag(torch.tensor([1.0, 2.0]))
        >>> land = bs.Landscape(torch.nn.Linear(2, 1, bias=False), "mse", (x, torch.ones(2, 1)))
        >>> round(bs.log_det(land, weight_decay=0.5).value, 4)  # ½ (log 2 + log 5)
        1.1513
    """
    check_landscape(land)
    return trace_function(
        land, LOG_DET, weight_decay=weight_decay, matrix=matrix, method=method, seed=seed, rtol=rtol, sharing=sharing,
        progress=progress,
    )  # fmt: skip
