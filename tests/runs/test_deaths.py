"""A job that brings its workers down is given up; one whose workers are killed by others is not."""

import signal
from collections import defaultdict
from types import SimpleNamespace

import pytest

import small_studies
from basinscope.runs.driver import run
from basinscope.runs.executors import deaths, local
from basinscope.runs.executors.deaths import KILLS, TRIES, Death, Deaths, death_of_process
from basinscope.runs.executors.local import Local
from basinscope.runs.executors.ray import death_on_ray
from basinscope.runs.executors.slurm import Slurm
from basinscope.runs.store import Store
from basinscope.runs.work import work

KILL = Death("killed by SIGKILL", outside=True)
CRASH = Death("killed by SIGSEGV", outside=False, words="Segmentation fault")


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM", "SIGHUP", "SIGINT"])
def test_signals_that_others_send_are_no_fault_of_the_job(name):
    assert death_of_process(-getattr(signal, name), False) == Death(f"killed by {name}", True)


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGXCPU"])
def test_signals_of_a_crash_are_its_fault(name):
    assert death_of_process(-getattr(signal, name), False) == Death(f"killed by {name}", False)


@pytest.mark.parametrize("code", [0, 1, 137])
def test_an_exit_is_its_own(code):
    assert death_of_process(code, True, "bye") == Death(f"exit code {code}", False, "bye")


def test_lack_of_memory_makes_sigkill_its_own_and_nothing_else():
    assert not death_of_process(-signal.SIGKILL, short_of_memory=True).outside
    assert death_of_process(-signal.SIGTERM, short_of_memory=True).outside
    assert death_of_process(-60, short_of_memory=False) == Death("killed by signal 60", False)


def test_the_systems_count_of_kills_for_memory(monkeypatch, tmp_path):
    for text, count in (("pgfault 12\noom_kill 3\n", 3), ("pgfault 12\n", None), ("strange", None)):
        (tmp_path / "vmstat").write_text(text)
        monkeypatch.setattr(deaths, "Path", lambda name: tmp_path / "vmstat")
        assert deaths.memory_kills() == count
    monkeypatch.setattr(deaths, "Path", lambda name: tmp_path / "nothing")
    assert deaths.memory_kills() is None


def test_kills_do_not_use_up_tries():
    ledger = Deaths()
    for death in [KILL, CRASH, KILL, KILL, CRASH, *[KILL] * 5]:
        assert ledger.verdict("a", death) == ""
    assert ledger.verdict("a", Death("exit code 1", False)) == (
        f"its worker died {TRIES} times: killed by SIGSEGV, exit code 1"
    )
    assert ledger.verdict("b", CRASH) == ""  # another unit has tries of its own


def test_kills_come_to_an_end_too():
    ledger = Deaths()
    said = [ledger.verdict("a", KILL) for _ in range(KILLS)]
    assert not any(said[:-1])
    assert said[-1] == f"its worker was killed from outside {KILLS} times: killed by SIGKILL"


class Fleet:
    """Workers that compute in this process, or die as they are told for each seed in turn."""

    def __init__(self, study, fates):
        self.study, self.fates, self.order = study, defaultdict(list, fates), []

    def __call__(self, reference, url, told):
        return Hand(self, Store(url), told)


class Hand:
    def __init__(self, fleet, store, told):
        self.fleet, self.store, self.told, self.unit, self.fate = fleet, store, told, None, None

    def give(self, unit):
        self.unit = unit
        seed = unit.configs[0]["seed"]
        self.fleet.order.append(seed)
        if self.fleet.fates[seed]:
            self.fate = self.fleet.fates[seed].pop(0)
            self.told.put((self, None))
        else:
            outcomes = work(self.fleet.study, unit, self.store)
            self.told.put((self, {"outcomes": [outcome.plain() for outcome in outcomes]}))

    def death(self):
        return self.fate

    def stop(self):
        pass


def driven(tmp_path, monkeypatch, fates):
    study = small_studies.TROUBLE
    fleet = Fleet(study, fates)
    monkeypatch.setattr(local, "_Worker", fleet)
    return run(study, tmp_path, on=Local(1), progress=False), fleet


def test_a_job_that_is_killed_more_often_than_it_has_tries_is_done_after_the_others(tmp_path, monkeypatch):
    summary, fleet = driven(tmp_path, monkeypatch, {0: [KILL] * (TRIES + 2)})
    assert summary.complete
    assert fleet.order == [0, 1, 2] + [0] * (TRIES + 2)


def test_a_job_that_crashes_is_named_and_the_others_are_done(tmp_path, monkeypatch):
    summary, fleet = driven(tmp_path, monkeypatch, {1: [CRASH, KILL, CRASH, CRASH]})
    assert summary.fresh == 2
    assert summary.failed == {"kind=fine seed=1": "its worker died 3 times: killed by SIGSEGV"}
    assert fleet.order.count(1) == 4
    assert next(Store(tmp_path).failures())["traceback"].endswith("Segmentation fault")


def test_a_job_that_is_killed_for_ever_is_given_up_in_the_end(tmp_path, monkeypatch):
    summary, _ = driven(tmp_path, monkeypatch, {2: [KILL] * 100})
    assert summary.failed == {
        "kind=fine seed=2": f"its worker was killed from outside {KILLS} times: killed by SIGKILL"
    }


def test_what_ray_knows_of_a_death():
    kinds = {
        name: type(name, (Exception,), {}) for name in ("NodeDiedError", "LocalRayletDiedError", "ObjectLostError")
    }
    ray = SimpleNamespace(exceptions=SimpleNamespace(**kinds))
    assert death_on_ray(ray, kinds["NodeDiedError"]("gone")) == Death("Ray reports NodeDiedError", True, "gone")
    assert not death_on_ray(ray, MemoryError("full")).outside


class Cluster:
    """A Slurm whose rounds end in the given states, and in the end do all the work."""

    def __init__(self, states):
        self.states = states

    def map_array(self, function, *arguments):
        state = self.states.pop(0) if self.states else "COMPLETED"
        if state == "COMPLETED":
            for given in zip(*arguments, strict=True):
                function(*given)
        paths = SimpleNamespace(result_pickle=SimpleNamespace(exists=lambda: state == "COMPLETED"))
        return [SimpleNamespace(state=state, job_id=1, paths=paths, done=lambda: True, exception=lambda: None)]


@pytest.mark.parametrize("state", ["NODE_FAIL", "PREEMPTED", "CANCELLED by 0"])
def test_rounds_that_slurm_ended_are_made_again(tmp_path, monkeypatch, state):
    cluster = Cluster([state] * (TRIES + 2))
    monkeypatch.setattr(Slurm, "_executor", lambda self, plan, folder: cluster)
    assert run(small_studies.TROUBLE, tmp_path, on=Slurm(1, poll=0.01), progress=False).complete
    assert not cluster.states


def test_rounds_that_end_by_themselves_without_a_result_are_given_up(tmp_path, monkeypatch):
    cluster = Cluster(["NODE_FAIL", *["OUT_OF_MEMORY"] * TRIES])
    monkeypatch.setattr(Slurm, "_executor", lambda self, plan, folder: cluster)
    summary = run(small_studies.TROUBLE, tmp_path, on=Slurm(1, poll=0.01), progress=False)
    assert set(summary.failed.values()) == {
        f"{TRIES + 1} rounds of tasks in a row stored nothing: task 1 ended in state OUT_OF_MEMORY"
    }
