"""Every extra, installed by pip from the built wheel where nothing else is, and used for a moment.

    python benchmarks/extras.py            # all of them; minutes, and a few GB of disk on the way
    python benchmarks/extras.py ray wandb  # these again; the others' rows stay

One environment gets torch, the wheel and what the wheel requires. Every extra then has an empty environment of its own
that sees that one and nothing else: torch, by far the largest part, is installed once, and what pip adds is what the
extra costs. The exit code is 1 if one of them fails.
"""

from __future__ import annotations

import argparse
import csv
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import venv
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
USES = ROOT / "tests" / "extra_uses.py"
NONE = "none"
EXTRAS = sorted(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])


@dataclass(frozen=True)
class Row:
    """What an extra brings: distributions and megabytes added, seconds to install and to use it, and how it went."""

    extra: str
    packages: int
    megabytes: float
    install: float
    use: float
    outcome: str


def main() -> int:
    parser = argparse.ArgumentParser(description="Install every extra from the built wheel, and use it.")
    parser.add_argument("extras", nargs="*", metavar="EXTRA", help="only these; all unless given")
    wanted = parser.parse_args().extras or [NONE, *EXTRAS]
    if strange := set(wanted) - {NONE, *EXTRAS}:
        parser.error(f"no such extra: {', '.join(sorted(strange))} — there are {', '.join(EXTRAS)}")
    with tempfile.TemporaryDirectory() as folder:
        rows = list(measured(wanted, Path(folder)))
    write(rows)
    return int(any(row.outcome != "ok" for row in rows))


def measured(wanted: list[str], folder: Path) -> Iterator[Row]:
    """A row for each extra that is wanted."""
    wheel = built(folder)
    base = environment(folder / NONE, None)
    started = time.perf_counter()
    torch = next(line for line in (ROOT / "constraints.txt").read_text().split() if line.startswith("torch=="))
    told = installed(base, torch) or installed(base, str(wheel))
    if told:
        raise SystemExit(f"the wheel alone cannot be installed: {told}")
    seconds = time.perf_counter() - started
    for extra in wanted:
        python = base
        if extra != NONE:
            python = environment(folder / extra, site(base))
            started = time.perf_counter()
            told = installed(python, f"{wheel}[{extra}]")
            seconds = time.perf_counter() - started
        count, megabytes = size(site(python))
        started = time.perf_counter()
        told = told or used(python, extra, folder / f"{extra}-use")
        row = Row(extra, count, megabytes, seconds, time.perf_counter() - started, told or "ok")
        print(f"{extra}: {count} packages, {megabytes:.0f} MB, {seconds:.0f} s; {row.outcome}", flush=True)
        yield row
        if extra != NONE:
            shutil.rmtree(folder / extra)


def built(folder: Path) -> Path:
    code = f"import os, hatchling.build as b; os.chdir({str(ROOT)!r}); b.build_wheel({str(folder)!r})"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def environment(home: Path, below: Path | None) -> Path:
    """The Python of a new environment: empty, or with the packages of the folder below it."""
    venv.create(home, with_pip=below is None, symlinks=True)
    python = home / "bin" / "python"
    if below is not None:
        (site(python) / "below.pth").write_text(f"{below}\n")
    return python


def site(python: Path) -> Path:
    (folder,) = (python.parents[1] / "lib").glob("python*/site-packages")
    return folder


def installed(python: Path, wanted: str) -> str:
    """Install, and check that all requirements of all packages are met; what went wrong, if anything."""
    pip = [str(python), "-m", "pip"]
    constrained = ["-c", str(ROOT / "constraints.txt")] if not wanted.startswith("torch==") else []
    done = subprocess.run([*pip, "install", "-qq", *constrained, wanted], capture_output=True, text=True)
    if done.returncode == 0:
        done = subprocess.run([*pip, "check"], capture_output=True, text=True)
    return "" if done.returncode == 0 else last_line(done)


def used(python: Path, extra: str, folder: Path) -> str:
    """Use the extra in an empty folder; what went wrong, if anything."""
    folder.mkdir()
    command = [str(python), "-I", str(USES), extra]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)
    return "" if done.returncode == 0 else last_line(done)


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    return ((done.stdout + done.stderr).strip().splitlines() or ["no reason given"])[-1]


def size(folder: Path) -> tuple[int, float]:
    """Distributions in a folder of packages, pip aside, and megabytes."""
    count = sum(not path.name.startswith(("pip-", "setuptools-")) for path in folder.glob("*.dist-info"))
    return count, sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


# ---------------------------------------------------------------------- the page


PAGE = """# Extras

Made by `make test-extras`, Python {version}. The wheel is built, and pip installs it with the releases of
`constraints.txt` into an environment that has nothing else (`none`; mostly torch). Every extra then gets an empty
environment of its own, which sees that one and nothing more: there pip installs `basinscope[EXTRA]` from the same
wheel, `pip check` finds all requirements met, and `tests/extra_uses.py` uses the extra: the callbacks train a network,
Ray and submitit run a study, W&B keeps a run offline, the live page answers, and so on. Packages and megabytes
are those that the extra adds. Seconds are of the clock, on a machine with other work to do; rows may come from separate
runs.

| extra | packages | MB | s to install | s to use | |
|---|---:|---:|---:|---:|---|"""


def write(rows: list[Row]) -> None:
    """Put rows in the place of those of the same extras, and make the page."""
    table = RESULTS / "extras.csv"
    known = {}
    if table.exists():
        with table.open() as stream:
            known = {row["extra"]: row for row in csv.DictReader(stream)}
    fresh = {row.extra: {key: plain(value) for key, value in asdict(row).items()} for row in rows}
    kept = {extra: {**known, **fresh}[extra] for extra in [NONE, *EXTRAS] if extra in known or extra in fresh}
    with table.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, [field.name for field in fields(Row)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(kept.values())
    (RESULTS / "extras.md").write_text(page(list(kept.values())))


def plain(value: str | int | float) -> str:
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def page(rows: list[dict[str, str]]) -> str:
    lines = [PAGE.format(version=".".join(map(str, sys.version_info[:3])))]
    for row in rows:
        lines.append(
            f"| `{row['extra']}` | {row['packages']} | {float(row['megabytes']):.1f} | {float(row['install']):.0f} | "
            f"{float(row['use']):.0f} | {row['outcome']} |"
        )
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.exit(main())
