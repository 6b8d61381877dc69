"""ReLU networks: linear pieces as long as no unit changes sides, and what happens at a shared kink."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import InputError
from ._checks import Coefficient, integer, integers
from .linear import deep_linear
from .polynomials import brieskorn, regular
from .rules import sum_rule


def relu_three_layer(
    inputs: int,
    outputs: int,
    groups: Sequence[tuple[int, int]],
    *,
    always_active: tuple[int, int] | None = None,
    output_bias: bool = False,
) -> Coefficient:
    """(λ, θ) of y = B·relu(Ax + b) [+ c] where every hidden unit keeps its side of the kink on every input.

    Units active on the same inputs form a group; on those inputs it is the linear network B_i(A_i x + b_i), which has
    input width n_in + 1 because its bias acts as a constant input. The groups add up by the sum rule:

        λ = Σ_i λ(n_out, units_i, n_in + 1; rank_i),

    and an output bias adds n_out/2. A group active on all inputs then loses its own bias to the output bias and has
    input width n_in.

    This holds only under two conditions. (1) Near w* the activation pattern on the support of the inputs is constant:
    continuous inputs cross kinks, which adds |δ|³ terms and makes λ larger (see `relu_kink_pair`). (2) The functions
    (1, x) on the groups' regions, with the constant 1 of an output bias, are linearly independent: a region must not
    be the union of others. The value is the smallest over the true parameters of each linear network. Some of these
    have units with zero weights, which sit on their kink and so violate (1): at a given w* the coefficient may be
    larger, and is the `sum_rule` of `deep_linear_local` values. Units active on no input contribute nothing.

    Args:
        inputs: number of inputs n_in.
        outputs: number of outputs n_out.
        groups: (units, rank) of each group, rank being that of the true map B_i·[A_i, b_i].
        always_active: (units, rank) of the units active on all inputs, rank being that of B·A when the output bias is
            learned and of B·[A, b] otherwise.
        output_bias: whether c is learned.

    Source: the additive rule of Aoyagi, "Singular leaning coefficients and efficiency in learning theory",
    arXiv:2501.12747, in the form that follows from the sum rule for constant patterns.

    Examples:
        >>> relu_three_layer(2, 1, [(3, 1), (2, 0)])
        (Fraction(5, 2), 1)
        >>> relu_three_layer(2, 1, [(3, 1)], always_active=(1, 1), output_bias=True)
        (Fraction(3, 1), 1)
    """
    inputs, outputs = integer("inputs", inputs, 1), integer("outputs", outputs, 1)
    parts = [_group(f"groups[{i}]", group, inputs + 1, outputs) for i, group in enumerate(groups)]
    if always_active is not None:
        parts.append(_group("always_active", always_active, inputs if output_bias else inputs + 1, outputs))
    if output_bias:
        parts.append(regular(outputs))
    if not parts:
        raise InputError("groups is empty: expected the (units, rank) of at least one group of active units")
    return sum_rule(*parts)


def relu_kink_pair(free_slopes: bool = False) -> Coefficient:
    """(λ, θ) of two ReLU units in one input that together imitate a single one, with both kinks free.

    y = a₁ relu(x − c₁) + a₂ relu(x − c₂) at a = (½, ½), c = (0, 0), where the truth is relu(x) and inputs are dense
    around 0. The mean kink is regular; separating the kinks by δ changes the function on an interval of length δ by
    up to δ, hence K ~ |δ|³ and λ = ½ + ⅓. With free slopes their sum is one more regular direction and their
    difference is taken up by the mean kink: λ = 1 + ⅓. The rule for constant patterns would give ½ and 1.

    Source: direct expansion of ∫(y − relu)² dx.

    Examples:
        >>> relu_kink_pair()
        (Fraction(5, 6), 1)
        >>> relu_kink_pair(free_slopes=True)
        (Fraction(4, 3), 1)
    """
    return brieskorn([2, 2, 3] if free_slopes else [2, 3])


def _group(name: str, group: tuple[int, int], inputs: int, outputs: int) -> Coefficient:
    pair = integers(name, group, 0)
    if len(pair) != 2 or pair[0] == 0:
        raise InputError(f"{name} must be (units, rank) with at least one unit, got {tuple(pair)}")
    units, rank = pair
    most = min(outputs, units, inputs)
    if rank > most:
        raise InputError(f"{name}: rank must be at most {most} = min(outputs, units, input width), got {rank}")
    return deep_linear([outputs, units, inputs], rank)
