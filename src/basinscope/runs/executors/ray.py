"""The executor on Ray: a local cluster of its own, or one that runs already."""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from ...checks import whole
from ...errors import BasinscopeError, InputError
from ..references import load_from, search_path
from ..store import Store
from ..study import Study
from ..units import Unit
from ..work import JobOutcome, work
from .base import RunPlan, given_up
from .deaths import Death, Deaths
from .local import cores

_AHEAD = 4  # units handed to Ray per worker: enough to keep all busy and to let a cluster see that it should grow
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


class Ray:
    """Tasks on a Ray cluster: one processor each, and the study's share of a GPU where the cluster has any.

    Ray places them, and this runs a unit again whose worker or node was lost.

    Args:
        address: `ray://host:port`, or `host:port` of the head node; a local cluster is started when None.
        workers: processors of that local cluster; all of them unless given.
        gpus: GPUs per unit, instead of what the study wants.
    """

    name = "Ray"

    def __init__(self, address: str | None = None, workers: int | None = None, gpus: float | None = None) -> None:
        self._address = address
        self._gpus = gpus
        self.workers = cores() if workers is None else whole("workers", workers, least=1)

    def run(self, plan: RunPlan, units: Sequence[Unit]) -> Generator[list[JobOutcome]]:
        """Run units that end in time; yields the outcomes of each. Closing the iterator cancels the rest."""
        reference, url = plan.shared()
        ray = _imported()
        started_here = not ray.is_initialized()
        if started_here:
            self._start(ray)
        folders = tuple(search_path())
        waiting = deque(units)
        flying: dict[Any, Unit] = {}
        deaths = Deaths()
        try:
            task = self._task(ray, plan.study)
            while True:
                while len(flying) < _AHEAD * self.workers and (unit := plan.next(waiting)) is not None:
                    flying[task.remote(reference, folders, url, unit.plain())] = unit
                if not flying:
                    return
                ready, _ = ray.wait(list(flying), timeout=1.0)
                for handle in ready:
                    unit = flying.pop(handle)
                    try:
                        message = ray.get(handle)
                    except ray.exceptions.RayError as error:
                        death = death_on_ray(ray, error)
                        if reason := deaths.verdict(unit.key, death):
                            yield given_up(plan, unit, reason, death.words)
                        else:
                            (waiting.append if death.outside else waiting.appendleft)(unit)
                        continue
                    if "fatal" in message:
                        raise BasinscopeError(message["fatal"])
                    yield [JobOutcome.from_plain(outcome) for outcome in message["outcomes"]]
        finally:
            for handle in flying:
                ray.cancel(handle, force=True)
            if started_here:
                ray.shutdown()

    def _start(self, ray: Any) -> None:
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        if self._address is None:
            options |= {"num_cpus": self.workers, "include_dashboard": False}
        try:
            with _own_sigterm():
                ray.init(address=self._address or "local", runtime_env={"env_vars": _ONE_THREAD}, **options)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise InputError(
                f"cannot join the Ray cluster {self._address!r}: {error} — is its head running?"
            ) from error

    def _task(self, ray: Any, study: Study) -> Any:
        """The remote function, with what each call of it takes up."""
        have = ray.cluster_resources()
        most = max((node["Resources"].get("GPU", 0) for node in ray.nodes() if node["Alive"]), default=0)
        needed = self._gpus if self._gpus is not None else study.gpus if most else 0
        if needed > most:
            raise InputError(
                f"a unit wants {needed:g} GPUs, but no node of the Ray cluster has more than {most:g} — lower --gpus"
            )
        slots = have.get("CPU", 1.0)
        self.workers = max(1, int(min(slots, have["GPU"] / needed) if needed else slots))
        return ray.remote(num_cpus=1, num_gpus=needed, max_retries=0)(remote)


def remote(reference: str, folders: tuple[str, ...], url: str, unit: Mapping[str, Any]) -> dict[str, Any]:
    """What runs on the cluster: a unit's outcomes as plain values, or why nothing can be done."""
    try:
        outcomes = work(_study(reference, folders), Unit.from_plain(unit), Store(url))
    except BasinscopeError as error:
        return {"fatal": str(error)}
    return {"outcomes": [outcome.plain() for outcome in outcomes]}


def death_on_ray(ray: Any, error: Exception) -> Death:
    """Ray says of a node that it was lost, and of a worker that it died, but not by which signal."""
    kind = type(error).__name__
    losses = (ray.exceptions.NodeDiedError, ray.exceptions.LocalRayletDiedError, ray.exceptions.ObjectLostError)
    return Death(f"Ray reports {kind}", isinstance(error, losses), str(error))


@contextmanager
def _own_sigterm() -> Iterator[None]:
    """Ray takes SIGTERM for itself, and ends the program at once: what was set before is put back."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


@cache
def _study(reference: str, folders: tuple[str, ...]) -> Study:
    return load_from(reference, folders)


def _imported() -> Any:
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # as Ray will do by itself in future
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise InputError(f"running on Ray needs Ray — pip install 'basinscope[ray]' ({error})") from error
    return ray
