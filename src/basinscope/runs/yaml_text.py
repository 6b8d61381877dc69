"""YAML as files of studies need it: plain values, each written out once, of bounded size.

Numbers are decimal, truth values are true and false, and everything else is text: no dates, no sexagesimals, no `no`
that means false. Aliases, by which a small file becomes a huge or an endless one, are refused, and so are keys that
come twice and numbers that are not finite.
"""

from __future__ import annotations

import math
import re
from typing import Any, NoReturn

import yaml

from ..errors import InputError

_MOST = 1 << 20  # characters

_RESOLVERS = {
    "bool": (r"true|True|TRUE|false|False|FALSE", "tTfF"),
    "int": (r"[-+]?[0-9]+", "-+0123456789"),
    "float": (r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", "-+.0123456789"),
    "null": (r"~|null|Null|NULL|", "~nN\0"),
}


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[str, list[Any]] = {}  # noqa: RUF012 — filled below

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            self._refuse("an alias", event.start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        keys = [key.value for key, _ in node.value]
        repeated = next((key for key in keys if isinstance(key, str) and keys.count(key) > 1), None)
        if repeated is not None:
            self._refuse(f"key {repeated!r} twice", node.start_mark)
        mapping = super().construct_mapping(node, deep)
        odd = [key for key in mapping if not isinstance(key, str)]
        if odd:
            self._refuse(f"key {odd[0]!r}, which is no text,", node.start_mark)
        return mapping

    def construct_number(self, node: Any) -> float:
        value = float(node.value)
        if not math.isfinite(value):
            self._refuse(f"{node.value[:40]}, which no float holds,", node.start_mark)
        return value

    def construct_whole(self, node: Any) -> int:
        if len(node.value) > 300:
            self._refuse(f"a number of {len(node.value)} digits", node.start_mark)
        return int(node.value)

    def _refuse(self, what: str, mark: Any) -> NoReturn:
        raise InputError(f"line {mark.line + 1} has {what} — write every value out, once")


for _tag, (_pattern, _first) in _RESOLVERS.items():
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), list(_first))
_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.construct_number)
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_whole)


def from_yaml(text: str, source: str) -> Any:
    """The value that a text holds, or an InputError that names its source.

    Examples:
        >>> from_yaml("{rate: 1e-3, when: 2026-01-01, country: no}", "x")
        {'rate': 0.001, 'when': '2026-01-01', 'country': 'no'}
        >>> from_yaml("{a: &b [1], c: *b}", "x")
        Traceback (most recent call last):
        ...
        basinscope.errors.InputError: x cannot be read: line 1 has an alias — write every value out, once
    """
    if len(text) > _MOST:
        raise InputError(f"{source} cannot be read: {len(text):,} characters are more than {_MOST:,}")
    try:
        return yaml.load(text, Loader=_Loader)
    except InputError as error:
        raise InputError(f"{source} cannot be read: {error}") from error
    except RecursionError:
        raise InputError(f"{source} cannot be read: it is nested too deeply") from None
    except (yaml.YAMLError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())[:300]
        raise InputError(f"{source} cannot be read as YAML: {reason}") from error
