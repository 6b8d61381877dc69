"""The trace of a symmetric operator from random probes: Hutchinson, XTrace and XNysTrace, each with its standard error.

Hutchinson (1990); Epperly, Tropp and Webber, "XTrace: making the most of every sample in stochastic trace estimation",
SIAM J. Matrix Anal. Appl. 45 (2024).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ..errors import InputError
from .operators import Operator
from .tiles import DEFAULT_MEMORY

FEWEST = 12  # probes before a standard error is believed
PATIENT = 60  # probes beyond which plain Hutchinson gives way to the methods that deflate
HEADROOM = 1.2  # more probes than the pilot asks for: its own standard error may have come out too small


@dataclass(frozen=True)
class Trace:
    """A trace from `products` matrix–vector products, by `exact`, `hutchinson`, `xtrace` or `xnystrace`.

    `blocks` holds (value, standard error) of the diagonal blocks asked for.
    """

    value: float
    stderr: float
    freedom: float
    method: str
    products: int
    blocks: tuple[tuple[float, float], ...] = ()


class Probes(Protocol):
    """A growing set of probes, each with its own unbiased estimate of the trace."""

    method: str
    products: int

    def grow(self, products: int) -> None:
        """Spend about that many more products."""

    def estimates(self) -> Tensor:
        """(k,) in float64, or (k, blocks)."""


class Hutchinson:
    """vᵀ A v over Rademacher vectors v: unbiased, of variance 2 Σ_{i≠j} A_ij² each."""

    method = "hutchinson"

    def __init__(self, operator: Operator, seed: int, sizes: Sequence[int] | None = None) -> None:
        self.products = 0
        self._operator = operator
        self._sizes = [operator.dimension] if sizes is None else list(sizes)
        self._generator = torch.Generator(device=operator.device).manual_seed(seed)
        self._found: list[Tensor] = []

    def grow(self, products: int) -> None:
        for start in range(0, products, 32):  # so many vectors at a time are worth their memory
            signs = _normal(self._operator, min(32, products - start), self._generator).sign()
            terms = (signs * (self._operator @ signs)).double()
            self._found.append(torch.stack([part.sum(0) for part in terms.split(self._sizes)], 1).cpu())
        self.products += products

    def estimates(self) -> Tensor:
        return torch.cat(self._found)


class XTrace:
    """For each probe ω_i: Tr(Q_iᵀ A Q_i) + μ_iᵀ A μ_i, where Q_i spans the images A ω_j of the *other* probes.

    Only what the other probes leave over is estimated at random: μ_i is ω_i without its part in Q_i, brought to the
    length it has on average. Products are spent on A Ω and A Q.
    """

    method = "xtrace"

    def __init__(self, operator: Operator, seed: int) -> None:
        self.products = 0
        self._operator = operator
        self._generator = torch.Generator(device=operator.device).manual_seed(seed)
        empty = torch.empty(operator.dimension, 0, dtype=torch.float64, device=operator.device)
        self._probes = self._images = self._basis = self._mapped = empty

    def grow(self, products: int) -> None:
        fresh = _normal(self._operator, max(1, products // 2), self._generator)
        self._probes = torch.cat([self._probes, fresh.double()], 1)
        self._images = torch.cat([self._images, (self._operator @ fresh).double()], 1)
        new = self._images[:, self._basis.shape[1] :]
        for _ in range(2):  # the basis so far stays, and with it the products spent on it
            new = torch.linalg.qr(new - self._basis @ (self._basis.T @ new)).Q
        self._basis = torch.cat([self._basis, new], 1)
        mapped = self._operator @ new.to(self._operator.dtype)
        self._mapped = torch.cat([self._mapped, mapped.double()], 1)
        self.products += 2 * fresh.shape[1]

    def estimates(self) -> Tensor:
        probes, images, basis, mapped = self._probes, self._images, self._basis, self._mapped
        core = basis.T @ mapped
        # Q_i Q_iᵀ = Q (I − s_i s_iᵀ) Qᵀ with s_i the normalized ith column of R⁻ᵀ, R = Qᵀ A Ω.
        lost = torch.linalg.pinv(basis.T @ images, rtol=torch.finfo(self._operator.dtype).eps).T
        lost = lost / lost.norm(dim=0).clamp(min=1e-300)
        inside = basis.T @ probes
        inside = inside - lost * (lost * inside).sum(0)
        left = probes - basis @ inside
        spread = (left * (images - mapped @ inside)).sum(0) / left.square().sum(0).clamp(min=1e-300)
        free = self._operator.dimension - probes.shape[1] + 1
        return (core.trace() - (lost * (core @ lost)).sum(0) + free * spread).cpu()


class XNysTrace:
    """XTrace for a positive semi-definite A, deflated by its Nyström approximation: half the products a probe.

    Â = Y (ΩᵀY)⁻¹ Yᵀ with Y = A Ω. Leaving out ω_i takes (Y H⁻¹e_i)(Y H⁻¹e_i)ᵀ / (H⁻¹)_ii off it, H = ΩᵀY.
    """

    method = "xnystrace"

    def __init__(self, operator: Operator, seed: int) -> None:
        if not operator.psd:
            raise InputError("xnystrace needs a positive semi-definite operator: use xtrace for this one")
        self.products = 0
        self._operator = operator
        self._generator = torch.Generator(device=operator.device).manual_seed(seed)
        empty = torch.empty(operator.dimension, 0, dtype=torch.float64, device=operator.device)
        self._probes = self._images = empty

    def grow(self, products: int) -> None:
        fresh = _normal(self._operator, products, self._generator)
        self._probes = torch.cat([self._probes, fresh.double()], 1)
        self._images = torch.cat([self._images, (self._operator @ fresh).double()], 1)
        self.products += products

    def estimates(self) -> Tensor:
        probes, k = self._probes, self._probes.shape[1]
        # A small shift keeps ΩᵀY invertible where A has low rank; its trace is taken off again.
        shift = torch.finfo(self._operator.dtype).eps * float(self._images.norm() / probes.norm())
        images = self._images + shift * probes
        middle = probes.T @ images
        inverse = torch.linalg.inv((middle + middle.T) / 2)
        solved = images @ inverse
        removed = inverse.diagonal()
        whole = (images * solved).sum()
        length = torch.linalg.inv(probes.T @ probes).diagonal() * (self._operator.dimension - k + 1)
        return (whole - solved.square().sum(0) / removed + length / removed - shift * self._operator.dimension).cpu()


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
) -> Trace:
    """Tr A until its standard error is at most max(rtol · |offset + Tr A|, atol) or the products are spent.

    Starts with Hutchinson. Where that would need many probes, the trace is taken exactly if the dimension is no larger
    than that, and XTrace (XNysTrace for a positive semi-definite operator) takes over while it gains more per product.

    Args:
        operator: any symmetric operator.
        offset: a known number that the trace will be added to: the tolerance is relative to the sum.
        sizes: lengths of diagonal blocks whose traces are wanted too; Hutchinson only.
        memory: bytes that XTrace may hold.

    Examples:
        >>> import torch
        >>> from basinscope.curvature.operators import Dense
        >>> estimate_trace(Dense(torch.diag(torch.arange(100.0))), rtol=0.01).value
        4950.0
    """

    def target(value: float) -> float:
        return max(rtol * abs(offset + value), atol)

    def summary(probes: Probes, spent: int) -> Trace:
        found = probes.estimates().reshape(len(probes.estimates()), -1)
        k, total = len(found), found.sum(1)
        blocks = tuple((float(part.mean()), float(part.std() / math.sqrt(k))) for part in found.T)
        stderr = float(total.std()) / math.sqrt(k)
        return Trace(float(total.mean()), stderr, k - 1, probes.method, spent, () if sizes is None else blocks)

    if operator.dimension <= FEWEST:
        return exact_trace(operator, sizes)
    probes: Probes = Hutchinson(operator, seed, sizes)
    probes.grow(FEWEST)
    spent = FEWEST
    deflate = sizes is None
    while True:
        trace = summary(probes, spent)
        wanted = target(trace.value)
        ratio = trace.stderr / wanted if wanted > 0 else (math.inf if trace.stderr > 0 else 0.0)
        report(min(1.0, ratio**-2) if ratio > 0 else 1.0, f"{offset + trace.value:.4g} ± {trace.stderr:.2g}")
        if ratio <= 1 or spent >= max_products:
            return trace
        need = min(HEADROOM * probes.products * ratio**2, max_products)
        if operator.dimension <= min(need, max_products - spent):
            return exact_trace(operator, sizes, spent)
        if probes.method == "hutchinson" and deflate and need > PATIENT:
            deflate = False
            other = XNysTrace(operator, seed + 1) if operator.psd else XTrace(operator, seed + 1)
            if _fits(operator, memory, PATIENT):
                other.grow(min(2 * FEWEST, max_products - spent))
                spent += other.products
                rival = summary(other, spent)
                if rival.stderr**2 * other.products < trace.stderr**2 * probes.products:
                    probes = other
                continue
        more = math.ceil(min(need, 3 * probes.products)) - probes.products
        if probes.method != "hutchinson" and not _fits(operator, memory, probes.products + more):
            return trace
        more = max(2, min(more, max_products - spent))
        probes.grow(more)
        spent += more


def exact_trace(operator: Operator, sizes: Sequence[int] | None = None, spent: int = 0) -> Trace:
    """Tr A = Σ_j e_jᵀ A e_j, one product per dimension."""
    diagonal = []
    for columns in torch.eye(operator.dimension, dtype=operator.dtype, device=operator.device).split(32, 1):
        diagonal.append((columns * (operator @ columns)).double().sum(0).cpu())
    parts = torch.cat(diagonal)
    blocks = () if sizes is None else tuple((float(part.sum()), 0.0) for part in parts.split(list(sizes)))
    return Trace(float(parts.sum()), 0.0, math.inf, "exact", spent + operator.dimension, blocks)


def _fits(operator: Operator, memory: int | None, products: int) -> bool:
    return 6 * 8 * operator.dimension * products <= (DEFAULT_MEMORY if memory is None else memory)


def _normal(operator: Operator, columns: int, generator: torch.Generator) -> Tensor:
    return torch.randn(operator.dimension, columns, device=operator.device, dtype=operator.dtype, generator=generator)
