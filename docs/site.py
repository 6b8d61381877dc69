"""What `mkdocs build` does beyond Markdown: pages that live elsewhere in the repository, the command line's reference,
and a check that no page asks anything of another server.

Nothing here is imported by the package; mkdocs loads this file as a hook.
"""

from __future__ import annotations

import ast
import os
import posixpath
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import study_pages

ROOT = Path(__file__).resolve().parents[1]

STUDIES = study_pages.folders(ROOT / "results")

# Pages of the site that are files of the repository, word for word.
ELSEWHERE = {
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "examples.md": "examples/README.md",
    "security.md": "SECURITY.md",
    **{
        f"benchmarks/{path.name}": f"benchmarks/results/{path.name}"
        for path in sorted((ROOT / "benchmarks" / "results").glob("*.md"))
    },
    **{
        page: (folder / "README.md").relative_to(ROOT).as_posix()
        for page, folder in STUDIES.items()
        if (folder / "README.md").is_file()
    },
}
COMMANDS = "reference/cli.md"


def made() -> dict[str, str]:
    """Pages that are no files at all, and their text."""
    studies, questions = {}, {}
    for page, folder in STUDIES.items():
        name = folder.relative_to(ROOT / "results").parts[0]
        heading, words = described(name)
        questions[name] = heading
        if page not in ELSEWHERE:
            studies[page] = study_pages.page_without_readme(folder, heading, words)
    home = study_pages.home(STUDIES, ROOT / "results", questions)
    return {COMMANDS: command_page(), study_pages.HOME: home, **studies}


def described(name: str) -> tuple[str, str]:
    """What results of that name are about, in a line; and what the script that made them says, if it is no study."""
    from basinscope.studies import title

    folder = ROOT / "studies" / name.replace("-", "_")
    script = folder / "__main__.py"
    if (folder / "study.py").is_file() or not script.is_file():
        return title(folder) or name, ""
    _, *others = (ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or "").split("\n\n")
    words = [each for each in others if not each.startswith(" ")]  # not how it is called
    return title(folder), "\n\n".join([*words, f"Made by `python -m studies.{folder.name}`."])


_LINK = re.compile(r"(!?\[)((?:[^\[\]]|\[[^\]]*\])*)\]\((?![a-z]+:|#|/)([^)\s#]+)((?:#[^)\s]*)?)\)")
_SHIM = "https://unpkg.com/iframe-worker/shim"  # what the theme would have pages load for the search
_ADDRESS = re.compile(r"""(?:url\(\s*['"]?|@import\s+['"])((?:https?:)?//[^'")\s]+)""")
_LOADING = ("stylesheet", "icon", "preload", "prefetch", "preconnect", "dns-prefetch", "modulepreload", "manifest")


# ---------------------------------------------------------------------- pages from elsewhere


def on_config(config: Any) -> Any:
    """Fill the menu's `folder/*` with the pages of that folder."""
    config["nav"] = expanded(config["nav"])
    return config


def expanded(entries: list[Any]) -> list[Any]:
    """A menu whose entries `folder/*` are replaced by the pages that live there.

    Examples:
        >>> expanded([{"Evidence": ["a.md", "nowhere/*"]}])
        [{'Evidence': ['a.md']}]
    """
    found: list[Any] = []
    for entry in entries:
        if isinstance(entry, dict):
            found.append({key: expanded(each) if isinstance(each, list) else each for key, each in entry.items()})
        elif entry == "studies/*":
            found += [{study_pages.title(page): page} for page in STUDIES]
        elif entry.endswith("/*"):
            found += [page for page in ELSEWHERE if posixpath.dirname(page) == entry.removesuffix("/*")]
        else:
            found.append(entry)
    return found


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are no files of docs/."""
    from mkdocs.structure.files import File

    for page, source in ELSEWHERE.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    for path in study_pages.figures(ROOT / "benchmarks" / "results"):
        files.append(File.generated(config, f"benchmarks/{path.name}", abs_src_path=str(path)))
    for page, text in made().items():
        files.append(File.generated(config, page, content=text))
    for page, folder in STUDIES.items():
        for path in study_pages.files(folder):
            name = posixpath.join(posixpath.dirname(page), path.relative_to(folder).as_posix())
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **kwargs: Any) -> str:
    """Links between files of the repository as links between pages of the site, and a study's figures on its page."""
    name = page.file.src_uri
    return relinked(study_pages.with_figures(markdown, STUDIES[name]) if name in STUDIES else markdown, name)


def relinked(markdown: str, page: str) -> str:
    """The text of a page with links to files of the repository turned into links to the pages made of them.

    A file of the repository may link to others that are no part of the site: there the words stay, without the link.

    Examples:
        >>> relinked("[all](../benchmarks/results/curvature.md#memory)", "benchmarks.md")
        '[all](benchmarks/curvature.md#memory)'
        >>> relinked("[the map](docs/index.md), [the code](src/basinscope)", "contributing.md")
        '[the map](index.md), the code'
    """
    source = ELSEWHERE.get(page, f"docs/{page}")
    home = posixpath.dirname(source)
    pages = {file: name for name, file in ELSEWHERE.items()}

    def moved(found: re.Match[str]) -> str:
        opening, words, link, anchor = found.groups()
        target = posixpath.normpath(posixpath.join(home, link))
        name = pages.get(target) or (target.removeprefix("docs/") if target.startswith("docs/") else None)
        if name is not None:
            return f"{opening}{words}]({posixpath.relpath(name, posixpath.dirname(page) or '.')}{anchor})"
        beside = page in STUDIES and target.startswith(f"{home}/")  # goes along with the page
        return found[0] if beside or page not in ELSEWHERE else words

    return _LINK.sub(moved, markdown)


def command_page() -> str:
    """The reference of the command line, from the commands themselves."""
    import typer

    from basinscope.cli import app
    from basinscope.studies import CATALOGUE, studies_in

    lines = ["# Command line", "", "`basinscope COMMAND --help` prints the same.", ""]
    for path, command in commands(typer.main.get_command(app), ("basinscope",)):
        arguments = [_named(each) for each in command.params if each.param_type_name == "argument"]
        usage = " ".join([*path, *arguments, "[OPTIONS]"])
        lines += [f"## {' '.join(path)}", "", (command.help or "").strip(), "", "```text", usage, "```", ""]
        rows = [f"| `{_spelled(each)}` | {_told(each)} |" for each in command.params]
        lines += ["| | |", "|---|---|", *rows, ""] if rows else []
    rows = [f"| `{name}` | {known.title} |" for name, known in {**CATALOGUE, **studies_in(ROOT / "studies")}.items()]
    words = "What `basinscope study list` lists in a checkout of the repository:"
    return "\n".join([*lines, "## Studies", "", words, "", "| | |", "|---|---|", *rows, ""])


def commands(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that does something, with the words that call it."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield path, command
        return
    for name, each in inner.items():
        yield from commands(each, (*path, name))


def _named(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    return name if argument.required else f"[{name}]"


def _spelled(parameter: Any) -> str:
    return _named(parameter) if parameter.param_type_name == "argument" else "`, `".join(parameter.opts)


def _told(parameter: Any) -> str:
    """What a parameter means, and what it is unless given."""
    text = (getattr(parameter, "help", None) or "").replace("|", "\\|")
    if parameter.param_type_name == "argument":
        return text
    if parameter.required:
        return f"{text} Required."
    plain = parameter.is_flag or parameter.default is None or parameter.default in ("", ())
    return text if plain else f"{text} Default: `{parameter.default}`."


# ---------------------------------------------------------------------- no outside requests


def on_post_page(output: str, page: Any, config: Any) -> str:
    """The search's helper from this site instead of another server's."""
    return output.replace(_SHIM, posixpath.relpath("assets/worker.js", posixpath.dirname(page.file.dest_uri) or "."))


def on_post_template(output_content: str, template_name: str, config: Any) -> str:
    """The same on the page that says what is not there."""
    return output_content.replace(_SHIM, "assets/worker.js")


def on_post_build(config: Any) -> None:
    """Fail if a page, when opened, would load anything from another server."""
    found = sorted(set(outside(Path(config["site_dir"]))))
    if found:
        from mkdocs.exceptions import PluginError

        raise PluginError("pages load from other servers: " + "; ".join(f"{page}: {url}" for page, url in found[:10]))


def outside(site: Path) -> Iterator[tuple[str, str]]:
    """(page, address) of whatever a browser would fetch from elsewhere by itself: scripts, styles, fonts, pictures."""
    for path in sorted(site.rglob("*")):
        name = os.fspath(path.relative_to(site))
        if path.suffix == ".html":
            for address in loaded(path.read_text(encoding="utf-8")):
                yield name, address
        elif path.suffix == ".css":
            for address in _ADDRESS.findall(path.read_text(encoding="utf-8")):
                yield name, address


def loaded(html: str) -> list[str]:
    """Addresses on other servers that an HTML page loads; links that a reader may follow do not count.

    Examples:
        >>> loaded('<a href="https://a.org">a</a><script src="https://b.org/b.js"></script><img src="c.png">')
        ['https://b.org/b.js']
    """
    reader = _Loads()
    reader.feed(html)
    return reader.found


class _Loads(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self._style = tag == "style"
        addresses = _ADDRESS.findall(given.get("style", ""))
        if tag == "link" and any(kind in given.get("rel", "").split() for kind in _LOADING):
            addresses.append(given.get("href", ""))
        elif tag not in ("a", "link"):
            addresses += [given.get(name, "") for name in ("src", "data", "poster")]
            addresses += [each.split()[0] for each in given.get("srcset", "").split(",") if each.split()]
        self.found += [each for each in addresses if re.match(r"(?:https?:)?//", each)]

    def handle_data(self, data: str) -> None:
        if self._style:
            self.found += _ADDRESS.findall(data)

    def handle_endtag(self, tag: str) -> None:
        self._style = False
