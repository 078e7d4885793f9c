"""How far a sweep is: a bar over its runs with the time left on a terminal, a line now and then elsewhere.

What goes wrong is said when it does, not when all is over, hours later: each reason once, the first with the last words
of its program.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from shapleymix_cli.streams import say
from shapleymix_cli.sweeps.attempts import last_words
from shapleymix_cli.sweeps.pool import Sweep, Watch

QUIET = 30.0
"""Seconds between two lines where there is no terminal."""


@contextlib.contextmanager
def watching(sweep: Sweep, *, quiet: bool) -> Iterator[Watch]:
    """What the pool calls with the sweep as it stands."""
    if quiet:
        yield lambda now: None
        return
    news = News()
    if sys.stderr.isatty():
        with _bar() as bar:
            task = bar.add_task("runs", total=len(sweep.plan), completed=len(sweep.finished))
            pace = Pace(sweep)

            def draw(now: Sweep) -> None:
                news.tell(now)
                bar.update(task, completed=len(now.finished), description=told(now, pace.left(now)))

            yield draw
    else:
        lines = Lines(sweep)

        def write(now: Sweep) -> None:
            news.tell(now)
            lines.watch(now)

        yield write


def _bar() -> Progress:
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True))


class Pace:
    """The time that is left, by the runs that were trained since the sweep began."""

    def __init__(self, sweep: Sweep) -> None:
        self._began = time.monotonic()
        self._first = len(sweep.finished)

    def left(self, sweep: Sweep) -> float | None:
        """Seconds; None before any run has ended."""
        ended = len(sweep.finished) - self._first
        open_ = len(sweep.waiting) + len(sweep.running)
        return (time.monotonic() - self._began) / ended * open_ if ended and open_ else None


class News:
    """What has gone wrong since it was last told."""

    def __init__(self) -> None:
        self._reasons: set[str] = set()
        self._notices: set[str] = set()
        self._holders: set[tuple[str, int]] = set()

    def tell(self, sweep: Sweep) -> None:
        """Say what is new of failures, of other launchers, and of runs that are not as planned."""
        self._failures(sweep)
        for index, holder in sweep.held.items():
            if (holder.host, holder.pid) not in self._holders:
                say(f"{_named(sweep, index)} is trained by {holder}")
            self._holders.add((holder.host, holder.pid))
        for notice, runs in sweep.notices.items():
            if notice not in self._notices:
                say(f"warning: {_named(sweep, runs[0])}: {notice}")
            self._notices.add(notice)

    def _failures(self, sweep: Sweep) -> None:
        for index, reason in sweep.failing.items():
            if reason in self._reasons:
                continue
            say(f"{_named(sweep, index)} failed: {' '.join(reason.split())}")
            for line in [] if self._reasons else last_words(sweep.layout.place(sweep.plan.runs[index].id)):
                say(f"  {line}")
            self._reasons.add(reason)


def _named(sweep: Sweep, index: int) -> str:
    return f"run {index} ({sweep.plan.runs[index].name})"


class Lines:
    """A line whenever there is news, and at most one every half minute; the last in any case."""

    def __init__(self, sweep: Sweep) -> None:
        self._pace, self._told, self._last = Pace(sweep), "", time.monotonic()

    def watch(self, sweep: Sweep) -> None:
        """Say how far it is, if there is news and it is time."""
        text = f"{len(sweep.finished)} of {len(sweep.plan)} runs finished"
        now = time.monotonic()
        if text == self._told or (now - self._last < QUIET and not sweep.over):
            return
        self._told, self._last = text, now
        extra = told(sweep, self._pace.left(sweep))
        say(f"{text}{', ' if extra else ''}{extra}")


def told(sweep: Sweep, left: float | None) -> str:
    """What else there is to say: how many run, wait elsewhere, failed; and the time left."""
    mine = len(sweep.running - sweep.held.keys())
    parts = [f"{count} {word}" for count, word in ((mine, "running"), (len(sweep.failed), "failed")) if count]
    if sweep.held:
        parts.append(f"{len(sweep.held)} with another launcher")
    if left is not None:
        parts.append(f"about {left / 60:.0f} min left" if left >= 90 else f"about {left:.0f} s left")
    return ", ".join(parts)
