"""Which units of a network can be rescaled, mixed or shifted without a change of its output: read off its graph."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from ..landscape import Landscape

# f(cu) = c f(u) for c > 0, unit by unit. Pooling and flattening keep units apart.
_HOMOGENEOUS = (nn.ReLU, nn.LeakyReLU, nn.PReLU, nn.RReLU)
_KEEPING = (
    nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.Flatten,
)  # fmt: skip
_POOLING = (
    nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d,
    nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d,
)  # fmt: skip
_HOMOGENEOUS_CALLS: tuple[Any, ...] = (torch.relu, functional.relu, functional.leaky_relu, torch.abs, operator.abs)
_KEEPING_CALLS: tuple[Any, ...] = (torch.flatten, functional.dropout)
_POOLING_CALLS: tuple[Any, ...] = (
    functional.max_pool1d, functional.max_pool2d, functional.avg_pool1d, functional.avg_pool2d,
    functional.adaptive_avg_pool1d, functional.adaptive_avg_pool2d, torch.max_pool2d,
)  # fmt: skip
_ACTING = _HOMOGENEOUS_CALLS + _POOLING_CALLS
_HOMOGENEOUS_METHODS, _KEEPING_METHODS = ("relu", "abs"), ("flatten", "view", "reshape", "contiguous")
_AFFINE = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
_NORMS = (nn.LayerNorm, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.GroupNorm)

# A tangent at w*: for each parameter named, positions in it, flattened, and the values there.
Direction = dict[str, tuple[Tensor, Tensor]]


class _Part:
    """A parameter whose slices make directions."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self._places = torch.arange(tensor.numel(), device=tensor.device).view(tensor.shape)

    def at(self, where: Any, values: Tensor) -> tuple[Tensor, Tensor]:
        """`values` at the slice `where`."""
        return self._places[where].reshape(-1), values.reshape(-1)


@dataclass(frozen=True)
class Candidate:
    """A one-parameter group of changes that should leave the network's function as it is.

    Attributes:
        kind: `rescaling`, `mixing` (of linear units, and shifts of them) or `shift` (of all logits).
        where: names of the layers.
        direction: its tangent at w*.
        lead: parameters whose part alone does change the output; the rest makes up for it.
    """

    kind: str
    where: str
    direction: Direction
    lead: tuple[str, ...]


_Parts = dict[str, _Part]


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return is_swish(m) or super().is_leaf_module(m, module_qualified_name)


def is_swish(module: nn.Module) -> bool:
    """Whether this is u ↦ u·s(βu) with a learned β: a module of one parameter, named beta, and no children."""
    return [name for name, _ in module.named_parameters()] == ["beta"] and not list(module.children())


def candidates(land: Landscape) -> Iterator[Candidate]:
    """All candidates that the graph of the network shows; a network that cannot be traced raises."""
    graph = _Tracer().trace(land.module)
    modules = dict(land.module.named_modules())
    called = Counter(node.target for node in graph.nodes if node.op == "call_module")
    free = _untied(land)
    for node in graph.nodes:
        if node.op != "call_module" or called[node.target] > 1:
            continue
        producer = modules[node.target]
        if isinstance(producer, (*_AFFINE, *_NORMS)) and _owned(land, free, node.target, producer):
            yield from _of_producer(land, free, modules, called, node)
    yield from _of_logits(land, free, modules, called, graph)


def _untied(land: Landscape) -> set[str]:
    """Free parameters that belong to one module only."""
    holders: dict[int, list[str]] = {}
    for name, parameter in land.module.named_parameters(remove_duplicate=False):
        holders.setdefault(id(parameter), []).append(name)
    return {names[0] for names in holders.values() if len(names) == 1} & set(land.parameters)


def _owned(land: Landscape, free: set[str], name: Any, module: nn.Module) -> bool:
    """Whether all of a module's parameters are free and its own."""
    parameters = [f"{name}.{parameter}" for parameter, _ in module.named_parameters()]
    return bool(parameters) and all(parameter in free for parameter in parameters)


@dataclass(frozen=True)
class _Path:
    """From a producer to the layers that take its units, through operations that keep units apart."""

    consumers: tuple[str, ...]
    linear: bool  # nothing but identity on the way
    swish: tuple[str, ...]


def _follow(node: fx.Node, modules: dict[str, nn.Module], called: Counter[Any]) -> _Path | None:
    consumers: list[str] = []
    swish: list[str] = []
    linear = True
    waiting = list(node.users)
    while waiting:
        user = waiting.pop()
        if (user.op == "call_method" and user.target == "size") or _is_call(user, (getattr,), ()):
            continue  # asks for the shape, not for values
        module = modules.get(str(user.target)) if user.op == "call_module" else None
        if module is not None and called[user.target] > 1 and not isinstance(module, (*_HOMOGENEOUS, *_KEEPING)):
            return None
        if isinstance(module, _AFFINE):
            if getattr(module, "groups", 1) != 1:
                return None
            consumers.append(str(user.target))
            continue
        if module is not None and is_swish(module):
            swish.append(str(user.target))
            linear = False
        elif isinstance(module, (*_HOMOGENEOUS, *_POOLING)) or _is_call(user, _ACTING, _HOMOGENEOUS_METHODS):
            linear = False
        elif not (isinstance(module, _KEEPING) or _is_call(user, _KEEPING_CALLS, _KEEPING_METHODS)):
            return None
        if not user.users:
            return None
        waiting.extend(user.users)
    return _Path(tuple(consumers), linear, tuple(swish)) if consumers else None


def _is_call(node: fx.Node, functions: tuple[Callable[..., Any], ...], methods: tuple[str, ...]) -> bool:
    targets: tuple[Any, ...] = functions if node.op == "call_function" else methods
    return node.op in ("call_function", "call_method") and node.target in targets


def _of_producer(
    land: Landscape, free: set[str], modules: dict[str, nn.Module], called: Counter[Any], node: fx.Node
) -> Iterator[Candidate]:
    path = _follow(node, modules, called)
    name = str(node.target)
    if path is None or not all(f"{consumer}.weight" in free for consumer in path.consumers):
        return
    weight = land.parameters[f"{name}.weight"]
    if weight.ndim > 1 and isinstance(modules[name], nn.LayerNorm):
        return  # its units are spread over several axes
    units = len(weight)
    ins = _parts(land, f"{name}.weight", f"{name}.bias")
    outs = _parts(land, *(f"{consumer}.weight" for consumer in path.consumers))
    betas = _parts(land, *(f"{consumer}.beta" for consumer in path.swish))
    if any(out.tensor.shape[1] % units for out in outs.values()) or len(betas) < len(path.swish):
        return
    where = f"{name} → {', '.join(path.consumers)}"
    dense = all(isinstance(modules[consumer], nn.Linear) for consumer in (name, *path.consumers))
    if path.linear and dense and all(out.tensor.shape[1] == units for out in outs.values()):
        yield from _mixing(ins, outs, units, where)
        yield from _translations(ins, outs, _parts(land, *(f"{consumer}.bias" for consumer in path.consumers)), where)
    elif any(beta.tensor.numel() != units for beta in betas.values()):
        # One slope for all units: they can only be rescaled together.
        yield Candidate("rescaling", where, _rescaling(ins, outs, betas, slice(None), slice(None)), tuple(ins))
    else:
        for j in range(units):
            yield Candidate("rescaling", where, _rescaling(ins, outs, betas, j, j), tuple(ins))


def _parts(land: Landscape, *names: str) -> dict[str, _Part]:
    return {name: _Part(land.parameters[name]) for name in names if name in land.parameters}


def _rescaling(ins: _Parts, outs: _Parts, betas: _Parts, unit: Any, slope: Any) -> Direction:
    """w_in ∂/∂w_in + b ∂/∂b − w_out ∂/∂w_out of a unit (Seyoum 2025, Lemma 1), and −β ∂/∂β of a learned slope."""
    direction: Direction = {}
    for name, part in ins.items():
        direction[name] = part.at(unit, part.tensor[unit])
        units = len(part.tensor)
    for name, part in outs.items():
        width = part.tensor.shape[1] // units
        columns = slice(unit * width, (unit + 1) * width) if isinstance(unit, int) else unit
        direction[name] = part.at((slice(None), columns), -part.tensor[:, columns])
    for name, part in betas.items():
        whole = part.tensor if part.tensor.ndim == 0 else part.tensor.reshape(-1)[slope]
        places = torch.arange(part.tensor.numel(), device=part.tensor.device)[slope].reshape(-1)
        direction[name] = places, -whole.reshape(-1)
    return direction


def _mixing(ins: _Parts, outs: _Parts, units: int, where: str) -> Iterator[Candidate]:
    """E_ab (W₁, b₁) and −W₂ E_ab: between linear layers every invertible mixing of units can be undone."""
    for a in range(units):
        for b in range(units):
            direction = {name: part.at(a, part.tensor[b]) for name, part in ins.items()}
            direction |= {name: part.at((slice(None), b), -part.tensor[:, a]) for name, part in outs.items()}
            yield Candidate("mixing", where, direction, tuple(ins))


def _translations(ins: _Parts, outs: _Parts, biases: _Parts, where: str) -> Iterator[Candidate]:
    """b₁ + e_a and b₂ − W₂ e_a: a shift of a linear unit that the next bias makes up for."""
    bias_names = [name for name in ins if name.endswith(".bias")]
    if not bias_names or len(biases) < len(outs):
        return
    (name,) = bias_names
    for a in range(len(ins[name].tensor)):
        direction = {name: ins[name].at(slice(a, a + 1), torch.ones_like(ins[name].tensor[a]))}
        for part, bias in zip(outs.values(), biases, strict=True):
            direction[bias] = biases[bias].at(slice(None), -part.tensor[:, a])
        yield Candidate("mixing", where, direction, (name,))


def _of_logits(
    land: Landscape, free: set[str], modules: dict[str, nn.Module], called: Counter[Any], graph: fx.Graph
) -> Iterator[Candidate]:
    """What adds the same number to all logits of a softmax: a row of ones times any weight vector of the inputs."""
    if land.loss.family != "categorical":
        return
    (output,) = (node for node in graph.nodes if node.op == "output")
    last = output.args[0]
    if not isinstance(last, fx.Node) or last.op != "call_module" or called[last.target] > 1:
        return
    name, module = str(last.target), modules[str(last.target)]
    if not isinstance(module, nn.Linear) or not _owned(land, free, name, module):
        return
    for key, part in _parts(land, f"{name}.weight", f"{name}.bias").items():
        ones = torch.ones_like(part.tensor)
        for k in range(part.tensor.shape[1]) if part.tensor.ndim > 1 else (None,):
            column = slice(None) if k is None else (slice(None), k)
            yield Candidate("shift", name, {key: part.at(column, ones[column])}, (key,))
