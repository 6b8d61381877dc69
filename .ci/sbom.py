"""Write the bill of materials: every package of requirements.lock, as CycloneDX 1.6 in JSON.

    python .ci/sbom.py [FILE]

It is made of the lock and of pyproject.toml alone, so that one commit gives the same bytes: no time, no random number.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

ROOT = Path(__file__).parents[1]
HOME = "https://pypi.org/project"


def bill() -> dict[str, Any]:
    """The whole document."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lock = (ROOT / "requirements.lock").read_text()
    components = [_component(entry) for entry in re.split(r"\n(?=\S)", lock.partition("\n")[2].strip())]
    refs = {each["name"]: each["bom-ref"] for each in components}
    (version,) = re.findall(r'__version__ = "(.+)"', (ROOT / "src/basinscope/_version.py").read_text())
    more = {"description": project["description"], "licenses": [{"license": {"id": project["license"]}}]}
    own = {**_package(project["name"], version), **more}
    core = sorted(refs[_canonical(re.match(r"[\w.-]+", needed)[0])] for needed in project["dependencies"])
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid5(NAMESPACE_URL, own['purl'] + lock)}",
        "version": 1,
        "metadata": {"component": own},
        "components": components,
        "dependencies": [{"ref": own["bom-ref"], "dependsOn": core}],
    }


def _component(entry: str) -> dict[str, Any]:
    """One package of the lock, with the hashes of its files."""
    pin, _, marker = entry.partition(" \\\n")[0].partition(" ; ")
    name, version = pin.split("==")
    found = _package(_canonical(name), version)
    hashes = [{"alg": "SHA-256", "content": each} for each in re.findall(r"--hash=sha256:([0-9a-f]{64})", entry)]
    files = {"type": "distribution", "url": f"{HOME}/{found['name']}/{version}/#files", "hashes": hashes}
    only = {"properties": [{"name": "python:marker", "value": marker}]} if marker else {}
    return {**found, "externalReferences": [files], **only}


def _package(name: str, version: str) -> dict[str, Any]:
    purl = f"pkg:pypi/{name}@{version}"
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    path = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "sbom.cdx.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(bill(), indent=2, ensure_ascii=False) + "\n")
    print(path)
