"""From files to a report: a user's network, its data, and one checkpoint or a folder of them."""

from __future__ import annotations

import copy
import hashlib
import json
import pickle
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..adapters.hugging_face import model_data, plain_forward, task
from ..errors import BasinscopeError, InputError
from ..landscape import Landscape
from ..measures.measurement import measurement, subject_of
from ..objects import named_object
from ..progress import tracked
from ..samples import read
from ..training.checkpoint import is_training_checkpoint, load_checkpoint
from .measure import assembled
from .plain import plain_measurement
from .report import Report, write_whole

SAFE, TORCH = (".safetensors",), (".pt", ".pth", ".bin", ".ckpt")
_WRAPPED = ("state_dict", "model_state_dict", "model", "module")  # where others keep the weights in a larger file
_PREFIXES = ("module.", "_orig_mod.", "model.", "network.")  # what wrappers put before every name
_SHOWN = 5
_MANY, _ONE = 10.0, 60.0  # nominal seconds of sampling a checkpoint
_PERSIST = "points"
_SAVED_PRETRAINED = ("model.safetensors", "pytorch_model.bin")


@dataclass(frozen=True)
class Subject:
    """A network without its weights, and the data and loss to measure it on. Data are read once, whatever they are.

    A model of Hugging Face transformers takes data as `Landscape.from_pretrained` does, and its own loss if `loss` is
    `cross_entropy`: the next tokens of a language model are the targets.
    """

    network: nn.Module
    data: Any
    loss: Any

    def __post_init__(self) -> None:
        data = model_data(self.data, task(self.network)[1]) if self._pretrained else read(self.data)
        object.__setattr__(self, "data", data)

    @property
    def _pretrained(self) -> bool:
        return hasattr(self.network, "config") and hasattr(self.network, "can_generate")

    @classmethod
    def load(cls, model: str, data: str, loss: str = "cross_entropy", device: str = "cpu") -> Subject:
        """From references to a function that builds the network and one that loads the data.

        Examples:
            >>> Subject.load("torch.nn:Identity", "math:pi")
            Traceback (most recent call last):
            ...
            basinscope.errors.InputError: --data math:pi must be a function that returns the data, got float
        """
        network = _made("--model", model, "builds the network")
        if not isinstance(network, nn.Module):
            raise InputError(f"--model {model} must return a torch.nn.Module, got {type(network).__name__}")
        found = _made("--data", data, "returns the data")
        if found is None:
            raise InputError(f"--data {data} returned None — return (x, y), a Dataset or an iterable of batches")
        try:
            network = network.to(device).eval()
        except (RuntimeError, AssertionError) as error:
            raise InputError(f"--device {device!r} cannot be used: {str(error).splitlines()[0]} — try cpu") from error
        return cls(network, found, named_object(loss) if ":" in loss else loss)

    def at(self, weights: Mapping[str, Tensor], source: Path) -> Landscape:
        """The landscape at the weights of a checkpoint, which must fit the network name by name."""
        network = copy.deepcopy(self.network)
        if self._pretrained and source.name in _SAVED_PRETRAINED and (source.parent / "config.json").is_file():
            # what `save_pretrained` wrote may have other names in the file than in the model
            weights = type(network).from_pretrained(source.parent).state_dict()  # type: ignore[attr-defined]
        network.load_state_dict(fitting(network, weights, source))
        if not self._pretrained:
            return Landscape(network, self.loss, self.data)
        loss = task(network)[0] if self.loss == "cross_entropy" else self.loss
        with plain_forward(network):
            return Landscape(network, loss, self.data)


def _made(option: str, reference: str, does: str) -> Any:
    """What a factory returns."""
    factory = named_object(reference)
    if isinstance(factory, nn.Module):
        return factory
    if not callable(factory):
        raise InputError(f"{option} {reference} must be a function that {does}, got {type(factory).__name__}")
    try:
        return factory()
    except BasinscopeError:
        raise
    except Exception as error:
        raise InputError(
            f"{option} {reference}() failed with {type(error).__name__}: {error} — it is called without arguments; "
            f"try it in Python first"
        ) from error


# ---------------------------------------------------------------------- reading files


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
    return sorted(found, key=lambda each: (each.stem == "checkpoint", _numbers(each.stem), each.name))


def _numbers(text: str) -> list[int]:
    return [int(each) for each in re.findall(r"\d+", text)]


# ---------------------------------------------------------------------- measuring them


def measure_checkpoints(
    subject: Subject,
    path: Path,
    settings: Mapping[str, Any],
    *,
    command: str,
    title: str = "",
    keep: Path | None = None,
    progress: bool = True,
) -> Report:
    """Measure one checkpoint in full, or every one of a folder in brief and the last in full.

    Of several, one that cannot be read or measured becomes a row that says why; a single one raises its error. With
    `keep`, every result is written to that folder as it exists, and what is there already is not measured again.
    Ctrl-C ends it with a report of what was measured by then.
    """
    files = checkpoints_in(path)
    many = len(files) > 1
    options = {name: value for name, value in settings.items() if value is not None}
    options.setdefault("budget", _MANY if many else _ONE)
    name = title or path.resolve().name
    points: list[dict[str, Any]] = []
    history: list[dict[str, Any]] = []
    with tracked(f"{len(files)} checkpoints", progress and many) as report:
        for place, file in enumerate(files):
            report(place / len(files), file.name)
            point, rows = _moment(file)
            history = rows or history
            if points and point.get("step") is not None and point["step"] == points[-1].get("step"):
                points.pop()  # the run's last state was kept as a step too
            brief = many and place < len(files) - 1
            point |= _measured(subject, file, {**options, "brief": brief}, keep, many, progress and not many)
            points.append(point)
            if keep is not None:
                assembled(points, settings, command, name, history).to_json(keep / "report.json")
            if _interrupted(point["measured"]):
                break  # Ctrl-C ends the run with what there is by then
    found = assembled(points, settings, command, name, history)
    if not any(point["measured"] for point in points):
        raise InputError(f"none of {len(points)} checkpoints in {path} could be measured: {points[-1]['error']}")
    if keep is not None:
        found.save(keep)
    return found


def _measured(
    subject: Subject, file: Path, options: Mapping[str, Any], keep: Path | None, forgive: bool, progress: bool
) -> dict[str, Any]:
    try:
        land = subject.at(read_weights(file), file)
        return {"measured": _kept(land, options, keep, lambda: plain_measurement(
            measurement(land, **options, progress=progress)
        )), "error": None}  # fmt: skip
    except BasinscopeError as error:
        if not forgive:
            raise
        return {"measured": None, "error": str(error)}


def _kept(
    land: Landscape, options: Mapping[str, Any], keep: Path | None, compute: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """A measurement of this very landscape with these very settings, from the folder or computed and put there."""
    if keep is None:
        return compute()
    asked = json.dumps([subject_of(land), dict(sorted(options.items()))], default=str)
    file = keep / _PERSIST / f"{hashlib.sha256(asked.encode()).hexdigest()[:32]}.json"
    try:
        found: dict[str, Any] = json.loads(file.read_bytes())
    except (OSError, ValueError):
        found = compute()
        if not _interrupted(found):
            write_whole(file, json.dumps(found, allow_nan=False).encode())
    return found


def _interrupted(measured: Mapping[str, Any] | None) -> bool:
    return measured is not None and bool(measured["llc"]["diagnostics"].get("interrupted"))


def _moment(file: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """When in training a checkpoint was written, as far as it or its name tells, and the rows it holds."""
    point: dict[str, Any] = {"name": file.stem}
    if file.suffix.lower() in SAFE and _is_training(file):
        state = load_checkpoint(file)
        rows = list(state["rows"])
        last = rows[-1] if rows else {}
        point["step"] = state["clock"][0]
        for name in ("epoch", "train_loss", "validation_loss"):
            if last.get("step") == point["step"] and last.get(name) is not None:
                point[name] = last[name]
        return point, rows
    numbers = _numbers(file.stem)
    if len(numbers) == 1:
        point["step"] = numbers[0]
    return point, []


def _is_training(file: Path) -> bool:
    try:
        return is_training_checkpoint(file)
    except BasinscopeError:
        return False
