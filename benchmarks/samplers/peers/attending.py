"""A worker's main loop: a job a line comes in, a result a line goes out. Needs the standard library only."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any


def attend(estimate: Callable[[str, dict[str, Any]], float]) -> None:
    """Answer jobs until there are no more; a crash is an answer with a remark."""
    answer, sys.stdout = sys.stdout, sys.stderr  # whatever libraries print stays out of the answers
    for line in sys.stdin:
        job = json.loads(line)
        value, remark = float("nan"), ""
        try:
            value = float(estimate(job["problem"], job["settings"]))
        except Exception as problem:  # the peer's failure is the finding
            remark = f"{type(problem).__name__}: {problem}"[:200]
        print(json.dumps([value, remark]), file=answer, flush=True)
