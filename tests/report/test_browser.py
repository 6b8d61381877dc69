"""Report and live page in a real browser: no errors, no request to elsewhere, usable by keyboard, readable by all."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

import basinscope as bs
import lacking
from basinscope import demo
from basinscope.report.studies import study_page
from basinscope.runs.driver import run
from basinscope.runs.results import Results
from basinscope.runs.store import Store
from basinscope.runs.sweep import Sweep
from browser import Browser
from hostile_names import NAMES
from live_pages import curve, served, store, training

lacking.CHROMIUM.insist()

# Screenshots are kept where this says, to be looked at.
PICTURES = os.environ.get("BASINSCOPE_PICTURES")

# Text whose contrast with what lies behind it is below WCAG's 4.5 (3 for large text), with its colours.
POOR_CONTRAST = """(() => {
  const parse = (text) => { const m = text.match(/[\\d.]+/g).map(Number); return m.length > 3 ? m : [...m, 1]; };
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
    .map((c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, k) => sum + c * [0.2126, 0.7152, 0.0722][k], 0);
  const behind = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour[3] === 1) return colour;
    }
    return [255, 255, 255, 1];
  };
  const poor = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement, words = walker.currentNode.textContent.trim();
    if (!words || !node.checkVisibility() || node.closest("title, option, noscript, .hidden, :disabled")) continue;
    const style = getComputedStyle(node), inside = node.closest("svg");
    const colour = parse(inside ? style.fill : style.color), ground = behind(inside || node);
    const [a, b] = [light(colour), light(ground)].sort((x, y) => y - x), ratio = (a + 0.05) / (b + 0.05);
    const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    if (ratio < (large ? 3 : 4.5)) poor.push(`${words.slice(0, 30)}: ${ratio.toFixed(2)} ${colour} on ${ground}`);
  }
  return poor;
})()"""

# What a screen reader would stumble over.
STRUCTURE = """(() => {
  const wrong = [], say = (what) => wrong.push(what);
  if (!document.documentElement.lang) say("no language");
  if (!document.title) say("no title");
  if (document.querySelectorAll("h1").length !== 1) say("not one h1");
  if (document.querySelectorAll("main").length !== 1) say("not one main");
  let level = 1;
  for (const heading of document.querySelectorAll("h1, h2, h3, h4")) {
    const own = Number(heading.tagName[1]);
    if (own > level + 1) say(`${heading.textContent} jumps from h${level} to h${own}`);
    level = own;
  }
  for (const image of document.querySelectorAll("svg:not([aria-hidden]), img"))
    if (!image.getAttribute("aria-label") && !image.getAttribute("alt")) say(`no name: ${image.outerHTML}`);
  for (const cell of document.querySelectorAll("th")) if (!cell.scope) say(`no scope: ${cell.textContent}`);
  const ids = [...document.querySelectorAll("[id]")].map((node) => node.id);
  if (new Set(ids).size !== ids.length) say("an id twice");
  for (const link of document.querySelectorAll('a[href^="#"]'))
    if (!document.getElementById(link.getAttribute("href").slice(1))) say(`nowhere: ${link.href}`);
  return wrong;
})()"""

OUTLINE = """(() => {
  const style = getComputedStyle(document.activeElement);
  return [document.activeElement.tagName, style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2];
})()"""

TYPE = """((text) => {
  const box = document.getElementById("query");
  const before = performance.now();
  box.value = text;
  box.dispatchEvent(new Event("input"));
  document.body.offsetHeight;
  return performance.now() - before;
})"""


GROUP = """((name) => {
  const box = document.getElementById("group");
  box.value = name;
  box.dispatchEvent(new Event("input"));
})"""


@pytest.fixture(scope="module")
def page():
    browser = Browser()
    page = browser.page()
    yield page
    page.close()
    browser.close()


@pytest.fixture(scope="module")
def run_of_many(report):
    """A run of checkpoints, the names of which are hostile."""
    points = [replace(report.points[0], name=NAMES[k % len(NAMES)], step=10 * k) for k in range(20)]
    points[4] = replace(points[4], measured=None, error="it was cut off")
    history = [{"step": k, "train_loss": 1 / (k + 1), "validation_loss": 2 / (k + 1)} for k in range(190)]
    return replace(report, title=NAMES[0], points=points, history=history)


def keep(page, name):
    if PICTURES:
        page.picture(Path(PICTURES) / f"{name}.png")


def sound(page, origin):
    """No error, nothing fetched from elsewhere, no script that a name brought in."""
    assert page.errors == []
    assert [url for url in page.requests if not url.startswith((origin, "data:", "blob:"))] == []
    assert not page.run("window.broken")


@pytest.mark.parametrize("kind", ["one", "many"])
@pytest.mark.parametrize(
    ("width", "dark"),
    [
        (1200, False),
        *(pytest.param(*look, marks=pytest.mark.slow) for look in [(1200, True), (400, False), (400, True)]),
    ],
)
def test_a_report_is_sound_and_readable(page, report, run_of_many, tmp_path, kind, width, dark):
    (report if kind == "one" else run_of_many).to_html(tmp_path / "report.html")
    page.open(f"file://{tmp_path}/report.html", width=width, dark=dark)
    sound(page, "file://")
    assert page.run(POOR_CONTRAST) == []
    assert page.run(STRUCTURE) == []
    assert page.run("document.documentElement.scrollWidth") <= width
    assert all(name for _, name in page.names())
    keep(page, f"report-{kind}-{width}-{'dark' if dark else 'light'}")


@pytest.mark.parametrize("dark", [False, True])
def test_a_studys_page_is_sound_and_readable(page, tmp_path, dark):
    study = Sweep("curves", curve, {"grid": {"name": NAMES, "seed": [0, 1]}}, title=NAMES[0])
    run(study, tmp_path, progress=False)
    results = Results(study, study.settings(**study.scales["smoke"]), Store(tmp_path))
    (tmp_path / "report.html").write_text(study_page(results, [], NAMES[0]))
    page.open(f"file://{tmp_path}/report.html", width=420, dark=dark)
    sound(page, "file://")
    assert page.run(POOR_CONTRAST) == []
    assert page.run(STRUCTURE) == []
    assert page.run("document.documentElement.scrollWidth") <= 420
    keep(page, f"study-{'dark' if dark else 'light'}")


def test_a_report_is_walked_by_keyboard(page, report, tmp_path):
    report.to_html(tmp_path / "report.html")
    page.open(f"file://{tmp_path}/report.html")
    page.press("Tab", 9)
    assert page.run("document.activeElement.textContent") == "Skip to the content"
    seen = []
    for _ in range(40):
        tag, outlined = page.run(OUTLINE)
        if tag == "BODY":
            break
        assert outlined, f"no outline on {page.run('document.activeElement.outerHTML')[:80]}"
        seen.append(tag)
        page.press("Tab", 9)
    assert seen.count("A") > 5


def test_a_report_prints(page, run_of_many, tmp_path):
    run_of_many.to_html(tmp_path / "report.html")
    page.open(f"file://{tmp_path}/report.html", dark=True)
    place = Path(PICTURES) if PICTURES else tmp_path
    assert page.pdf(place / "report.pdf") > 0
    page.look(dark=True, media="print")
    assert page.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.run("getComputedStyle(document.querySelector('nav.contents')).display") == "none"
    assert page.run(POOR_CONTRAST) == []


@pytest.mark.parametrize("paper", ["A4", "letter"])
def test_a_report_prints_on_two_pages(page, report, tmp_path, paper):
    report.to_html(tmp_path / "report.html")
    page.open(f"file://{tmp_path}/report.html")
    assert page.pdf(tmp_path / "report.pdf", paper) <= 2


@pytest.mark.slow
def test_the_report_of_the_demonstration_prints_on_two_pages(page, tmp_path):
    lacking.package("sklearn")
    digits = demo.load_digits()
    report = demo.measure(demo.train(digits, 8, 0), digits, bs.Nominal(2), 0, "basinscope demo")
    report.to_html(tmp_path / "report.html")
    page.open(f"file://{tmp_path}/report.html")
    place = Path(PICTURES) if PICTURES else tmp_path
    assert page.pdf(place / "demo.pdf", "letter") <= 2


def test_hostile_names_stay_names_in_the_live_page(page, tmp_path):
    store(tmp_path / "store", NAMES)
    training(tmp_path / NAMES[0].replace("/", "∕"))
    with served(tmp_path) as port:
        page.open(f"http://127.0.0.1:{port}/")
        page.wait(f"document.querySelectorAll('#body tr').length === {2 * len(NAMES) + 1}")
        texts = page.run("[...document.querySelectorAll('#body td.name span')].map((node) => node.textContent)")
        assert all(any(name in text for text in texts) for name in NAMES)
        page.run("[...document.querySelectorAll('#body input')].slice(0, 6).forEach((box) => box.click())")
        page.wait("document.querySelectorAll('#compare svg.chart').length > 0")
        assert "\"'=HYPERLINK" in page.run("basinscopeCsv()")  # text to a spreadsheet, not a formula
        sound(page, f"http://127.0.0.1:{port}/")


def test_filter_sort_compare_and_download(page, report, tmp_path):
    store(tmp_path / "store", ("a", "b", "fails"), seeds=5)
    training(tmp_path / "nets" / "sgd")
    report.save(tmp_path / "measured")
    with served(tmp_path) as port:
        page.open(f"http://127.0.0.1:{port}/")
        rows = "document.querySelectorAll('#body tr').length"
        page.wait(f"{rows} === 17")
        page.run(f"{TYPE}('name=a doubtful')")
        assert page.run(rows) == 2
        assert page.run("basinscopeCsv().trim().split('\\n').length") == 3
        page.run(f"{TYPE}('')")
        page.run(f"{GROUP}('curves')")
        assert page.run(rows) == 15
        assert "seed" in page.run("document.getElementById('head').textContent")
        for expected in ("descending", "ascending"):
            page.run("document.querySelector('#head [data-key=llc] button').click()")
            assert page.run("document.querySelector('#head [data-key=llc]').getAttribute('aria-sort')") == expected
        first = page.run("document.querySelector('#body tr td.name').textContent")
        assert "seed=0" in first  # the smallest λ̂
        page.run(f"{GROUP}('')")
        for name in ("Tiny classifier", "sgd", "name=a seed=1", "name=b seed=1"):
            page.run(f"{TYPE}({name!r})")
            page.run("document.querySelector('#body input').click()")
        page.wait("document.querySelectorAll('#compare thead th').length === 5")
        page.wait("document.getElementById('compare').textContent.includes('burn-in')")
        assert "λ̂ over training" in page.run("document.getElementById('compare').textContent")
        assert page.run(POOR_CONTRAST) == []
        assert page.run(STRUCTURE) == []
        assert all(name for _, name in page.names())
        keep(page, "live-light")
        page.look(dark=True)
        assert page.run(POOR_CONTRAST) == []
        keep(page, "live-dark")
        page.look(width=420)
        assert page.run("document.documentElement.scrollWidth") <= 420
        keep(page, "live-narrow")
        sound(page, f"http://127.0.0.1:{port}/")
        page.run("document.getElementById('clear').click()")
        page.wait("document.getElementById('compare').textContent.includes('Choose up to six')")


def test_numbers_are_filtered_by_comparison_and_nothing_is_explained(page, report, tmp_path):
    store(tmp_path / "store", ("a", "b"), seeds=3)  # λ̂ = 6, 6.01 and 6.02
    report.save(tmp_path / "measured")
    with served(tmp_path) as port:
        page.open(f"http://127.0.0.1:{port}/")
        rows = "document.querySelectorAll('#body tr').length"
        page.wait(f"{rows} === 7")
        shown = {}
        for query in (
            "llc>6.005",
            "llc>=6.01 llc<6.015",
            "λ̂>6.005 seed=2",
            "verdict=doubtful name=a",
            "group=curves seed=0",
        ):
            page.run(f"{TYPE}({query!r})")
            shown[query] = page.run("[...document.querySelectorAll('#body td.name span')].map((e) => e.textContent)")
        names = [f"name={name} seed={seed}" for name in "ab" for seed in (1, 2)]
        assert sorted(shown["llc>6.005"])[-4:] == names
        assert sorted(shown["llc>=6.01 llc<6.015"]) == names[::2]
        assert sorted(shown["λ̂>6.005 seed=2"]) == names[1::2]
        assert shown["verdict=doubtful name=a"] == ["name=a seed=0"]
        assert sorted(shown["group=curves seed=0"]) == ["name=a seed=0", "name=b seed=0"]
        for query, told in (("llc>1000", "no run matches “llc>1000”"), ("lcl>1", "no run has a value “lcl”"),
                            ("llc>x", "compares with no number"), ("seed=0 seed=1", "matches all of it")):  # fmt: skip
            page.run(f"{TYPE}({query!r})")
            assert page.run(rows) == 0
            assert told in page.run("document.getElementById('nothing').textContent")
            assert page.run("document.getElementById('nothing').checkVisibility()")
        assert page.run(POOR_CONTRAST) == []
        keep(page, "live-nothing")
        sound(page, f"http://127.0.0.1:{port}/")


def test_what_is_shown_is_kept_in_the_address(page, tmp_path):
    store(tmp_path / "store", ("a", "b"), seeds=2)
    with served(tmp_path) as port:
        page.open(f"http://127.0.0.1:{port}/")
        page.wait("document.querySelectorAll('#body tr').length === 4")
        page.run(f"{TYPE}('name=a')")
        page.run(f"{GROUP}('curves')")
        page.run("document.querySelector('#head [data-key=llc] button').click()")
        page.run("document.querySelector('#body input').click()")
        address = page.run("location.href")
        page.open(f"http://127.0.0.1:{port}/style.css")
        page.open(address)
        page.wait("document.querySelectorAll('#body tr').length === 2")
        page.wait("document.querySelectorAll('#compare thead th').length === 2")
        assert page.run("document.getElementById('query').value") == "name=a"
        assert page.run("document.getElementById('group').value") == "curves"
        assert page.run("document.querySelector('#head [data-key=llc]').getAttribute('aria-sort')") == "descending"
        assert page.run("document.querySelectorAll('#body input:checked').length") == 1
        page.run(f"{TYPE}('')")
        page.run("document.getElementById('clear').click()")
        page.run(f"{GROUP}('')")
        assert "query" not in page.run("location.hash")
        assert "runs" not in page.run("location.hash")
        sound(page, f"http://127.0.0.1:{port}/")


def test_any_column_is_drawn_over_any_other_and_chosen_for_the_table(page, report, tmp_path):
    store(tmp_path / "store", ("a",), seeds=3)  # λ̂ = 6, 6.01 and 6.02
    training(tmp_path / "nets" / "sgd")
    report.save(tmp_path / "measured")
    with served(tmp_path) as port:
        page.open(f"http://127.0.0.1:{port}/#x=seed&y=llc")
        page.wait("document.querySelectorAll('#body tr').length === 5")
        page.wait("document.querySelectorAll('#scatter a').length === 3")
        said = "document.getElementById('reading').textContent"
        assert page.run(said).startswith("3 runs, λ̂ over seed; 2 without such numbers")
        page.run("document.querySelectorAll('#scatter a')[1].dispatchEvent(new Event('pointerenter'))")
        assert "λ̂ 6.0" in page.run(said)
        assert "± 0.1" in page.run(said)
        page.run("document.getElementById('xlog').click()")
        page.wait("document.querySelectorAll('#scatter a').length === 2")  # a seed of zero has no logarithm
        assert "positive numbers" in page.run(said)
        heads = "[...document.querySelectorAll('#head th')].map((cell) => cell.dataset.key)"
        assert "seed" not in page.run(heads)
        page.run("document.getElementById('chooser').open = true")
        page.run("document.querySelector('#columns [data-name=seed]').click()")
        assert "seed" in page.run(heads)
        assert not page.run(
            "[...document.querySelectorAll('#columns input')].some((b) => /_stderr/.test(b.dataset.name))"
        )
        for part in ("x=seed", "y=llc", "xlog=1", "seed"):
            assert part in page.run("location.hash")
        assert page.run(POOR_CONTRAST) == []
        assert page.run(STRUCTURE) == []
        assert all(name for _, name in page.names())
        keep(page, "live-scatter")
        page.look(width=420, dark=True)
        assert page.run("document.documentElement.scrollWidth") <= 420
        assert page.run(POOR_CONTRAST) == []
        keep(page, "live-scatter-narrow")
        page.run("document.getElementById('usual').click()")
        assert "seed" not in page.run(heads)
        page.run(f"{TYPE}('zzz')")
        assert page.run(said).startswith("No run has both")
        sound(page, f"http://127.0.0.1:{port}/")


def test_every_run_has_its_page(page, report, tmp_path):
    store(tmp_path / "store", ("a",), seeds=1)
    training(tmp_path / "nets" / "sgd")
    report.save(tmp_path / NAMES[0].replace("/", "∕"))
    with served(tmp_path) as port:
        page.open(f"http://127.0.0.1:{port}/")
        page.wait("document.querySelectorAll('#body td.name a').length >= 3")
        places = page.run("[...document.querySelectorAll('#body td.name a:not(.open)')].map((link) => link.href)")
        assert len(places) == 3
        headings = set()
        for place in places:
            page.open(place)
            headings.add(page.run("document.querySelector('h1').textContent"))
            assert page.run("document.querySelectorAll('#content table tbody tr').length") > 2
            assert page.run(POOR_CONTRAST) == []
            assert page.run(STRUCTURE) == []
            sound(page, f"http://127.0.0.1:{port}/")
        assert "sgd" in headings
        assert len(headings) == 3


def test_runs_of_two_resolutions_are_compared_with_a_warning(page, report, tmp_path):
    llc = report.final.llc
    other = replace(llc, diagnostics={**llc.diagnostics, "gamma": 2 * llc.diagnostics["gamma"]})
    report.save(tmp_path / "one")
    replace(report, points=[replace(report.points[0], measured=replace(report.final, llc=other))]).save(
        tmp_path / "two"
    )
    with served(tmp_path) as port:
        page.open(f"http://127.0.0.1:{port}/")
        page.wait("document.querySelectorAll('#body tr').length === 2")
        page.run("document.querySelector('#body input').click()")
        page.wait("document.querySelectorAll('#compare thead th').length === 2")
        assert "must not be compared" not in page.run("document.getElementById('compare').textContent")
        page.run("document.querySelectorAll('#body input')[1].click()")
        page.wait("document.querySelectorAll('#compare thead th').length === 3")
        assert "different γ" in page.run("document.querySelector('#compare .warnings').textContent")
        assert page.run("document.querySelectorAll('#body a.open').length") == 2
        assert page.run(POOR_CONTRAST) == []
        keep(page, "live-resolutions")
        sound(page, f"http://127.0.0.1:{port}/")


def test_the_page_follows_without_reload(page, tmp_path):
    training(tmp_path / "sgd", epochs=1)
    with served(tmp_path) as port:
        page.open(f"http://127.0.0.1:{port}/")
        page.wait("document.querySelectorAll('#body tr').length === 1")
        page.run("window.same = true; document.querySelector('#body input').click()")
        page.wait("document.querySelectorAll('#compare svg.chart').length === 2")
        before = page.run("document.querySelector('#compare svg.chart').outerHTML")
        training(tmp_path / "sgd", epochs=4)
        training(tmp_path / "new", epochs=1)
        page.wait("document.querySelectorAll('#body tr').length === 2")
        page.wait(f"document.querySelector('#compare svg.chart').outerHTML !== {before!r}")
        assert page.run("window.same")
        sound(page, f"http://127.0.0.1:{port}/")


def test_a_choice_is_made_by_keyboard_and_shown(page, tmp_path):
    store(tmp_path, ("a", "b"))
    with served(tmp_path) as port:
        page.open(f"http://127.0.0.1:{port}/")
        page.wait("document.querySelectorAll('#body tr').length === 4")
        page.run("document.querySelector('#body input').focus()")
        assert page.run("document.activeElement.type") == "checkbox"
        page.press(" ", 32)
        page.wait("document.querySelectorAll('#compare thead th').length === 2")
        page.run("document.getElementById('query').focus()")
        page.press("Tab", 9)
        tag, outlined = page.run(OUTLINE)
        assert (tag, outlined) == ("SELECT", True)


@pytest.mark.slow
def test_two_thousand_runs_are_there_at_once(page, tmp_path):
    """`make bench-report` measures how long it takes; what makes it quick is that only a hundred rows are drawn."""
    store(tmp_path, [f"run {k}" for k in range(40)], seeds=50)
    with served(tmp_path) as port:
        page.open(f"http://127.0.0.1:{port}/")
        page.wait("document.getElementById('summary').textContent.startsWith('2,000 of 2,000')")
        for text, count in (("name=run", 2000), ("doubtful", 680), ("", 2000), ("seed=3", 40), ("zzz", 0)):
            page.run(f"{TYPE}({text!r})")
            assert page.run("document.getElementById('summary').textContent").startswith(f"{count:,} of 2,000")
            assert page.run("document.querySelectorAll('#body tr').length") <= 100
        sound(page, f"http://127.0.0.1:{port}/")
