"""What every executor does with a unit of work, wherever it runs: compute, and store each result as it comes."""

from __future__ import annotations

import os
import random
import sys
import time
import traceback
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import BasinscopeError, InputError, StoreError
from ..objects import code_of
from .provenance import device_since, gpu_allocations, provenance
from .scratch import Scratch, Unfinished
from .store import Entry, Store
from .study import Result, Study
from .units import Unit


@dataclass(frozen=True)
class JobOutcome:
    """A job that was stored, or that failed."""

    key: str
    entry: Entry | None
    error: str = ""

    def plain(self) -> dict[str, Any]:
        return {"key": self.key, "entry": None if self.entry is None else self.entry.plain(), "error": self.error}

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> JobOutcome:
        entry = None if data["entry"] is None else Entry.from_plain(data["entry"])
        return cls(data["key"], entry, data["error"])


def work(study: Study, unit: Unit, store: Store) -> list[JobOutcome]:
    """Run a unit and store what it gives as it comes; a job that fails is reported and does not disturb the others.

    What is unfinished when the time is up has no outcome. StoreError is raised on: a store that cannot be written is
    nobody's job's fault.
    """
    origin = {**provenance(code_of(type(study))), "version": study.version, "population": len(unit.keys)}
    places = {place: key for place, key in enumerate(unit.keys) if key in unit.wanted}
    outcomes = {}
    allocated, started = gpu_allocations(), time.perf_counter()
    with closing(_member_results(study, unit, store, frozenset(places))) as arriving:
        for results in arriving:
            seconds = (time.perf_counter() - started) / max(1, len(results))
            spent = {"seconds": seconds, "device": device_since(allocated)}
            for place in results.keys() & places.keys():
                member = (places[place], unit.configs[place], results[place])
                outcomes[place] = _outcome(study, *member, {**origin, **spent}, store)
            started = time.perf_counter()
    if outcomes.keys() == places.keys():
        store.scratch(unit.key).clear()
    return [outcomes[place] for place in sorted(outcomes)]


def _member_results(study: Study, unit: Unit, store: Store, wanted: frozenset[int]) -> Generator[Mapping[int, Any]]:
    """Results or exceptions of a unit's members by their places, those together that came together."""
    jobs = [study.job(config) for config in unit.configs]
    scratch = store.scratch(unit.key, unit.until, wanted)
    yielded: set[int] = set()
    try:
        for results in _together(study, unit.keys, jobs, scratch):
            yielded |= results.keys()
            yield results
        return
    except Unfinished:
        return
    except (Exception, SystemExit) as error:
        failure = error
    if len(jobs) == 1:
        yield {0: failure}
        return
    # The population as a whole failed; alone, most of its members may not.
    scratch.clear()
    for place in sorted(wanted - yielded):
        member_scratch = store.scratch(unit.keys[place], unit.until)
        try:
            (result,) = [
                results[0]
                for results in _together(study, (unit.keys[place],), [jobs[place]], member_scratch)
                if results
            ]
        except Unfinished:
            continue
        except (Exception, SystemExit) as error:
            result = error
        member_scratch.clear()
        yield {place: result}


def _together(study: Study, keys: Sequence[str], jobs: Sequence[Any], scratch: Scratch) -> Iterator[Mapping[int, Any]]:
    """What some jobs give that run together, by their places, as it comes."""
    with isolated(int(keys[0][:8], 16)):
        if len(jobs) == 1 and study.group_key(jobs[0]) is None:
            yield {0: study.run(jobs[0], scratch)}
            return
        results_of_jobs = study.run_group(jobs, scratch)
        if isinstance(results_of_jobs, Iterator):
            missing = set(scratch.wanted)
            for results in results_of_jobs:
                missing -= results.keys()
                yield results
            if missing:
                raise InputError(
                    f"run_group must give the results of all jobs that are wanted: {len(missing)} are missing"
                )
            return
    if len(results_of_jobs) != len(jobs):
        raise InputError(f"run_group must return one result per job: expected {len(jobs)}, got {len(results_of_jobs)}")
    yield dict(enumerate(results_of_jobs))


def _outcome(
    study: Study, key: str, config: Mapping[str, Any], result: Any, origin: Mapping[str, Any], store: Store
) -> JobOutcome:
    """A result in the store, or the reason why there is none."""
    try:
        result = _result(result, config)
        seed = {"seed": config["seed"]} if "seed" in config else {}
        entry = store.save(key, study.name, config, result, {**origin, **seed}, seconds=origin["seconds"])
    except StoreError:
        raise
    except (Exception, SystemExit) as error:
        line, details = _error_texts(error)
        store.fail(key, study.name, config, line, details)
        return JobOutcome(key, None, line)
    return JobOutcome(key, entry)


def _result(result: Any, config: Mapping[str, Any]) -> Result:
    if isinstance(result, BaseException):
        raise result
    result = result if isinstance(result, Result) else Result([result])
    if not all(isinstance(row, Mapping) for row in result.rows):
        raise InputError(f"a job must return a mapping from column to value, or a Result, got {result!r:.80}")
    twice = sorted({name for row in result.rows for name in row if name in config})
    if twice:
        raise InputError(f"columns {', '.join(twice)} are settings of the job and in the table already — rename them")
    return result


@contextmanager
def isolated(seed: int) -> Iterator[None]:
    """One thread, and global random numbers that depend on the job alone: order and place change no bit.

    Jobs should draw from generators of their own; this catches what forgets to.
    """
    threads = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"  # for a torch that the job is the first to load
    python, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002 — the global state is the point
    torch = sys.modules.get("torch")
    torch_state = None if torch is None else (torch.get_num_threads(), torch.get_rng_state())
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    if torch is not None:
        torch.set_num_threads(1)
        torch.manual_seed(seed)
    try:
        yield
    finally:
        if threads is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = threads
        random.setstate(python)
        np.random.set_state(numpy_state)  # noqa: NPY002
        if torch is not None and torch_state is not None:
            torch.set_num_threads(torch_state[0])
            torch.set_rng_state(torch_state[1])


def _error_texts(error: BaseException) -> tuple[str, str]:
    """An exception in one line, and with its traceback from the job on."""
    line = str(error) if isinstance(error, BasinscopeError) else f"{type(error).__name__}: {error}"
    return line.split("\n")[0][:500], "".join(traceback.format_exception(error))
