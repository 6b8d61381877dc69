"""Weights of a network from files of every common format, without running any code that a file may hold."""

from __future__ import annotations

import pickle
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InputError
from .training_file import is_training_checkpoint, load_checkpoint

SAFE, TORCH = (".safetensors",), (".pt", ".pth", ".bin", ".ckpt")
_STATE_KEYS = ("state_dict", "model_state_dict", "model", "module")  # where others keep the weights in a larger file
_PREFIXES = ("module.", "_orig_mod.", "model.", "network.")  # what wrappers put before every name
_MAX_LISTED = 5


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a checkpoint by name. No code in the file is ever run.

    A `.safetensors` file holds nothing but tensors; a torch file is read with `weights_only=True`.
    """
    if not path.is_file():
        raise InputError(f"{path} is no regular file: expected a checkpoint")
    if path.suffix.lower() in SAFE:
        weights = _trained(path) if is_training_checkpoint(path) else _read_safetensors(path)
    elif path.suffix.lower() in TORCH:
        weights = _read_torch(path)
    else:
        raise InputError(f"{path} is no checkpoint: expected a file that ends in {', '.join(SAFE + TORCH)}")
    for name in _STATE_KEYS:
        inner = weights.get(name)
        if isinstance(inner, Mapping):
            weights = dict(inner)
            break
    tensors = {str(name): value for name, value in weights.items() if isinstance(value, Tensor)}
    odd = next((name for name, value in tensors.items() if not _is_plain(value)), None)
    if odd is not None:
        raise InputError(f"{path} holds {odd!r} as a sparse, nested, quantized or meta tensor — save dense ones")
    if not tensors:
        raise InputError(f"{path} holds no tensors by name — save model.state_dict()")
    return tensors


def _is_plain(tensor: Tensor) -> bool:
    special = tensor.is_nested or tensor.is_quantized or tensor.is_meta
    return not special and tensor.layout == torch.strided


def _trained(path: Path) -> dict[str, Any]:
    weights = load_checkpoint(path).get("model")
    if not isinstance(weights, Mapping):
        raise InputError(f"{path} says it is a training run but holds no model — it is damaged")
    return dict(weights)


def _read_safetensors(path: Path) -> dict[str, Any]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        weights: dict[str, Any] = load_file(path)
        return weights
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path} cannot be read: {error} — it is damaged, or still being written") from error


def _read_torch(path: Path) -> dict[str, Any]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        convert = (
            f"import torch, safetensors.torch as s; "
            f"c = torch.load({str(path)!r}, weights_only=False, map_location='cpu'); "
            f"c = c.state_dict() if hasattr(c, 'state_dict') else c.get('state_dict', c); "
            f"s.save_file({{k: v.contiguous() for k, v in c.items()}}, {str(path.with_suffix('.safetensors'))!r})"
        )
        raise InputError(
            f"{path} holds pickled objects besides tensors, and loading those could run any code: it is refused. Where "
            f"you trust the file, convert it: python -c {shlex.quote(convert)}"
        ) from error
    except Exception as error:  # damage can be told by whatever torch's reader of pickles stumbles over
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise InputError(f"{path} cannot be read: {reason} — it is damaged, or still being written") from error
    if not isinstance(content, Mapping):
        raise InputError(
            f"{path} holds a {type(content).__name__} — save model.state_dict(), a mapping of names to tensors"
        )
    return dict(content)


def fitting(network: nn.Module, weights: Mapping[str, Tensor], source: Path) -> dict[str, Tensor]:
    """The weights under the network's own names; refused where some are missing, left over, or of another
    shape or kind of number.

    Names with the prefix that a wrapper puts before every one of them (`module.`, `_orig_mod.`) fit without it. A tied
    parameter, which has two names, may be saved under one of them.

    Examples:
        >>> fitting(nn.Linear(1, 1), {"module.weight": torch.ones(1, 1), "module.bias": torch.ones(1)}, Path("x"))
        {'weight': tensor([[1.]]), 'bias': tensor([1.])}
    """
    expected = network.state_dict()
    saved = dict(weights)
    while not saved.keys() & expected.keys():
        prefix = next((prefix for prefix in _PREFIXES if all(name.startswith(prefix) for name in saved)), None)
        if prefix is None:
            break
        saved = {name.removeprefix(prefix): value for name, value in saved.items()}
    # The names of a tied parameter share an address, and the value saved under one of them counts for all.
    addresses = {name: tensor.data_ptr() for name, tensor in expected.items() if tensor.numel()}
    by_address = {addresses[name]: value for name, value in saved.items() if name in addresses}
    saved = {**{name: by_address[place] for name, place in addresses.items() if place in by_address}, **saved}
    missing = [name for name in expected if name not in saved]
    extra = [name for name in saved if name not in expected]
    shapes = [
        f"{name} is {tuple(saved[name].shape)} in the file and {tuple(tensor.shape)} in the network"
        for name, tensor in expected.items()
        if name in saved and saved[name].shape != tensor.shape
    ]
    kinds = [
        f"{name} is {saved[name].dtype} in the file and {tensor.dtype} in the network"
        for name, tensor in expected.items()
        if name in saved and _kind(saved[name]) != _kind(tensor)
    ]
    if missing or extra or shapes or kinds:
        problems = [
            *([f"missing {_listed(missing)}"] if missing else []),
            *([f"left over {_listed(extra)}"] if extra else []),
            *([_listed(shapes, "; ")] if shapes else []),
            *([_listed(kinds, "; ")] if kinds else []),
        ]
        raise InputError(
            f"{source} does not fit the network: {'; '.join(problems)} — check that --model builds what was saved"
        )
    return {name: saved[name] for name in expected}


def _kind(tensor: Tensor) -> str:
    """Whether a tensor holds complex, real or whole numbers."""
    return "complex" if tensor.is_complex() else "real" if tensor.is_floating_point() else "whole"


def _listed(names: list[str], mark: str = ", ") -> str:
    """The first few names, and the number of the others."""
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return mark.join(names[:_MAX_LISTED]) + more


def checkpoints_in(path: Path) -> list[Path]:
    """One checkpoint, or all of a folder in the order of the numbers in their names.

    Of a folder that `train` wrote, the kept steps come first and its present state last.
    """
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise InputError(f"there is no checkpoint at {path}: expected a file or a folder of them")
    files = [file for file in path.iterdir() if file.is_file() and file.suffix.lower() in SAFE + TORCH]
    if not files:
        part = any(file.name.endswith(".part") for file in path.iterdir())
        why = "its first checkpoint is still being written" if part else f"expected files in {', '.join(SAFE + TORCH)}"
        raise InputError(f"folder {path} holds no checkpoint: {why}")
    return sorted(files, key=lambda file: (file.stem == "checkpoint", numbers_in(file.stem), file.name))


def numbers_in(text: str) -> list[int]:
    """The whole numbers in a name.

    Examples:
        >>> numbers_in("epoch-3-step-00000120")
        [3, 120]
    """
    return [int(digits) for digits in re.findall(r"\d+", text)]
