"""Report: what was measured, for people to read and for programs to load."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Group

from ..errors import BasinscopeError, InputError
from ..estimates import Estimate
from ..files import write_whole

FORMAT = 1
FORMATS = ("html", "md", "json", "parquet")


@dataclass(frozen=True)
class Report:
    """Measurements of one network, or of its checkpoints in order, with where they come from.

    Attributes:
        facts: everything as plain values: `title`, `made`, `command`, `settings`, `provenance`, `points` (one per
            checkpoint), `history` (rows of the training, where there are any).

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

    facts: Mapping[str, Any]

    # ------------------------------------------------------------------ what it holds

    @property
    def title(self) -> str:
        return str(self.facts["title"])

    @property
    def points(self) -> list[dict[str, Any]]:
        """The checkpoints: `name`, `step`, `measured` or, where that was refused, `error`."""
        return list(self.facts["points"])

    @property
    def final(self) -> dict[str, Any]:
        """The measurement of the last checkpoint that has one."""
        for point in reversed(self.points):
            if point["measured"] is not None:
                found: dict[str, Any] = point["measured"]
                return found
        raise BasinscopeError(f"no checkpoint of {self.title!r} could be measured: {self.points[-1]['error']}")

    def __getitem__(self, name: str) -> Estimate:
        """An estimate of the last checkpoint by name: `llc`, `half_soft_rank`, `wbic` and so on."""
        found = estimates(self.final)
        if name not in found:
            raise KeyError(f"{name!r} was not measured — there are {', '.join(found)}")
        return Estimate.from_dict(found[name])

    def rows(self) -> list[dict[str, Any]]:
        """One flat row per checkpoint: every estimate with its standard error and verdict."""
        return [_row(point) for point in self.points]

    # ------------------------------------------------------------------ for people

    def to_html(self, path: str | Path | None = None) -> str:
        """One page that needs nothing else; written to `path` where one is given."""
        from .pages import report_page

        text = report_page(self)
        if path is not None:
            write_whole(Path(path), text.encode())
        return text

    def to_markdown(self, path: str | Path | None = None) -> str:
        """The same in Markdown, without figures."""
        from .text import markdown

        text = markdown(self)
        if path is not None:
            write_whole(Path(path), text.encode())
        return text

    def __rich__(self) -> Group:
        from .text import rich_summary

        return rich_summary(self)

    def __str__(self) -> str:
        from .text import lines

        return "\n".join(lines(self))

    def _repr_html_(self) -> str:
        from .pages import notebook_fragment

        return notebook_fragment(self)

    # ------------------------------------------------------------------ for programs

    def to_json(self, path: str | Path | None = None) -> str:
        """Everything; `Report.load` reads it back."""
        text = json.dumps({"format": FORMAT, **self.facts}, ensure_ascii=False, allow_nan=False) + "\n"
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

    def save(self, folder: str | Path) -> Path:
        """Write `report.html` and `report.json` to a folder, which the live page shows as a run."""
        folder = Path(folder)
        self.to_json(folder / "report.json")
        self.to_html(folder / "report.html")
        return folder

    @classmethod
    def load(cls, path: str | Path) -> Report:
        """A report from the JSON file that was written of it."""
        path = Path(path)
        try:
            facts = json.loads(path.read_bytes())
        except FileNotFoundError:
            raise InputError(f"there is no report at {path}") from None
        except (ValueError, OSError) as error:
            raise InputError(f"{path} is no report: {error} — write one with report.to_json()") from error
        if not isinstance(facts, dict) or facts.pop("format", None) != FORMAT or not _sound(facts):
            raise InputError(f"{path} is no report of format {FORMAT} — write one with this version's report.to_json()")
        return cls(facts)


def _sound(facts: Mapping[str, Any]) -> bool:
    """Whether facts from a file have the form that pages rely on; what texts say is not looked at, but escaped."""
    try:
        for point in facts["points"]:
            measured = point["measured"]
            if measured is None:
                continue
            counts = [measured["subject"][name] for name in ("parameters", "samples")]
            told = estimates(measured).values()
            plain = all(
                isinstance(each[name], (int, float, type(None))) for each in told for name in ("value", "stderr")
            )
            if not plain or not all(each["verdict"] in ("ok", "doubtful", "failed") for each in told):
                return False
            if not all(isinstance(count, int) for count in counts):
                return False
        return bool(facts["points"]) and isinstance(facts["made"], (int, float)) and isinstance(facts["history"], list)
    except (KeyError, TypeError, AttributeError):
        return False


def estimates(measured: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """All estimates of a measurement by name, λ̂ and its quadratic part first."""
    return {"llc": measured["llc"], "half_soft_rank": measured["quadratic"], **measured["estimates"]}


def _row(point: Mapping[str, Any]) -> dict[str, Any]:
    row = {name: point.get(name) for name in ("name", "step", "epoch", "train_loss", "validation_loss")}
    row = {name: value for name, value in row.items() if value is not None}
    measured = point["measured"]
    if measured is None:
        return {**row, "error": point["error"]}
    row["loss"] = measured["subject"]["loss_value"]
    for name, found in estimates(measured).items():
        row[name] = found["value"]
        row[f"{name}_stderr"] = found["stderr"]
        row[f"{name}_verdict"] = found["verdict"]
    row["nbeta"] = measured["llc"]["diagnostics"].get("nbeta")
    row["gamma"] = measured["llc"]["diagnostics"].get("gamma")
    return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in row.items()}
