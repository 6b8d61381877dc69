"""Weights of a network from whatever file they were saved in, without running any code that the file may hold."""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InputError
from .training_file import is_training_checkpoint, load_checkpoint

SAFE, TORCH = (".safetensors",), (".pt", ".pth", ".bin", ".ckpt")
_WRAPPED = ("state_dict", "model_state_dict", "model", "module")  # where others keep the weights in a larger file
_PREFIXES = ("module.", "_orig_mod.", "model.", "network.")  # what wrappers put before every name
_SHOWN = 5


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a checkpoint by name. No code in the file is ever run.

    A `.safetensors` file holds nothing but tensors; a torch file is read with `weights_only=True`.
    """
    if path.suffix.lower() in SAFE:
        weights = load_checkpoint(path)["model"] if is_training_checkpoint(path) else _read_safetensors(path)
    elif path.suffix.lower() in TORCH:
        weights = _read_torch(path)
    else:
        raise InputError(f"{path} is no checkpoint: expected a file that ends in {', '.join(SAFE + TORCH)}")
    for name in _WRAPPED:
        inner = weights.get(name)
        if isinstance(inner, Mapping):
            weights = dict(inner)
            break
    found = {str(name): value for name, value in weights.items() if isinstance(value, Tensor)}
    if not found:
        raise InputError(f"{path} holds no tensors by name — save model.state_dict()")
    return found


def _read_safetensors(path: Path) -> dict[str, Any]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        found: dict[str, Any] = load_file(path)
        return found
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path} cannot be read: {error} — it is damaged, or still being written") from error


def _read_torch(path: Path) -> dict[str, Any]:
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise InputError(
            f"{path} holds pickled objects besides tensors, and loading those could run any code: it is refused. Where "
            f'you trust the file, convert it: python -c "import torch, safetensors.torch as s; '
            f"c = torch.load({str(path)!r}, weights_only=False, map_location='cpu'); "
            f"c = c.state_dict() if hasattr(c, 'state_dict') else c.get('state_dict', c); "
            f's.save_file({{k: v.contiguous() for k, v in c.items()}}, {str(path.with_suffix(".safetensors"))!r})"'
        ) from error
    except (RuntimeError, EOFError, OSError, ValueError, KeyError) as error:
        told = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"{path} cannot be read: {told} — it is damaged, or still being written") from error
    if not isinstance(found, Mapping):
        raise InputError(
            f"{path} holds a {type(found).__name__} — save model.state_dict(), a mapping of names to tensors"
        )
    return dict(found)


def fitting(network: nn.Module, weights: Mapping[str, Tensor], source: Path) -> dict[str, Tensor]:
    """The weights under the network's own names; an error that names what is missing, left over or of another shape.

    Names with the prefix that a wrapper puts before every one of them (`module.`, `_orig_mod.`) fit without it. A tied
    parameter, which has two names, may be saved under one of them.

    Examples:
        >>> fitting(nn.Linear(1, 1), {"module.weight": torch.ones(1, 1), "module.bias": torch.ones(1)}, Path("x"))
        {'weight': tensor([[1.]]), 'bias': tensor([1.])}
    """
    wanted = network.state_dict()
    found = dict(weights)
    while not found.keys() & wanted.keys():
        prefix = next((each for each in _PREFIXES if all(name.startswith(each) for name in found)), None)
        if prefix is None:
            break
        found = {name.removeprefix(prefix): value for name, value in found.items()}
    places = {name: tensor.data_ptr() for name, tensor in wanted.items() if tensor.numel()}
    saved = {places[name]: value for name, value in found.items() if name in places}
    found = {**{name: saved[place] for name, place in places.items() if place in saved}, **found}
    missing, extra = [name for name in wanted if name not in found], [name for name in found if name not in wanted]
    shapes = [
        f"{name} is {tuple(found[name].shape)} in the file and {tuple(tensor.shape)} in the network"
        for name, tensor in wanted.items()
        if name in found and found[name].shape != tensor.shape
    ]
    if missing or extra or shapes:
        told = [
            *([f"missing {_listed(missing)}"] if missing else []),
            *([f"left over {_listed(extra)}"] if extra else []),
            *([_listed(shapes, "; ")] if shapes else []),
        ]
        raise InputError(
            f"{source} does not fit the network: {'; '.join(told)} — check that --model builds what was saved"
        )
    return {name: found[name] for name in wanted}


def _listed(names: list[str], mark: str = ", ") -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return mark.join(names[:_SHOWN]) + more


def checkpoints_in(path: Path) -> list[Path]:
    """One checkpoint, or all of a folder in the order of the numbers in their names.

    Of a folder that `train` wrote, the kept steps come first and its present state last.
    """
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise InputError(f"there is no checkpoint at {path}: expected a file or a folder of them")
    found = [each for each in path.iterdir() if each.is_file() and each.suffix.lower() in SAFE + TORCH]
    if not found:
        part = any(each.name.endswith(".part") for each in path.iterdir())
        why = "its first checkpoint is still being written" if part else f"expected files in {', '.join(SAFE + TORCH)}"
        raise InputError(f"folder {path} holds no checkpoint: {why}")
    return sorted(found, key=lambda each: (each.stem == "checkpoint", numbers_in(each.stem), each.name))


def numbers_in(text: str) -> list[int]:
    """The whole numbers in a name.

    Examples:
        >>> numbers_in("epoch-3-step-00000120")
        [3, 120]
    """
    return [int(each) for each in re.findall(r"\d+", text)]
