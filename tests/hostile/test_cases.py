"""Every case of the tables of this folder, a test each: nothing wrong, nothing that crashes or hangs."""

import pytest

from hostile import arguments, chains, data, files, landscapes, machines, models, observables, stores, texts
from hostile.outcomes import tried

TABLES = {
    "model": models.CASES,
    "data": data.CASES,
    "argument": arguments.CASES,
    "text": texts.CASES,
    "landscape": landscapes.CASES,
    "file": files.CASES,
    "store": stores.CASES,
    "chains": chains.CASES,
    "machine": machines.CASES,
    "observable": observables.CASES,
}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=f"{table}: {case.name}", marks=[pytest.mark.slow] if case.slow else [])
        for table, cases in TABLES.items()
        for case in cases
    ],
)
def test_bad_input_gives_a_sentence_and_good_input_the_right_number(case, tmp_path):
    outcome = tried(case, tmp_path)
    assert outcome.suits(case), f"{outcome.kind}: {outcome.words}"
