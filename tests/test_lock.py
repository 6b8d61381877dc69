"""The lock has the pins of constraints.txt, each with hashes, and is enough to install from."""

import re
import sys

from hatchling.build import build_editable

from documented import ROOT


def test_the_lock_has_every_pin_with_hashes():
    pins = {line for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line}
    entries = re.split(r"\n(?=\S)", (ROOT / "requirements.lock").read_text().partition("\n")[2].strip())
    locked = {entry.partition(" \\\n")[0]: re.findall(r"--hash=sha256:[0-9a-f]{64}", entry) for entry in entries}
    assert set(locked) == pins, "run .ci/lock.py"
    assert all(locked.values())


def test_an_editable_install_needs_nothing_that_the_lock_lacks(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)  # `make locked` builds without isolation
    monkeypatch.setitem(sys.modules, "editables", None)  # which hatchling takes unless told where the code is
    assert (tmp_path / build_editable(str(tmp_path))).exists()
