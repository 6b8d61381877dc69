"""The largest eigenvalue in magnitude: the sharpest curvature of a basin."""

from __future__ import annotations

import torch

from ..checks import fraction, whole, whole_seed
from ..curvature.eigen import top_eigenpairs
from ..curvature.operators import operator
from ..estimates import Check, Estimate
from ..landscape import Landscape, check_landscape
from ..progress import tracked


def operator_norm(
    land: Landscape,
    *,
    matrix: str = "fisher",
    rtol: float = 1e-3,
    max_products: int = 500,
    seed: int = 0,
    memory: int | None = None,
    progress: bool = True,
) -> Estimate:
    """‖A‖ = max_i |λ_i| of F, H or C, by Lanczos.

    The value is a Ritz value |θ|, which never exceeds ‖A‖; an eigenvalue lies within the residual ‖A x − θ x‖ of θ.
    That gives the bounds; the upper one relies on the random start not missing the top eigenvector altogether.

    Args:
        land: the landscape.
        matrix: `fisher`, `hessian` or `covariance`.
        rtol: relative residual to reach.
        max_products: most matrix–vector products to spend.
        seed: of the start vector.
        memory: bound in bytes on what is held at once; 512 MiB on a CPU unless given.
        progress: show a bar.

    Examples:
        >>> import torch, basinscope as bs
        >>> x = torch.tensor([[3.0, 0.0], [0.0, 1.0]])
        >>> land = bs.Landscape(torch.nn.Linear(2, 1, bias=False), "mse", (x, torch.zeros(2, 1)))
        >>> round(bs.operator_norm(land).value, 4)  # F = XᵀX/n
        4.5
    """
    check_landscape(land)
    rtol = fraction("rtol", rtol)
    whole("max_products", max_products, 1)
    whole_seed(seed)
    with tracked(f"Norm of the {matrix}", progress) as report:
        pairs = top_eigenpairs(
            operator(land, matrix, memory=memory),
            1,
            which="magnitude",
            seed=seed,
            tol=rtol,
            max_steps=max_products,
            report=report,
        )
    value, residual = abs(float(pairs.values[0])), float(pairs.residuals[0])
    rounding = 50 * torch.finfo(land.dtype).eps * value
    return Estimate(
        name=f"{matrix}_norm",
        value=value,
        stderr=residual,
        checks=(check_residual(residual, rtol * value, pairs.converged),),
        bounds=(value - rounding, value + residual + rounding),
        diagnostics={"matrix": matrix, "eigenvalue": float(pairs.values[0]), "products": pairs.products},
    )


def check_residual(residual: float, most: float, converged: bool) -> Check:
    """Whether an eigenvalue is known to the tolerance."""
    return Check(
        "residual ‖Ax − θx‖", f"{residual:.2g}", "at most rtol·‖A‖", converged, "raise max_products",
        reason=f"not converged: the residual {residual:.2g} is above rtol·‖A‖ = {most:.2g}",
    )  # fmt: skip
