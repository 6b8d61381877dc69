"""The lock has the pins of constraints.txt, each with hashes, and is enough to install from; its bill says the same."""

import json
import re
import subprocess
import sys

from hatchling.build import build_editable
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

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


def test_the_bill_of_materials_is_the_lock_and_nothing_else(tmp_path):
    bills = []
    for name in ("first", "second"):
        subprocess.run([sys.executable, ROOT / ".ci/sbom.py", tmp_path / name], check=True, capture_output=True)
        bills.append((tmp_path / name).read_bytes())
    assert bills[0] == bills[1]
    bill, lock = json.loads(bills[0]), (ROOT / "requirements.lock").read_text()
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    pins = [Requirement(line) for line in (ROOT / "constraints.txt").read_text().splitlines()]
    told = {each["purl"]: each for each in bill["components"]}
    assert set(told) == {f"pkg:pypi/{canonicalize_name(pin.name)}@{next(iter(pin.specifier)).version}" for pin in pins}
    hashes = [one["content"] for each in told.values() for one in each["externalReferences"][0]["hashes"]]
    assert hashes == re.findall(r"--hash=sha256:([0-9a-f]{64})", lock)
    (core,) = bill["dependencies"]
    assert core["ref"] == bill["metadata"]["component"]["bom-ref"]
    assert len(core["dependsOn"]) == 8
    assert set(core["dependsOn"]) <= set(told)
