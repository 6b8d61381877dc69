"""The study's tables are what the coin says, and its page has a section for each part that was run."""

import math

import pandas as pd
import pytest

from basinscope.runs.driver import run
from basinscope.runs.results import Results
from basinscope.runs.store import Store
from studies.criteria import coin
from studies.criteria.report import tables
from studies.criteria.study import STUDY

SMALL = {"models": ["square"], "sizes": [300, 1000, 3000], "betas": [0.5], "network_betas": [], "networks": []}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("store"))
    assert run(STUDY, store, settings=SMALL, progress=False).complete
    return Results(STUDY, STUDY.settings(**SMALL), store)


def test_laws_and_rates_are_the_coins_own(results, tmp_path):
    made = tables(results.table)
    exact = {n: coin.means("square", n, 0.5) for n in (300, 1000, 3000)}
    laws = made["laws"].set_index("quantity")
    assert set(laws["n"]) == {1000}  # powers of ten
    assert laws.loc["bayes", "value"] == exact[1000].bayes
    nu = coin.fluctuation("square", 0.5)
    assert laws.loc["bayes", "limit"] == pytest.approx((0.25 - nu) / 0.5 + nu)
    assert laws.loc["gibbs_training", "limit"] == pytest.approx(0.25 / 0.5 - nu)
    assert made["rates"]["exponent"][2] == pytest.approx(math.log(exact[3000].gap / exact[1000].gap) / math.log(3))
    written = STUDY.report(results, tmp_path)
    assert all(path.stat().st_size for path in written)
    page = (tmp_path / "README.md").read_text()
    assert "## Laws" in page
    assert "## Flat" not in page


def test_minibatches_and_networks_reach_the_page(results, tmp_path):
    part = {"part": "fluctuation", "beta": 1.0, "seed": 0, "samples": 225, "of": 1797, "visits": 30.0, "value": 11.0}
    network = {"part": "symmetries", "network": "relu 1-3-1", "seed": 1, "parameters": 10, "flat": 3, "bound": 3.5}
    network |= {"rescaling": 3, "mixing": 0, "idle": 0, "residual": 0.0, "llc": 2.0, "llc_stderr": 0.1, "verdict": "ok"}
    both = [part | {"full": 10.0, "off": 0.1, "stderr": 0.5, "full_stderr": 0.2}]
    both += [both[0] | {"seed": 1, "off": -0.3}]

    class More:
        table = pd.concat([results.table, pd.DataFrame([*both, network])], ignore_index=True)
        provenance = results.provenance

    STUDY.report(More(), tmp_path)
    page = (tmp_path / "README.md").read_text()
    root = math.sqrt((0.1**2 + 0.3**2) / 2)
    assert f"| 1 | 225 | 12.52% | 30.0 | -10.00% | {root:.2%} | 5.00% | 2.00% | 10.00 |" in page
    assert "| relu 1-3-1 | 10 | 3 | 0.0e+00 | 3.5 | 2.000 ± 0.100 (ok) |" in page
