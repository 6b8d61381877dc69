"""What becomes of a hostile case: the engine below the tables of this folder, for the tests and the benchmark."""

from __future__ import annotations

import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import basinscope as bs
from basinscope.errors import BasinscopeError

CLEAR, RIGHT, HONEST = "clear error", "right answer", "not ok, as said"
WRONG, CRASH, HANG, EXECUTED = "wrong", "crash", "hang", "execution"
GOOD = (CLEAR, RIGHT, HONEST)
TRAP = "trap"  # the file that hostile code makes in the folder of its case
LIMIT = 60  # seconds of a processor after which a case counts as hanging, whatever else the machine does
_WAITED = 10 * LIMIT  # seconds for one that waits without computing, where no test runner counts them
_LONGEST = 1500  # characters of an error that is still a sentence

Attempt = Callable[[Path], Any]


@dataclass(frozen=True)
class Case:
    """One hostile input.

    Attributes:
        name: what is tried.
        attempt: tries it, in an empty folder of its own.
        allowed: the outcomes that are as they should be.
        judge: what is wrong with what came back; nothing where all is right.
        word: that an error must contain.
        slow: whether it takes more than about a second of a core.
    """

    name: str
    attempt: Attempt
    allowed: tuple[str, ...]
    judge: Callable[[Any], str] = lambda _: ""
    word: str = ""
    slow: bool = False


@dataclass(frozen=True)
class Outcome:
    """What became of a case, and in which words."""

    kind: str
    words: str = ""

    def suits(self, case: Case) -> bool:
        return self.kind in case.allowed


def refused(name: str, attempt: Attempt, word: str = "", *, slow: bool = False) -> Case:
    """It must end in one sentence that says what is wrong, with `word` in it."""
    return Case(name, attempt, (CLEAR,), word=word, slow=slow)


def works(name: str, attempt: Attempt, *, slow: bool = False) -> Case:
    """It must work; what it returns, if anything, must be true."""
    return Case(name, attempt, (RIGHT,), lambda value: "" if value in (None, True) else f"{value!r}", slow=slow)


def right(name: str, attempt: Attempt, truth: float, rtol: float = 1e-4, *, slow: bool = False) -> Case:
    """It must give this number, within `rtol` or five of its standard errors."""
    return Case(name, attempt, (RIGHT,), lambda value: _off(value, truth, rtol), slow=slow)


def honest(name: str, attempt: Attempt, rtol: float = 0.05, *, slow: bool = False) -> Case:
    """A pair (number, truth): the number must be right, or refused, or come with another verdict than `ok`."""
    return Case(name, attempt, GOOD, lambda pair: _off(*pair, rtol), slow=slow)


def tried(case: Case, folder: Path, limit: int = LIMIT) -> Outcome:
    """Try a case in a folder, its working directory; nothing that it raises gets out but what ends a program."""
    with chdir(folder):
        outcome = _attempted(case, folder, limit)
    return Outcome(EXECUTED, "code in it was run") if (folder / TRAP).exists() else outcome


def _attempted(case: Case, folder: Path, limit: int) -> Outcome:
    try:
        with warnings.catch_warnings(), _limited(limit):
            warnings.simplefilter("ignore")
            value = case.attempt(folder)
    except _TooLongError:
        return Outcome(HANG, f"more than {limit} s of a processor")
    except BasinscopeError as error:
        return _sentence(str(error), case.word)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        return Outcome(CRASH, f"{type(error).__name__}: {error}"[:500])
    if isinstance(value, Refusal):
        return _sentence(value.words, case.word)
    if _unsure(value):
        return Outcome(HONEST, "; ".join(_estimate(value).warnings))
    complaint = case.judge(value)
    return Outcome(WRONG, complaint) if complaint else Outcome(RIGHT, repr(value)[:200])


@dataclass(frozen=True)
class Refusal:
    """A refusal in words that was not raised: what a command printed, or a page answered."""

    words: str


def _sentence(words: str, wanted: str) -> Outcome:
    """Whether the words of an error are a sentence that says what it must."""
    if not words.strip() or len(words) > _LONGEST or "Traceback" in words:
        return Outcome(CRASH, f"not a sentence: {words[:300]!r}")
    if wanted not in words:
        return Outcome(WRONG, f"no word of {wanted!r} in {words!r}")
    return Outcome(CLEAR, words)


def _estimate(value: Any) -> Any:
    return value[0] if isinstance(value, tuple) and value else value


def _unsure(value: Any) -> bool:
    first = _estimate(value)
    return isinstance(first, bs.Estimate) and first.verdict != "ok"


def _off(value: Any, truth: float, rtol: float) -> str:
    """Why a number is wrong; nothing if it is right."""
    number, stderr = float(value), float(getattr(value, "stderr", 0.0))
    distance = abs(number - truth)
    return (
        "" if distance <= max(rtol * abs(truth), 5 * stderr, 1e-9) else f"{number:.6g} ± {stderr:.2g}, not {truth:.6g}"
    )


class _TooLongError(BaseException):
    """Not an Exception, so that no handler on the way takes it for a failure of the case."""


@contextmanager
def _limited(seconds: int) -> Iterator[None]:
    """Ends a case that computes for longer, or waits for much longer; a test runner's own alarm is left alone."""

    def ring(number: int, frame: Any) -> None:
        raise _TooLongError

    timers = {signal.ITIMER_PROF: (signal.SIGPROF, seconds)}
    if signal.getitimer(signal.ITIMER_REAL)[0] == 0:
        timers[signal.ITIMER_REAL] = (signal.SIGALRM, _WAITED)
    before = {number: signal.signal(number, ring) for number, _ in timers.values()}
    for timer, (_, limit) in timers.items():
        signal.setitimer(timer, limit)
    try:
        yield
    finally:
        for timer in timers:
            signal.setitimer(timer, 0)
        for number, handler in before.items():
            signal.signal(number, handler)
