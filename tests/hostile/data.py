"""Hostile data and losses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import basinscope as bs
from hostile.networks import R, X, Y
from hostile.outcomes import Case, refused, right, works

NAN, INF = float("nan"), float("inf")


def land(data: Any, loss: Any = "mse", model: nn.Module | None = None, **options: Any) -> bs.Landscape:
    torch.manual_seed(0)
    return bs.Landscape(nn.Linear(4, 3) if model is None else model, loss, data, **options)


def classes(labels: Any, inputs: Any = X) -> bs.Landscape:
    return land((inputs, labels), "cross_entropy")


def but(tensor: Tensor, row: int, value: float) -> Tensor:
    """The tensor with another value in one row."""
    changed = tensor.clone()
    changed[row] = value
    return changed


def reused(numpy: bool = False) -> Iterator[Any]:
    """Batches that are one buffer, filled anew each time."""
    x, y = torch.empty(6, 4), torch.empty(6, 3)
    for start in range(0, 24, 6):
        x.copy_(X[start : start + 6])
        y.copy_(R[start : start + 6])
        yield (x.numpy(), y.numpy()) if numpy else (x, y)


def same_data(measured: bs.Landscape) -> bool:
    return torch.equal(measured.samples.inputs, X) and torch.equal(measured.samples.target, R)


@dataclass
class Rows(Dataset):  # type: ignore[type-arg]
    """A data set whose length and items are what they are said to be, or not."""

    length: int = 24
    ragged: bool = False
    breaks: int = -1

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        if row == self.breaks:
            raise OSError("the disk is gone")
        return (X[row, : 2 + row % 2] if self.ragged else X[row]), R[row]


class Stream(IterableDataset):  # type: ignore[type-arg]
    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return iter(zip(X, R, strict=True))


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, input: Tensor) -> Tensor:
        return self.layer(input)


def mapped(folder: Path) -> bs.Landscape:
    np.save(folder / "x.npy", X.numpy())
    return land((np.load(folder / "x.npy", mmap_mode="r"), R))


_calls = iter(range(10**9))

_DATA: list[Case] = [
    refused("nothing", lambda _: land(None), "data is missing"),
    refused("no samples", lambda _: land((X[:0], R[:0])), "empty"),
    refused("a number", lambda _: land(5), "int"),
    refused("a path", lambda _: land("data.pt"), "str"),
    refused("two texts", lambda _: land(("abc", "def"))),
    refused("an array of texts", lambda _: land((X, np.array(["a"] * 24))), "numbers"),
    refused("labels as a list of texts", lambda _: land((X, ["a"] * 24))),
    refused("an array of objects", lambda _: land((np.array([[1, None]] * 24, dtype=object), R)), "numbers"),
    refused("dates", lambda _: land((np.array(["2026-01-01"] * 24, dtype="datetime64[D]"), R)), "numbers"),
    refused("lists of lists", lambda _: land((X.tolist(), R.tolist()))),
    refused("a NaN input", lambda _: land((but(X, 3, NAN), R)), "NaN"),
    refused("an infinite target", lambda _: land((X, but(R, 20, INF))), "infinite"),
    refused("float64 that overflows float32", lambda _: land((X.double() * 1e300, R)), "infinite"),
    refused("a label too large, late", lambda _: classes(but(Y, 20, 3)), "0..2"),
    refused("a label of -1, late", lambda _: classes(but(Y, 20, -1)), "0..2"),
    refused("every label ignored", lambda _: classes(torch.full((24,), -100)), "-100"),
    refused("labels that are floats", lambda _: classes(Y.float()), ".long()"),
    refused("one-hot labels as floats", lambda _: classes(functional.one_hot(Y, 3).float())),
    refused("one-hot labels as whole numbers", lambda _: classes(functional.one_hot(Y, 3)), "class indices"),
    refused("labels in a column", lambda _: classes(Y[:, None]), "class indices"),
    refused("complex inputs", lambda _: land((X.to(torch.complex64), R)), "dtype"),
    refused("sparse inputs", lambda _: land((X.to_sparse(), R)), "dense"),
    refused("sparse rows", lambda _: land((X.to_sparse_csr(), R)), "dense"),
    refused("a nested tensor", lambda _: land((torch.nested.nested_tensor([X[0], X[1]]), R[:2])), "nested"),
    refused("whole numbers for a linear layer", lambda _: land((torch.ones(24, 4, dtype=torch.int64), R)), "dtype"),
    refused("too few features", lambda _: land((X[:, :3], R)), "shapes"),
    refused("inputs without axes", lambda _: land((torch.tensor(1.0), torch.tensor(1.0))), "axis"),
    refused("targets of another width", lambda _: land((X, R[:, :1])), "shape"),
    refused("more inputs than targets", lambda _: land((X, R[:20])), "disagree"),
    refused("inputs and targets swapped", lambda _: land((Y, X), "cross_entropy")),
    refused("data on the meta device", lambda _: land((X.to("meta"), R.to("meta"))), "meta"),
    refused("Bernoulli targets outside [0, 1]", lambda _: land((X, R), "bernoulli"), "[0, 1]"),
    refused("Bernoulli labels of -1 and 1", lambda _: land((X, R.sign()), "bernoulli"), "[0, 1]"),
    refused("an exhausted generator", lambda _: land(iter(())), "empty"),
    refused("a generator without end", lambda _: land((X[:1], R[:1]) for _ in iter(int, 1)), "no end", slow=True),
    refused("a generator that raises", lambda _: land(1 / 0 for _ in range(1)), "ZeroDivisionError"),
    refused("ragged items", lambda _: land(Rows(ragged=True))),
    refused("an item that cannot be read", lambda _: land(Rows(breaks=13)), "the disk is gone"),
    refused("a data set whose length lies", lambda _: land(Rows(length=40)), "IndexError"),
    refused("batches of different lengths of tuple", lambda _: land([(X, R), (X, X, R)]), "alike"),
    refused("batches of different keys", lambda _: land([{"a": X, "y": R}, {"b": X, "y": R}]), "alike"),
    refused("batches of different widths", lambda _: land([(X, R), (X[:, :3], R)]), "shape"),
    refused("a dict without a target", lambda _: land([{"x": X}]), "labels"),
    refused("a dict key that the model does not take", lambda _: land([{"foo": X, "labels": R}], model=Named()), "foo"),
    refused("single samples as batches", lambda _: land([(1.0, 2.0), (3.0, 4.0)]), "sample axis"),
    refused("inputs alone in two batches", lambda _: land([X[:12]])),
    works("labels in eight bits", lambda _: classes(Y.to(torch.uint8)).n == 24),
    works("labels as truth values", lambda _: classes(Y > 0).n == 24),
    works("labels in NumPy's uint16", lambda _: classes(Y.numpy().astype(np.uint16)).n == 24),
    works("labels in NumPy's uint64", lambda _: classes(Y.numpy().astype(np.uint64)).n == 24),
    works("inputs that need gradients", lambda _: same_data(land((X.clone().requires_grad_(), R)))),
    works("a buffer that a generator fills again", lambda _: same_data(land(reused()))),
    works("a NumPy buffer that a generator fills again", lambda _: same_data(land(reused(numpy=True)))),
    works("two samples that look like (x, y)", lambda _: land([(X[:1], R[:1]), (X[1:2], R[1:2])]).n == 2),
    works("a list [x, y]", lambda _: same_data(land([X, R]))),
    works("an iterable data set", lambda _: same_data(land(Stream()))),
    works("a loader with an uneven last batch", lambda _: same_data(land(DataLoader(TensorDataset(X, R), 7)))),
    works("dicts", lambda _: land({"input": X, "labels": R}, model=Named()).n == 24),
    works("an array mapped from a file that must not be written", lambda folder: same_data(mapped(folder))),
    works("float64 data for a float32 model", lambda _: same_data(land((X.double(), R.double())))),
    works("the network's own tensor as data", lambda _: land((X, R)).relabel(R).n == 24),
]  # fmt: skip


def squares(o: Tensor, t: Tensor) -> Tensor:
    return (o - t).square().sum(1) / 2


_LOSSES: list[Case] = [
    refused("a mean", lambda _: land((X, R), functional.mse_loss), "reduction"),
    refused("nn.CrossEntropyLoss with its mean", lambda _: land((X, Y), nn.CrossEntropyLoss()), "reduction"),
    refused("a float", lambda _: land((X, R), lambda o, t: 1.0), "float"),
    refused("None", lambda _: land((X, R), lambda o, t: None), "NoneType"),
    refused("a list", lambda _: land((X, R), lambda o, t: [1.0] * len(t)), "list"),
    refused("one value too few", lambda _: land((X, R), lambda o, t: squares(o, t)[:-1]), "one value per sample"),
    refused("NaN for one late sample", lambda _: land((X, R), lambda o, t: squares(o, t).masked_fill(t[:, 0] == R[22, 0], NAN)), "NaN"),
    refused("zero or one", lambda _: land((X, Y), lambda o, t: (o.argmax(1) != t).float()), "differentiable"),
    refused("truth values", lambda _: land((X, Y), lambda o, t: o.argmax(1) != t), "bool"),
    refused("an exception", lambda _: land((X, R), lambda o, t: 1 / 0), "ZeroDivisionError"),
    refused("a loss that takes no arguments", lambda _: land((X, R), lambda: None), "TypeError"),
    refused("another scale at each call", lambda _: land((X, R), lambda o, t: squares(o, t) * next(_calls)), "call to call"),
    refused("the mean, once per sample", lambda _: land((X, R), lambda o, t: squares(o, t).mean().expand(len(t))), "others"),
    refused("negatives from the batch", lambda _: land((X, R), lambda o, t: -(o @ o.T).log_softmax(1).diagonal()), "others"),
    refused("the logarithm of what may be negative", lambda _: land((X, R), lambda o, t: o.sum(1).log()), "NaN"),
    refused("an unknown name", lambda _: land((X, R), "mae"), "cross_entropy"),
    refused("a number", lambda _: land((X, R), 3), "unknown loss"),
    refused("a class instead of an instance", lambda _: land((X, R), nn.MSELoss)),
    refused("sigma = 0", lambda _: land((X, R), "gaussian", sigma=0), "positive"),
    refused("sigma = NaN", lambda _: land((X, R), "gaussian", sigma=NAN), "positive"),
    refused("sigma so small that its square is 0", lambda _: land((X, R), "gaussian", sigma=1e-200), "square"),
    refused("sigma for another loss", lambda _: land((X, R), "mse", sigma=1.0), "gaussian"),
    works("NumPy's numbers for sigma", lambda _: land((X, R), "gaussian", sigma=np.float32(0.5)).loss.variance == 0.25),
    works("a column of losses", lambda _: land((X, R), lambda o, t: squares(o, t)[:, None]).n == 24),
    right("far below zero", lambda _: bs.trace(land((X, R), lambda o, t: squares(o, t) - 1e3), progress=False), 3 * (float(X.square().sum()) / 24 + 1)),
]  # fmt: skip

CASES = [*_DATA, *_LOSSES]
