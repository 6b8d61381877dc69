"""Code blocks of Markdown pages: found, run, and compared with the output that stands below them."""

from __future__ import annotations

import contextlib
import io
import math
import re
import runpy
import shlex
from dataclasses import dataclass
from pathlib import Path

import typer
from typer.testing import CliRunner

from basinscope.cli import app
from chance import deviations

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SHELL = ("bash", "sh", "console")
ERRORS = 4

_FENCE = re.compile(r"^```(\w*)\s*$")
_FILE = re.compile(r"^# ([\w./-]+\.(?:py|yaml))$")
_ERROR = re.compile(r" ± (\d+(?:\.\d+)?(?:e[-+]?\d+)?)")
_NUMBER = re.compile(r"[-−]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, its first line's number, and the comment that stands before it."""

    language: str
    text: str
    line: int
    remark: str = ""
    output: str | None = None

    @property
    def file(self):
        """The file that the block is, if its first line names one."""
        found = _FILE.match(self.text.partition("\n")[0])
        return found and found[1]


def blocks(page):
    """The blocks of a page; a `text` block right below another one is that one's output."""
    found, inside, start, above = [], None, 0, ""
    for number, line in enumerate(page.read_text().splitlines(), 1):
        fence = _FENCE.match(line)
        if inside is None and fence:
            inside, start, language = [], number, fence[1]
        elif inside is not None and line == "```":
            text = "\n".join(inside)
            if language == "text" and found and above == "```":
                last = found.pop()
                found.append(Block(last.language, last.text, last.line, last.remark, text))
            else:
                remark = above[4:-3].strip() if above.startswith("<!--") else ""
                found.append(Block(language, text, start, remark))
            inside, above = None, "```"
        elif inside is not None:
            inside.append(line)
        elif line.strip():
            above = line
    assert inside is None, f"{page} has a fence without an end"
    return found


def run_page(page, folder):
    """Run a page's Python in one namespace, write the files that it shows, and run the commands that it says to."""
    namespace = {"__name__": "documented"}
    for block in blocks(page):
        where = f"{page.relative_to(ROOT)}:{block.line}"
        if block.file:
            (folder / block.file).write_text(block.text + "\n")
        elif block.language == "python" and not block.remark.startswith("not run"):
            told = io.StringIO()
            with contextlib.redirect_stdout(told):
                exec(compile(block.text, where, "exec"), namespace)
            if block.output is not None:
                lines = told.getvalue().rstrip().splitlines()
                last = "\n".join(lines[-len(block.output.splitlines()) :])
                assert alike(last, block.output), f"{where} says\n{last}\ninstead of\n{block.output}"
        elif block.language in SHELL and block.remark == "run":
            for words in commands(block.text):
                perform(words, where)


def alike(one, two):
    """Equal words, and numbers within 5 %, or a unit of the last decimal, or what chance allows by the ± behind them.

    A seed is fixed on the pages, but another processor rounds otherwise, and chains that differ in a last bit soon have
    nothing in common: the two numbers may be as far apart as two independent estimates. Their errors, themselves
    estimated, are within a factor of `ERRORS`.
    """
    one, two = _spaced(one), _spaced(two)
    if _NUMBER.sub("#", one) != _NUMBER.sub("#", two):
        return False
    for first, second in zip(_NUMBER.finditer(one), _NUMBER.finditer(two), strict=True):
        a, b = (float(each[0].replace("−", "-")) for each in (first, second))
        if one[: first.start()].endswith("± "):
            if max(a, b) > ERRORS * min(a, b):
                return False
        else:
            errors = [_ERROR.match(text, each.end()) for text, each in ((one, first), (two, second))]
            spread = math.hypot(*(float(error[1]) for error in errors if error))
            if abs(a - b) > max(0.05 * max(abs(a), abs(b)), 1.01 * _unit(first[0]), deviations() * spread):
                return False
    return True


def _unit(number):
    """The last decimal's place value; whole numbers are counts, of which none may be missing."""
    decimals = number.partition("e")[0].partition(".")[2]
    return 10.0 ** -len(decimals) if decimals else 0.0


def _spaced(text):
    return "\n".join(" ".join(line.split()) for line in text.strip().splitlines())


def commands(text):
    """The commands of a shell block as lists of words."""
    for line in text.replace("\\\n", " ").splitlines():
        for part in line.split(" && "):
            words = shlex.split(part, comments=True)
            if words:
                yield words


def perform(words, where):
    """Run a command in this process."""
    if words[0] == "python":
        with contextlib.redirect_stdout(io.StringIO()):
            runpy.run_path(words[1], run_name="__main__")
    else:
        assert words[0] == "basinscope", f"{where}: only python and basinscope can be run, got {words[0]}"
        done = CliRunner().invoke(app, words[1:])
        assert done.exit_code == 0, f"{where}: {' '.join(words)}\n{done.output}\n{done.exception!r}"


def understood(words):
    """Parse a `basinscope …` command down to its last option, without running it; a mistake raises."""
    command, name, left, context = typer.main.get_command(app), "basinscope", list(words), None
    while True:
        context = command.make_context(name, left, parent=context)
        if not hasattr(command, "commands"):
            return
        name, command, left = command.resolve_command(context, [*context._protected_args, *context.args])
