"""On a Slurm cluster, through submitit: arrays of tasks that work through their share and report through the store."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...checks import whole
from ...errors import InputError, StoreError
from ..references import load_from, search_path
from ..store import Damaged, Store, recorded_key
from ..units import Unit
from ..work import JobOutcome, work
from .base import RunPlan, given_up
from .deaths import KILLS, TRIES

_FROM_OUTSIDE = {"BOOT_FAIL", "CANCELLED", "NODE_FAIL", "PREEMPTED"}  # states of tasks that failed by nothing of theirs


class Slurm:
    """An array of Slurm tasks over a shared folder.

    Each task takes a share of the units and stores results as they come; the driver reads its progress off the store.
    What a task that died or ran out of time left undone is submitted again, as long as each round gets further; rounds
    that were lost with their nodes, cancelled or preempted hardly count.

    Args:
        workers: tasks in the array.
        minutes: time limit of a task.
        gpus: GPUs per task, instead of what the study wants.
        cluster: submitit's name of the cluster; found by itself unless given (`local`: processes on this machine).
        poll: seconds between looks at the store.
        parameters: further parameters of submitit, e.g. `slurm_partition`.
    """

    name = "Slurm"

    def __init__(
        self,
        workers: int = 8,
        *,
        minutes: int = 60,
        gpus: float | None = None,
        cluster: str | None = None,
        poll: float = 2.0,
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        self.workers = whole("workers", workers, least=1)
        self._minutes = whole("minutes", minutes, least=1)
        self._gpus = gpus
        self._cluster = cluster
        self._poll = poll
        self._parameters = dict(parameters or {})

    def run(self, plan: RunPlan, units: Sequence[Unit]) -> Generator[list[JobOutcome]]:
        """Run units until the time is up; yields outcomes as they appear. Closing the iterator cancels the tasks."""
        reference, url = plan.shared()
        if plan.store.files.folder is None:
            raise InputError(f"Slurm needs a store in a folder that all nodes share, got {url!r}")
        executor = self._executor(plan, plan.store.files.folder / "slurm")
        folders = search_path()
        open_keys = {key for unit in units for key in unit.wanted}
        idle, killed = 0, 0  # rounds in a row without an outcome: ended by themselves, and from outside
        reason = ""
        while open_keys and idle < TRIES and killed < KILLS and plan.more():
            until = time.time() + plan.seconds_left()
            open_units = [replace(unit, until=until) for unit in units if unit.wanted & open_keys]
            shares = [share for number in range(self.workers) if (share := open_units[number :: self.workers])]
            arguments = [(reference, folders, url, [unit.plain() for unit in share]) for share in shares]
            tasks = executor.map_array(share_of_work, *zip(*arguments, strict=True))
            stored = False
            try:
                ended = False
                while open_keys and not ended and plan.more():
                    ended = all(task.done() for task in tasks)  # before the look, which then misses nothing
                    for outcome in _appeared(plan.store, open_keys):
                        open_keys.discard(outcome.key)
                        stored = True
                        yield [outcome]
                    if not ended:
                        time.sleep(self._poll)
                reason = next((_fatal(task) for task in tasks if task.done()), "")
                outside = any(_killed(task) for task in tasks)
            finally:
                for task in tasks:
                    if not task.done():
                        task.cancel()
            if stored:
                idle, killed = 0, 0
            elif outside:
                killed += 1
            else:
                idle += 1
        if plan.more():
            line, _, words = f"{idle + killed} rounds of tasks in a row stored nothing: {reason}".partition("\n")
            for unit in units:
                if unit.wanted & open_keys:
                    yield given_up(plan, unit, line, words)

    def _executor(self, plan: RunPlan, folder: Path) -> Any:
        try:
            import submitit
        except ImportError as error:
            raise InputError(f"running on Slurm needs submitit — pip install 'basinscope[slurm]' ({error})") from error
        try:
            executor = submitit.AutoExecutor(folder=folder, cluster=self._cluster)
        except RuntimeError as error:
            raise InputError(f"Slurm cannot be used from here: {error}") from error
        gpus = plan.study.gpus if self._gpus is None else self._gpus
        gpu_options = {"gpus_per_node": max(1, round(gpus))} if gpus else {}
        executor.update_parameters(
            name=f"basinscope-{plan.study.name}",
            timeout_min=self._minutes,
            cpus_per_task=1,
            **gpu_options,
            **self._parameters,
        )
        return executor


def share_of_work(reference: str, folders: list[str], url: str, units: list[dict[str, Any]]) -> None:
    """What a task does: its units, one after another."""
    study, store = load_from(reference, folders), Store(url)
    for unit in units:
        work(study, Unit.from_plain(unit), store)


def _appeared(store: Store, keys: set[str]) -> Iterator[JobOutcome]:
    """Outcomes of wanted jobs that the store holds by now."""
    listing = store.results()
    for key in [key for key in map(recorded_key, listing) if key in keys and key is not None]:
        try:
            yield JobOutcome(key, store.verified(key, listing))
        except Damaged:
            continue  # not all of it is visible yet
    for key in store.failed() & keys:
        yield JobOutcome(key, None, store.failure(key)["error"])


def _killed(task: Any) -> bool:
    """Whether a task was ended by something that is no business of its own."""
    return not task.paths.result_pickle.exists() and task.state.partition(" ")[0] in _FROM_OUTSIDE


def _fatal(task: Any) -> str:
    if not task.paths.result_pickle.exists():  # it was killed: submitit would wait for words that never come
        return f"task {task.job_id} ended in state {task.state}"
    error = task.exception()
    if error is not None and "StoreError" in str(error):
        raise StoreError(str(error).strip().splitlines()[-1])
    return "" if error is None else str(error)
