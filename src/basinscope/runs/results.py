"""Results: what a study has found so far, as one table."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from ..errors import InputError, StoreError
from .codec import encode_table
from .index import Index
from .store import Damaged, Store
from .study import Study
from .units import Planned, planned

_ORIGIN = ("basinscope", "commit", "device", "python", "platform")


class Results:
    """The stored results of a study at given settings.

    Args:
        study: the study.
        settings: as `resolved` gives them.
        store: where results live.

    Examples:
        >>> from basinscope.runs.driver import run
        >>> from basinscope.runs.sweep import Sweep
        >>> sweep = Sweep("halves", lambda x: {"half": x / 2}, {"grid": {"x": [1, 2]}})
        >>> store = Store("memory://example-results")
        >>> _ = run(sweep, store)
        >>> Results(sweep, sweep.settings(**sweep.scales["smoke"]), store).table["half"].tolist()
        [0.5, 1.0]
    """

    def __init__(self, study: Study, settings: Any, store: Store) -> None:
        self.study = study
        self.settings = settings
        self._store = store
        self.jobs = planned(study, settings)

    @cached_property
    def _finished(self) -> set[str]:
        index = Index(self._store, readonly=True)
        try:
            return set(index.finished())
        finally:
            index.close()

    @property
    def missing(self) -> list[Planned]:
        """Jobs without a result."""
        return [plan for plan in self.jobs if plan.key not in self._finished]

    @cached_property
    def _loaded(self) -> dict[str, tuple[dict[str, Any], Any, dict[str, Any]]]:
        """Record, table and arrays of every result; damaged ones are set aside and reported together."""
        loaded: dict[str, tuple[dict[str, Any], Any, dict[str, Any]]] = {}
        damaged = []
        for plan in self.jobs:
            if plan.key in self._finished:
                try:
                    record = self._store.record(plan.key)
                    loaded[plan.key] = (record, *self._store.contents(record))
                except Damaged as reason:
                    damaged.append(f"{plan.label} ({reason}; moved to {self._store.set_aside(plan.key)})")
        if damaged:
            raise StoreError(
                f"{len(damaged)} damaged results were set aside: {'; '.join(damaged[:5])} — run the study again, which "
                f"computes these anew"
            )
        if not loaded:
            raise InputError(f"study {self.study.name!r} has no results at these settings yet — run it first")
        return loaded

    @cached_property
    def arrow(self) -> Any:
        """The joint table, jobs in the study's order: each job's settings, then what it found."""
        import pyarrow as pa

        parts = []
        for plan in self.jobs:
            if plan.key in self._loaded:
                table = self._loaded[plan.key][1]
                columns = {name: pa.array([_cell(value)] * len(table)) for name, value in plan.config.items()}
                parts.append(pa.table({**columns, **{name: table[name] for name in table.column_names}}))
        return pa.concat_tables(parts, promote_options="permissive").combine_chunks()

    @property
    def table(self) -> Any:
        """The joint table as a pandas DataFrame."""
        return self.arrow.to_pandas()

    def arrays(self, plan: Planned) -> Mapping[str, Any]:
        """The arrays of a job's result."""
        return self._loaded[plan.key][2]

    def provenance(self) -> dict[str, Any]:
        """Which versions, machines and settings the results come from, and how many from each."""
        origins = [record["provenance"] for record, *_ in self._loaded.values()]
        return {
            "study": self.study.name,
            "version": self.study.version,
            "settings": self.settings.config(),
            "jobs": len(self.jobs),
            "results": len(self._loaded),
            "seconds": sum(record["seconds"] for record, *_ in self._loaded.values()),
            **{name: _counted(origins, name) for name in _ORIGIN},
            "libraries": dict(sorted(Counter(canonical_pairs(origins)).items())),
        }

    def _origins(self) -> list[dict[str, Any]]:
        """Every origin there is, with the keys of the jobs that come from it and the seconds they took."""
        origins: dict[str, dict[str, Any]] = {}
        for key, (record, *_) in self._loaded.items():
            origin = {name: record["provenance"].get(name) for name in (*_ORIGIN, "libraries")}
            jobs = origins.setdefault(json.dumps(origin, sort_keys=True), {**origin, "jobs": {}})["jobs"]
            jobs[key] = record["seconds"]
        return list(origins.values())

    def write(self, folder: Path) -> list[Path]:
        """Write `table.parquet`, `table.csv`, `provenance.json` and what the study's own report makes of them."""
        folder.mkdir(parents=True, exist_ok=True)
        written = [folder / name for name in ("table.parquet", "table.csv", "provenance.json")]
        written[0].write_bytes(encode_table(self.arrow))
        self.table.to_csv(written[1], index=False)
        written[2].write_text(json.dumps({**self.provenance(), "origins": self._origins()}, indent=1) + "\n")
        return [*written, *self.study.report(self, folder)]


def canonical_pairs(origins: list[dict[str, Any]]) -> list[str]:
    """`name==version` of every library, once per result."""
    return [f"{name}=={version}" for origin in origins for name, version in origin.get("libraries", {}).items()]


def _counted(origins: list[dict[str, Any]], name: str) -> dict[str, int]:
    return dict(Counter(str(origin.get(name)) for origin in origins))


def _cell(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, dict) else value
