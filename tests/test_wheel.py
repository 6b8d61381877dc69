"""The built wheel, installed where nothing of this repository is."""

import os
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
import yaml

import basinscope
import extra_uses
import lacking

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = sorted(PROJECT["optional-dependencies"])

# Those of the tests themselves and of the site are used by the tests, and by `make test-extras`.
USED = [name for name in EXTRAS if name not in ("dev", "docs")]
ON_CLUSTERS = ("ray", "slurm")  # where a study goes on: what runs studies is there already


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    hatchling = lacking.package("hatchling.build")
    command = f"import os; os.chdir({str(ROOT)!r}); import {hatchling.__name__} as b; b.build_wheel({str(folder)!r})"
    subprocess.run([sys.executable, "-c", command], check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def fresh(wheel, tmp_path_factory):
    """An environment with the wheel and nothing but the dependencies that it declares for itself."""
    return environment(wheel, tmp_path_factory.mktemp("fresh"), "basinscope")


def environment(wheel, home, requirement):
    """The Python of a new environment with the wheel and what is required, linked from where it is installed."""
    venv.create(home, with_pip=False, symlinks=True)
    python = home / "bin" / "python"
    site = Path(subprocess.run([python, "-c", "import site; print(site.getsitepackages()[0])"],
                               check=True, capture_output=True, text=True).stdout.strip())  # fmt: skip
    zipfile.ZipFile(wheel).extractall(site)
    for distribution in closure(requirement):
        for top in tops(distribution):
            if not (site / top.name).exists():
                (site / top.name).symlink_to(top)
    return python


def closure(requirement):
    """Distributions that a requirement brings in, all extras on the way followed."""
    from importlib.metadata import PackageNotFoundError, distribution

    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    found, seen, waiting = {}, set(), [Requirement(requirement)]
    while waiting:
        wanted = waiting.pop()
        name, extras = canonicalize_name(wanted.name), {"", *wanted.extras}
        if (name, frozenset(extras)) in seen:
            continue
        seen.add((name, frozenset(extras)))
        if name == "basinscope":  # as the project declares it now, not as it did when it was installed here
            optional = PROJECT["optional-dependencies"]
            needs = [*PROJECT["dependencies"], *(need for extra in wanted.extras for need in optional[extra])]
        else:
            try:
                found[name] = distribution(name)
            except PackageNotFoundError:
                continue
            needs = found[name].requires or []
        for need in map(Requirement, needs):
            if need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in extras):
                waiting.append(need)
    return found.values()


def tops(distribution):
    """The files and folders that a distribution puts on the path."""
    firsts = {file.parts[0] for file in distribution.files or [] if file.parts[0] not in ("..", "__pycache__")}
    return [path for first in firsts if (path := Path(distribution.locate_file(first))).exists()]


def says(python, code):
    folder = python.parents[1]
    return subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, cwd=folder)


def test_the_wheel_is_small_and_whole(wheel):
    assert wheel.stat().st_size < 3e6
    inside = zipfile.ZipFile(wheel).namelist()
    assert "basinscope/py.typed" in inside
    assert not [name for name in inside if name.startswith(("tests", "examples", "benchmarks", "docs", "studies"))]
    assert {name for name in inside if "studies" in name} == {
        f"basinscope/{name}.py" for name in ("studies/__init__", "studies/quadratics", "report/studies")
    }
    sources = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src/basinscope").rglob("*.py")}
    assert sources <= set(inside)
    (metadata,) = (name for name in inside if name.endswith("METADATA"))
    text = zipfile.ZipFile(wheel).read(metadata).decode()
    assert set(re.findall(r"^Provides-Extra: (.+)$", text, re.MULTILINE)) == set(EXTRAS)
    assert f"\nVersion: {basinscope.__version__}\n" in text


@pytest.mark.slow
def test_the_wheel_alone_measures(fresh):
    code = (
        "import torch, basinscope as bs; x = torch.ones(9, 1); net = torch.nn.Linear(1, 1);"
        "print(bs.trace(bs.Landscape(net, 'mse', (x, x)), progress=False).value, bs.__file__)"
    )
    done = says(fresh, code)
    assert done.returncode == 0, done.stderr
    value, file = done.stdout.split()
    assert float(value) == pytest.approx(2.0)
    assert str(ROOT) not in file
    shown = says(fresh, "import sys; from basinscope.cli import main; sys.argv[1:] = ['--help']; main()")
    assert "measure" in shown.stdout


@pytest.mark.slow
@pytest.mark.parametrize("extra", USED)
def test_extras_work_and_their_absence_names_them(wheel, fresh, extra, tmp_path):
    if extra not in extra_uses.MISSING_IS_NOT_OURS:
        python = environment(wheel, tmp_path / "less", "basinscope[studies]") if extra in ON_CLUSTERS else fresh
        without = uses(python, extra, tmp_path / "without")
        assert re.search(rf"install '?basinscope\[{extra}\]", without.stderr), without.stderr
    done = uses(environment(wheel, tmp_path / "with", f"basinscope[{extra}]"), extra, tmp_path / "used")
    assert done.returncode == 0, done.stderr


def uses(python, extra, folder):
    folder.mkdir()
    command = [python, "-I", extra_uses.__file__, extra]
    own = {name: value for name, value in os.environ.items() if not name.startswith("WANDB")}  # no service of others
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=own)


def test_every_extra_has_a_use():
    assert all(callable(getattr(extra_uses, name, None)) for name in EXTRAS)


@pytest.mark.parametrize("extra", EXTRAS)
def test_every_extra_resolves_to_the_pinned_releases(extra):
    """What the metadata asks for is pinned, the pin satisfies it, and what is installed here is that pin."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    pinned = map(Requirement, (ROOT / "constraints.txt").read_text().splitlines())
    pins = {canonicalize_name(pin.name): next(iter(pin.specifier)).version for pin in pinned}
    for text in PROJECT["optional-dependencies"][extra]:
        wanted = Requirement(text)
        if wanted.name == "basinscope":
            assert wanted.extras <= set(EXTRAS), text
            continue
        pin = pins.get(canonicalize_name(wanted.name))
        assert pin is not None, f"{wanted.name} of {extra} is not in constraints.txt"
        assert pin in wanted.specifier, f"{text} of {extra} excludes the pinned {pin}"
        for found in closure(text):
            own = pins.get(canonicalize_name(found.name))
            assert own == found.version.partition("+")[0], f"{found.name} {found.version} is not the pinned {own}"


def test_citation_and_templates_are_valid():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == basinscope.__version__
    assert citation["license"] == PROJECT["license"]
    templates = list((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
    assert len(templates) == 3
    assert all({"name", "description", "body"} <= yaml.safe_load(path.read_text()).keys() for path in templates)


def test_workflows_run_what_the_makefile_has():
    rules = re.findall(r"^([\w. -]+):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    targets = {target for rule in rules for target in rule.split()}
    workflows = {path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / ".github" / "workflows").glob("*.yml")}
    assert workflows.keys() == {"release", "test"}
    for workflow in workflows.values():
        assert workflow["permissions"] == {"contents": "read"}
        steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
        made = [target for step in steps for target in re.findall(r"make (\S+)", step.get("run", ""))]
        assert made
        assert set(made) <= targets
    publish = workflows["release"]["jobs"]["publish"]
    assert publish["needs"] == "build"
    assert publish["permissions"] == {"id-token": "write"}


def test_the_map_of_the_house_is_whole():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    for path in (ROOT / "src" / "basinscope").iterdir():
        if path.name.startswith(("_", "demo")) or path.name == "py.typed":
            continue
        assert f"`{path.name}{'/' if path.is_dir() else ''}`" in text, path.name
