"""Reports that others changed: what cannot be shown is refused in a sentence."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, TypeVar

from jinja2 import UndefinedError

from ..errors import BasinscopeError, InputError

if TYPE_CHECKING:
    from .report import Report

T = TypeVar("T")


def shows(render: Callable[[Report], T]) -> Callable[[Report], T]:
    """A way to show a report, which says of one that misses something that its file is not what was written."""

    @wraps(render)
    def shown(report: Report) -> T:
        try:
            return render(report)
        except BasinscopeError:
            raise
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, UndefinedError) as error:
            raise InputError(
                f"report {report.title[:80]!r} cannot be shown ({type(error).__name__}: {str(error)[:200]}) — measure "
                f"again, unless its file was changed and can be put back"
            ) from error

    return shown
