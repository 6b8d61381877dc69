"""The tools that are compared: in which environment each runs, and what its worker is."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from .environments import ONE, TWO, Peer
from .job import Job, Result, run


@dataclass(frozen=True)
class Tool:
    """An estimator of λ; without a peer, the package this repository holds."""

    worker: str
    peer: Peer | None = None

    @property
    def label(self) -> str:
        return "basinscope" if self.peer is None else self.peer.label

    def run(self, jobs: list[Job]) -> list[Result]:
        python: str | Path = sys.executable if self.peer is None else self.peer.ready()
        return run(python, f"speed.{self.worker}", jobs)


OURS = Tool("ours")
FIRST = Tool("devinterp_1", ONE)
SECOND = Tool("devinterp_2", TWO)
