"""Whether a model is one fixed function that looks at every sample by itself.

Whatever is measured rests on L_n(w) = (1/n) Σ_i l_i(w), where l_i depends on w and on sample i alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from .errors import InputError
from .samples import Samples, map_tensors, tensors

Parameters = Mapping[str, Tensor]
Losses = Callable[[Parameters, Samples], Tensor]

MAX_PAIRS = 32  # of samples that are evaluated without the others
_MAX_ROUNDING = 64.0  # in units of ε|l|: the difference of a loss that is always allowed
_MAX_SENSITIVITY = 4.0  # in units of the effect of errors √ε in parameters, buffers and inputs


def independent_losses(
    every: Callable[[], Tensor],
    losses: Losses,
    take: Callable[[Tensor], Samples],
    n: int,
    parameters: Parameters,
    fixed: Parameters,
) -> Tensor:
    """The losses of all samples, as `every` computes them in large batches, once they are known to be fixed l_i(w).

    Up to 32 samples from all over the data are evaluated again beside one other each: a loss must be what it is among
    many, up to rounding. A few samples are evaluated first and last: their losses must not have moved meanwhile, nor
    any buffer, random state or the data themselves. (A network that changes in one call of ten, by random numbers of
    its own, passes in one case of 30.)

    Args:
        every: all losses at `parameters`.
        losses: l_i at given parameters, which may name what is `fixed`, too.
        take: copies of the samples of given numbers.
        n: the number of samples.
        parameters: the free parameters.
        fixed: all other tensors of the network.
    """
    before = {name: tensor.clone() for name, tensor in fixed.items()}
    with torch.no_grad(), _random_state_restored() as untouched:
        # A fixed function: the same losses for the same samples, with everything else evaluated in between.
        few, pairs = torch.arange(min(n, 8)), _pairs(n)
        data = take(few)
        together = every().cpu()
        first = losses(parameters, take(few))
        apart = _losses_of(pairs, losses, parameters, take)
        again = losses(parameters, take(few))
        if not all(map(torch.equal, _leaves(data), _leaves(take(few)))):
            raise InputError("the model must not write into its inputs: it changes them in place — clone them first")
        changed = [name for name, tensor in before.items() if not torch.equal(tensor, fixed[name])]
        if changed or not untouched() or not _same(first, again):
            raise InputError(_not_fixed(changed))
        # Samples by themselves: the same loss beside one other as among all, unless rounding alone explains the gap.
        among, state = together[pairs], {**fixed, **parameters}
        gap, rounding = _gap(apart, among), _MAX_ROUNDING * _epsilon(state) * among.abs()
        if bool((gap > rounding).any()):
            if not _same(apart, _losses_of(pairs, losses, parameters, take)):
                raise InputError(_not_fixed([]))
            allowed = _sensitivity(losses, state, take(pairs.flatten())).view(pairs.shape)
            if bool((gap > rounding + allowed).any()):
                raise InputError(_dependent(pairs, apart, among, n))
    return together


def _leaves(samples: Samples) -> list[Tensor]:
    return tensors((samples.inputs, samples.target))


def _pairs(n: int) -> Tensor:
    """Sample numbers (k, 2) from all over the data, each first once and second once; (k, 1) where n < 3."""
    chosen = torch.linspace(0, n - 1, min(n, MAX_PAIRS)).round().long()
    return chosen[:, None] if n < 3 else torch.stack([chosen, chosen.roll(len(chosen) // 3 + 1)], 1)


def _losses_of(pairs: Tensor, losses: Losses, parameters: Parameters, take: Callable[[Tensor], Samples]) -> Tensor:
    """The losses of pairs of samples, a call for each, in float64."""
    return torch.stack([losses(parameters, take(pair)).double() for pair in pairs]).cpu()


def _same(one: Tensor, other: Tensor) -> bool:
    """Whether losses are equal to the bit, NaN included."""
    return torch.equal(one.nan_to_num(), other.nan_to_num())


def _gap(one: Tensor, other: Tensor) -> Tensor:
    """|one − other|: 0 between two NaN or the same infinity, infinite between such and a number."""
    alike = (one == other) | (one.isnan() & other.isnan())
    return torch.where(alike, 0.0, (one - other).abs().nan_to_num(torch.inf, torch.inf))


def _epsilon(state: Parameters) -> float:
    return max(torch.finfo(tensor.dtype).eps for tensor in state.values() if tensor.is_floating_point())


def _sensitivity(losses: Losses, state: Parameters, batch: Samples) -> Tensor:
    """The difference of each sample's losses that rounding may explain.

    Rounding acts like errors of relative size ε in the numbers that a loss is made of. The effect of
    random errors of size √ε in parameters, buffers and inputs, thousands of times as large, bounds it.
    """
    size, generator = _epsilon(state) ** 0.5, torch.Generator().manual_seed(0)

    def moved(tensor: Tensor) -> Tensor:
        if not tensor.is_floating_point():
            return tensor
        signs = torch.randint(2, tensor.shape, generator=generator).to(tensor) * 2 - 1
        return tensor * (1 + size * signs)

    values = losses(state, batch).double()
    effect = torch.zeros_like(values)
    for _ in range(2):
        nearby = Samples(map_tensors(moved, batch.inputs), batch.target, batch.n)
        moved_values = losses({name: moved(tensor) for name, tensor in state.items()}, nearby).double()
        effect = effect.maximum(_gap(moved_values, values))
    return _MAX_SENSITIVITY * effect.maximum(effect.mean()).cpu()


def _not_fixed(changed: list[str]) -> str:
    what = f"buffers {changed} change" if changed else "its output changes"
    return (
        f"the model must be a fixed function: {what} from call to call — remove the randomness or state, or call "
        f"model.eval()"
    )


def _dependent(pairs: Tensor, apart: Tensor, among: Tensor, n: int) -> str:
    row = int(_gap(apart, among)[:, 0].argmax())
    beside = f"beside sample {int(pairs[row, 1])} alone" if pairs.shape[1] == 2 else "alone"
    return (
        f"a sample's loss must not depend on the others of its batch: sample {int(pairs[row, 0])} has "
        f"{float(among[row, 0]):.6g} among {n:,} and {float(apart[row, 0]):.6g} {beside} — take no statistics over the "
        f"batch (model.eval() freezes those of BatchNorm), and say batch_first=True where samples come first"
    )


@contextmanager
def _random_state_restored() -> Iterator[Callable[[], bool]]:
    """Put the random states of torch, NumPy and Python back at the end; yields a test of whether they are untouched."""
    torch_state, python_state = torch.get_rng_state(), random.getstate()
    name, keys, *rest = np.random.get_state(legacy=True)  # noqa: NPY002 — what networks draw from

    def untouched() -> bool:
        _, now, *others = np.random.get_state(legacy=True)  # noqa: NPY002 — what networks draw from
        numpy_untouched = np.array_equal(keys, now) and rest == others
        return numpy_untouched and torch.equal(torch_state, torch.get_rng_state()) and random.getstate() == python_state

    try:
        yield untouched
    finally:
        torch.set_rng_state(torch_state)
        random.setstate(python_state)
        np.random.set_state((name, keys, *rest))  # noqa: NPY002
