"""The site: its pages, their links, what the reference covers, and that it asks nothing of other servers."""

import doctest
import importlib.util
import json
import os
import re
import subprocess
import sys

import pytest
import yaml

import basinscope as bs
import lacking
from basinscope import exact, optim, training
from basinscope.exact import finite
from basinscope.zoo import data, models
from browser import Browser
from documented import PAGES, ROOT

DOCS = ROOT / "docs"
CONFIG = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
REFERENCE = "\n".join(path.read_text() for path in (DOCS / "reference").glob("*.md"))


def hook():
    spec = importlib.util.spec_from_file_location("site_hook", DOCS / "site.py")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(DOCS))  # as mkdocs does
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(DOCS))
    return module


SITE = hook()


def test_the_examples_of_the_hook_run():
    assert doctest.testmod(SITE).failed == 0
    assert doctest.testmod(SITE.study_pages).failed == 0


def in_nav(entries):
    for entry in entries:
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            yield from in_nav(value) if isinstance(value, list) else [value]


def test_every_page_is_in_the_menu():
    pages = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")} | set(SITE.ELSEWHERE) | set(SITE.made())
    listed = list(in_nav(SITE.expanded(CONFIG["nav"])))
    assert sorted(listed) == sorted(pages)


@pytest.mark.parametrize(
    ("package", "names"),
    [
        ("basinscope", [each for each in bs.__all__ if not each.startswith("_")]),
        ("basinscope.exact", exact.__all__),
        ("basinscope.exact.finite", finite.__all__),
        ("basinscope.optim", optim.__all__),
        ("basinscope.training", training.__all__),
        ("basinscope.zoo.models", models.__all__),
        ("basinscope.zoo.data", data.__all__),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_reference_covers_everything_public(package, names):
    entries = set(re.findall(r"^::: (\S+)$", REFERENCE, re.MULTILINE))
    packages = {"exact", "optim", "training", "zoo", "finite", "PRESETS"}
    missing = [name for name in names if name not in packages and f"{package}.{name}" not in entries]
    assert not missing


def test_links_between_files_lead_somewhere():
    made = {(DOCS / page).resolve() for page in SITE.made()}  # with the site
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "examples" / "README.md"]:
        for target in re.findall(r"\]\((?![a-z]+:|#)([^)\s#]+)", page.read_text()):
            path = (page.parent / target).resolve()
            assert path in made or path.exists(), f"{page.name} links to {target}"


def test_links_to_files_of_the_repository_become_links_to_pages():
    text = "[a](../benchmarks/results/curvature.md#memory) [b](trust.md) [c](https://a.org/x.md)"
    assert (
        SITE.relinked(text, "index.md") == "[a](benchmarks/curvature.md#memory) [b](trust.md) [c](https://a.org/x.md)"
    )
    assert SITE.relinked("[a](../../CHANGELOG.md)", "howto/study.md") == "[a](../changelog.md)"
    assert SITE.relinked("[a](docs/trust.md)", "contributing.md") == "[a](trust.md)"
    assert SITE.relinked("[a [b]](src/x.py) ![c](d.png)", "contributing.md") == "a [b] c"
    assert SITE.relinked("[a](nowhere.md)", "index.md") == "[a](nowhere.md)"  # where mkdocs complains


def test_what_a_page_loads_from_elsewhere_is_found(tmp_path):
    page = """<link rel="stylesheet" href="https://a.org/a.css"><link rel="canonical" href="https://a.org/">
        <a href="https://a.org">a</a><script src="//b.org/b.js"></script><img srcset="c.png 1x, http://c.org/c.png 2x">
        <div style="background: url('https://d.org/d.png')"></div><style>@import "https://e.org/e.css";</style>
        <iframe src="https://f.org"></iframe><p>https://g.org</p>"""
    assert SITE.loaded(page) == [
        "https://a.org/a.css", "//b.org/b.js", "http://c.org/c.png", "https://d.org/d.png", "https://e.org/e.css",
        "https://f.org",
    ]  # fmt: skip
    (tmp_path / "a.html").write_text("<img src='http://x.org/x.png'>")
    (tmp_path / "a.css").write_text("@font-face { src: url(https://y.org/y.woff) } b { background: url(z.png) }")
    assert list(SITE.outside(tmp_path)) == [("a.css", "https://y.org/y.woff"), ("a.html", "http://x.org/x.png")]


@pytest.fixture
def results(tmp_path):
    """A study with a page of the whole and one of its smoke scale, one without a page, and a folder of neither."""
    for name in ("whole/smoke", "whole/figures", "bare", "empty/inner"):
        (tmp_path / name).mkdir(parents=True)
    parts = ("# A", "![b](b.png)", "![d](figures/d.png)", "[all](rows.txt), [code](../x.py)", "## Files", "Two.")
    (tmp_path / "whole" / "README.md").write_text("\n\n".join(parts))
    (tmp_path / "whole" / "smoke" / "README.md").write_text("# A\n")
    for name in ("figures/d.png", "a.png", "b.png", "rows.txt", "rows.csv"):
        (tmp_path / "whole" / name).write_text("")
    for name in ("x.py", "bare/c.png"):
        (tmp_path / name).write_text("")
    (tmp_path / "bare" / "short.csv").write_text("case,llc,llc_stderr\na|b,1.23456,0.012345\n")
    (tmp_path / "bare" / "long.csv").write_text("case\n" + "1\n" * 99)
    told = {"study": "bare", "version": 2, "results": 3, "jobs": 4, "seconds": 120.0, "device": {"cpu": 3}}
    (tmp_path / "bare" / "provenance.json").write_text(json.dumps(told))
    return tmp_path


def test_studies_become_pages_with_all_their_figures(results):
    pages = SITE.study_pages.folders(results)
    assert list(pages) == ["studies/bare/index.md", "studies/whole/index.md", "studies/whole/smoke/index.md"]
    readme = (results / "whole" / "README.md").read_text()
    page = SITE.study_pages.with_figures(readme, results / "whole")
    assert page.count("b.png") == 1
    assert page.index("![a](a.png)") < page.index("## Files") < page.index("[rows.csv](rows.csv)")
    files = SITE.study_pages.files(results / "whole")
    assert {path.name for path in files} == {"a.png", "b.png", "d.png", "rows.csv", "rows.txt"}
    home = SITE.study_pages.home(pages, results, {"bare": "nothing"})
    assert "| `bare` | nothing | [results](bare/index.md) |" in home
    assert "[results](whole/index.md), [smoke](whole/smoke/index.md)" in home


def test_results_without_a_page_get_one(results):
    bare = results / "bare"
    page = SITE.study_pages.with_figures(SITE.study_pages.page_without_readme(bare, "Bare", "Words."), bare)
    assert "3 of 4 jobs, 2 minutes of cpu" in page
    assert "| a\\|b | 1.235\xa0±\xa00.012 |" in page
    assert "## Long" not in page
    assert "![c](c.png)" in page
    assert "[long.csv](long.csv)" in page


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    lacking.package("mkdocs")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_the_site_builds_without_a_warning(built):
    assert (built / "reference" / "measures.html").read_text().count("doc-function") > 20
    assert "--watch" in (built / SITE.COMMANDS.replace(".md", ".html")).read_text()
    for page, folder in SITE.STUDIES.items():
        text = (built / page.replace(".md", ".html")).read_text()
        assert all(f'src="{path.name}"' in text for path in SITE.study_pages.figures(folder)), page


@pytest.mark.slow
@lacking.CHROMIUM.mark
def test_pages_and_search_work_from_a_folder_without_a_request(built):
    browser = Browser()
    try:
        page = browser.page()
        page.call("Emulation.setFocusEmulationEnabled", enabled=True)
        page.open((built / "reference" / "measures.html").as_uri())
        page.run("document.querySelector('label[for=__search]').click()")
        page.run("document.querySelector('[data-md-component=search-query]').focus()")
        page.wait("document.querySelector('.md-search-result__meta').textContent.startsWith('Type')")
        for key in "likelihood":  # the index reads a hyphen at the end of a word as a mistake, and says so
            page.press(key)
        page.wait("document.querySelector('.md-search-result__item a[href]')")
        assert not page.errors
        assert not [address for address in page.requests if address.startswith("http")]
        page.close()
    finally:
        browser.close()
