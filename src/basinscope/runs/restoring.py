"""Results of single jobs out of a report's table, so that a published study can be continued from its report alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..foreign import contents, parsed
from .driver import write_manifest
from .lease import driving
from .records import record
from .settings import resolved
from .store import Store
from .study import Result, Study
from .units import planned


def restore(study: Study, report: Path, store: Store) -> tuple[int, int]:
    """Put the results of a report back into a store, at their addresses; how many, and of how many jobs.

    A row of the report's table belongs to the job whose settings it has.

    Args:
        study: whose report it is.
        report: the folder that `basinscope study report` wrote, with `table.parquet` and `provenance.json`.
        store: where results go.
    """
    provenance, table = _provenance(study, report / "provenance.json"), report / "table.parquet"
    if not table.is_file():
        raise InputError(f"{table} is not there — copy the whole folder that `basinscope study report` wrote")
    settings = record(study.Settings, provenance["settings"], f"{report / 'provenance.json'}", "setting")
    scale = next((name for name in study.scales if resolved(study, name) == settings), next(iter(study.scales)))
    rows, jobs = _rows(table), planned(study, settings)
    origins = {
        key: (seconds, origin) for origin in provenance["origins"] for key, seconds in origin.pop("jobs").items()
    }
    grouped: dict[tuple[str, ...], dict[Any, list[dict[str, Any]]]] = {}  # rows by the settings of a kind of job
    count = 0
    with driving(store.files):
        store.prepare()
        write_manifest(store, study, scale, settings, jobs)
        for plan in (plan for plan in jobs if plan.key in origins):
            names = tuple(plan.config)
            if names not in grouped:
                grouped[names] = {}
                for row in rows:
                    grouped[names].setdefault(_comparable([row.get(name) for name in names]), []).append(row)
            job_rows = grouped[names].get(_comparable(list(plan.config.values())), [])
            result_rows = [{name: value for name, value in row.items() if name not in plan.config} for row in job_rows]
            seconds, origin = origins[plan.key]
            seed = {"seed": plan.config["seed"]} if "seed" in plan.config else {}
            store.save(plan.key, study.name, plan.config, Result(result_rows), {**origin, **seed}, seconds=seconds)
            count += 1
    return count, len(jobs)


def _provenance(study: Study, path: Path) -> dict[str, Any]:
    try:
        provenance: dict[str, Any] = parsed(contents(path))
    except FileNotFoundError:
        raise InputError(f"{path} is not there — expected a folder that `basinscope study report` wrote") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error} — copy the whole report again") from error
    if not isinstance(provenance, dict) or not isinstance(provenance.get("settings"), dict):
        raise InputError(f"{path} holds no settings — expected a folder that `basinscope study report` wrote")
    if (provenance.get("study"), provenance.get("version")) != (study.name, study.version):
        raise InputError(
            f"{path} is of study {provenance.get('study')!r}, version {provenance.get('version')}; "
            f"expected {study.name!r}, version {study.version}"
        )
    if "origins" not in provenance:
        raise InputError(
            f"{path} names no origins of results — a report of an earlier version has to be made anew from its store"
        )
    if not isinstance(provenance["origins"], list) or not all(map(_is_origin, provenance["origins"])):
        raise InputError(f"{path} has origins without jobs and their seconds — copy the whole report again")
    return provenance


def _is_origin(origin: Any) -> bool:
    """Whether somebody's origin of results says which jobs are its own, and how long each took."""
    jobs = origin.get("jobs") if isinstance(origin, dict) else None
    return isinstance(jobs, dict) and all(isinstance(seconds, (int, float)) for seconds in jobs.values())


def _rows(table: Path) -> list[dict[str, Any]]:
    """The rows of a report's table."""
    import pyarrow.parquet as pq

    try:
        return list(pq.read_table(table).to_pylist())
    except Exception as error:  # whatever the reader stumbles over in a damaged file
        raise InputError(f"{table} cannot be read: {str(error)[:200]} — copy the whole report again") from error


def _comparable(value: Any) -> Any:
    """A setting or a cell of the table, equal where both mean the same: whole numbers may have become floats."""
    if isinstance(value, Mapping):
        return json.dumps(value)
    if isinstance(value, (list, tuple)):
        return tuple(map(_comparable, value))
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value
