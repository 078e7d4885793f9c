"""Training the runs of a plan on this machine: one run, claimed, started and ended; and so many at a time.

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
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from subprocess import DEVNULL, STDOUT, Popen
from types import FrameType
from typing import BinaryIO, Literal

from shapleymix.errors import ShapleyMixError, UsageError
from shapleymix.tables.words import parse_whole
from shapleymix_sweep.plans import CLAIM, FAILED, LOG, OUT, Plan, PlannedRun, is_finished, open_runs, result_of

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


PAUSE = 1.0
"""Seconds until a run that another process trains is looked at again."""


@dataclass
class Pool:
    """The runs of a plan that was read from its file, and what becomes of them. Several pools may work at one plan.

    Attributes
    ----------
    plan : Plan
        The runs.
    retries : int
        How often a run that failed is tried again, at once.
    tell : callable
        Called with a sentence about each run that fails.
    progress : callable
        Called with (stage, done, total).
    programs : Programs
        Starts and stops the programs.
    finished : set of int
        Runs that are finished, by their indices; when the pool is made, those that were before.
    trained : int
        How many runs this pool has trained.
    failed : dict of int to str
        Why runs failed, the last time that they were tried.
    waiting : deque of int
        Runs that are not tried yet.
    """

    plan: Plan
    retries: int = 1
    tell: Callable[[str], None] = lambda text: None
    progress: Callable[[str, int, int], None] = lambda stage, done, total: None
    programs: Programs = field(default_factory=Programs)
    finished: set[int] = field(init=False)
    trained: int = field(init=False, default=0)
    failed: dict[int, str] = field(init=False, default_factory=dict)
    waiting: deque[int] = field(init=False)

    def __post_init__(self) -> None:
        self.waiting = deque(open_runs(self.plan))
        self.finished = {*range(len(self.plan))}.difference(self.waiting)
        self._lock = threading.Lock()

    def run(self, jobs: int | None = None, gpus: Sequence[str] = (), gpus_per_run: int = 1) -> None:
        """Train what waits.

        Parameters
        ----------
        jobs : int, optional
            Runs at a time; None = one, or as many as the GPUs allow.
        gpus : sequence of str
            GPUs that the runs get in turn, by `CUDA_VISIBLE_DEVICES`; none = the environment stays as it is.
        gpus_per_run : int
            How many of them a run gets.

        Raises
        ------
        KeyboardInterrupt
            After Ctrl-C, SIGTERM or SIGHUP, when all programs have ended.
        UsageError
            If a run needs more GPUs than there are.
        """
        slots = _slots(jobs, gpus, gpus_per_run)
        with stopping(self.programs), ThreadPoolExecutor(len(slots)) as threads:
            try:
                for future in as_completed([threads.submit(self._work, env) for env in slots]):
                    future.result()
            except BaseException:
                self.programs.stop()
                raise
        if self.programs.stopped.is_set():
            raise KeyboardInterrupt

    def _work(self, env: Mapping[str, str]) -> None:
        """One place in the pool: a run after another, until none is left."""
        while not self.programs.stopped.is_set():
            with self._lock:
                if not self.waiting:
                    return
                index = self.waiting.popleft()
            run, place = self.plan.runs[index], self.plan.place(index)
            how, reason = attempt(run, place, self.programs, env)
            tries = self.retries
            while how == "failed" and tries > 0:
                how, reason = attempt(run, place, self.programs, env)
                tries -= 1
            with self._lock:
                self._note(index, how, reason)
            if how == "held":
                self.programs.stopped.wait(PAUSE)

    def _note(self, index: int, how: How, reason: str) -> None:
        if how in ("held", "stopped"):
            self.waiting.append(index)
            return
        if how == "failed":
            self.failed[index] = reason
            self.tell(f"run {index} ({self.plan.runs[index].name}) failed: {reason}")
        else:
            self.finished.add(index)
            self.trained += how == "trained"
        self.progress("runs", len(self.finished), len(self.plan))


def _slots(jobs: int | None, gpus: Sequence[str], each: int) -> list[dict[str, str]]:
    """What each place in the pool adds to the environment of its runs."""
    jobs = None if jobs is None else parse_whole(jobs, "jobs", least=1)
    if not gpus:
        return [{} for _ in range(jobs or 1)]
    groups = [",".join(gpus[start : start + each]) for start in range(0, len(gpus) - each + 1, each)]
    if not groups:
        raise UsageError(f"{each} GPUs for a run, of {len(gpus)}", hint="name more GPUs, or ask for fewer a run")
    return [{"CUDA_VISIBLE_DEVICES": groups[slot % len(groups)]} for slot in range(jobs or len(groups))]
