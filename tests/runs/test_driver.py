import itertools
import json
import math
import shutil
import threading
import time
from collections import deque
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import small_studies
from basinscope.errors import BasinscopeError, InputError, StoreError
from basinscope.runs.driver import INTERRUPTED, run
from basinscope.runs.executors.base import RunPlan
from basinscope.runs.executors.inline import Inline
from basinscope.runs.executors.local import Local
from basinscope.runs.lease import driver, driving
from basinscope.runs.results import Results
from basinscope.runs.settings import resolved
from basinscope.runs.status import statuses
from basinscope.runs.store import Store, record_name
from basinscope.runs.sweep import Sweep
from basinscope.runs.units import Unit, planned, units
from basinscope.runs.work import isolated


def table(study, store, settings=None):
    return Results(study, resolved(study, "smoke", settings or {}), Store(store)).arrow


def drive(study, store, **options):
    return run(study, store, progress=False, **options)


class Breaking(Inline):
    """Ends after some units, as a driver that is stopped does."""

    def __init__(self, after, error=KeyboardInterrupt):
        self._after, self._error = after, error

    def run(self, plan, units):
        for number, outcomes in enumerate(super().run(plan, units)):
            if number == self._after:
                raise self._error
            yield outcomes


def test_populations_are_cut_from_all_jobs_and_the_costly_ones_come_first():
    study = small_studies.FLOCKS
    jobs = planned(study, resolved(study, "smoke"))
    found = units(study, jobs, lambda key: False)
    members = [[(config["shape"], config["seed"]) for config in unit.configs] for unit in found]
    assert members == [
        [("large", seed) for seed in range(4)],
        [("large", 4), ("large", 5)],
        [("small", seed) for seed in range(4)],
        [("small", 4), ("small", 5)],
        [("lonely", 0)],
    ]
    done = {jobs[0].key, jobs[-1].key}  # small 0 and the lonely one
    rest = units(study, jobs, done.__contains__)
    assert [unit.keys for unit in rest] == [unit.keys for unit in found[:-1]]
    assert len(rest[2].wanted) == 3


def test_a_population_that_is_resumed_gives_what_it_would_have_given(tmp_path):
    study = small_studies.FLOCKS
    drive(study, tmp_path / "whole")
    drive(study, tmp_path / "parts")
    store = Store(tmp_path / "parts")
    jobs = planned(study, resolved(study, "smoke"))
    for plan in jobs[::3]:
        store.files.remove(record_name(plan.key))
    again = drive(study, tmp_path / "parts")
    assert again.fresh == len(jobs[::3])
    assert table(study, tmp_path / "parts").equals(table(study, tmp_path / "whole"))
    assert table(study, tmp_path / "whole").to_pandas()["company"].tolist() == [4] * 8 + [2] * 4 + [1]


def test_one_bad_member_does_not_take_its_population_down(tmp_path):
    summary = drive(small_studies.BROKEN_FLOCKS, tmp_path)
    assert sorted(summary.failed) == [f"shape={shape} seed={seed}" for shape in ("large", "small") for seed in (1, 5)]
    assert summary.failed["shape=large seed=5"] == "ArithmeticError: bird 5 cannot fly"
    assert summary.fresh == 9


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("raise", "ZeroDivisionError: never works"),
        ("exit", "SystemExit: 7"),
        ("column", "columns seed are settings of the job"),
        ("object", "column 'value' must hold numbers"),
        ("mixed", "column 'value' holds values that no one type"),
        ("empty", "at least one row"),
        ("number", "must return a mapping"),
    ],
)
def test_a_failing_job_is_reported_and_the_rest_finishes(tmp_path, kind, told):
    settings = {"grid": {"kind": ["fine", kind]}}
    summary = drive(small_studies.TROUBLE, tmp_path, settings=settings)
    assert summary.fresh == 3
    assert all(told in error for error in summary.failed.values())
    assert len(summary.failed) == 3
    (status,) = statuses(Store(tmp_path))
    assert status.failed == summary.failed
    assert "Traceback" in next(Store(tmp_path).failures())["traceback"]


def test_a_failed_job_is_tried_again_and_forgiven(tmp_path, monkeypatch):
    fails = [True]

    def moody(x):
        if fails[0]:
            raise OSError("not today")
        return {"y": x}

    study = Sweep("moody", moody, {"grid": {"x": [1]}})
    assert drive(study, tmp_path).failed == {"x=1": "OSError: not today"}
    fails[0] = False
    assert drive(study, tmp_path).complete
    assert not Store(tmp_path).failed()


def test_a_stopped_run_keeps_what_it_has_and_goes_on(tmp_path):
    stopped = drive(small_studies.ORBITS, tmp_path, on=Breaking(3))
    assert stopped.stopped == INTERRUPTED
    assert stopped.fresh == 3
    assert driver(Store(tmp_path).files) is None
    again = drive(small_studies.ORBITS, tmp_path)
    assert again.complete
    assert again.known >= 3


def test_time_that_is_up_ends_the_run(tmp_path, monkeypatch):
    seconds = itertools.count()
    clock = SimpleNamespace(time=time.time, monotonic=lambda: float(next(seconds)))
    monkeypatch.setattr("basinscope.runs.driver.time", clock)
    summary = drive(small_studies.ORBITS, tmp_path, settings={"count": 50}, minutes=0.5)  # a second at each look
    assert summary.stopped == "the time was up"
    assert 0 < summary.fresh < 30


def test_partial_work_is_taken_up_again_and_then_removed(tmp_path):
    assert drive(small_studies.CLIMBS, tmp_path).stopped == INTERRUPTED
    assert [path.name for path in sorted((tmp_path / "scratch").rglob("*"))][1:] == ["checkpoint", "state"]
    assert drive(small_studies.CLIMBS, tmp_path).complete
    assert table(small_studies.CLIMBS, tmp_path)["resumed_at"].to_pylist() == [4]
    assert not list((tmp_path / "scratch").iterdir())


def test_partial_work_in_a_remote_store_leaves_nothing_on_this_machine_either(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    url = f"shared://{tmp_path}/store"
    assert drive(small_studies.CLIMBS, url).stopped == INTERRUPTED
    assert list((tmp_path / "cache").rglob("checkpoint"))
    assert drive(small_studies.CLIMBS, url).complete
    assert not list((tmp_path / "cache").rglob("checkpoint"))


def test_global_random_numbers_depend_on_the_job_alone(tmp_path):
    study = small_studies.RANDOM
    drive(study, tmp_path / "all")
    drive(study, tmp_path / "one", settings={"grid": {"seed": [2]}})
    np.random.seed(1)  # noqa: NPY002
    before = np.random.get_state()[1].tolist()  # noqa: NPY002
    one = table(study, tmp_path / "one", {"grid": {"seed": [2]}})
    assert one["value"][0] == table(study, tmp_path / "all")["value"][2]
    with isolated(3):
        np.random.uniform()  # noqa: NPY002
    assert np.random.get_state()[1].tolist() == before  # noqa: NPY002


def test_two_drivers_on_one_store(tmp_path):
    with (
        driving(Store(tmp_path).files),
        pytest.raises(StoreError, match=r"is being written by process \d+ on .*--watch"),
    ):
        drive(small_studies.ORBITS, tmp_path)
    assert drive(small_studies.ORBITS, tmp_path).complete


def test_two_drivers_on_a_remote_store(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    url = f"memory://{tmp_path.name}"
    with driving(Store(url).files), pytest.raises(StoreError, match="is being written by process"):
        drive(small_studies.ORBITS, url)
    dead = {"host": "elsewhere", "process": 1, "started": 0, "renewed": time.time() - 61}
    Store(url).files.write("driver.json", json.dumps(dead).encode())
    assert drive(small_studies.ORBITS, url).complete


@pytest.mark.slow
def test_a_second_terminal_can_follow(tmp_path):
    settings = {"count": 30, "pause": 0.15}
    running = threading.Thread(
        target=drive, args=(small_studies.ORBITS, tmp_path), kwargs={"settings": settings, "on": Local(2)}
    )
    running.start()
    seen = []
    while running.is_alive():
        try:
            (status,) = statuses(Store(tmp_path))
            seen.append((status.done, status.driver))
        except (ValueError, InputError):  # not begun
            pass
        time.sleep(0.05)
    running.join()
    done = [number for number, _ in seen]
    assert done == sorted(done)
    assert any(0 < number < 30 for number in done)
    told = [each for _, each in seen if each is not None and each.get("left")]
    assert told
    assert told[0]["alive"]
    assert told[0]["on"] == "local workers"
    assert told[0]["workers"] == 2


def test_a_dead_driver_is_seen_as_such(tmp_path):
    drive(small_studies.ORBITS, tmp_path)
    import platform

    gone = {"host": platform.node(), "process": 2**22 + 1, "started": 0, "renewed": time.time(), "study": "orbits"}
    (tmp_path / "driver.json").write_text(json.dumps(gone))
    (status,) = statuses(Store(tmp_path))
    assert not status.driver["alive"]


@pytest.mark.slow
def test_workers_give_the_tables_of_one_process(tmp_path):
    for study in (small_studies.ORBITS, small_studies.FLOCKS, small_studies.RANDOM):
        drive(study, tmp_path / "here")
        summary = drive(study, tmp_path / "local", on=Local(2))
        assert summary.complete
        assert table(study, tmp_path / "local").equals(table(study, tmp_path / "here"))


def test_a_worker_that_dies_is_replaced(tmp_path):
    settings = {"common": {"marker": str(tmp_path / "marker")}, "grid": {"seed": [0, 1, 2]}}
    assert drive(small_studies.ONCE, tmp_path / "store", settings=settings, on=Local(2)).complete


@pytest.mark.slow
def test_jobs_that_always_kill_their_workers_are_given_up(tmp_path):
    settings = {"grid": {"kind": ["crash", "die", "fine", "noisy"], "seed": [0]}}
    summary = drive(small_studies.TROUBLE, tmp_path, settings=settings, on=Local(2))
    assert summary.fresh == 2
    assert summary.failed == {
        "kind=crash seed=0": "its worker died 3 times: killed by SIGSEGV",
        "kind=die seed=0": "its worker died 3 times: exit code 9",
    }
    assert statuses(Store(tmp_path))[0].failed == summary.failed


@pytest.mark.slow
def test_workers_share_a_remote_store(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    url = f"shared://{tmp_path}/store"
    assert drive(small_studies.ORBITS, url, on=Local(2)).complete
    drive(small_studies.ORBITS, tmp_path / "here")
    assert table(small_studies.ORBITS, url).equals(table(small_studies.ORBITS, tmp_path / "here"))


def test_what_other_processes_cannot_see_is_refused(tmp_path):
    with pytest.raises(InputError, match="is not seen by other processes"):
        drive(small_studies.ORBITS, "memory://private", on=Local(1))
    with pytest.raises(InputError, match="cannot be found by other processes"):
        drive(Sweep("hidden", lambda x: {"y": x}, {"grid": {"x": [1]}}), tmp_path, on=Local(1))


def test_a_study_that_cannot_be_loaded_ends_the_run(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import os\nfrom basinscope.runs.sweep import Sweep\n"
        "if os.environ.get('BASINSCOPE_WORKER'):\n    raise RuntimeError('not here')\n"
        "STUDY = Sweep('mine', lambda x: {'y': x}, {'grid': {'x': [1]}})\n"
    )
    with pytest.raises(BasinscopeError, match=r"(?s)a worker of .* failed: .*not here"):
        drive(f"{tmp_path}/mine.py:STUDY", tmp_path / "store", on=Local(1))


def test_a_script_without_a_guard_is_told_so(tmp_path, monkeypatch):
    monkeypatch.setenv("BASINSCOPE_WORKER", "1")
    with pytest.raises(InputError, match="__main__"):
        drive(small_studies.ORBITS, tmp_path)


def test_a_result_that_was_written_elsewhere_is_noticed(tmp_path):
    class Elsewhere(Inline):
        def run(self, plan, units):
            for outcomes in super().run(plan, units):
                for path in Path(tmp_path, "results").rglob("*.json"):
                    path.unlink()
                yield outcomes

    with pytest.raises(StoreError, match="all machines share"):
        drive(small_studies.ORBITS, tmp_path, on=Elsewhere())


@pytest.mark.parametrize("after", [0, 3, 7])
def test_a_store_that_is_deleted_meanwhile_is_noticed_and_the_next_run_makes_it_whole(tmp_path, after):
    class Deleting(Inline):
        def run(self, plan, units):
            for number, outcomes in enumerate(super().run(plan, units)):
                if number == after:
                    shutil.rmtree(tmp_path)
                yield outcomes

    drive(small_studies.ORBITS, tmp_path)
    sound = table(small_studies.ORBITS, tmp_path)
    shutil.rmtree(tmp_path)
    with pytest.raises(StoreError, match="was deleted while it was written"):
        drive(small_studies.ORBITS, tmp_path, on=Deleting())
    assert drive(small_studies.ORBITS, tmp_path).complete
    assert table(small_studies.ORBITS, tmp_path).equals(sound)


@pytest.mark.parametrize("workers", [0, -1, 1.5, "two"])
def test_a_number_of_workers_that_makes_no_sense(workers):
    with pytest.raises(InputError, match="workers must be a whole number"):
        Local(workers)


def test_a_study_with_a_nonsensical_cost_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(small_studies.FLOCKS, "cost", lambda job: 0.0)
    with pytest.raises(InputError, match="must be positive"):
        drive(small_studies.FLOCKS, tmp_path)


def test_members_are_stored_as_they_come_and_a_run_out_of_time_goes_on_where_it_was(tmp_path, monkeypatch):
    study = small_studies.CARAVANS
    drive(study, tmp_path / "whole")
    monkeypatch.setattr(study, "stages", 1)  # half of one population
    first = drive(study, tmp_path / "parts", minutes=5)
    assert (first.stopped, first.failed) == ("the time was up", {})
    assert first.fresh == 2 + 1  # and the lonely one, which is no population
    shutil.copytree(tmp_path / "parts", tmp_path / "elsewhere")
    monkeypatch.undo()
    second = drive(study, tmp_path / "elsewhere")
    assert second.complete
    assert second.known == first.fresh
    whole, parts = (table(study, tmp_path / name).to_pandas() for name in ("whole", "elsewhere"))
    assert set(parts["resumed_at"].dropna()) == {0, 2}
    assert whole.drop(columns="resumed_at").equals(parts.drop(columns="resumed_at"))


@pytest.mark.slow
@pytest.mark.parametrize("on", [Inline(), Local(2)])
def test_jobs_know_how_long_they_may_take(tmp_path, on):
    drive(small_studies.WATCHES, tmp_path / "limited", minutes=5, on=on)
    left = table(small_studies.WATCHES, tmp_path / "limited")["left"].to_pylist()
    assert all(0 < seconds < 300 for seconds in left)
    drive(small_studies.WATCHES, tmp_path / "free", on=on)
    assert table(small_studies.WATCHES, tmp_path / "free")["left"].to_pylist() == [math.inf] * 3


def test_jobs_chosen_by_their_settings_are_run_alone_and_with_whole_populations(tmp_path):
    summary = drive(small_studies.FLOCKS, tmp_path, only="shape=l* seed=0")
    assert (summary.total, summary.fresh, summary.complete) == (2, 2, True)
    found = table(small_studies.FLOCKS, tmp_path).to_pandas()
    assert found.set_index("shape")["company"].to_dict() == {"large": 4, "lonely": 1}
    with pytest.raises(InputError, match=r"no job matches 'shape=huge' — expected words such as .* shape=small seed=0"):
        drive(small_studies.FLOCKS, tmp_path, only="shape=huge")


def test_nothing_is_started_that_would_end_too_late(tmp_path):
    """By the median of seconds over cost of those that ended: a unit a thousand times as costly is left."""

    class Uneven(small_studies.Orbits):
        def cost(self, job):
            return 2000.0 if job.seed == 0 else 1.0

        def run(self, job, scratch):
            time.sleep(0.02)
            return {"value": job.seed}

    class Shortest(Inline):
        def run(self, plan, units):
            return super().run(plan, units[::-1])

    summary = drive(Uneven(), tmp_path, settings={"count": 4}, minutes=10 / 60, on=Shortest())
    assert (summary.fresh, summary.stopped) == (3, "the time was up")
    assert summary.seconds < 9
    told = RunPlan(small_studies.ORBITS, None, Store(tmp_path), lambda: 1.0, lambda unit: unit.cost)
    waiting = deque(Unit((str(cost),), ({},), frozenset(), cost) for cost in (9.0, 0.5, 0.1))
    assert [unit.cost for unit in iter(lambda: told.next(waiting), None)] == [0.5, 0.1]
    assert [unit.cost for unit in waiting] == [9.0]
    patient = RunPlan(small_studies.ORBITS, None, Store(tmp_path), lambda: 0.0)
    assert patient.next(waiting) is None


def test_a_population_that_forgets_a_member_fails_for_it(tmp_path):
    class Forgetful(small_studies.Flocks):
        def run_group(self, jobs, scratch):
            yield {0: {"company": len(jobs)}}

    summary = drive(Forgetful(), tmp_path)
    assert summary.complete  # alone, nobody is forgotten
    assert summary.fresh == 13
