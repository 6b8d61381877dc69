"""Reduced-rank regression: the four-case formula, independent of the deep linear one."""

from __future__ import annotations

from fractions import Fraction

from ._checks import Coefficient, integer, rank_at_most


def reduced_rank(inputs: int, hidden: int, outputs: int, rank: int) -> Coefficient:
    """(λ, θ) of y = ABx with M inputs, H hidden and N outputs, when the true product has rank r.

        M + H < N + r:   λ = (HM − Hr + Nr)/2
        N + H < M + r:   λ = (HN − Hr + Mr)/2
        M + N < H + r:   λ = MN/2
        otherwise:       λ = [2(H + r)(M + N) − (M − N)² − (H + r)²]/8, and 1/8 more with θ = 2 if M+H+N+r is odd

    Source: Aoyagi and Watanabe, "Stochastic complexities of reduced rank regression in Bayesian estimation",
    Neural Networks 18 (2005). `deep_linear([outputs, hidden, inputs], rank)` gives the same by another formula.

    Examples:
        >>> reduced_rank(10, 5, 10, rank=3)
        (Fraction(32, 1), 1)
        >>> reduced_rank(2, 2, 2, rank=1)
        (Fraction(2, 1), 2)
    """
    m, h, n = integer("inputs", inputs, 1), integer("hidden", hidden, 1), integer("outputs", outputs, 1)
    r = rank_at_most(rank, {"inputs": m, "hidden": h, "outputs": n})
    if m + h < n + r:
        return Fraction(h * m - h * r + n * r, 2), 1
    if n + h < m + r:
        return Fraction(h * n - h * r + m * r, 2), 1
    if m + n < h + r:
        return Fraction(m * n, 2), 1
    odd = (m + h + n + r) % 2
    return Fraction(2 * (h + r) * (m + n) - (m - n) ** 2 - (h + r) ** 2 + odd, 8), 1 + odd
