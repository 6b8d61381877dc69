"""The face: from a clone to a report, what the package weighs, sizes of reports, and the live page with many runs.

    python benchmarks/report.py                    all parts; each writes its section of results/report.md
    python benchmarks/report.py --only live        one part: newcomer, budget, package, size, live
    python benchmarks/report.py --keep FOLDER      keep what was made: reports and screenshots

The newcomer clones the repository as committed, installs it into an environment of its own from the releases in
constraints.txt, and does what the README says: the demonstration, then its section "Your own network". Exits with
status 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))
RESULTS = Path(__file__).parent / "results" / "report.md"
SECTION = "## Your own network"
CHECKPOINTS, RUNS, REPEATS = 100, 2000, 7

Row = tuple[str, str, str, bool | None]


def newcomer(folder: Path, keep: Path) -> Iterator[Row]:
    """What the README says, in a fresh clone and a fresh environment."""
    clone = folder / "clone"
    begun = time.monotonic()
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    section = (clone / "README.md").read_text().partition(SECTION)[2].partition("\n## ")[0]
    (source,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    (script,) = re.findall(r"```bash\n(.*?)```", section, re.DOTALL)
    (clone / "mine.py").write_text(source)
    install = "pip install -qq -c constraints.txt '.[demo]'"
    parts = []
    for line in (f"{sys.executable} -m venv .venv", install, "basinscope demo", *script.strip().splitlines()):
        before, computed = time.monotonic(), _computed()
        _in_environment(clone, line)
        parts.append((line.partition(" #")[0].strip(), time.monotonic() - before, _computed() - computed))
    first, own = sum(seconds for _, seconds, _ in parts[:3]), sum(seconds for _, seconds, _ in parts[3:])
    shutil.copy(clone / "report.html", keep / "newcomer.html")
    yield "clone, installation, first report: the README's demonstration", f"{first:.0f} s", "< 180 s", first < 180
    yield "a report of one's own network after that", f"{own:.0f} s", "< 300 s", own < 300
    for line, seconds, computing in parts:
        yield (
            f"— `{line.replace(sys.executable, 'python')}`",
            f"{seconds:.0f} s, {computing:.0f} s of them computing",
            "",
            None,
        )
    local = "find-links" in _in_environment(clone, "pip config list")
    yield "packages came from", "files on this machine" if local else "the network, or pip's cache", "", None
    yield "all of it", f"{time.monotonic() - begun:.0f} s", "", None
    yield "size of the report", f"{(clone / 'report.html').stat().st_size / 1e6:.2f} MB", "", None


def _in_environment(clone: Path, line: str) -> str:
    """What a command prints that is run in a folder, in its environment where there is one."""
    activate = ". .venv/bin/activate && " if (clone / ".venv").exists() else ""
    outside = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    done = subprocess.run(["bash", "-ec", activate + line], cwd=clone, env=outside, check=True, stdout=subprocess.PIPE)
    return done.stdout.decode()


def budget(folder: Path, keep: Path) -> Iterator[Row]:
    """A LeNet and a GPT-2 of 0.1 million parameters on one processor: do they give a number in the
    time that is asked for?"""
    import torch

    import basinscope as bs

    torch.set_num_threads(1)
    for name, make in (("LeNet-5 on 1,437 digits", _lenet), ("GPT-2 on 500 sequences of 64 bytes", _gpt2)):
        land = make()
        called = {
            "bs.llc(land, budget=60)": (lambda land=land: bs.llc(land, budget=60, seed=0, progress=False), 72.0),
            "bs.quick(land)": (lambda land=land: bs.quick(land, seed=0, progress=False)["llc"], 12.0),
        }
        for call, (answer, most) in called.items():
            before = time.monotonic()
            est = answer()
            took = time.monotonic() - before
            found = f"{took:.0f} s: λ̂ = {est.value:.4g} ± {est.stderr:.2g}, {est.verdict}"
            yield (
                f"{name}, {land.dimension:,} parameters: `{call}`",
                found,
                f"a number, < {most:g} s",
                math.isfinite(est.value) and took < most,
            )


def _trained(net: Any, loss: Any, steps: int, lr: float) -> None:
    import torch

    optimizer = torch.optim.AdamW(net.parameters(), lr=lr)
    for _ in range(steps):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()


def _lenet() -> Any:
    import torch

    import basinscope as bs
    from basinscope.zoo import data, models

    x, y = data.load("digits").train
    x = torch.nn.functional.interpolate(x, size=(28, 28), mode="bilinear")
    torch.manual_seed(0)
    net = models.lenet5()

    def loss() -> Any:
        chosen = torch.randint(len(x), (128,))
        return torch.nn.functional.cross_entropy(net(x[chosen]), y[chosen])

    _trained(net, loss, 240, 1e-3)
    return bs.Landscape(net, "cross_entropy", (x, y))


def _gpt2() -> Any:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    import basinscope as bs

    text = torch.tensor(list((ROOT / "CONTRIBUTING.md").read_bytes() + (ROOT / "README.md").read_bytes()))
    starts = torch.linspace(0, len(text) - 64, 500).long()
    tokens = torch.stack([text[start : start + 64] for start in starts])
    torch.manual_seed(0)
    shape = {"n_positions": 64, "n_embd": 48, "n_layer": 3, "n_head": 4, "bos_token_id": 0, "eos_token_id": 0}
    net = GPT2LMHeadModel(GPT2Config(vocab_size=256, **shape)).eval()

    def loss() -> Any:
        batch = tokens[torch.randint(len(tokens), (32,))]
        return net(input_ids=batch, labels=batch).loss

    _trained(net, loss, 300, 3e-3)
    return bs.Landscape.from_pretrained(net, tokens)


def package(folder: Path, keep: Path) -> Iterator[Row]:
    """What everybody waits for and downloads."""
    shown = _least([str(Path(sys.executable).with_name("basinscope")), "--help"])
    yield f"`basinscope --help`, least of {REPEATS}", f"{shown:.2f} s", "< 0.3 s", shown < 0.3
    torch = _least([sys.executable, "-c", "import torch"])
    yield "`import torch`", f"{torch:.2f} s", "", None
    everyday = "import torch, basinscope as bs; bs.Landscape, bs.llc, bs.soft_rank, bs.measure"
    everything = "import torch, basinscope as bs; [getattr(bs, name) for name in bs.__all__]"
    for what, code in (("`Landscape`, `llc`, `soft_rank` and `measure`", everyday), ("all names", everything)):
        more = _least([sys.executable, "-c", code]) - torch
        yield f"import beyond torch's own, {what} loaded", f"{more:.2f} s", "< 0.5 s", more < 0.5
    code = f"import os, hatchling.build as b; os.chdir({str(ROOT)!r}); b.build_wheel({str(folder)!r})"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    yield "wheel", f"{wheel.stat().st_size / 1e6:.2f} MB", "< 3 MB", wheel.stat().st_size < 3e6
    started = time.monotonic()
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder / "site")]
    built = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True
    )
    clean = built.returncode == 0 and not built.stderr
    pages = len(list((folder / "site").rglob("*.html")))
    took = f"{pages} pages in {time.monotonic() - started:.0f} s, "
    yield "documentation", took + ("no warning" if clean else "warnings"), "no warning", clean


def _least(command: list[str]) -> float:
    """Seconds that a command takes, the least of several: what else the machine does only adds to them."""
    seconds = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def _computed() -> float:
    """Processor time of the commands so far: what is left on a machine that nobody else uses."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def size(folder: Path, keep: Path) -> Iterator[Row]:
    """A run of a hundred checkpoints, each of them measured."""
    import torch

    from basinscope.report.checkpoints import Subject, measure_checkpoints
    from live_pages import training_of

    torch.set_num_threads(1)
    network, data = training_of(folder / "run", CHECKPOINTS)
    started = time.monotonic()
    report = measure_checkpoints(
        Subject(network, data, "mse"), folder / "run", {"budget": 0.2, "seed": 0}, command="", progress=True
    )
    took = time.monotonic() - started
    for kind, most in (("html", 5e6), ("json", None), ("md", None), ("parquet", None)):
        path = report.write(keep / f"hundred.{kind}")
        bytes_ = path.stat().st_size
        target = "" if most is None else f"< {most / 1e6:g} MB"
        passed = None if most is None else bytes_ < most
        yield f"report of {len(report.points)} checkpoints as {kind}", f"{bytes_ / 1e6:.2f} MB", target, passed
    yield "measuring them, a network of 3 parameters", f"{took:.0f} s", "", None


def live(folder: Path, keep: Path) -> Iterator[Row]:
    """Two thousand runs: a server that just started, then one that knows them."""
    from browser import Browser
    from live_pages import store

    store(folder / "runs", [f"run {number}" for number in range(RUNS // 50)], seeds=50)
    command = [sys.executable, "-c", "from basinscope.cli import main; main()", "serve", str(folder / "runs"), "--port"]
    browser = Browser()
    page = browser.page()
    process = subprocess.Popen(
        [*command, "0"], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    )
    try:
        assert process.stdout is not None
        address = process.stdout.readline().split(": ", 1)[1].split()[0]
        for state, rounds in (("cold", 1), ("warm", 3)):
            paints, tables, complete = [], [], 0.0
            for _ in range(rounds):
                page.open(address)
                page.wait("document.querySelectorAll('#body tr').length === 100")
                tables.append(page.run("performance.now()"))
                paints.append(page.run("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
                page.wait(
                    f"document.getElementById('summary').textContent.startsWith('{RUNS:,} of {RUNS:,}')", seconds=60
                )
                complete = page.run("performance.now()")
            paint, table = statistics.median(paints), statistics.median(tables)
            yield f"{state} server, {RUNS:,} runs: first paint", f"{paint:.0f} ms", "< 2,000 ms", paint < 2000
            yield f"{state} server: first 100 rows drawn", f"{table:.0f} ms", "< 2,000 ms", table < 2000
            yield f"{state} server: all runs known to the page", f"{complete:.0f} ms", "", None
        texts = [text for text in ("run 7", "doubtful", "", "seed=3 ok", "zzz", "") for _ in range(5)]
        before = page.computed()
        times = [page.run(f"{_TYPE}({text!r})") for text in texts]
        computing = 1000 * (page.computed() - before) / len(times)
        middle = statistics.median(times)
        yield f"filter, median of {len(times)}", f"{middle:.0f} ms", "< 200 ms", middle < 200
        yield "filter, slowest", f"{max(times):.0f} ms", "", None
        yield "filter, processor time of the page, mean", f"{computing:.0f} ms", "< 200 ms", computing < 200
        sorting = page.run(f"(() => {{ const t = performance.now(); {_SORT}; return performance.now() - t; }})()")
        yield "sort by λ̂", f"{sorting:.0f} ms", "", None
        page.run("[...document.querySelectorAll('#body input')].slice(0, 6).forEach((box) => box.click())")
        page.wait("document.querySelectorAll('#compare svg.chart').length >= 2")
        page.picture(keep / "live.png", whole=False)
        memory = _resident(process.pid)
        yield "memory of the server", f"{memory:.0f} MB", "", None
        yield "errors in the browser's console", str(len(page.errors)), "0", not page.errors
    finally:
        process.terminate()
        process.wait(20)
        page.close()
        browser.close()


_TYPE = """((text) => {
  const box = document.getElementById("query"), before = performance.now();
  box.value = text;
  box.dispatchEvent(new Event("input"));
  document.body.offsetHeight;
  return performance.now() - before;
})"""
_SORT = "document.querySelector('#head [data-key=llc] button').click(); document.body.offsetHeight"


def _resident(process: int) -> float:
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


PARTS = {"newcomer": newcomer, "budget": budget, "package": package, "size": size, "live": live}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PARTS, help="run one part")
    parser.add_argument("--keep", type=Path, help="folder for reports and screenshots")
    chosen = parser.parse_args()
    console, missed = Console(), False
    with tempfile.TemporaryDirectory() as place:
        keep = chosen.keep or Path(place) / "kept"
        keep.mkdir(parents=True, exist_ok=True)
        for name, part in PARTS.items():
            if chosen.only in (None, name):
                folder = Path(place) / name
                folder.mkdir()
                rows = []
                for row in part(folder, keep):
                    console.print(" | ".join(map(str, row)))
                    rows.append(row)
                missed |= any(passed is False for *_, passed in rows)
                _record(name, rows)
    sys.exit(missed)


def _record(name: str, rows: list[Row]) -> None:
    """Put a part's table in place of its last one."""
    before = RESULTS.read_text() if RESULTS.exists() else ""
    sections = dict(re.findall(r"^## (\w+)\n\n(.*?)(?=^## |\Z)", before, re.DOTALL | re.MULTILINE))
    marks = {True: "met", False: "**missed**", None: ""}
    load = f"{os.getloadavg()[1]:.1f} on {os.cpu_count()} cores"
    sections[name] = "\n".join(
        [
            f"Python {platform.python_version()}; load of the machine in the five minutes before the end: {load}.",
            "",
            "| what | measured | target | |",
            "|---|---|---|---|",
            *(f"| {what} | {seen} | {target} | {marks[passed]} |" for what, seen, target, passed in rows),
            "\n",
        ]
    )
    head = "# The package, the report and the live page\n\nMade by `python benchmarks/report.py`.\n\n"
    told = [f"## {each}\n\n{sections[each].strip()}\n" for each in PARTS if each in sections]
    RESULTS.write_text(head + "\n".join(told))


if __name__ == "__main__":
    main()
