import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from basinscope.cli import app

HERE = Path(__file__).parents[1]
ORBITS = f"{HERE / 'small_studies.py'}:ORBITS"
TROUBLE = f"{HERE / 'small_studies.py'}:TROUBLE"
GENEROUS = 240  # seconds until a process counts as hung


def study(*arguments):
    return CliRunner().invoke(app, ["study", *map(str, arguments)])


def started(*arguments):
    command = [sys.executable, "-c", "from basinscope.cli import main; main()", "study", *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def test_list_names_every_study():
    told = study("list")
    assert told.exit_code == 0
    assert "quadratics" in told.stdout
    assert "quadratics" in json.loads(study("list", "--json").stdout)


def test_list_names_the_studies_of_the_folder_studies(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    home = tmp_path / "studies" / "my_squares"
    home.mkdir(parents=True)
    (home / "study.py").write_text("raise RuntimeError('not loaded')\n")
    (home / "__init__.py").write_text('"""Squares of small numbers."""\n')
    told = json.loads(study("list", "--json").stdout)
    assert told["my-squares"] == "Squares of small numbers"
    assert next(iter(told)) == "quadratics"


def test_a_part_is_run_reported_and_put_back_into_another_store(tmp_path):
    command = ["run", ORBITS, "--store", tmp_path / "store", "--on", "here", "--only", "seed=[0-4]", "--minutes", "5"]
    assert "5 of 5 jobs stored, 5 of them now" in study(*command).stdout
    study("report", ORBITS, "--store", tmp_path / "store", "--out", tmp_path / "out")
    told = study("restore", ORBITS, tmp_path / "out", "--store", tmp_path / "again")
    assert "orbits: 5 of 8 results put into" in told.stdout, told.stderr
    again = study("run", ORBITS, "--store", tmp_path / "again", "--on", "here")
    assert "8 of 8 jobs stored, 3 of them now" in again.stdout
    wrong = study("restore", ORBITS, tmp_path / "nowhere", "--store", tmp_path / "again")
    assert wrong.exit_code == 2
    assert "is not there" in wrong.stderr


@pytest.mark.slow
def test_a_study_runs_where_there_is_little_but_torch_and_pandas(tmp_path):
    absent = ("jinja2", "markupsafe", "matplotlib", "requests", "ray", "safetensors", "sklearn", "submitit")
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({absent})); from basinscope.cli import main; "
        "sys.argv[1:] += '--on here --minutes 9 -s seeds=1 -s dimensions=[2] -s conditions=[1.0]'.split(); main()"
    )
    command = [sys.executable, "-c", code, "study", "run", "quadratics", "--store", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert "1 of 1 jobs stored" in done.stdout, done.stderr


def test_run_status_and_report(tmp_path):
    store, out = tmp_path / "store", tmp_path / "out"
    first = study("run", ORBITS, "--store", store, "--on", "here", "-s", "count=5")
    assert first.exit_code == 0, first.output
    assert "5 of 5 jobs stored, 5 of them now, 0 failed" in first.stdout
    again = study("run", ORBITS, "--store", store, "--on", "here", "-s", "count=5")
    assert "5 of 5 jobs stored, 0 of them now" in again.stdout
    status = study("status", "--store", store)
    assert "orbits (smoke): 5 of 5 jobs stored" in status.stdout
    (told,) = json.loads(study("status", "--store", store, "--json").stdout)
    assert (told["done"], told["total"], told["settings"]["count"]) == (5, 5, 5)
    assert "5 of 5" in study("status", "--store", store, "--watch").stdout  # no driver: it ends at once
    written = study("report", ORBITS, "--store", store, "--out", out)
    assert written.exit_code == 0, written.output
    table = pd.read_parquet(out / "table.parquet")
    assert table["seed"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert pd.read_csv(out / "table.csv").round(12).equals(table.round(12))
    assert json.loads((out / "provenance.json").read_text())["results"] == 5


def test_a_report_of_part_of_a_study_says_so(tmp_path):
    study("run", ORBITS, "--store", tmp_path / "store", "--on", "here", "-s", "count=2")
    partial = study("report", ORBITS, "--store", tmp_path / "store", "--out", tmp_path / "out", "--scale", "smoke")
    assert "6 of 8 jobs have no result yet" in partial.stdout
    none = study("report", ORBITS, "--store", tmp_path / "store", "-s", "steps=7")
    assert none.exit_code == 2
    assert "has no results at these settings yet" in none.stderr


def test_failures_are_shown_and_set_the_exit_code(tmp_path):
    told = study("run", TROUBLE, "--store", tmp_path, "--on", "here", "-s", "grid.kind=[fine, raise]")
    assert told.exit_code == 1
    assert "failed kind=raise seed=0: ZeroDivisionError: never works" in told.stdout
    shown = study("status", "--store", tmp_path, "--failures")
    assert "Traceback" in shown.stdout
    assert "3 failed" in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["run", "quadratic"], "did you mean 'quadratics'"),
        (["run", "studies/quadratics"], "there is no study.py in 'studies/quadratics'"),
        (["run", ORBITS, "--only", "sed=3"], "no job matches 'sed=3'"),
        (["run", ORBITS, "-s", "coutn=3"], "unknown setting 'coutn' — did you mean 'count'?"),
        (["run", ORBITS, "--scale", "huge"], "has no scale 'huge'"),
        (["run", ORBITS, "--on", "moon"], "--on must be here, local, ray"),
        (["status", "--store", "nowhere"], "there is no store"),
    ],
)
def test_mistakes_are_told_in_one_line(tmp_path, monkeypatch, arguments, told):
    monkeypatch.chdir(tmp_path)
    result = study(*arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert told in result.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_ctrl_c_stops_cleanly_and_the_same_command_goes_on(tmp_path, number):
    command = ("run", ORBITS, "--store", tmp_path, "--workers", 2, "-s", "count=40", "-s", "pause=0.1")
    process = started(*command)
    while not list((tmp_path / "results").rglob("*.json")):
        time.sleep(0.02)
    os.kill(process.pid, number)
    out, err = process.communicate(timeout=GENEROUS)
    assert process.returncode == 130, err
    assert "the same command goes on from here" in out
    assert "Traceback" not in err
    assert not (tmp_path / "driver.json").exists()
    again = study(*command, "-s", "pause=0.1")
    assert again.exit_code == 0
    assert "40 of 40 jobs stored" in again.stdout
    assert "40 of them now" not in again.stdout


def test_status_and_list_load_neither_torch_nor_the_study(tmp_path):
    study("run", ORBITS, "--store", tmp_path, "--on", "here")
    for arguments in (["study", "list"], ["study", "status", "--store", str(tmp_path)]):
        code = (
            "import sys; from basinscope.cli import app; app(sys.argv[1:], standalone_mode=False); "
            "assert not {'torch', 'pandas', 'ray', 'small_studies'} & set(sys.modules)"
        )
        subprocess.run([sys.executable, "-c", code, *arguments], check=True, capture_output=True)
