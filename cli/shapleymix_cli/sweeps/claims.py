"""A run is one process's: the lock that whoever runs it holds.

The lock is the operating system's (flock), so that it ends with its holder, however that dies, and no stale one is left
to be removed by hand. The run's program inherits it: where a launcher is killed and the program goes on, the run stays
claimed until the program has ended.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from shapleymix.errors import Location, UsageError

NO_LOCKS = (errno.ENOTSUP, errno.ENOSYS, errno.ENOLCK)


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
            yield handle
        finally:
            fcntl.flock(handle, fcntl.LOCK_UN)  # for all that inherited it: the program has ended
    finally:
        os.close(handle)


def _locked(handle: int, path: Path) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        hint = "give --folder on a file system with locks"
        message = "this file system knows no locks, without which a run could be trained twice"
        raise UsageError(message, location=Location(file=str(path.parent)), hint=hint) from error
    return True
