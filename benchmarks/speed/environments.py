"""An environment of its own for each peer, made on first use under benchmarks/.peers/."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

HOME = Path(__file__).parents[1] / ".peers"
CPU_WHEELS = "https://download.pytorch.org/whl/cpu"


@dataclass(frozen=True)
class Peer:
    """A released package and what it imports; it is installed without its own dependencies.

    Left to itself pip would bring another torch, with CUDA, and torchvision beside it.
    """

    name: str
    version: str
    needs: tuple[str, ...]

    @property
    def label(self) -> str:
        return f"{self.name} {self.version}"

    @property
    def python(self) -> Path:
        return HOME / f"{self.name}-{self.version}" / "bin" / "python"

    def ready(self) -> Path:
        """The environment's interpreter, after making it if need be."""
        folder = self.python.parents[1]
        done = folder / ".installed"
        if done.exists():
            return self.python
        print(f"making an environment for {self.label} in {folder.relative_to(HOME.parent)}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        same = f"torch=={torch.__version__}"
        if self._pip(same, check=False).returncode:
            self._pip(same, "--extra-index-url", CPU_WHEELS)
        (folder / "constraints.txt").write_text(same + "\n")
        self._pip("-c", str(folder / "constraints.txt"), *self.needs)
        self._pip("--no-deps", f"{self.name}=={self.version}")
        done.touch()
        return self.python

    def _pip(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[bytes]:
        command = [self.python, "-m", "pip", "install", "-qq", "--disable-pip-version-check", *arguments]
        return subprocess.run(command, check=check, stderr=None if check else subprocess.DEVNULL)


ONE = Peer("devinterp", "1.3.2", ("numpy", "pandas", "einops", "matplotlib", "tqdm", "cloudpickle"))
TWO = Peer(
    "devinterp", "2.0.1", ("numpy", "pandas", "datasets", "transformers", "pydantic", "tqdm", "xarray", "zarr>=3")
)
