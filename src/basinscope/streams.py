"""Work beside the GPU's main stream, and what a CUDA graph can hold."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

Result = TypeVar("Result")

# Entries of a state or an argument, up to which a graph pays. Beyond, the device is busy for longer than the launches
# take, and a graph would need two runs to warm up and memory of its own.
MAX_CAPTURED = 2**27


@contextmanager
def warming() -> Iterator[None]:
    """Run the block on a stream of its own: the warm-up that has to come before a CUDA graph is captured."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        yield
    torch.cuda.current_stream().wait_stream(side)


@contextmanager
def unwaiting() -> Iterator[None]:
    """Raise `RuntimeError` where the block waits for the GPU: such work cannot be captured.

    Models that ask torch whether they are being captured, as those of `transformers` do to leave checks of values out,
    get the answer yes.
    """
    before, is_capturing = torch.cuda.get_sync_debug_mode(), torch.cuda.is_current_stream_capturing
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it does not see every wait: capture itself would
        torch.cuda.set_sync_debug_mode("error")
    try:
        torch.cuda.is_current_stream_capturing = lambda: True
        yield
    finally:
        torch.cuda.is_current_stream_capturing = is_capturing
        torch.cuda.set_sync_debug_mode(before)


def capturable(step: Callable[[], object]) -> bool:
    """Take the two runs of `step` that have to come before its capture; False if the second waits for the GPU."""
    with warming(), FilledConstants():
        step()
        try:
            with unwaiting():
                step()
        except RuntimeError:
            return False
    return True


class Captured(Generic[Result]):
    """A function of one tensor that a GPU replays from a CUDA graph, captured at the first call.

    The function itself runs on other devices, for arguments of more than `MAX_CAPTURED` entries, and where it waits for
    the GPU. It must draw no random numbers, return a tensor or a tuple of them, and always get the same shape.

    Args:
        function: what to capture.
        beside: another function that uses the same memory; they never run at once.

    Examples:
        >>> square = Captured(torch.square)
        >>> square(torch.tensor([3.0]))
        tensor([9.])
    """

    def __init__(self, function: Callable[[Tensor], Result], beside: Captured[Any] | None = None) -> None:
        self._function = function
        self._beside = beside
        self._graph: torch.cuda.CUDAGraph | None = None
        self._tried = False

    def __call__(self, argument: Tensor) -> Result:
        if not self._tried:
            self._tried = True
            if argument.device.type == "cuda" and argument.numel() <= MAX_CAPTURED:
                self._capture(argument)
        if self._graph is None:
            return self._function(argument)
        self._argument.copy_(argument)
        self._graph.replay()
        return tree_map(torch.clone, self._result)

    def _capture(self, argument: Tensor) -> None:
        """Record the graph, if the function can be recorded."""
        self._argument = argument.clone()
        if not capturable(lambda: self._function(self._argument)):
            return
        other = self._beside._graph if self._beside else None
        graph = torch.cuda.CUDAGraph()
        with FilledConstants(), torch.cuda.graph(graph, pool=other.pool() if other else None):
            self._result = self._function(self._argument)
        self._graph = graph


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
