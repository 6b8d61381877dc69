"""Real text to learn from: stories and articles, then sources of installed packages, gathered into one file.

`python -m studies.development.corpus FOLDER` puts 25 megabytes of it into `FOLDER/text/corpus.txt.xz`: with
`BASINSCOPE_DATA=FOLDER` another machine, which has other packages, learns from the same text.
"""

from __future__ import annotations

import lzma
import os
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from basinscope.errors import InputError
from basinscope.files import write_whole

GATHERED = "corpus.txt.xz"
MEGABYTES = 25.0
_TEXTS = ("shakespeare.txt", "wikitext2_valid.txt", "wikitext2_test.txt")
_PACKAGES = ("torch", "numpy", "scipy", "pandas", "sklearn", "transformers")  # whose sources are text as well


def corpus(megabytes: float) -> str:
    """So much text of `BASINSCOPE_DATA/text`: of the gathered file if there is one, else of all sources in order."""
    most, pieces, size = int(1e6 * megabytes), [], 0
    file = _folder() / GATHERED
    for text in [lzma.decompress(file.read_bytes()).decode()] if file.exists() else _texts():
        pieces.append(text[: most - size])
        size += len(pieces[-1])
        if size >= most:
            break
    return "".join(pieces)


def gathered(folder: Path) -> Path:
    """A file with the text, for machines that have no such texts or packages."""
    file = folder / "text" / GATHERED
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, lzma.compress(corpus(MEGABYTES).encode()))
    return file


def _folder() -> Path:
    return Path(os.environ.get("BASINSCOPE_DATA", "data")) / "text"


def _texts() -> Iterator[str]:
    for name in _TEXTS:
        try:
            yield (_folder() / name).read_text("utf-8")
        except OSError as error:
            raise InputError(
                f"there is no text at {_folder() / name}: point BASINSCOPE_DATA at a folder with text/ in it"
            ) from error
    installed = Path(sysconfig.get_path("purelib"))
    for package in _PACKAGES:
        for file in sorted((installed / package).rglob("*.py")):
            yield file.read_text("utf-8", errors="replace")


if __name__ == "__main__":
    print(gathered(Path(sys.argv[1])))
