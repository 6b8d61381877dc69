"""Deep linear networks, globally and at a point: Aoyagi's coefficients."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction

from ..errors import InputError
from ._checks import Coefficient, integer, integers, rank_at_most


def deep_linear(widths: Sequence[int], rank: int, bias: bool = False) -> Coefficient:
    """(λ, θ) of y = A₁A₂⋯A_L x with A_s of size H_s × H_{s+1}, when the true product has rank r.

    λ = [r(H₁ + H_{L+1}) − r²]/2 + core(H₁ − r, …, H_{L+1} − r), plus H₁/2 when an output bias is learned. The core
    with excess widths M_s = H_s − r: let ℓ be the largest number for which S, the sum of the ℓ+1 smallest M_s, is at
    least ℓ times the largest of them; with M = ⌈S/ℓ⌉ and a = S − (M − 1)ℓ,

        core = [Ma + (M − 1)S − Σ M_s²]/4 over those ℓ+1,    θ = a(ℓ − a) + 1.

    It is the smallest coefficient over all true parameters; `deep_linear_local` gives that of a point. The second
    moment of the inputs must have full rank: otherwise use that rank as the input width.

    Args:
        widths: H₁, …, H_{L+1}, from output to input. Without a bias the order does not matter.
        rank: rank of the true linear map.
        bias: whether an output bias is learned. It acts on the first width; biases of hidden layers change nothing
            once there is an output bias.

    Source: Aoyagi, "Consideration on the learning efficiency of multiple-layered neural networks with linear units",
    Neural Networks (2024), doi:10.1016/j.neunet.2024.106132.

    Examples:
        >>> deep_linear([10, 5, 10], rank=3)
        (Fraction(32, 1), 1)
        >>> deep_linear([1, 5, 7], rank=1, bias=True)
        (Fraction(4, 1), 1)
    """
    widths = _network_widths(widths)
    rank = rank_at_most(rank, {f"widths[{i}]": width for i, width in enumerate(widths)})
    core, multiplicity = _core([width - rank for width in widths])
    value = Fraction(rank * (widths[0] + widths[-1]) - rank**2, 2) + core
    return value + Fraction(widths[0], 2) if bias else value, multiplicity


def deep_linear_local(widths: Sequence[int], rank: int, ranks: tuple[int, int]) -> Coefficient:
    """(λ, θ) of the two-layer network y = ABx at a true point with rank A = α, rank B = β, rank AB = r.

    λ = ½(Mβ + Nα − αβ) + core(M − α, H − α − β + r, N − β), for A of size M × H and B of size H × N and the core of
    `deep_linear`. The equations that see im A or coim B are regular, Mβ + Nα − αβ of them; solving them leaves a
    product of free factors at the origin. With α = β = r it is the global value.

    Args:
        widths: (M, H, N), in the order of the factors.
        rank: rank of the product AB.
        ranks: (rank A, rank B).

    Source: derived from the local normal form of a product of two matrices; see `deep_linear` for the core.

    Examples:
        >>> deep_linear_local([2, 2, 2], rank=0, ranks=(2, 0))
        (Fraction(2, 1), 1)
        >>> deep_linear_local([2, 2, 2], rank=0, ranks=(1, 1))
        (Fraction(3, 2), 1)
    """
    widths = _network_widths(widths)
    if len(widths) != 3:
        raise InputError(f"deep_linear_local knows two layers: expected three widths, got {len(widths)}")
    first, hidden, last = widths
    pair = integers("ranks", ranks, 0)
    if len(pair) != 2:
        raise InputError(f"ranks must be (rank A, rank B), got {tuple(pair)}")
    alpha, beta = pair
    if alpha > min(first, hidden) or beta > min(hidden, last):
        raise InputError(
            f"ranks must be at most ({min(first, hidden)}, {min(hidden, last)}) for factors of size {first}×{hidden} "
            f"and {hidden}×{last}, got ({alpha}, {beta})"
        )
    rank = integer("rank", rank, 0)
    least = max(0, alpha + beta - hidden)
    if not least <= rank <= min(alpha, beta):
        raise InputError(
            f"rank of a product of factors with ranks ({alpha}, {beta}) over {hidden} hidden units lies in "
            f"{least}..{min(alpha, beta)}, got {rank} — no such point exists"
        )
    core, multiplicity = _core([first - alpha, hidden - alpha - beta + rank, last - beta])
    return Fraction(first * beta + last * alpha - alpha * beta, 2) + core, multiplicity


def _network_widths(widths: Sequence[int]) -> list[int]:
    checked = integers("widths", widths, 1)
    if len(checked) < 2:
        raise InputError(f"widths must name both ends of the network: expected at least two, got {checked}")
    return checked


def _core(excess: Sequence[int]) -> Coefficient:
    """(λ, θ) of ‖A₁⋯A_L‖² at the origin, for matrices with these widths."""
    small = sorted(excess)
    if small[0] == 0:
        return Fraction(0), 1
    sums = list(itertools.accumulate(small))
    layers = max(count for count in range(1, len(small)) if sums[count] >= count * small[count])
    smallest = small[: layers + 1]
    total = sum(smallest)
    ceiling = -(-total // layers)
    a = total - (ceiling - 1) * layers
    squares = sum(width**2 for width in smallest)
    return Fraction(ceiling * a + (ceiling - 1) * total - squares, 4), a * (layers - a) + 1
