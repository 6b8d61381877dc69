"""Hostile studies, settings and stores: YAML, references, manifests, records, heartbeats."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from basinscope.objects import named_object
from basinscope.report.checkpoints import Subject
from basinscope.report.studies import write_study_page
from basinscope.runs.driver import run
from basinscope.runs.files import Files
from basinscope.runs.identity import canonical
from basinscope.runs.lease import driver
from basinscope.runs.references import find, load
from basinscope.runs.restoring import restore
from basinscope.runs.results import Results
from basinscope.runs.settings import overrides, resolved
from basinscope.runs.status import statuses
from basinscope.runs.store import Store
from basinscope.runs.sweep import Sweep
from basinscope.runs.yaml_text import from_yaml
from hostile.outcomes import Case, refused, works


def square(x: int) -> dict[str, int]:
    return {"square": x * x}


SQUARES = Sweep("squares", square, {"grid": {"x": [1, 2, 3]}})


def store(folder: Path) -> Path:
    """A store of three finished jobs."""
    run(SQUARES, folder / "store", progress=False)
    return folder / "store"


def table(folder: Path) -> list[int]:
    settings = resolved(SQUARES, "smoke")
    return Results(SQUARES, settings, Store(folder)).table["square"].tolist()  # type: ignore[no-any-return]


def written(name: str, text: str | bytes) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        return folder / name

    return make


def declared(text: str | bytes) -> Callable[[Path], Any]:
    return lambda folder: find(str(written("study.yaml", text)(folder)))


_LAUGHS = "a: &a [x]\n" + "\n".join(
    f"{chr(98 + k)}: &{chr(98 + k)} [{', '.join(f'*{chr(97 + k)}' for _ in range(9))}]" for k in range(9)
)

_YAML: dict[str, str | bytes] = {
    "billion laughs": _LAUGHS, "an alias": "a: &x 1\nb: *x", "a list that holds itself": "a: &a [*a]", "a mapping that holds itself": "&a {b: *a}",
    "a merge key": "a: {<<: {b: 1}}\nstudy: x", "100,000 brackets": "[" * 100_000, "100,000 lists": "- " * 100_000 + "x", "a Python object": "!!python/object/apply:os.system ['touch trap']",
    "a tag of its own": "study: !secret x", "a key twice": "study: a\nstudy: b", "an inner key twice": "settings: {a: 1, a: 2}\nstudy: x", "a number for a key": "1: a", "a list for a key": "? [1]\n: a",
    "null for a key": "~: a", "NaN": "study: x\nsettings: {a: .nan}", "an infinite number": "study: x\nsettings: {a: 1e999}", "a number of 400 digits": "study: x\nsettings: {a: " + "9" * 400 + "}",
    "two documents": "study: a\n---\nstudy: b", "no mapping": "[1, 2]", "text": "hello", "nothing": "", "a tab": "study:\tx\n\ty: 1", "NUL": b"study: a\0b", "no UTF-8": b"study: \xff\xfe", "UTF-16": "study: x".encode("utf-16"),
    "two megabytes": "study: " + "x" * (2 << 20), "an unknown entry": "study: quadratics\nshell: rm", "study and function": "study: a\nfunction: b:c", "neither": "title: x",
    "a date for a version": "function: math:sqrt\nversion: 2026-01-01", "text for a grid": "function: math:sqrt\ngrid: abc", "a grid of numbers": "function: math:sqrt\ngrid: {x: 3}",
    "a function that is none": "function: math:pi\ngrid: {x: [1]}", "a function that is not there": "function: math:nothing\ngrid: {x: [1]}", "a module that is not there": "function: nowhere.at_all:f\ngrid: {x: [1]}",
    "a function without a module": "function: f\ngrid: {x: [1]}", "a name that climbs, from a file": "function: ../../etc/passwd:f\ngrid: {x: [1]}",
}  # fmt: skip

_SETTINGS = [
    "",
    "=",
    "a",
    "a=",
    "a==b",
    ".a=1",
    "a.=1",
    "a..b=1",
    "a={",
    "a=[1",
    "a=&x [*x]",
    "a=!!python/name:os.system",
    "a=1e999",
    "a=" + "[" * 5_000,
    "a=\0",
]

_REFERENCES = [
    "",
    ":",
    "a:",
    ":b",
    "os",
    "nowhere:x",
    "os:nothing",
    "/etc/passwd:x",
    "a b:c",
    "../x.py:y",
    "os.py:system",
    "x\0y:z",
    "os:__nothing__",
    "..:x",
    "a..b:c",
    "\u202e:x",
]

_SWEEPS = [
    "sweep:",
    "sweep:{}",
    "sweep:[]",
    "sweep:null",
    "sweep:" + "[" * 10_000,
    'sweep:{"name": 1}',
    "sweep:not json",
    'sweep:{"function": "os:system"}',
    "sweep:NaN",
]

_HEADS = [
    "{",
    "[]",
    "null",
    "5",
    '"x"',
    '{"schema": 999}',
    '{"schema": -5}',
    '{"schema": 0}',
    '{"schema": true}',
    '{"schema": "1"}',
    '{"schema": 1e999}',
    '{"schema": NaN}',
    "{}",
    "[" * 50_000,
    "\0",
    '{"schema": [1]}',
]


def damaged_head(text: str) -> Callable[[Path], Any]:
    def attempt(folder: Path) -> Any:
        (store(folder) / "store.json").write_text(text)
        return run(SQUARES, folder / "store", progress=False)

    return attempt


def survives(change: Callable[[Path], Any]) -> Callable[[Path], Any]:
    """Change a store behind its back: `status`, the next run and the table must go on, and the table be the same."""

    def attempt(folder: Path) -> bool:
        change(store(folder))
        return goes_on(folder / "store")

    return attempt


def goes_on(place: Path) -> bool:
    """Whether `status`, the next run and the table of a store are as they were."""
    statuses(Store(place))
    run(SQUARES, place, progress=False)
    return table(place) == [1, 4, 9]


def record_of(place: Path) -> Path:
    return min(path for path in (place / "results").rglob("*.json"))


def forged(**changes: Any) -> Callable[[Path], Any]:
    """A record with other entries and the seal that fits them."""

    def change(place: Path) -> None:
        path = record_of(place)
        content = {**json.loads(path.read_text()), **changes}
        content = {name: value for name, value in content.items() if value is not ... and name != "digest"}
        content["digest"] = hashlib.sha256(canonical(content).encode()).hexdigest()
        path.write_text(json.dumps(content))

    return change


def every(folder: str, text: str | bytes) -> Callable[[Path], Any]:
    """All files of a folder of the store, with this content."""

    def change(place: Path) -> None:
        for path in list((place / folder).rglob("*")):
            if path.is_file():
                path.write_bytes(text if isinstance(text, bytes) else text.encode())

    return change


def put(name: str, text: str | bytes) -> Callable[[Path], Any]:
    def change(place: Path) -> None:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(text if isinstance(text, bytes) else text.encode())

    return change


def manifest(**changes: Any) -> str:
    return json.dumps(
        {
            "study": "z",
            "title": "t",
            "version": 1,
            "scale": "smoke",
            "settings": {},
            "asked": 1.0,
            "jobs": [["a", "b"]],
            **changes,
        }
    )


_PASSWORDS = [
    {"name": "../../../../../etc/passwd", "sha256": hashlib.sha256(Path("/etc/passwd").read_bytes()).hexdigest()}
]

_CHANGES: dict[str, Callable[[Path], Any]] = {
    "every record cut off": every("results", '{"key":'), "every record nested": every("results", "[" * 50_000), "every result NUL": every("results", b"\0" * 100), "every result empty": every("results", b""),
    "a record without files": forged(files=[]), "a record whose config is a list": forged(config=[1]), "a record without seconds": forged(seconds=...), "a record that names a file outside": forged(files=_PASSWORDS),
    "a record of another key": forged(key="b" * 40), "a record whose files are numbers": forged(files=[1]), "a record finished never": forged(finished=1e300), "a record of text": forged(seconds="x"),
    "a manifest of numbers": put("studies/squares/x.json", manifest(jobs=[1, 2])), "a manifest without most": put("studies/squares/x.json", '{"study": 5}'), "a manifest that is a list": put("studies/squares/x.json", "[]"),
    "a manifest asked at NaN": put("studies/squares/x.json", manifest(asked=float("nan"))), "a manifest asked by text": put("studies/squares/x.json", manifest(asked="x")), "a manifest nested": put("studies/squares/x.json", "[" * 50_000),
    "a manifest of another study": put("studies/z/x.json", manifest()), "every manifest garbage": every("studies", b"\xff\xfe"), "a failure that is a list": put("failures/abc.json", "[1]"), "a failure that is garbage": put("failures/abc.json", "{"),
    "a heartbeat of nonsense": put("driver.json", '{"renewed": 1e18, "left": NaN, "host": 5, "process": "x"}'), "a heartbeat that is a list": put("driver.json", "[]"), "a heartbeat of a huge process": put("driver.json", '{"renewed": 9e9, "host": "x", "process": 1e300}'),
    "a heartbeat from the future": put("driver.json", '{"renewed": 1e12, "host": "elsewhere", "process": 1, "study": "squares", "left": ""}'), "an index of garbage": put("index.sqlite", b"garbage" * 1000), "an index that is empty": put("index.sqlite", b""),
    "an index that is a header alone": put("index.sqlite", b"SQLite format 3\0" + bytes(84)), "results of a stranger": put("results/zz/zz.json", "{}"), "a file with a strange name": put("results/zz/\udcff\n.json", "{}"),
    "an unfinished file": put("results/aa/.part-x", b"x"), "a folder for a record": lambda place: (place / "results" / "qq" / "x.json").mkdir(parents=True),
    "a fifo among the results": lambda place: os.mkfifo(place / "results" / "x.json"), "a fifo among the manifests": lambda place: os.mkfifo(place / "studies" / "x.json"), "a loop of links": lambda place: (place / "results" / "loop").symlink_to(place),
}  # fmt: skip


def linked(folder: Path) -> Any:
    """A store whose results are a link to another place."""
    place = store(folder)
    (place / "results").rename(folder / "elsewhere")
    (place / "results").symlink_to(folder / "elsewhere")
    run(SQUARES, place, progress=False)


def outside(name: str) -> Callable[[Path], Any]:
    def attempt(folder: Path) -> Any:
        try:
            return Files(folder / "store").write(name, b"x")
        finally:
            assert not list(folder.glob("*evil*")), "it was written outside"

    return attempt


def climbing(folder: Path) -> Any:
    try:
        return run(Sweep("../../evil", square, {"grid": {"x": [1]}}), folder / "deep" / "store", progress=False)
    finally:
        assert not list(folder.rglob("evil/*.json")), "it was written outside"


def restored(name: str, text: str) -> Callable[[Path], Any]:
    def attempt(folder: Path) -> Any:
        (folder / "provenance.json").write_text(text)
        return restore(SQUARES, folder, Store(folder / "store"))

    return attempt


def spoilt(change: Callable[[Path], Any]) -> Callable[[Path], Any]:
    """Restore from a report after a change."""

    def attempt(folder: Path) -> Any:
        results = Results(SQUARES, resolved(SQUARES, "smoke"), Store(store(folder)))
        write_study_page(results, folder / "out", results.write(folder / "out"), "again")
        change(folder / "out")
        return restore(SQUARES, folder / "out", Store(folder / "restored"))

    return attempt


def origins(value: Any) -> Callable[[Path], Any]:
    def change(place: Path) -> None:
        content = json.loads((place / "provenance.json").read_text())
        (place / "provenance.json").write_text(json.dumps({**content, "origins": value}))

    return change


_REPORTS: dict[str, Callable[[Path], Any]] = {
    "table is cut off": lambda place: (place / "table.parquet").write_bytes((place / "table.parquet").read_bytes()[:200]), "table is text": lambda place: (place / "table.parquet").write_text("x"), "table is a folder": lambda place: ((place / "table.parquet").unlink(), (place / "table.parquet").mkdir()),
    "origins are text": origins("x"), "origins are numbers": origins([1, 2]), "origins have no jobs": origins([{}]), "origins have jobs in a list": origins([{"jobs": ["a"]}]), "origins have seconds of text": origins([{"jobs": {"a": "x"}}]), "origins are null": origins(None),
}  # fmt: skip


def factory(body: str) -> Callable[[Path], Any]:
    """A module by a user for `--model` and `--data`."""

    def attempt(folder: Path) -> Any:
        (folder / "mine.py").write_text(body)
        return Subject.load(f"{folder / 'mine.py'}:build", f"{folder / 'mine.py'}:build")

    return attempt


CASES: list[Case] = [
    *(refused(f"YAML: {name}", declared(text)) for name, text in _YAML.items()),
    *(refused(f"setting {text[:30]!r}", lambda _, t=text: resolved(SQUARES, "smoke", overrides([t]))) for text in _SETTINGS),
    refused("a setting inside another's value", lambda _: overrides(["a=1", "a.b=2"])),
    *(refused(f"reference {text!r}", lambda _, t=text: named_object(t)) for text in _REFERENCES),
    *(refused(f"reference {text[:30]!r}", lambda _, t=text: load(t)) for text in _SWEEPS),
    *(refused(f"store.json: {text[:30]!r}", damaged_head(text)) for text in _HEADS),
    *(works(f"store: {name}", survives(change)) for name, change in _CHANGES.items()),
    *(refused(f"a file called {name!r}", outside(name)) for name in ("../evil", "a/../../evil", "/tmp/../evil/../../evil", "a\0evil")),
    refused("results that are a link", linked, "leads out"),
    refused("a study whose name climbs", climbing, "leads out"),
    refused("a place that is a file", lambda folder: run(SQUARES, written("x", "x")(folder), progress=False)),
    refused("a protocol that is none", lambda _: Store("nowhere://x")),
    refused("a store of another's folder", lambda folder: ((folder / "results").mkdir(), (folder / "results" / "a").write_text("x"), run(SQUARES, folder, progress=False)), "no store"),
    *(refused(f"restoring from {text[:30]!r}", restored("x", text)) for text in ("", "{", "[]", "null", "{}", '{"study": "squares", "version": 1}', '{"study": "squares", "version": 1, "settings": 5, "origins": 5}', "[" * 50_000)),
    *(refused(f"restoring from a report whose {name}", spoilt(change)) for name, change in _REPORTS.items()),
    works("restoring from a report as it is", lambda folder: spoilt(lambda place: None)(folder) == (3, 3)),
    *(
        refused(f"a factory that {name}", factory(body))
        for name, body in {
            "does not parse": "def build(:", "cannot be imported": "import nowhere", "raises as it is loaded": "1 / 0", "leaves": "import sys\nsys.exit(0)", "leaves when called": "import sys\ndef build(): sys.exit(0)",
            "raises": "def build(): 1 / 0", "wants arguments": "def build(x): return x", "returns nothing": "def build(): pass", "is no function": "build = 5", "is not there": "other = 5", "recurses": "def build(): return build()",
        }.items()
    ),
    works("a heartbeat of nonsense is none", lambda folder: (put("driver.json", "[1]")(folder), driver(Files(folder)))[1] is None),
    works("YAML as people write it", lambda _: from_yaml("a: 1e-3\nb: [1, 2.5, no, 'yes']\nc: {d: ~}\ne: 12:30", "x") == {"a": 1e-3, "b": [1, 2.5, "no", "yes"], "c": {"d": None}, "e": "12:30"}),
]  # fmt: skip
