"""Frozen dataclasses whose values are checked against their declared types, everything wrong being told at once."""

from __future__ import annotations

import math
import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cache
from numbers import Integral, Real
from typing import Any, Literal, Union, dataclass_transform, get_args, get_origin, get_type_hints

from ..errors import InputError
from ..objects import nearest

Place = tuple[str, ...]  # names of fields and numbers of items that lead to a value

_LISTS = {list: list, tuple: tuple, Sequence: tuple}
_MAPPINGS = (dict, Mapping)
_SPOKEN = {bool: "true or false", int: "a whole number", float: "a finite number", str: "text", type(None): "null"}


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Record:
    """A frozen dataclass of plain values; to subclass it is to declare one.

    Fields may be numbers, text, truth values, literals, lists, tuples and mappings of them, other records, and unions
    of all these; records in a union are told apart by a field that is a literal in each. A whole number is taken where
    a float is wanted, and a list where a tuple is. Numbers must be finite.

    Examples:
        >>> class Network(Record):
        ...     widths: tuple[int, ...]
        ...     rate: float = 0.1
        >>> Network(widths=[8, 4], rate=1)
        Network(widths=(8, 4), rate=1.0)
        >>> Network(widths=[8, "x"])
        Traceback (most recent call last):
        ...
        basinscope.errors.InputError: Network: field 'widths.1' = 'x': expected a whole number
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        dataclass(frozen=True, kw_only=True)(cls)
        if any(field.name == "config" for field in fields(cls)):  # type: ignore[arg-type]
            raise InputError(f"{cls.__name__} cannot have a field 'config', its method's name — choose another")

    def __post_init__(self) -> None:
        for name, value in _read(type(self), vars(self), type(self).__name__, "field").items():
            object.__setattr__(self, name, value)

    def config(self) -> dict[str, Any]:
        """The record as plain values, as JSON has them.

        Examples:
            >>> class Training(Record):
            ...     widths: tuple[int, ...]
            ...     seed: int = 0
            >>> Training(widths=(8, 4)).config()
            {'widths': [8, 4], 'seed': 0}
        """
        return {name: _as_plain(value) for name, value in vars(self).items()}


def record(kind: Any, values: Mapping[str, Any], owner: str, noun: str) -> Any:
    """A record from plain values, or an InputError that tells everything wrong with them.

    Args:
        kind: its class, or a union of classes that a field tells apart.
        values: of the fields, by name.
        owner, noun: whose values these are and what one of them is called, for the error.

    Examples:
        >>> class Training(Record):
        ...     width: int
        ...     rate: float = 0.1
        >>> record(Training, {"width": 8}, "study 'small'", "setting")
        Training(width=8, rate=0.1)
        >>> record(Training, {"widht": 8, "rate": "fast"}, "study 'small'", "setting")
        Traceback (most recent call last):
        ...
        basinscope.errors.InputError: study 'small': unknown setting 'widht' — did you mean 'width'?; setting 'width' is missing; setting 'rate' = 'fast': expected a finite number
    """  # noqa: E501 — an error is one line
    reader = _Reader(noun, [])
    chosen = reader.matching(_arms(kind), values, ())
    parsed = None if chosen is None else reader.fields(chosen, values, ())
    return chosen(**reader.or_refuse(parsed, owner))


def _read(kind: type[Record], values: Mapping[str, Any], owner: str, noun: str) -> dict[str, Any]:
    reader = _Reader(noun, [])
    return reader.or_refuse(reader.fields(kind, values, ()), owner)


@dataclass
class _Reader:
    """Turns values into what types want, and collects what is wrong with them."""

    noun: str
    problems: list[str]

    def or_refuse(self, parsed: Any, owner: str) -> Any:
        if self.problems:
            raise InputError(f"{owner}: {'; '.join(self.problems)}")
        return parsed

    def fields(self, kind: Any, values: Mapping[str, Any], path: Place) -> dict[str, Any]:
        """The fields of a record from values by name."""
        hints, parsed = _hints(kind), {}
        for name in values:
            if name not in hints:
                self.problems.append(f"unknown {self.noun} {_dotted(path, name)!r} — {nearest(name, hints)}")
        for field in fields(kind):
            if field.name in values:
                parsed[field.name] = self.value(hints[field.name], values[field.name], (*path, field.name))
            elif field.default is MISSING and field.default_factory is MISSING:
                self.problems.append(f"{self.noun} {_dotted(path, field.name)!r} is missing")
        return parsed

    def value(self, hint: Any, value: Any, path: Place) -> Any:
        """A value as a type wants it."""
        origin, arguments = get_origin(hint) or hint, get_args(hint)
        if hint is Any:
            return value
        if origin in (Union, types.UnionType):
            return self.one_of(hint, value, path)
        if _is_record(hint):
            if not isinstance(value, Mapping):
                return value if isinstance(value, hint) else self.refuse(hint, value, path)
            before = len(self.problems)
            parsed = self.fields(hint, value, path)
            return hint(**parsed) if len(self.problems) == before else None
        if origin in _LISTS:
            return self.items(hint, _LISTS[origin], arguments, value, path)
        if origin in _MAPPINGS:
            if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
                return self.refuse(hint, value, path)
            inner = arguments[1] if arguments else Any
            return {name: self.value(inner, item, (*path, name)) for name, item in value.items()}
        if not _fits(origin, arguments, value):
            return self.refuse(hint, value, path)
        return origin(value) if origin in (int, float) else value

    def items(self, hint: Any, kind: Any, arguments: tuple[Any, ...], value: Any, path: Place) -> Any:
        """A list or tuple, its items one by one."""
        if not isinstance(value, (list, tuple)):
            return self.refuse(hint, value, path)
        item_types: Sequence[Any] = [arguments[0] if arguments else Any] * len(value)
        if kind is tuple and arguments and arguments[-1] is not ... and get_origin(hint) is tuple:
            if len(value) != len(arguments):
                return self.refuse(hint, value, path)
            item_types = arguments
        return kind(
            self.value(inner, item, (*path, str(n)))
            for n, (inner, item) in enumerate(zip(item_types, value, strict=True))
        )

    def one_of(self, hint: Any, value: Any, path: Place) -> Any:
        """A value as the type of a union that it has already, else as the first that takes it."""
        records = [arm for arm in get_args(hint) if _is_record(arm)]
        if isinstance(value, Mapping) and records:
            chosen = self.matching(records, value, path)
            return None if chosen is None else self.value(chosen, value, path)
        results = []
        for arm in get_args(hint):
            trial = _Reader(self.noun, [])
            result = trial.value(arm, value, path)
            if not trial.problems:
                results.append(result)
        if not results:
            return self.refuse(hint, value, path)
        return next((result for result in results if type(result) is type(value)), results[0])

    def matching(self, records: Sequence[Any], values: Mapping[str, Any], path: Place) -> Any:
        """The record of a union that values are for, by the field that is a literal in each of them."""
        if len(records) == 1:
            return records[0]
        for name in _hints(records[0]):
            if all(get_origin(_hints(kind).get(name)) is Literal for kind in records):
                kinds = {tag: kind for kind in records for tag in get_args(_hints(kind)[name])}
                if name not in values:
                    self.problems.append(f"{self.noun} {_dotted(path, name)!r} is missing")
                    return None
                chosen = next((kind for tag, kind in kinds.items() if tag == values[name]), None)
                if chosen is None:
                    self.refuse(Literal[tuple(kinds)], values[name], (*path, name))
                return chosen
        names = ", ".join(kind.__name__ for kind in records)
        raise InputError(f"{names} cannot be told apart — give each a field that is a literal of its own")

    def refuse(self, hint: Any, value: Any, path: Place) -> None:
        self.problems.append(f"{self.noun} {_dotted(path)!r} = {value!r}: expected {_spoken(hint)}")


@cache
def _hints(kind: Any) -> dict[str, Any]:
    """The types of a record's fields; InputError for one whose values cannot be checked."""
    try:
        hints = get_type_hints(kind)
    except NameError as error:
        raise InputError(f"{kind.__name__}: {error} — declare types at the top level of a module") from None
    field_types = {field.name: hints[field.name] for field in fields(kind)}
    for name, hint in field_types.items():
        _insist(hint, f"{kind.__name__}.{name}")
    return field_types


def _insist(hint: Any, where: str) -> None:
    origin = get_origin(hint) or hint
    if origin is Literal or hint in (Any, ...) or _is_record(hint) or origin in _SPOKEN:
        return
    if origin not in (*_LISTS, *_MAPPINGS, Union, types.UnionType):
        raise InputError(
            f"{where} has type {getattr(hint, '__name__', hint)}, whose values cannot be kept — expected "
            f"numbers, text, truth values, literals, lists, tuples or mappings of them, or records"
        )
    for inner in get_args(hint):
        _insist(inner, where)


def _fits(origin: Any, arguments: tuple[Any, ...], value: Any) -> bool:
    if origin is Literal:
        return any(value == tag and type(value) is type(tag) for tag in arguments)
    if origin is int:
        return not isinstance(value, bool) and (
            isinstance(value, Integral) or (isinstance(value, float) and value.is_integer())
        )
    if origin is float:
        return not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)
    return isinstance(value, origin)


def _is_record(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Record)


def _arms(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


def _dotted(path: Place, *more: str) -> str:
    return ".".join((*path, *more))


def _spoken(hint: Any) -> str:
    """What a type takes, in words."""
    origin, arguments = get_origin(hint) or hint, get_args(hint)
    if origin is Literal:
        return f"one of {', '.join(map(repr, arguments))}" if len(arguments) > 1 else repr(arguments[0])
    if origin in (Union, types.UnionType):
        return " or ".join(map(_spoken, arguments))
    if origin in _LISTS:
        counted = origin is tuple and arguments and arguments[-1] is not ...
        return f"a list of {len(arguments)}" if counted else "a list"
    return _SPOKEN.get(origin, "a mapping")


def _as_plain(value: Any) -> Any:
    if isinstance(value, Record):
        return value.config()
    if isinstance(value, (list, tuple)):
        return [_as_plain(item) for item in value]
    return {name: _as_plain(item) for name, item in value.items()} if isinstance(value, Mapping) else value
