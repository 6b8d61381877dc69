import numpy as np
import pandas as pd

from basinscope.curvature.operators import hessian
from basinscope.runs.driver import run
from basinscope.runs.results import Results
from basinscope.runs.settings import resolved
from basinscope.runs.store import Store
from basinscope.studies.quadratics import STUDY, basin, eigenvalues
from chance import SAMPLED, assert_within


def test_the_basin_has_the_curvature_it_was_asked_for():
    import torch

    matrix = hessian(basin(3, 100.0, 50, seed=1)) @ torch.eye(3, dtype=torch.float64)
    found = torch.linalg.eigvalsh((matrix + matrix.T) / 2)
    assert np.allclose(found.flip(0), eigenvalues(3, 100.0))


def test_sampling_meets_the_exact_values_and_the_report_says_so(tmp_path):
    settings = {"dimensions": [2], "conditions": [10.0], "seeds": 2}
    assert run(STUDY, tmp_path / "store", settings=settings, progress=False).complete
    results = Results(STUDY, resolved(STUDY, "smoke", settings), Store(tmp_path / "store"))
    table = results.table
    assert (table["stderr"] < 0.03 * table["exact"]).all()
    assert_within(table["llc"], table["exact"], table["stderr"], SAMPLED)
    written = results.write(tmp_path / "out")
    assert [path.name for path in written] == ["table.parquet", "table.csv", "provenance.json", "summary.csv"]
    assert pd.read_csv(written[-1])["runs"].tolist() == [2]
