"""The walks of CONTRIBUTING name the files that the program enters, in the order in which it enters them."""

import re
import sys
from pathlib import Path

import pytest
import torch

import basinscope as bs
from basins import quadratic
from basinscope.cli import app
from documented import ROOT

PACKAGE = Path(bs.__file__).parent
MOST = 15  # files of a walk
GUIDE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
MAP, _, TEXT = GUIDE.partition("## The map")[2].partition("## Words")[0].partition("### Three walks")
WALKS = {
    title: re.findall(r"^\d+\. `([\w/]+\.py)`", part, re.MULTILINE)
    for title, part in zip(*[iter(re.split(r"^\*\*`(.+?)`\*\*", TEXT, flags=re.MULTILINE)[1:])] * 2, strict=True)
}
MODEL = """
import torch

def network():
    return torch.nn.Linear(2, 1)

def data():
    return torch.tensor([[1.0, 0.5], [0.2, -1.0], [-0.3, 0.8], [0.9, 0.1]]).repeat(20, 1), torch.zeros(80, 1)
"""


def test_every_room_is_on_the_map():
    rooms = [f"{path.name}/" if path.is_dir() else path.name for path in PACKAGE.glob("[a-z]*")]
    assert [room for room in rooms if f"`{room}`" not in MAP and room not in ("py.typed",)] == []


def measure(folder):
    torch.save(torch.nn.Linear(2, 1).state_dict(), folder / "w.pt")
    (folder / "walked.py").write_text(MODEL)
    named = [f"{folder / 'walked.py'}:{name}" for name in ("network", "data")]
    options = ["--model", named[0], "--data", named[1], "--loss", "mse", "--budget", "0.5", "--quiet"]
    app(["measure", str(folder / "w.pt"), *options, "--out", str(folder / "report.html")], standalone_mode=False)


def study(folder):
    (folder / "walked.py").write_text("def area(width: int):\n    return {'area': width**2}\n")
    (folder / "areas.yaml").write_text("function: walked.py:area\ngrid: {width: [1, 2]}\n")
    app(["study", "run", str(folder / "areas.yaml"), "--on", "here", "--store", str(folder)], standalone_mode=False)


PROGRAMS = {
    "bs.llc(land)": lambda folder: bs.llc(quadratic([1.0, 0.5]), gamma=1.0, budget=0.5, progress=False),
    "basinscope measure": measure,
    "basinscope study run": study,
}


def entered(program):
    """The files of the package whose functions were called, in the order of their first turn; imports do not count."""
    files, seen, home = [], set(), f"{PACKAGE}/"

    def note(frame, event, _):
        code = frame.f_code
        if event != "call" or code in seen:
            return
        path = code.co_filename
        if not path.startswith(home) or not code.co_flags & 1:  # a class body
            seen.add(code)
            return
        above = frame
        while above is not None:
            if above.f_code.co_name == "<module>" and above.f_code.co_filename.startswith(home):
                return  # the file is being imported
            above = above.f_back
        seen.add(code)
        if path not in files:
            files.append(path)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        program()
    finally:
        sys.setprofile(before)
    return [path.removeprefix(home) for path in files]


@pytest.mark.slow
@pytest.mark.parametrize("title", PROGRAMS)
def test_a_walk_has_few_files_and_no_way_back(title, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    walk = WALKS[title]
    assert 10 <= len(walk) <= MOST
    if title == "basinscope study run":
        pytest.importorskip("fsspec")
    order = entered(lambda: PROGRAMS[title](tmp_path))
    assert [name for name in walk if name not in order] == []
    assert sorted(walk, key=order.index) == walk


def test_every_walk_is_run():
    assert WALKS.keys() == PROGRAMS.keys()
