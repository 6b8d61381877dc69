import ast
import subprocess
import sys
from collections import defaultdict
from importlib import metadata, resources
from pathlib import Path

from basinscope._version import __version__

PACKAGE = Path(str(resources.files("basinscope")))
# Classes of one name that no reader meets together: the same thing for another kind of thing.
TWINS = {
    "State": "of each kernel, and of a population: known to its own file alone",
    "EntropySGD": "the same method for one network and for populations",
    "OnlineNGD": "the same method for one network and for populations",
    "Log": "the same callback for two loggers",
    "Measurements": "the same callback for two trainers",
    "Observable": "of exact laws, and of a network's posterior",
    "Evaluation": "of networks, and of chains",
    "Point": "of a report, and of a Metropolis chain",
    "Run": "of a training, and of chains",
    "Settings": "of a study, and of a sampler",
}


def test_installed_version_is_the_one_in_the_source():
    assert metadata.version("basinscope") == __version__


def test_the_citation_and_the_changelog_are_of_this_version():
    root = Path(__file__).parents[1]
    assert f"\nversion: {__version__}\n" in (root / "CITATION.cff").read_text()
    headings = [line for line in (root / "CHANGELOG.md").read_text().splitlines() if line.startswith("## ")]
    assert headings[0].split()[1] == __version__


def test_type_information_is_shipped():
    assert resources.files("basinscope").joinpath("py.typed").is_file()


def test_importing_is_quick():
    """Seconds depend on the machine; what is slow to load does not."""
    code = (
        "import sys, basinscope as bs; assert 'torch' not in sys.modules;"
        "[getattr(bs, name) for name in bs.__all__];"
        "print(*set(sys.argv[1:]) & set(sys.modules))"
    )
    slow = ("scipy.stats", "scipy.optimize", "pandas", "matplotlib", "sklearn", "sympy")
    done = subprocess.run([sys.executable, "-c", code, *slow], capture_output=True, text=True, check=True)
    assert not done.stdout.split()


def parsed():
    """Every module of the package as a syntax tree."""
    return {path.relative_to(PACKAGE): ast.parse(path.read_text(encoding="utf-8")) for path in PACKAGE.rglob("*.py")}


def test_no_two_classes_have_one_name():
    places = defaultdict(list)
    for path, tree in parsed().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path))
    assert {name: paths for name, paths in places.items() if len(paths) > 1 and name not in TWINS} == {}
    assert [name for name in TWINS if len(places[name]) < 2] == []


def test_no_module_needs_another_name_for_a_class():
    """Which is what two classes of one name within sight of each other would lead to."""
    renamed = [
        f"{path}: {name.name} as {name.asname}"
        for path, tree in parsed().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for name in node.names
        if name.asname not in (None, name.name) and name.name[0].isupper()
    ]
    assert renamed == []
