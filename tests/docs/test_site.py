"""The site: its pages, their links, what the reference covers, and that it asks nothing of other servers."""

import doctest
import importlib.util
import os
import re
import subprocess
import sys

import pytest
import yaml

import basinscope as bs
from basinscope import exact, optim, training
from basinscope.exact import finite
from basinscope.zoo import data, models
from browser import Browser, executable
from documented import PAGES, ROOT

DOCS = ROOT / "docs"
CONFIG = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
REFERENCE = "\n".join(path.read_text() for path in (DOCS / "reference").glob("*.md"))


def hook():
    spec = importlib.util.spec_from_file_location("site_hook", DOCS / "site.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SITE = hook()


def test_the_examples_of_the_hook_run():
    assert doctest.testmod(SITE).failed == 0


def in_nav(entries):
    for entry in entries:
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            yield from in_nav(value) if isinstance(value, list) else [value]


def test_every_page_is_in_the_menu():
    pages = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")} | set(SITE.ELSEWHERE) | {SITE.COMMANDS}
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
    made = (DOCS / SITE.COMMANDS).resolve()  # with the site
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "examples" / "README.md"]:
        for target in re.findall(r"\]\((?![a-z]+:|#)([^)\s#]+)", page.read_text()):
            path = (page.parent / target).resolve()
            assert path == made or path.exists(), f"{page.name} links to {target}"


def test_links_to_files_of_the_repository_become_links_to_pages():
    text = "[a](../benchmarks/results/curvature.md#memory) [b](trust.md) [c](https://a.org/x.md)"
    assert (
        SITE.relinked(text, "index.md") == "[a](benchmarks/curvature.md#memory) [b](trust.md) [c](https://a.org/x.md)"
    )
    assert SITE.relinked("[a](../../CHANGELOG.md)", "howto/study.md") == "[a](../changelog.md)"
    assert SITE.relinked("[a](docs/trust.md)", "contributing.md") == "[a](trust.md)"


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


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    pytest.importorskip("mkdocs", reason="the site needs basinscope[docs]")
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


@pytest.mark.slow
@pytest.mark.skipif(executable() is None, reason="no Chromium here")
def test_pages_and_search_work_from_a_folder_without_a_request(built):
    browser = Browser()
    try:
        page = browser.page()
        page.call("Emulation.setFocusEmulationEnabled", enabled=True)
        page.open((built / "reference" / "measures.html").as_uri())
        page.run("document.querySelector('label[for=__search]').click()")
        page.run("document.querySelector('[data-md-component=search-query]').focus()")
        for key in "leave-one-out":
            page.press(key)
        page.wait("document.querySelector('.md-search-result__item a[href]')", seconds=60)
        assert not page.errors
        assert not [address for address in page.requests if address.startswith("http")]
        page.close()
    finally:
        browser.close()
