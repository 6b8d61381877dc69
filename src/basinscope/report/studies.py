"""A study's results as one page that needs nothing else: findings beside the paper's, the table, the figures."""

from __future__ import annotations

import base64
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from ..files import write_whole
from . import figures
from .figures import real
from .pages import data_link, templates

if TYPE_CHECKING:
    from ..runs.results import Results

_ROWS = 200  # of the table that the page shows; all of them are in table.parquet and table.csv
_LARGEST = 2 << 20  # bytes of a figure that the page takes in
_PICTURES = {".png": "image/png", ".svg": "image/svg+xml", ".jpg": "image/jpeg"}


def write_study_page(results: Results, folder: Path, written: Sequence[Path], command: str) -> Path:
    """`report.html` beside the files that the study's own report wrote."""
    path = folder / "report.html"
    write_whole(path, study_page(results, written, command).encode())
    return path


def study_page(results: Results, written: Sequence[Path], command: str) -> str:
    """The study as one HTML page."""
    table, study = results.table, results.study
    rows = table.to_dict("records")
    findings = list(study.findings(results))
    verdicts = _counted(rows)
    order = ("failed", "doubtful", "ok")
    worst = next((verdict for verdict in order if any(finding.verdict == verdict for finding in findings)), None)
    return templates().get_template("study.html").render(
        study=study,
        findings=findings,
        worst=worst,
        verdicts=verdicts,
        missing=len(results.missing),
        jobs=len(results.jobs),
        columns=list(table.columns),
        rows=rows[:_ROWS],
        total=len(rows),
        curves=_curves(results, rows),
        pictures=[(path.stem, picture) for path in written if (picture := _picture(path)) is not None],
        files=[path.name for path in written],
        origin=_origin(results.provenance()),
        settings=list(results.settings.config().items()),
        command=command,
        csv=data_link("text/csv", table.to_csv(index=False)),
        cell=_cell,
    )  # fmt: skip


def _cell(value: Any) -> Any:
    """A value as the table shows it: numbers stay numbers."""
    if isinstance(value, float) and math.isnan(value):
        return None
    return value if isinstance(value, (int, float, str)) or value is None else str(value)


def _counted(rows: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """How often each verdict was given, by column."""
    counts: dict[str, dict[str, int]] = {}
    for row in rows:
        for name, value in row.items():
            if name.endswith("verdict") and value in ("ok", "doubtful", "failed"):
                counts.setdefault(name, dict.fromkeys(("ok", "doubtful", "failed"), 0))[value] += 1
    return counts


def _curves(results: Results, rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, Markup]]:
    """λ̂ and losses over training, the mean over jobs, where rows are moments of a training."""
    axis = next((name for name in ("epoch", "step") if rows and name in rows[0]), None)
    if axis is None or any(axis in plan.config for plan in results.jobs):
        return []
    charts = []
    for name, title in (
        ("llc", "λ̂"),
        ("llc_basin", "basin"),
        ("train_loss", "training loss"),
        ("validation_loss", "validation loss"),
    ):
        groups: dict[float, list[float]] = {}
        for row in rows:
            if math.isfinite(real(row.get(name))) and math.isfinite(real(row.get(axis))):
                groups.setdefault(real(row[axis]), []).append(real(row[name]))
        if len(groups) < 2:
            continue
        points = [(x, statistics.fmean(values), _error(values)) for x, values in sorted(groups.items())]
        chart = figures.over_training([("mean over jobs, 90 % band", points)], axis, title)
        if chart is not None:
            charts.append((f"{title} over training", chart))
    return charts


def _error(values: Sequence[float]) -> float:
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0


def _picture(path: Path) -> str | None:
    kind = _PICTURES.get(path.suffix.lower())
    if kind is None or path.stat().st_size > _LARGEST:
        return None
    return f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"


def _origin(provenance: Mapping[str, Any]) -> list[tuple[str, str]]:
    def spoken(value: Any) -> str:
        if isinstance(value, Mapping):
            return ", ".join(f"{key} ({count})" for key, count in value.items())
        return f"{value:.3g}" if isinstance(value, float) else str(value)

    return [(name, spoken(value)) for name, value in provenance.items() if name != "settings"]
