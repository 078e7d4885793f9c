"""A sweep as SLURM's arrays, by submitit: each task trains the run that it takes along, as `shapleymix run` does."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from shapleymix.errors import DataError, Location, ShapleyMixError, UsageError
from shapleymix.sweeping.layout import Layout, Place
from shapleymix.sweeping.plans import Plan, PlannedRun
from shapleymix_cli.sweeps.attempts import End, attempt
from shapleymix_cli.sweeps.children import GRACE, Children
from shapleymix_cli.sweeps.queue import Handed, folder_of, note
from shapleymix_cli.sweeps.sbatch import Told, keywords

if TYPE_CHECKING:
    from submitit import AutoExecutor, Job
    from submitit.helpers import DelayedSubmission

MOST_TASKS = 1_000
"""Tasks of one array: SLURM's MaxArraySize is 1,001 where nobody has changed it."""


@dataclass
class Task:
    """What a task of the array calls with its run, as it was planned when it was submitted.

    Attributes
    ----------
    folder : str
        The folder of the plan.
    grace : float
        Seconds that a program has to end in; less than those between SLURM's warning and the end of the time.
    children : Children, optional
        While it runs: its program.
    """

    folder: str
    grace: float = GRACE
    children: Children | None = field(default=None, compare=False)

    def __call__(self, run: PlannedRun) -> str:
        """Train the run; a failure is the job's, too.

        Signals interrupt the thread that waits, so that they are free to stop the program, which is another's.
        """
        self.children = Children(self.grace)
        place = Layout(Path(self.folder)).place(run.id)
        with _told_to_end(self.children), ThreadPoolExecutor(1) as pool:
            end = pool.submit(_attempt, run, place, self.children).result()
        if end.how == "failed":
            raise DataError(f"run {run.id} failed: {end.reason}", location=Location(str(place.log)))
        if end.how == "stopped":
            raise SystemExit(128 + signal.SIGTERM)
        return end.how

    def __getstate__(self) -> dict[str, object]:
        """Without its program, which is of one process."""
        return {**self.__dict__, "children": None}

    def checkpoint(self, run: PlannedRun) -> DelayedSubmission:
        """What submitit calls before the time is over, or the task is preempted: end well, and queue as it is."""
        from submitit.helpers import DelayedSubmission

        if self.children is not None:
            self.children.stop()
            self.children.wait()
        return DelayedSubmission(self, run)


def _attempt(run: PlannedRun, place: Place, children: Children) -> End:
    """Train the run; SLURM's warning, sent to every process, is not for its program, which would die of it."""
    warning = getattr(signal, "SIG" + os.environ.get("SUBMITIT_PREEMPT_SIGNAL", "USR2"))
    signal.pthread_sigmask(signal.SIG_BLOCK, {warning})
    return attempt(run, place, children)


@contextlib.contextmanager
def _told_to_end(children: Children) -> Iterator[None]:
    """Within, SIGTERM (scancel) is a stop; submitit passes over it."""
    before = signal.signal(signal.SIGTERM, lambda number, frame: Thread(target=children.stop, daemon=True).start())
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def submit(
    plan: Plan,
    layout: Layout,
    indices: Sequence[int],
    *,
    jobs: int | None = None,
    parameters: Mapping[str, str] | None = None,
    cluster: str = "slurm",
) -> list[Job[str]]:
    """Submit runs in arrays of at most 1,000 tasks, at most `jobs` of them at a time.

    Parameters
    ----------
    plan : Plan
        The runs; each task takes its own along, whatever becomes of the file meanwhile.
    layout : Layout
        Its folder; what SLURM and submitit write lies below, in `slurm`.
    indices : sequence of int
        The runs to train; a task whose run is finished, or claimed by another, ends at once.
    jobs : int, optional
        Tasks at a time, shared among the arrays.
    parameters : mapping of str to str, optional
        What sbatch is told, as `pairs_of` gives it: `partition`, `gres`, `time`, `cpus_per_task`, ...
    cluster : str
        `slurm`; or submitit's `local` or `debug`, for tests.

    Raises
    ------
    UsageError
        If submitit or SLURM is not there, or refuses.
    """
    try:
        import submitit
        from submitit.core.utils import FailedJobError
    except ImportError as error:
        hint = "pip install 'submitit>=1.5.4', or call `shapleymix run PLAN --index I` from a script of your own"
        raise UsageError("--backend slurm needs submitit", hint=hint) from error
    pieces = [indices[start : start + MOST_TASKS] for start in range(0, len(indices), MOST_TASKS)]
    if jobs is not None and jobs < len(pieces):
        hint = f"give at least {len(pieces)}; SLURM keeps to a limit within an array"
        raise UsageError(f"--jobs {jobs} for {len(indices)} runs, which are {len(pieces)} arrays", hint=hint)
    task = Task(str(layout.root), _grace(parameters or {}))
    told: Told = {"name": "shapleymix"}
    if cluster == "slurm":
        told |= keywords(parameters or {})
        told |= {} if jobs is None else {"slurm_array_parallelism": jobs // max(len(pieces), 1)}
    try:
        executor = submitit.AutoExecutor(folder=folder_of(layout) / "%j", cluster=cluster)
        executor.update_parameters(**told)
        return [job for piece in pieces for job in _handed_over(executor, task, plan, layout, piece)]
    except ShapleyMixError:
        raise
    except (RuntimeError, NameError, TypeError, ValueError, OSError, FailedJobError) as error:
        text = " ".join(str(error).split())
        hint = "see the options of sbatch; submitit writes them with _ in place of -"
        raise UsageError(f"SLURM or submitit refuses: {text:.300}", hint=hint) from error


def _handed_over(
    executor: AutoExecutor, task: Task, plan: Plan, layout: Layout, piece: Sequence[int]
) -> list[Job[str]]:
    """Submit one array, and note which run each of its tasks has."""
    runs = [plan.runs[index] for index in piece]
    jobs = executor.map_array(task, runs)
    if executor.cluster == "slurm":
        note(layout, Handed(tuple(job.job_id for job in jobs), tuple(run.id for run in runs)))
    return jobs


def _grace(parameters: Mapping[str, str]) -> float:
    """Most of the time between SLURM's warning and the end; submitit asks for 90 s where nothing else is said."""
    delay = parameters.get("signal_delay_s", "")
    return min(GRACE, 0.75 * int(delay)) if delay.isdecimal() else GRACE
