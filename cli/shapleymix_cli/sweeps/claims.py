"""A run is one process's: the lock that whoever runs it holds.

The lock is the operating system's (flock), so that it ends with its holder, however that dies, and no stale one is left
to be removed by hand. The run's program inherits it: where a launcher is killed and the program goes on, the run stays
claimed until the program has ended. What stands in the file says who that is, for people; the lock alone decides.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import psutil

from shapleymix.errors import Location, UsageError
from shapleymix.sweeping.layout import Layout
from shapleymix.sweeping.plans import Plan

TRIES, PAUSE = 4, 0.05
"""How often a lock is tried for, and the seconds between: who only asks for its holder has it for a moment."""
_LONGEST = 4096
NO_LOCKS = (errno.ENOTSUP, errno.ENOSYS, errno.ENOLCK)


@dataclass(frozen=True)
class Holder:
    """Who holds a claim: empty, 0 and empty where the file does not say.

    Attributes
    ----------
    host : str
        The machine.
    pid : int
        The launcher's process there.
    since : str
        When it began, by that machine's clock.
    """

    host: str = ""
    pid: int = 0
    since: str = ""

    def __str__(self) -> str:
        """A few words: `pid 123 on gpu-7 since 2026-03-01T12:00:00+00:00`."""
        if not self.host:
            return "another process"
        gone = self.host == socket.gethostname() and not psutil.pid_exists(self.pid)
        told = f"pid {self.pid} on {self.host} since {self.since}"
        return f"{told} (gone, or in another container; its program goes on)" if gone else told


UNKNOWN = Holder()


def holder_of(path: Path) -> Holder | None:
    """Who holds a claim now; None where nobody does, or the file cannot be read."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read(handle)
    except OSError:
        return None
    else:
        return None
    finally:
        os.close(handle)


def holders_of(plan: Plan, layout: Layout) -> dict[int, Holder]:
    """Who trains the runs of a plan now, by their indices."""
    there = layout.there()
    open_ = [(index, layout.place(run.id)) for index, run in enumerate(plan.runs) if run.id in there]
    found = ((index, holder_of(place.claim)) for index, place in open_ if not place.result.exists())
    return {index: holder for index, holder in found if holder is not None}


def _read(handle: int) -> Holder:
    try:
        told = json.loads(os.pread(handle, _LONGEST, 0))
        return Holder(str(told["host"]), int(told["pid"]), str(told["since"]))
    except (OSError, ValueError, KeyError, TypeError):  # just claimed, and not yet written
        return UNKNOWN


@contextlib.contextmanager
def claimed(path: Path) -> Iterator[int | None]:
    """Within, the run is this process's: the descriptor that its program is to inherit; None where another holds it.

    Raises
    ------
    UsageError
        If the file system knows no locks, without which two launchers could train one run twice.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        if not _locked(handle, path):
            yield None
            return
        try:
            _sign(handle)
            yield handle
        finally:
            fcntl.flock(handle, fcntl.LOCK_UN)  # for all that inherited it: the program has ended
    finally:
        os.close(handle)


def _sign(handle: int) -> None:
    """Write down who holds the claim."""
    now = datetime.now().astimezone().isoformat(timespec="seconds")
    told = json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "since": now})
    os.ftruncate(handle, 0)
    os.pwrite(handle, told.encode(), 0)


def _locked(handle: int, path: Path) -> bool:
    """Whether the lock could be had, at once or after the moment for which somebody asks who holds it."""
    for _ in range(TRIES):
        if _lock(handle, path):
            return True
        time.sleep(PAUSE)
    return False


def _lock(handle: int, path: Path) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        hint = "give --folder on a file system with locks"
        message = "this file system knows no locks, without which a run could be trained twice"
        raise UsageError(message, location=Location(file=str(path.parent)), hint=hint) from error
