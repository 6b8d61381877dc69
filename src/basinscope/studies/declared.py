"""Settings and jobs that are plain dataclasses, as the models that `basinscope study` wants."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any, get_type_hints

from pydantic import create_model


def model_of(kind: type, name: str, parent: type) -> Any:
    """A pydantic model with the fields of a dataclass, so that a plan is written down once.

    Examples:
        >>> from dataclasses import dataclass
        >>> from basinscope.runs.study import Job
        >>> @dataclass
        ... class Training:
        ...     width: int = 8
        >>> model_of(Training, "TrainingJob", Job)().config()
        {'width': 8}
    """
    hints = get_type_hints(kind)
    own: dict[str, Any] = {
        each.name: (hints[each.name], ... if each.default is MISSING else each.default) for each in fields(kind)
    }
    return create_model(name, __base__=parent, __doc__=kind.__doc__, **own)
