"""The same study on Ray and through submitit: identical tables, lost workers replaced."""

import signal
import warnings

import pytest

import lacking
import small_studies
from basinscope.errors import InputError
from basinscope.runs.driver import run
from basinscope.runs.executors.local import Local
from basinscope.runs.executors.ray import Ray
from basinscope.runs.executors.slurm import Slurm
from basinscope.runs.results import Results
from basinscope.runs.settings import resolved
from basinscope.runs.store import Store


def parquet(study, store, settings, folder):
    Results(study, resolved(study, "smoke", settings), Store(store)).write(folder)
    return (folder / "table.parquet").read_bytes()


def drive(study, store, **options):
    return run(study, store, progress=False, **options)


@pytest.fixture
def quiet():
    """Other packages' deprecations and open sockets are theirs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.slow
def test_64_jobs_give_one_table_in_one_process_in_two_and_on_ray_with_a_worker_killed(tmp_path, quiet, monkeypatch):
    lacking.package("ray")
    study, settings = small_studies.MORTAL, {"count": 64}
    drive(study, tmp_path / "here", settings=settings)
    drive(study, tmp_path / "local", settings=settings, on=Local(2))
    fallen = tmp_path / "fallen"
    fallen.mkdir()
    monkeypatch.setenv("FELL_ONCE", str(fallen))
    handler = signal.getsignal(signal.SIGTERM)
    summary = drive(study, tmp_path / "ray", settings=settings, on=Ray(workers=2))
    assert summary.complete
    assert not summary.failed
    assert signal.getsignal(signal.SIGTERM) == handler  # Ray's own would end a driver without a word
    (dead,) = (int(path.name) for path in fallen.iterdir())
    records = [Store(tmp_path / "ray").record(path.stem) for path in (tmp_path / "ray" / "results").rglob("*.json")]
    (again,) = (record for record in records if record["config"]["seed"] == 20)
    assert again["provenance"]["process"] != dead
    tables = {parquet(study, tmp_path / name, settings, tmp_path / f"{name}-out") for name in ("here", "local", "ray")}
    assert len(tables) == 1


@pytest.fixture(scope="module")
def cluster():
    """A cluster that is there already."""
    ray = lacking.package("ray")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ray.init("local", num_cpus=2, num_gpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield ray
    ray.shutdown()


@pytest.mark.slow
def test_failures_on_ray_are_told_apart(tmp_path, quiet, cluster):
    settings = {"grid": {"kind": ["fine", "raise", "die"], "seed": [0]}}
    summary = drive(small_studies.TROUBLE, tmp_path, settings=settings, on=Ray(workers=2))
    assert summary.fresh == 1
    assert summary.failed["kind=raise seed=0"] == "ZeroDivisionError: never works"
    assert "its worker died 3 times" in summary.failed["kind=die seed=0"]


@pytest.mark.slow
def test_gpus_that_a_cluster_lacks_are_refused(tmp_path, quiet, cluster):
    with pytest.raises(InputError, match=r"a unit wants 2 GPUs, but no node of the Ray cluster has more than 1"):
        drive(small_studies.ORBITS, tmp_path, on=Ray(gpus=2))
    assert cluster.is_initialized()  # it is not ours to shut down


@pytest.mark.slow
def test_ray_places_gpus(tmp_path, quiet, cluster):
    study = small_studies.PLACED
    on = Ray(gpus=0.5)
    assert drive(study, tmp_path, on=on).complete
    assert on.workers == 2  # two halves of the one GPU
    table = Results(study, resolved(study, "smoke", {}), Store(tmp_path)).table
    assert table["visible"].tolist() == ["0"] * 4


def test_tasks_of_submitit_give_the_same_table(tmp_path, quiet):
    lacking.package("submitit")
    study, settings = small_studies.ORBITS, {"count": 8}
    drive(study, tmp_path / "here", settings=settings)
    on = Slurm(2, minutes=2, cluster="local", poll=0.2)
    assert drive(study, tmp_path / "slurm", settings=settings, on=on).complete
    tables = {parquet(study, tmp_path / name, settings, tmp_path / f"{name}-out") for name in ("here", "slurm")}
    assert len(tables) == 1


@pytest.mark.slow
def test_a_submitit_task_that_dies_is_submitted_again(tmp_path, quiet):
    lacking.package("submitit")
    settings = {"common": {"marker": str(tmp_path / "marker")}, "grid": {"seed": [0, 1, 2]}}
    on = Slurm(1, minutes=2, cluster="local", poll=0.2)
    assert drive(small_studies.ONCE, tmp_path / "store", settings=settings, on=on).complete


@pytest.mark.slow
def test_a_job_that_always_fails_on_submitit_does_not_stop_the_rest(tmp_path, quiet):
    lacking.package("submitit")
    settings = {"grid": {"kind": ["raise", "fine"], "seed": [0]}}
    on = Slurm(1, minutes=2, cluster="local", poll=0.2)
    summary = drive(small_studies.TROUBLE, tmp_path, settings=settings, on=on)
    assert summary.fresh == 1
    assert list(summary.failed) == ["kind=raise seed=0"]


@pytest.mark.slow
def test_slurm_needs_a_shared_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(InputError, match="a folder that all nodes share"):
        drive(small_studies.ORBITS, f"shared://{tmp_path}/store", on=Slurm(1, cluster="local"))
