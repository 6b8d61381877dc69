"""Takeuchi's information criterion: the generalization gap that curvature and gradient noise predict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

from torch import Tensor

from ..curvature.bracket import Function
from ..curvature.decay import read_decay
from ..curvature.operators import operator
from ..curvature.sandwich import Sandwich, gradient_signs
from ..curvature.spectra import MAX_DIMENSION, MAX_HESSIAN_DIMENSION
from ..curvature.stochastic import Whitened, traced
from ..deprecated import warn_renamed
from ..errors import InputError
from ..estimates import Estimate
from ..landscape import Landscape, check_landscape
from ..progress import tracked

Curvature = Literal["fisher", "hessian"]


def tic(
    land: Landscape,
    *,
    weight_decay: float | Mapping[str, float | Tensor],
    matrix: Curvature = "fisher",
    method: Literal["auto", "exact", "lanczos"] = "auto",
    seed: int = 0,
    rtol: float = 0.02,
    progress: bool = True,
    curvature: Curvature | None = None,
) -> Estimate:
    """(1/n) Tr(C_Λ H_Λ⁻¹), the regularised criterion of Takeuchi.

    It is Eq. 1 over n of Shoham, Mor-Yosef and Avron 2025, https://arxiv.org/abs/2506.17809.

    C_Λ = (1/n) Σ_i (∇l_i + Λθ)(∇l_i + Λθ)ᵀ, which is C − Λθθᵀ Λ at a minimum of the regularised loss, and H_Λ = H + Λ.
    Away from a minimum the criterion means little: `diagnostics["decrement"]`, how far a Newton step would lower twice
    the regularised loss, must be small against it.

    Args:
        land: the landscape, at a minimum of mean loss + ½ wᵀΛw.
        weight_decay: λ > 0, or a dict from name patterns to numbers or tensors.
        matrix: `fisher` (always positive) or `hessian`, taken for H. Its former name is `curvature`.
        method: `exact` solves with the d × d matrix; `lanczos` brackets z H_Λ⁻¹ z for random sums z of gradients.
        seed: of the random signs.
        rtol: relative standard error that Lanczos aims at.
        progress: whether to show a progress bar.

    Returns:
        The estimate for the data at hand; `diagnostics["sampling_stderr"]` is the error of the mean over samples.

    Examples:
        >>> import torch, basinscope as bs
        >>> x, y = torch.ones(4, 1), torch.tensor([[1.0], [-1.0], [1.0], [-1.0]])
        >>> land = bs.Landscape(torch.nn.Linear(1, 1, bias=False), "mse", (x, y))
        >>> land = land.at({"weight": torch.zeros(1, 1)})  # the minimum: H = 1, C = 1
        >>> round(bs.tic(land, weight_decay=1.0).value, 4)
        0.125
    """
    check_landscape(land)
    matrix = chosen_matrix(matrix, curvature)
    decay = read_decay(land, weight_decay, single=True)
    if method == "auto":
        most = MAX_DIMENSION if matrix == "fisher" else MAX_HESSIAN_DIMENSION
        method = "exact" if land.dimension <= most else "lanczos"
    common = {
        "matrix": matrix,
        "method": method,
        "weight_decay": decay.describe(decay.level),
        "parameters": land.dimension,
        "samples": land.n,
    }
    if method == "exact":
        mean = Sandwich(land, matrix, decay.diagonal(land, decay.level)).mean(
            lambda rows, solved: (rows * solved).sum(1)
        )
        return mean.estimate("tic", land.n, {**common, "bound": "exact"})
    if method != "lanczos":
        raise InputError(f"method must be 'auto', 'exact' or 'lanczos', got {method!r}")
    product = Whitened(operator(land, matrix), decay.whitening)
    with tracked("tic", progress) as report:
        (average,) = traced(
            product, [Function(None, lambda x: 1 / (x + decay.level))], decay.levels,
            gradient_signs(land, decay, decay.level), seed=seed, rtol=rtol, report=report,
        )  # fmt: skip
    return average.estimate("tic", rtol, common, factor=1 / land.n)


def chosen_matrix(matrix: Curvature, curvature: Curvature | None) -> Curvature:
    """What stands for H: `matrix`, or its former name where that was given."""
    if curvature is not None:
        warn_renamed("curvature", "matrix", above=2)
        matrix = curvature
    if matrix not in get_args(Curvature):
        raise InputError(f"matrix must be 'fisher' or 'hessian', got {matrix!r}")
    return matrix
