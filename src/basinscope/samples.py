"""The data of a landscape: every sample resident in memory, addressed by index."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, default_collate

from .errors import InputError

Tree = Any  # a tensor, or a tuple or dict of trees: the inputs of a model, or the targets of a loss
_WITHOUT_ARITHMETIC = (torch.uint16, torch.uint32, torch.uint64)  # torch stores these, but computes nothing with them
_MOST_BATCHES = 2**20  # of a source without a length, which may have no end
TARGET_KEYS = ("labels", "label", "target", "targets", "y")


def map_tensors(function: Callable[[Tensor], Tensor], tree: Tree) -> Tree:
    """Apply `function` to every tensor of a tuple/dict tree; None stays None."""
    if isinstance(tree, Tensor):
        return function(tree)
    if isinstance(tree, Mapping):
        return {key: map_tensors(function, value) for key, value in tree.items()}
    if isinstance(tree, (tuple, list)):
        return tuple(map_tensors(function, value) for value in tree)
    if tree is None:
        return None
    raise InputError(f"data must be made of tensors, got {type(tree).__name__} — convert it with torch.as_tensor")


def tensors(tree: Tree) -> list[Tensor]:
    """Every tensor of a tree, in order."""
    leaves: list[Tensor] = []

    def collect(tensor: Tensor) -> Tensor:
        leaves.append(tensor)
        return tensor

    map_tensors(collect, tree)
    return leaves


def digest(values: Iterable[Tensor]) -> str:
    """A digest of tensors: their bytes, types and shapes.

    Examples:
        >>> digest([torch.zeros(2)]) == digest([torch.zeros(2)]) != digest([torch.zeros(2, 1)])
        True
    """
    sha256 = hashlib.sha256()
    for tensor in values:
        sha256.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
        sha256.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return sha256.hexdigest()


@dataclass(frozen=True)
class Samples:
    """`n` samples: a tree of inputs and a tree of targets, every tensor with leading axis n."""

    inputs: Tree
    target: Tree
    n: int

    def take(self, indices: Tensor | slice | int) -> Samples:
        """The samples at `indices`, in that order; an index array of more axes gives the samples the same axes."""
        inputs = map_tensors(lambda tensor: _rows(tensor, indices), self.inputs)
        target = map_tensors(lambda tensor: _rows(tensor, indices), self.target)
        return Samples(inputs, target, len(tensors((inputs, target))[0]))

    def digest(self) -> str:
        """A digest of all inputs and targets, by which the same data are recognized."""
        return digest(tensors((self.inputs, self.target)))

    def to(self, device: torch.device) -> Samples:
        """The same samples on `device`."""

        def move(tree: Tree) -> Tree:
            return map_tensors(lambda tensor: tensor.to(device, non_blocking=True), tree)

        return Samples(move(self.inputs), move(self.target), self.n)

    @property
    def device(self) -> torch.device:
        return tensors((self.inputs, self.target))[0].device

    @property
    def bytes(self) -> int:
        """Memory the samples take."""
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors((self.inputs, self.target)))


def _rows(tensor: Tensor, indices: Tensor | slice | int) -> Tensor:
    """`tensor[indices]`, by `index_select` where the indices are sample numbers, which is quicker."""
    if isinstance(indices, Tensor) and indices.dtype in (torch.int32, torch.int64):
        return tensor.index_select(0, indices.flatten()).view(*indices.shape, *tensor.shape[1:])
    return tensor[indices]


def _as_tensors(tree: Any) -> Tree:
    """A tree of arrays and numbers as one of dense tensors."""
    if isinstance(tree, np.ndarray) and not tree.flags.writeable:
        tree = tree.copy()  # torch warns of arrays it must not write to
    if isinstance(tree, (Tensor, np.ndarray, np.generic, int, float, bool)):
        return dense(tree)
    if isinstance(tree, Mapping):
        return {key: _as_tensors(value) for key, value in tree.items()}
    if isinstance(tree, (tuple, list)):
        return tuple(_as_tensors(value) for value in tree)
    if tree is None:
        return None
    raise InputError(f"data must be made of tensors or arrays, got {type(tree).__name__}")


def dense(values: Any) -> Tensor:
    """An array as a dense tensor of numbers that torch can compute with.

    Examples:
        >>> dense(np.array([1.0, 2.0])).tolist()
        [1.0, 2.0]
    """
    if isinstance(values, np.ndarray) and values.dtype.kind not in "biufc":
        raise InputError(f"data must be numbers, got an array of dtype {values.dtype} — encode it as numbers first")
    try:
        tensor = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"expected an array of numbers, got {type(values).__name__}: {error}") from error
    if tensor.layout != torch.strided or tensor.is_nested:
        kind = "nested" if tensor.is_nested else str(tensor.layout).removeprefix("torch.")
        raise InputError(f"data must be dense tensors, got a {kind} one — convert it with .todense(), or pad it")
    return tensor.to(torch.int64) if tensor.dtype in _WITHOUT_ARITHMETIC else tensor


def _split(batch: Any) -> tuple[Tree, Tree]:
    """A batch as (inputs, target): a pair, a longer tuple whose last entry is the target, or a dict with labels."""
    if isinstance(batch, Mapping):
        for key in TARGET_KEYS:
            if key in batch:
                return {name: value for name, value in batch.items() if name != key}, batch[key]
        raise InputError(f"a dict batch needs a target under one of {TARGET_KEYS}, got keys {sorted(batch)}")
    if isinstance(batch, (tuple, list)) and len(batch) >= 2:
        inputs = batch[0] if len(batch) == 2 else tuple(batch[:-1])
        return inputs, batch[-1]
    raise InputError(
        f"data must come as (inputs, target), got {type(batch).__name__} — pass data=(x, y), a Dataset of (x, y) "
        f"items, or an iterable of (x, y) batches"
    )


def _structure(tree: Tree) -> str:
    """What a tree is made of, one level deep."""
    if isinstance(tree, Mapping):
        return f"a dict of {sorted(map(str, tree))}"
    return f"{len(tree)} tensors" if isinstance(tree, tuple) else "None" if tree is None else "a tensor"


def concatenate(pieces: Sequence[Tree]) -> Tree:
    """Trees of one structure joined along the sample axis."""
    first = pieces[0]
    if any(_structure(piece) != _structure(first) for piece in pieces):
        raise InputError(
            f"batches must be made alike, got {_structure(first)} and "
            f"{next(_structure(piece) for piece in pieces if _structure(piece) != _structure(first))}"
        )
    if isinstance(first, Tensor):
        try:
            return torch.cat(list(pieces))
        except RuntimeError as error:
            shapes = sorted({tuple(piece.shape[1:]) for piece in pieces})
            raise InputError(
                f"batches must agree in shape beyond the sample axis, got {shapes} — pad or crop"
            ) from error
    if isinstance(first, Mapping):
        return {key: concatenate([piece[key] for piece in pieces]) for key in first}
    if first is None:
        return None
    return tuple(concatenate([piece[i] for piece in pieces]) for i in range(len(first)))


def _is_arrays(data: Any) -> bool:
    """Whether `data` is the whole data set in arrays, rather than a sequence of batches or of samples."""
    leaf = (Tensor, np.ndarray)
    if not isinstance(data, (tuple, list)) or len(data) < 2:
        return False
    *inputs, target = data
    return isinstance(target, leaf) and all(
        isinstance(x, leaf) or (isinstance(x, (tuple, Mapping)) and len(x) > 0) for x in inputs
    )


def read(data: Any) -> Samples:
    """Bring tensors, a Dataset or an iterable of batches into one set of resident samples.

    Examples:
        >>> import torch
        >>> read((torch.zeros(5, 2), torch.zeros(5))).n
        5
        >>> read([(torch.zeros(3, 2), torch.zeros(3)), (torch.zeros(2, 2), torch.zeros(2))]).n
        5
    """
    if isinstance(data, Samples):
        return data
    if _is_arrays(data) or isinstance(data, Mapping):
        inputs, target = (_as_tensors(part) for part in _split(data))
    else:
        if isinstance(data, Dataset) and not isinstance(data, DataLoader):
            data = DataLoader(data, batch_size=256, collate_fn=default_collate)
        if not isinstance(data, Iterable):
            raise InputError(
                f"data must be tensors (x, y), a Dataset or an iterable of batches, got {type(data).__name__}"
            )
        batches = _batches(data)
        if not batches:
            raise InputError("data is empty: expected at least one batch")
        if any(tensor.ndim == 0 for batch in batches for tensor in tensors(batch)):
            raise InputError(
                "batches need a leading sample axis, got a number: these look like single samples — pass them as a "
                "Dataset, or stacked as data=(x, y)"
            )
        inputs = concatenate([batch[0] for batch in batches])
        target = concatenate([batch[1] for batch in batches])
    return _checked(inputs, target)


def _batches(data: Iterable[Any]) -> list[tuple[Tree, Tree]]:
    """All batches, copied: a generator may fill the same arrays again."""
    batches = []
    try:
        for batch in data:
            inputs, target = (map_tensors(torch.clone, _as_tensors(part)) for part in _split(batch))
            batches.append((inputs, target))
            if len(batches) > _MOST_BATCHES:
                raise InputError(
                    f"data give more than {_MOST_BATCHES:,} batches, and perhaps no end — pass larger batches, or so "
                    f"many of them as are meant"
                )
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"data cannot be read: {type(error).__name__} after {len(batches)} batches: {error} — "
            f"list(data) must work, with batches of tensors"
        ) from error
    return batches


def _checked(inputs: Tree, target: Tree) -> Samples:
    """The samples, refused where they disagree in number or are not finite."""
    leaves = tensors((inputs, target))
    if not leaves or any(leaf.ndim == 0 for leaf in leaves):
        raise InputError("every data tensor needs a leading sample axis, got a tensor without axes")
    counts = {len(leaf) for leaf in leaves}
    if len(counts) > 1:
        raise InputError(f"inputs and target disagree on the number of samples: got {sorted(counts)}")
    (n,) = counts
    if n == 0:
        raise InputError("data is empty: expected at least one sample")
    for leaf in leaves:
        if leaf.device.type != "meta" and leaf.is_floating_point() and not bool(torch.isfinite(leaf).all()):
            bad = (
                int((~torch.isfinite(leaf)).flatten(1).any(1).sum())
                if leaf.ndim > 1
                else int((~torch.isfinite(leaf)).sum())
            )
            raise InputError(f"data contain NaN or infinite values in {bad} of {n} samples — clean or drop them")
    return Samples(inputs, target, n)
