"""The user's network: what of it is refused at once, and its structure and its tensors apart from each other."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from .errors import BasinscopeError, InputError
from .memory import memory_explained

Parameters = dict[str, Tensor]

_REMEDIES = {  # by words of torch's errors
    "setup_context": "a torch.autograd.Function in the model cannot be transformed: give it a static setup_context and "
    "generate_vmap_rule = True, or write it in plain torch functions",
    "saved tensor hooks": "activation checkpointing in the model cannot be transformed: switch it off for measuring, "
    "such as by model.gradient_checkpointing_disable()",
    "modified by an inplace operation": "the model changes a tensor in place that its gradient needs: clone the tensor "
    "first, above all if it is an input, or use inplace=False",
    "torch.utils.checkpoint": "reentrant activation checkpointing in the model cannot be transformed: switch it off "
    "for measuring, such as by model.gradient_checkpointing_disable()",
}


@contextmanager
def transformable() -> Iterator[None]:
    """Says what to do where the network has a part that torch cannot differentiate or transform."""
    try:
        yield
    except RuntimeError as error:
        for words, remedy in _REMEDIES.items():
            if words in str(error):
                raise InputError(remedy) from error
        raise


@contextmanager
def explained() -> Iterator[None]:
    """Turns what the user's model or loss raises when it is first called on the data into a sentence."""
    try:
        with memory_explained():
            yield
    except BasinscopeError:
        raise
    except Exception as error:
        reason = (str(error).splitlines() or [""])[0][:300]
        raise InputError(
            f"the model or the loss cannot be called on the data: {type(error).__name__}: {reason} — call "
            f"loss(model(x), y) on the first samples yourself, and check shapes and dtypes"
        ) from error


def unwrapped(model: nn.Module, *, sharded: bool = False) -> nn.Module:
    """The network inside a wrapper that spreads it over devices; refused where it is compiled or has no weights yet.

    Args:
        model: the network.
        sharded: whether its weights may be spread over processes.
    """
    while isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
        model = model.module
    if any(isinstance(module, torch.jit.ScriptModule) for module in model.modules()):
        raise InputError("the model is compiled by torch.jit: pass the plain module that it was made of")
    _refuse_quantized(model)
    if not sharded:
        _refuse_sharded(model)
    lazy = [name for name, value in model.named_parameters() if isinstance(value, nn.parameter.UninitializedParameter)]
    if lazy:
        raise InputError(f"'{lazy[0]}' is of a lazy layer without weights yet — make one forward pass first")
    return model


def _refuse_quantized(model: nn.Module) -> None:
    """Refuse weights that are whole numbers in disguise: no landscape is smooth in them."""
    odd = [name for name, module in model.named_modules() if ".quantized" in type(module).__module__]
    if odd or getattr(model, "is_quantized", False):
        where = f"layer '{odd[0]}' of it" if odd else type(model).__name__
        raise InputError(
            f"the model is quantized ({where}): a landscape needs real weights — load it in float32, without a "
            f"quantization_config"
        )


def _refuse_sharded(model: nn.Module) -> None:
    """Refuse weights that are spread over processes, of which each holds a part alone."""
    for name, parameter in model.named_parameters():
        if hasattr(parameter, "placements") or name.endswith("_flat_param"):  # of FSDP2, of FSDP
            raise InputError(
                f"parameter '{name}' is sharded over processes (FSDP2 or tensor parallel), and a landscape needs all "
                f"of it — gather the weights by torch.distributed.checkpoint.state_dict.get_model_state_dict with "
                f"StateDictOptions(full_state_dict=True), and load them into a plain module"
            )


def refuse_batch_statistics(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and (module.training or module.running_mean is None):
            raise InputError(
                f"BatchNorm layer '{name}' uses the statistics of the batch, so a sample's loss depends on the others "
                f"— call model.eval() (and keep track_running_stats=True) to freeze them"
            )


def skeleton(model: nn.Module) -> nn.Module:
    """A copy of the module tree in evaluation mode whose tensors take no memory."""
    memo: dict[int, Any] = {}
    for parameter in model.parameters():
        memo[id(parameter)] = nn.Parameter(parameter.detach().to("meta"), requires_grad=parameter.requires_grad)
    for buffer in model.buffers():
        memo[id(buffer)] = buffer.detach().to("meta")
    for module in model.modules():  # what hooks such as those of the old weight_norm compute anew at each call
        computed = (value for value in vars(module).values() if isinstance(value, Tensor) and not value.is_leaf)
        memo.update((id(value), value.detach().clone()) for value in computed)
    try:
        empty = copy.deepcopy(model, memo).eval()
    except Exception as error:
        raise InputError(
            f"the model cannot be copied: {type(error).__name__}: {error} — copy.deepcopy(model) must work; keep "
            f"locks, files and generators out of it"
        ) from error
    for module in empty.modules():
        if isinstance(module, (nn.MultiheadAttention, nn.TransformerEncoderLayer)):
            module.training = True  # evaluation mode takes a fused path that has no derivative
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = 0.0
    return empty


def tensors_of(model: nn.Module) -> tuple[Parameters, Parameters]:
    """Clones of the free parameters, and of everything held fixed (frozen parameters and buffers)."""
    free: Parameters = {}
    fixed: Parameters = {name: buffer.detach().clone() for name, buffer in model.named_buffers()}
    for name, parameter in model.named_parameters():
        if not parameter.is_floating_point():
            raise InputError(
                f"parameter '{name}' has dtype {parameter.dtype}: only real floating-point weights have "
                f"a landscape — dequantize the model first"
            )
        (free if parameter.requires_grad and parameter.numel() else fixed)[name] = parameter.detach().clone()
    if not free:
        raise InputError("the model has no trainable parameters: set requires_grad=True on those to be measured")
    kinds = {(tensor.dtype, tensor.device) for tensor in free.values()}
    if len(kinds) > 1 or next(iter(kinds))[0] not in (torch.float32, torch.float64):
        described = sorted(f"{dtype} on {device}" for dtype, device in kinds)
        raise InputError(
            f"parameters must share one device and one dtype, float32 or float64: got {described} — "
            f"convert with model.float() and model.to(device)"
        )
    refuse_without_values({**free, **fixed})
    refuse_non_finite({**free, **fixed})
    return free, fixed


def refuse_without_values(tensors: Mapping[str, Tensor]) -> None:
    """Refuse weights and buffers of a model that were never loaded."""
    empty = [name for name, tensor in tensors.items() if tensor.device.type == "meta"]
    if empty:
        raise InputError(f"'{empty[0]}' of the model is on the meta device, without values — load its weights first")


def refuse_non_finite(parameters: Parameters) -> None:
    for name, tensor in parameters.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise InputError(f"'{name}' contains NaN or infinite values: the checkpoint is broken or training diverged")
