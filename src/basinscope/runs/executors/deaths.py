"""Deaths of workers: whose doing each was, and when a unit has had enough of them."""

from __future__ import annotations

import signal
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

TRIES = 3  # deaths of its workers that a unit may cause before it counts as failed
KILLS = 20  # deaths of its workers from outside: these end only what nothing else would

# What people, batch systems and reclaimed machines send. A process that fails by itself ends by other signals.
_FROM_OUTSIDE = {signal.SIGINT, signal.SIGTERM, *(getattr(signal, name) for name in ("SIGHUP", "SIGKILL")
                                                  if hasattr(signal, name))}  # fmt: skip


@dataclass(frozen=True)
class Death:
    """How a worker died.

    Attributes:
        cause: in a few words.
        outside: whether somebody else ended it, and not what it was computing.
        words: the last that it wrote to standard error.
    """

    cause: str
    outside: bool
    words: str = ""


def death_of_process(code: int, short_of_memory: bool, words: str = "") -> Death:
    """The death of a process, by its exit code (minus the signal that ended it).

    SIGKILL is from outside unless the system was killing processes for lack of memory. A job that sends it to itself
    cannot be told from somebody else who does.

    Examples:
        >>> death_of_process(-9, short_of_memory=False)
        Death(cause='killed by SIGKILL', outside=True, words='')
        >>> death_of_process(-9, short_of_memory=True)
        Death(cause='killed by SIGKILL as memory ran out', outside=False, words='')
        >>> death_of_process(-11, short_of_memory=False).outside, death_of_process(1, short_of_memory=False).outside
        (False, False)
    """
    if code >= 0:
        return Death(f"exit code {code}", False, words)
    try:
        name = signal.Signals(-code).name
    except ValueError:  # a real-time signal
        name = f"signal {-code}"
    if short_of_memory and name == "SIGKILL":
        return Death("killed by SIGKILL as memory ran out", False, words)
    return Death(f"killed by {name}", -code in _FROM_OUTSIDE, words)


def memory_kills() -> int | None:
    """How many processes Linux has killed for lack of memory, in control groups too; None where it does not say."""
    try:
        counters = dict(line.split() for line in Path("/proc/vmstat").read_text().splitlines())
        return int(counters["oom_kill"])
    except (OSError, ValueError, KeyError):
        return None


class Deaths:
    """The deaths that each unit's workers have died in one run.

    Examples:
        >>> deaths = Deaths()
        >>> [deaths.verdict("unit", Death("exit code 1", outside=False)) for _ in range(3)]
        ['', '', 'its worker died 3 times: exit code 1']
    """

    def __init__(self) -> None:
        self._died: defaultdict[str, list[Death]] = defaultdict(list)

    def verdict(self, unit: str, death: Death) -> str:
        """Why the unit is given up after this death, in a line; empty if it may be tried again."""
        died = self._died[unit]
        died.append(death)
        alike = [earlier.cause for earlier in died if earlier.outside == death.outside]
        if len(alike) < (KILLS if death.outside else TRIES):
            return ""
        how = "was killed from outside" if death.outside else "died"
        return f"its worker {how} {len(alike)} times: {', '.join(dict.fromkeys(alike))}"
