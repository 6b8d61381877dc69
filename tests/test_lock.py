"""The lock has the pins of constraints.txt, each with hashes."""

import re

from documented import ROOT


def test_the_lock_has_every_pin_with_hashes():
    pins = {line for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line}
    entries = re.split(r"\n(?=\S)", (ROOT / "requirements.lock").read_text().partition("\n")[2].strip())
    locked = {entry.split(" ")[0]: re.findall(r"--hash=sha256:[0-9a-f]{64}", entry) for entry in entries}
    assert set(locked) == pins, "run .ci/lock.py"
    assert all(locked.values())
