"""Which runs SLURM has already: what was handed to it, and which of these jobs still wait or run.

Beside the logs of an array, in `slurm/array-<job>.json`, stands which run each of its tasks has. Of these jobs squeue
knows which are over. Who submits holds a lock, so that of two that do at once the second sees the first's jobs.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from shapleymix.errors import Location, StoreError, UsageError
from shapleymix.records import Record
from shapleymix.sweeping.layout import Layout
from shapleymix_cli.sweeps.claims import claimed, holder_of

ASK = ("squeue", "--noheader", "--array", "--format=%i")
PATIENCE = 120


@dataclass(frozen=True)
class Handed(Record):
    """An array of SLURM's, or a single job.

    Attributes
    ----------
    jobs : tuple of str
        Ids of its tasks, as squeue says them.
    runs : tuple of str
        Ids of their runs.
    """

    kind = "slurm-array"
    axes: ClassVar = {"jobs": "J", "runs": "J"}

    jobs: tuple[str, ...]
    runs: tuple[str, ...]


def folder_of(layout: Layout) -> Path:
    """Where SLURM, submitit and these notes lie."""
    return layout.root / "slurm"


def note(layout: Layout, handed: Handed) -> None:
    """Note what was submitted."""
    folder_of(layout).mkdir(parents=True, exist_ok=True)
    handed.save(folder_of(layout) / f"array-{handed.jobs[0].partition('_')[0]}.json", force=True)


@contextlib.contextmanager
def submitting(layout: Layout) -> Iterator[dict[str, str]]:
    """Within, nobody else submits runs of this folder; the jobs that wait or run already, by the ids of their runs.

    Raises
    ------
    UsageError
        If somebody else submits now, the folder cannot be written, or squeue does not answer.
    """
    folder = folder_of(layout)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with claimed(folder / "claim") as claim:
            if claim is None:
                who = holder_of(folder / "claim") or "another process"
                raise UsageError(f"runs of this folder are submitted now by {who}", hint="call this again in a minute")
            yield _waiting(folder)
    except OSError as error:
        raise UsageError(f"cannot be written: {error.strerror or error}", location=Location(str(folder))) from error


def _waiting(folder: Path) -> dict[str, str]:
    """The jobs that are not over by the ids of their runs; notes of arrays that are over are removed."""
    notes = sorted(folder.glob("array-*.json"))
    alive = _alive() if notes else set()
    found: dict[str, str] = {}
    for path in notes:
        try:
            handed = Handed.load(path)
        except StoreError as error:
            hint = "see squeue, and remove this file when its jobs are over"
            raise UsageError(
                f"which runs wait cannot be told: {error.message}", location=error.location, hint=hint
            ) from error
        waiting = {run: job for job, run in zip(handed.jobs, handed.runs, strict=True) if job in alive}
        found |= waiting
        if not waiting:
            path.unlink(missing_ok=True)
    return found


def _alive() -> set[str]:
    """Ids of all jobs that wait or run, each task of an array by itself."""
    hint = "runs of this plan were submitted before, and could be trained twice: ask again when SLURM answers"
    try:
        done = subprocess.run(ASK, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"squeue does not answer: {error}", hint=hint) from error
    if done.returncode:
        raise UsageError(f"squeue does not answer: {' '.join(done.stderr.split()):.300}", hint=hint)
    return set(done.stdout.split())
