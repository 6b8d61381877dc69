"""Whether second derivatives come out symmetric, as those of a function must."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from ..errors import InputError
from ..landscape import Landscape

FEW = 8
_checked: WeakKeyDictionary[nn.Module, set[frozenset[str]]] = WeakKeyDictionary()


class Product(Protocol):
    """A matrix that multiplies vectors."""

    def __matmul__(self, v: Tensor) -> Tensor: ...


def refuse_asymmetric(land: Landscape, hessian: Callable[[Landscape], Product]) -> None:
    """Refuse a network whose Hessian, as torch differentiates it, has uᵀHv ≠ vᵀHu for two random vectors.

    Then some function in it has a wrong second derivative. Looked at once for every network, on a few samples. What is
    detached leaves the Hessian symmetric: it counts as held fixed.

    Args:
        land: the landscape.
        hessian: the Hessian of a part of it.

    Examples:
        >>> import torch, basinscope as bs
        >>> land = bs.Landscape(torch.nn.Linear(2, 1), "mse", (torch.ones(4, 2), torch.ones(4, 1)))
        >>> refuse_asymmetric(land, lambda few: torch.ones(3, 3))
        >>> refuse_asymmetric(land.restrict("weight"), lambda few: torch.ones(2, 2).triu())
        Traceback (most recent call last):
        ...
        basinscope.errors.InputError: the Hessian must be symmetric, but ...
    """
    seen, names = _checked.setdefault(land.module, set()), frozenset(land.parameters)
    if names in seen:
        return
    few = land.subset(torch.linspace(0, land.n - 1, min(land.n, FEW)).long())
    generator = torch.Generator().manual_seed(0)
    u, v = torch.randn(2, land.dimension, generator=generator).to(land.device, land.dtype)
    operator = hessian(few)
    hu, hv = (operator @ u).double(), (operator @ v).double()
    one, other = float(v.double() @ hu), float(u.double() @ hv)
    slack = 4 * torch.finfo(land.dtype).eps ** 0.5
    if abs(one - other) > slack * float(hu.norm() + hv.norm()):
        raise InputError(
            f"the Hessian must be symmetric, but uᵀHv = {other:.6g} and vᵀHu = {one:.6g}: a function in the network "
            f"has a wrong second derivative — write it in plain torch functions, or take matrix='fisher' or "
            f"'covariance'"
        )
    seen.add(names)
