"""The calls of a forward pass in which weights meet inputs: linear, convolution, embedding, attention, normalization.

The calls are seen by the tensors they use, not by the modules they sit in. So no hook is ever set, functional use of
a parameter counts like a layer's, and a layer used twice or a tied weight shows up as two calls.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

Key = tuple[str | None, str | None, int, bool]


@dataclass(frozen=True)
class Call:
    """One use of a weight. Sample i's gradient is Σ_t δ_it a_itᵀ over its positions t, plus Σ_t δ_it for the bias.

    Attributes:
        weight, bias: their names; None where absent or held fixed.
        rows: the rows of weight and bias that take part (attention packs three projections into one weight).
        table: an embedding, where a_it is a unit vector and the weight is stored transposed.
        output: the tensor that δ is the gradient of.
        outward: δ from the gradient at `output`, (m, T, o).
        inward: a, (m, T, i), made when asked for.
    """

    weight: str | None
    bias: str | None
    rows: slice
    table: bool
    output: Tensor
    outward: Callable[[Tensor], Tensor]
    inward: Callable[[], Tensor]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name in (self.weight, self.bias) if name is not None)

    @property
    def key(self) -> Key:
        """Equal for two calls that use the same weights in the same way."""
        return self.weight, self.bias, self.rows.start, self.table


@dataclass(frozen=True)
class Scaling:
    """One use of the weight or bias of a normalization layer, which multiplies or shifts each channel.

    Attributes:
        name: of the parameter.
        output: the tensor that δ is the gradient of.
        outward: the samples' gradients (m, p) from the gradient at `output`.
    """

    name: str
    output: Tensor
    outward: Callable[[Tensor], Tensor]


class Recorder(TorchFunctionMode):
    """Collects the calls that use one of `parameters`, for a batch of `samples`.

    The gradient of the recorded outputs is asked for later, so they are made to require one. What the network goes on
    with is a copy: an in-place activation may overwrite it.
    """

    def __init__(self, parameters: Mapping[str, Tensor], samples: int) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self.scalings: list[Scaling] = []
        self._names = {id(tensor): name for name, tensor in parameters.items()}
        self._samples = samples
        self._handlers: dict[Any, Callable[..., Any]] = {
            functional.linear: self._linear,
            functional.conv1d: self._conv1d,
            functional.conv2d: self._conv2d,
            functional.embedding: self._embedding,
            functional.multi_head_attention_forward: self._attention,
            functional.layer_norm: self._layer_norm,
            functional.rms_norm: self._rms_norm,
            functional.group_norm: self._group_norm,
            functional.batch_norm: self._batch_norm,
        }

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._handlers.get(func, func)(*args, **(kwargs or {}))

    def _name(self, tensor: Tensor | None) -> str | None:
        return None if tensor is None else self._names.get(id(tensor))

    def _note(self, call: Call) -> Tensor:
        if call.weight is None and call.bias is None:
            return call.output
        if not call.output.requires_grad:
            call.output.requires_grad_()
        self.calls.append(call)
        return call.output.clone()

    # ------------------------------------------------------------------ the calls

    def _linear(self, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        if weight.ndim != 2:
            return functional.linear(input, weight, bias)
        return self._project(input, weight, bias, self._name(weight), self._name(bias), 0)

    def _project(
        self, input: Tensor, weight: Tensor, bias: Tensor | None, weight_name: str | None, bias_name: str | None,
        first: int, axis: int = 0,
    ) -> Tensor:  # fmt: skip
        """A linear map by rows first, first + 1, … of a weight, on inputs whose samples run along `axis`."""

        def positions(tensor: Tensor) -> Tensor:
            return tensor.movedim(axis, 0).reshape(self._samples, -1, tensor.shape[-1])

        rows = slice(first, first + len(weight))
        output = functional.linear(input, weight, bias)
        return self._note(
            Call(weight_name, bias_name, rows, False, output, positions, lambda: positions(input.detach()))
        )

    def _conv1d(
        self, input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0,
        dilation: Any = 1, groups: int = 1,
    ) -> Tensor:  # fmt: skip
        """A convolution along a line is one over a plane of height one."""
        name, flat = self._name(weight), weight.unsqueeze(-2)
        if name is not None:
            self._names[id(flat)] = name
        border = padding if isinstance(padding, str) else (0, _single(padding))
        steps = ((1, _single(stride)), border, (1, _single(dilation)))
        output = self._conv2d(input.unsqueeze(-2), flat, bias, *steps, groups)
        self._names.pop(id(flat), None)
        return output.squeeze(-2)

    def _conv2d(
        self, input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0,
        dilation: Any = 1, groups: int = 1,
    ) -> Tensor:  # fmt: skip
        output = functional.conv2d(input, weight, bias, stride, padding, dilation, groups)
        size = weight.shape[-2:]
        if isinstance(padding, str):
            total = [d * (k - 1) if padding == "same" else 0 for d, k in zip(_pair(dilation), size, strict=True)]
            around = [total[1] // 2, total[1] - total[1] // 2, total[0] // 2, total[0] - total[0] // 2]
            image, border = functional.pad(input.detach(), around), 0
        else:
            image, border = input.detach(), padding
        wide, deep = len(weight) // groups, image.shape[-3] // groups
        for group in range(groups):
            rows = slice(group * wide, (group + 1) * wide)
            channels = slice(group * deep, (group + 1) * deep)

            def outward(gradient: Tensor, rows: slice = rows) -> Tensor:
                return gradient[:, rows].flatten(2).transpose(1, 2).reshape(self._samples, -1, wide)

            def inward(channels: slice = channels) -> Tensor:
                patches = functional.unfold(image[:, channels], size, dilation, border, stride)
                return patches.transpose(1, 2).reshape(self._samples, -1, patches.shape[1])

            result = self._note(Call(self._name(weight), self._name(bias), rows, False, output, outward, inward))
        return result

    def _embedding(self, input: Tensor, weight: Tensor, padding_idx: int | None = None, *rest: Any, **more: Any) -> Any:
        output = functional.embedding(input, weight, padding_idx, *rest, **more)

        def outward(gradient: Tensor) -> Tensor:
            return gradient.reshape(self._samples, -1, weight.shape[1])

        def inward() -> Tensor:
            tokens = input.reshape(self._samples, -1)  # fails, as it should, where all samples share their positions
            units = functional.one_hot(tokens, len(weight)).to(weight.dtype)
            if padding_idx is not None:
                units[..., padding_idx] = 0  # torch gives the padding token no gradient
            return units

        return self._note(Call(self._name(weight), None, slice(0, weight.shape[1]), True, output, outward, inward))

    def _attention(self, *args: Any, **kwargs: Any) -> Any:
        """Attention with its four projections taken outside, where they are ordinary linear maps.

        What is left for torch's own function is attention with identity projections.
        """
        bound = _ATTENTION.bind(*args, **kwargs)
        bound.apply_defaults()
        arguments = bound.arguments
        packed, bias, axis = (
            arguments["in_proj_weight"],
            arguments["in_proj_bias"],
            1 if arguments["query"].ndim == 3 else 0,
        )
        if arguments["use_separate_proj_weight"]:
            return functional.multi_head_attention_forward(*args, **kwargs)
        width = packed.shape[1]
        for part, role in enumerate(("query", "key", "value")):
            rows = slice(part * width, (part + 1) * width)
            piece = None if bias is None else bias[rows]
            names = self._name(packed), self._name(bias)
            arguments[role] = self._project(arguments[role], packed[rows], piece, *names, rows.start, axis)
        identity = torch.eye(width, dtype=packed.dtype, device=packed.device)
        weight, shift = arguments["out_proj_weight"], arguments["out_proj_bias"]
        arguments.update(in_proj_weight=None, in_proj_bias=None, out_proj_weight=identity, out_proj_bias=None)
        arguments.update(dict.fromkeys(("q_proj_weight", "k_proj_weight", "v_proj_weight"), identity))
        arguments.update(use_separate_proj_weight=True)
        mixed, attention = functional.multi_head_attention_forward(*bound.args, **bound.kwargs)
        return self._project(mixed, weight, shift, self._name(weight), self._name(shift), 0, axis), attention

    # ------------------------------------------------------------------ normalization layers

    def _layer_norm(
        self, input: Tensor, normalized_shape: Any, weight: Tensor | None = None, bias: Tensor | None = None,
        eps: float = 1e-5,
    ) -> Tensor:  # fmt: skip
        output = functional.layer_norm(input, normalized_shape, weight, bias, eps)
        return self._rescale(
            output, weight, bias, lambda: functional.layer_norm(input, normalized_shape, eps=eps), True
        )

    def _rms_norm(
        self, input: Tensor, normalized_shape: Any, weight: Tensor | None = None, eps: float | None = None
    ) -> Tensor:
        output = functional.rms_norm(input, normalized_shape, weight, eps)
        plain = functools.partial(functional.rms_norm, input, normalized_shape, eps=eps)
        return self._rescale(output, weight, None, plain, True)

    def _group_norm(
        self, input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None,
        eps: float = 1e-5,
    ) -> Tensor:  # fmt: skip
        output = functional.group_norm(input, num_groups, weight, bias, eps)
        return self._rescale(output, weight, bias, lambda: functional.group_norm(input, num_groups, eps=eps), False)

    def _batch_norm(
        self, input: Tensor, running_mean: Any, running_var: Any, weight: Tensor | None = None,
        bias: Tensor | None = None, training: bool = False, momentum: float = 0.1, eps: float = 1e-5,
    ) -> Tensor:  # fmt: skip
        """A batch normalization has frozen statistics here, because a Landscape refuses any other."""
        statistics = running_mean, running_var
        output = functional.batch_norm(input, *statistics, weight, bias, training, momentum, eps)
        return self._rescale(output, weight, bias, lambda: functional.batch_norm(input, *statistics, eps=eps), False)

    def _rescale(
        self, output: Tensor, weight: Tensor | None, bias: Tensor | None, plain: Callable[[], Tensor], last: bool
    ) -> Tensor:
        """Weight and bias of a normalization; `plain` makes the output without them. Channels come last, or second."""
        names = self._name(weight), self._name(bias)
        if names == (None, None):
            return output
        like = weight if bias is None else bias
        assert like is not None
        size = like.numel()

        def positions(tensor: Tensor) -> Tensor:
            if last:
                return tensor.reshape(self._samples, -1, size)
            return tensor.reshape(self._samples, size, -1).transpose(1, 2)

        if not output.requires_grad:
            output.requires_grad_()
        if names[0] is not None:
            with torch.no_grad():
                normal = plain()
            self.scalings.append(Scaling(names[0], output, lambda d: (positions(d) * positions(normal)).sum(1)))
        if names[1] is not None:
            self.scalings.append(Scaling(names[1], output, lambda d: positions(d).sum(1)))
        return output.clone()


_ATTENTION = inspect.signature(functional.multi_head_attention_forward)


def _single(value: Any) -> int:
    return int(value if isinstance(value, int) else value[0])


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else tuple(value)
