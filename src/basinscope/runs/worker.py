"""A worker process: `python -m basinscope.runs.worker STUDY STORE`. Units come in as lines, outcomes go out."""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import traceback
from typing import IO, Any

from ..errors import InputError, StoreError
from .references import load
from .store import Store
from .units import Unit
from .work import work

WORKER = "BASINSCOPE_WORKER"  # set in the environment of workers


def main(reference: str, url: str) -> None:
    """Work until the driver closes the line or dies."""
    os.environ[WORKER] = "1"
    answers = _claimed_output()
    units: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, units), daemon=True).start()
    try:
        study, store = load(reference), Store(url)
        while True:
            outcomes = work(study, Unit.from_plain(units.get()), store)
            _answer(answers, {"outcomes": [outcome.plain() for outcome in outcomes]})
    except StoreError as error:  # no job's fault: the store cannot be written
        _answer(answers, {"fatal": str(error)})
    except InputError as error:  # nor this one: the study cannot be found, or not be loaded here
        _answer(answers, {"fatal": f"a worker of {reference} failed: {error}"})
    except Exception as error:
        _answer(answers, {"fatal": f"a worker of {reference} failed: {''.join(traceback.format_exception(error))}"})


def _listen(orders: IO[bytes], units: queue.SimpleQueue[dict[str, Any]]) -> None:
    for line in orders:
        units.put(json.loads(line))
    os._exit(0)  # the driver is gone: whatever is unfinished is nobody's any more


def _claimed_output() -> IO[bytes]:
    """Standard output for answers alone: what jobs print goes to standard error."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return answers


def _answer(answers: IO[bytes], message: dict[str, Any]) -> None:
    answers.write(json.dumps(message).encode() + b"\n")
    answers.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
