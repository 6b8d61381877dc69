"""What is in `results/` comes from what is stored there: tables are made again to the same bytes, addresses stay."""

import json
from importlib import import_module
from pathlib import Path

import pandas as pd
import pytest

from basinscope.runs.identity import checksum
from basinscope.runs.records import record
from basinscope.runs.references import load
from basinscope.runs.restoring import restore
from basinscope.runs.results import Results
from basinscope.runs.store import Store
from basinscope.runs.units import planned
from basinscope.studies import studies_in
from studies.common.files import csv_files
from studies.flatness.criterion import criterion_table
from studies.flatness.report import page

ROOT = Path(__file__).parents[2]
KNOWN = studies_in(ROOT / "studies")
LAST_BITS = ["learning-curves/summary.csv"]  # of correlations, which depend on the processor

# A digest of the addresses of all results, in the order of the table. They change with a study's name, version,
# settings or jobs, and results that are stored are then found no more.
ADDRESSES = {
    "compression": "20eeb6e87f40",
    "criteria": "6b0b0e2b6593",
    "entropy-sgd": "2727092c5108",
    "exact-coefficients": "0512bd085527",
    "images": "aab627f3e47c",
    "influence": "7c3a028ba188",
    "learning-curves": "f8207d6a248d",
    "llc": "268c4a7edd75",
    "llc/smoke": "0ba767e17b91",
    "ngd-vs-sgd": "ac37d4841602",
    "soft-rank-propositions": "0e1bfd82a059",
    "superposition": "6530fd740d3c",
    "temperature-regression": "9516938c7f45",
    "trained-networks": "b9436a62751a",
    "volume-scaling": "36f40f76b326",
    "wbic-selection": "9aca137d53a9",
}

REPORTS = {str(path.parent.relative_to(ROOT / "results")): path for path in (ROOT / "results").rglob("provenance.json")}
TABLES = [name for name in ADDRESSES if (ROOT / "results" / name / "table.parquet").is_file()]
# Results of an earlier version of their study, with the module whose `tables` still makes its tables of these rows.
EARLIER = [
    ("flatness/smoke", "studies.flatness.tables", "networks.parquet"),
    pytest.param("flatness", "studies.flatness.tables", "networks.parquet", marks=pytest.mark.slow),
]
ORIGINS = [name for name in TABLES if "origins" in json.loads(REPORTS[name].read_text())]


class Stored:
    """The results of a report, as far as the study's own report wants them."""

    def __init__(self, name):
        facts = json.loads(REPORTS[name].read_text())
        self.study = load(KNOWN[facts["study"]].reference)
        self.settings = record(self.study.Settings, facts["settings"], name, "setting")
        self.origin = {name: value for name, value in facts.items() if name != "origins"}
        self.keys = [key for origin in facts.get("origins", []) for key in origin["jobs"]]
        self.folder = ROOT / "results" / name

    @property
    def table(self):
        return pd.read_parquet(self.folder / "table.parquet")

    def provenance(self):
        return self.origin


def test_only_results_of_an_earlier_version_may_have_other_addresses():
    for name in REPORTS.keys() - ADDRESSES:
        facts = json.loads(REPORTS[name].read_text())
        assert facts["version"] < load(KNOWN[facts["study"]].reference).version, name


@pytest.mark.parametrize("name", ADDRESSES)
def test_results_keep_their_addresses(name):
    stored = Stored(name)
    keys = [plan.key for plan in planned(stored.study, stored.settings)]
    assert stored.settings.config() == stored.origin["settings"]
    assert len(keys) == stored.origin["jobs"]
    assert set(stored.keys) <= set(keys)
    assert checksum("".join(keys).encode())[:12] == ADDRESSES[name]


@pytest.mark.parametrize("name", TABLES)
def test_tables_and_pages_are_made_again_to_the_same_bytes(name, tmp_path, monkeypatch):
    stored = Stored(name)
    module = type(stored.study).__module__
    if module.partition(".")[2].partition(".")[0] in ("llc", "ngd_vs_sgd"):
        monkeypatch.setattr(f"{module}.draw", lambda *given: [])  # figures are not compared
    written = stored.study.report(stored, tmp_path)
    compared = [path for path in written if path.suffix != ".png"]
    assert compared
    for path in compared:
        there = stored.folder / path.name
        if f"{name}/{path.name}" in LAST_BITS:
            pd.testing.assert_frame_equal(pd.read_csv(path), pd.read_csv(there), rtol=1e-12)
        else:
            assert checksum(path.read_bytes()) == checksum(there.read_bytes()), path.name


@pytest.mark.parametrize(("name", "module", "rows"), EARLIER)
def test_tables_of_an_earlier_version_are_made_again_to_the_same_bytes(name, module, rows, tmp_path):
    folder = ROOT / "results" / name
    made = import_module(module).tables(pd.read_parquet(folder / rows))
    written = csv_files({name: table for name, table in made.items() if name != "networks"}, tmp_path)
    assert {path.name for path in written} == {path.name for path in folder.glob("*.csv")} - {"table.csv"}
    for path in written:
        assert checksum(path.read_bytes()) == checksum((folder / path.name).read_bytes()), path.name
    text = page(
        {**made, "criterion": criterion_table({"hole-free": made["networks"]})}, json.loads(REPORTS[name].read_text())
    )
    assert text == (folder / "README.md").read_text()


def test_every_report_is_made_again():
    earlier = {getattr(case, "values", case)[0] for case in EARLIER}
    assert REPORTS.keys() == {*TABLES, *earlier}


@pytest.mark.parametrize("name", ORIGINS)
def test_stored_results_come_back_out_of_their_report(name, tmp_path):
    stored = Stored(name)
    count = stored.origin["results"]
    assert restore(stored.study, stored.folder, Store(tmp_path)) == (count, stored.origin["jobs"])
    results = Results(stored.study, stored.settings, Store(tmp_path))
    seconds = stored.origin["seconds"]  # a sum, whose last bits differ between releases of Python
    assert results.provenance() == stored.origin | {"seconds": pytest.approx(seconds, rel=1e-12)}
    pd.testing.assert_frame_equal(results.table, stored.table)
