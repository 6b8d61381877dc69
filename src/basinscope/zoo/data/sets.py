"""A data set: inputs and targets for training and for testing."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from ...checks import whole
from ...errors import InputError

Pair = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class DataSet:
    """Inputs and targets for training and for testing; `classes` is None where the targets are not labels.

    Examples:
        >>> import torch
        >>> pair = (torch.zeros(6, 2), torch.zeros(6, dtype=torch.long))
        >>> DataSet("zeros", pair, pair, 1).first(train=4)
        DataSet(zeros: 4 + 6 samples of shape (2,), 1 classes)
    """

    name: str
    train: Pair
    test: Pair
    classes: int | None = None

    def first(self, train: int | None = None, test: int | None = None) -> DataSet:
        """The same data with only the first so many samples."""
        return replace(
            self,
            train=_first(self.name, "training", self.train, train),
            test=_first(self.name, "test", self.test, test),
        )

    def __repr__(self) -> str:
        shape = tuple(self.train[0].shape[1:])
        classes = "" if self.classes is None else f", {self.classes} classes"
        return f"DataSet({self.name}: {len(self.train[0]):,} + {len(self.test[0]):,} samples of shape {shape}{classes})"


def _first(name: str, part: str, pair: Pair, count: int | None) -> Pair:
    """The first `count` samples of a pair, or all of them."""
    if count is None:
        return pair
    if whole(f"the number of {part} samples", count, least=1) > len(pair[0]):
        raise InputError(
            f"{name} holds {len(pair[0]):,} {part} samples here, {count:,} were asked for — ask for fewer; where the "
            f"folder has a reduced edition, `basinscope data fetch {name}` brings the full one"
        )
    return pair[0][:count], pair[1][:count]
