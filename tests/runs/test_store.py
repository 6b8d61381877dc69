import errno
import json
import os
import platform
from pathlib import Path

import fsspec
import numpy as np
import pytest
import torch
from fsspec.implementations.memory import MemoryFileSystem

import small_studies
from basinscope.errors import InputError, StoreError
from basinscope.runs import provenance
from basinscope.runs import store as store_module
from basinscope.runs.driver import run
from basinscope.runs.index import Index
from basinscope.runs.results import Results
from basinscope.runs.settings import resolved
from basinscope.runs.status import statuses
from basinscope.runs.store import Damaged, Store
from basinscope.runs.study import Result

KEY = "ab" * 20


def orbits(store, **settings):
    return Results(small_studies.ORBITS, resolved(small_studies.ORBITS, "smoke", settings), Store(store))


def drive(store, **options):
    return run(small_studies.ORBITS, store, progress=False, **options)


def parts(folder, suffix):
    return sorted(Path(folder, "results").rglob(f"*{suffix}"))


@pytest.fixture(params=["local", "memory", "shared"])
def url(request, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    if request.param == "local":
        return str(tmp_path / "store")
    return f"memory://{tmp_path.name}" if request.param == "memory" else f"shared://{tmp_path}/store"


def test_rows_and_arrays_come_back_as_they_were(url):
    store = Store(url)
    rows = [{"a": 1, "b": 0.1 + 0.2, "c": None, "d": "λ̂", "e": [1.0, 2.0]}, {"a": 2, "b": float("inf"), "f": True}]
    arrays = {
        "x": np.arange(6.0).reshape(2, 3).T,
        "y": torch.ones(2, dtype=torch.bfloat16),
        "z": np.float32(3),
        "mask": np.array([True, False]),
    }
    entry = store.save(KEY, "study", {"seed": 0}, Result(rows, arrays), {"device": "cpu"}, seconds=1.5)
    back = store.load(KEY)
    assert back.rows == [{**rows[0], "f": None}, {**dict.fromkeys("abcde"), **rows[1]}]
    assert {name: array.tolist() for name, array in back.arrays.items()} == {
        "x": [[0, 3], [1, 4], [2, 5]],
        "y": [1, 1],
        "z": 3,
        "mask": [True, False],
    }
    assert back.arrays["z"].dtype == np.float32
    assert len(entry.files) == 3
    assert store.record(KEY)["provenance"] == {"device": "cpu"}


def test_a_study_runs_resumes_and_is_tabled_on_any_filesystem(url):
    first = drive(url, settings={"count": 4})
    assert (first.known, first.fresh, first.complete) == (0, 4, True)
    second = drive(url, settings={"count": 6})
    assert (second.known, second.fresh) == (4, 2)
    table = orbits(url, count=6).table
    assert table["seed"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert [(each.done, each.total) for each in statuses(Store(url))] == [(4, 4), (6, 6)]
    results = orbits(url, count=6)
    assert results.arrays(results.jobs[3])["orbit"].shape == (500,)


def test_a_changed_setting_reuses_nothing(tmp_path):
    drive(tmp_path, settings={"count": 2})
    assert drive(tmp_path, settings={"count": 2, "steps": 400}).known == 0
    assert drive(tmp_path, settings={"count": 2}).known == 2


def test_a_raised_version_reuses_nothing(tmp_path, monkeypatch):
    drive(tmp_path, settings={"count": 2})
    monkeypatch.setattr(small_studies.ORBITS, "version", 2)
    assert drive(tmp_path, settings={"count": 2}).known == 0


def test_provenance_tells_where_a_number_comes_from(tmp_path):
    drive(tmp_path, settings={"count": 1})
    record = json.loads(parts(tmp_path, ".json")[0].read_text())
    origin = record["provenance"]
    assert record["config"] == {"seed": 0, "steps": 500, "pause": 0.0}
    assert origin["seed"] == 0
    assert set(origin) >= {"basinscope", "commit", "python", "platform", "device", "threads", "libraries", "version"}
    assert origin["libraries"]["numpy"] == np.__version__


def test_the_device_is_the_one_that_the_job_used_itself(tmp_path, monkeypatch):
    pieces = []

    def run_on_gpu(self, job, scratch):
        if job.seed == 1:  # the first to load the GPU, after the worker began
            pieces.append(job.seed)
        return {"value": job.seed}

    monkeypatch.setattr(small_studies.Orbits, "run", run_on_gpu)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: bool(pieces))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda number: {"allocation.all.allocated": len(pieces)})
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    drive(tmp_path, settings={"count": 3})
    records = [json.loads(part.read_text()) for part in parts(tmp_path, ".json")]
    used = {record["config"]["seed"]: record["provenance"]["device"] for record in records}
    assert used[1] == "a GPU"
    assert used[0] == used[2] == f"cpu ({platform.machine()})"


@pytest.mark.parametrize(("place", "commit"), [("studies", "abc+"), ("elsewhere", "abc"), (None, "abc")])
def test_the_commit_says_when_package_or_study_differ_from_it(monkeypatch, tmp_path, place, commit):
    def git(folder, command, *arguments):
        if command == "rev-parse":
            return str(tmp_path) if "--show-toplevel" in arguments else "abc"
        changed = str(tmp_path / "studies") in arguments
        return " M study.py" if command == "status" and changed else ""

    monkeypatch.setattr(provenance, "_git", git)
    folder = {"studies": tmp_path / "studies", "elsewhere": tmp_path.parent / "mine"}.get(place)
    assert provenance._commit(folder) == commit


@pytest.mark.parametrize("suffix", [".json", ".parquet", ".safetensors"])
@pytest.mark.parametrize("harm", ["truncate", "flip", "empty", "remove"])
def test_a_damaged_result_is_found_set_aside_and_computed_again(tmp_path, suffix, harm):
    drive(tmp_path)
    sound = orbits(tmp_path).arrow
    victim = parts(tmp_path, suffix)[3]
    content = bytearray(victim.read_bytes())
    if harm == "remove":
        victim.unlink()
    else:
        content[len(content) // 2] ^= 1
        victim.write_bytes({"truncate": content[:-7], "flip": content, "empty": b""}[harm])
    again = drive(tmp_path)
    assert again.fresh == 1
    lost_record = suffix == ".json" and harm == "remove"
    assert len(again.aside) == (0 if lost_record else 1)
    assert lost_record or list((tmp_path / "aside").iterdir())
    assert orbits(tmp_path).arrow.equals(sound)
    assert drive(tmp_path).fresh == 0


def test_damage_that_leaves_size_and_time_is_found_on_reading(tmp_path):
    drive(tmp_path)
    victim = parts(tmp_path, ".parquet")[0]
    times = victim.stat()
    content = bytearray(victim.read_bytes())
    content[30] ^= 1
    victim.write_bytes(content)
    os.utime(victim, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(StoreError, match=r"1 damaged results were set aside.*run the study again"):
        _ = orbits(tmp_path).table
    assert drive(tmp_path).fresh == 1


def test_a_record_under_another_key_is_not_believed(tmp_path):
    drive(tmp_path, settings={"count": 2})
    one, two = parts(tmp_path, ".json")
    two.write_bytes(one.read_bytes())
    assert drive(tmp_path, settings={"count": 2}).fresh == 1


@pytest.mark.parametrize("harm", ["remove", "garbage", "stale layout", "truncate"])
def test_the_index_is_rebuilt_from_the_files(tmp_path, harm):
    drive(tmp_path)
    path = tmp_path / "index.sqlite"
    if harm == "remove":
        path.unlink()
    elif harm == "stale layout":
        import sqlite3

        with sqlite3.connect(path) as database:
            database.execute("PRAGMA user_version = 77")
        database.close()
    else:
        path.write_bytes(b"no database" * 50 if harm == "garbage" else path.read_bytes()[:5000])
    assert statuses(Store(tmp_path))[0].done == 8
    summary = drive(tmp_path)
    assert (summary.known, summary.fresh, dict(summary.aside)) == (8, 0, {})
    index = Index(Store(tmp_path))
    assert len(index.entries()) == 8
    index.close()


def test_a_store_of_a_newer_version_is_left_alone(tmp_path):
    drive(tmp_path)
    (tmp_path / "store.json").write_text('{"schema": 99, "basinscope": "7.0"}')
    for attempt in (lambda: drive(tmp_path), lambda: statuses(Store(tmp_path))):
        with pytest.raises(StoreError, match=r"written by basinscope 7.0 with schema 99.*upgrade"):
            attempt()


@pytest.mark.parametrize("content", ["", "[]", '{"schema": "x"}', "{}"])
def test_a_damaged_head_is_reported(tmp_path, content):
    drive(tmp_path)
    (tmp_path / "store.json").write_text(content)
    with pytest.raises(StoreError, match=r"store.json|schema x"):
        drive(tmp_path)


def test_a_folder_that_is_no_store_is_left_alone(tmp_path):
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "mine.csv").touch()
    with pytest.raises(StoreError, match="no store of basinscope"):
        drive(tmp_path)


def test_an_older_schema_is_migrated_once_and_step_by_step(tmp_path, monkeypatch):
    drive(tmp_path)
    done = []

    def second(files):
        done.append(2)
        files.write("two", b"2")

    def third(files):
        done.append(3)
        if done.count(3) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(store_module, "MIGRATIONS", (second, third))
    with pytest.raises(KeyboardInterrupt):
        drive(tmp_path)
    assert drive(tmp_path).known == 8
    drive(tmp_path)
    assert done == [2, 3, 3]
    assert json.loads((tmp_path / "store.json").read_text())["schema"] == 3


class FullSystem(MemoryFileSystem):
    """Runs out of space after some results."""

    protocol = "full"
    cachable = False
    left = 5

    def pipe_file(self, path, value, mode="overwrite", **options):
        if "/results/" in path:
            type(self).left -= 1
            if self.left < 0:
                raise OSError(errno.ENOSPC, "No space left on device")
        super().pipe_file(path, value, mode=mode, **options)


def test_a_full_disk_stops_the_run_and_loses_nothing(tmp_path, monkeypatch):
    fsspec.register_implementation("full", FullSystem, clobber=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    url = f"full://{tmp_path.name}"
    with pytest.raises(StoreError, match="no space left — free some and run the same command again"):
        drive(url)
    monkeypatch.setattr(FullSystem, "left", 10**6)
    summary = drive(url)
    assert summary.complete
    assert summary.known == 1  # three files each: the second result was cut short
    assert not summary.aside


def test_a_full_local_disk_leaves_no_debris(tmp_path, monkeypatch):
    drive(tmp_path, settings={"count": 2})

    def refuse(source, target):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(StoreError, match="no space left"):
        drive(tmp_path)
    monkeypatch.undo()
    assert not list(tmp_path.rglob(".part-*"))
    assert drive(tmp_path).known == 2


def test_no_permission_is_told_with_a_remedy(tmp_path):
    blocked = tmp_path / "blocked"
    blocked.mkdir(mode=0o500)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:  # root may write everywhere: give that up
        message = "nothing was raised"
        try:
            if os.geteuid() == 0:
                os.setuid(65534)
            drive(blocked / "store")
        except BaseException as error:
            message = f"{type(error).__name__}: {error}"
        os.write(writer, message.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        message = pipe.read()
    os.waitpid(child, 0)
    assert message.startswith("StoreError: cannot ")
    assert "no permission" in message
    assert "--store" in message


def test_a_store_that_cannot_be_written_can_still_be_read(tmp_path):
    drive(tmp_path)
    (tmp_path / "index.sqlite").unlink()
    before = sorted(tmp_path.rglob("*"))
    assert statuses(Store(tmp_path))[0].done == 8
    assert len(orbits(tmp_path).table) == 16
    assert sorted(tmp_path.rglob("*")) == before


def test_a_file_in_place_of_the_folder_is_reported(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="is the path a folder"):
        drive(tmp_path / "file")


def test_an_unknown_protocol_is_reported():
    with pytest.raises(InputError, match="cannot be opened"):
        Store("nonsense://bucket")


def test_a_place_without_a_store_is_reported(tmp_path):
    with pytest.raises(InputError, match="there is no store"):
        statuses(Store(tmp_path / "none"))


def test_what_dead_writers_left_behind_goes_after_an_hour(tmp_path):
    drive(tmp_path)
    old, new = (tmp_path / "results" / f".part-{age}" for age in ("old", "new"))
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (0, 0))
    assert drive(tmp_path).known == 8
    assert not old.exists()
    assert new.exists()


def test_loading_what_is_not_there_is_damage(tmp_path):
    with pytest.raises(Damaged, match="cannot be read"):
        Store(tmp_path).load(KEY)
