"""Studies under attack and at scale: what kills cost, where the same bits come out, what bookkeeping takes.

    python benchmarks/runs.py                   all parts; writes results/runs.md
    python benchmarks/runs.py --only kills      one part: kills, places, scale
    python benchmarks/runs.py --kills 10        fewer kills

Exits with status 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from survival.kills import VICTIMS, attacked, undisturbed
from survival.places import places
from survival.scale import measured

import basinscope

RESULTS = Path(__file__).parent / "results" / "runs.md"
PARTS = ("kills", "places", "scale")
_SETTINGS = ("count=64", "pause=0.1")
_PER_STUDY = 5

Row = tuple[str, str, str, bool | None]


def kills(folder: Path, number: int, console: Console) -> Iterator[Row]:
    """Whole studies, each with a few kills, until enough have been made."""
    sound = undisturbed(folder / "sound", _SETTINGS)
    total: Counter[str] = Counter()
    begun = in_flight = starts = orphans = studies = same = 0
    complaints: list[str] = []
    while total.total() < number:
        left = min(_PER_STUDY, number - total.total())
        attack = attacked(folder / f"study-{studies}", _SETTINGS, number=left, seed=studies)
        studies += 1
        total += attack.strikes
        begun, in_flight = begun + attack.begun, in_flight + attack.in_flight
        starts, orphans = starts + attack.starts, orphans + attack.orphans
        same += attack.digest == sound
        complaints += attack.complaints
        console.print(
            f"study {studies}: {dict(attack.strikes)}, {attack.begun} jobs begun, {total.total()} kills so far"
        )
    counted = ", ".join(f"{total[victim]} × {victim}" for victim in VICTIMS)
    yield f"kills in {studies} studies of 64 jobs, two workers", f"{total.total()}: {counted}", f"{number}", None
    yield "starts of the driver", str(starts), "", None
    yield "final tables equal to an undisturbed run's, bit for bit", f"{same} of {studies}", "all", same == studies
    lost = begun - 64 * studies
    yield "jobs begun more than once", str(lost), f"≤ {in_flight}, those in flight", lost <= in_flight
    yield "workers that outlived their driver by 2 s", str(orphans), "0", orphans == 0
    yield "damaged results, failures", str(len(complaints)), "0", not complaints
    for complaint in complaints:
        console.print(complaint, markup=False)


def everywhere(folder: Path, console: Console) -> Iterator[Row]:
    """The same 64 jobs in several places."""
    first = None
    for place in places(folder):
        first = first or place.digest
        same = place.digest == first and not place.failed
        what = f"{place.name}, {place.killed} killed" if place.killed else place.name
        console.print(what)
        yield what, f"{place.seconds:.1f} s, table {place.digest[:12]}", "same table", same


def scale(folder: Path, jobs: int) -> Iterator[Row]:
    """Ten thousand jobs that do nothing."""
    found = measured(folder / "store", jobs, workers=2)
    yield (
        f"{jobs:,} empty jobs on two local workers",
        f"{1e3 * found.wall_per_job:.1f} ms per job passed, {1e3 * found.cpu_per_job:.1f} ms of processors",
        "< 10 ms",
        found.wall_per_job < 0.01,
    )
    yield "`study status`, Python's start included", f"{found.status:.2f} s", "< 1 s", found.status < 1
    yield "`study run` with nothing to do", f"{found.resume:.2f} s", "< 5 s", found.resume < 5
    yield "`study report`: one table of all, every byte checked", f"{found.table:.1f} s", "", None


def main() -> int:
    """Run the benchmark; 0 when every target is met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--jobs", type=int, default=10_000)
    options = parser.parse_args()
    console = Console(highlight=False)
    found: dict[str, list[Row]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        if options.only in (None, "kills"):
            found["Kills"] = list(kills(folder / "kills", options.kills, console))
        if options.only in (None, "places"):
            found["The same study in several places"] = list(everywhere(folder / "places", console))
        if options.only in (None, "scale"):
            found["Bookkeeping"] = list(scale(folder / "scale", options.jobs))
    text = _markdown(found)
    console.print(text, markup=False, soft_wrap=True)
    if options.only is None:
        RESULTS.write_text(text)
    return int(any(met is False for rows in found.values() for *_, met in rows))


def _markdown(found: dict[str, list[Row]]) -> str:
    lines = [
        "# Runs",
        "",
        f"basinscope {basinscope.__version__}, Python {platform.python_version()}, {os.cpu_count()} processors shared "
        f"with other work (load {os.getloadavg()[1]:.1f}). `make bench-runs` reruns it all.",
        "",
        "A kill is SIGKILL at a random moment of a worker, of the driver, or of the driver and all workers at once:",
        "some while a driver is only starting, most within a second of work. The driver is started again each time.",
        "The jobs are chaotic orbits, whose tables show any bit that differs. Times of commands are the least of five.",
    ]
    for title, rows in found.items():
        lines += ["", f"## {title}", "", "| | found | target | met |", "|---|---|---|---|"]
        words = {True: "yes", False: "**no**", None: ""}
        lines += [f"| {what} | {value} | {target} | {words[met]} |" for what, value, target, met in rows]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
