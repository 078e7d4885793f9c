"""Progress on standard error: rewritten on a terminal, a line every half a minute elsewhere, with the time left."""

from __future__ import annotations

import io
import os

import pytest
from shapleymix_cli.console import StatusLine


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return 2


class Gone(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


def told(stream: io.StringIO, updates: list[tuple[float, str, int, int]], *, shown: bool = True) -> str:
    """What a stream sees of updates at given seconds."""
    now = [0.0]
    line = StatusLine(stream, shown=shown, clock=lambda: now[0])
    for second, stage, done, total in updates:
        now[0] = second
        line.update(stage, done, total)
    line.clear()
    return stream.getvalue()


def test_elsewhere_a_plain_line_every_half_a_minute():
    updates = [(float(second), "bootstrap", second, 200) for second in range(201)]
    assert told(io.StringIO(), updates).splitlines() == [
        "bootstrap 30/200, about 3 min left",
        "bootstrap 60/200, about 2 min left",
        "bootstrap 90/200, about 2 min left",
        "bootstrap 120/200, about 80 s left",
        "bootstrap 150/200, about 50 s left",
        "bootstrap 180/200, about 20 s left",
    ]


def test_what_is_short_says_nothing_elsewhere():
    assert told(io.StringIO(), [(0.0, "fitting", 0, 1), (29.0, "fitting", 1, 1)]) == ""


def test_a_terminal_sees_one_line_that_is_cleared(monkeypatch):
    monkeypatch.setattr("os.get_terminal_size", lambda fd: os.terminal_size((40, 24)))
    seen = told(Terminal(), [(1.0, "bootstrap", 0, 4), (1.05, "bootstrap", 1, 4), (2.0, "bootstrap", 2, 4)])
    assert seen.split("\r\x1b[K") == ["", "bootstrap 0/4", "bootstrap 2/4, about 1 s left", ""]


def test_the_time_left_is_that_of_the_stage():
    updates = [(100.0, "fitting", 1, 1), (110.0, "bootstrap", 100, 400), (150.0, "bootstrap", 200, 400)]
    assert told(io.StringIO(), updates).splitlines() == ["fitting 1/1", "bootstrap 200/400, about 80 s left"]


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_quiet_shows_nothing(stream):
    assert told(stream, [(60.0, "bootstrap", 1, 2)], shown=False) == ""


def test_a_stream_that_went_away_is_left_alone():
    assert told(Gone(), [(60.0, "bootstrap", 1, 4), (120.0, "bootstrap", 2, 4)]) == ""
