"""A program and all that it starts, ended together."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import BinaryIO

from shapleymix_cli.sweeps.descendants import MARK, ask, group_of, processes_of

GRACE = 60.0
"""Seconds that a program has to write a checkpoint when it is asked to end; torchrun itself gives its workers 30."""
LINGER = 5.0
"""Seconds to end in that are left to what a program leaves behind when it ends by itself."""
LAST = 10.0
"""Seconds in which a killed process is gone, unless a driver holds it; no code of it runs in them."""
_LOOK = 0.1


@dataclass(frozen=True, eq=False)
class _Running:
    """A program that runs, the folder of its run, and which of its processes have been asked to end."""

    program: subprocess.Popen[bytes]
    folder: str
    asked: set[int] = field(default_factory=set)


class Children:
    """The programs that run now; once it is stopped, no further one starts."""

    def __init__(self, grace: float = GRACE) -> None:
        self.grace = grace
        self.stopped = threading.Event()
        self._killed = threading.Event()
        self._lock = threading.Lock()
        self._running: set[_Running] = set()

    def run(
        self, words: Sequence[str], log: BinaryIO, *, env: Mapping[str, str], claim: int, folder: str
    ) -> int | None:
        """Run a program to its end, its output in the log; the exit code, or None if it was not started any more.

        It has a session of its own, so that Ctrl-C at the terminal reaches the launcher alone, which then ends it. What
        an earlier program of this run has left behind, one that was killed with its launcher, ends before; what this
        one leaves behind ends before it counts as ended.

        Raises
        ------
        OSError
            If it cannot be started.
        """
        self._end_all(folder)
        with self._lock:
            if self.stopped.is_set():
                return None
            child = subprocess.Popen(
                list(words),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**env, MARK: folder},
                start_new_session=True,
                pass_fds=(claim,),
            )
            running = _Running(child, folder)
            self._running.add(running)
        try:
            code = child.wait()
            self._end_all(folder, child.pid, running.asked)
            return code
        finally:
            with self._lock:
                self._running.discard(running)

    def _end_all(self, folder: str, program: int | None = None, asked: Set[int] = frozenset()) -> None:
        """End what is left of a run: each is asked once, and killed when its time is over.

        When all are stopped, the grace is theirs as well: a shell is gone at once, while what it runs still writes its
        checkpoint.
        """
        began = time.monotonic()
        killed: float | None = None
        told = set(asked)
        while left := processes_of(folder, program):
            now = time.monotonic()
            if killed is not None and now > killed + LAST:
                return
            if self._killed.is_set() or (now > began + LINGER and not self.stopped.is_set()):
                killed = killed or now
                ask(left, signal.SIGKILL)
            else:
                ask([one for one in left if one.pid not in told], signal.SIGTERM)
                told |= {one.pid for one in left}
            time.sleep(_LOOK)

    @property
    def running(self) -> bool:
        """Whether any program runs."""
        return bool(self._running)

    def wait(self) -> None:
        """Until no program runs."""
        while self.running:
            time.sleep(_LOOK)

    def stop(self) -> None:
        """Ask all programs to end (SIGTERM), and end them with all that they started after the grace (SIGKILL)."""
        with self._lock:
            if self.stopped.is_set():
                return
            self.stopped.set()
            running = list(self._running)
        for one in running:  # its own session only: torchrun passes it on to its workers, and waits for them
            one.asked.update(group_of(one.program.pid))
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(one.program.pid, signal.SIGTERM)
        killer = threading.Timer(self.grace, self.kill)
        killer.daemon = True
        try:
            killer.start()
        except RuntimeError:  # no thread is left that could end them later
            self.kill()

    def kill(self) -> None:
        """End all programs, and all that they started, at once."""
        self.stopped.set()
        self._killed.set()
        with self._lock:
            running = list(self._running)
        for one in running:
            ask(processes_of(one.folder, one.program.pid), signal.SIGKILL)
