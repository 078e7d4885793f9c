"""One run: claimed, started as a program with its own session, and ended together with all that it started.

The claim is a lock of the operating system (flock) on a file in the run's folder. The program inherits it, so that the
run stays claimed where a launcher is killed and the program goes on; nothing is left to be removed by hand.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from subprocess import DEVNULL, STDOUT, Popen
from types import FrameType
from typing import BinaryIO, Literal

from shapleymix.errors import ShapleyMixError
from shapleymix_sweep.plans import CLAIM, FAILED, LOG, OUT, PlannedRun
from shapleymix_sweep.results import is_finished, result_of

GRACE = 60.0
"""Seconds that a program has to write a checkpoint when it is asked to end; torchrun gives its workers 30."""
HEAD = "--- "
"""Beginning of the line of `log.txt` with which an attempt begins."""
_ENDED_BY_SIGTERM = (-signal.SIGTERM, 128 + signal.SIGTERM)  # a program's code, and that of a shell around it
How = Literal["trained", "finished", "failed", "held", "stopped"]
"""How an attempt at a run ends: trained now, finished before, failed, held (another trains it), or stopped."""


class Programs:
    """The programs that run now; once they are stopped, no further one starts.

    Parameters
    ----------
    grace : float
        Seconds that programs have to end when they are stopped.
    asked_together : bool
        Whether this process and its programs are asked to end at once, as by a scheduler: a program that SIGTERM ended
        was then stopped, though this process may not have heard it yet.
    """

    def __init__(self, grace: float = GRACE, *, asked_together: bool = False) -> None:
        self.grace, self.asked_together = grace, asked_together
        self.stopped = threading.Event()
        self._killed = threading.Event()
        self._lock = threading.Lock()
        self._running: set[int] = set()

    def run(self, words: Sequence[str], log: BinaryIO, env: Mapping[str, str], claim: int) -> int | None:
        """Run a program to its end in a session of its own, what it prints in the log.

        Returns
        -------
        int or None
            Its exit code; None if all programs are stopped already.
        """
        with self._lock:
            if self.stopped.is_set():
                return None
            program = Popen(
                words, stdin=DEVNULL, stdout=log, stderr=STDOUT, env=env, start_new_session=True, pass_fds=(claim,)
            )
            self._running.add(program.pid)
        try:
            code = program.wait()
            if self.asked_together and code in _ENDED_BY_SIGTERM:
                self.stop()
            # a shell ends at once when it is asked to; what it runs may still write its checkpoint
            while self.stopped.is_set() and not self._killed.is_set() and _send(program.pid, 0):
                time.sleep(0.1)
            return code
        finally:
            _send(program.pid, signal.SIGKILL)
            with self._lock:
                self._running.discard(program.pid)

    def stop(self) -> None:
        """Ask all programs to end (SIGTERM), and end them (SIGKILL) when the grace is over."""
        if self.stopped.is_set():
            return
        self.stopped.set()
        self._send(signal.SIGTERM)
        killer = threading.Timer(self.grace, self.kill)
        killer.daemon = True
        killer.start()

    def kill(self) -> None:
        """End all programs at once."""
        self._killed.set()
        self.stopped.set()
        self._send(signal.SIGKILL)

    def wait(self) -> None:
        """Until no program runs."""
        while self._running:
            time.sleep(0.1)

    def _send(self, number: int) -> None:
        with self._lock:
            for pid in self._running:
                _send(pid, number)


def _send(group: int, number: int) -> bool:
    """Send a signal to a process group; whether there is one."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


@contextlib.contextmanager
def claimed(path: Path) -> Iterator[int | None]:
    """Within, the run is this process's: the file descriptor of its lock, or None where another process holds it."""
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
            return
        try:
            yield file.fileno()
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)  # also for what inherited it


def attempt(run: PlannedRun, place: Path, programs: Programs, env: Mapping[str, str] | None = None) -> tuple[How, str]:
    """Train a run, unless it is finished or another process trains it.

    The program starts in the working folder of this process, and finds programs beside this Python as well. Where it
    leaves the whole run log, the run is finished, whatever its exit code.

    Parameters
    ----------
    run : PlannedRun
        What to train.
    place : Path
        Its folder, which is made.
    programs : Programs
        Starts and stops the program.
    env : mapping of str to str, optional
        What is added to the environment of the program.

    Returns
    -------
    str, str
        How it ended, and why where it failed.

    Raises
    ------
    OSError
        If the folder cannot be written.
    """
    (place / OUT).mkdir(parents=True, exist_ok=True)
    with claimed(place / CLAIM) as claim, (place / LOG).open("ab") as log:
        if claim is None:
            return "held", ""
        if is_finished(run, place):
            return "finished", ""
        words = run.words(place)
        path = os.pathsep.join([os.environ.get("PATH", os.defpath), os.path.dirname(sys.executable)])
        began = datetime.now().astimezone().isoformat(timespec="seconds")
        log.write(f"{HEAD}{began} {shlex.join(words)}\n".encode("utf-8", "replace"))
        log.flush()
        try:
            code = programs.run(words, log, {**os.environ, "PATH": path, **(env or {})}, claim)
            wrong = _wrong(run, place, code)
        except OSError as error:
            wrong = f"{words[0]!r} cannot be started: {error.strerror}"
        if wrong and programs.stopped.is_set():
            return "stopped", ""
        if wrong:
            (place / FAILED).write_text(wrong, encoding="utf-8")
            return "failed", wrong
        (place / FAILED).unlink(missing_ok=True)
        return "trained", ""


def _wrong(run: PlannedRun, place: Path, code: int | None) -> str:
    """Why an ended program has not finished its run; nothing where it has."""
    try:
        result_of(run, place)
    except ShapleyMixError as error:
        if not code:
            return error.message
    else:
        return ""
    how = f"exit code {code}" if code > 0 else f"killed by {signal.Signals(-code).name}"
    said = (place / LOG).read_bytes()[-4096:].decode("utf-8", "replace").rpartition(HEAD)[2]
    return ": ".join([how, *said.strip().splitlines()[1:][-1:]])


@contextlib.contextmanager
def stopping(programs: Programs) -> Iterator[None]:
    """Within, the first Ctrl-C, SIGTERM or SIGHUP stops all programs, and the second one kills them."""

    def hear(number: int, frame: FrameType | None) -> None:
        # in a thread: the signal may have interrupted the very code that holds the lock
        threading.Thread(target=programs.kill if programs.stopped.is_set() else programs.stop, daemon=True).start()

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    heard = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]  # nohup ignores SIGHUP
    before = {number: signal.signal(number, hear) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
