"""Under attack: bad input, faults and load.

The tables and fuzzers of `tests/hostile` are run and counted; studies are disturbed in four places until enough faults
have struck; measurements and requests are repeated while memory is watched. Every row is added to a CSV file as it is
known, and a later call goes on from there.

    python benchmarks/under_attack.py                    all parts; writes results/hostile.md
    python benchmarks/under_attack.py --only faults      one part: cases, faults, soak
    python benchmarks/under_attack.py --only cases --table files    tables and fuzzers whose name contains the text
    python benchmarks/under_attack.py --anew             forget what earlier calls found
    python benchmarks/under_attack.py --report           only write the page again

Faults need Linux: file systems of their own are filled and forbidden, in a namespace of their own. Exits with status 1
if anything went wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import ledger  # noqa: E402
from survival import soak  # noqa: E402
from survival.faults import FAULTS, small_disk  # noqa: E402
from survival.kills import VICTIMS, attacked, undisturbed  # noqa: E402

RESULTS = Path(__file__).parent / "results" / "hostile.md"
PARTS = ("cases", "faults", "soak")
KINDS = ("clear error", "right answer", "not ok, as said", "wrong", "hang", "crash", "execution")
BAD = KINDS[3:]
MEASUREMENTS, REQUESTS = 1_000, 10_000
_MOST_GROWTH = 5.0  # megabytes in the second half of a soak
_SETTINGS = ("count=48", "pause=0.05")
_JOBS = 48
_PER_STUDY = 16
_NAMESPACE = "HOSTILE_NAMESPACE"  # set in the process that may mount

PLACES: dict[str, tuple[str, int, tuple[str, ...]]] = {
    "in one process": ("here", 64, (*FAULTS, "the driver")),
    "two local workers": ("local", 64, (*FAULTS, *VICTIMS)),
    "two local workers, live page over the store": ("local", 48, (*FAULTS, *VICTIMS)),
    "Ray, two workers": ("ray", 24, (*FAULTS, "a worker", "the driver")),
}
"""Where studies are disturbed, how many faults strike there, and of which kinds."""


@dataclass(frozen=True)
class Table:
    """What became of the cases of a table, or of a fuzzer."""

    name: str
    made: str  # by hand or at random
    tried: int
    outcomes: str  # counts by kind, as JSON
    complaints: str
    seconds: float


@dataclass(frozen=True)
class Study:
    """One study under faults."""

    place: str
    seed: int
    strikes: str  # counts by kind, as JSON
    begun: int
    in_flight: int
    starts: int
    orphans: int
    same: bool
    answers: int  # of the live page, if there is one
    complaints: str
    seconds: float


@dataclass(frozen=True)
class Soak:
    """What many repetitions left in memory."""

    what: str
    number: int
    megabytes: str  # at equal distances, as JSON


# ---------------------------------------------------------------------- cases


def tables() -> list[tuple[str, str]]:
    """Names of all tables, visits and fuzzers, and how their cases are made."""
    from hostile.strategies import FUZZERS
    from hostile.test_cases import TABLES
    from hostile.visits import VISITS

    by_hand = [*TABLES, *(f"live page: {kind}" for kind in VISITS)]
    return [*((name, "by hand") for name in by_hand), *((name, "at random") for name in FUZZERS)]


def counted(name: str) -> Table:
    """Run a table in a process of its own: one that dies has crashed."""
    started = time.monotonic()
    program = f"import under_attack as h; print(h.json.dumps(h.outcomes({name!r})))"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    seconds = round(time.monotonic() - started, 1)
    made = dict(tables())[name]
    if done.returncode:
        return Table(name, made, 0, json.dumps({"crash": 1}), done.stderr[-500:], seconds)
    found, complaints = json.loads(done.stdout.splitlines()[-1])
    return Table(name, made, sum(found.values()), json.dumps(found), "; ".join(complaints), seconds)


def outcomes(name: str) -> tuple[dict[str, int], list[str]]:
    """How often each kind of outcome came, and what was said of bad ones; a good one that a case forbids is wrong."""
    found: Counter[str] = Counter()
    complaints = []
    for case, kind, words in _attempts(name):
        found[kind] += 1
        if kind in BAD:
            complaints.append(f"{case}: {kind}: {words[:300]}")
    return dict(found), complaints


def _attempts(name: str) -> Iterator[tuple[str, str, str]]:
    from hostile.outcomes import GOOD, WRONG, tried
    from hostile.strategies import FUZZERS
    from hostile.test_cases import TABLES
    from hostile.visits import VISITS

    if name in TABLES:
        for case in TABLES[name]:
            with tempfile.TemporaryDirectory() as folder:
                outcome = tried(case, Path(folder))
            yield case.name, outcome.kind if outcome.suits(case) or outcome.kind not in GOOD else WRONG, outcome.words
    elif name in FUZZERS:
        yield from _fuzzed(*FUZZERS[name])
    else:
        with tempfile.TemporaryDirectory() as folder:
            for case, outcome in VISITS[name.removeprefix("live page: ")](Path(folder), 0):
                yield case, outcome.kind, outcome.words


def _fuzzed(strategy: Any, runs: int) -> list[tuple[str, str, str]]:
    """What becomes of so many cases that hypothesis makes."""
    from hypothesis import HealthCheck, Phase, given, seed, settings

    from hostile.outcomes import GOOD, WRONG, tried

    found = []

    @seed(0)
    @settings(
        max_examples=runs, database=None, deadline=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(strategy)
    def attempt(case: Any) -> None:
        with tempfile.TemporaryDirectory() as folder:
            outcome = tried(case, Path(folder))
        kind = outcome.kind if outcome.suits(case) or outcome.kind not in GOOD else WRONG
        found.append((case.name, kind, outcome.words))

    attempt()
    return found


# ---------------------------------------------------------------------- faults


@cache
def sound() -> str:
    """The digest of the table that nobody disturbed."""
    with tempfile.TemporaryDirectory() as scratch:
        return undisturbed(Path(scratch) / "sound", _SETTINGS)


def disturbed(place: str, seed: int, number: int) -> Study:
    """One study in a place, with so many faults at most."""
    on, _, faults = PLACES[place]
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch, small_disk(Path(scratch) / "disk") as disk:
        watched = _watched(disk) if "live page" in place else nullcontext([])
        with watched as answers:
            attack = attacked(
                disk / "store",
                _SETTINGS,
                number=number,
                seed=seed,
                faults=faults,
                on=on,
                grace=30 if on == "ray" else 5,
            )
        strange = [f"the live page answered {status}" for status in set(answers) - {200}]
        return Study(
            place, seed, json.dumps(attack.strikes), attack.begun, attack.in_flight, attack.starts, attack.orphans,
            attack.digest == sound(), len(answers), "; ".join([*attack.complaints, *strange]),
            round(time.monotonic() - started, 1),
        )  # fmt: skip


@contextmanager
def _watched(folder: Path) -> Iterator[list[int]]:
    """The live page over a folder, and a visitor who asks for it without end; yields the answers' status."""
    answers: list[int] = []
    ended = threading.Event()
    with soak.page(folder) as (port, _):

        def look() -> None:
            while not ended.wait(0.1):
                for address in ("/", "/compare"):
                    try:
                        answers.append(soak.answered(port, address))
                    except OSError:
                        answers.append(0)

        visitor = threading.Thread(target=look)
        visitor.start()
        try:
            yield answers
        finally:
            ended.set()
            visitor.join()


def studies(known: Sequence[Study], report: Any) -> Iterator[Study]:
    """Studies in every place until enough faults have struck there."""
    for place, (_, wanted, _) in PLACES.items():
        done = [study for study in known if study.place == place]
        struck = sum(sum(json.loads(study.strikes).values()) for study in done)
        seed = 1000 * list(PLACES).index(place) + 1 + max((study.seed % 1000 for study in done), default=-1)
        while struck < wanted:
            study = disturbed(place, seed, min(_PER_STUDY, wanted - struck))
            struck, seed = struck + sum(json.loads(study.strikes).values()), seed + 1
            report(f"{place}: {struck} of {wanted} faults, {study.strikes} {study.complaints}")
            yield study


# ---------------------------------------------------------------------- the page


def growth(row: Soak) -> float:
    """Megabytes more in the last tenth than halfway, on average."""
    seen = json.loads(row.megabytes)
    tenth = max(1, len(seen) // 10)
    half = len(seen) // 2
    return (sum(seen[-tenth:]) - sum(seen[half : half + tenth])) / tenth


def page(cases: Sequence[Table], faults: Sequence[Study], soaks: Sequence[Soak]) -> str:
    """All of it, answer first."""
    total = Counter(kind for row in cases for kind, count in json.loads(row.outcomes).items() for _ in range(count))
    strikes = Counter(kind for row in faults for kind, count in json.loads(row.strikes).items() for _ in range(count))
    bad = ", ".join(f"{total[kind]} × {kind}" for kind in BAD)
    same = sum(row.same for row in faults)
    complaints = [row.complaints for row in (*cases, *faults) if row.complaints]
    lines = [
        "# Under attack: bad input, faults, load",
        "",
        f"Of {total.total():,} hostile cases {total['clear error']:,} ended in a clear error, "
        f"{total['right answer']:,} in the right answer, {total['not ok, as said']:,} in a number that was not called "
        f"ok; {bad}. {strikes.total()} faults struck {len(faults)} studies, and the final table was equal in bytes to "
        f"an undisturbed run's in {same} of {len(faults)}.",
        *(f"{_leak(row)}" for row in soaks),
        "",
        f"Complaints: {len(complaints)}." if complaints else "Nothing was found to complain of.",
        "",
        "## Bad input",
        "",
        "One line of a table of `tests/hostile` is one case, with what must become of it. Fuzzers make theirs at "
        "random, a fixed number in every run.",
        "",
        _line("cases", "made", "tried", *KINDS),
        "|---|---|---:|" + "---:|" * len(KINDS),
        *(_table_line(row) for row in cases),
        _line("**all**", "", f"{total.total():,}", *(f"{total[kind]:,}" for kind in KINDS)),
        "",
        "## Faults",
        "",
        f"Each study has {_JOBS} jobs, chaotic orbits whose table shows any bit that differs. Its store is on a small "
        "file system of its own, so that a disk that is full is full. Folders lose their permissions; the clock goes "
        "back by three days, and what was written before is in the future. Every access to a file takes a tenth of a "
        "second more, or the store is removed while it is written. The driver must end with the right exit code and "
        "words, or go on, and is started again.",
        "",
        _line("fault", *PLACES),
        "|---|" + "---:|" * len(PLACES),
        *(_fault_line(kind, faults) for kind in (*VICTIMS, *FAULTS)),
        *(_line(f"**{name}**" if name == "all" else name, *(show(_at(place, faults)) for place in PLACES))
          for name, show in SUMS.items()),
        "",
        "## Load",
        "",
        _line("", "at the start", "halfway", "at the end"),
        "|---|---:|---:|---:|",
        *(_soak_line(row) for row in soaks),
        "",
        f"basinscope {_version()}, Python {platform.python_version()}, {os.cpu_count()} processors shared with other "
        "work. `make bench-hostile` reruns it all; its rows are in the CSV files beside this page.",
    ]  # fmt: skip
    if complaints:
        lines += ["", "## Complaints", "", *(f"- `{text[:600]}`".replace("\n", " ") for text in complaints)]
    return "\n".join(lines) + "\n"


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _at(place: str, faults: Sequence[Study]) -> list[Study]:
    return [row for row in faults if row.place == place]


def _strikes(rows: Sequence[Study]) -> Counter[str]:
    return sum((Counter(json.loads(row.strikes)) for row in rows), Counter())


def _repeated(rows: Sequence[Study]) -> str:
    again = sum(row.begun - _JOBS for row in rows)
    return f"{again} of {sum(row.in_flight for row in rows)}"


SUMS: dict[str, Callable[[list[Study]], str]] = {
    "all": lambda rows: str(_strikes(rows).total()),
    "final tables equal in bytes": lambda rows: f"{sum(row.same for row in rows)} of {len(rows)}",
    "jobs begun more than once, of those that faults may cost": _repeated,
    "workers that outlived their driver": lambda rows: str(sum(row.orphans for row in rows)),
    "studies with a wrong exit code or word": lambda rows: str(sum(bool(row.complaints) for row in rows)),
    "answers of the live page, all 200": lambda rows: f"{sum(row.answers for row in rows):,}",
}
"""What is said of all faults of a place."""


def _leak(row: Soak) -> str:
    return (
        f"In the second half of {row.number:,} {row.what} the process grew by {growth(row):.1f} MB, from "
        f"{json.loads(row.megabytes)[len(json.loads(row.megabytes)) // 2]:.0f} MB."
    )


def _table_line(row: Table) -> str:
    found = json.loads(row.outcomes)
    return _line(row.name, row.made, f"{row.tried:,}", *(f"{found.get(kind, 0):,}" for kind in KINDS))


def _fault_line(kind: str, faults: Sequence[Study]) -> str:
    name = f"SIGKILL: {kind}" if kind in VICTIMS else kind
    return _line(name, *(str(_strikes(_at(place, faults))[kind] or "") for place in PLACES))


def _soak_line(row: Soak) -> str:
    seen = json.loads(row.megabytes)
    return _line(f"{row.number:,} {row.what}", *(f"{seen[at]:.1f} MB" for at in (0, len(seen) // 2, -1)))


def _version() -> str:
    import basinscope

    return basinscope.__version__


def failed(cases: Sequence[Table], faults: Sequence[Study], soaks: Sequence[Soak]) -> bool:
    """Whether anything went wrong, was lost or repeated, or grew."""
    wrong = any(json.loads(row.outcomes).get(kind) for row in cases for kind in BAD)
    lost = any(not row.same or row.complaints or row.orphans or row.begun - _JOBS > row.in_flight for row in faults)
    return wrong or lost or any(growth(row) > _MOST_GROWTH for row in soaks)


def main() -> int:
    """Run what is missing, and write the page; 0 if nothing went wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument(
        "--table", metavar="TEXT", default="", help="of the cases, only tables whose name contains TEXT"
    )
    parser.add_argument("--anew", action="store_true", help="forget what earlier calls found")
    parser.add_argument("--report", action="store_true", help="write the page from the rows there are")
    options = parser.parse_args()
    files = {part: RESULTS.with_name(f"hostile_{part}.csv") for part in PARTS}
    parts = () if options.report else PARTS if options.only is None else (options.only,)
    if "faults" in parts and _NAMESPACE not in os.environ:
        return _in_namespace()
    if options.anew:
        for part in parts:
            files[part].unlink(missing_ok=True)
    if "cases" in parts:
        known = {row.name for row in ledger.read(files["cases"], Table)}
        for name, _ in tables():
            if name not in known and options.table in name:
                row = counted(name)
                ledger.add(files["cases"], row)
                print(asdict(row), flush=True)
    if "faults" in parts:
        for study in studies(ledger.read(files["faults"], Study), lambda words: print(words, flush=True)):
            ledger.add(files["faults"], study)
    if "soak" in parts:
        known = {row.what for row in ledger.read(files["soak"], Soak)}
        for what, number, run in (("measurements", MEASUREMENTS, soak.measured), ("requests", REQUESTS, soak.visited)):
            if what not in known:
                row = Soak(what, number, json.dumps([round(each, 1) for each in run(number)]))
                ledger.add(files["soak"], row)
                print(row, flush=True)
    found = [ledger.read(files[part], kind) for part, kind in zip(PARTS, (Table, Study, Soak), strict=True)]
    RESULTS.write_text(page(*found))
    return int(failed(*found))


def _in_namespace() -> int:
    """This program again, where it may mount file systems that nobody else sees."""
    command = ["unshare", "--mount", "--map-root-user", sys.executable, *sys.argv]
    return subprocess.run(command, env=os.environ | {_NAMESPACE: "1"}).returncode


if __name__ == "__main__":
    sys.exit(main())
