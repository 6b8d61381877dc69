"""Studies by name: the one that comes with Basinscope as an example to copy, and those of a folder. None is loaded."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import NamedTuple

from ..foreign import contents, parsed


class Known(NamedTuple):
    """A study that can be run by name: where it is, and what it asks."""

    reference: str
    title: str


CATALOGUE = {
    "quadratics": Known("basinscope.studies.quadratics:STUDY", "λ̂ of quadratic basins beside its exact value"),
}


def studies_in(folder: Path) -> dict[str, Known]:
    """The studies in the folders of a folder, by the folders' names with dashes.

    Each has a file `study.py` with `STUDY`, and its `__init__.py` begins with the study's title.

    Examples:
        >>> studies_in(Path("nowhere"))
        {}
    """
    return {
        path.parent.name.replace("_", "-"): Known(f"{path.resolve()}:STUDY", title(path.parent))
        for path in sorted(folder.glob("*/study.py"))
    }


def title(study: Path) -> str:
    """What a study's folder says of itself in its first line; empty where it says nothing."""
    file = study / "__init__.py"
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) if file.is_file() else None
    return (text or "").partition("\n")[0].removesuffix(".")


def durations(results: Path, name: str) -> dict[str, tuple[float, str]]:
    """Seconds of computing, and the devices, behind the results of a study in a folder; by scale, where there are any.

    Examples:
        >>> durations(Path("nowhere"), "quadratics")
        {}
    """
    origins = {"smoke": results / name / "smoke", "paper": results / name}
    times: dict[str, tuple[float, str]] = {}
    for scale, folder in origins.items():
        try:
            origin = parsed(contents(folder / "provenance.json"))
            times[scale] = float(origin["seconds"]), ", ".join(map(str, origin["device"]))
        except (OSError, ValueError, KeyError, TypeError):
            continue  # no results, or those of another version
    return times
