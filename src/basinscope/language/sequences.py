"""Token sequences of any number: in memory, memory-mapped, or read from a stream as they are wanted."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..adapters.hugging_face import IGNORED_LABEL, model_data
from ..checks import whole
from ..errors import InputError
from ..samples import Samples

_KEYS = ("input_ids", "attention_mask", "labels")
_SEQUENTIAL = (list, tuple)
Row = dict[str, Tensor]  # one sequence: its tokens, and mask and labels where it has them


class Sequences(ABC):
    """Sequences of tokens, each a sample, with the next tokens as targets.

    Attributes:
        n: how many there are.
        indexable: whether each has a number, by which it can be had again.
    """

    indexable: bool

    def __init__(self, n: int) -> None:
        if n < 1:
            raise InputError("data hold no sequence: expected at least one")
        self.n = n

    @abstractmethod
    def ordered(self, size: int) -> Iterator[Samples]:
        """All of them once, in order, in pieces of at most that many."""

    def first(self, size: int) -> Samples:
        """The first ones."""
        return next(self.ordered(min(size, self.n)))


class Numbered(Sequences):
    """Sequences that have numbers.

    Args:
        fetch: the sequences of given numbers.
        n: how many there are.
    """

    indexable = True

    def __init__(self, fetch: Callable[[list[int]], Samples], n: int) -> None:
        super().__init__(n)
        self._fetch = fetch

    def take(self, numbers: Tensor) -> Samples:
        """The sequences of these numbers."""
        return self._fetch(numbers.tolist())

    def ordered(self, size: int) -> Iterator[Samples]:
        for start in range(0, self.n, size):
            yield self._fetch(list(range(start, min(self.n, start + size))))


class Streamed(Sequences):
    """The first n sequences of what can be iterated again and again.

    Args:
        source: gives sequences, or batches of them.
        n: how many of them are the data.
    """

    indexable = False

    def __init__(self, source: Iterable[Any], n: int) -> None:
        super().__init__(n)
        self._source = source
        self._rows: Iterator[Row] | None = None

    def ordered(self, size: int) -> Iterator[Samples]:
        rows = self._once()
        while piece := list(itertools.islice(rows, size)):
            yield _stacked(piece)

    def onwards(self, size: int) -> Samples:
        """The next ones, from where the last call ended; after the last sequence comes the first."""
        rows: list[Row] = []
        while len(rows) < size:
            self._rows = self._once() if self._rows is None else self._rows
            more = list(itertools.islice(self._rows, size - len(rows)))
            rows += more
            if not more:
                self._rows = None
        return _stacked(rows)

    def _once(self) -> Iterator[Row]:
        count = 0
        for row in itertools.islice(_rows_of(self._source), self.n):
            count += 1
            yield row
        if count < self.n:
            raise InputError(
                f"the stream ended after {count:,} sequences: expected sequences={self.n:,} of them — state as many as "
                f"there are, and pass what can be iterated again, such as a DataLoader, not a generator"
            )


def read_sequences(data: Any, length: int | None = None, sequences: int | None = None) -> Sequences:
    """Sequences of whatever people keep tokens in.

    Args:
        data: token numbers (n, T), a stream of them (tokens,) that is cut into pieces of `length`, dicts with
            `input_ids`, a data set with numbers, or batches that can be iterated again, such as a `DataLoader`.
            Arrays that are memory-mapped stay on the disk.
        length: of the pieces of a stream of tokens.
        sequences: how many of the data to use, counted from the first: all, unless given; streams need it.

    Examples:
        >>> read_sequences(torch.arange(10), length=4).n
        2
        >>> read_sequences(torch.arange(10), length=4).first(1).target.tolist()
        [[1, 2, 3, -100]]
    """
    most = None if sequences is None else whole("sequences", sequences, 1)
    if isinstance(data, Samples):
        return Numbered(lambda numbers: data.take(torch.tensor(numbers)), _fewer(data.n, most))
    if isinstance(data, (Tensor, np.ndarray)):
        return _of_array(data, length, most)
    if isinstance(data, Mapping):
        samples = model_data({name: torch.as_tensor(value) for name, value in data.items()}, causal=True)
        return read_sequences(samples, None, most)
    if hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        return Numbered(lambda numbers: _stacked(_items(data, numbers)), _fewer(len(data), most))
    if not isinstance(data, Iterable) or isinstance(data, (str, bytes)):
        raise InputError(
            f"data must be token numbers, a data set of them, or batches that can be iterated again, got "
            f"{type(data).__name__} — a text becomes tokens by the model's tokenizer"
        )
    known = getattr(getattr(data, "dataset", None), "__len__", None)
    if most is None and known is None:
        raise InputError("how many sequences a stream has is not known — pass sequences=… with the number to use")
    if iter(data) is data:
        raise InputError("a generator is read once alone — pass what can be iterated again, or tensors")
    return Streamed(data, int(known()) if most is None else most)  # type: ignore[misc]


def _of_array(data: Tensor | np.ndarray[Any, Any], length: int | None, most: int | None) -> Sequences:
    """Rows of token numbers, or pieces of a stream of them; nothing is read yet."""
    if data.ndim == 2:
        return Numbered(lambda numbers: _next_tokens(_tokens(data[numbers])), _fewer(len(data), most))
    if data.ndim != 1:
        raise InputError(f"token numbers must have shape (n, T) or (tokens,), got {tuple(data.shape)}")
    if length is None:
        raise InputError("a stream of tokens needs length=…, the number of tokens of a sequence")
    size = whole("length", length, 2)

    def pieces(numbers: list[int]) -> Samples:
        return _next_tokens(torch.stack([_tokens(data[number * size : (number + 1) * size]) for number in numbers]))

    return Numbered(pieces, _fewer(len(data) // size, most))


def _fewer(present: int, wanted: int | None) -> int:
    if wanted is not None and wanted > present:
        raise InputError(f"sequences={wanted:,} are more than the data hold: {present:,}")
    return present if wanted is None else wanted


def _tokens(values: Any) -> Tensor:
    """Token numbers as whole numbers of 64 bits."""
    if isinstance(values, str):
        raise InputError("the data hold text: expected token numbers — map the model's tokenizer over them first")
    tensor = values if isinstance(values, Tensor) else torch.from_numpy(np.array(values))
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        raise InputError(f"tokens must be whole numbers, got {tensor.dtype}")
    return tensor.long()


def _next_tokens(tokens: Tensor) -> Samples:
    return model_data({"input_ids": tokens}, causal=True)


def _items(data: Any, numbers: list[int]) -> list[Row]:
    """The items of these numbers, in one call where the data set can."""
    many = getattr(data, "__getitems__", None)
    return [_row(item) for item in (many(numbers) if callable(many) else map(data.__getitem__, numbers))]


def _row(item: Any) -> Row:
    """An item of a data set as one sequence."""
    if isinstance(item, _SEQUENTIAL) and item and not isinstance(item[0], int):
        item = item[0]  # (tokens, …), as of a TensorDataset
    if not isinstance(item, Mapping):
        item = {"input_ids": item}
    if "input_ids" not in item:
        raise InputError(
            f"a sequence needs token numbers under 'input_ids', got {sorted(map(str, item))} — map the model's "
            f"tokenizer over the data first"
        )
    return {name: _tokens(item[name]) for name in _KEYS if item.get(name) is not None}


def _rows_of(source: Iterable[Any]) -> Iterator[Row]:
    """The sequences of a stream one by one, whether it gives these or batches."""
    for item in source:
        row = _row(item)
        if row["input_ids"].ndim == 1:
            yield row
            continue
        for place in range(len(row["input_ids"])):
            yield {name: tensor[place] for name, tensor in row.items()}


def _stacked(rows: Sequence[Row]) -> Samples:
    """Sequences as one batch; shorter ones are filled up at their ends, where no token counts."""
    lengths = [len(row["input_ids"]) for row in rows]
    longest = max(lengths)
    padded = min(lengths) < longest
    names = {name for row in rows for name in row} | ({"attention_mask"} if padded else set())
    batch = {
        name: torch.stack([_filled(row, name, longest) for row in rows]) for name in _KEYS if name in names
    }  # fmt: skip
    return model_data(batch, causal=True)


def _filled(row: Row, name: str, length: int) -> Tensor:
    tokens = row["input_ids"]
    values = row.get(name, torch.ones_like(tokens) if name == "attention_mask" else tokens)
    fill = IGNORED_LABEL if name == "labels" else 0
    return torch.nn.functional.pad(values, (0, length - len(values)), value=fill)
