"""A disk that takes no more is an error that says which file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from shapleymix.errors import Location, UsageError

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
