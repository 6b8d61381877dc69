"""Tables and pages of studies as files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def csv_files(made: Mapping[str, pd.DataFrame], folder: Path) -> list[Path]:
    """Write tables by the names of their files; their paths."""
    paths = [folder / f"{name}.csv" for name in made]
    for path, table in zip(paths, made.values(), strict=True):
        table.to_csv(path, index=False, float_format="%.6g")
    return paths


def readme(text: str, folder: Path) -> Path:
    """Write the page of the results; its path."""
    path = folder / "README.md"
    path.write_text(text)
    return path
