"""Write requirements.lock: the releases of constraints.txt with the hashes of all their files on the package index.

    python .ci/lock.py

pip refuses any file whose hash is not among them. A build of torch from another index has hashes of its own: those of
the wheels that a machine keeps beside are added with `--beside FOLDER`.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]
INDEX = "https://pypi.org/simple"
_LINK = re.compile(r"#sha256=([0-9a-f]{64})\"[^>]*>([^<]+)<")


def locked(pin: str, beside: Path | None) -> str:
    """One requirement, with its marker if it has one, and its hashes."""
    name, version = pin.partition(" ;")[0].split("==")
    hashes = sorted({*_indexed(name, version), *_kept(name, version, beside)})
    if not hashes:
        raise SystemExit(f"{pin}: the index has no file of this release")
    return " \\\n".join([pin, *(f"    --hash=sha256:{each}" for each in hashes)])


def _indexed(name: str, version: str) -> Iterator[str]:
    project = re.sub(r"[-_.]+", "-", name).lower()
    with urllib.request.urlopen(f"{INDEX}/{project}/", timeout=60) as answer:
        page = answer.read().decode()
    for digest, file in _LINK.findall(page):
        if _release(file) == (project, version):
            yield digest


def _release(file: str) -> tuple[str, str]:
    """Project and version of a wheel or a source archive, by its name.

    Examples:
        >>> _release("typing_extensions-4.16.0-py3-none-any.whl"), _release("pyyaml-6.0.3.tar.gz")
        (('typing-extensions', '4.16.0'), ('pyyaml', '6.0.3'))
    """
    stem = re.sub(r"(\.tar\.gz|\.zip|\.tar\.bz2)$", "", file)
    name, version = stem.split("-")[:2] if file.endswith(".whl") else stem.rpartition("-")[::2]
    return re.sub(r"[-_.]+", "-", name).lower(), version


def _kept(name: str, version: str, beside: Path | None) -> Iterator[str]:
    """Hashes of wheels on this machine, builds with a local version such as `2.13.0+cpu` among them."""
    for path in beside.glob("*.whl") if beside else ():
        project, built = _release(path.name)
        if project == re.sub(r"[-_.]+", "-", name).lower() and built.partition("+")[0] == version:
            yield hashlib.sha256(path.read_bytes()).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--beside", type=Path, metavar="FOLDER", help="wheels whose hashes are taken as well")
    beside = parser.parse_args().beside
    pins = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line]
    with ThreadPoolExecutor(8) as pool:
        lines = list(pool.map(lambda pin: locked(pin, beside), pins))
    head = "# By .ci/lock.py, from constraints.txt: the files that pip may install, by their hashes.\n"
    (ROOT / "requirements.lock").write_text(head + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
