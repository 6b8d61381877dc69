"""What is skipped says why and what to do, once, at the end."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import lacking


def test_each_reason_is_one_line_with_its_count():
    reports = [SimpleNamespace(longrepr=("file", 1, f"Skipped: {reason}")) for reason in ("b — do", "a — do", "b — do")]
    assert lacking.summary_lines(reports) == ["a — do  (1 left out)", "b — do  (2 left out)"]


def test_only_what_is_lacking_is_skipped():
    lacking.Need("x", "get x", lambda: True).insist()
    with pytest.raises(pytest.skip.Exception, match="x — get x"):
        lacking.Need("x", "get x", lambda: False).insist()


def test_a_package_that_is_broken_is_no_package_that_is_absent(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(lacking.BROUGHT_BY, "absent_package", "demo")
    monkeypatch.setitem(lacking.BROUGHT_BY, "broken_package", "demo")
    (tmp_path / "broken_package.py").write_text("import absent_part")
    with pytest.raises(pytest.skip.Exception, match=r"the package absent_package — pip install .*\[demo\]"):
        lacking.package("absent_package")
    with pytest.raises(ModuleNotFoundError, match="absent_part"):
        lacking.package("broken_package")


@pytest.mark.slow
@pytest.mark.parametrize("workers", [[], ["-n", "1"]])
def test_a_run_ends_with_what_was_lacking(tmp_path, workers):
    here = Path(__file__).parent
    (tmp_path / "conftest.py").write_text((here / "conftest.py").read_text())
    (tmp_path / "test_file.py").write_text("import lacking\nlacking.package('absent_package')\n")
    (tmp_path / "test_one.py").write_text(
        "import lacking\n@lacking.Need('the moon', 'wait', lambda: False).mark\ndef test(): pass\n"
        "def test_here(): pass\n"
    )
    (tmp_path / "pytest.ini").write_text(f"[pytest]\npythonpath = {here}\n")
    plugin = tmp_path / "extra.py"
    plugin.write_text("import lacking\nlacking.BROUGHT_BY['absent_package'] = 'demo'\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *workers, "-p", "extra"],
        cwd=tmp_path, env={"PYTHONPATH": f"{here}:{tmp_path}", "PATH": ""}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    _, heading, rest = done.stdout.partition("what this machine lacks")
    assert heading
    lines = rest.splitlines()[1:3]
    assert lines == [
        "the moon — wait  (1 left out)",
        "the package absent_package — pip install -c constraints.txt -e '.[demo]'  (1 left out)",
    ]
