"""Hostile chains for the auditor: files and arrays that another tool, or nobody, made."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import basinscope as bs
from basinscope.adapters.chains import read_chains
from hostile.files import Trap
from hostile.outcomes import Case, refused, works

SOUND = np.random.default_rng(0).normal(1.0, 0.1, (4, 200))
NAN, INF = float("nan"), float("inf")


def npy(content: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, content, allow_pickle=True)
    return buffer.getvalue()


def npz(**content: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **content)
    return buffer.getvalue()


def audited(name: str, content: bytes | str | Callable[[Path], bytes]) -> Callable[[Path], Any]:
    def attempt(folder: Path) -> Any:
        data = content(folder) if callable(content) else content
        (folder / name).write_bytes(data.encode() if isinstance(data, str) else data)
        return bs.audit(folder / name)

    return attempt


def fifo(name: str) -> Callable[[Path], Any]:
    def attempt(folder: Path) -> Any:
        os.mkfifo(folder / name)
        return read_chains(folder / name)

    return attempt


def tree(change: Callable[[Path], Any]) -> Callable[[Path], Any]:
    """A sound Zarr store of devinterp's layout after a change by hand."""

    def attempt(folder: Path) -> Any:
        import xarray

        losses = xarray.DataArray(SOUND[..., None], dims=("chain", "draw", "batch"))
        sound = xarray.Dataset({"sampling_loss_micro": losses, "init_loss": 0.5})
        sound.attrs = {"completed": 1, "metadata": {"config": {"sampler": {"n_beta": 10.0, "lr": 1e-3}}}}
        xarray.DataTree(sound).to_zarr(folder / "run.zarr", consolidated=False, zarr_format=3)
        change(folder / "run.zarr")
        return bs.audit(folder / "run.zarr")

    return attempt


def group(**changes: Any) -> Callable[[Path], Any]:
    """Change the attributes of the store."""

    def change(place: Path) -> None:
        path = place / "zarr.json"
        head = json.loads(path.read_text())
        head["attributes"] |= changes
        path.write_text(json.dumps(head))

    return change


def overwritten(pattern: str, content: bytes) -> Callable[[Path], Any]:
    def change(place: Path) -> None:
        for path in place.rglob(pattern):
            if path.is_file():
                path.write_bytes(content)

    return change


_ARRAYS: dict[str, Any] = {
    "None": None, "a number": 3.0, "text": "abc", "no chains": np.zeros((0, 100)), "no steps": np.zeros((4, 0)), "one step": np.zeros((4, 1)), "three axes": np.zeros((2, 50, 3)),
    "NaN": np.full((4, 100), NAN), "infinite": np.full((4, 100), INF), "complex": SOUND + 1j, "objects": np.array([[None] * 100] * 4), "texts": np.array([["a"] * 100] * 4),
    "chains of different lengths": [[1.0] * 100, [1.0] * 99], "a set": {1.0, 2.0}, "an empty dict": {}, "a dict without losses": {"a": SOUND}, "truth values": SOUND > 1,
    "losses that are a dict": {"loss": {"a": 1}}, "dates": np.array([["2026-01-01"] * 100] * 4, dtype="datetime64[D]"),
    **{f"{name} of {value!r}": {"loss": SOUND, name: value} for name in ("nbeta", "burn_in", "init_loss") for value in ("x", [1.0, 2.0], 1j)}, "burn_in of None": {"loss": SOUND, "burn_in": None},
    **{f"burn_in of {value!r}": {"loss": SOUND, "burn_in": value} for value in (NAN, INF, -INF, 1e300, -1, 200, 10**9)},
}  # fmt: skip

_FILES: dict[str, tuple[str, Any]] = {
    "an empty array file": ("a.npy", b""), "an array file cut off": ("a.npy", npy(SOUND)[:300]), "a header of nonsense": ("a.npy", npy(SOUND).replace(b"descr", b"de(cr")), "a shape of 2**62": ("a.npy", npy(SOUND).replace(b"(4, 200)", b"(2**62,)")),
    "a shape of many digits": ("a.npy", npy(SOUND).replace(b"(4, 200), }     ", b"(4, 9999999999)}")), "a pickle for an array": ("a.npy", npy(np.array([{"a": 1}], dtype=object))), "a command for an array": ("a.npy", lambda folder: npy(np.array([Trap(folder)], dtype=object))),
    "an empty archive": ("a.npz", b""), "an archive cut off": ("a.npz", npz(loss=SOUND)[:-40]), "an archive that is none": ("a.npz", b"PK\3\4" + b"\0" * 100), "an archive for one array": ("a.npy", npz(loss=SOUND)), "an archive of other arrays": ("a.npz", npz(other=SOUND)),
    "an archive of objects": ("a.npz", npz(loss=np.array([{"a": 1}], dtype=object))), "JSON cut off": ("a.json", "[[1.0, 2.0"), "JSON of text": ("a.json", '"abc"'), "JSON nested 100,000 deep": ("a.json", "[" * 100_000), "JSON of null": ("a.json", "null"),
    "JSON of ragged lists": ("a.json", "[[1, 2], [3]]"), "JSON with a number of 5,000 digits": ("a.json", "[[1" + "0" * 5_000 + "]]"), "JSON of NaN": ("a.json", json.dumps(np.full((2, 50), NAN).tolist())), "no UTF-8": ("a.json", b"\xff\xfe"), "a burn_in of NaN in JSON": ("a.json", json.dumps({"loss": SOUND.tolist(), "burn_in": NAN})),
    "netCDF that is none": ("a.nc", b"CDF\1" + b"\0" * 20), "an empty netCDF file": ("a.nc", b""), "text for Zarr": ("a.zarr", b"hello"), "a pickle": ("a.pkl", b"cos\nsystem\n(S'touch trap'\ntR."), "a spreadsheet": ("a.csv", "1,2"),
}  # fmt: skip

_STORES: dict[str, Callable[[Path], Any]] = {
    "no metadata": overwritten("zarr.json", b""), "metadata of nonsense": overwritten("zarr.json", b'{"zarr_format": 3}'), "another version of Zarr": overwritten("zarr.json", b'{"zarr_format": 99, "node_type": "group"}'), "metadata nested": overwritten("zarr.json", b"[" * 50_000),
    "chunks cut off": overwritten("0", b"\0" * 3), "no chunks at all": lambda place: [path.unlink() for path in place.rglob("c/*/*/*") if path.is_file()],
}  # fmt: skip

_UNKNOWN: dict[str, Callable[[Path], Any]] = {
    "a step size of text": group(metadata={"config": {"sampler": {"lr": "x", "n_beta": [1]}}}), "settings of text": group(metadata="x"),
    "settings of lists": group(metadata={"config": []}), "a sampler of text": group(metadata={"config": {"sampler": "x"}}), "an unfinished run of nothing": group(completed=None, metadata=None),
}  # fmt: skip

CASES: list[Case] = [
    *(refused(f"chains: {name}", lambda _, v=value: bs.audit(v)) for name, value in _ARRAYS.items()),
    *(refused(f"file of chains: {name}", audited(file, content)) for name, (file, content) in _FILES.items()),
    *(refused(f"a fifo for {name}", fifo(name)) for name in ("a.npy", "a.npz", "a.json", "a.nc")),
    *(Case(f"store of chains: {name}", tree(change), ("clear error", "right answer"), lambda audit: "" if audit.verdict != "ok" else "it is ok") for name, change in _STORES.items()),
    *(works(f"store of chains: {name}", lambda folder, c=change: tree(c)(folder) is not None) for name, change in _UNKNOWN.items()),
    refused("a folder of chains that is empty", lambda folder: bs.audit(folder)),
    refused("no chains", lambda folder: bs.audit(folder / "nowhere.npy")),
    works("sound losses as NumPy saves them", lambda folder: audited("a.npy", npy(SOUND))(folder) and True),
    works("sound losses in an archive", lambda folder: audited("a.npz", npz(loss=SOUND, nbeta=3.0, burn_in=20))(folder) and True),
    works("sound losses in JSON", lambda folder: audited("a.json", json.dumps({"loss": SOUND.tolist()}))(folder) and True),
    works("settings that are not known", lambda _: bs.audit({"loss": SOUND, "nbeta": None, "init_loss": NAN}) is not None),
    works("a sound store", lambda folder: tree(lambda place: None)(folder) and True),
]  # fmt: skip
