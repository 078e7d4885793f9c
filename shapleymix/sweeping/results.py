"""What a run handed back, held to what was planned.

A run's program writes a run log, `runs.csv` or `runs.jsonl`, into its folder: `run, N, D, loss_<target>...`, a row a
checkpoint, in which `p_<source>` may be left out, since the plan knows the mixture. What it holds is checked once, when
the program has ended, and kept as `result.json`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import ClassVar

import numpy as np

from shapleymix.errors import DataError, Location, ShapleyMixError, StoreError
from shapleymix.records import FloatArray, Record
from shapleymix.sweeping.layout import HANDED_BACK, Place
from shapleymix.sweeping.plans import PlannedRun
from shapleymix.tables.run_reading import read_runs
from shapleymix.tables.runs import RunLog
from shapleymix.tables.simplex import ROUNDED, format_mixture
from shapleymix.tables.sizes import format_size

SHORT = 0.05
"""A run that ends by more than this part before D, or after it, is another run: steps and batches round by less."""
NEAR = 0.01
"""N and D that are off by more than this part are told."""


@dataclass(frozen=True)
class RunResult(Record):
    """The losses of one run.

    Attributes
    ----------
    sources, targets : tuple of str
        M and K labels.
    id : str
        The run's, as planned.
    N, D : array (R,)
        Parameters and tokens of each row, as realised; D = 0 is the untrained model.
    p : array (R, M)
        Ratios; zeros where untrained.
    loss : array (R, K)
        Losses, nats per token; NaN where not measured.
    unique : array (R, M)
        Unique tokens of each source, NaN where not said.
    notices : tuple of str
        What is not as planned.
    """

    kind = "run-result"
    axes: ClassVar = {"sources": "M", "targets": "K", "N": "R", "D": "R", "p": "RM", "loss": "RK", "unique": "RM"}

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    id: str
    N: FloatArray
    D: FloatArray
    p: FloatArray
    loss: FloatArray
    unique: FloatArray
    notices: tuple[str, ...] = ()


def take_result(run: PlannedRun, place: Place, short: float = SHORT) -> RunResult:
    """What the run's program left in its folder, checked and kept as `result.json`.

    Parameters
    ----------
    run : PlannedRun
        What was planned.
    place : Place
        Its folder.
    short : float
        By which part of D it may have ended before or after.

    Raises
    ------
    DataError
        If it left no run log, or one of another run: its mixture, its length, or without losses at its end.
    UsageError
        If the result cannot be written.
    """
    found = _checked(run, _log_of(place), short)
    found.save(place.result, force=True)
    place.failure.unlink(missing_ok=True)
    return found


@dataclass(frozen=True)
class Failure(Record):
    """How a run failed.

    Attributes
    ----------
    attempts : int
        How often it was started and did not finish.
    reason : str
        Why, the last time.
    """

    kind = "run-failure"

    attempts: int
    reason: str


def note_failure(place: Place, reason: str) -> Failure:
    """Count a failure of a run."""
    failure = Failure(failures_of(place) + 1, reason)
    failure.save(place.failure, force=True)
    return failure


def failure_of(place: Place) -> Failure | None:
    """How a run failed so far; a note that a full disk or a loss of power has broken stands for one failure."""
    try:
        return Failure.load(place.failure)
    except StoreError:
        return Failure(1, "the note of its failure is broken") if place.failure.exists() else None


def failures_of(place: Place) -> int:
    """How often a run failed so far."""
    failure = failure_of(place)
    return 0 if failure is None else failure.attempts


def is_finished(run: PlannedRun, place: Place) -> bool:
    """Whether the result of a run is there, whole and its own."""
    if not place.result.exists():
        return False
    try:
        result_of(run, place.result)
    except ShapleyMixError:
        return False
    return True


def unseen(place: Place) -> bool:
    """Whether a run log lies there that was written after the last failure that was noted, if any."""
    path = _path_of(place)
    if path is None:
        return False
    return not place.failure.exists() or path.stat().st_mtime_ns > place.failure.stat().st_mtime_ns


def make_folder(place: Place) -> None:
    """Make the folders of a run, and see that it can be written to.

    Raises
    ------
    OSError
        If it cannot be.
    """
    place.out.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile(dir=place.folder, prefix=".try."):  # a name of its own: two launchers may be here at once
        pass


def _path_of(place: Place) -> Path | None:
    """The run log that lies there; of two the newer: an attempt may find what an earlier one wrote in another form."""
    there = [place.out / name for name in HANDED_BACK if (place.out / name).is_file()]
    return max(there, key=lambda path: path.stat().st_mtime_ns, default=None)


def _log_of(place: Place) -> RunLog:
    path = _path_of(place)
    if path is None:
        hint = "the program of a run leaves its losses there: run, N, D, loss_<target>..."
        raise DataError(f"left no {' or '.join(HANDED_BACK)}", location=Location(str(place.out)), hint=hint)
    return read_runs(path)


def _checked(run: PlannedRun, log: RunLog, short: float) -> RunResult:
    place = Location(log.origin)
    trained = log.trained
    ids = set(np.array(log.runs)[trained].tolist())
    if len(ids) != 1:
        raise DataError(f"holds {len(ids)} trained runs, expected one", location=place)
    if len(sizes := sorted({float(N) for N in log.N})) > 1:
        raise DataError(
            f"holds N from {format_size(sizes[0])} to {format_size(sizes[-1])}, expected one", location=place
        )
    sources = tuple(run.mixture)
    p = np.where(trained[:, None], _ratios(log, run, place), 0.0)
    last = int(np.argmax(log.D))
    ended = float(log.D[last])
    if abs(ended / run.D - 1) > short:
        told = f"ended at D = {format_size(ended)}, planned was {format_size(run.D)}"
        raise DataError(told, location=place, hint="the program stopped early, or was told another D")
    if not log.measured[last].any():
        raise DataError("has no loss at its end", location=place)
    none = np.full(p.shape, np.nan)
    unique = none if log.unique is None or not log.sources else _spread(log.unique, log.sources, sources, np.nan)
    return RunResult(sources, log.targets, run.id, log.N, log.D, p, log.loss, unique, _notices(run, log, last))


def _ratios(log: RunLog, run: PlannedRun, place: Location) -> FloatArray:
    """Ratios (R, M) of the rows: those of the log if it has any, held to the planned ones, else these."""
    sources = tuple(run.mixture)
    planned = np.array(list(run.mixture.values()))
    if not log.sources:
        return np.tile(planned, (len(log), 1))
    others = [name for i, name in enumerate(log.sources) if name not in run.mixture and (log.p[:, i] > 0).any()]
    if others:
        raise DataError(f"trained on {', '.join(others)}, of which the plan says nothing", location=place)
    p = _spread(log.p, log.sources, sources, 0.0)
    if np.abs(p[log.trained] - planned).max() > ROUNDED:
        told, asked = (format_mixture(one, sources, 4) for one in (p[log.trained][-1], planned))
        raise DataError(f"trained on {told}, planned was {asked}", location=place)
    return p


def _spread(values: FloatArray, have: tuple[str, ...], want: tuple[str, ...], missing: float) -> FloatArray:
    """Columns (R, M) in the plan's order, those that are not there filled."""
    found = np.full((len(values), len(want)), missing)
    for column, name in enumerate(want):
        if name in have:
            found[:, column] = values[:, have.index(name)]
    return found


def _notices(run: PlannedRun, log: RunLog, last: int) -> tuple[str, ...]:
    """What differs from the plan and is no fault: the log has what was realised."""
    said = []
    for name, found, planned in (("N", float(log.N[last]), run.N), ("D", float(log.D[last]), run.D)):
        if abs(found / planned - 1) > NEAR:
            said.append(f"{name} is {format_size(found)}, planned was {format_size(planned)}")
    measured = {name for name, known in zip(log.targets, log.measured[last].tolist(), strict=True) if known}
    if absent := [name for name in run.mixture if name not in measured]:
        said.append(f"no loss of {', '.join(absent)} at its end")
    if others := [name for name in log.targets if name not in run.mixture]:
        said.append(f"losses of {', '.join(others)}, of which the plan says nothing")
    left = [name for name, column in (("weight", log.weight), ("split", log.split)) if column is not None]
    return (*said, *([f"{' and '.join(left)} of its run log are left out"] if left else []))


def result_of(run: PlannedRun, place: Path) -> RunResult:
    """The result that was kept of a run.

    Raises
    ------
    StoreError
        If the file is broken.
    DataError
        If it is another run's.
    """
    found = RunResult.load(place)
    if found.id != run.id or found.sources != tuple(run.mixture):
        hint = "remove this file, and launch the plan again"
        raise DataError(f"is the result of run {found.id:.40}", location=Location(str(place)), hint=hint)
    return found
