"""Hooks of a training run: when to measure, what to measure, when to stop."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ..checks import positive, whole
from ..errors import BasinscopeError, InputError
from ..estimates import Estimate
from ..landscape import Landscape

Row = dict[str, Any]
StopRule = Callable[[list[Row]], str | None]


@dataclass(frozen=True)
class TrainingClock:
    """The position in a training run: optimizer steps, batches drawn, and batches in an epoch."""

    step: int
    batches: int
    per_epoch: int

    @property
    def epoch(self) -> float:
        """Passes through the data."""
        return self.batches / self.per_epoch


@dataclass(frozen=True)
class Every:
    """Every so many optimizer steps or epochs, or at the steps that `at` lists; where `start` is set, also before the
    first step.

    Examples:
        >>> before, after = TrainingClock(9, 9, 4), TrainingClock(10, 10, 4)
        >>> Every(steps=5).due(before, after), Every(epochs=1).due(before, after)
        (True, False)
        >>> Every(at=(1, 10, 100)).due(before, after)
        True
    """

    steps: int | None = None
    epochs: float | None = None
    start: bool = False
    at: Collection[int] = ()

    def __post_init__(self) -> None:
        if (self.steps is not None) + (self.epochs is not None) + bool(self.at) != 1:
            raise InputError(
                f"Every needs one of steps, epochs and at, got steps={self.steps!r}, epochs={self.epochs!r} and "
                f"at={self.at!r}"
            )
        for step in self.at:
            whole("at", step, least=1)
        if self.steps is not None:
            whole("steps", self.steps, least=1)
        if self.epochs is not None:
            positive("epochs", self.epochs)

    def due(self, before: TrainingClock, after: TrainingClock) -> bool:
        """Whether a multiple, or a step of the list, was reached between two moments."""
        if self.at:
            return any(before.step < step <= after.step for step in self.at)
        if self.steps is not None:
            return before.step // self.steps < after.step // self.steps
        assert self.epochs is not None
        size = self.epochs * after.per_epoch  # in batches, whole for whole epochs
        return math.floor(before.batches / size) < math.floor(after.batches / size)


@dataclass(frozen=True)
class Measure:
    """A measurement of the landscape, at the weights as they are, every so often.

    A run has one resolution: the nβ and γ at which λ̂ was first measured are kept for all later rows, unless `options`
    name others. γ would follow ‖w‖ otherwise, and values at different γ must not be compared.

    Args:
        function: takes a `Landscape`; returns an `Estimate`, a number, or a mapping of names to these.
        every: when.
        name: of the column; the estimate's or the function's own unless given.
        on: `train` or `validation`, the data of the landscape.
        options: keyword arguments of the function.

    Examples:
        >>> import basinscope as bs
        >>> measure = Measure(bs.trace, Every(epochs=1), options={"rtol": 0.05})
        >>> measure.name
        'trace'
    """

    function: Callable[..., Any]
    every: Every = field(default_factory=lambda: Every(epochs=1))
    name: str = ""
    on: Literal["train", "validation"] = "train"
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.on not in ("train", "validation"):
            raise InputError(f"on must be 'train' or 'validation', got {self.on!r}")
        if not self.name:
            object.__setattr__(self, "name", getattr(self.function, "__name__", type(self.function).__name__))
        if not self.name.isidentifier():
            raise InputError(f"a measurement needs a name of letters, digits and _, got {self.name!r} — pass name=")

    def columns(self, land: Landscape, rows: Sequence[Row] = ()) -> Row:
        """The measurement as columns of a row, at the resolution of the rows before it.

        An estimate gives its value, `…_stderr`, `…_verdict` and, where there are any, `…_warnings`; λ̂ also `…_basin`,
        `…_drop` with their standard errors, `…_at_minimum`, and the resolution `…_nbeta` and `…_gamma`.
        A measurement that refuses the landscape is recorded as failed, with its reason, and the training goes on.
        """
        options = {**self._resolution(rows), **self.options}
        if "progress" not in options and "progress" in self.parameters:
            options["progress"] = False  # the training has a bar of its own
        try:
            result = self.function(land, **options)
        except BasinscopeError as error:
            return self.failed(error)
        if isinstance(result, Mapping):
            return {key: value for name, part in result.items() for key, value in _columns(str(name), part).items()}
        return _columns(self.name, result)

    def failed(self, error: BasinscopeError) -> Row:
        """The columns of a measurement that could not be made."""
        return Estimate.failed(self.name, error).columns()

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """Of the function, by name; none where Python does not know them."""
        try:
            return inspect.signature(self.function).parameters
        except ValueError:  # built in
            return {}

    def _resolution(self, rows: Sequence[Row]) -> Row:
        """nβ and γ of the first row that has them, as far as the function takes them."""
        for row in rows:
            values = {key: row.get(f"{self.name}_{key}") for key in ("nbeta", "gamma")}
            if all(isinstance(value, (int, float)) and math.isfinite(value) for value in values.values()):
                return {key: value for key, value in values.items() if key in self.parameters}
        return {}


def _columns(name: str, result: Any) -> Row:
    """The columns of one result of a measurement."""
    if isinstance(result, Estimate):
        return result.columns(name)
    try:
        return {name: float(result)}
    except (TypeError, ValueError):
        raise InputError(
            f"measurement {name!r} must return an Estimate, a number or a mapping of names to these, got "
            f"{type(result).__name__}"
        ) from None


@dataclass(frozen=True)
class EarlyStop:
    """Stop when a column has not fallen by more than `tolerance` below its best for `patience` rows in a row.

    Examples:
        >>> rule = EarlyStop("validation_loss", patience=2)
        >>> rule([{"step": k, "validation_loss": v} for k, v in enumerate([3.0, 2.0, 2.5, 2.1])])
        'validation_loss has not fallen below 2 for 2 rows'
    """

    on: str = "validation_loss"
    patience: int = 5
    tolerance: float = 0.0

    def __post_init__(self) -> None:
        whole("patience", self.patience, least=1)

    def __call__(self, rows: list[Row]) -> str | None:
        """The reason to stop, if there is one."""
        best, since = math.inf, 0
        for value in _values(rows, self.on):
            if value < best - self.tolerance:
                best, since = value, 0
            else:
                since += 1
        return f"{self.on} has not fallen below {best:g} for {since} rows" if since >= self.patience else None


@dataclass(frozen=True)
class Below:
    """Stop when a column falls to a level: runs stopped at one training loss can be compared.

    Examples:
        >>> Below("train_loss", 0.1)([{"step": 7, "train_loss": 0.05}])
        'train_loss fell to 0.05, not above 0.1'
    """

    on: str
    level: float

    def __call__(self, rows: list[Row]) -> str | None:
        """The reason to stop, if there is one."""
        values = _values(rows, self.on)
        if values and values[-1] <= self.level:
            return f"{self.on} fell to {values[-1]:g}, not above {self.level:g}"
        return None


@dataclass(frozen=True)
class Flat:
    """Stop when columns no longer change: each within `tolerance` of its mean, over its last `window` values.

    Examples:
        >>> rule = Flat(("train_loss", "llc"), window=2, tolerance=0.1)
        >>> rule([{"train_loss": 1.0, "llc": 3.0}, {"train_loss": 0.99}, {"train_loss": 0.98, "llc": 3.1}])
        'train_loss and llc are flat within 0.1 over 2 rows'
    """

    on: tuple[str, ...] = ("train_loss",)
    window: int = 5
    tolerance: float = 0.02

    def __post_init__(self) -> None:
        whole("window", self.window, least=2)
        positive("tolerance", self.tolerance)
        if isinstance(self.on, str) or not self.on:
            raise InputError(f"on must be a tuple of column names, got {self.on!r}")

    def __call__(self, rows: list[Row]) -> str | None:
        """The reason to stop, if there is one."""
        for column in self.on:
            last = _values(rows, column)[-self.window :]
            mean = math.fsum(last) / max(1, len(last))
            if len(last) < self.window or any(abs(value - mean) > self.tolerance * abs(mean) for value in last):
                return None
        return f"{' and '.join(self.on)} are flat within {self.tolerance:g} over {self.window} rows"


def _values(rows: list[Row], column: str) -> list[float]:
    """The values of a column, without rows that lack it."""
    return [row[column] for row in rows if not math.isnan(row.get(column, math.nan))]


def check_columns(rules: Iterable[StopRule], rows: list[Row]) -> None:
    """Refuse rules about columns that none of the rows has."""
    names = {name for row in rows for name in row}
    for rule in rules:
        columns = getattr(rule, "on", ())
        for column in (columns,) if isinstance(columns, str) else columns:
            if column not in names:
                raise InputError(f"no column {column!r} to stop on: the rows have {sorted(names)}")
