"""The folder of a run: it can be written to, has room, and is no other process's; else the error says which file."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from shapleymix.errors import Location, UsageError
from shapleymix_irds.distributed import World
from shapleymix_irds.train.agreement import on_main

LOCK = ".lock"  # held by the process that trains in a folder
SLACK = 16 << 20  # bytes for logs and tables
HINT = "choose another --out, or make room in it or the right to write to it"


@contextlib.contextmanager
def disk_errors(path: Path, hint: str = HINT) -> Iterator[None]:
    """What is done within writes `path`.

    Raises
    ------
    UsageError
        In place of an OSError.
    """
    try:
        yield
    except OSError as error:
        message = f"cannot be written: {error.strerror or error}"
        raise UsageError(message, location=Location(file=str(path)), hint=hint) from error


def check_no_file(folder: Path, hint: str) -> None:
    """See that neither the folder nor what it is to lie in is a file.

    Raises
    ------
    UsageError
        Naming the file.
    """
    if file := next((path for path in (folder, *folder.parents) if path.exists() and not path.is_dir()), None):
        parent = "" if file == folder else f" of {folder}"
        message = f"is a file, expected a folder{parent}"
        raise UsageError(message, location=Location(file=str(file)), hint=hint)


def check_folder(out: Path, needed: int) -> None:
    """Make the folder and try it: writable, and with room for `needed` bytes of checkpoints.

    Raises
    ------
    UsageError
        If it is not.
    """
    check_no_file(out, "give --out a folder")
    with disk_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=out, prefix=".try-")
        os.close(handle)
        os.unlink(name)
        free = shutil.disk_usage(out).free
    if free < needed + SLACK:
        message = f"has {free / 1e9:.3g} GB free; checkpoints and logs need {(needed + SLACK) / 1e9:.3g} GB"
        raise UsageError(message, location=Location(file=str(out)), hint="choose another --out, or --keep 1")


@contextlib.contextmanager
def locked(out: Path, world: World) -> Iterator[None]:
    """Within, no other process is; the lock ends with the process, however it dies. Where the file system knows no
    locks there is none.

    Raises
    ------
    UsageError
        On all ranks, if another process holds the folder.
    """
    with contextlib.ExitStack() as stack:
        on_main(world, lambda: _lock(out, stack))
        yield


def _lock(out: Path, stack: contextlib.ExitStack) -> None:
    with disk_errors(out / LOCK):
        stream = stack.enter_context((out / LOCK).open("a"))
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        hint = "wait for it to end, or choose another --out"
        raise UsageError(
            "another process trains in this folder", location=Location(file=str(out)), hint=hint
        ) from error
    except OSError:
        return  # no locks here
