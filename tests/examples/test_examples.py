import json
import re
import runpy
from pathlib import Path

import pytest

HOME = Path(__file__).parents[2] / "examples"
SCRIPTS = sorted(HOME.glob("*.py"))
QUICK = "soft_rank_and_gap"  # the others are run where slow tests are

# What an example warns of is shown to who runs it; it may use nothing that is on its way out.
pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.filterwarnings("error::DeprecationWarning:__main__")]


def test_there_are_examples():
    assert len(SCRIPTS) >= 7
    assert QUICK in [script.stem for script in SCRIPTS]


@pytest.mark.parametrize(
    "script",
    [pytest.param(path, marks=() if path.stem == QUICK else pytest.mark.slow, id=path.stem) for path in SCRIPTS],
)
def test_every_example_is_short_and_runs(script, tmp_path, monkeypatch, capsys):
    assert len(script.read_text().splitlines()) < 60
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(script), run_name="__main__")
    shown = capsys.readouterr().out
    assert len(shown.splitlines()) >= 2
    assert "failed" not in shown
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("notebook", sorted((HOME / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_shows_what_it_found_and_took_under_two_minutes(notebook):
    stored = json.loads(notebook.read_text())
    took = stored["metadata"]["basinscope"]
    assert took.get("processor_seconds", took["seconds"]) < 120
    code = [cell for cell in stored["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert not any(output["output_type"] == "error" for cell in code for output in cell["outputs"])
    assert "image/png" in code[-1]["outputs"][-1]["data"], "a notebook ends in a figure"


@pytest.mark.slow
@pytest.mark.parametrize("notebook", sorted(HOME.rglob("*.ipynb")), ids=lambda path: path.stem)
def test_the_cells_of_every_notebook_run_in_order(notebook, tmp_path, monkeypatch):
    cells = json.loads(notebook.read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert code
    code = [re.sub(r"budget=(?:bs\.Nominal\(\d+\)|\d+(?:\.\d+)?)", "budget=bs.Nominal(1)", source) for source in code]
    monkeypatch.chdir(tmp_path)
    exec(compile("\n\n".join(code), str(notebook), "exec"), {"__name__": "__main__"})
