"""A program and all that it starts, as one group of processes that is ended together."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import BinaryIO

GRACE = 60.0
"""Seconds that a program has to write a checkpoint when it is asked to end; torchrun itself gives its workers 30."""


class Children:
    """The programs that run now; once it is stopped, no further one starts."""

    def __init__(self, grace: float = GRACE) -> None:
        self.grace = grace
        self.stopped = threading.Event()
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()

    def run(self, words: Sequence[str], log: BinaryIO, *, env: Mapping[str, str], claim: int) -> int | None:
        """Run a program to its end, its output in the log; the exit code, or None if it was not started any more.

        It has a session of its own, so that Ctrl-C at the terminal reaches the launcher alone, which then ends it.

        Raises
        ------
        OSError
            If it cannot be started.
        """
        with self._lock:
            if self.stopped.is_set():
                return None
            child = subprocess.Popen(
                list(words),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=dict(env),
                start_new_session=True,
                pass_fds=(claim,),
            )
            self._running.add(child)
        try:
            code = child.wait()
            signal_group(child, signal.SIGKILL)  # what it started and left behind must not train on
            return code
        finally:
            with self._lock:
                self._running.discard(child)

    @property
    def running(self) -> bool:
        """Whether any program runs."""
        return bool(self._running)

    def stop(self) -> None:
        """Ask all programs to end (SIGTERM), and end those that have not after the grace (SIGKILL)."""
        with self._lock:
            self.stopped.set()
            running = list(self._running)
        for child in running:
            signal_group(child, signal.SIGTERM)
        killer = threading.Timer(self.grace, self.kill)
        killer.daemon = True
        killer.start()

    def kill(self) -> None:
        """End all programs at once."""
        self.stopped.set()
        with self._lock:
            running = list(self._running)
        for child in running:
            signal_group(child, signal.SIGKILL)


def signal_group(child: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Signal a program and what it started; one that is gone needs none."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)
