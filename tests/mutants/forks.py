"""pytest in a process of its own, forked where everything but our own code is imported already.

A mutant costs the import of our package, the collection of the files that it is tried on, and the tests up to the
first that fails. The changed module is handed to the import system from memory: all processes share one copy of the
repository, and nothing in it is ever written.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.machinery
import importlib.util
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, ModuleType

import pytest

HEAVY = (
    "numpy", "scipy.linalg", "scipy.optimize", "scipy.special", "scipy.stats", "cvxpy", "highspy", "polars", "lightgbm",
    "click", "rich.console", "rich.table", "hypothesis", "hypothesis.extra.numpy", "hypothesis.strategies",
    "concurrent.futures",
)  # fmt: skip
MEMORY = 6 * 2**30
TIMED_OUT = (signal.SIGPROF, signal.SIGALRM)
WALL = 20.0
"""How far the clock of a loaded machine may run ahead of the CPU time that a process uses."""


def warm() -> None:
    """Import what tests need and mutants are not part of; what is not installed is not needed."""
    for name in HEAVY:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    assert "shapleymix" not in sys.modules
    gc.collect()
    gc.freeze()


def copy_of_repository(root: Path, place: Path) -> Path:
    """The files that git knows, as they are now: who edits them meanwhile disturbs nothing."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, check=True).stdout
    for name in listed.decode().split("\0"):
        if name and (root / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / name, place / name)
    return place


@dataclass(frozen=True)
class Change:
    """A module of the copy whose code is another than its file's."""

    path: str
    code: str

    def install(self, copy: Path) -> None:
        """Let the import system find it before the file."""
        name = self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        sys.meta_path.insert(0, _Finder(name, str(copy / self.path), self.code))


class _Changed(importlib.machinery.SourceFileLoader):
    """A file's loader that has its code from elsewhere."""

    def __init__(self, name: str, path: str, code: str) -> None:
        super().__init__(name, path)
        self.changed = code

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.changed, self.path, "exec", dont_inherit=True)


class _Finder:
    """Finds one module."""

    def __init__(self, name: str, path: str, code: str) -> None:
        self.name, self.path, self.code = name, path, code

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The changed module where it is asked for."""
        if fullname != self.name:
            return None
        loader = _Changed(fullname, self.path, self.code)
        return importlib.util.spec_from_file_location(fullname, self.path, loader=loader)


def allow(seconds: float) -> None:
    """End this process when it has used so much CPU, or far longer has passed: a signal ends even a loop in C."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, WALL * seconds)


@dataclass(frozen=True)
class Call:
    """One call of pytest: a file of tests, and a plugin that watches or chooses them."""

    file: str
    plugin: object


@dataclass
class Job:
    """Calls of pytest in one process, up to the first that fails; `ended` is called with the outcome.

    Most mutants die in the first file, so that no other need be collected. `seconds` of CPU may pass in a call before
    its first test; the plugin may allow others for each test.
    """

    calls: tuple[Call, ...]
    ended: Callable[[Outcome], None]
    seconds: float
    change: Change | None = None
    began: float = field(default_factory=time.monotonic)

    def run(self, copy: Path, log: Path) -> int:
        """pytest's exit code, in the process that was forked for it."""
        os.setsid()
        os.chdir(copy)
        _streams_into(log)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        sys.path[:0] = [str(copy), str(copy / "cli"), str(copy / "adapters")]
        if self.change is not None:
            self.change.install(copy)
        words = ["-x", "-q", "--no-header", "--tb=short", "-p", "no:cacheprovider", "--hypothesis-seed=0"]
        words += ["-W", "ignore::pytest.PytestAssertRewriteWarning", f"--rootdir={copy}"]
        for call in self.calls:
            allow(self.seconds)
            code = int(pytest.main([*words, call.file], plugins=[call.plugin]))
            # A change may rename parameters: tests that are no longer there judge nothing.
            if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
                return code
        return pytest.ExitCode.OK


def _streams_into(log: Path) -> None:
    """Nothing to read, and one file for all that is written."""
    for number, path, mode in ((0, os.devnull, os.O_RDONLY), (1, log, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)):
        opened = os.open(path, mode)
        os.dup2(opened, number)
        os.close(opened)
    os.dup2(1, 2)


@dataclass(frozen=True)
class Outcome:
    """How a job ended: an exit code of pytest or a signal's number below 0, the clock, and what it printed."""

    code: int
    seconds: float
    log: Path

    @property
    def passed(self) -> bool:
        """Whether every test did."""
        return self.code == pytest.ExitCode.OK

    @property
    def timed_out(self) -> bool:
        """Whether a timer of `allow` ended it."""
        return -self.code in TIMED_OUT


def run_all(jobs: Iterator[Job], workers: int, copy: Path) -> None:
    """Every job in a process of its own, `workers` at a time."""
    running: dict[int, tuple[Job, Path]] = {}
    free = deque(copy.parent / f"{index}.log" for index in range(workers))
    try:
        while True:
            while free and (job := next(jobs, None)) is not None:
                log = free.popleft()
                running[_forked(job, copy, log)] = job, log
            if not running:
                return
            number, status = os.wait()
            job, log = running.pop(number)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(number, signal.SIGKILL)
            job.ended(Outcome(os.waitstatus_to_exitcode(status), time.monotonic() - job.began, log))
            free.append(log)
    finally:
        for number in running:
            os.kill(number, signal.SIGKILL)


def _forked(job: Job, copy: Path, log: Path) -> int:
    job.began = time.monotonic()
    number = os.fork()
    if number:
        return number
    code = pytest.ExitCode.INTERNAL_ERROR
    try:
        code = job.run(copy, log)
    except BaseException:
        traceback.print_exc()
    finally:
        # Not exit: what the parent registered to be done at its end is the parent's.
        sys.stdout.flush()
        os._exit(code)
    return 0
