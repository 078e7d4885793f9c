"""The runs of a plan on this machine, so many at a time."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field

from shapleymix.errors import UsageError
from shapleymix_sweep.plans import Plan
from shapleymix_sweep.results import is_finished
from shapleymix_sweep.running import How, Programs, attempt, stopping

HOPELESS = 5
"""Runs that fail before any finishes, after which a pool gives up: the fault is the command's, not theirs."""
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
    keep_going : bool
        Go on though the first five runs fail and none finishes.
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
    keep_going: bool = False
    tell: Callable[[str], None] = lambda text: None
    progress: Callable[[str, int, int], None] = lambda stage, done, total: None
    programs: Programs = field(default_factory=Programs)
    finished: set[int] = field(init=False)
    trained: int = field(init=False, default=0)
    failed: dict[int, str] = field(init=False, default_factory=dict)
    waiting: deque[int] = field(init=False)

    def __post_init__(self) -> None:
        self.finished = {index for index, run in enumerate(self.plan.runs) if is_finished(run, self.plan.place(index))}
        self.waiting = deque(index for index in range(len(self.plan)) if index not in self.finished)
        self._before, self._lock = len(self.finished), threading.Lock()

    @property
    def gave_up(self) -> bool:
        """Whether the waiting runs are left alone, since the first runs failed and none finished."""
        hopeless = len(self.finished) == self._before and len(self.failed) >= HOPELESS
        return hopeless and not self.keep_going and bool(self.waiting)

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
                if self.gave_up or not self.waiting:
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
        elif how == "failed":
            self.failed[index] = reason
            self.tell(f"run {index} ({self.plan.runs[index].name}) failed: {reason}")
        else:
            self.finished.add(index)
            self.trained += how == "trained"
        self.progress("runs", len(self.finished), len(self.plan))


def _slots(jobs: int | None, gpus: Sequence[str], each: int) -> list[dict[str, str]]:
    """What each place in the pool adds to the environment of its runs."""
    if not gpus:
        return [{} for _ in range(jobs or 1)]
    groups = [",".join(gpus[start : start + each]) for start in range(0, len(gpus) - each + 1, each)]
    if not groups:
        raise UsageError(f"{each} GPUs for a run, of {len(gpus)}", hint="name more GPUs, or ask for fewer a run")
    return [{"CUDA_VISIBLE_DEVICES": groups[slot % len(groups)]} for slot in range(jobs or len(groups))]
