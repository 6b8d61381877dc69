"""Reference values on disk: each is computed once per landscape and resolution."""

from __future__ import annotations

import hashlib
import json
import os
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import basinscope as bs
from basinscope.files import whole_file

from .case import Case, Reference

VERSION = 1  # raise it when the way landscapes are built or references are computed changes


class ReferenceBook:
    """References by case and resolution (nβ, γ), kept in a JSON file that is rewritten after every new one."""

    def __init__(self, path: Path, *, recompute: bool = False) -> None:
        self.path = path
        self.recompute = recompute
        self._entries = self._read()
        self._fresh: set[str] = set()

    def lookup(self, case: Case, land: bs.Landscape, nbeta: float, gamma: float) -> Reference:
        """λ_t of the case at this resolution, from the file or computed now."""
        key = self.key(case, nbeta, gamma)
        entry = self._entries.get(key)
        if entry is not None and not (self.recompute and key not in self._fresh):
            return Reference(**entry["reference"])
        clock = time.process_time()
        reference = case.reference(land, nbeta, gamma)
        reference = replace(reference, seconds=round(time.process_time() - clock, 3))
        self._entries[key] = {"case": repr(case), "nbeta": nbeta, "gamma": gamma, "reference": asdict(reference)}
        self._fresh.add(key)
        self._write()
        return reference

    @staticmethod
    def key(case: Case, nbeta: float, gamma: float) -> str:
        # Six digits: γ comes from ‖w*‖², whose last bits depend on the order of a sum.
        definition = f"{VERSION} {case!r} {nbeta:.6g} {gamma:.6g}"
        return f"{case.name} #{hashlib.sha256(definition.encode()).hexdigest()[:12]}"

    def _write(self) -> None:
        # Another run may have added its own meanwhile: what this one has not computed itself comes from the file.
        mine = {key: self._entries[key] for key in self._fresh}
        self._entries = {**self._entries, **self._read(), **mine}
        text = json.dumps(dict(sorted(self._entries.items())), indent=1, ensure_ascii=False) + "\n"
        with whole_file(self.path, part=f"{self.path.stem}.{os.getpid()}.part") as file:
            file.write(text.encode())

    def _read(self) -> dict[str, dict[str, Any]]:
        return json.loads(self.path.read_text()) if self.path.exists() else {}
