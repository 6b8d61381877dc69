"""Jobs of a study where pydantic is not installed, in stretches of minutes, by the same commands for any study.

`run` computes what is neither in `--out` nor in a `--have` folder, one JSON file a job; `adopt` puts such files into a
store, from which `basinscope study report` makes tables and figures; `restore` takes a report's results back into such
files; `plan` says what is left and for how long.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import yaml

from basinscope.errors import BasinscopeError, InputError
from basinscope.objects import nearest
from basinscope.runs.files import Files
from basinscope.runs.identity import job_key
from basinscope.runs.provenance import provenance

from .plans import StudyPlan

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Stretch:
    """What one call is to do with a unit.

    Attributes:
        jobs: all jobs of the unit.
        wanted: those whose results are missing.
        folder: keeps partial work from one call to the next.
        seconds: how long it may take; work that takes longer is left unfinished, for the next call.
        phase: the phase to stop after, one of the study's; empty: all of them.
    """

    jobs: Sequence[Any]
    wanted: Sequence[Any]
    folder: Path
    seconds: float
    phase: str


@dataclass(frozen=True)
class Plain:
    """A study as plain values and functions.

    Attributes:
        plan: its jobs, which of them run together, how long they take and what they are called; `--only` chooses by
            label.
        run: computes a unit and hands out jobs with their rows, those together that were found together. A unit that
            runs out of time hands out fewer than were wanted.
        phases: names of phases after which a unit can be left, first to last.
    """

    plan: StudyPlan
    run: Callable[[Stretch], Iterator[list[tuple[Any, Rows]]]]
    phases: tuple[str, ...] = ()

    def planned(self, scale: str, changes: Sequence[str]) -> Any:
        """The plan at a scale with `key=value` changes."""
        values = dict(self.plan.SCALES[scale])
        known = [each.name for each in fields(self.plan.Plan)]
        for change in changes:
            key, equals, text = change.partition("=")
            if not equals or key not in known:
                raise InputError(f"unknown setting {change!r} — {nearest(key, known)}")
            values[key] = yaml.safe_load(text)
        plain = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
        return self.plan.Plan(**plain)

    def key(self, job: Any) -> str:
        """The address of a job's result, the same as in a store."""
        return self._address(job.config())

    def main(self, arguments: Sequence[str] | None = None, more: Callable[[Any], None] = lambda commands: None) -> int:
        """Run a command; the exit status. `more` may add commands of the study's own."""
        given = self._parser(more).parse_args(arguments)
        try:
            return int(given.command(given))
        except BasinscopeError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2

    def _parser(self, more: Callable[[Any], None]) -> argparse.ArgumentParser:
        program = f"python -m studies.{self.plan.NAME.replace('-', '_')}"
        parser = argparse.ArgumentParser(prog=program, description=__doc__)
        commands = parser.add_subparsers(required=True)
        for name, command in (("run", self._run), ("plan", self._listed)):
            sub = commands.add_parser(name)
            sub.set_defaults(command=command)
            sub.add_argument("--scale", choices=list(self.plan.SCALES), default="smoke")
            sub.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change a setting")
            sub.add_argument("--out", type=Path, required=True, help="folder for new results")
            sub.add_argument("--have", type=Path, action="append", default=[], help="folders with earlier results")
            sub.add_argument(
                "--scratch", type=Path, default=Path("runs") / self.plan.NAME, help="partial work of units"
            )
            sub.add_argument("--minutes", type=float, default=math.inf, help="start nothing that would end later")
            sub.add_argument("--only", default="*", metavar="PATTERN", help="only units or jobs whose label matches")
            sub.add_argument("--phase", choices=["", *self.phases], default="", help="stop after this phase")
        sub = commands.add_parser("adopt")
        sub.set_defaults(command=self._adopt)
        sub.add_argument("folders", type=Path, nargs="+")
        sub.add_argument("--store", default="runs")
        more(commands)
        return parser

    def _run(self, given: argparse.Namespace) -> int:
        """Compute unit after unit until all are there or the time is up.

        0 when all are there, or as far as the phase asked for goes; 3 when some are left.
        """
        began = time.monotonic()
        left, speed, unfinished = self._left(given), 1.0, 0
        given.out.mkdir(parents=True, exist_ok=True)
        for number, (unit, wanted) in enumerate(left):
            share = sum(map(self.plan.cost, wanted))
            remaining = 60 * given.minutes - (time.monotonic() - began)
            if remaining <= 0 or (not self.phases and speed * share > remaining):
                print(f"{len(left) - number} units left; the next would take about {speed * share:.0f} s")
                return 3
            started = time.monotonic()
            found = self._unit(given, unit, wanted, remaining)
            seconds = time.monotonic() - started
            speed = max(0.5 * speed, min(10.0, seconds / max(1e-9, share)))
            unfinished += found < len(wanted)
            told = f"{found} of {len(wanted)} jobs, {seconds:.1f} s"
            print(f"{number + 1}/{len(left)} {self.plan.label(unit)}: {told}", flush=True)
        if unfinished:
            print(f"{unfinished} units are not finished")
            return 0 if given.phase else 3
        print("all done")
        return 0

    def _unit(self, given: argparse.Namespace, unit: list[Any], wanted: list[Any], seconds: float) -> int:
        """Run one unit and write what it finds; the number of results."""
        last, count = time.monotonic(), 0
        folder = given.scratch / (self.plan.label(unit) if self.phases else self.key(unit[0]))
        for found in self.run(Stretch(unit, wanted, folder, seconds, given.phase)):
            now = time.monotonic()
            for job, rows in found:
                origin = {**provenance(), "seed": job.seed}
                _write(given.out / f"{self.key(job)}.json", job, rows, (now - last) / len(found), origin)
            last, count = now, count + len(found)
        return count

    def _listed(self, given: argparse.Namespace) -> int:
        """Print what is left, by part, with a forecast for an H200."""
        left = self._left(given)
        parts = dict.fromkeys(unit[0].part for unit, _ in left)
        for part in parts:
            own = [wanted for unit, wanted in left if unit[0].part == part]
            seconds = [sum(map(self.plan.cost, unit)) for unit in own]
            jobs, longest = sum(map(len, own)), max(seconds)
            print(f"{part}: {jobs} jobs in {len(own)} units, {sum(seconds) / 60:.1f} min, the longest {longest:.0f} s")
        total = sum(self.plan.cost(job) for _, wanted in left for job in wanted)
        print(f"in all about {total / 60:.0f} minutes on an H200")
        return 0

    def _adopt(self, given: argparse.Namespace) -> int:
        """Put results into a store, each under the address `basinscope study` gives it; needs basinscope[studies]."""
        from basinscope.runs.store import Store
        from basinscope.runs.study import Result

        store = Store(given.store)
        store.prepare()
        files = [file for folder in given.folders for file in sorted(folder.rglob("*.json"))]
        for file in files:
            told = json.loads(file.read_text())
            config, rows = told["config"], Result(told["rows"])
            store.save(self._address(config), self.plan.NAME, config, rows, told["provenance"], seconds=told["seconds"])
        print(f"{len(files)} results put into {given.store}")
        return 0

    def _address(self, config: Mapping[str, Any]) -> str:
        return job_key(self.plan.NAME, self.plan.VERSION, config)

    def _left(self, given: argparse.Namespace) -> list[tuple[list[Any], list[Any]]]:
        """The units with results missing, each with the jobs that miss them."""
        there = {file.stem for folder in (given.out, *given.have) for file in folder.rglob("*.json")}
        found = []
        for unit in self.plan.units(self.plan.jobs(self.planned(given.scale, given.set))):
            whole = fnmatch(self.plan.label(unit), given.only)
            wanted = [
                job
                for job in unit
                if self.key(job) not in there and (whole or fnmatch(self.plan.label([job]), given.only))
            ]
            if wanted:
                found.append((unit, wanted))
        return found


def _write(path: Path, job: Any, rows: Rows, seconds: float, origin: Mapping[str, Any]) -> None:
    plain = [{name: _plain(value) for name, value in row.items()} for row in rows]
    told = {"config": job.config(), "rows": plain, "seconds": seconds, "provenance": origin}
    Files(path.parent).write(path.name, json.dumps(told).encode())


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value
