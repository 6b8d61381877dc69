"""Chains that another tool made: losses along them, and what their files tell of how they were made."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..checks import whole
from ..errors import InputError
from ..foreign import array, arrays, contents, opened, parsed

Array = NDArray[np.float64]
LIMIT = 1 << 31  # bytes of arrays that are read
_TRACES = ("loss/trace", "loss", "losses", "sampling_loss")  # in dicts and archives


@dataclass(frozen=True)
class ForeignChains:
    """Losses along chains with what is known of them; NaN for what is not.

    Attributes:
        losses: mean loss at every step, (chains, steps), burn-in included where it was kept.
        source: where they come from, in words.
        recorded: values as the tool stored them, to see in how many bits it computed.
        init_loss: L(w*).
        reported: λ̂ as the tool's own function has it.
        burn_in: steps at the beginning that the tool discards.
        nbeta, gamma, step_size, batch_size, samples, dimension: its settings.
        squared_gradient: mean of ‖∇U‖² over batches.
        complete: whether the file says that the run came to its end.
    """

    losses: Array
    source: str
    recorded: NDArray[Any] = field(default_factory=lambda: np.empty(0))
    init_loss: float = math.nan
    reported: float = math.nan
    burn_in: int = 0
    nbeta: float = math.nan
    gamma: float = math.nan
    step_size: float = math.nan
    batch_size: float = math.nan
    samples: float = math.nan
    dimension: float = math.nan
    squared_gradient: float = math.nan
    complete: bool = True


def read_chains(given: Any) -> ForeignChains:
    """Chains from an array (chains, steps) of losses, from what devinterp 1 returned, or from a file.

    Files are the Zarr stores of devinterp 2 and of `Posterior.save`, ArviZ's as Zarr or netCDF, arrays of NumPy
    (`.npy`, `.npz`) and JSON of either kind.
    """
    if isinstance(given, (str, Path)):
        return _of_file(Path(given))
    if isinstance(given, Mapping):
        return _of_mapping(given, "a mapping")
    if hasattr(given, "children") and hasattr(given, "dataset"):
        return _of_tree(given, "a DataTree")
    return _of_array(given, "an array of losses")


def _of_file(path: Path) -> ForeignChains:
    if not path.exists():
        raise InputError(f"there are no chains at {path}")
    kind = path.suffix.lower()
    if path.is_dir() or kind in (".nc", ".zarr"):
        return _of_tree(opened_tree(path), str(path.name))
    try:
        if kind == ".npy":
            return _of_array(array(path), path.name)
        if kind == ".npz":
            return _of_mapping(arrays(path), path.name)
        if kind == ".json":
            plain = parsed(contents(path), finite=False)
            return _of_mapping(plain, path.name) if isinstance(plain, dict) else _of_array(plain, path.name)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read ({error}) — it may be cut off; write it again") from error
    raise InputError(
        f"chains come as .zarr, .nc, .npy, .npz or .json, got {path.name!r} — save the losses with numpy.save"
    )


def opened_tree(path: Path) -> Any:
    """The DataTree of a Zarr store or a netCDF file."""
    try:
        import xarray
    except ModuleNotFoundError as error:
        raise InputError("Zarr stores and netCDF files need xarray and zarr — install basinscope[zarr]") from error
    try:
        if path.is_dir():
            return xarray.open_datatree(path, engine="zarr", consolidated=False)
        with opened(path):  # a pipe or a device is none
            pass
        return xarray.open_datatree(path)
    except ModuleNotFoundError as error:
        raise InputError(f"{path.name} needs {error.name} — install basinscope[zarr]") from error
    except Exception as error:  # whatever the storage libraries raise on a damaged file
        raise InputError(f"{path} cannot be read ({error}) — it may be cut off; write it again") from error


def _of_array(given: Any, source: str, **facts: Any) -> ForeignChains:
    try:
        values = np.asarray(given)
        if values.dtype.kind not in "fiu":
            raise TypeError(f"they are {values.dtype}")
        losses = values.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(
            f"chains must be losses (chains, steps) of one length, got {type(given).__name__} ({error}) — cut longer "
            f"ones to the shortest"
        ) from error
    if values.ndim == 1:
        losses = losses[None]
    if losses.ndim != 2 or not len(losses):
        raise InputError(f"losses must have shape (chains, steps), got {values.shape} — take means over the rest")
    return ForeignChains(losses, source, **{"recorded": values.ravel(), **facts})


def _of_mapping(given: Mapping[str, Any], source: str) -> ForeignChains:
    """What devinterp 1 returns, as a dict or as an archive of it; or named losses with settings beside them."""
    name = next((name for name in _TRACES if name in given), None)
    if name is None:
        raise InputError(
            f"{source} holds no losses along chains: expected one of {', '.join(_TRACES)}, got "
            f"{', '.join(given) or 'nothing'}"
        )
    facts = {
        name: _number(given[name])
        for name in ("init_loss", "nbeta", "gamma", "step_size", "batch_size", "samples", "dimension", "reported")
        if name in given
    }
    if "llc/mean" in given:
        facts["reported"] = _number(given["llc/mean"])
        source = f"{source}: devinterp 1"
    if "burn_in" in given:
        facts["burn_in"] = whole("burn_in", _number(given["burn_in"]), least=0)
    return _of_array(given[name], source, **facts)


def _number(value: Any) -> float:
    try:
        return float(np.asarray(value, dtype=np.float64))
    except (TypeError, ValueError) as error:
        raise InputError(f"settings of chains must be numbers, got {value!r}") from error


def _of_tree(tree: Any, source: str) -> ForeignChains:
    variables = tree.dataset.data_vars
    if "sampling_loss_micro" in variables or "init_loss" in variables:
        return _of_store(tree, source)
    for group, name in (("posterior", None), ("sample_stats", "lp"), ("log_likelihood", None)):
        if group in tree.children:
            chains = _of_group(tree[group].dataset, name, group, source)
            if chains is not None:
                return chains
    raise InputError(
        f"{source} holds no chains that can be judged: expected devinterp's sampling_loss_micro, or a group posterior "
        f"with a variable over chain and draw, got {', '.join([*map(str, variables), *tree.children]) or 'nothing'}"
    )


def _of_store(tree: Any, source: str) -> ForeignChains:
    """The layout of devinterp 2, which `Posterior.save` keeps as well."""
    dataset, attributes = tree.dataset, tree.attrs
    sampler = _inner(_inner(_inner(attributes, "metadata"), "config"), "sampler")
    name = "sampling_loss_micro" if "sampling_loss_micro" in dataset else "sampling_loss"
    if name not in dataset:
        raise InputError(f"{source} has no losses along its chains: neither sampling_loss_micro nor sampling_loss")
    recorded = _values(dataset[name], source)
    losses = recorded.astype(np.float64).reshape(*recorded.shape[:2], -1).mean(2)
    init = (
        float(_values(dataset["init_loss"], source).astype(np.float64).mean()) if "init_loss" in dataset else math.nan
    )
    nbeta = _fact(sampler, "n_beta")
    step = _fact(sampler, "lr")
    native = "basinscope" in attributes
    squared = math.nan
    if {"metrics_scaled_grad", "metrics_localization"} <= set(dataset.data_vars) and step > 0:
        pulls = (
            _values(dataset["metrics_scaled_grad"], source) ** 2 + _values(dataset["metrics_localization"], source) ** 2
        )
        squared = float(pulls.mean()) * (2 / step) ** 2
    return ForeignChains(
        losses,
        f"{source}: {'basinscope' if native else 'devinterp 2'}",
        recorded.ravel()[: 10**6],
        init,
        _fact(attributes, "llc") if native else nbeta * (float(losses.mean()) - init),
        0,
        nbeta,
        _fact(sampler, "localization"),
        step,
        _fact(sampler, "batch_size"),
        _fact(sampler, "samples"),
        _fact(attributes, "metrics_numel"),
        squared,
        attributes.get("completed") == 1,
    )


def _of_group(dataset: Any, wanted: str | None, group: str, source: str) -> ForeignChains | None:
    """The first variable of an ArviZ group over (chain, draw), as a mean over its other axes."""
    names = [wanted] if wanted else list(dataset.data_vars)
    for name in names:
        if name in dataset and {"chain", "draw"} <= set(dataset[name].dims):
            recorded = _values(dataset[name].transpose("chain", "draw", ...), source)
            values = recorded.astype(np.float64).reshape(*recorded.shape[:2], -1).mean(2)
            sign = 1.0 if group == "posterior" else -1.0
            return ForeignChains(sign * values, f"{source}: ArviZ, {group}/{name}", recorded.ravel()[: 10**6])
    return None


def _values(variable: Any, source: str) -> NDArray[Any]:
    if variable.nbytes > LIMIT:
        raise InputError(
            f"{variable.name} of {source} takes {variable.nbytes / 2**30:.1f} GiB — pass means over tokens"
        )
    try:
        return np.asarray(variable.values)
    except Exception as error:  # whatever the storage libraries raise on a damaged chunk
        raise InputError(f"{variable.name} of {source} cannot be read ({error}) — the file may be cut off") from error


def _inner(facts: Any, name: str) -> dict[str, Any]:
    """The facts below a name, if there are any."""
    inner = facts.get(name)
    return dict(inner) if isinstance(inner, Mapping) else {}


def _fact(facts: Mapping[str, Any], name: str) -> float:
    value = facts.get(name)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else math.nan
