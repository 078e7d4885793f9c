"""The runs of a plan as SLURM's arrays, by submitit: each task trains one run."""

from __future__ import annotations

import math
import os
import re
import signal
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from shapleymix.errors import DataError, Location, UsageError
from shapleymix_sweep.plans import LOG, Plan, PlannedRun
from shapleymix_sweep.running import How, Programs, attempt

if TYPE_CHECKING:
    from submitit.helpers import DelayedSubmission

MOST_TASKS = 1_000
"""Tasks of one array: SLURM's MaxArraySize is 1,001 unless the cluster has changed it."""
_BETWEEN = re.compile(r",(?=[\w-]+=)")
"""A comma before a name; one within a value, such as that of nodelist=a,b, separates nothing."""


@dataclass
class Task:
    """What a task of an array calls with its run; a program has less than the 90 s from SLURM's warning to the end."""

    retries: int = 0
    limit: float = math.inf
    training: tuple[Programs, Future[tuple[How, str]]] | None = None

    def __call__(self, run: PlannedRun, place: Path) -> str:
        """Train the run; where it fails, the job fails.

        The program is another thread's, so that the main thread is free to hear signals.
        """
        programs = Programs(limit=self.limit, asked_together=True)
        signal.signal(signal.SIGTERM, lambda *_: Thread(target=programs.stopped.set, daemon=True).start())
        with ThreadPoolExecutor(1, initializer=_without_warning) as thread:
            self.training = programs, thread.submit(attempt, run, place, programs, None, self.retries)
            how, reason = self.training[1].result()
        if how == "failed" or (how == "held" and reason):  # by a host that may be dead
            raise DataError(f"run {run.id} {how}: {reason}", location=Location(str(place / LOG)))
        if how == "stopped":
            raise SystemExit(128 + signal.SIGTERM)
        return how

    def checkpoint(self, run: PlannedRun, place: Path) -> DelayedSubmission:
        """What submitit calls before the time is over, or the task is preempted: end well, and queue again."""
        from submitit.helpers import DelayedSubmission

        if self.training is not None:
            self.training[0].stopped.set()
            self.training[1].exception()  # waits
        return DelayedSubmission(Task(self.retries, self.limit), run, place)


def _without_warning() -> None:
    """SLURM's warning goes to every process; a program that inherits this block does not die of it."""
    warning = getattr(signal, "SIG" + os.environ.get("SUBMITIT_PREEMPT_SIGNAL", "USR2"))
    signal.pthread_sigmask(signal.SIG_BLOCK, {warning})


def parse_options(texts: Sequence[str]) -> dict[str, object]:
    """Options of sbatch as they are typed: `partition=gpu,time=1:30:00,requeue=true`.

    Raises
    ------
    UsageError
        If a part is no name=value, or submitit sets it.
    """
    found: dict[str, object] = {}
    for part in (part for text in texts if text for part in _BETWEEN.split(text)):
        name, equals, value = part.partition("=")
        if not (name.strip() and equals and value.strip()):
            raise UsageError(f"--slurm {part!r} is no name=value, such as partition=gpu,time=60 or requeue=true")
        name = name.strip().lstrip("-").replace("-", "_")
        if name in ("array", "output", "error"):
            raise UsageError(f"--slurm {name} is set by submitit", hint="leave it out: arrays depend on it")
        found[name] = True if value.strip() == "true" else value.strip()
    return found


def submit(
    plan: Plan,
    indices: Sequence[int],
    *,
    jobs: int | None = None,
    options: Mapping[str, object] | None = None,
    task: Task | None = None,
    on: str = "slurm",
) -> list[str]:
    """Submit runs in arrays of at most 1,000 tasks. A task whose run is finished, or trained by another, ends at once.

    Parameters
    ----------
    plan : Plan
        A plan that was read from its file; what submitit writes lies below its folder, in `slurm`.
    indices : sequence of int
        The runs to train.
    jobs : int, optional
        Tasks of an array at a time.
    options : mapping of str to object, optional
        Options of sbatch, all handed on: `partition`, `gres`, `time`, `cpus_per_task`, ...
    task : Task, optional
        How often a run is tried again, and how long it may take.
    on : str
        `slurm`; or submitit's `local` or `debug`, for tests.

    Returns
    -------
    list of str
        The ids of the tasks.

    Raises
    ------
    UsageError
        If submitit or SLURM is not there, or refuses.
    """
    try:
        import submitit
        from submitit.core.utils import FailedJobError
    except ImportError as error:
        raise UsageError("--slurm needs submitit", hint="pip install 'submitit>=1.5.4'") from error
    places = [plan.place(index) for index in indices]
    runs = [plan.runs[index] for index in indices]
    parameters: dict[str, object] = {"name": "shapleymix", "slurm_additional_parameters": dict(options or {})}
    parameters |= {} if jobs is None else {"slurm_array_parallelism": jobs}
    try:
        folder = places[0].parent / "slurm" / "%j"
        executor = submitit.AutoExecutor(folder=folder, cluster=on, slurm_max_num_timeout=1_000)
        executor.update_parameters(**parameters)
        pieces = (slice(start, start + MOST_TASKS) for start in range(0, len(runs), MOST_TASKS))
        return [
            job.job_id for piece in pieces for job in executor.map_array(task or Task(), runs[piece], places[piece])
        ]
    except (RuntimeError, OSError, FailedJobError) as error:
        text = " ".join(str(error).split())
        raise UsageError(f"SLURM refuses: {text:.300}", hint="see the options of sbatch, and `sinfo`") from error
