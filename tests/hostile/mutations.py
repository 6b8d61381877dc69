"""Files changed byte by byte: each reader must refuse them in a sentence, or read what is still sound."""

from __future__ import annotations

import io
import json
import random
import shutil
import struct
import tempfile
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

import basinscope as bs
from basinscope.adapters.training_file import load_checkpoint, save_checkpoint
from basinscope.adapters.training_header import training_header
from basinscope.report.studies import write_study_page
from basinscope.runs.references import find
from basinscope.runs.restoring import restore
from basinscope.runs.results import Results
from basinscope.runs.settings import resolved
from basinscope.runs.store import Store
from basinscope.training import Member, Population
from hostile.chains import SOUND, npz
from hostile.files import SAFE, STATE, TORCH, reads
from hostile.outcomes import CLEAR, RIGHT, Case
from hostile.stores import SQUARES, goes_on, store

_PIECES = [
    b"NaN", b"1e999", b"-1", b"9" * 400, b"[", b"]", b"{", b"}", b'"', b"null", b"true", b"../", b"\0", b"\xff\xfe", b"&a [*a]", b"*a", b": ", b"\n- ",
    b"!!python/object/apply:os.system [touch trap]", b"cos\nsystem\n(S'touch trap'\ntR.", b"<script>", b"%00", struct.pack("<Q", 2**63), struct.pack("<I", 2**31),
]  # fmt: skip


def mutated(rng: random.Random, sound: bytes) -> bytes:
    """The bytes with a few changes: bits and runs alone, or copies, cuts, and pieces that mean something somewhere."""
    content = bytearray(sound)
    kinds = rng.choice((("bit", "byte"), ("bit", "byte", "out", "twice", "piece", "over", "end", "digits")))
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        start = rng.randrange(len(content) + 1)
        end = min(len(content), start + rng.choice((1, 1, 4, 30)))
        kind = rng.choice(kinds)
        if kind == "bit" and start < len(content):
            content[start] ^= 1 << rng.randrange(8)
        elif kind == "byte":
            content[start:end] = bytes(rng.choice((0, 1, 127, 128, 255)) for _ in range(end - start))
        elif kind == "out":
            del content[start:end]
        elif kind == "twice":
            content[start:start] = content[start:end]
        elif kind == "piece":
            content[start:start] = rng.choice(_PIECES)
        elif kind == "over":
            content[start : start + 8] = rng.choice(_PIECES)
        elif kind == "end":
            del content[start + len(content) // 2 :]
        elif kind == "digits":
            content[start:end] = str(rng.choice((0, -1, 2**31, 2**63, 10**30))).encode()
    return bytes(content)


def mutated_archive(rng: random.Random, sound: bytes) -> bytes:
    """A zip archive one of whose members is changed, or itself."""
    if rng.random() < 0.3:
        return mutated(rng, sound)
    target = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(sound)) as source, zipfile.ZipFile(target, "w") as written:
        victim = rng.choice(source.namelist())
        for name in source.namelist():
            content = source.read(name)
            written.writestr(name, mutated(rng, content) if name == victim else content)
    return target.getvalue()


@cache
def report() -> bs.Report:
    """A report of a network so small that measuring it takes a moment."""
    x = torch.linspace(-1, 1, 40)[:, None]
    return bs.measure(bs.Landscape(nn.Linear(1, 1), "mse", (x, 2 * x)), budget=0.2, title="A line", progress=False)


def _population() -> Population:
    x = torch.linspace(0, 1, 20)[:, None]
    members = [Member(seed=seed, lr=0.1, batch_size=5) for seed in (0, 1)]
    return Population(lambda: nn.Linear(1, 2), members, (x, torch.arange(20) % 2))


def _written(write: Callable[[Path], Any], name: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        return (Path(folder) / name).read_bytes()


@cache
def sound(kind: str) -> bytes:
    """The bytes of a sound file of a kind."""
    if kind == "safetensors":
        return SAFE
    if kind == "torch":
        return TORCH
    if kind == "training":
        return _written(
            lambda folder: save_checkpoint(folder / "checkpoint.safetensors", _training_state()),
            "checkpoint.safetensors",
        )
    if kind == "report":
        return report().to_json().encode()
    if kind == "estimate":
        return _written(lambda folder: report().final.llc.save(folder / "llc.json"), "llc.json")
    if kind == "population":
        return _written(lambda folder: _population().train(4, checkpoint=folder / "p.npz", progress=False), "p.npz")
    if kind == "yaml":
        return b"function: hostile.stores:square\ntitle: Squares\ngrid:\n  x: [1, 2, 30]\nversion: 3\n"
    if kind == "chains":
        return npz(loss=SOUND[:2, :40], nbeta=3.0, burn_in=10)
    if kind == "chains in JSON":
        return json.dumps({"loss": SOUND[:2, :40].round(3).tolist(), "nbeta": 3.0, "burn_in": 10}).encode()
    assert kind == "provenance"
    return _written(_reported, "out/provenance.json")


def _training_state() -> dict[str, Any]:
    return {"model": STATE, "steps": {3: (0.5, None)}, "rows": [{"loss": 1.0}], "clock": [1], "over": None}


def _reported(folder: Path) -> None:
    results = Results(SQUARES, resolved(SQUARES, "smoke"), Store(store(folder)))
    write_study_page(results, folder / "out", results.write(folder / "out"), "again")


def _read_report(path: Path) -> None:
    report = bs.Report.load(path)
    report.to_html()
    report.to_markdown()


def _read_training(path: Path) -> None:
    if training_header(path) is not None:
        load_checkpoint(path)


@cache
def _table() -> bytes:
    return _written(_reported, "out/table.parquet")


def _restore(path: Path) -> None:
    (path.parent / "table.parquet").write_bytes(_table())
    restore(SQUARES, path.parent, Store(path.parent / "store"))


_READERS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "training": ("checkpoint.safetensors", _read_training),
    "report": ("report.json", _read_report),
    "estimate": ("llc.json", bs.Estimate.load),
    "population": ("p.npz", lambda path: _population().load(path)),
    "yaml": ("study.yaml", lambda path: find(str(path))),
    "provenance": ("provenance.json", _restore),
    "chains": ("chains.npz", bs.audit),
    "chains in JSON": ("chains.json", bs.audit),
}
_WEIGHTS = {"safetensors": "net.safetensors", "torch": "net.pt"}
KINDS = (*_WEIGHTS, *_READERS)


def file_case(kind: str, rng: random.Random) -> Case:
    """Read a file of a kind after some of its bytes have changed."""
    change = mutated_archive if kind in ("torch", "population", "chains") else mutated
    content = change(rng, sound(kind))
    if kind in _WEIGHTS:
        return Case(f"{kind}, changed", reads(_WEIGHTS[kind], content), (CLEAR, RIGHT))
    name, read = _READERS[kind]

    def attempt(folder: Path) -> None:
        (folder / name).write_bytes(content)
        read(folder / name)

    return Case(f"{kind}, changed", attempt, (CLEAR, RIGHT))


@cache
def _store() -> Path:
    """One store for all to copy, with the sources of what a driver leaves while it runs."""
    place = store(Path(tempfile.mkdtemp(prefix="basinscope-mutations-")))
    (place / "driver.json").write_text(json.dumps({"host": "x", "process": 1, "renewed": 0, "left": None}))
    return place


def store_case(rng: random.Random) -> Case:
    """Change some bytes of a file of a store, its index among them: the next run mends it, and the table is the same."""
    files = sorted(path.relative_to(_store()) for path in _store().rglob("*") if path.is_file())
    name = rng.choice([*files, *[Path("index.sqlite")] * 3])
    content = mutated(rng, (_store() / name).read_bytes())

    def attempt(folder: Path) -> bool:
        place = shutil.copytree(_store(), folder / "store")
        (place / name).write_bytes(content)
        return goes_on(place)

    # What says which schema a store has cannot be guessed: it is refused, and no result is touched.
    allowed = (CLEAR, RIGHT) if name.name == "store.json" else (RIGHT,)
    return Case(f"store, changed in {name}", attempt, allowed, lambda same: "" if same else "another table")
