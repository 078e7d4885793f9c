"""Training the runs of a plan on this machine: one run, claimed, started and ended; and so many at a time.

The claim is a lock of the operating system (flock) on a file in the run's folder. The program inherits it, so that the
run stays claimed where a launcher is killed and the program goes on; nothing is left to be removed by hand. Where the
file system has none that other hosts see (Lustre, FUSE), it is a file that only one process can make, and a lock on the
host's own disk.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import math
import os
import re
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
from functools import cache, partial
from glob import glob
from hashlib import sha256
from pathlib import Path
from socket import gethostname
from subprocess import DEVNULL, STDOUT, Popen
from types import FrameType
from typing import Any, BinaryIO, ClassVar, Literal

from shapleymix.errors import ShapleyMixError, UsageError
from shapleymix.tables.words import parse_whole
from shapleymix_sweep.plans import CLAIM, FAILED, LOG, OUT, Plan, PlannedRun, lacking, open_runs

GRACE = 60.0
"""Seconds that a program has to write a checkpoint when it is asked to end; torchrun gives its workers 30."""
HEAD = "--- "
"""Beginning of the line of `log.txt` with which an attempt begins."""
POLL = 0.05
"""Seconds between two looks at a program."""
NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)
"""What flock says where a file system has no locks."""
_LOCAL = re.compile(r"fuse\b|.*,(nolock|localflock|local_lock=(?!none))")
"""Types and options of mounts on which a lock may hold on its own host alone."""
_ENDED_BY_SIGTERM = (-signal.SIGTERM, 128 + signal.SIGTERM)  # a program's code, and that of a shell around it
How = Literal["trained", "finished", "failed", "held", "stopped"]
"""How an attempt at a run ends: trained now, finished before, failed, held (another trains it), or stopped."""


class HeldError(ShapleyMixError):
    """Another process trains the run: a scheduler may try again later."""

    code = "held"
    exit_code: ClassVar[int] = 75  # EX_TEMPFAIL of sysexits.h


class Programs:
    """The programs that run now, each in a call of `run`.

    Once `stopped` is set, no further one starts, and all are asked to end (SIGTERM); they are ended (SIGKILL) when the
    grace is over, or once `killed` is set.

    Parameters
    ----------
    grace : float
        Seconds that programs have to end when they are stopped.
    limit : float
        Seconds after which a program is stopped, and has failed.
    asked_together : bool
        Whether this process and its programs are asked to end at once, as by a scheduler: a program that SIGTERM ended
        was then stopped, though this process may not have heard it yet.
    """

    def __init__(self, grace: float = GRACE, limit: float = math.inf, *, asked_together: bool = False) -> None:
        self.grace, self.limit, self.asked_together = grace, limit, asked_together
        self.stopped, self.killed = threading.Event(), threading.Event()

    def run(self, words: Sequence[str], log: BinaryIO, env: Mapping[str, str], claim: int) -> str:
        """Run a program to its end in a session of its own, what it prints in the log.

        Once it is asked to end, it has the grace to do so, and so has what a shell that ends at once was running.

        Returns
        -------
        str
            How it ended badly: by its exit code, a signal or the limit; empty if well, or if all are stopped already.
        """
        if self.stopped.is_set():
            return ""
        how: dict[str, Any] = {"stdin": DEVNULL, "stdout": log, "stderr": STDOUT, "env": env, "pass_fds": (claim,)}
        program = Popen(words, start_new_session=True, **how)
        limit, end = time.monotonic() + self.limit, math.inf
        try:
            while not self.killed.is_set() and (now := time.monotonic()) < end:
                if self.asked_together and program.poll() in _ENDED_BY_SIGTERM:
                    self.stopped.set()
                asked = now >= limit or self.stopped.is_set()
                if program.poll() is not None and not (asked and _send(program.pid, 0)):
                    break
                if asked and end == math.inf:
                    _send(program.pid, signal.SIGTERM)
                    end = now + self.grace
                self.killed.wait(POLL)
        finally:
            _send(program.pid, signal.SIGKILL)
            code = program.wait()
        if end < math.inf and not self.stopped.is_set():
            return f"stopped after its time limit of {self.limit:g} s"
        return f"exit code {code}" if code > 0 else f"killed by {signal.Signals(-code).name}" if code else ""


def _send(group: int, number: int) -> bool:
    """Send a signal to a process group; whether there is one."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


@contextlib.contextmanager
def claimed(path: Path) -> Iterator[int]:
    """Within, the run is this process's: the file descriptor of its lock, which the program inherits.

    Where the file system has no locks, the claim is a file beside it that one process alone can make. It names a lock
    on its host's own disk: whoever gets that very lock knows that all who had it are dead, and takes the claim over.

    Raises
    ------
    HeldError
        If another process holds it; with a message where that process may be dead, on another host.
    """
    name = sha256(os.fsencode(path.resolve())).hexdigest()[:16]
    made, own = path.with_suffix(".held"), Path(f"/tmp/shapleymix-{os.getuid()}-{name}")  # TMPDIR may be shared
    alone = _is_local(path)
    try:
        file = _lock(own if alone else path)
    except OSError as error:
        if alone or error.errno not in NO_LOCKS:
            raise
        file, alone = _lock(own), True
    with file:
        if alone:
            status = os.fstat(file.fileno())
            _make_alone(made, f"{gethostname()} {_boot()} {status.st_dev}:{status.st_ino}\n")
        try:
            yield file.fileno()
        finally:
            for one in (made, own) if alone else ():
                one.unlink(missing_ok=True)
            fcntl.flock(file, fcntl.LOCK_UN)  # also for what inherited it


def _is_local(path: Path, known: Path = Path("/proc/mounts")) -> bool:
    """Whether a lock on the file may hold on this host alone, by how its file system is mounted."""
    mounts = [line.split()[1:4] for line in known.read_text(encoding="utf-8").splitlines()] if known.exists() else []
    above = [one for one in mounts if path.resolve().is_relative_to(one[0])]
    _, kind, options = max(reversed(above), key=lambda one: len(one[0]), default=("", "", ""))
    return _LOCAL.match(f"{kind},{options}") is not None


def _boot() -> str:
    """What tells this start of this machine from any other; pods may share the name of a host."""
    known = Path("/proc/sys/kernel/random/boot_id")
    return known.read_text(encoding="utf-8").strip() if known.exists() else ""


def _lock(path: Path) -> BinaryIO:
    file = path.open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        if isinstance(error, BlockingIOError):
            raise HeldError("") from error
        raise OSError(error.errno, error.strerror, str(path)) from error
    return file


def _make_alone(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        with contextlib.suppress(FileNotFoundError):  # it was released just now
            if path.read_text(encoding="utf-8") == text:
                return
        raise HeldError(f"{path} names the host that trains it: remove that file if nothing does there") from None


def attempt(
    run: PlannedRun, place: Path, programs: Programs, env: Mapping[str, str] | None = None, retries: int = 0
) -> tuple[How, str]:
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
    retries : int
        How often it is tried again, at once, where it fails.

    Returns
    -------
    str, str
        How it ended; why where it failed, and what to remove where it is held by a process that may be dead.

    Raises
    ------
    OSError
        If the folder cannot be written.
    """
    (place / OUT).mkdir(parents=True, exist_ok=True)
    try:
        with claimed(place / CLAIM) as claim, (place / LOG).open("ab") as log:
            if not lacking(run, place):
                return "finished", ""
            path = os.pathsep.join([os.environ.get("PATH", os.defpath), os.path.dirname(sys.executable)])
            start = partial(programs.run, log=log, env={**os.environ, "PATH": path, **(env or {})}, claim=claim)
            while (wrong := _train(run, place, log, start)) and retries > 0 and not programs.stopped.is_set():
                retries -= 1
            if wrong and programs.stopped.is_set():
                return "stopped", ""
            if wrong:
                (place / FAILED).write_text(wrong, encoding="utf-8")
                return "failed", wrong
            (place / FAILED).unlink(missing_ok=True)
            return "trained", ""
    except HeldError as error:
        return "held", error.message


def _train(run: PlannedRun, place: Path, log: BinaryIO, start: Callable[[Sequence[str]], str]) -> str:
    """Try a run once: why it failed; nothing where it is finished."""
    words = run.words(place)
    began = datetime.now().astimezone().isoformat(timespec="seconds")
    log.write(f"{HEAD}{began} {shlex.join(words)}\n".encode("utf-8", "replace"))
    log.flush()
    try:
        ended = start(words)
    except OSError as error:
        return f"{words[0]!r} cannot be started: {error.strerror}"
    if not (wrong := lacking(run, place)) or not ended:
        return wrong
    said = (place / LOG).read_bytes()[-4096:].decode("utf-8", "replace").rpartition(HEAD)[2]
    return ": ".join([ended, *said.strip().splitlines()[1:][-1:]])


@contextlib.contextmanager
def stopping(programs: Programs) -> Iterator[None]:
    """Within, the first Ctrl-C, SIGTERM or SIGHUP stops all programs, and the second one kills them."""

    def hear(number: int, frame: FrameType | None) -> None:
        # in a thread: the signal may have interrupted the very code that holds the lock
        event = programs.killed if programs.stopped.is_set() else programs.stopped
        threading.Thread(target=event.set, daemon=True).start()

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    heard = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]  # nohup ignores SIGHUP
    before = {number: signal.signal(number, hear) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


VISIBLE = "CUDA_VISIBLE_DEVICES"
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
        self._lock, self._tell_once = threading.Lock(), cache(self.tell)

    def run(self, jobs: int | None = None, gpus: Sequence[str] | None = None, gpus_per_run: int = 1) -> None:
        """Train what waits.

        Parameters
        ----------
        jobs : int, optional
            Runs at a time; None = one, or as many as the GPUs allow.
        gpus : sequence of str, optional
            GPUs that the runs get in turn, by `CUDA_VISIBLE_DEVICES`; None = those of this machine. Where these are
            fewer than two, the environment stays as it is.
        gpus_per_run : int
            How many of them a run gets.

        Raises
        ------
        KeyboardInterrupt
            After Ctrl-C, SIGTERM or SIGHUP, when all programs have ended.
        UsageError
            If a run needs more GPUs than there are.
        """
        gpus = (here if len(here := gpus_here()) > 1 else ()) if gpus is None else gpus
        slots = _slots(jobs, gpus, gpus_per_run)
        used = ",".join(slot.get(VISIBLE, "") for slot in slots[: len(self.waiting)]).split(",")
        if self.waiting and (idle := [one for one in gpus if one not in used]):
            self.tell(f"idle GPUs: {','.join(idle)} ({len(self.waiting)} runs to train, {len(slots)} at a time)")
        with stopping(self.programs), ThreadPoolExecutor(len(slots)) as threads:
            try:
                for future in as_completed([threads.submit(self._work, env) for env in slots]):
                    future.result()
            except BaseException:
                self.programs.stopped.set()
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
            how, reason = attempt(run, place, self.programs, env, self.retries)
            with self._lock:
                self._note(index, how, reason)
            if how == "held":
                self.programs.stopped.wait(PAUSE)

    def _note(self, index: int, how: How, reason: str) -> None:
        if how in ("held", "stopped"):
            self.waiting.append(index)
            if reason:
                self._tell_once(f"run {index}: {reason}")
            return
        if how == "failed":
            self.failed[index] = reason
            self.tell(f"run {index} ({self.plan.runs[index].name}) failed: {reason}")
        else:
            self.finished.add(index)
            self.trained += how == "trained"
        self.progress("runs", len(self.finished), len(self.plan))


def gpus_here() -> list[str]:
    """The GPUs that a program started here sees, by their names in `CUDA_VISIBLE_DEVICES`."""
    here = map(str, range(len(glob("/dev/nvidia[0-9]*"))))
    return [one.strip() for one in os.environ.get(VISIBLE, ",".join(here)).split(",") if one.strip()]


def _slots(jobs: int | None, gpus: Sequence[str], each: int) -> list[dict[str, str]]:
    """What each place in the pool adds to the environment of its runs."""
    jobs = None if jobs is None else parse_whole(jobs, "jobs", least=1)
    if not gpus:
        return [{} for _ in range(jobs or 1)]
    groups = [",".join(gpus[start : start + each]) for start in range(0, len(gpus) - each + 1, each)]
    if not groups:
        raise UsageError(f"{each} GPUs for a run, of {len(gpus)}", hint="name more GPUs, or ask for fewer a run")
    return [{VISIBLE: groups[slot % len(groups)]} for slot in range(jobs or len(groups))]
