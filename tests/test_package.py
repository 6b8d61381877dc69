import ast
import importlib
import subprocess
import sys
import warnings
from collections import defaultdict
from importlib import metadata, resources
from pathlib import Path

import pytest

from basinscope._version import __version__

PACKAGE = Path(str(resources.files("basinscope")))
MOST_LINES, MOST_LEVELS = 60, 5  # of a function's body, without its docstring
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

# What version 0.1.0 exported, and a clone of it may import.
FORMER_NAMES = {
    "basinscope": (
        "BasinscopeError Criteria Estimate InputError Landscape LogLikelihood Report Symmetries criteria exact "
        "fluctuation free_energy gap hessian_trace information_distance llc log_det log_likelihood loo "
        "loss_distance measure operator_norm optim parameter_error penalty selftest soft_rank spectrum symmetries "
        "temperature_regression tic training volume_scaling waic wbic zoo"
    ),
    "basinscope.exact": (
        "Bound Coefficient brieskorn curve_squared deep_linear deep_linear_local finite hessian_bounds newton "
        "normal_crossing normal_mixture polynomial power_rule product_rule reduced_rank regular relu_kink_pair "
        "relu_three_layer sum_rule tanh_one_input"
    ),
    "basinscope.exact.finite": (
        "hyperbola hyperbola_heat_capacity matrix_chain matrix_chain_heat_capacity matrix_product "
        "matrix_product_heat_capacity monomial monomial_heat_capacity monomial_localized "
        "monomial_localized_heat_capacity quadratic quadratic_heat_capacity"
    ),
    "basinscope.optim": ("EntropySGD ExactNGD KFAC NaturalGradient OnlineNGD PRESETS preset"),
    "basinscope.training": (
        "Below EarlyStop Evaluation Every Flat Measure Member Population Run branch histories load_checkpoint "
        "matched save_checkpoint train"
    ),
    "basinscope.training.population": ("Adam Evaluation Member OnlineNGD Population SGD"),
    "basinscope.zoo": ("data models"),
    "basinscope.zoo.models": (
        "FrozenNorm calibrate deep_linear ffnn flatness_big_mlp flatness_cnn flatness_mlp freeze_batch_norm "
        "lenet5 resnet transformer"
    ),
    "basinscope.zoo.data": (
        "DataSet characters decode deep_linear fetch load mixture modular_addition names reduced_rank "
        "seven_by_seven story"
    ),
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


def depth(node, level=0):
    """How deep blocks stand within each other; an elif stands beside its if."""
    blocks = (ast.For, ast.While, ast.If, ast.With, ast.Try)
    deepest = level
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
            continue
        beside = isinstance(node, ast.If) and isinstance(child, ast.If) and node.orelse == [child]
        deepest = max(deepest, depth(child, level + (isinstance(child, blocks) and not beside)))
    return deepest


@pytest.mark.parametrize("folder", ["src/basinscope", "studies"])
def test_functions_are_short_and_flat(folder):
    long, deep = [], []
    for path in (PACKAGE.parents[1] / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                start = node.body[0].end_lineno if ast.get_docstring(node) else node.body[0].lineno - 1
                if node.end_lineno - start > MOST_LINES:
                    long.append(f"{path}:{node.lineno} {node.name}")
                if depth(node) > MOST_LEVELS:
                    deep.append(f"{path}:{node.lineno} {node.name}")
    assert long == []
    assert deep == []


@pytest.mark.parametrize("module", FORMER_NAMES)
def test_every_name_of_the_first_version_is_still_there(module):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # those that have changed
        home = importlib.import_module(module)
        assert [name for name in FORMER_NAMES[module].split() if not hasattr(home, name)] == []
