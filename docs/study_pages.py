"""The site's pages on studies: what `results/` holds when the site is built.

`results/STUDY` or `results/STUDY/SCALE` is a page `studies/STUDY[/SCALE]/index.md`: its README.md with the figures that
it does not show by itself, or, where there is none, its figures and short tables.
"""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

HOME = "studies/index.md"
LONGEST = 30  # rows of a table that a page shows; longer ones are offered as files
REPORTED = ("README.md", "provenance.json")  # what a report always writes: other folders hold files of the page above
OFFERED = (".csv", ".html", ".json", ".parquet")
LARGEST = 20e6  # bytes of a file that goes with a page unasked
LINKED = re.compile(r"\]\((?![a-z]+:|#|/)([^)\s#]+)")

_INTRODUCTION = """# Studies

What is in `results/`, as `basinscope study report` or a script of `studies/` wrote it; [run a
study](../howto/study.md) tells how to make it again. At the scale `paper` a study repeats what a paper did; `smoke`
shows within minutes that it runs, and settles little.
"""


def folders(results: Path) -> dict[str, Path]:
    """The folders that a page is made of, by the page's path; of a study the page of the whole before its scales.

    Examples:
        >>> folders(Path("nowhere"))
        {}
    """
    results = results.resolve()
    told: list[Path] = []
    for study in _folders(results):
        told += [study] if (study / "README.md").is_file() or figures(study) or tables(study) else []
        told += [scale for scale in _folders(study) if any((scale / name).is_file() for name in REPORTED)]
    return {f"studies/{path.relative_to(results).as_posix()}/index.md": path for path in told}


def title(page: str) -> str:
    """A page's name in the menu.

    Examples:
        >>> title("studies/llc/smoke/index.md"), title("studies/llc/index.md")
        ('llc · smoke', 'llc')
    """
    return " · ".join(page.split("/")[1:-1])


def figures(folder: Path) -> list[Path]:
    return sorted([*folder.glob("*.png"), *folder.glob("*.svg")])


def tables(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.csv"))


def files(folder: Path) -> list[Path]:
    """What goes with a page: figures, files that a reader may want, and whatever else the page links to."""
    found = figures(folder)
    found += [path for path in sorted(folder.iterdir()) if path.suffix in OFFERED and path.stat().st_size < LARGEST]
    readme = folder / "README.md"
    if readme.is_file():
        linked = [(folder / name).resolve() for name in LINKED.findall(readme.read_text(encoding="utf-8"))]
        found += [path for path in linked if path.is_relative_to(folder.resolve())]
    return [path for path in dict.fromkeys(found) if path.is_file() and path.suffix != ".md"]


def with_figures(markdown: str, folder: Path) -> str:
    """A page with the figures and files of its folder that it does not show or link to by itself."""
    shown = set(LINKED.findall(markdown))
    missing = [path for path in figures(folder) if path.name not in shown]
    offered = [path for path in files(folder) if path.name not in shown and path not in missing]
    text, heading, last = markdown.rstrip().partition("\n## Files\n")
    if missing:
        text = "\n\n".join([text.rstrip(), "## Figures", *(f"![{_words(path)}]({path.name})" for path in missing), ""])
    if offered:
        links = ", ".join(f"[{path.name}]({path.name})" for path in offered)
        heading, last = heading or "\n## Files\n", f"{last}\n\n{links}"
    return f"{text}{heading}{last}\n"


def page_without_readme(folder: Path, heading: str, words: str) -> str:
    """What is said about a folder, and its figures and short tables, as a page."""
    lines = [f"# {heading}", "", *([words, ""] if words else []), *_provenance(folder)]
    for path in tables(folder):
        rows = _rows(path)
        if 1 < len(rows) <= LONGEST + 1:
            lines += [f"## {_words(path).capitalize()}", "", *_table(rows), ""]
    return "\n".join(lines)


def home(pages: dict[str, Path], results: Path, questions: dict[str, str]) -> str:
    """The page that lists all studies."""
    studies: dict[str, list[str]] = {}
    for page, folder in pages.items():
        study, *scale = folder.relative_to(results).parts
        link = page.removeprefix("studies/")
        studies.setdefault(study, []).append(f"[{' '.join(scale) or 'results'}]({link})")
    rows = [f"| `{study}` | {questions.get(study, '')} | {', '.join(links)} |" for study, links in studies.items()]
    if not rows:
        return f"{_INTRODUCTION}\nThere are no results yet.\n"
    return "\n".join([_INTRODUCTION, "| study | about | pages |", "|---|---|---|", *rows, ""])


def _folders(parent: Path) -> list[Path]:
    if not parent.is_dir():
        return []
    return sorted(path for path in parent.iterdir() if path.is_dir() and not path.name.startswith("."))


def _words(path: Path) -> str:
    return path.stem.replace("_", " ")


def _provenance(folder: Path) -> list[str]:
    """Where the results come from, in a sentence."""
    path = folder / "provenance.json"
    if not path.is_file():
        return []
    told = json.loads(path.read_text(encoding="utf-8"))
    devices = ", ".join(told.get("device", {}))
    minutes = told.get("seconds", 0.0) / 60
    return [
        f"Results of `basinscope study run {told['study']}`, version {told['version']}: {told['results']} of "
        f"{told['jobs']} jobs, {minutes:.0f} minutes of {devices}.",
        "",
    ]


def _rows(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.reader(stream))


def _table(rows: list[list[str]]) -> list[str]:
    """A table in Markdown, with every standard error behind its value.

    Examples:
        >>> _table([["case", "llc", "stderr"], ["cusp", "0.406696", "0.0035932"]])[-1].replace("\\xa0", " ")
        '| cusp | 0.4067 ± 0.0036 |'
    """
    names = rows[0]
    errors = {at: at - 1 for at, name in enumerate(names) if at and name in ("stderr", f"{names[at - 1]}_stderr")}
    kept = [at for at in range(len(names)) if at not in errors]
    behind = {value: at for at, value in errors.items()}

    def cell(row: list[str], at: int) -> str:
        error = f"\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}{_cell(row[behind[at]], 2)}" if at in behind else ""
        return _cell(row[at]) + error

    head = f"| {' | '.join(_cell(names[at]) for at in kept)} |"
    return [head, "|" + "---|" * len(kept), *(f"| {' | '.join(cell(row, at) for at in kept)} |" for row in rows[1:])]


def _cell(text: str, digits: int = 4) -> str:
    """A few digits of a number; a word as it is.

    Examples:
        >>> _cell("0.49441503"), _cell("20"), _cell("hyperbola")
        ('0.4944', '20', 'hyperbola')
    """
    try:
        return text if text.lstrip("-").isdigit() else f"{float(text):.{digits}g}"
    except ValueError:
        return text.replace("_", " ").replace("|", "\\|")
