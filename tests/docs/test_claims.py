"""What the README and the page on benchmarks say is what the benchmarks found."""

import csv
import math
import re
import statistics

import pytest

from documented import ROOT

RESULTS = ROOT / "benchmarks" / "results"
TEXTS = {name: (ROOT / name).read_text() for name in ("README.md", "docs/benchmarks.md")}


def rows(text):
    """The rows of all tables, cell by cell."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def numbers(cell):
    return re.findall(r"\d+(?:\.\d+)?", cell.replace(",", ""))


def says(shown, found):
    """Whether a number as it is shown is the one that was found, to the digits shown; half-way either way."""
    digits = len(shown.partition(".")[2])
    return abs(float(shown) - float(found)) <= 0.5001 * 10**-digits


@pytest.fixture(scope="module")
def truth():
    with (RESULTS / "ground_truth.csv").open() as stream:
        return list(csv.DictReader(stream))


def test_the_summary_of_the_ground_truth(truth):
    errors = [abs(float(row["value"]) / float(row["reference"]) - 1) for row in truth]
    sure = [error for error, row in zip(errors, truth, strict=True) if row["verdict"] == "ok"]
    middle = 100 * statistics.median(errors)
    tail = 100 * sorted(errors)[math.ceil(0.95 * (len(errors) - 1))]  # as the page has it
    covered = 100 * sum(row["covered"] == "True" for row in truth) / len(truth)
    text = " ".join(TEXTS["README.md"].split())
    told = re.search(
        r"on (\d+) landscapes .* median error ([\d.]+) %, 95th percentile ([\d.]+) %; 90 % intervals hold λ_t "
        r"([\d.]+) % of the time; (\d+) `ok`, (\d+) `doubtful`, no `ok` that is wrong by (\d+) %",
        text,
    )
    assert told, "the README no longer sums the ground truth up in these words"
    count, *shown, ok, doubtful, most = told.groups()
    assert int(count) == len(truth)
    assert all(says(*pair) for pair in zip(shown, (middle, tail, covered), strict=True)), (middle, tail, covered)
    assert (int(ok), int(doubtful)) == (len(sure), len(truth) - len(sure))
    assert 100 * max(sure) < float(most)
    limits = [abs(float(row["value"]) / float(row["coefficient"]) - 1) for row in truth]
    shown = re.search(r"λ itself, the limit of λ_t, is (\d+) % away in the median", text)
    assert says(shown[1], 100 * statistics.median(limits))
    table = {row[0]: row[1] for row in rows(TEXTS["docs/benchmarks.md"]) if len(row) == 2}
    assert says(numbers(table["median error"])[0], middle)
    assert says(numbers(table["95th percentile"])[0], tail)
    assert says(numbers(table["90 % intervals that hold the answer"])[0], covered)
    assert table["`ok` and wrong by 15 % or more"] == f"{sum(each >= 0.15 for each in sure)} of {len(sure)}"
    assert says(numbers(table["longest case"])[0], max(float(row["seconds"]) for row in truth))


def test_errors_beside_the_peers():
    found = {tuple(row[:2]): row for row in rows((RESULTS / "llc_speed.md").read_text())}
    shown = [
        row
        for row in rows(TEXTS["docs/benchmarks.md"])
        if tuple(row[:2]) in found and row[1] in ("nothing set", "defaults")
    ]
    assert len(shown) == 2
    for row in shown:
        measured = found[tuple(row[:2])]
        for cell, place in zip(row[2:], range(2, 8), strict=True):
            for pair in zip(numbers(cell), numbers(measured[place]), strict=True):
                assert says(*pair), (row, measured)


def test_times_of_draws():
    found = [row for row in rows((RESULTS / "llc_speed.md").read_text()) if len(row) == 8]
    best = {}
    for network, _, batch, tool, _, whole, *_ in found:
        if re.fullmatch(r"[\d.]+", whole):
            key = (network, batch, tool)
            best[key] = min(float(whole), best.get(key, float("inf")))
    shown = [row for row in rows(TEXTS["docs/benchmarks.md"]) if len(row) == 5 and row[1] in ("128", "512")]
    assert len(shown) == 5
    for network, batch, *times in shown:
        for tool, time in zip(("devinterp 1.3.2", "devinterp 2.0.1", "basinscope"), times, strict=True):
            assert says(time, best[network, batch, tool]), (network, batch, tool)


def test_traces_and_soft_ranks():
    text = (RESULTS / "curvature.md").read_text()
    exact = re.findall(r"basinscope, rtol=0.01 \| ([\d.]+) s", text)
    page = TEXTS["docs/benchmarks.md"]
    assert all(page.count(f"{seconds} s, exact") == 2 for seconds in exact)  # at a glance, and beside the others
    ours, naive = re.findall(r"in ([\d.]+) s; naive [\d.]+ in ([\d.]+) s", text)[-1]  # float64 comes last
    assert f"| {ours} s | {naive} s (dense, by hand" in page


def test_populations():
    row = next(row for row in rows((RESULTS / "population.md").read_text()) if row[:2] == ["MLP", "32"])
    shown = next(row for row in rows(TEXTS["docs/benchmarks.md"]) if row[0].startswith("one step of 64 networks"))
    assert says(numbers(shown[1])[0], row[3])
    assert says(numbers(shown[2])[0], row[2])
