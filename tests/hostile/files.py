"""Hostile checkpoints: truncated, absurd, executable, of another network; and the bytes that fuzzers start from."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import nn

from basinscope.adapters.checkpoints import checkpoints_in, fitting, read_weights
from basinscope.adapters.training_file import load_checkpoint, save_checkpoint
from basinscope.adapters.training_header import training_header
from basinscope.files import write_whole
from hostile.outcomes import TRAP, Case, refused, works


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 2))


STATE = net().state_dict()
SAFE = save(STATE)
_buffer = io.BytesIO()
torch.save(STATE, _buffer)
TORCH = _buffer.getvalue()


def header(content: Any, data: bytes = b"") -> bytes:
    """A safetensors file with any header."""
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    return struct.pack("<Q", len(text)) + text + data


def tensor(shape: list[int], offsets: list[int], dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def training(text: Any) -> bytes:
    """A safetensors file that says it is a training run, with this as its state."""
    return header({"__metadata__": {"basinscope-training": text if isinstance(text, str) else json.dumps(text)}})


def state(**parts: Any) -> dict[str, Any]:
    return {"$dict": [["format", 1], ["state", {"$dict": [list(item) for item in parts.items()]}]]}


def pickled(content: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


class Trap:
    """What runs a command when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.command = f"touch {folder / TRAP}"

    def __reduce__(self) -> Any:
        return os.system, (self.command,)


def bomb() -> bytes:
    """A torch file whose storage unpacks to a hundred megabytes of zeros."""
    target = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(TORCH)) as source, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as packed:
        for name in source.namelist():
            packed.writestr(name, bytes(100 << 20) if name.endswith("data/0") else source.read(name))
    return target.getvalue()


def reads(name: str, content: bytes | Callable[[Path], bytes]) -> Callable[[Path], Any]:
    """Read a file with this content as the weights of the network."""

    def attempt(folder: Path) -> Any:
        path = folder / name
        path.write_bytes(content(folder) if callable(content) else content)
        network = net()
        network.load_state_dict(fitting(network, read_weights(path), path))

    return attempt


def unlike(**changed: Any) -> bytes:
    return save({**STATE, **changed})


_BROKEN_SAFE: dict[str, bytes] = {
    **{f"cut off after {k} bytes": SAFE[:k] for k in (0, 4, 8, 20, len(SAFE) // 2, len(SAFE) - 1)},
    "a byte too many": SAFE + b"x",
    "a header of 2**62 bytes": struct.pack("<Q", 2**62) + b"{}",
    "a header of 100 MB that is not there": struct.pack("<Q", 100_000_000) + b"{" * 1000,
    "a negative header": b"\xff" * 8 + b"{}",
    "a header nested 100,000 deep": header(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "a header that is no JSON": header(b"hello"),
    "a header that is a list": header([1, 2]),
    "a header that is no UTF-8": header(b'{"\xff\xfe": 1}'),
    "the same name twice": header(b'{"0.weight":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"0.weight":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', bytes(4)),
    "tensors that overlap": header({"0.weight": tensor([2, 4], [0, 32]), "0.bias": tensor([2], [0, 8])}, bytes(32)),
    "a shape of 2**80": header({"0.weight": tensor([2**40, 2**40], [0, 32])}, bytes(32)),
    "a negative offset": header({"0.weight": tensor([2, 4], [-32, 0])}, bytes(32)),
    "offsets the wrong way round": header({"0.weight": tensor([2, 4], [32, 0])}, bytes(32)),
    "a dtype of its own": header({"0.weight": tensor([2, 4], [0, 32], "F33")}, bytes(32)),
    "no tensors": header({}),
    "metadata that are no texts": header({"__metadata__": {"a": 5}}),
}  # fmt: skip

_BROKEN_TRAINING: dict[str, Any] = {
    "no JSON": "not json", "a list": [1, 2], "a number": 5, "null": None, "an empty state": state(), "another format": {"$dict": [["format", 99], ["state", {"$dict": []}]]},
    "a model that is a number": state(model=5, clock=[1], rows=[]), "a model that is a list": state(model=[1]), "a tensor that is not there": state(model={"$dict": [["a", {"$tensor": "nowhere"}]]}),
    "unhashable keys": state(model={"$dict": [[[1], 2]]}), "a pair too long": {"$dict": [["format", 1, 2]]}, "nested 50,000 deep": "[" * 50_000 + "]" * 50_000,
    "NaN for a format": '{"$dict": [["format", NaN]]}', "a huge number": '{"$dict": [["format", 1' + "0" * 5_000 + "]]}",
}  # fmt: skip

_BROKEN_TORCH: dict[str, Any] = {
    **{f"cut off after {k} bytes": TORCH[:k] for k in (0, 10, len(TORCH) // 2, len(TORCH) - 30)},
    "text": b"hello world", "a tensor": pickled(STATE["0.weight"]), "a list": pickled([STATE]), "an empty dict": pickled({}), "a number": pickled(5),
    "a whole network": pickled(net()), "a command": lambda folder: pickle.dumps({"0.weight": Trap(folder)}), "a command in torch's format": lambda folder: pickled({"0.weight": Trap(folder)}),
    "a command after the tensors": lambda folder: pickled({**STATE, "z": Trap(folder)}), "numbers for names": pickled({1: STATE["0.weight"]}), "sparse weights": pickled({**STATE, "0.weight": STATE["0.weight"].to_sparse()}),
    "weights with an inner dict twice": pickled({"model": {"model": STATE}}), "a storage that is a bomb": lambda _: bomb(),
    "quantized weights": lambda _: pickled({**STATE, "0.weight": torch.quantize_per_tensor(STATE["0.weight"], 0.1, 0, torch.qint8)}),
    "nested tensors": lambda _: pickled({**STATE, "0.weight": torch.nested.nested_tensor([STATE["0.weight"]])}),
    "complex weights": pickled({**STATE, "0.weight": STATE["0.weight"].to(torch.complex64)}), "meta tensors": pickled({**STATE, "0.weight": STATE["0.weight"].to("meta")}),
}  # fmt: skip

_UNLIKE: dict[str, bytes] = {
    "whole numbers for weights": unlike(**{"0.weight": STATE["0.weight"].long()}), "truth values for weights": unlike(**{"0.weight": STATE["0.weight"] > 0}),
    "another shape": unlike(**{"0.weight": STATE["0.weight"].T.contiguous()}), "a name that climbs": save({"../../etc/passwd": STATE["0.weight"], "0.bias": STATE["0.bias"]}),
    "a script for a name": unlike(**{"<script>alert(1)</script>": torch.zeros(1)}), "a name too few": save({"0.weight": STATE["0.weight"]}), "names of another network": save({"a": torch.zeros(1)}),
}  # fmt: skip


def headed(content: bytes) -> Callable[[Path], Any]:
    def attempt(folder: Path) -> Any:
        (folder / "checkpoint.safetensors").write_bytes(content)
        if training_header(folder / "checkpoint.safetensors") is None:
            load_checkpoint(folder / "checkpoint.safetensors")

    return attempt


def linked(folder: Path) -> None:
    (folder / "there").write_text("untouched")
    (folder / "link").symlink_to(folder / "there")
    write_whole(folder / "link", b"x")


def fifo(folder: Path) -> Any:
    os.mkfifo(folder / "net.safetensors")
    return read_weights(folder / "net.safetensors")


def fifo_header(folder: Path) -> Any:
    os.mkfifo(folder / "checkpoint.safetensors")
    return training_header(folder / "checkpoint.safetensors")


def returned(folder: Path) -> bool:
    save_checkpoint(folder / "run", {"model": STATE, "steps": {3: (0.5, None)}})
    return bool(torch.equal(load_checkpoint(folder / "run")["model"]["0.weight"], STATE["0.weight"]))


CASES: list[Case] = [
    *(refused(f"safetensors: {name}", reads("net.safetensors", content)) for name, content in _BROKEN_SAFE.items()),
    *(refused(f"training run: {name}", reads("net.safetensors", training(content))) for name, content in _BROKEN_TRAINING.items()),
    *(refused(f"header of a training run: {name}", headed(training(content))) for name, content in _BROKEN_TRAINING.items()),
    *(refused(f"torch file: {name}", reads("net.pt", content)) for name, content in _BROKEN_TORCH.items()),
    *(refused(f"pickle called {name}", reads(f"net.{name}", lambda folder: pickle.dumps({"a": Trap(folder)}))) for name in ("pt", "pth", "bin", "ckpt", "safetensors")),
    *(refused(f"weights: {name}", reads("net.safetensors", content)) for name, content in _UNLIKE.items()),
    *(refused(f"a file called net.{suffix}", reads(f"net.{suffix}", SAFE)) for suffix in ("txt", "npz", "zip", "safetensors.exe")),
    refused("a fifo for a checkpoint", fifo),
    refused("a fifo for a training run", fifo_header),
    refused("a folder for a checkpoint", lambda folder: read_weights(folder)),
    refused("no checkpoint at all", lambda folder: checkpoints_in(folder / "nowhere")),
    refused("an empty folder", lambda folder: checkpoints_in(folder)),
    refused("writing over a link", linked, "link"),
    refused("writing over a device", lambda _: write_whole("/dev/null", b"x"), "device"),
    refused("writing into a file as if it were a folder", lambda folder: (write_whole(folder / "a", b""), write_whole(folder / "a" / "b", b""))),
    works("the same weights as safetensors", reads("net.safetensors", SAFE)),
    works("the same weights by torch", reads("net.pt", TORCH)),
    works("weights in half precision", reads("net.safetensors", save({name: value.half() for name, value in STATE.items()}))),
    works("weights inside a larger file", reads("net.pt", pickled({"epoch": 3, "model_state_dict": STATE}))),
    works("a training run, written and read", returned),
]  # fmt: skip
