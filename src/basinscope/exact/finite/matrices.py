"""The product of two matrices at the origin, K = ‖AB‖²/2: a two-layer linear network with nothing to learn."""

from __future__ import annotations

import math

from ...errors import InputError
from .._checks import integer, positive

# Rounding errors of the result are about machine precision times the condition number: 1e9 leaves six digits.
MAX_CONDITION = 1e9


def matrix_product(M: int, H: int, N: int, nbeta: float, gamma: float) -> float:
    """λ_t of K = ‖AB‖²/2 with A of size M × H and B of size H × N, localised at the origin.

    With B integrated out, the eigenvalues x_i of AAᵀ or AᵀA, m = min(M, H) of them, have the density

        Π_{i<j} |x_i − x_j| Π x_i^((|M − H| − 1)/2) e^(−γx_i/2) (1 + tx_i/γ)^(−N/2),

    whose normalisation is a Pfaffian of two-dimensional integrals. The limit is `deep_linear([M, H, N], rank=0)`.

    Source: singular-value coordinates; de Bruijn, "On some multiple integrals involving determinants", Journal of the
    Indian Mathematical Society 19 (1955), for the Pfaffian.

    Examples:
        >>> round(matrix_product(2, 2, 2, nbeta=5453, gamma=1), 6)
        1.470437
    """
    return _oriented(M, H, N, nbeta, gamma)[0]


def matrix_product_heat_capacity(M: int, H: int, N: int, nbeta: float, gamma: float) -> float:
    """t²Var[K] of K = ‖AB‖²/2 localised at the origin. Arguments and source as in `matrix_product`.

    Examples:
        >>> round(matrix_product_heat_capacity(1, 1, 1, nbeta=5453, gamma=1), 6)
        0.391351
    """
    return _oriented(M, H, N, nbeta, gamma)[1]


def _oriented(M: int, H: int, N: int, nbeta: float, gamma: float) -> tuple[float, float]:
    """E[tK] and t²Var[K], by way of the product or of its transpose."""
    rows, hidden, columns = integer("M", M, 1), integer("H", H, 1), integer("N", N, 1)
    t, pull = positive("nbeta", nbeta), positive("gamma", gamma)
    # Transposing the product changes nothing; the shorter side has fewer eigenvalues to integrate over.
    return moments(min(rows, columns), hidden, max(rows, columns), 2 * t / pull**2)


def moments(rows: int, hidden: int, columns: int, stiffness: float) -> tuple[float, float]:
    """E[tK] and t²Var[K], as derivatives of log Z with respect to log t, with the columns integrated out.

    In units of x = γs²/2 for singular values s, only stiffness = 2t/γ² is left. De Bruijn: Z ∝ Pf a with
    a_ij = ∬ sgn(y − x) x^i y^j w(x) w(y) dx dy, bordered by the single integrals when their number m is odd, and
    d log Pf a = ½ Tr(a⁻¹ da). On a grid in log x all integrands are analytic and decay at both ends, so sums converge
    exponentially; the sgn between grid points k and l becomes (2/π) Si(π(k − l)), the exact integral of the functions
    that interpolate the grid.
    """
    import numpy as np
    from scipy.linalg import toeplitz
    from scipy.special import sici

    # The grid: u = log x, wide and fine enough that sums over it are integrals to rounding errors.
    count, gap = min(rows, hidden), abs(rows - hidden)
    shape = (gap + 1) / 2 + count
    # The weight is at most a power of x below 1/(1 + stiffness·N/2) and falls like e^−x above its shape parameter;
    # a step of 1/√shape resolves its bell, and 0.1 the fall of e^−x.
    low = -math.log1p(stiffness * columns / 2) - 80 / (gap + 1)
    u = np.arange(low, math.log(80 + 8 * shape), min(0.1, 0.37 / math.sqrt(shape)))
    x = np.exp(u)
    log_weight = u * (gap + 1) / 2 - x - columns / 2 * np.log1p(stiffness * x)
    # The columns of f are x^i w(x) dx, each scaled to sum 1: factors that do not depend on t drop out.
    log_f = log_weight[:, None] + u[:, None] * np.arange(count)
    f = np.exp(log_f - log_f.max(axis=0))
    f /= f.sum(axis=0)

    # Derivatives by log t: only the factor (1 + stiffness·x)^(−N/2) of the weight depends on it.
    share = stiffness * x / (1 + stiffness * x)
    slope = -columns / 2 * share  # first and second derivative of log w by log t
    bend = slope * (1 - share)
    f1 = slope[:, None] * f
    f2 = (bend + slope**2)[:, None] * f

    # The Pfaffian's matrix, and its first two derivatives.
    si = 2 / np.pi * sici(np.pi * np.arange(len(u)))[0]
    sign = toeplitz(-si, si)
    ones = np.ones((len(u), 1 if count % 2 else 0))

    def pairing(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return left.T @ sign @ right

    def bordered(inner: np.ndarray, functions: np.ndarray) -> np.ndarray:
        border = functions.T @ ones
        return np.block([[inner, border], [-border.T, np.zeros((border.shape[1],) * 2)]])

    a = bordered(pairing(f, f), f)
    if np.linalg.cond(a) > MAX_CONDITION:
        raise InputError(
            f"matrix_product cannot resolve {count} eigenvalues for sizes {rows}×{hidden}×{columns} in double "
            f"precision — one side must be smaller"
        )
    a1 = bordered(pairing(f1, f) + pairing(f, f1), f1)
    a2 = bordered(pairing(f2, f) + 2 * pairing(f1, f1) + pairing(f, f2), f2)
    ratio1, ratio2 = np.linalg.solve(a, a1), np.linalg.solve(a, a2)
    first = float(np.trace(ratio1)) / 2
    second = float(np.trace(ratio2) - np.trace(ratio1 @ ratio1)) / 2
    return -first, second - first
