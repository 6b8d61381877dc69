"""Records: what their types take, what they refuse, and in which words."""

import json
import math
from dataclasses import FrozenInstanceError, field, replace
from typing import Any, Literal

import numpy as np
import pytest

from basinscope.errors import InputError
from basinscope.runs.records import Record, record


class Cat(Record):
    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(Record):
    kind: Literal["dog"] = "dog"
    walks: tuple[float, ...]


class Home(Record):
    name: str
    open: bool = True
    rate: float | None = None
    mode: Literal["auto", 3] = "auto"
    pair: tuple[int, str] = (1, "a")
    grid: dict[str, list[Any]] = field(default_factory=dict)
    pet: Cat | Dog = Cat()
    size: int | float = 1


def home(**values):
    return record(Home, {"name": "a", **values}, "my home", "entry")


@pytest.mark.parametrize(
    ("name", "given", "taken"),
    [
        ("rate", 1, 1.0),
        ("rate", None, None),
        ("rate", np.float32(0.5), 0.5),
        ("mode", 3, 3),
        ("pair", [2.0, "b"], (2, "b")),
        ("grid", {"a": (1, "x")}, {"a": [1, "x"]}),
        ("pet", {"kind": "dog", "walks": [1, 2]}, Dog(walks=(1.0, 2.0))),
        ("pet", {"kind": "cat"}, Cat()),
        ("pet", Dog(walks=()), Dog(walks=())),
        ("size", 2.0, 2.0),
        ("size", 2, 2),
    ],
)
def test_values_become_what_their_types_want(name, given, taken):
    found = getattr(home(**{name: given}), name)
    assert found == taken
    assert type(found) is type(taken)
    assert getattr(Home(name="a", **{name: given}), name) == taken


@pytest.mark.parametrize(
    ("name", "given", "told"),
    [
        ("name", 3, "entry 'name' = 3: expected text"),
        ("open", 1, "entry 'open' = 1: expected true or false"),
        ("rate", math.nan, "entry 'rate' = nan: expected a finite number or null"),
        ("rate", math.inf, "entry 'rate' = inf: expected a finite number or null"),
        ("rate", "1.0", "entry 'rate' = '1.0': expected a finite number or null"),
        ("rate", True, "entry 'rate' = True: expected a finite number or null"),
        ("mode", "fast", "entry 'mode' = 'fast': expected one of 'auto', 3"),
        ("pair", [1], "entry 'pair' = [1]: expected a list of 2"),
        ("pair", "ab", "entry 'pair' = 'ab': expected a list of 2"),
        ("pair", [1.5, "b"], "entry 'pair.0' = 1.5: expected a whole number"),
        ("grid", [], "entry 'grid' = []: expected a mapping"),
        ("grid", {"a": 3}, "entry 'grid.a' = 3: expected a list"),
        ("pet", {"kind": "cow"}, "entry 'pet.kind' = 'cow': expected one of 'cat', 'dog'"),
        ("pet", {"kind": []}, "entry 'pet.kind' = []: expected one of 'cat', 'dog'"),
        ("pet", {}, "entry 'pet.kind' is missing"),
        ("pet", {"kind": "dog"}, "entry 'pet.walks' is missing"),
        ("pet", {"kind": "cat", "live": 3}, "unknown entry 'pet.live' — did you mean 'lives'?"),
        ("pet", {"kind": "dog", "walks": [1, "x"]}, "entry 'pet.walks.1' = 'x': expected a finite number"),
        ("pet", 3, "entry 'pet' = 3: expected a mapping or a mapping"),
        ("size", "x", "entry 'size' = 'x': expected a whole number or a finite number"),
    ],
)
def test_what_is_refused_is_told_with_its_path(name, given, told):
    with pytest.raises(InputError) as error:
        home(**{name: given})
    assert str(error.value) == f"my home: {told}"


def test_everything_wrong_is_told_at_once():
    with pytest.raises(InputError) as error:
        record(Home, {"nam": "a", "rate": "x", "pet": {"kind": "cat", "lives": 1.5}}, "my home", "entry")
    told = str(error.value)
    assert "unknown entry 'nam' — did you mean 'name'?" in told
    assert "entry 'name' is missing" in told
    assert "entry 'rate' = 'x'" in told
    assert "entry 'pet.lives' = 1.5" in told


def test_a_record_is_frozen_equal_by_value_and_goes_through_json():
    one = home(pet={"kind": "dog", "walks": [1]}, grid={"a": [1, [2]]})
    assert record(Home, json.loads(json.dumps(one.config())), "my home", "entry") == one
    assert hash(Dog(walks=[1])) == hash(Dog(walks=(1.0,)))
    assert replace(one, name="b").config() == {**one.config(), "name": "b"}
    with pytest.raises(FrozenInstanceError):
        one.name = "b"
    with pytest.raises(InputError, match="Home: field 'name' = 3: expected text"):
        replace(one, name=3)


def test_a_union_whose_parts_no_field_tells_apart_is_refused():
    class Plain(Record):
        lives: int = 9

    with pytest.raises(InputError, match="Cat, Plain cannot be told apart"):
        record(Cat | Plain, {"lives": 3}, "my home", "entry")
