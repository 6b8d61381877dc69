"""Work beside the GPU's main stream, and what a CUDA graph can hold."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch.overrides import TorchFunctionMode


@contextmanager
def warming() -> Iterator[None]:
    """A stream of its own for what it encloses: the warm-up that has to come before a CUDA graph is captured."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        yield
    torch.cuda.current_stream().wait_stream(side)


@contextmanager
def unwaiting() -> Iterator[None]:
    """Raise `RuntimeError` where what it encloses waits for the GPU: such work cannot be captured.

    Models that ask whether they are being captured, as those of `transformers` do to leave checks of values out, are
    told so.
    """
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it does not see every wait: capture itself would
        torch.cuda.set_sync_debug_mode("error")
    try:
        with patch.object(torch.cuda, "is_current_stream_capturing", return_value=True):
            yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


class FilledConstants(TorchFunctionMode):
    """Within it, `torch.tensor(number, ...)` fills memory on the device instead of copying the number there.

    The copy would wait for the GPU. Models of `transformers` make constants that way while they run.

    Examples:
        >>> with FilledConstants():
        ...     torch.tensor(0.5), torch.tensor([1, 2])
        (tensor(0.5000), tensor([1, 2]))
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # fmt: skip
        if func is torch.tensor and len(args) == 1 and isinstance(args[0], (bool, int, float)):
            return torch.full((), args[0], **(kwargs or {}))
        return func(*args, **(kwargs or {}))
