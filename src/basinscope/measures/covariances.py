"""Covariances over a posterior: Bayesian influence functions, and the kernel of losses."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..checks import positive, whole
from ..errors import InputError
from ..estimates import Check, Estimate
from ..landscape import Landscape
from ..progress import tracked
from ..sampling.calibration import Resolution, resolution
from ..sampling.chains import ChainLosses
from ..verdict import Checked
from .checks import check_draws
from .classical import Classical
from .evidence import posterior_for_draws
from .observables import Observable, Walk
from .posterior import MEMORY, Posterior, landscape_of
from .settings import Sampling, takes_settings

Array = NDArray[np.float64]
Made = Callable[[Tensor], Tensor]
Method = Literal["draws", "controlled", "ekfac"]


@dataclass(frozen=True)
class Covariances(Checked):
    """A matrix of covariances over a posterior, or of what is made of them.

    Attributes:
        name: what they are.
        values, stderr: with Monte Carlo standard errors, by leaving out one chain after the other; (rows, columns).
        freedom: degrees of freedom of the standard errors.
        checks: whether the draws are those of the posterior and enough.
        facts: settings and diagnostics of the chains.
        rows, columns: names, where there are any.
    """

    name: str
    values: Array
    stderr: Array
    freedom: float = math.inf
    checks: tuple[Check, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()

    def estimate(self, row: int, column: int = 0) -> Estimate:
        """One entry."""
        value, stderr = float(self.values[row, column]), float(self.stderr[row, column])
        return Estimate(self.name, value, stderr, self.checks, self.facts, self.freedom)

    def pairs(self, count: int = 10) -> list[tuple[int, int, float, float]]:
        """Row, column, value and standard error of the largest entries above the diagonal of a square matrix."""
        rows, columns = np.triu_indices_from(self.values, 1)
        order = np.argsort(-self.values[rows, columns])[:count]
        places = zip(rows[order].tolist(), columns[order].tolist(), strict=True)
        return [(i, j, float(self.values[i, j]), float(self.stderr[i, j])) for i, j in places]

    def clusters(self, count: int) -> NDArray[np.int_]:
        """The number, from 0 on, of the cluster that each row of a kernel belongs to.

        Rows are joined by the mean of their distances 1 − value, nearest first, until so many clusters are left; they
        are numbered by their size, the largest first.
        """
        from scipy.cluster.hierarchy import fcluster, linkage  # slow to import

        rows = len(self.values)
        if self.values.shape != (rows, rows) or not np.allclose(self.values, self.values.T, atol=1e-6):
            raise InputError(f"clusters are those of a kernel, got {self.name} of shape {self.values.shape}")
        if whole("count", count, 1, rows) == rows:
            return np.arange(rows)
        distances = np.maximum(1 - self.values[np.triu_indices(rows, 1)], 0)
        labels = fcluster(linkage(distances, "average"), count, "maxclust")
        _, places, sizes = np.unique(labels, return_inverse=True, return_counts=True)
        return np.argsort(np.argsort(-sizes, kind="stable"), kind="stable")[places]

    def __repr__(self) -> str:
        shape = " × ".join(map(str, self.values.shape))
        source = f"from {self.facts['draws']} draws per chain" if self.facts.get("draws") else "by EK-FAC"
        return f"{self.name}: {shape} values {source} ({self.verdict})"


@takes_settings
def covariance(
    source: Landscape | Posterior,
    observables: Any,
    others: Any = None,
    *,
    method: Method = "draws",
    memory: float = MEMORY,
    progress: bool = True,
    **settings: Unpack[Sampling],
) -> Covariances:
    """Cov(φ_i, ψ_j) over the local posterior, with standard errors.

    On a quadratic basin it is aᵀΣb + ½ Tr(PΣRΣ) for φ = aᵀδ + ½ δᵀPδ, ψ = bᵀδ + ½ δᵀRδ and Σ = (nβH + γI)⁻¹
    (`exact.finite.covariance`).

    Args:
        source: the posterior, or a landscape whose posterior is sampled.
        observables: φ: data, for the loss of each sample; or a function from the parameters, a dict of tensors by name,
            to a tensor, for example `lambda w: land.outputs(w, x)`.
        others: ψ, likewise; φ unless given.
        method: `draws`, as they are; `controlled`: with what EK-FAC knows of them as a control variate, which takes a
            gradient on all data more for every draw, so that fewer draws suffice; or `ekfac`, without draws: the
            classical aᵀ(nβF + γI)⁻¹b, F approximated layer by layer, of which no error is known.
        memory: bytes that sums over draws may take: 8 for every chain, row and column.
        progress: show a bar when it takes over a second.
        settings: of a landscape, those of `posterior`.

    Examples:
        >>> import torch, basinscope as bs
        >>> x = torch.randn(100, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        >>> net = torch.nn.Linear(1, 1, bias=False).double()
        >>> _ = torch.nn.init.ones_(net.weight)
        >>> post = bs.posterior(bs.Landscape(net, "mse", (x, x)), nbeta=100.0, gamma=1.0, draws=200)
        >>> spread = bs.covariance(post, lambda w: w["weight"])
        >>> exact = 1 / (100 * float(x.square().mean()) + 1)
        >>> bool(abs(spread.values[0, 0] - exact) < 6 * spread.stderr[0, 0] < 0.6 * exact)
        True
    """
    return _measured(
        "covariance", source, observables, others, lambda matrix: matrix, method, memory, progress, settings
    )


@takes_settings
def influence(
    source: Landscape | Posterior,
    queries: Any = None,
    *,
    method: Method = "draws",
    memory: float = MEMORY,
    progress: bool = True,
    **settings: Unpack[Sampling],
) -> Covariances:
    """−Cov(ℓ_i, φ_j) over the local posterior: the Bayesian influence of training sample i on query j.

    Of the posterior ∝ exp(−β Σ_i ℓ_i(w) − (γ/2)‖w − w*‖²), β times this is the derivative of E[φ_j] when sample i gets
    more weight: a negative influence on a loss is a sample that helps. Its leading term on a quadratic basin is the
    classical influence function −∇ℓ_iᵀ(nβH + γI)⁻¹∇φ_j.

    Args:
        source: the posterior, or a landscape whose posterior is sampled.
        queries: φ: data, for the loss of each of their samples; or a function of the parameters as for `covariance`;
            the training samples themselves unless given.
        method, memory, progress: as for `covariance`; with `ekfac` it is the classical influence function.
        settings: of a landscape, those of `posterior`.

    Examples:
        >>> import torch, basinscope as bs
        >>> x = torch.randn(50, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        >>> net = torch.nn.Linear(2, 1, bias=False).double()
        >>> _ = torch.nn.init.ones_(net.weight)
        >>> post = bs.posterior(bs.Landscape(net, "mse", (x, x[:, :1])), gamma=1.0, draws=50)
        >>> bs.influence(post, (x[:3], x[:3, :1])).values.shape
        (50, 3)
    """
    return _measured("influence", source, None, queries, lambda matrix: -matrix, method, memory, progress, settings)


@takes_settings
def loss_kernel(
    source: Landscape | Posterior, *, memory: float = MEMORY, progress: bool = True, **settings: Unpack[Sampling]
) -> Covariances:
    """Cov(ℓ_i, ℓ_j)/√(Var ℓ_i Var ℓ_j) over the local posterior: which samples the network treats alike.

    Args:
        source: the posterior, or a landscape whose posterior is sampled.
        memory, progress: as for `covariance`.
        settings: of a landscape, those of `posterior`.

    Examples:
        >>> import torch, basinscope as bs
        >>> x = torch.randn(20, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        >>> x[1] = x[0]  # a duplicate
        >>> net = torch.nn.Linear(2, 1, bias=False).double()
        >>> _ = torch.nn.init.ones_(net.weight)
        >>> kernel = bs.loss_kernel(bs.Landscape(net, "mse", (x, x[:, :1])), gamma=1.0, draws=50, progress=False)
        >>> row, column, value, _ = kernel.pairs(1)[0]
        >>> (row, column), round(value, 6)
        ((0, 1), 1.0)
    """
    return _measured("loss kernel", source, None, None, normalised, "draws", memory, progress, settings)


def normalised(matrix: Tensor) -> Tensor:
    """A covariance matrix as correlations; those with a constant are 0."""
    scale = matrix.diagonal().clamp(min=0).sqrt()
    scale = torch.where(scale > 0, scale, torch.full_like(scale, math.inf))
    return matrix / scale[:, None] / scale


def _measured(
    name: str,
    source: Landscape | Posterior,
    rows: Any,
    columns: Any,
    made: Made,
    method: Method,
    memory: float,
    progress: bool,
    settings: Sampling,
) -> Covariances:
    """What is `made` of the covariances of two observables; `columns` are the rows unless given."""
    if method not in ("draws", "controlled", "ekfac"):
        raise InputError(f"method must be 'draws', 'controlled' or 'ekfac', got {method!r}")
    land = landscape_of(source)
    at = resolution(land, settings.get("nbeta"), settings.get("gamma"))
    with tracked(name, progress) as report:
        if method == "ekfac":
            return _classical(name, source, at, rows, columns, made, memory)
        post = posterior_for_draws(source, at.nbeta / land.n, settings, report)
        walk, first = Walk(post, report), Observable(post.losses, rows)
        second = first if columns is None else Observable(post.losses, columns)
        sizes = first.size, second.size
        sums = Sums(post.chains, *sizes, memory, land.device)
        controls = None
        if method == "controlled":
            known = Classical(post.losses, post.nbeta, post.gamma, first.given, second.given, sizes, memory)
            controls = Sums(post.chains, *sizes, memory, land.device)
        for delta in walk:
            values = first.at(delta)
            walk.note(delta, values if rows is None else None)
            sums.add(values, values if second is first else second.at(delta))
            if controls is not None:
                controls.add(*known.at(delta))
    control = None if controls is None else Control(controls, known.matrix())
    matrix, stderr = sums.estimate(made, walk.alive, control)
    size, error = (float(np.sqrt(np.mean(each**2))) for each in (matrix, stderr))
    checks = (*walk.checks(), check_draws(error, size, "the entries' root mean square"))
    return Covariances(name, matrix, stderr, float(walk.alive.sum() - 1), checks, walk.facts() | {"method": method})


def _classical(
    name: str, source: Landscape | Posterior, at: Resolution, rows: Any, columns: Any, made: Made, memory: float
) -> Covariances:
    """The leading term by EK-FAC, without draws."""
    land, nbeta, gamma = landscape_of(source), at.nbeta, at.gamma
    if isinstance(source, Posterior):
        nbeta, gamma = source.nbeta, source.gamma
    losses = ChainLosses(land)
    first = Observable(losses, rows)
    second = first if columns is None else Observable(losses, columns)
    known = Classical(losses, nbeta, gamma, first.given, second.given, (first.size, second.size), memory)
    matrix = made(known.matrix()).cpu().numpy()
    facts = {"n": land.n, "dimension": land.dimension, "nbeta": nbeta, "gamma": gamma, "method": "ekfac"}
    return Covariances(name, matrix, np.full_like(matrix, math.nan), facts=facts)


class Control(NamedTuple):
    """Sums of a control variate, and what its covariances are known to be."""

    sums: Sums
    known: Tensor


class Sums:
    """Sums over the draws of every chain of two observables and their products.

    Args:
        chains: C.
        rows, columns: entries of the observables.
        memory: bytes that the sums may take.
        device: where to add up.
    """

    def __init__(self, chains: int, rows: int, columns: int, memory: float, device: torch.device | str) -> None:
        needed = 8 * chains * rows * columns
        if needed > positive("memory", memory):
            raise InputError(
                f"{rows:,} × {columns:,} covariances of {chains} chains take {needed / 2**20:,.0f} MiB, more than "
                f"memory={memory / 2**20:,.0f} MiB — raise memory, pass fewer queries, or take fewer chains"
            )
        self.draws = 0
        self._first = torch.zeros(chains, rows, dtype=torch.float64, device=device)
        self._second = torch.zeros(chains, columns, dtype=torch.float64, device=device)
        self._products = torch.zeros(chains, rows, columns, dtype=torch.float64, device=device)

    def add(self, first: Tensor, second: Tensor) -> None:
        """Add values (C, rows) and (C, columns) of one draw of every chain, each less a constant near its mean."""
        self.draws += 1
        self._first += first
        self._second += second
        self._products.baddbmm_(first[:, :, None], second[:, None, :])

    def estimate(
        self, made: Made, alive: NDArray[np.bool_], control: Control | None = None, means: Tensor | None = None
    ) -> tuple[Array, Array]:
        """What is `made` of the covariances over the living chains, and its standard error by leaving out one after
        the other.

        Args:
            made: of the covariances.
            alive: which chains live.
            control: a control variate.
            means: of each chain (C, rows, columns), whose mean over chains is added to the covariances.
        """
        chains = torch.as_tensor(np.flatnonzero(alive), device=self._first.device)
        count = len(chains)
        matrix, left_out = self._covariances(chains), self._leaving_out(chains)
        if means is not None:
            whole = means[chains].mean(0)
            matrix = matrix + whole
            rest = (whole + (whole - each) / (count - 1) for each in means[chains])
            left_out = (ours + mean for ours, mean in zip(left_out, rest, strict=True))
        if control is not None:
            share, surplus = self._share(chains, control), control.sums._covariances(chains) - control.known
            matrix = matrix - share * surplus
            others = control.sums._leaving_out(chains)
            left_out = (ours - share * (other - control.known) for ours, other in zip(left_out, others, strict=True))
        value = made(matrix)
        mean, square = torch.zeros_like(value), torch.zeros_like(value)
        for without in left_out:
            off = made(without) - value
            mean += off / count
            square += off.square() / count
        stderr = ((count - 1) * (square - mean.square()).clamp(min=0)).sqrt()
        return value.cpu().numpy(), stderr.cpu().numpy()

    def _share(self, chains: Tensor, control: Control) -> float:
        """How much of the control variate to take out: one number for all entries, by what their covariances and its
        own do together when a chain is left out."""
        ours, other = self._covariances(chains), control.sums._covariances(chains)
        together = alone = 0.0
        both = zip(self._leaving_out(chains), control.sums._leaving_out(chains), strict=True)
        for without, control_without in both:
            move = control_without - other
            together += float(((without - ours) * move).sum())
            alone += float(move.square().sum())
        return together / alone if alone > 0 else 0.0

    def _covariances(self, chains: Tensor) -> Tensor:
        """Those over all draws of these chains."""
        first, second, products = (part[chains].sum(0) for part in self._parts)
        return _covariance(first, second, products, self.draws * len(chains))

    def _leaving_out(self, chains: Tensor) -> Iterator[Tensor]:
        """Those over all draws of these chains but one, in turn."""
        first, second, products = (part[chains].sum(0) for part in self._parts)
        for chain in chains:
            left = first - self._first[chain], second - self._second[chain], products - self._products[chain]
            yield _covariance(*left, total=self.draws * (len(chains) - 1))

    @property
    def _parts(self) -> tuple[Tensor, Tensor, Tensor]:
        return self._first, self._second, self._products


def _covariance(first: Tensor, second: Tensor, products: Tensor, total: int) -> Tensor:
    """The covariances of so many draws, from their sums."""
    return (products - torch.outer(first, second) / total) / (total - 1)
