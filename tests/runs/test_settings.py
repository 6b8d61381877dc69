import shutil
import sys

import pytest
import yaml

import small_studies
from basinscope.errors import InputError
from basinscope.runs.references import find, load, reference_to
from basinscope.runs.settings import overrides, resolved
from basinscope.runs.study import Settings, Study
from basinscope.runs.sweep import Sweep
from basinscope.runs.units import planned
from basinscope.studies import studies_in


def typed(**annotations):
    def function(x):
        return {}

    function.__annotations__ = annotations
    return function


class Inner(Settings):
    width: int = 3
    rate: float = 0.1


class Outer(Settings):
    network: Inner = Inner()
    seeds: int = 2


class Nested(Study):
    name = "nested"
    Settings = Outer


def labels(named, **changes):
    settings = resolved(named.study, named.scale or "smoke", named.settings, changes)
    return [plan.label for plan in planned(named.study, settings)]


def test_overrides_descend_and_read_yaml():
    assert overrides(["network.width=5", "network.rate=1e-3", "a=[1, x, 2e3]", "b=null", "c=a=b"]) == {
        "network": {"width": 5, "rate": 0.001},
        "a": [1, "x", 2000.0],
        "b": None,
        "c": "a=b",
    }
    assert resolved(Nested(), "smoke", overrides(["network.width=5"])).network == Inner(width=5)


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        (["seeds"], "must be key=value"),
        (["=3"], "must be key=value"),
        (["network..width=3"], "must be key=value"),
        (["seeds=1", "seeds.x=2"], "which another setting gives a value"),
        (["seeds=[1"], "cannot be read as YAML"),
    ],
)
def test_overrides_that_cannot_be_read(texts, told):
    with pytest.raises(InputError, match=told):
        overrides(texts)


def test_everything_wrong_is_told_at_once_with_the_nearest_key():
    with pytest.raises(InputError) as error:
        resolved(Nested(), "smoke", {"network": {"widht": 3, "rate": "fast"}, "seed": 1, "seeds": 1.5})
    told = str(error.value)
    assert "unknown setting 'network.widht' — did you mean 'width'?" in told
    assert "unknown setting 'seed' — did you mean 'seeds'?" in told
    assert "setting 'network.rate' = 'fast'" in told
    assert "setting 'seeds' = 1.5" in told


def test_an_unknown_scale_is_refused():
    with pytest.raises(InputError, match=r"has no scale 'large' — choose from smoke, paper"):
        resolved(Nested(), "large")


def test_a_job_listed_twice_is_refused():
    named = find("small_studies:TROUBLE")
    with pytest.raises(InputError, match="lists a job twice: kind=fine seed=1"):
        labels(named, grid={"seed": [1, 1]})


def test_a_study_without_jobs_is_refused():
    with pytest.raises(InputError, match="grid 'seed' has no values"):
        labels(find("small_studies:TROUBLE"), grid={"seed": []})
    with pytest.raises(InputError, match="has no jobs"):
        planned(small_studies.ORBITS, resolved(small_studies.ORBITS, "smoke", {"count": 0}))


def test_a_yaml_file_declares_a_sweep(tmp_path):
    (tmp_path / "mine.py").write_text(
        "def area(width: int, height: float = 2.0):\n    return {'area': width * height}\n"
    )
    spec = {
        "function": "mine.py:area",
        "grid": {"width": [1, 2]},
        "jobs": [{"width": 7, "height": 1.0}],
        "scales": {"paper": {"grid": {"width": [1, 2, 3]}}},
    }
    path = tmp_path / "areas.yaml"
    path.write_text(yaml.safe_dump(spec))
    named = find(str(path))
    assert labels(named) == ["width=1 height=2.0", "width=2 height=2.0", "width=7 height=1.0"]
    assert named.study.name == "areas"
    assert len(planned(named.study, resolved(named.study, "paper"))) == 4
    path.unlink()  # a worker needs the reference alone
    study = load(named.reference)
    assert study.run(study.job({"width": 3}), None) == {"area": 6.0}


def test_a_yaml_file_changes_settings_of_a_study(tmp_path):
    path = tmp_path / "few.yaml"
    path.write_text("study: known\nscale: paper\nsettings: {count: 3}\n")
    named = find(str(path), {"known": "small_studies:ORBITS"})
    assert named.scale == "paper"
    assert len(labels(named)) == 3


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("grid: {}", "must have either 'study'"),
        ("study: a\nfunction: b", "must have either 'study'"),
        ("function: small_studies:trouble\ngird: {kind: [fine]}", "unknown entry 'gird' — did you mean 'grid'"),
        ("function: small_studies:trouble\nsettings: {a: 1}", "'settings' belongs to 'study'"),
        ("study: small_studies:ORBITS\ngrid: {a: [1]}", "belong to 'function'"),
        ("- 1", "must hold a mapping"),
        ("a: [", "cannot be read as YAML"),
        ("function: small_studies:trubble", "did you mean 'trouble'"),
        ("function: no_such_module:f", "cannot import 'no_such_module'"),
        ("function: none.py:f", "there is no file"),
    ],
)
def test_bad_declarations_are_told(tmp_path, content, told):
    path = tmp_path / "bad.yaml"
    path.write_text(content)
    with pytest.raises(InputError, match=told):
        find(str(path))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("missing.yaml", "there is no file"),
        ("small_studies:Orbit", "must be a Study, got type"),
        ("small_studies:time", "must be a Study, got module"),
        ("orbit", "there is no study 'orbit' — did you mean 'orbits'"),
    ],
)
def test_names_that_lead_nowhere(text, told):
    with pytest.raises(InputError, match=told):
        find(text, {"orbits": "small_studies:ORBITS"})


def test_a_study_is_found_by_its_folder_and_may_import_its_neighbours(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    home = tmp_path / "experiments_of_mine" / "squares"
    home.mkdir(parents=True)
    (home.parent / "__init__.py").touch()
    (home.parent / "shared.py").write_text("from basinscope.runs.study import Study\n")
    (home / "__init__.py").write_text('"""Squares.\n\nOf small numbers."""\n')
    (home / "cases.py").write_text("NAME = 'squares'\n")
    (home / "study.py").write_text(
        "from experiments_of_mine.shared import Study\nfrom .cases import NAME\n"
        "class Squares(Study):\n    name = NAME\nSTUDY = Squares()\n"
    )
    (known,) = studies_in(home.parent).items()
    assert (known[0], known[1].title) == ("squares", "Squares")
    study = find("experiments_of_mine/squares").study
    assert study.name == "squares"
    assert type(study).__module__ == "experiments_of_mine.squares.study"
    for text in (str(home), known[1].reference, find(str(home)).reference):
        assert find(text).study is study
    with pytest.raises(InputError, match=r"there is no study.py in 'experiments_of_mine'"):
        find("experiments_of_mine")
    with pytest.raises(InputError, match=r"there is no study.py in 'experiments_of_mine/cubes'"):
        find("experiments_of_mine/cubes")
    elsewhere = tmp_path / "elsewhere" / "experiments_of_mine" / "squares"
    shutil.copytree(home.parent, elsewhere.parent)
    with pytest.raises(InputError, match="that name is taken by"):
        find(str(elsewhere))


def test_arguments_of_a_sweep_are_checked_like_settings():
    with pytest.raises(InputError, match="unknown argument 'knid' — did you mean 'kind'"):
        labels(find("small_studies:TROUBLE"), jobs=[{"knid": "fine"}])
    with pytest.raises(InputError, match="argument 'seed' = 'x'"):
        labels(find("small_studies:TROUBLE"), grid={"seed": ["x"]})
    with pytest.raises(InputError, match="argument 'kind' is missing"):
        find("small_studies:TROUBLE").study.job({"seed": 1})


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda config: {}, "Arguments cannot have a field 'config'"),
        (lambda *values: {}, "must name its arguments"),
        (typed(x=complex), "Arguments.x has type complex, whose values cannot be kept"),
    ],
)
def test_functions_whose_arguments_no_job_can_have(function, told):
    with pytest.raises(InputError, match=told):
        Sweep("odd", function).job({})


def test_a_study_is_found_again_by_its_reference():
    reference = reference_to(small_studies.ORBITS)
    assert load(reference) is small_studies.ORBITS
    assert reference_to(small_studies.Orbits()) is None


def test_keys_do_not_depend_on_the_order_of_settings_and_do_on_all_else():
    study = small_studies.TROUBLE
    key = study.key({"kind": "fine", "seed": 1})
    assert key == study.key({"seed": 1, "kind": "fine"})
    others = [{"kind": "fine", "seed": 2}, {"kind": "fine", "seed": 1.0}, {"kind": "fine"}]
    assert len({key, *map(study.key, others)}) == 4
    with pytest.raises(InputError, match="plain finite values"):
        study.key({"seed": float("nan")})
