"""Signals that ask a run to stop at the end of a step."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import Any

STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


class StopSignals:
    """The signal that this process got, 0 if none."""

    def __init__(self) -> None:
        self.asked = 0

    @contextlib.contextmanager
    def heard(self) -> Iterator[None]:
        """Let signals ask for a stop at the end of a step; a second Ctrl-C stops at once."""

        def ask(signum: int, _frame: Any) -> None:
            self.asked = signum
            signal.signal(signum, previous[signal.Signals(signum)])

        previous = {signum: signal.signal(signum, ask) for signum in STOP_SIGNALS}
        try:
            yield
        finally:
            for signum, handler in previous.items():
                signal.signal(signum, handler)
