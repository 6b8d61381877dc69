"""The classical influence function by EK-FAC, and the control variate that it is for covariances over draws."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.func import jacrev

from ..curvature.gradients import Gradients
from ..curvature.kronecker import Inverse
from ..errors import InputError
from ..landscape import Landscape, math_attention
from ..sampling.chains import ChainLosses


class Classical:
    """A = (nβF + γI)⁻¹ by EK-FAC at w*, and the gradients g_i, a_j there of two observables.

    By one integration by parts E[(a_j·δ)(Ag_i·∇U)] = a_jᵀAg_i holds exactly for the posterior ∝ exp(−U), whatever A
    is, and where A is nearly the posterior's covariance and the losses are nearly linear, the product on the left is
    nearly that of both observables, draw by draw: a control variate whose mean is the classical influence function.

    Args:
        losses: of the landscape, whose curvature is taken.
        nbeta, gamma: the resolution.
        rows, columns: the observables: None for all losses of the landscape; a landscape at the same w* for its losses;
            a function of the parameters.
        memory: bytes that the gradients may take.
    """

    def __init__(
        self, losses: ChainLosses, nbeta: float, gamma: float, rows: Any, columns: Any, sizes: tuple[int, int],
        memory: float,
    ) -> None:  # fmt: skip
        land = losses.land
        needed = land.dtype.itemsize * land.dimension * sum(sizes)
        if needed > memory:
            raise InputError(
                f"the gradients of {sum(sizes):,} values in {land.dimension:,} parameters take "
                f"{needed / 2**20:,.0f} MiB, more than memory={memory / 2**20:,.0f} MiB — raise memory, pass fewer "
                f"queries, or take method='draws'"
            )
        self._losses, self._nbeta, self._gamma = losses, nbeta, gamma
        self._inverse = Inverse.of(land, "covariance" if land.loss.family == "custom" else "fisher", nbeta, gamma)
        self._rows = gradients_of(land, rows)
        self._columns = self._rows if columns is rows else gradients_of(land, columns)

    def matrix(self) -> Tensor:
        """g_iᵀ A a_j, (rows, columns) in float64."""
        return (self._rows @ self._inverse(self._columns).T).double()

    def at(self, delta: Tensor) -> tuple[Tensor, Tensor]:
        """Ag_i·∇U (C, rows) and a_j·δ (C, columns) at every chain's weights, float64."""
        slope = self._losses.gradient(delta, self._nbeta) + self._gamma * delta
        return (self._inverse(slope) @ self._rows.T).double(), (delta @ self._columns.T).double()


def gradients_of(land: Landscape, given: Any) -> Tensor:
    """The gradients at w* of an observable's values, (m, d)."""
    if callable(given) and not isinstance(given, Landscape):
        return _jacobian(land, given)
    return sample_gradients(land if given is None else given)


def sample_gradients(land: Landscape) -> Tensor:
    """∇ℓ_i(w*) of all samples, (n, d).

    Examples:
        >>> import torch, basinscope as bs
        >>> net = torch.nn.Linear(1, 1, bias=False)
        >>> _ = torch.nn.init.ones_(net.weight)
        >>> sample_gradients(bs.Landscape(net, "mse", (torch.tensor([[1.0], [2.0]]), torch.zeros(2, 1)))).tolist()
        [[1.0], [4.0]]
    """
    gradients = torch.zeros(land.n, land.dimension, dtype=land.dtype, device=land.device)
    start = 0
    for pieces in Gradients(land, "covariance"):
        written = [piece.rows() for piece in pieces]
        stop = start + len(written[0].values)
        for piece in written:
            gradients[start:stop, piece.index] += piece.values[:, 0]
        start = stop
    return gradients


def _jacobian(land: Landscape, function: Callable[[Mapping[str, Tensor]], Tensor]) -> Tensor:
    def flat(vector: Tensor) -> Tensor:
        return function(land.unflatten(vector)).reshape(-1)

    with math_attention():
        rows: Tensor = jacrev(flat, chunk_size=64)(land.flatten(land.parameters))
    return rows.detach()
