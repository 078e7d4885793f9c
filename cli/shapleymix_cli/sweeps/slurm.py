"""A sweep as SLURM's arrays, by submitit: each task trains one run by its index, as `shapleymix run` does."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from shapleymix.errors import UsageError
from shapleymix.sweeping.layout import Layout
from shapleymix.sweeping.plans import read_plan
from shapleymix_cli.sweeps.attempts import attempt
from shapleymix_cli.sweeps.children import Children

if TYPE_CHECKING:
    from submitit import Job
    from submitit.helpers import DelayedSubmission

MOST_TASKS = 1_000
"""Tasks of one array: SLURM's MaxArraySize is 1,001 where nobody has changed it."""


@dataclass(frozen=True)
class Task:
    """What a task of the array calls with an index; one that is preempted is put into the queue again as it is."""

    plan: str
    folder: str

    def __call__(self, index: int) -> str:
        run = read_plan(self.plan).runs[index]
        end = attempt(run, Layout(Path(self.folder)).place(run.id), Children())
        return f"{end.how} {end.reason}".strip()

    def checkpoint(self, index: int) -> DelayedSubmission:
        """What submitit calls before the time is over, or the task is preempted."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, index)


def submit(
    plan: str,
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
    plan : str
        The file of the plan, which the nodes see under the same name.
    layout : Layout
        Its folder; what SLURM and submitit write lies below, in `slurm`.
    indices : sequence of int
        The runs to train; a task whose run is finished, or claimed by another, ends at once.
    jobs : int, optional
        Tasks at a time, shared among the arrays.
    parameters : mapping of str to str, optional
        What sbatch is told: `partition`, `gres`, `time` (minutes), `cpus_per_task`, ...
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
        hint = "pip install 'shapleymix[slurm]', or call `shapleymix run PLAN --index I` from a script of your own"
        raise UsageError("--backend slurm needs submitit", hint=hint) from error
    pieces = [indices[start : start + MOST_TASKS] for start in range(0, len(indices), MOST_TASKS)]
    task = Task(os.path.abspath(plan), str(layout.root))
    try:
        executor = submitit.AutoExecutor(folder=layout.root / "slurm" / "%j", cluster=cluster)
        executor.update_parameters(**_parameters(parameters or {}, jobs, len(pieces), cluster))
        return [job for piece in pieces for job in executor.map_array(task, piece)]
    except (RuntimeError, NameError, TypeError, ValueError, OSError, FailedJobError) as error:
        text = " ".join(str(error).split())
        hint = "see the options of sbatch; submitit writes them with _ in place of -"
        raise UsageError(f"SLURM or submitit refuses: {text:.300}", hint=hint) from error


def _parameters(given: Mapping[str, str], jobs: int | None, arrays: int, cluster: str) -> dict[str, str | int]:
    found: dict[str, str | int] = {"name": "shapleymix"}
    if cluster == "slurm":
        found |= {f"slurm_{name.replace('-', '_')}": _value(text) for name, text in given.items()}
        if jobs is not None:
            found["slurm_array_parallelism"] = max(1, jobs // max(arrays, 1))
    return found


def _value(text: str) -> str | int:
    return int(text) if text.isdecimal() else text
