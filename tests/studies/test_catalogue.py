"""The studies of this repository are found by name and by folder, and say of themselves what their folders say."""

from pathlib import Path

import pytest

from basinscope.runs.references import find, load
from basinscope.runs.settings import resolved
from basinscope.runs.study import SCALES
from basinscope.studies import CATALOGUE, studies_in

STUDIES = Path(__file__).parents[2] / "studies"
KNOWN = {**CATALOGUE, **studies_in(STUDIES)}


def test_every_folder_is_a_study():
    folders = [path for path in STUDIES.iterdir() if path.is_dir() and path.name not in ("common", "__pycache__")]
    assert {folder.name.replace("_", "-") for folder in folders} == set(KNOWN) - set(CATALOGUE)
    assert len(folders) >= 8


@pytest.mark.parametrize("name", KNOWN)
def test_the_catalogue_says_of_a_study_what_it_says_of_itself(name):
    study = load(KNOWN[name].reference)
    assert (study.name, study.title.removesuffix(".")) == (name, KNOWN[name].title)
    for scale in SCALES:
        jobs = list(study.jobs(resolved(study, scale)))
        assert jobs
        assert all(study.job(job.config()) == job for job in jobs)


def test_a_folder_leads_to_the_study_that_its_name_leads_to():
    assert find(str(STUDIES / "llc")).study is find("llc", {"llc": KNOWN["llc"].reference}).study
