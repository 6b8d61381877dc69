"""Layers as matrix products: what a plain chain of linear and convolutional layers becomes when members are stacked.

An activation is a matrix with one row per sample, made of blocks: each image row (a flat layer has one) is a block that
holds its values, a one, and zeros up to a multiple of four. A layer multiplies a window of consecutive blocks by its
matrix T, which carries the weights, the bias against the one, and an entry that hands the one on; a convolution slides
the window down the image, and T is a Toeplitz matrix within a block. So every layer of all members is a few batched
products on aligned memory without copies, and the bias and its gradient cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from ...landscape import Landscape

ALIGNMENT = 4  # elements: what vectorized loads and tensor cores ask for in float32
_IMPOSSIBLE_SCORE = -1e30  # its probability is exactly zero
_MIN_SCORES = 16  # columns of the last layer: a softmax over fewer is not vectorized on a CPU
_SATURATION = 32.0  # where tanh and the logistic function are exactly 1, to float64


def padded(size: int) -> int:
    """The next multiple of the alignment."""
    return -(-size // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True)
class Activation:
    """An elementwise function, its derivative from its output, and an argument where it is one."""

    apply: Callable[[Tensor], Tensor] | None  # in place
    backward: Callable[[Tensor, Tensor], Tensor] | None  # (gradient, output) -> gradient, in place
    one: float


def _relu_backward(gradient: Tensor, output: Tensor) -> Tensor:
    return torch.ops.aten.threshold_backward.grad_input(gradient, output, 0, grad_input=gradient)


def _tanh_backward(gradient: Tensor, output: Tensor) -> Tensor:
    return torch.ops.aten.tanh_backward.grad_input(gradient, output, grad_input=gradient)


def _sigmoid_backward(gradient: Tensor, output: Tensor) -> Tensor:
    return torch.ops.aten.sigmoid_backward.grad_input(gradient, output, grad_input=gradient)


IDENTITY = Activation(None, None, 1.0)
_ACTIVATIONS: dict[type[nn.Module], Activation] = {
    nn.Identity: IDENTITY,
    nn.ReLU: Activation(torch.relu_, _relu_backward, 1.0),
    nn.Sigmoid: Activation(torch.sigmoid_, _sigmoid_backward, _SATURATION),
    nn.Tanh: Activation(torch.tanh_, _tanh_backward, _SATURATION),
}


@dataclass(frozen=True)
class Shape:
    """The layout of an activation: `blocks` of `width` columns, each with channels · columns values, then a one."""

    channels: int
    blocks: int
    columns: int
    min_width: int = 0

    @property
    def values(self) -> int:
        """Values in a block."""
        return self.channels * self.columns

    @property
    def width(self) -> int:
        """Columns of a block: its values, the one, and zeros."""
        return padded(max(self.values + 1, self.min_width))

    @property
    def total(self) -> int:
        """Columns of all blocks."""
        return self.blocks * self.width

    def order(self) -> Tensor:
        """For each unit, in the order torch flattens it (channel, row, column), its column in the matrix."""
        channel, block, column = torch.meshgrid(
            torch.arange(self.channels), torch.arange(self.blocks), torch.arange(self.columns), indexing="ij"
        )
        return (block * self.width + column * self.channels + channel).flatten()


@dataclass(frozen=True)
class Layer:
    """One weight layer: windows of `kernel` blocks of `inputs` times T give the blocks of `outputs`.

    The parameters lie at `offset` of a member's row, `size` numbers of them: as T itself where no weight occurs twice,
    and otherwise each once, with three tables.

    Attributes:
        entries: which of the stored values stands at each place of T.
        turned: the same for T with its blocks in reverse order, each transposed.
        repeats: (r, size), where in T each stored value occurs, padded with the number of T's entries.
    """

    inputs: Shape
    outputs: Shape
    kernel: int
    activation: Activation
    offset: int
    size: int
    entries: Tensor | None = None
    turned: Tensor | None = None
    repeats: Tensor | None = None

    @property
    def depth(self) -> int:
        """Rows of T."""
        return self.kernel * self.inputs.width

    def matrix(self, points: Tensor) -> Tensor:
        """T of every member, (M, depth, width)."""
        stored = points[:, self.offset : self.offset + self.size]
        if self.entries is not None:
            stored = stored.index_select(1, self.entries)
        return stored.unflatten(1, (self.depth, self.outputs.width))

    def turned_matrix(self, points: Tensor) -> Tensor:
        """The blocks of T in reverse order, each transposed, (M, kernel · outputs, inputs)."""
        if self.turned is None:
            blocks = self.matrix(points).unflatten(1, (self.kernel, self.inputs.width))
            return blocks.flip(1).mT.flatten(1, 2)
        stored = points[:, self.offset : self.offset + self.size]
        return stored.index_select(1, self.turned).unflatten(1, (-1, self.inputs.width))

    def windows(self) -> Iterator[tuple[slice, slice]]:
        """The columns each product reads and those it writes."""
        a, b = self.inputs.width, self.outputs.width
        for block in range(self.outputs.blocks):
            yield slice(block * a, block * a + self.depth), slice(block * b, (block + 1) * b)

    def to(self, device: torch.device) -> Layer:
        """The same layer with its index tables on `device`."""

        def moved(table: Tensor | None) -> Tensor | None:
            return None if table is None else table.to(device)

        return replace(self, entries=moved(self.entries), turned=moved(self.turned), repeats=moved(self.repeats))


@dataclass(frozen=True)
class LayerPlan:
    """A network as layers, and the layout of its parameters in a row: `template` with the parameters at `places`."""

    layers: tuple[Layer, ...]
    template: Tensor  # (D,)
    places: Tensor  # (d,), in the order of the landscape's parameters


def plan_of(land: Landscape) -> LayerPlan | None:
    """The plan of a plain chain of Linear, unpadded stride-1 Conv2d and ReLU, Tanh or Sigmoid; None for all else."""
    inputs = land.samples.inputs
    parts = _chain(land.module)
    if parts is None or not isinstance(inputs, Tensor) or inputs.dtype != land.dtype or inputs.ndim not in (2, 4):
        return None
    if land.loss.family not in ("categorical", "gaussian"):
        return None
    steps = _steps(parts, flat=inputs.ndim == 2)
    if not steps:
        return None
    in_layers = [f"{name}.{kind}" for name, part, _ in steps for kind, _ in part.named_parameters()]
    if sorted(in_layers) != sorted(land.parameters):
        return None  # some are tied or held fixed
    if isinstance(steps[0][1], nn.Linear):
        shape = Shape(inputs[0].numel(), 1, 1)
    else:
        shape = Shape(*(int(size) for size in inputs.shape[1:]))
    builder = _Builder(land)
    for name, part, activation in steps:
        following = builder.add(name, part, shape, activation, last=name == steps[-1][0])
        if following is None:
            return None
        shape = following
    return builder.plan()


Step = tuple[str, nn.Linear | nn.Conv2d, Activation]


def _steps(parts: list[tuple[str, nn.Module]], flat: bool) -> list[Step] | None:
    """Each weight layer with the activation after it, if linear layers see flat inputs and convolutions images."""
    steps: list[Step] = []
    for name, part in parts:
        if isinstance(part, nn.Flatten):
            if (part.start_dim, part.end_dim) != (1, -1):
                return None
            flat = True
        elif isinstance(part, (nn.Linear, nn.Conv2d)):
            if isinstance(part, nn.Linear) != flat or not _plain(part):
                return None
            steps.append((name, part, IDENTITY))
        elif _ACTIVATIONS[type(part)] is not IDENTITY:
            if not steps or steps[-1][2] is not IDENTITY:
                return None
            steps[-1] = (*steps[-1][:2], _ACTIVATIONS[type(part)])
    return steps if steps and flat and steps[-1][2] is IDENTITY else None


def _chain(module: nn.Module, prefix: str = "") -> list[tuple[str, nn.Module]] | None:
    """The modules of a Sequential in order, nested ones unrolled, if all are known, without hooks and used once."""
    if type(module) is not nn.Sequential:
        return None
    chain: list[tuple[str, nn.Module]] = []
    for name, child in module.named_children():
        if child._forward_hooks or child._forward_pre_hooks:
            return None
        if type(child) is nn.Sequential:
            inner = _chain(child, f"{prefix}{name}.")
            if inner is None:
                return None
            chain += inner
        elif type(child) in (nn.Linear, nn.Conv2d, nn.Flatten) or type(child) in _ACTIVATIONS:
            chain.append((prefix + name, child))
        else:
            return None
    weights = [id(child) for _, child in chain if isinstance(child, (nn.Linear, nn.Conv2d))]
    return chain if len(weights) == len(set(weights)) == _uses(module) else None


def _uses(module: nn.Module) -> int:
    """The number of runs of weight layers: a module that stands in a Sequential twice is run twice."""
    total = 0
    for child in module._modules.values():
        total += _uses(child) if isinstance(child, nn.Sequential) else isinstance(child, (nn.Linear, nn.Conv2d))
    return total


def _plain(part: nn.Linear | nn.Conv2d) -> bool:
    """Whether a layer is linear, or a convolution of stride 1 without padding, dilation or groups."""
    return isinstance(part, nn.Linear) or (
        part.stride == (1, 1)
        and part.padding in ((0, 0), "valid")
        and part.dilation == (1, 1)
        and part.groups == 1
        and part.padding_mode == "zeros"
    )


class _Builder:
    """Lays the layers of a plan one after another."""

    def __init__(self, land: Landscape) -> None:
        self._land = land
        self._layers: list[Layer] = []
        self._template: list[Tensor] = []
        self._places: dict[str, Tensor] = {}
        self._offset = 0

    def add(
        self, name: str, part: nn.Linear | nn.Conv2d, inputs: Shape, activation: Activation, last: bool
    ) -> Shape | None:
        """Append a layer; the shape of what comes out, or None if the layer does not fit what goes in."""
        weight = self._land.parameters[f"{name}.weight"]
        bias = part.bias is not None
        min_width = _MIN_SCORES if last else 0
        # The table of T: which parameter stands at each place.
        if isinstance(part, nn.Linear):
            if part.in_features != inputs.channels * inputs.blocks * inputs.columns:
                return None
            outputs, kernel = Shape(part.out_features, 1, 1, min_width), inputs.blocks
            table = _dense(weight, bias, inputs, outputs)
        else:
            kernel, across = (int(size) for size in part.kernel_size)
            if part.in_channels != inputs.channels or kernel > inputs.blocks or across > inputs.columns:
                return None
            outputs = Shape(part.out_channels, inputs.blocks - kernel + 1, inputs.columns - across + 1, min_width)
            table = _toeplitz(weight, bias, inputs, outputs)
            if outputs.blocks > 1 and last:
                return None
        count = weight.numel() + (len(weight) if bias else 0)
        # The entry that hands the one on. In the last layer, columns that are no scores get one of probability zero.
        one = inputs.values  # the row of T that meets the one of the window's first block
        scores = self._land.loss.family == "categorical"
        if last:
            constant = _IMPOSSIBLE_SCORE if scores else 0.0
            table[one, outputs.values :] = count + 1
        else:
            constant = activation.one
            table[one, outputs.values] = count + 1
        layer = partial(Layer, inputs, outputs, kernel, activation, self._offset)
        self._store(name, table.flatten(), weight.numel(), count, constant, layer)
        return outputs

    def _store(
        self, name: str, table: Tensor, weights: int, count: int, constant: float, layer: Callable[..., Layer]
    ) -> None:
        """Set aside the numbers of a layer, and where its parameters lie among them.

        `table` holds the number of the parameter at each entry of T; `count` stands for zero, `count` + 1 for the
        constant.
        """
        places = _occurrences(table, count)
        # No weight occurs twice: T itself is stored, and nothing need be gathered.
        if len(places) == 1:
            values = torch.zeros(len(table), dtype=torch.float64)
            values[table == count + 1] = constant
            self._layers.append(layer(len(values)))
            stored = places[0]
        else:  # each weight is stored once, and T is gathered from them
            values = torch.zeros(padded(count + 2), dtype=torch.float64)
            values[count + 1] = constant
            repeats = torch.full((len(places), len(values)), len(table))
            repeats[:, :count] = places
            without_turned = layer(len(values), table, repeats=repeats)
            blocks = table.view(without_turned.kernel, without_turned.inputs.width, without_turned.outputs.width)
            self._layers.append(replace(without_turned, turned=blocks.flip(0).mT.flatten()))
            stored = torch.arange(count)
        self._places[f"{name}.weight"] = self._offset + stored[:weights]
        self._places[f"{name}.bias"] = self._offset + stored[weights:]
        self._template.append(values)
        self._offset += len(values)

    def plan(self) -> LayerPlan:
        """The layers added so far as one network."""
        land = self._land
        places = torch.cat([self._places[name] for name in land.parameters])
        template = torch.cat(self._template).to(device=land.device, dtype=land.dtype)
        return LayerPlan(tuple(layer.to(land.device) for layer in self._layers), template, places.to(land.device))


def _occurrences(table: Tensor, count: int) -> Tensor:
    """For each parameter the places where it occurs, (copies, count), padded with the length of the table."""
    # The places of T that hold a parameter, sorted by parameter.
    occupied = (table < count).nonzero().squeeze(1)
    order = torch.argsort(table[occupied], stable=True)
    numbers, places = table[occupied][order], occupied[order]
    # The rank of each place among those of its parameter is its row in the result.
    times = torch.bincount(numbers, minlength=count)
    rank = torch.arange(len(places)) - (torch.cumsum(times, 0) - times)[numbers]
    occurrences = torch.full((int(times.max()), count), len(table))
    occurrences[rank, numbers] = places
    return occurrences


def _dense(weight: Tensor, bias: bool, inputs: Shape, outputs: Shape) -> Tensor:
    """The number of the parameter at each place of T: weight (outputs, inputs) in torch's order, then the bias."""
    units = weight.shape[1]
    count = weight.numel() + (len(weight) if bias else 0)
    table = torch.full((inputs.total, outputs.width), count)
    numbers = torch.arange(weight.numel()).view(-1, units)
    table[inputs.order()[:, None], torch.arange(len(weight))] = numbers.T
    if bias:
        table[inputs.values, : len(weight)] = weight.numel() + torch.arange(len(weight))
    return table


def _toeplitz(weight: Tensor, bias: bool, inputs: Shape, outputs: Shape) -> Tensor:
    """The parameter's number at each place of a convolution's T[(dy, x + dx, c), (x, o)] = weight[o, c, dy, dx]."""
    out, channels, kernel, across = weight.shape
    count = weight.numel() + (out if bias else 0)
    table = torch.full((kernel * inputs.width, outputs.width), count)
    numbers = torch.arange(weight.numel()).view(out, channels, kernel, across)
    o, c, dy, dx = torch.meshgrid(*(torch.arange(size) for size in weight.shape), indexing="ij")
    for x in range(outputs.columns):
        table[dy * inputs.width + (x + dx) * channels + c, x * out + o] = numbers
        if bias:
            table[inputs.values, x * out : (x + 1) * out] = weight.numel() + torch.arange(out)
    return table
