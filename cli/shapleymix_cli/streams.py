"""The three standard streams: stand-ins where they were closed; a result that cannot be written is an error."""

from __future__ import annotations

import errno
import io
import os
import shutil
import sys
import textwrap
from typing import TextIO

from shapleymix.errors import printable

LAYOUT = "\n"
"""What remains of a message beside its visible characters."""


class Closed(io.TextIOBase):
    """Standard output that was closed: whoever writes to it loses a result, and is told so."""

    encoding = "utf-8"

    def write(self, text: str, /) -> int:
        if text:
            raise OSError(errno.EBADF, "is closed, and the result cannot be shown")
        return 0


def prepare() -> None:
    """Stand in for closed streams, so that no file opened later takes their place, and let no character fail."""
    _fill_descriptors()
    sys.stdin = sys.stdin or open(os.devnull, encoding="utf-8")  # noqa: SIM115
    sys.stdout = sys.stdout or Closed()
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a label that the terminal cannot show is no failure


def _fill_descriptors() -> None:
    """Open the null device in place of the descriptors 0 to 2 that are closed."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)


def say(text: str) -> None:
    """Write a remark to standard error; where nobody can read it, the work goes on without it."""
    try:
        print(_fitting(printable(text, LAYOUT)), file=sys.stderr, flush=True)
    except OSError:
        sys.stderr = silenced(sys.stderr)


def _fitting(text: str) -> str:
    """On a terminal, lines broken between words at its width; elsewhere a line a message, for those who search."""
    if not sys.stderr.isatty():
        return text
    width = shutil.get_terminal_size().columns
    return "\n".join(_folded(line, width) for line in text.split(LAYOUT))


def _folded(line: str, width: int) -> str:
    start = " " * (len(line) - len(line.lstrip()) + 2)
    kept = textwrap.wrap(line, width, subsequent_indent=start, break_long_words=False, break_on_hyphens=False)
    return LAYOUT.join(kept)


def silenced(stream: TextIO) -> TextIO:
    """A stream that takes everything and fails no more, the interpreter's last flush included."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    except OSError:
        return open(os.devnull, "w", encoding="utf-8")
    return stream
