"""Draws of a posterior in a file: a Zarr store in the layout that devinterp 2 and ArviZ read, and back."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .._version import __version__
from ..errors import InputError
from ..landscape import Landscape
from ..progress import Report
from ..sampling.chains import ChainLosses
from .checks import Balance
from .observables import Observable, Walk
from .posterior import MEMORY, Posterior, Ran

FORMAT = 1
_CHUNK = 1 << 24  # bytes, at most, of what is written at a time
_RESERVED = ("micro", "")


class KeptPosterior(Posterior):
    """A posterior whose draws were read from a file: everything that asks for draws takes it as it takes the one that
    was saved.

    What is asked of the run itself, as λ̂ is, has been left behind: `llc` has the λ̂ that was saved.
    """

    def __init__(self, land: Landscape, about: Mapping[str, Any], store: Any, memory: float) -> None:
        self.land, self.memory = land, memory
        self.nbeta, self.gamma = float(about["nbeta"]), float(about["gamma"])
        self.llc = float(about["llc"])
        self.known = {}
        self._losses = ChainLosses(land)
        self._ran = Ran(**{**about["run"], "balance": Balance(**about["run"]["balance"])})
        self._store = store
        self._chains, self._count, self._thin = (int(about[name]) for name in ("chains", "draws", "thin"))
        self._held: list[tuple[Tensor, Tensor]] = []

    def __getattr__(self, name: str) -> Any:
        if name in ("sampler", "outcome"):
            raise InputError(
                "a posterior from a file has its draws, but not the run behind them — read λ̂ from its `llc`, or "
                "sample again with bs.posterior(land)"
            )
        raise AttributeError(name)

    @property
    def losses(self) -> ChainLosses:
        return self._losses

    @property
    def ran(self) -> Ran:
        return self._ran

    @property
    def chains(self) -> int:
        return self._chains

    @property
    def count(self) -> int:
        return self._count

    @property
    def thin(self) -> int:
        return self._thin

    def draws(self, count: int | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        count = self._count if count is None else count
        if count > self._count:
            raise InputError(f"there are {self._count} draws in the file, got {count} — draw more and save them again")
        if len(self._held) >= count:
            yield from self._held[:count]
            return
        weights, dead = self._store["weights/delta"], self._store["sample_stats/diverging"]
        keeps = weights.nbytes <= self.memory
        positions = []
        width = weights.chunks[1]
        for start in range(0, count, width):
            rows, lost = (_read(each, slice(start, start + width)) for each in (weights, dead))
            for draw in range(min(width, count - start)):
                delta = torch.as_tensor(rows[:, draw], device=self.land.device).to(self.land.dtype)
                alive = torch.as_tensor(~lost[:, draw], device=self.land.device)
                if keeps:
                    positions.append((delta, alive))
                yield delta, alive
        self._held = positions

    def refuse_diverged(self, alive: Tensor | None = None) -> None:
        if alive is not None and int(alive.sum()) < 2:
            raise InputError(f"{int((~alive).sum())} of {self._chains} chains in the file diverged — draw again")

    def __repr__(self) -> str:
        return (
            f"Posterior at nβ = {self.nbeta:.4g}, γ = {self.gamma:.3g} of {self.land.dimension:,} parameters on "
            f"{self.land.n:,} samples, from a file: {self._chains} chains of {self._count} draws"
        )


def save(post: Posterior, path: Path, observables: Mapping[str, Any], weights: bool, report: Report) -> Path:
    """Write the draws of a posterior, and observables along them, draw by draw."""
    zarr = _zarr()
    _refuse_bad_path(path)
    made = {name: Observable(post.losses, given) for name, given in observables.items()}
    for name in observables:
        if not name.isidentifier() or name in _RESERVED:
            raise InputError(f"observables need names of letters, digits and _, got {name!r}")
    root = zarr.create_group(store=str(path), overwrite=False)
    about = _about(post)
    root.attrs.update({
        "basinscope": about | {"complete": False}, "completed": 0, "llc": about["llc"],
        "metrics_numel": post.land.dimension, "metadata": {"config": {"sampler": _as_devinterp(post)}},
    })  # fmt: skip
    columns = _columns(root, post, made, weights)
    base = float(post.losses.base.mean())
    root.create_array("init_loss", data=np.full(post.chains, base), dimension_names=["chain"])
    walk = Walk(post, report)
    for delta in walk:
        walk.note(delta)
        excess = walk.latest
        values = {name: (each.at(delta) + each.base).cpu().numpy() for name, each in made.items()}
        columns["posterior/llc"].add(post.nbeta * excess)
        columns["sampling_loss_micro"].add((base + excess)[:, None, None])
        columns["sample_stats/lp"].add(-post.nbeta * excess - 0.5 * post.gamma * delta.square().sum(1).cpu().numpy())
        columns["sample_stats/diverging"].add(~walk.living)
        if weights:
            columns["weights/delta"].add(delta.cpu().numpy())
        for name, rows in values.items():
            if observables[name] is None:
                columns["log_likelihood/target"].add(-rows)
            columns[_named(made[name], name)].add(rows if callable(made[name].given) else rows[..., None])
    for column in columns.values():
        column.flush()
    root.attrs.update({"basinscope": about | {"complete": True}, "completed": 1})
    return path


def load(path: str | Path, land: Landscape, memory: float = MEMORY) -> KeptPosterior:
    """The posterior whose draws `save` wrote, of the landscape that it was of."""
    zarr = _zarr()
    if not Path(path).is_dir():
        raise InputError(f"there are no draws at {path} — write them with post.save()")
    try:
        store = zarr.open_group(str(path), mode="r")
        about = store.attrs["basinscope"]
        written = int(about["format"])
    except Exception as error:  # whatever the storage library raises on a damaged file, or one of another kind
        raise InputError(f"{path} holds no draws of a posterior ({error}) — write them with post.save()") from error
    if written != FORMAT:
        raise InputError(
            f"{path} is of format {written}, this version reads format {FORMAT} — it was written by basinscope "
            f"{about.get('version', 'of another version')}, which reads it"
        )
    if not about.get("complete"):
        raise InputError(f"{path} is cut off: the draws were not all written — save them again")
    if "weights/delta" not in store:
        raise InputError(f"{path} keeps observables, but no weights — save it with weights=True")
    theirs = {"n": land.n, "dimension": land.dimension, "weights": _digest(land)}
    for name, value in theirs.items():
        if about[name] != value:
            raise InputError(
                f"the draws in {path} are of another landscape: its {name} is {about[name]}, got {value} — pass the "
                f"landscape that was sampled"
            )
    return KeptPosterior(land, about, store, memory)


class Column:
    """An array over chains and draws that is written as its draws come, a chunk at a time."""

    def __init__(self, group: Any, path: str, post: Posterior, dtype: str, dims: Mapping[str, int]) -> None:
        each = post.chains * np.dtype(dtype).itemsize * int(np.prod(list(dims.values()) or [1]))
        self._width = int(max(1, min(post.count, _CHUNK // max(1, each))))
        shape = (post.chains, post.count, *dims.values())
        along = "step" if path == "sampling_loss_micro" else "draw"
        self._array = group.create_array(
            path, shape=shape, chunks=(post.chains, self._width, *dims.values()), dtype=dtype,
            dimension_names=["chain", along, *dims],
        )  # fmt: skip
        self._rows: list[NDArray[Any]] = []
        self._written = 0

    def add(self, row: Any) -> None:
        """The values (chains, …) of the next draw."""
        self._rows.append(np.asarray(row))
        if len(self._rows) == self._width:
            self.flush()

    def flush(self) -> None:
        """Write what is held."""
        if self._rows:
            stop = self._written + len(self._rows)
            self._array[:, self._written : stop] = np.stack(self._rows, axis=1)
            self._rows, self._written = [], stop


def _columns(root: Any, post: Posterior, made: Mapping[str, Observable], weights: bool) -> dict[str, Column]:
    """An array for everything that is written."""
    wanted: dict[str, tuple[str, dict[str, int]]] = {
        "posterior/llc": ("float64", {}),
        "sampling_loss_micro": ("float64", {"batch_sampling": 1, "token_pos": 1}),
        "sample_stats/lp": ("float64", {}),
        "sample_stats/diverging": ("bool", {}),
    }
    if weights:
        kind = str(post.land.dtype).removeprefix("torch.")
        wanted["weights/delta"] = (
            kind if kind in ("float32", "float64") else "float32",
            {"parameter": post.land.dimension},
        )
    for name, each in made.items():
        if each.given is None:
            wanted["log_likelihood/target"] = ("float64", {"observation": each.size})
        if callable(each.given):
            wanted[_named(each, name)] = ("float64", {f"entry_{name}": each.size})
            continue
        wanted[_named(each, name)] = ("float64", {f"batch_{name}": each.size, "token_pos": 1})
        numbers = np.stack([np.arange(each.size), np.zeros(each.size, dtype=int)], axis=1)
        root.create_array(f"input_ids_{name}", data=numbers, dimension_names=[f"batch_{name}", "token"])
    return {path: Column(root, path, post, kind, dims) for path, (kind, dims) in wanted.items()}


def _named(observable: Observable, name: str) -> str:
    """Losses as devinterp calls them, in the root; other functions in a group of their own."""
    return f"observables/{name}" if callable(observable.given) else f"loss_{name}"


def _about(post: Posterior) -> dict[str, Any]:
    """What it takes to go on with the draws."""
    return {
        "format": FORMAT, "version": __version__, "nbeta": post.nbeta, "gamma": post.gamma, "n": post.land.n,
        "dimension": post.land.dimension, "weights": _digest(post.land), "chains": post.chains, "draws": post.count,
        "thin": post.thin, "llc": post.nbeta * post.ran.excess, "run": post.ran.to_dict(),
    }  # fmt: skip


def _as_devinterp(post: Posterior) -> dict[str, Any]:
    """The sampler's settings by the names that devinterp 2 has for them."""
    return {
        "n_beta": post.nbeta, "localization": post.gamma, "lr": post.ran.step_size,
        "batch_size": post.ran.batch_size or post.land.n, "num_chains": post.chains, "num_draws": post.count,
        "num_burnin_steps": 0, "num_steps_bw_draws": post.thin, "samples": post.land.n,
        "sampling_method": f"basinscope {post.ran.sampler}",
    }  # fmt: skip


def _digest(land: Landscape) -> str:
    """A short name of w*, by which another w* is told."""
    return hashlib.sha256(land.flatten(land.parameters).detach().cpu().double().numpy().tobytes()).hexdigest()[:16]


def _read(array: Any, draws: slice) -> NDArray[Any]:
    try:
        return np.asarray(array[:, draws])
    except Exception as error:  # whatever the storage library raises on a damaged chunk
        raise InputError(f"{array.name} cannot be read ({error}) — the file may be cut off; save it again") from error


def _refuse_bad_path(path: Path) -> None:
    if path.suffix != ".zarr":
        raise InputError(f"draws are kept in a Zarr store, got {str(path)!r} — give it a name that ends in .zarr")
    if path.exists():
        raise InputError(f"{path} exists — remove it, or save under another name")


def _zarr() -> Any:
    try:
        import zarr
    except ModuleNotFoundError as error:
        raise InputError("draws are kept in Zarr stores — install basinscope[zarr]") from error
    return zarr
