"""Report: what was measured, for people to read and for programs to load."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from rich.console import Group

from ..errors import BasinscopeError, InputError
from ..estimates import Estimate, as_float, plain
from ..files import write_whole
from ..foreign import contents, parsed
from ..frames import dataframe
from ..measures.measured import Measurement
from .showing import shows

FORMAT = 1
FORMATS = ("html", "md", "json", "parquet")
FILE = "report.json"  # of a saved report's folder


@dataclass(frozen=True)
class Point:
    """One checkpoint of a report.

    Attributes:
        name: what it is called.
        measured: what was measured of it; None where that was refused.
        error: why it was refused.
        step, epoch, train_loss, validation_loss: when in training it was written, and the losses then, where known.
    """

    name: str
    measured: Measurement | None
    error: str | None = None
    step: float | None = None
    epoch: float | None = None
    train_loss: float | None = None
    validation_loss: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """The point as plain values, ready for JSON; what is not known is left out."""
        when = {name: value for name in _MOMENT if (value := getattr(self, name)) is not None}
        measured = None if self.measured is None else self.measured.to_dict()
        return plain({"name": self.name, **when, "measured": measured, "error": self.error})

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Point:
        """The point that a file holds."""
        measured = None if data["measured"] is None else Measurement.from_dict(data["measured"])
        when = {name: data[name] for name in _MOMENT if math.isfinite(as_float(data.get(name)))}
        return cls(str(data["name"]), measured, None if data["error"] is None else str(data["error"]), **when)


_MOMENT = ("step", "epoch", "train_loss", "validation_loss")


@dataclass(frozen=True)
class Report:
    """Measurements of one network, or of its checkpoints in order, with where they come from.

    Attributes:
        title: of the page.
        made: when, in seconds since 1970.
        command: how to make it again.
        settings: what was asked for.
        provenance: versions and machine.
        points: one per checkpoint.
        history: rows of the training, where there are any.

    Examples:
        >>> import torch, basinscope as bs
        >>> x = torch.randn(300, 2, generator=torch.Generator().manual_seed(0))
        >>> net = torch.nn.Linear(2, 1, bias=False)
        >>> _ = torch.nn.init.ones_(net.weight)
        >>> report = bs.measure(bs.Landscape(net, "mse", (x, x.sum(1, keepdim=True))), budget=5, progress=False)
        >>> report["llc"].verdict, abs(report["llc"].value - report["half_soft_rank"].value) < 0.1
        ('ok', True)
        >>> report.to_html().startswith("<!doctype html>")
        True
    """

    title: str
    made: float
    command: str
    settings: Mapping[str, Any]
    provenance: Mapping[str, Any]
    points: Sequence[Point]
    history: Sequence[Mapping[str, Any]] = ()

    # ------------------------------------------------------------------ what it holds

    @property
    def final(self) -> Measurement:
        """The measurement of the last checkpoint that has one."""
        for point in reversed(self.points):
            if point.measured is not None:
                return point.measured
        raise BasinscopeError(f"no checkpoint of {self.title!r} could be measured: {self.points[-1].error}")

    def __getitem__(self, name: str) -> Estimate:
        """An estimate of the last checkpoint by name: `llc`, `half_soft_rank`, `wbic` and so on."""
        estimates = self.final.by_name
        if name not in estimates:
            raise KeyError(f"{name!r} was not measured — there are {', '.join(estimates)}")
        return estimates[name]

    @shows
    def rows(self) -> list[dict[str, Any]]:
        """One flat row per checkpoint: every estimate with its standard error and verdict."""
        return [_row(point) for point in self.points]

    def to_dataframe(self) -> Any:
        """The rows as a pandas table; needs `basinscope[tables]`."""
        return dataframe(self.rows())

    # ------------------------------------------------------------------ for people

    def to_html(self, path: str | Path | None = None) -> str:
        """The report as one page that needs nothing else; written to `path` where one is given."""
        from .pages import report_page

        text = report_page(self)
        if path is not None:
            write_whole(Path(path), text.encode())
        return text

    def to_markdown(self, path: str | Path | None = None) -> str:
        """The report in Markdown, without figures."""
        from .text import markdown

        text = markdown(self)
        if path is not None:
            write_whole(Path(path), text.encode())
        return text

    def __rich__(self) -> Group:
        from .text import rich_summary

        return rich_summary(self)

    def __repr__(self) -> str:
        count = f"{len(self.points)} checkpoint{'s' * (len(self.points) > 1)}"
        last = next((point.measured for point in reversed(self.points) if point.measured is not None), None)
        return f"Report({self.title!r}, {count}, {last!r})"

    @shows
    def __str__(self) -> str:
        from .text import lines

        return "\n".join(lines(self))

    def _repr_html_(self) -> str:
        from .pages import notebook_fragment

        return notebook_fragment(self)

    # ------------------------------------------------------------------ for programs

    def to_json(self, path: str | Path | None = None) -> str:
        """The whole report as JSON; `Report.load` reads it back."""
        facts = {"format": FORMAT, **{entry.name: getattr(self, entry.name) for entry in fields(self)}}
        facts |= {"points": [point.to_dict() for point in self.points]}
        text = json.dumps(plain(facts), ensure_ascii=False, allow_nan=False) + "\n"
        if path is not None:
            write_whole(Path(path), text.encode())
        return text

    def to_csv(self) -> str:
        """The rows as CSV."""
        rows = self.rows()
        out = io.StringIO()
        columns = dict.fromkeys(name for row in rows for name in row)
        table = csv.DictWriter(out, list(columns), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
        return out.getvalue()

    def to_parquet(self, path: str | Path) -> None:
        """The rows as a Parquet table."""
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError:
            raise BasinscopeError(
                "Parquet comes with pyarrow, which is not installed — pip install 'basinscope[tables]'"
            ) from None
        sink = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(self.rows()), sink, compression="zstd")
        write_whole(Path(path), sink.getvalue())

    def write(self, path: str | Path, kind: str = "") -> Path:
        """Write to a file in the format that `kind` or the file's ending says: html, md, json or parquet."""
        path = Path(path)
        kind = kind or path.suffix.removeprefix(".").lower()
        if kind not in FORMATS:
            raise InputError(f"a report is written as {', '.join(FORMATS)}, got {kind or str(path)!r} — pass --format")
        if kind == "html":
            self.to_html(path)
        elif kind == "md":
            self.to_markdown(path)
        elif kind == "json":
            self.to_json(path)
        else:
            self.to_parquet(path)
        return path

    def save(self, path: str | Path) -> Path:
        """Write the report so that `load` reads it back from the same path.

        A path that ends in `.json` is a file; any other is a folder, which gets `report.json` and the page
        `report.html`, and which the live page shows as a run.
        """
        path = Path(path)
        ending = path.suffix.removeprefix(".").lower()
        if ending == "json":
            self.to_json(path)
        elif ending in FORMATS:
            raise InputError(f"a folder or a .json file can be loaded again, not {path.name} — use report.write()")
        else:
            self.to_json(path / FILE)
            self.to_html(path / "report.html")
        return path

    @classmethod
    def load(cls, path: str | Path) -> Report:
        """A report from the folder or the JSON file that `save` wrote."""
        path = Path(path)
        path = path / FILE if path.is_dir() else path
        try:
            facts = parsed(contents(path))
        except FileNotFoundError:
            raise InputError(f"there is no report at {path}") from None
        except (ValueError, OSError) as error:
            raise InputError(f"{path} is no report: {error} — write one with report.to_json()") from error
        try:
            return cls.from_dict(facts)
        except (InputError, KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
            raise InputError(
                f"{path} is no report of format {FORMAT} ({error}) — write one with this version's report.to_json()"
            ) from error

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Report:
        """The report that a file holds; what its texts say is not looked at, but escaped where it is shown."""
        if facts["format"] != FORMAT or not facts["points"]:
            raise InputError(f"it has format {facts['format']!r} and {len(facts['points'])} checkpoints")
        return cls(
            str(facts["title"]),
            as_float(facts["made"]),
            str(facts["command"]),
            dict(facts["settings"]),
            dict(facts["provenance"]),
            [Point.from_dict(point) for point in facts["points"]],
            [dict(row) for row in facts["history"]],
        )


def _row(point: Point) -> dict[str, Any]:
    row = {name: value for name in ("name", *_MOMENT) if (value := getattr(point, name)) is not None}
    measured = point.measured
    if measured is None:
        return {**row, "error": point.error}
    row |= {"parameters": measured.subject.parameters, "samples": measured.subject.samples}
    row["loss"] = measured.subject.loss_value
    for name, estimate in measured.by_name.items():
        row |= {column: value for column, value in estimate.columns(name).items() if not column.endswith("_warnings")}
    return {name: plain(value) for name, value in row.items()}
