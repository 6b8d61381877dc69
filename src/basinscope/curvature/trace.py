"""The trace of a symmetric operator from random probes: Hutchinson and XTrace, each with its standard error.

Hutchinson (1990, https://doi.org/10.1080/03610919008812866); Epperly, Tropp and Webber, "XTrace: making the most of
every sample in stochastic trace estimation" (2024, https://arxiv.org/abs/2301.07825).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..checks import whole_seed
from .operators import Operator
from .tiles import DEFAULT_MEMORY

MIN_PROBES = 16  # before a standard error is believed: with 12, 95 % intervals held the truth 91 to 94 % of the time
MAX_HUTCHINSON_PROBES = 60  # beyond which plain Hutchinson gives way to XTrace, which deflates
PROBES_AT_ONCE = 16
MAX_JACKKNIFE_GROUPS = 24  # parts of the probes that are left out in turn for XTrace's standard error
PROBE_MARGIN = 1.2  # more probes than the pilot asks for: its own standard error may have come out too small


@dataclass(frozen=True)
class TraceEstimate:
    """A trace, and those of the diagonal blocks asked for.

    Attributes:
        value, stderr, freedom: a standard error of 0 means that it is exact.
        method: `exact`, `hutchinson`, `xtrace`, `closed form`, `gradient norms` or `sampled gradient norms`.
        spent: matrix–vector products, or backward passes over the data.
        blocks: (value, standard error) of each block.
    """

    value: float
    stderr: float
    freedom: float
    method: str
    spent: int
    blocks: tuple[tuple[float, float], ...] = ()

    @classmethod
    def exact(cls, blocks: Iterable[float], method: str, spent: int) -> TraceEstimate:
        """The trace from those of all diagonal blocks, without error."""
        parts = tuple((value, 0.0) for value in blocks)
        return cls(math.fsum(value for value, _ in parts), 0.0, math.inf, method, spent, parts)


class Hutchinson:
    """The mean of vᵀ A v over Rademacher vectors v: unbiased, and of variance 2 Σ_{i≠j} A_ij² for each vector."""

    method = "hutchinson"

    def __init__(self, operator: Operator, seed: int, sizes: Sequence[int] | None = None) -> None:
        self.products = 0
        self._operator = operator
        self._sizes = [operator.dimension] if sizes is None else list(sizes)
        self._generator = torch.Generator(device=operator.device).manual_seed(whole_seed(seed))
        self._forms: list[Tensor] = []  # vᵀ A v of each probe by diagonal block

    def grow(self, products: int) -> None:
        for start in range(0, products, PROBES_AT_ONCE):
            signs = _normal(self._operator, min(PROBES_AT_ONCE, products - start), self._generator).sign()
            terms = (signs * (self._operator @ signs)).double()
            self._forms.append(torch.stack([part.sum(0) for part in terms.split(self._sizes)], 1).cpu())
        self.products += products

    def summary(self) -> tuple[float, float, float]:
        total = torch.cat(self._forms).sum(1)
        return float(total.mean()), float(total.std()) / math.sqrt(self.products), self.products - 1

    def blocks(self) -> tuple[tuple[float, float], ...]:
        """Value and standard error for each diagonal block."""
        forms = torch.cat(self._forms)
        error = forms.std(0) / math.sqrt(self.products)
        return tuple(zip(forms.mean(0).tolist(), error.tolist(), strict=True))


class XTrace:
    """The mean over probes ω_i of Tr(Q_iᵀ A Q_i) + μ_iᵀ A μ_i, where Q_i spans the images A ω_j of the *other* probes.

    Only what the other probes leave over is estimated at random: μ_i is ω_i without its part in Q_i, brought to the
    length it has on average. Products are spent on A Ω and A Q.
    """

    method = "xtrace"

    def __init__(self, operator: Operator, seed: int) -> None:
        self.products = 0
        self._operator = operator
        self._generator = torch.Generator(device=operator.device).manual_seed(whole_seed(seed))
        empty = torch.empty(operator.dimension, 0, dtype=torch.float64, device=operator.device)
        self._probes = self._images = self._basis = self._mapped = empty

    def grow(self, products: int) -> None:
        # Half of the products for A Ω of new probes.
        fresh = _normal(self._operator, max(1, products // 2), self._generator)
        self._probes = torch.cat([self._probes, fresh.double()], 1)
        self._images = torch.cat([self._images, (self._operator @ fresh).double()], 1)
        # The basis Q of all images grows by what is new in them: it stays, and with it the products spent on it.
        new = self._images[:, self._basis.shape[1] :]
        for _ in range(2):  # twice, because once loses digits
            new = torch.linalg.qr(new - self._basis @ (self._basis.T @ new)).Q
        self._basis = torch.cat([self._basis, new], 1)
        # The other half for A Q.
        mapped = self._operator @ new.to(self._operator.dtype)
        self._mapped = torch.cat([self._mapped, mapped.double()], 1)
        self.products += 2 * fresh.shape[1]

    def summary(self) -> tuple[float, float, float]:
        basis = self._basis
        lengths, forms = self._probes.square().sum(0).cpu(), (self._probes * self._images).sum(0).cpu()
        inside, images, core = ((basis.T @ part).cpu() for part in (self._probes, self._images, self._mapped))

        def mean(chosen: Tensor) -> Tensor:
            # A basis of the chosen probes' images alone, written in the basis of all of them.
            frame = torch.linalg.qr(images[:, chosen]).Q
            small = frame.T @ inside[:, chosen], frame.T @ images[:, chosen], frame.T @ core @ frame
            return _leave_one_out(lengths[chosen], forms[chosen], *small, self._operator.dimension).mean()

        return _jackknife(mean, len(lengths))


def _leave_one_out(
    lengths: Tensor, forms: Tensor, inside: Tensor, images: Tensor, core: Tensor, dimension: int
) -> Tensor:
    """XTrace's estimates from small matrices: ‖ω_i‖², ω_iᵀ A ω_i, Qᵀ Ω, Qᵀ A Ω and Qᵀ A Q."""
    # Q_i Q_iᵀ = Q (I − s_i s_iᵀ) Qᵀ with s_i the normalized ith column of (Qᵀ A Ω)⁻ᵀ. Where A has low rank that matrix
    # is singular and nothing is lost with a probe: s_i then points where Qᵀ A Q vanishes.
    left, sizes, right = torch.linalg.svd(images)
    removed = left @ (right / sizes.clamp(min=1e-150)[:, None])
    removed = removed / removed.norm(dim=0)
    inside_others = inside - removed * (removed * inside).sum(0)
    length = lengths - (2 * inside - inside_others).mul(inside_others).sum(0)
    form = forms - (2 * images - core @ inside_others).mul(inside_others).sum(0)
    free = dimension - len(lengths) + 1
    return core.trace() - (removed * (core @ removed)).sum(0) + free * form / length.clamp(min=1e-150)


def _jackknife(mean: Callable[[Tensor], Tensor], count: int) -> tuple[float, float, float]:
    """Value, standard error and degrees of freedom of an estimate, by leaving out groups of probes.

    The estimates of single probes depend on each other: their scatter shows as little as half of the error. The
    jackknife never understates it on average (Efron and Stein 1981,
    https://doi.org/10.1214/aos/1176345462) and reads up to about twice too high.
    """
    groups = torch.arange(count).chunk(min(count, MAX_JACKKNIFE_GROUPS))
    probes = torch.arange(count)
    without = torch.stack([mean(probes[~torch.isin(probes, group)]) for group in groups])
    variance = (len(groups) - 1) / len(groups) * (without - without.mean()).square().sum()
    return float(mean(probes)), float(variance.sqrt()), len(groups) - 1


def estimate_trace(
    operator: Operator,
    *,
    rtol: float,
    atol: float = 0.0,
    offset: float = 0.0,
    max_products: int = 2000,
    seed: int = 0,
    sizes: Sequence[int] | None = None,
    memory: int | None = None,
    report: Callable[[float, str], None] = lambda fraction, text: None,
) -> TraceEstimate:
    """Tr A until its standard error is at most max(rtol · |offset + Tr A|, atol) or the products are spent.

    Starts with Hutchinson. Where that would need many probes, the trace is taken exactly if the dimension is no larger
    than that, and XTrace takes over while it gains more per product.

    Args:
        operator: any symmetric operator.
        rtol, atol: standard error to reach, relative and absolute.
        offset: a known number that the trace will be added to: the relative tolerance is one of the sum.
        max_products: matrix–vector products that may be spent.
        seed: of the random probes.
        sizes: lengths of diagonal blocks whose traces are wanted too; Hutchinson only.
        memory: bytes that XTrace may hold.
        report: called with the fraction done and a line of text.

    Examples:
        >>> import torch
        >>> from basinscope.curvature.operators import Dense
        >>> estimate_trace(Dense(torch.diag(torch.arange(100.0))), rtol=0.01).value
        4950.0
    """
    if operator.dimension <= MIN_PROBES:
        return exact_trace(operator, sizes)
    probes: Hutchinson | XTrace = Hutchinson(operator, seed, sizes)
    spent = min(MIN_PROBES, max_products)
    probes.grow(spent)
    deflating = sizes is None and _fits(operator, memory, MAX_HUTCHINSON_PROBES)
    while True:
        value, stderr, freedom = probes.summary()
        ratio = min(stderr / max(rtol * abs(offset + value), atol, 1e-300), 1e9)
        report(1 / max(1, ratio) ** 2, f"{offset + value:.4g} ± {stderr:.2g}")
        remaining = max_products - spent
        if not ratio > 1 or remaining < 2:  # NaN ends it too
            break
        needed = min(PROBE_MARGIN * probes.products * ratio**2, max_products)  # the error falls with their root
        # One product per dimension is exact, so random probes must be fewer.
        if operator.dimension <= min(needed, remaining):
            return exact_trace(operator, sizes, spent)
        # Once, XTrace, which deflates, is tried beside Hutchinson, and kept if its variance per product is lower.
        if deflating and needed > MAX_HUTCHINSON_PROBES:
            deflating = False
            other = XTrace(operator, seed + 1)
            other.grow(min(MAX_HUTCHINSON_PROBES // 2, remaining))
            spent += other.products
            if other.summary()[1] ** 2 * other.products < stderr**2 * probes.products:
                probes = other
            continue
        # At most three times as many as so far, because the standard error of few probes is uncertain itself.
        more = min(needed, 3 * probes.products) - probes.products
        if probes.method != "hutchinson" and not _fits(operator, memory, math.ceil(probes.products + more)):
            break
        more = max(2, min(math.ceil(more), remaining))
        probes.grow(more)
        spent += more
    blocks = probes.blocks() if isinstance(probes, Hutchinson) and sizes is not None else ()
    return TraceEstimate(value, stderr, freedom, probes.method, spent, blocks)


def exact_trace(operator: Operator, sizes: Sequence[int] | None = None, spent: int = 0) -> TraceEstimate:
    """Tr A = Σ_j e_jᵀ A e_j, one product per dimension."""
    diagonal = []
    for columns in torch.eye(operator.dimension, dtype=operator.dtype, device=operator.device).split(PROBES_AT_ONCE, 1):
        diagonal.append((columns * (operator @ columns)).double().sum(0).cpu())
    parts = torch.cat(diagonal)
    blocks = () if sizes is None else tuple((float(part.sum()), 0.0) for part in parts.split(list(sizes)))
    return TraceEstimate(float(parts.sum()), 0.0, math.inf, "exact", spent + operator.dimension, blocks)


def _fits(operator: Operator, memory: int | None, products: int) -> bool:
    """Whether the six matrices of float64 columns that XTrace holds at most fit in memory."""
    return 6 * 8 * operator.dimension * products <= (DEFAULT_MEMORY if memory is None else memory)


def _normal(operator: Operator, columns: int, generator: torch.Generator) -> Tensor:
    return torch.randn(operator.dimension, columns, device=operator.device, dtype=operator.dtype, generator=generator)
