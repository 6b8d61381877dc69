"""What the tests need and a machine may lack: each named once, with how to see whether it is there and what brings it.

Tests that need it are skipped through here, and the end of a run says in a line each what was lacking.
"""

from __future__ import annotations

import importlib
import os
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from browser import executable

DATA = Path(os.environ.get("BASINSCOPE_DATA", "nowhere"))


@dataclass(frozen=True)
class Need:
    """Something that is not on every machine.

    Attributes:
        name: of it, as in "this machine lacks …".
        remedy: the command that brings it, or what else does.
        met: whether it is here.
    """

    name: str
    remedy: str
    met: Callable[[], bool]

    @property
    def reason(self) -> str:
        return f"{self.name} — {self.remedy}"

    @property
    def mark(self) -> pytest.MarkDecorator:
        """For a test, or as `pytestmark` for a file of them."""
        return pytest.mark.skipif(not self.met(), reason=self.reason)

    def insist(self) -> None:
        """Skip the test, or the file whose head calls this, where it is not here."""
        if not self.met():
            pytest.skip(self.reason, allow_module_level=True)


def data_set(name: str) -> Need:
    """A data set in the folder that BASINSCOPE_DATA names."""
    return Need(
        f"the data set {name} in $BASINSCOPE_DATA",
        f'export BASINSCOPE_DATA="$HOME/basinscope-data"; basinscope data fetch {name} --folder "$BASINSCOPE_DATA"',
        (DATA / name).is_dir,
    )


GPU = Need("a GPU", "run them where torch.cuda.is_available(): make unit ARGS='-k \"cuda or card or gpu\"'",
           torch.cuda.is_available)  # fmt: skip
NO_GPU = Need("the absence of a GPU", "run them with CUDA_VISIBLE_DEVICES=", lambda: not torch.cuda.is_available())
CHROMIUM = Need("Chromium", "apt-get install chromium", lambda: executable() is not None)
FORK = Need("fork and SIGKILL", "run them on Linux or macOS", lambda: hasattr(os, "fork"))
PRECISION_SWITCHES = Need(
    "torch.backends.fp32_precision", "pip install 'torch>=2.9'", lambda: hasattr(torch.backends, "fp32_precision")
)
BROUGHT_BY = {
    "arviz_base": "arviz",
    "arviz_stats": "arviz",
    "hatchling.build": "dev",
    "mkdocs": "docs",
    "pytorch_lightning": "lightning",
    "ray": "ray",
    "sklearn": "demo",
    "submitit": "slurm",
    "transformers": "transformers",
    "wandb": "wandb",
}  # extras by module


def package(module: str) -> ModuleType:
    """A module of an extra; the test, or the file whose head calls this, is skipped where it is not installed."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # it is here, but broken
    name, command = module.partition(".")[0], f"pip install -c constraints.txt -e '.[{BROUGHT_BY[module]}]'"
    pytest.skip(Need(f"the package {name}", command, lambda: False).reason, allow_module_level=True)


def summary_lines(skipped: Iterable[Any]) -> list[str]:
    """A line for each reason why tests were skipped, with how many there were, from pytest's reports."""
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in skipped)
    return [f"{reason}  ({count} left out)" for reason, count in sorted(reasons.items())]
