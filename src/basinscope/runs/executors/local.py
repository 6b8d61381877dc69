"""Persistent worker processes on this machine; one that dies is replaced and its unit run again."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import suppress
from typing import IO, Any

from ...checks import whole
from ...errors import BasinscopeError
from ..units import Unit
from ..work import JobOutcome
from .base import RunPlan, given_up
from .deaths import Death, Deaths, death_of_process, memory_kills

_WORDS = 2000  # characters of a dead worker's last words that are kept
_POLL = 0.5


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Local:
    """Workers over the store: each is handed a unit, computes on one thread, and stores its results itself.

    The store is the ledger: whatever a worker finished is there, and a unit counts as open until it is. Nothing else
    needs to survive.

    Args:
        workers: how many; as many as there are processors unless given.
    """

    name = "local workers"

    def __init__(self, workers: int | None = None) -> None:
        self.workers = cores() if workers is None else whole("workers", workers, least=1)

    def run(self, plan: RunPlan, units: Sequence[Unit]) -> Generator[list[JobOutcome]]:
        """Run units that end in time; yields the outcomes of each. Closing the iterator stops the workers."""
        reference, url = plan.shared()
        waiting = deque(units)
        deaths = Deaths()
        messages: queue.SimpleQueue[tuple[_Worker, dict[str, Any] | None]] = queue.SimpleQueue()
        crew: set[_Worker] = set()
        try:
            while True:
                while len(crew) < self.workers and (unit := plan.next(waiting)) is not None:
                    worker = _Worker(reference, url, messages)
                    crew.add(worker)
                    worker.give(unit)
                if not any(worker.unit for worker in crew):
                    return
                try:
                    worker, message = messages.get(timeout=_POLL)
                except queue.Empty:
                    continue
                unit = worker.unit
                if message is None:
                    crew.discard(worker)
                    death = worker.death()
                    if unit is None:
                        continue
                    if error := deaths.verdict(unit.key, death):
                        yield given_up(plan, unit, error, death.words)
                    else:  # what was killed from outside waits for the others: whatever killed it may still be there
                        (waiting.append if death.outside else waiting.appendleft)(unit)
                    continue
                if "fatal" in message:
                    raise BasinscopeError(message["fatal"])
                worker.unit = None
                if (unit := plan.next(waiting)) is not None:
                    worker.give(unit)
                yield [JobOutcome.from_plain(outcome) for outcome in message["outcomes"]]
        finally:
            for worker in crew:
                worker.stop()


class _Worker:
    """A process of `basinscope.runs.worker`: units go in as lines of JSON, outcomes come out."""

    def __init__(self, reference: str, url: str, messages: queue.SimpleQueue[Any]) -> None:
        self.unit: Unit | None = None
        self._memory_kills = memory_kills()  # when it was handed its unit
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 — lives as long as the process
        environment = os.environ | dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "basinscope.runs.worker", reference, url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment | {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)},
            start_new_session=True,  # Ctrl-C in the terminal is the driver's business
        )
        self._listener = threading.Thread(target=self._listen, args=(messages,), daemon=True)
        self._listener.start()

    def _listen(self, messages: queue.SimpleQueue[Any]) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                with suppress(ValueError):  # a line cut short by death
                    messages.put((self, json.loads(line)))
        self._process.wait()
        messages.put((self, None))

    def give(self, unit: Unit) -> None:
        self.unit = unit
        self._memory_kills = memory_kills()
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # dead: the listener tells
            self._process.stdin.write(json.dumps(unit.plain()).encode() + b"\n")
            self._process.stdin.flush()

    def death(self) -> Death:
        """How the process ended, and the end of what it wrote to standard error."""
        code = self._process.wait()
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, self._errors.tell() - _WORDS))
        words = self._errors.read().decode(errors="replace").strip()
        self._close()
        return death_of_process(code, memory_kills() != self._memory_kills, words)

    def stop(self) -> None:
        self._process.kill()  # what it has stored is safe, what it has not would be lost anyway
        self._process.wait()
        self._close()

    def _close(self) -> None:
        self._listener.join()
        for stream in (self._process.stdin, self._errors):
            with suppress(OSError):
                if stream is not None:
                    stream.close()
