"""Weight decay Λ: one number, several, or one per parameter."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from ..errors import InputError
from ..landscape import Landscape
from ..language.model import LanguageModel

WeightDecay = float | Sequence[float] | Mapping[str, float | Tensor]


@dataclass(frozen=True)
class Decay:
    """Λ = level · diag(shape), for each of the levels.

    Attributes:
        levels: one λ for a single number, several for a sequence, (1.0,) where `shape` says it all.
        shape: (d,) float64 in flat order; None is the identity.
        several: whether the caller gave a sequence and expects a list.
    """

    levels: tuple[float, ...]
    shape: Tensor | None
    several: bool

    @property
    def level(self) -> float:
        """The only level."""
        (level,) = self.levels
        return level

    @property
    def whitening(self) -> Tensor | None:
        """diag(shape)^(−1/2): with it, rank_Λ(A) = rank_level(whitened A)."""
        return None if self.shape is None else self.shape.rsqrt()

    def diagonal(self, land: Landscape, level: float) -> Tensor:
        """Λ as a vector (d,) in float64."""
        ones = torch.ones(land.dimension, dtype=torch.float64, device=land.device)
        return level * (ones if self.shape is None else self.shape)

    def describe(self, level: float) -> Any:
        """The weight decay as an estimate's diagnostics state it."""
        return level if self.shape is None else "per parameter"


def read_decay(land: Landscape | LanguageModel, weight_decay: WeightDecay, *, single: bool = False) -> Decay:
    """Check the argument `weight_decay` of every measure; a `single` one must not be a sequence.

    A mapping takes name patterns (`*` for any part) to numbers or to tensors of the parameter's shape; the first
    pattern that matches a parameter counts, and each parameter must match one.

    Examples:
        >>> import torch, basinscope as bs
        >>> land = bs.Landscape(torch.nn.Linear(2, 1), "mse", (torch.ones(3, 2), torch.ones(3, 1)))
        >>> read_decay(land, {"*bias": 1.0, "*": 0.1}).shape.tolist()
        [0.1, 0.1, 1.0]
    """
    if isinstance(weight_decay, Mapping):
        pieces = [_entry(name, tensor, weight_decay) for name, tensor in land.parameters.items()]
        return Decay((1.0,), torch.cat(pieces), False)
    several = not isinstance(weight_decay, Real) and not (isinstance(weight_decay, Tensor) and weight_decay.ndim == 0)
    if several and single and not isinstance(weight_decay, str):
        raise InputError("this takes one weight decay, got a sequence — call it for each")
    values: Any = weight_decay if several else [weight_decay]
    try:
        if isinstance(weight_decay, (str, bool)):
            raise TypeError
        levels = tuple(float(value) for value in values)
    except (TypeError, ValueError, OverflowError):
        raise InputError(
            f"weight_decay must be a positive number, a sequence of them, or a dict from parameter names to numbers, "
            f"got {type(weight_decay).__name__}"
        ) from None
    if not levels:
        raise InputError("weight_decay is empty: expected at least one positive number")
    for level in levels:
        _positive(level, "weight_decay")
    return Decay(levels, None, several)


def _entry(name: str, tensor: Tensor, weight_decay: Mapping[str, float | Tensor]) -> Tensor:
    """The weight decay of one parameter, flat: that of the first pattern which matches its name."""
    for pattern, value in weight_decay.items():
        if fnmatch.fnmatchcase(name, pattern):
            decay = torch.as_tensor(value, dtype=torch.float64, device=tensor.device)
            if decay.ndim and decay.shape != tensor.shape:
                raise InputError(
                    f"weight_decay[{pattern!r}] must be a number or have shape {tuple(tensor.shape)} like {name}, "
                    f"got {tuple(decay.shape)}"
                )
            _positive(float(decay.min()), f"weight_decay[{pattern!r}]")
            _positive(float(decay.max()), f"weight_decay[{pattern!r}]")
            return decay.expand(tensor.shape).reshape(-1)
    raise InputError(f"weight_decay names no pattern for parameter {name!r} — add one, or '*' for all the rest")


def _positive(value: float, name: str) -> None:
    if not (math.isfinite(value) and value > 0):
        raise InputError(
            f"{name} must be positive and finite, got {value:g} — a soft rank needs a scale below which curvature does "
            f"not count; 1e-4 is a common one, γ/(nβ) matches a sampled learning coefficient"
        )
