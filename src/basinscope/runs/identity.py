"""What makes two jobs the same job: a digest of everything that decides the result."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from ..errors import InputError

_KEY = 40  # hexadecimal digits: 160 bits


def canonical(value: Any) -> str:
    """`value` as JSON in the one form that equal values share: sorted keys, no spaces, no NaN.

    Examples:
        >>> canonical({"b": 1.0, "a": [2, None]})
        '{"a":[2,null],"b":1.0}'
    """
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise InputError(f"a job's settings must be plain finite values, as JSON has them: {error}") from error


def checksum(data: bytes) -> str:
    """SHA-256 of `data` in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def job_key(study: str, version: int, config: Mapping[str, Any]) -> str:
    """The address of a job's result: a digest of the study's name and version and of the job's config.

    A changed config never meets an old result; the order of its entries does not matter.

    Examples:
        >>> job_key("sweep", 1, {"width": 8, "seed": 0}) == job_key("sweep", 1, {"seed": 0, "width": 8})
        True
        >>> job_key("sweep", 1, {"seed": 0}) == job_key("sweep", 2, {"seed": 0})
        False
    """
    identity = {"study": study, "version": version, "config": dict(config)}
    return checksum(canonical(identity).encode())[:_KEY]
