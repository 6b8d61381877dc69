"""How far a fit lands from the population's minimum: in parameters, in losses, in predictions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..curvature.decay import read_decay
from ..curvature.dense import dense
from ..curvature.sandwich import Sandwich
from ..estimates import Estimate
from ..landscape import Landscape, check_landscape
from .tic import Curvature, chosen_matrix


def parameter_error(
    land: Landscape,
    *,
    weight_decay: float | Mapping[str, float | Tensor],
    matrix: Curvature = "fisher",
    curvature: Curvature | None = None,
) -> Estimate:
    """(1/n) Tr(C_Λ H_Λ⁻²), the expected ‖θ̂ − θ*‖².

    It is Eq. 4 over n of Shoham, Mor-Yosef and Avron 2025, https://arxiv.org/abs/2506.17809.
    For a calibrated model it is at most (1/n) Tr((F + Λ)⁻¹) (Prop. 4.1), given as `diagnostics["calibrated"]`: flat
    basins have large errors in their parameters.

    Args:
        land: the landscape, at a minimum of mean loss + ½ wᵀΛw; up to about 10⁴ parameters.
        weight_decay: λ > 0, or a dict from name patterns to numbers or tensors.
        matrix: `fisher` or `hessian`, taken for H. Its former name is `curvature`.

    Examples:
        >>> import torch, basinscope as bs
        >>> x, y = torch.ones(4, 1), torch.tensor([[1.0], [-1.0], [1.0], [-1.0]])
        >>> land = bs.Landscape(torch.nn.Linear(1, 1, bias=False), "mse", (x, y))
        >>> land = land.at({"weight": torch.zeros(1, 1)})  # H = C = 1
        >>> round(bs.parameter_error(land, weight_decay=1.0).value, 4)
        0.0625
    """
    sandwich, common = _prepared(land, weight_decay, chosen_matrix(matrix, curvature))
    mean = sandwich.mean(lambda rows, solved: solved.square().sum(1))
    calibrated = float(torch.cholesky_inverse(sandwich.root).trace()) / land.n
    return mean.estimate("parameter_error", land.n, {**common, "calibrated": calibrated})


def loss_distance(
    land: Landscape,
    *,
    weight_decay: float | Mapping[str, float | Tensor],
    matrix: Curvature = "fisher",
    curvature: Curvature | None = None,
) -> Estimate:
    """(1/n) Tr((C_Λ H_Λ⁻¹)²), the expected squared distance E_z[(l(θ̂; z) − l(θ*; z))²].

    It is Eq. 5 over n of Shoham, Mor-Yosef and Avron 2025, https://arxiv.org/abs/2506.17809.
    For a calibrated model it is at most rank⁽²⁾_Λ(F)/n (Prop. 4.1), given as `diagnostics["calibrated"]`.

    Args:
        land: the landscape, at a minimum of mean loss + ½ wᵀΛw; up to about 10⁴ parameters.
        weight_decay: λ > 0, or a dict from name patterns to numbers or tensors.
        matrix: `fisher` or `hessian`, taken for H. Its former name is `curvature`.

    Examples:
        >>> import torch, basinscope as bs
        >>> x, y = torch.ones(4, 1), torch.tensor([[1.0], [-1.0], [1.0], [-1.0]])
        >>> land = bs.Landscape(torch.nn.Linear(1, 1, bias=False), "mse", (x, y))
        >>> land = land.at({"weight": torch.zeros(1, 1)})  # H = C = 1
        >>> round(bs.loss_distance(land, weight_decay=1.0).value, 4)
        0.0625
    """
    sandwich, common = _prepared(land, weight_decay, chosen_matrix(matrix, curvature))
    calibrated = _second_rank(sandwich) / land.n
    return sandwich.squared().estimate("loss_distance", land.n, {**common, "calibrated": calibrated})


def information_distance(
    land: Landscape,
    *,
    weight_decay: float | Mapping[str, float | Tensor],
    matrix: Curvature = "fisher",
    curvature: Curvature | None = None,
) -> Estimate:
    """(1/2n) Tr(F H_Λ⁻¹ C_Λ H_Λ⁻¹), the expected KL divergence of the fit's predictions from those of θ*.

    It is appendix F over n of Shoham, Mor-Yosef and Avron 2025, https://arxiv.org/abs/2506.17809, with the factor ½
    that is missing there: KL(q_θ ‖ q_{θ+η}) ≈ ½ ηᵀFη.
    For a calibrated model close to rank⁽²⁾_Λ(F)/2n, given as `diagnostics["calibrated"]`.

    Args:
        land: the landscape, at a minimum of mean loss + ½ wᵀΛw; up to about 10⁴ parameters.
        weight_decay: λ > 0, or a dict from name patterns to numbers or tensors.
        matrix: `fisher` or `hessian`, taken for H. Its former name is `curvature`.

    Examples:
        >>> import torch, basinscope as bs
        >>> x, y = torch.ones(4, 1), torch.tensor([[1.0], [-1.0], [1.0], [-1.0]])
        >>> land = bs.Landscape(torch.nn.Linear(1, 1, bias=False), "mse", (x, y))
        >>> land = land.at({"weight": torch.zeros(1, 1)})  # H = C = 1
        >>> round(bs.information_distance(land, weight_decay=1.0).value, 5)
        0.03125
    """
    sandwich, common = _prepared(land, weight_decay, chosen_matrix(matrix, curvature))
    fisher = sandwich.matrix if sandwich.curvature == "fisher" else dense(land, "fisher")
    mean = sandwich.mean(lambda rows, solved: (solved * (solved @ fisher)).sum(1) / 2)
    calibrated = _second_rank(sandwich) / 2 / land.n
    return mean.estimate("information_distance", land.n, {**common, "calibrated": calibrated})


def _prepared(
    land: Landscape, weight_decay: float | Mapping[str, float | Tensor], matrix: Curvature
) -> tuple[Sandwich, dict[str, Any]]:
    check_landscape(land)
    decay = read_decay(land, weight_decay, single=True)
    common = {"matrix": matrix, "weight_decay": decay.describe(decay.level), "samples": land.n}
    return Sandwich(land, matrix, decay.diagonal(land, decay.level)), common


def _second_rank(sandwich: Sandwich) -> float:
    """rank⁽²⁾_Λ = Tr((H H_Λ⁻¹)²)."""
    projection = sandwich.solve(sandwich.matrix)
    return float((projection * projection.T).sum())
