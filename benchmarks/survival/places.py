"""One study in one process, in two, and on Ray clusters of which a worker or a whole node is killed on the way."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from basinscope.runs.driver import run
from basinscope.runs.executors.base import Executor
from basinscope.runs.executors.inline import Inline
from basinscope.runs.executors.local import Local
from basinscope.runs.executors.ray import Ray
from basinscope.runs.identity import checksum
from basinscope.runs.results import Results
from basinscope.runs.settings import resolved
from basinscope.runs.store import Store

from .kills import STUDY, children
from .orbits import STUDY as ORBITS

Strike = Callable[[Path], str]  # kills something of the run whose store it is given, and says what

_SETTINGS = {"count": 64, "pause": 0.1}
_ENOUGH = 12  # results after which something is killed


@dataclass(frozen=True)
class Place:
    """Where the study ran, what was killed, how long it took and what came out."""

    name: str
    killed: str
    seconds: float
    failed: int
    digest: str


def places(folder: Path) -> Iterator[Place]:
    """Run the study everywhere."""
    yield _place("one process", folder / "one", Inline())
    yield _place("two local workers", folder / "two", Local(2))
    yield _place("Ray, two workers", folder / "ray", Ray(workers=2))
    with _striking(folder / "ray-worker", _kill_worker) as struck:
        yield _place("Ray, two workers", folder / "ray-worker", Ray(workers=2), struck)
    with _cluster() as (address, node), _striking(folder / "ray-node", node) as struck:
        yield _place("Ray, joined through ray://, two nodes", folder / "ray-node", Ray(address), struck)


def _place(name: str, store: Path, on: Executor, struck: list[str] | None = None) -> Place:
    started = time.perf_counter()
    summary = run(STUDY, store, settings=_SETTINGS, on=on, progress=False)
    seconds = time.perf_counter() - started
    results = Results(ORBITS, resolved(ORBITS, "smoke", _SETTINGS), Store(store))
    results.write(store.with_name(f"{store.name}-out"))
    digest = checksum((store.with_name(f"{store.name}-out") / "table.parquet").read_bytes())
    return Place(name, ", ".join(struck) if struck else "", seconds, len(summary.failed), digest)


@contextmanager
def _striking(store: Path, strike: Strike) -> Iterator[list[str]]:
    """Strike once, when some results are there; yields what was killed."""
    struck: list[str] = []

    def wait_and_strike() -> None:
        while len(list(Path(store, "results").rglob("*.json"))) < _ENOUGH:
            time.sleep(0.02)
        struck.append(strike(store))

    thread = threading.Thread(target=wait_and_strike, daemon=True)
    thread.start()
    yield struck


def _kill_worker(store: Path) -> str:
    record = random.Random(0).choice(sorted(Path(store, "results").rglob("*.json")))
    os.kill(Store(store).record(record.stem)["provenance"]["process"], signal.SIGKILL)
    return "a worker"


@contextmanager
def _cluster() -> Iterator[tuple[str, Strike]]:
    """A head without processors and two nodes with one each; yields its address and what kills a node."""
    head, client = _free_port(), _free_port()
    program = [str(Path(sys.executable).with_name("ray")), "start", "--block", "--disable-usage-stats"]
    parts = [["--head", f"--port={head}", f"--ray-client-server-port={client}", "--num-cpus=0"]]
    parts += [[f"--address=127.0.0.1:{head}", "--num-cpus=1"]] * 2
    nodes = []

    def kill_node(store: Path) -> str:
        _kill_tree(nodes[2].pid)
        return "a node"

    try:
        for part in parts:
            options = [*part, "--include-dashboard=false"] if part[0] == "--head" else part
            nodes.append(subprocess.Popen([*program, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            time.sleep(8)
        yield f"ray://127.0.0.1:{client}", kill_node
    finally:
        for node in nodes:
            _kill_tree(node.pid)
            node.wait()


def _kill_tree(process: int) -> None:
    for child in children(process):
        _kill_tree(child)
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
