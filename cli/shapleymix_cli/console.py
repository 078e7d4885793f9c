"""What a command says: its result on standard output, everything else on standard error."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TextIO

from shapleymix.errors import printable
from shapleymix_cli.documents.plain import print_document
from shapleymix_cli.flags import Flags, bracketed
from shapleymix_cli.streams import say

if TYPE_CHECKING:
    from shapleymix_cli.views.tables import Part

Progress = Callable[[str, int, int], None]
LIVE, PLAIN = 0.1, 30.0
"""Seconds between two lines of progress: on a terminal, and elsewhere."""


class Output:
    """Where a command's result and its remarks go.

    Parameters
    ----------
    as_json : bool
        Print the result as one JSON document.
    quiet : bool
        Print no notes, warnings or progress.
    verbose : bool
        Show all rows of tables, and tracebacks.
    command_line : str
        The call, as it is written into results.
    flags : Flags
        The command's flags, in which remarks of the core are worded.
    """

    def __init__(self, *, as_json: bool, quiet: bool, verbose: bool, command_line: str, flags: Flags) -> None:
        self.as_json = as_json
        self.quiet = quiet
        self.verbose = verbose
        self.command_line = command_line
        self._flags = flags
        self.inputs: dict[str, str] = {}
        self._line = StatusLine(sys.stderr, shown=not quiet)

    @property
    def progress(self) -> Progress | None:
        """What a long computation calls with (stage, done, total); None where nobody watches."""
        return self._line.update if self._line.shown else None

    def used(self, name: str, sha256: str) -> None:
        """Remember a file that the result is made from, by the hash of the very bytes that were read."""
        self.inputs[printable(name)] = sha256

    def warn(self, messages: Iterable[str]) -> None:
        """Things that may make the result wrong."""
        self._remark("warning: ", messages)

    def note(self, messages: Iterable[str]) -> None:
        """Things that were done on the way: what was renormalised, written, left out."""
        self._remark("note: ", messages)

    def _remark(self, kind: str, messages: Iterable[str]) -> None:
        if self.quiet:
            return
        self._line.clear()
        for message in dict.fromkeys(messages):
            say(f"{kind}{bracketed(message, self._flags)}")

    def emit(self, document: Callable[[], Mapping[str, object]], view: Callable[[], Iterable[Part]]) -> None:
        """Show the result: the document with `--json`, else the view (texts and rich tables)."""
        self._line.clear()
        if self.as_json:
            print_document(document())
            return
        from shapleymix_cli.views.tables import show

        show(view())


class StatusLine:
    """How far a computation is, and how long the rest of its stage will take.

    On a terminal one line, rewritten at most ten times a second; elsewhere a plain line every half a minute, so that
    short computations say nothing.
    """

    def __init__(self, stream: TextIO, *, shown: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self.shown = shown
        self._stream = stream
        self._live = stream.isatty()
        self._clock = clock
        self._last = self._began = clock()
        self._stage = ""
        self._first = 0
        self._dirty = False

    def update(self, stage: str, done: int, total: int) -> None:
        now = self._clock()
        if stage != self._stage:
            self._stage, self._began, self._first = stage, now, done
        if not self.shown or (now - self._last < (LIVE if self._live else PLAIN) and (done < total or not self._live)):
            return
        self._last = now
        text = printable(f"{stage} {done}/{total}{self._left(now, done, total)}")
        if self._live:
            width = max(os.get_terminal_size(self._stream.fileno()).columns - 1, 20)
            self._write(f"\r\x1b[K{text[:width]}")
            self._dirty = True
        else:
            self._write(f"{text}\n")

    def clear(self) -> None:
        if self._dirty:
            self._write("\r\x1b[K")
            self._dirty = False

    def _left(self, now: float, done: int, total: int) -> str:
        """The time that the rest of the stage takes at its pace so far; nothing before any of it is done."""
        if not self._first < done < total:
            return ""
        left = (now - self._began) / (done - self._first) * (total - done)
        return f", about {left / 60:.0f} min left" if left >= 90 else f", about {left:.0f} s left"

    def _write(self, text: str) -> None:
        """Show a line; a stream that went away sees no more of it."""
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError:
            self.shown = False
