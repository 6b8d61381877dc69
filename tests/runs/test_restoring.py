"""Results come back out of a report's table at their addresses, and a restored study gives the same report."""

import json

import pytest

import small_studies
from basinscope.errors import InputError
from basinscope.runs.driver import run
from basinscope.runs.restoring import restore
from basinscope.runs.results import Results
from basinscope.runs.settings import resolved
from basinscope.runs.status import statuses
from basinscope.runs.store import Store
from basinscope.runs.study import Job, Study


class Pair(Job):
    sizes: tuple[int, ...]
    rate: float
    seed: int = 0


class Mixed(Study):
    """Jobs of two kinds, with columns that are empty for the first of either and whole numbers among floats."""

    name = "mixed"
    Job = Pair | small_studies.Bird

    def jobs(self, settings):
        pairs = [Pair(sizes=(1, size), rate=0.1 * size) for size in range(3)]
        return [*pairs, *(small_studies.Bird(shape=shape, seed=1) for shape in ("large", "small"))]

    def job(self, config):
        return (Pair if "sizes" in config else small_studies.Bird)(**config)

    def run(self, job, scratch):
        if isinstance(job, Pair):
            return {"value": job.rate, "late": None if job.sizes[1] == 0 else 1.5, "never": None}
        return {"wing": 2 if job.shape == "large" else 0.1, "value": 3}


def report(study, store, folder):
    results = Results(study, resolved(study, "smoke"), Store(store))
    return {path.name: path.read_bytes() for path in results.write(folder)}


@pytest.mark.parametrize("study", [Mixed(), small_studies.FLOCKS, small_studies.TROUBLE])
def test_a_restored_study_gives_the_same_report(tmp_path, study):
    run(study, tmp_path / "store", progress=False)
    before = report(study, tmp_path / "store", tmp_path / "report")
    count = len(list(study.jobs(resolved(study, "smoke"))))
    assert restore(study, tmp_path / "report", Store(tmp_path / "again")) == (count, count)
    assert report(study, tmp_path / "again", tmp_path / "same") == before
    assert run(study, tmp_path / "again", progress=False).fresh == 0
    (status,) = statuses(Store(tmp_path / "again"))
    assert (status.done, status.total, status.scale) == (count, count, "smoke")


def test_a_part_of_a_study_is_restored_and_the_rest_is_run(tmp_path):
    run(small_studies.FLOCKS, tmp_path / "store", only="shape=small", progress=False)
    before = report(small_studies.FLOCKS, tmp_path / "store", tmp_path / "report")
    assert restore(small_studies.FLOCKS, tmp_path / "report", Store(tmp_path / "again")) == (6, 13)
    assert report(small_studies.FLOCKS, tmp_path / "again", tmp_path / "same") == before
    assert run(small_studies.FLOCKS, tmp_path / "again", progress=False).fresh == 7


def test_only_reports_can_be_restored(tmp_path):
    told = {"study": "flocks", "version": 1, "settings": {}}
    place = tmp_path / "provenance.json"
    for content, words in (
        (None, "provenance.json is not there"),
        ({**told, "study": "orbits"}, "is of study 'orbits', version 1; expected 'flocks', version 1"),
        ({**told, "version": 2}, "version 2; expected"),
        (told, "names no origins"),
        ({**told, "origins": []}, "table.parquet is not there"),
    ):
        if content is not None:
            place.write_text(json.dumps(content))
        with pytest.raises(InputError, match=words):
            restore(small_studies.FLOCKS, tmp_path, Store(tmp_path / "store"))
