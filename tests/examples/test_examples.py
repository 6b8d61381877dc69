import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HOME = Path(__file__).parents[2] / "examples"
SCRIPTS = sorted(HOME.glob("*.py"))


def test_there_are_examples():
    assert len(SCRIPTS) >= 7


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_every_example_is_short_and_runs(script, tmp_path):
    assert len(script.read_text().splitlines()) < 60
    done = run([str(script)], tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) >= 2
    assert "failed" not in done.stdout
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("notebook", sorted(HOME.glob("*.ipynb")), ids=lambda path: path.stem)
def test_the_cells_of_every_notebook_run_in_order(notebook, tmp_path):
    cells = json.loads(notebook.read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    done = run(["-c", "\n\n".join(code)], tmp_path)
    assert code
    assert done.returncode == 0, done.stderr


def run(arguments, folder):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error::DeprecationWarning:__main__"}
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=280
    )
