"""Rows and estimates as curves of TensorBoard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import InputError
from ..estimates import Estimate
from ..training.hooks import Row
from .following import numbers_at


class Log:
    """Writes the numbers of rows and estimates for TensorBoard; give it to `training.train(log=[...])`.

    Verdicts are 0 for ok, 1 for doubtful, 2 for failed; what is not a finite number is left out.

    Args:
        folder: where TensorBoard looks, or a `SummaryWriter` of one's own.
        prefix: of every curve's name.

    Examples:
        >>> import tempfile, basinscope as bs
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     log = Log(folder)
        ...     log(bs.Estimate("llc", 2.5, 0.1), step=10)
        ...     log.close()
    """

    def __init__(self, folder: str | Path | Any, prefix: str = "basinscope/") -> None:
        if isinstance(folder, (str, Path)):
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError as error:
                raise InputError("TensorBoard's files need tensorboard — install basinscope[tensorboard]") from error
            folder = SummaryWriter(str(folder))
        if not hasattr(folder, "add_scalar"):
            raise InputError(f"folder must be a path or a SummaryWriter, got {type(folder).__name__}")
        self._writer, self._prefix = folder, prefix

    def __call__(self, row: Row | Estimate, step: int | None = None) -> None:
        """Write one row or estimate, at `step` or at the row's own."""
        curves, at = numbers_at(row, step)
        for name, value in curves.items():
            self._writer.add_scalar(self._prefix + name, value, at)
        self._writer.flush()

    def close(self) -> None:
        """Finish the file."""
        self._writer.close()
