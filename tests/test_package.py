import subprocess
import sys
from importlib import metadata, resources
from pathlib import Path

from basinscope._version import __version__


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
