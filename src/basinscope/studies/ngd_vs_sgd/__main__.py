"""`python -m basinscope.studies.ngd_vs_sgd`: the study's jobs where pydantic is not installed, in stretches of minutes.

`run` computes what is neither in `--out` nor in a `--have` folder, one JSON file a job; `adopt` puts such files into a
store, from which `basinscope study report ngd-vs-sgd` makes tables and figures; `plan` says what is left and for how
long.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml

from ...errors import BasinscopeError, InputError
from ...objects import nearest
from ...runs.identity import job_key
from ...runs.provenance import provenance
from . import plan
from .running import run_unit

NAME, VERSION = "ngd-vs-sgd", 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit status."""
    given = _parser().parse_args(arguments)
    try:
        return int(given.command(given))
    except BasinscopeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m basinscope.studies.ngd_vs_sgd", description=__doc__)
    commands = parser.add_subparsers(required=True)
    for name, command in (("run", run), ("plan", listed)):
        sub = commands.add_parser(name)
        sub.set_defaults(command=command)
        sub.add_argument("--scale", choices=list(plan.SCALES), default="smoke")
        sub.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change a setting")
        sub.add_argument("--out", type=Path, required=True, help="folder for new results")
        sub.add_argument("--have", type=Path, action="append", default=[], help="folders with earlier results")
        sub.add_argument("--scratch", type=Path, default=Path("runs/ngd-vs-sgd"), help="partial work of one job")
        sub.add_argument("--minutes", type=float, default=math.inf, help="start nothing that would end later")
    sub = commands.add_parser("adopt")
    sub.set_defaults(command=adopt)
    sub.add_argument("folders", type=Path, nargs="+")
    sub.add_argument("--store", default="runs")
    return parser


def planned(scale: str, changes: Sequence[str]) -> plan.Plan:
    """The plan at a scale with `key=value` changes.

    Examples:
        >>> planned("smoke", ["seeds=2", "parts=[sizes]"]).parts
        ('sizes',)
    """
    values = dict(plan.SCALES[scale])
    known = [each.name for each in fields(plan.Plan)]
    for change in changes:
        key, equals, text = change.partition("=")
        if not equals or key not in known:
            raise InputError(f"unknown setting {change!r} — {nearest(key, known)}")
        values[key] = yaml.safe_load(text)
    plain: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    return plan.Plan(**plain)


def run(given: argparse.Namespace) -> int:
    """Compute unit after unit until all are there or the time is up; 0 when all are there, 3 when some are left."""
    began = time.monotonic()
    left, speed = _left(given), 1.0
    given.out.mkdir(parents=True, exist_ok=True)
    for number, unit in enumerate(left):
        expected = speed * sum(map(plan.cost, unit))
        spent = time.monotonic() - began
        if spent + expected > 60 * given.minutes:
            print(f"{len(left) - number} units left; the next would take about {expected:.0f} s")
            return 3
        started = time.monotonic()
        keys = [key_of(job) for job in unit]
        rows = run_unit(unit, given.scratch / keys[0])
        seconds = time.monotonic() - started
        speed = max(0.5 * speed, min(10.0, seconds / max(1e-9, sum(map(plan.cost, unit)))))
        for key, job, found in zip(keys, unit, rows, strict=True):
            _write(given.out / f"{key}.json", job, found, seconds / len(unit))
        label = f"{unit[0].part} {unit[0].data} {unit[0].network} {unit[0].optimizer} seed {unit[0].seed}"
        print(f"{number + 1}/{len(left)} {label} ({len(unit)} jobs): {seconds:.1f} s", flush=True)
    print("all done")
    return 0


def listed(given: argparse.Namespace) -> int:
    """Print what is left, by part, with a forecast for an H200."""
    left = _left(given)
    for part in plan.PARTS:
        own = [unit for unit in left if unit[0].part == part]
        if own:
            seconds = [sum(map(plan.cost, unit)) for unit in own]
            jobs = sum(map(len, own))
            longest = max(seconds)
            print(f"{part}: {jobs} jobs in {len(own)} units, {sum(seconds) / 60:.1f} min, the longest {longest:.0f} s")
    print(f"in all about {sum(plan.cost(job) for unit in left for job in unit) / 60:.0f} minutes on an H200")
    return 0


def adopt(given: argparse.Namespace) -> int:
    """Put results into a store, each under the address that `basinscope study` gives it; needs basinscope[studies]."""
    from ...runs.store import Store
    from ...runs.study import Result

    store = Store(given.store)
    store.prepare()
    files = [file for folder in given.folders for file in sorted(folder.rglob("*.json"))]
    for file in files:
        told = json.loads(file.read_text())
        key = job_key(NAME, VERSION, told["config"])
        store.save(key, NAME, told["config"], Result(told["rows"]), told["provenance"], seconds=told["seconds"])
    print(f"{len(files)} results put into {given.store}")
    return 0


def key_of(job: plan.Training) -> str:
    """The address of a job's result, the same as in a store."""
    return job_key(NAME, VERSION, job.config())


def _left(given: argparse.Namespace) -> list[list[plan.Training]]:
    there = {file.stem for folder in (given.out, *given.have) for file in folder.rglob("*.json")}
    units = plan.units(plan.jobs(planned(given.scale, given.set)))
    return [unit for unit in units if any(key_of(job) not in there for job in unit)]


def _write(path: Path, job: plan.Training, rows: Sequence[Mapping[str, Any]], seconds: float) -> None:
    plain = [{name: _plain(value) for name, value in row.items()} for row in rows]
    told = {"config": job.config(), "rows": plain, "seconds": seconds, "provenance": {**provenance(), "seed": job.seed}}
    part = path.with_suffix(".part")
    part.write_text(json.dumps(told))
    part.replace(path)


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


if __name__ == "__main__":
    sys.exit(main())
