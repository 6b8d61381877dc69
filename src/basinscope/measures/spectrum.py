"""The spectrum of H, F or C: its ends eigenvalue by eigenvalue, its bulk as a density."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..checks import fraction, whole, whole_seed
from ..curvature.density import Quadrature, lanczos_quadrature
from ..curvature.eigen import EigenPairs, top_eigenpairs
from ..curvature.operators import check_differentiable, operator
from ..errors import InputError
from ..estimates import Check, Estimate
from ..landscape import Landscape
from ..language.model import LanguageModel
from ..progress import tracked
from ..verdict import Checked


@dataclass(frozen=True)
class Spectrum(Checked):
    """Eigenvalues λ_1 ≥ … ≥ λ_d of a symmetric matrix.

    Attributes:
        matrix: `hessian`, `fisher` or `covariance`.
        dimension: d.
        largest: the largest eigenvalues (float64), the largest first.
        largest_residuals: ‖A x − θ x‖; an eigenvalue lies within this distance.
        largest_vectors: eigenvectors (d, k) where asked for.
        smallest: the smallest eigenvalues (float64), the smallest first.
        smallest_residuals: as for the largest.
        smallest_vectors: as for the largest.
        bulk: quadrature rules for all other eigenvalues.
        products: matrix–vector products spent.
        checks: whether the outermost eigenvalues converged; `verdict` and `warnings` follow from them.
    """

    matrix: str
    dimension: int
    largest: Tensor
    largest_residuals: Tensor
    smallest: Tensor
    smallest_residuals: Tensor
    bulk: Quadrature
    products: int
    checks: tuple[Check, ...] = ()
    largest_vectors: Tensor | None = None
    smallest_vectors: Tensor | None = None

    def density(self, grid: Tensor, width: float) -> tuple[Tensor, Tensor]:
        """(1/d) Σ_i N(x; λ_i, width²) at the points x of `grid`, and its standard error over probes.

        Examples:
            >>> import torch, basinscope as bs
            >>> land = bs.Landscape(torch.nn.Linear(1, 1, bias=False), "mse", (torch.ones(2, 1), torch.ones(2, 1)))
            >>> mean, _ = bs.spectrum(land).density(torch.tensor([1.0]), width=1.0)  # one eigenvalue, 1
            >>> round(mean.item(), 4)
            0.3989
        """
        if not width > 0:
            raise InputError(f"width must be positive, got {width}")

        def bell(values: Tensor) -> Tensor:
            scaled = (grid.double() - values[..., None]) / width
            return torch.exp(-scaled.square() / 2) / (width * math.sqrt(2 * math.pi))

        mean, stderr = self.bulk.average(bell(self.bulk.nodes))
        ends = bell(torch.cat([self.largest, self.smallest])).sum(0)
        return (mean + ends) / self.dimension, stderr / self.dimension

    def count(self, above: float) -> Estimate:
        """The number of eigenvalues larger than `above`.

        The standard error is over probes, with the error of the quadrature rule (uniform within its bound) added.

        Examples:
            >>> import torch, basinscope as bs
            >>> x = torch.tensor([[3.0, 0.0], [0.0, 1.0]])
            >>> land = bs.Landscape(torch.nn.Linear(2, 1, bias=False), "mse", (x, torch.zeros(2, 1)))
            >>> bs.spectrum(land).count(above=1.0).value  # eigenvalues 4.5 and 0.5
            1.0
        """
        mean, stderr, slack = (float(part) for part in self.bulk.above(torch.tensor([above], dtype=torch.float64)))
        value = mean + int((torch.cat([self.largest, self.smallest]) > above).sum())
        diagnostics = {"above": above, "probes_stderr": stderr, "rule_error": slack}
        error, freedom = math.hypot(stderr, slack / math.sqrt(3)), len(self.bulk.nodes) - 1
        return Estimate("count", value, error, self.checks, diagnostics, freedom)

    def to_dict(self) -> dict[str, Any]:
        """Everything but the vectors as plain Python values, ready for JSON."""
        return {
            "matrix": self.matrix,
            "dimension": self.dimension,
            **{
                name: getattr(self, name).tolist()
                for name in ("largest", "largest_residuals", "smallest", "smallest_residuals")
            },
            "nodes": self.bulk.nodes.tolist(),
            "weights": self.bulk.weights.tolist(),
            "products": self.products,
            "verdict": self.verdict,
            "warnings": list(self.warnings),
        }

    def plot(self) -> Any:
        """A matplotlib figure: how many eigenvalues there are at each size, and beyond it."""
        from .spectrum_figure import figure

        return figure(self)


def spectrum(
    land: Landscape | LanguageModel,
    *,
    matrix: str = "hessian",
    k: int = 10,
    probes: int = 8,
    steps: int = 60,
    vectors: bool = False,
    rtol: float = 1e-3,
    seed: int = 0,
    memory: int | None = None,
    progress: bool = True,
) -> Spectrum:
    """The k largest eigenvalues (of H also the k smallest) and the density of all others.

    The ends come from Lanczos runs with full reorthogonalization, repeated eigenvalues included; the rest by
    stochastic Lanczos quadrature on the orthogonal complement of the eigenvectors found.

    Args:
        land: the landscape, or a `LanguageModel`.
        matrix: `hessian`, `fisher` or `covariance`.
        k: how many eigenvalues at an end.
        probes: random vectors for the density; its standard error is over them.
        steps: Lanczos steps a probe: the resolution of the density.
        vectors: keep the eigenvectors.
        rtol: relative residual of the eigenvalues.
        seed: of the random vectors.
        memory: bound in bytes on what a product holds at once, 512 MiB on a CPU unless given; Lanczos holds a vector of
            length d a step on top of that.
        progress: show a bar.

    Examples:
        >>> import torch, basinscope as bs
        >>> x = torch.tensor([[3.0, 0.0], [0.0, 1.0]])
        >>> land = bs.Landscape(torch.nn.Linear(2, 1, bias=False), "mse", (x, torch.zeros(2, 1)))
        >>> bs.spectrum(land).largest.round(decimals=4).tolist()  # H = XᵀX/n
        [4.5, 0.5]
    """
    check_differentiable(land)
    k, probes, steps = whole("k", k, 1), whole("probes", probes, 1, 10**6), whole("steps", steps, 1, 10**6)
    rtol = fraction("rtol", rtol)
    seed = whole_seed(seed)
    product = operator(land, matrix, memory=memory)
    first = min(k, land.dimension)
    second = 0 if product.psd else min(k, land.dimension - first)
    with tracked(f"Spectrum of the {matrix}", progress) as report:
        top = top_eigenpairs(product, first, seed=seed, tol=rtol, report=report)
        ends = [top]
        if second:
            low = top_eigenpairs(
                product, second, which="smallest", seed=seed + 1, tol=rtol, deflated=top, report=report
            )
            ends.append(low)
        resolved = torch.cat([pairs.vectors for pairs in ends], 1)
        bulk = lanczos_quadrature(product, probes=probes, steps=steps, deflated=resolved, seed=seed + 2, report=report)
    low = ends[1] if second else _none(top)
    return Spectrum(
        matrix=matrix,
        dimension=land.dimension,
        largest=top.values,
        largest_residuals=top.residuals,
        smallest=low.values,
        smallest_residuals=low.residuals,
        bulk=bulk,
        products=sum(pairs.products for pairs in ends) + int((bulk.weights > 0).sum()),
        checks=tuple(check_residuals(pairs, rtol) for pairs in ends),
        largest_vectors=top.vectors if vectors else None,
        smallest_vectors=low.vectors if vectors else None,
    )


def check_residuals(pairs: EigenPairs, rtol: float) -> Check:
    """Whether the eigenvalues at one end of the spectrum are known to the tolerance."""
    residual = float(pairs.residuals.max())
    return Check(
        "residuals of eigenvalues", f"{residual:.2g}", f"at most {rtol:g} of theirs", pairs.converged, "lower k",
        reason=f"not converged: an eigenvalue's residual is {residual:.2g} after {pairs.products} products",
    )  # fmt: skip


def _none(pairs: EigenPairs) -> EigenPairs:
    return replace(pairs, values=pairs.values[:0], residuals=pairs.residuals[:0], vectors=pairs.vectors[:, :0])
