"""Faults that a study may meet beside kills: requests to end, full disks, folders that cannot be written, clocks that
are set back, file systems that answer late, and a store that somebody deletes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from .weather import BACK, LATE

_A_WHILE = 1.5  # seconds that a fault lasts which ends nothing
_DAY = 24 * 3600.0


@dataclass(frozen=True)
class Scene:
    """Where a fault happens: the store, the signs of the weather, and the driver."""

    store: Path
    weather: Path
    driver: subprocess.Popen[str]


@dataclass(frozen=True)
class Fault:
    """Something that happens to a study from outside.

    Attributes:
        begin, end: make it happen, and undo it.
        code: with which the driver must end; None if it must go on.
        words: that must be among its last.
    """

    begin: Callable[[Scene], None]
    end: Callable[[Scene], None] = lambda scene: None
    code: int | None = None
    words: str = ""


def _signalled(number: signal.Signals) -> Callable[[Scene], None]:
    def send(scene: Scene) -> None:
        with suppress(ProcessLookupError):
            os.kill(scene.driver.pid, number)

    return send


def _fill(scene: Scene) -> None:
    """Write until the file system has no byte left."""
    with (scene.store.parent / "balloon").open("wb", buffering=0) as balloon, suppress(OSError):
        for size in (1 << 20, 1 << 12, 1):
            with suppress(OSError):
                while balloon.write(b"\0" * size):
                    pass


def _free(scene: Scene) -> None:
    (scene.store.parent / "balloon").unlink(missing_ok=True)


def _folders(scene: Scene) -> Iterator[Path]:
    yield from [Path(place) for place, _, _ in os.walk(scene.store)]


def _forbid(scene: Scene) -> None:
    for folder in _folders(scene):
        folder.chmod(0o555)


def _allow(scene: Scene) -> None:
    for folder in _folders(scene):
        folder.chmod(0o755)


def _set_back(scene: Scene) -> None:
    """From here on it is three days ago, and all that was written before was written in the future."""
    (scene.weather / BACK).touch()
    for path in list(scene.store.rglob("*")):
        with suppress(OSError):
            os.utime(path, (time.time() + _DAY, time.time() + _DAY))
    time.sleep(_A_WHILE)


def _put_right(scene: Scene) -> None:
    (scene.weather / BACK).unlink(missing_ok=True)


def _slow_down(scene: Scene) -> None:
    (scene.weather / LATE).touch()
    time.sleep(_A_WHILE)


def _speed_up(scene: Scene) -> None:
    (scene.weather / LATE).unlink(missing_ok=True)


def _delete(scene: Scene) -> None:
    """As `rm -rf` does while others write: again until nothing is left."""
    for _ in range(100):
        shutil.rmtree(scene.store, ignore_errors=True)
        if not scene.store.exists():
            return
        time.sleep(0.01)


GO_ON = "the same command goes on from here"
DELETED = "the store is deleted"
FAULTS = {
    "SIGTERM": Fault(_signalled(signal.SIGTERM), code=130, words=GO_ON),
    "SIGINT": Fault(_signalled(signal.SIGINT), code=130, words=GO_ON),
    "the disk is full": Fault(_fill, _free, code=2, words="no space left"),
    "the folder is read-only": Fault(_forbid, _allow, code=2, words="no permission"),
    "the clock is set back": Fault(_set_back, _put_right),
    "files answer late": Fault(_slow_down, _speed_up),
    DELETED: Fault(_delete, code=2, words="was deleted"),
}


@contextmanager
def small_disk(folder: Path, size: str = "64m") -> Iterator[Path]:
    """A file system of its own, which can be filled without harm to others; it needs a mount namespace of its own."""
    folder.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def plain_rights() -> list[str]:
    """How a command is started whose processes may write only what permissions let them, whoever runs it."""
    return ["setpriv", "--bounding-set", "-dac_override,-dac_read_search", "--"] if os.geteuid() == 0 else []
