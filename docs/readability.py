"""Whether the documentation and the warnings can be read: no sentence over forty words, no term without a definition.

Run by `make lint`. Prints each finding with its file and line, and ends with exit code 1 where there is one.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
GLOSSARY = ROOT / "docs" / "glossary.md"
PAGES = (
    *(ROOT / name for name in ("README.md", "SECURITY.md", "examples/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
)
CHECKS = ("Check", "check_mixing", "check_precision", "check_rounding", "check_survival", "check_completion")
MOST = 40  # words of a sentence
# Abbreviations that no reader of these pages needs explained, and names.
KNOWN = {
    "API", "CPU", "CSV", "GB", "GPU", "HTML", "HTTP", "JSON", "MB", "MNIST", "README", "SIGKILL", "SIGTERM", "URL",
    "YAML",
}  # fmt: skip

_CODE = re.compile(r"`[^`]*`")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_END = re.compile(r"(?<=[.!?])[)*_”’\"]*\s+(?=[A-ZΑ-Ωλγβ0-9`*‖_(])")
_ABBREVIATION = re.compile(r"\b[A-Z][A-Z0-9]*[A-Z]\b")


class Finding(NamedTuple):
    """What is wrong, and where."""

    place: str
    trouble: str


def paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """The running text of a page, by the line where it begins: without code, tables, headings and formulas.

    Examples:
        >>> list(paragraphs("# A\\n\\nOne\\ntwo.\\n\\n- three\\n- four\\n\\n    code\\n"))
        [(3, 'One two.'), (6, 'three'), (7, 'four')]
    """
    lines: list[str] = []
    start, fenced = 0, False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        fenced ^= line.startswith("```")
        item = re.match(r"\s*(?:[-*]|\d+\.) +", line)
        runs_on = bool(line.strip()) and not fenced and not line.startswith(("#", "|", "```", "<!--", ":::", "    "))
        if lines and (not runs_on or item):
            yield start, " ".join(lines)
            lines = []
        if runs_on:
            start = start if lines else number
            lines.append(line[item.end() :] if item else line.strip())


def sentences(paragraph: str) -> list[str]:
    """The sentences of a paragraph, code as one word each and links as their texts.

    Examples:
        >>> sentences("It runs `a b c`. See [that page](x.md), e.g. the end. Λ is one.")
        ['It runs CODE.', 'See that page, e.g. the end.', 'Λ is one.']
    """
    plain = _LINK.sub(r"\1", _CODE.sub("CODE", paragraph))
    return _END.split(plain)


def words(sentence: str) -> int:
    """How many words a sentence has; signs alone are none.

    Examples:
        >>> words("λ̂ = 3.2 ± 0.1, as said")
        5
    """
    return sum(any(character.isalnum() for character in word) for word in sentence.split())


def warnings(source: str) -> Iterator[tuple[int, str]]:
    """The texts of the checks that a module makes, by line; what is filled in at run time counts as a word.

    Examples:
        >>> list(warnings("Check('R̂', f'{x:.2f}', 'below 1', True, reason=f'not converged: {x} is large')"))[-1]
        (1, 'not converged: x is large')
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CHECKS:
            for part in (*node.args, *(keyword.value for keyword in node.keywords)):
                yield from ((part.lineno, text) for text in texts(part))


def texts(node: ast.expr) -> Iterator[str]:
    """The texts that an expression may come out as."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values)
    elif isinstance(node, ast.IfExp):
        yield from (*texts(node.body), *texts(node.orelse))
    elif isinstance(node, ast.BinOp):
        yield "".join(next(texts(side), "") for side in (node.left, node.right))


def defined(glossary: str) -> set[str]:
    """The terms that a glossary explains: what its entries begin with in bold.

    Examples:
        >>> sorted(defined("**WAIC.** A criterion.\\n\\n**nβ, γ.** Two numbers."))
        ['WAIC', 'nβ', 'γ']
    """
    entries = re.findall(r"^\*\*(.+?)\.?\*\*", glossary, re.MULTILINE)
    return {term.strip() for entry in entries for term in entry.split(",")}


def findings(place: str, line: int, text: str, terms: set[str]) -> Iterator[Finding]:
    """What is wrong with a paragraph or a warning."""
    for sentence in sentences(text):
        if words(sentence) > MOST:
            yield Finding(f"{place}:{line}", f"{words(sentence)} words in a sentence: {sentence[:70]} …")
        for abbreviation in dict.fromkeys(_ABBREVIATION.findall(sentence)):
            if abbreviation not in KNOWN | terms | {"CODE"}:
                yield Finding(f"{place}:{line}", f"{abbreviation} is not in the glossary")


def everything() -> Iterator[Finding]:
    """What is wrong with the pages and the warnings of this repository."""
    terms = defined(GLOSSARY.read_text(encoding="utf-8"))
    for page in PAGES:
        for line, paragraph in paragraphs(page.read_text(encoding="utf-8")):
            yield from findings(str(page.relative_to(ROOT)), line, paragraph, terms)
    for module in sorted((ROOT / "src").rglob("*.py")):
        for line, text in warnings(module.read_text(encoding="utf-8")):
            yield from findings(str(module.relative_to(ROOT)), line, text, terms)


if __name__ == "__main__":
    wrong = list(everything())
    for finding in wrong:
        print(f"{finding.place}: {finding.trouble}")
    sys.exit(1 if wrong else 0)
