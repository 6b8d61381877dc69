"""What others wrote: files that may be pipes or endless, JSON that may be nested without end, archives of arrays."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MOST = 1 << 30  # bytes of a file that is read whole


def opened(path: str | os.PathLike[str]) -> BinaryIO:
    """A regular file to read. A pipe or a device, which reading could wait for without end, is an OSError."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(f"{Path(path).name} is no regular file")
    return os.fdopen(handle, "rb")


def contents(path: str | os.PathLike[str], most: int = _MOST) -> bytes:
    """The bytes of a regular file; an OSError where there are more than `most`.

    Examples:
        >>> contents(__file__)[:3]
        b'\"\"\"'
    """
    with opened(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(f"{Path(path).name} has more than {most:,} bytes")
    return data


def parsed(text: str | bytes, *, finite: bool = True) -> Any:
    """JSON as Python has it; a ValueError for whatever is none, with a NaN in it unless `finite` is False.

    Examples:
        >>> parsed('{"a": [1, null]}')
        {'a': [1, None]}
        >>> parsed("[" * 100_000)
        Traceback (most recent call last):
        ...
        ValueError: it is nested too deeply
    """
    try:
        return json.loads(text, parse_constant=_refused) if finite else json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def arrays(path: str | os.PathLike[str]) -> dict[str, NDArray[Any]]:
    """The arrays of a NumPy archive by name, without objects; a ValueError for whatever is none."""
    import numpy as np

    try:
        with opened(path) as file, np.load(file, allow_pickle=False) as archive:
            by_name = {name: archive[name] for name in archive.files}
    except Exception as error:  # NumPy's reader of headers tells of damage in a dozen ways
        raise ValueError(str(error)[:200] or type(error).__name__) from error
    odd = next((name for name, value in by_name.items() if not isinstance(value, np.ndarray)), None)
    if odd is not None:
        raise ValueError(f"{odd!r} is no array")
    return by_name


def array(path: str | os.PathLike[str]) -> NDArray[Any]:
    """The array of a file of NumPy, without objects; a ValueError for whatever is none."""
    import numpy as np

    try:
        with opened(path) as file:
            values = np.load(file, allow_pickle=False)
    except Exception as error:  # as above
        raise ValueError(str(error)[:200] or type(error).__name__) from error
    if not isinstance(values, np.ndarray):
        raise ValueError("it holds more than one array")
    return values


def _refused(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
