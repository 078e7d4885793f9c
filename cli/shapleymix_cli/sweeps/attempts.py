"""One run: claimed, started, waited for, and what it left taken as its result."""

from __future__ import annotations

import errno
import os
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import BinaryIO, Literal

from shapleymix.errors import Location, ShapleyMixError, UsageError
from shapleymix.sweeping.layout import Place
from shapleymix.sweeping.plans import PlannedRun
from shapleymix.sweeping.results import (
    NEAR,
    SHORT,
    Failure,
    failure_of,
    failures_of,
    is_finished,
    make_folder,
    note_failure,
    take_result,
)
from shapleymix.sweeping.templates import ID, OUT, OWN, started
from shapleymix_cli.sweeps.children import Children
from shapleymix_cli.sweeps.claims import UNKNOWN, Holder, claimed, holder_of
from shapleymix_cli.sweeps.leftovers import left_behind

How = Literal["finished", "failed", "held", "stopped"]
NO_ROOM = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
WAITS = (1, 5, 25)
"""Seconds until a program is started again for which the machine had no process, memory or file left."""
TAIL = 5
HEAD = "--- "
"""Beginning of the line of a log with which an attempt begins."""
_LAST = 4096


@dataclass(frozen=True)
class End:
    """How one attempt at a run ended: finished (`trained` by it, or before), failed for a reason, which it has done so
    often, held by another process, or stopped; and what is not as planned, and no fault."""

    how: How
    reason: str = ""
    trained: bool = True
    failures: int = 0
    notices: tuple[str, ...] = ()
    holder: Holder = UNKNOWN


def attempt(
    run: PlannedRun, place: Place, children: Children, *, env: Mapping[str, str] | None = None, most: int | None = None
) -> End:
    """Train a run, unless it is finished, another process's, or has failed `most` times.

    Its program starts in this process's folder, with its own folder as `{out}`. A failure is counted in the folder; one
    that a stop has brought about is none.

    Raises
    ------
    UsageError
        If the folder cannot be written.
    """
    try:
        make_folder(place)
        with claimed(place.claim) as claim:
            if is_finished(run, place):
                return End("finished", trained=False)
            if claim is None:
                return End("held", holder=holder_of(place.claim) or UNKNOWN)
            if left_behind(run, place):
                return End("finished", trained=False)
            failure = failure_of(place)
            if most is not None and failure is not None and failure.attempts >= most:
                return _end_of(failure)
            return _trained(run, place, children, env or {}, claim)
    except OSError as error:
        hint = "make room, or give --folder somewhere that can be written"
        raise UsageError(
            f"cannot be written: {error.strerror or error}", location=Location(str(place.folder)), hint=hint
        ) from error


def words_of(run: PlannedRun, place: Place) -> tuple[str, ...]:
    """The words that start a run."""
    return started(run.command, {OUT: str(place.out), ID: run.id})


def _trained(run: PlannedRun, place: Place, children: Children, env: Mapping[str, str], claim: int) -> End:
    words = words_of(run, place)
    with place.log.open("ab") as log:
        began = datetime.now().astimezone().isoformat(timespec="seconds")
        log.write(f"{HEAD}{began} attempt {failures_of(place) + 1}: {shlex.join(words)}\n".encode("utf-8", "replace"))
        log.flush()
        try:
            code = _run(words, log, {**os.environ, **_path(), **env}, claim, place, children)
        except (OSError, ValueError) as error:
            return _failed(place, f"{words[0]!r} cannot be started: {_why(words[0], error)}")
    stopped = children.stopped.is_set()
    if code == 0:
        try:  # a program that is asked to end may do so with 0, long before it is through
            taken = take_result(run, place, NEAR if stopped else SHORT)
        except ShapleyMixError as error:
            if stopped:
                return End("stopped")
            return _failed(place, str(error).replace("\n  hint: ", " (") + (")" if error.hint else ""))
        return End("finished", notices=taken.notices)
    if code is None or stopped:
        return End("stopped")
    return _failed(place, _ended(code))


def _run(
    words: Sequence[str], log: BinaryIO, env: Mapping[str, str], claim: int, place: Place, children: Children
) -> int | None:
    """Run the program; where the machine has no room for a process, again after a while: others may end."""
    for wait in WAITS:
        try:
            return children.run(words, log, env=env, claim=claim, folder=str(place.folder))
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            children.stopped.wait(wait)
    return children.run(words, log, env=env, claim=claim, folder=str(place.folder))


def _why(program: str, error: OSError | ValueError) -> str:
    """What the system says, and what to install where the trainer of this repository is not there."""
    told = str(getattr(error, "strerror", None) or error)
    absent = program == OWN and isinstance(error, FileNotFoundError)
    return f"{told} (pip install '.[irds]' in a clone of ShapleyMix)" if absent else told


def _path() -> dict[str, str]:
    """Where programs are found: as ever, and last beside this Python, whose environment need not be activated."""
    return {"PATH": os.pathsep.join([os.environ.get("PATH", os.defpath), os.path.dirname(sys.executable)])}


def _failed(place: Place, reason: str) -> End:
    """Note a failure; files are told as they lie in the folder of the run, so that runs that fail alike read alike."""
    return _end_of(note_failure(place, reason.replace(f"{place.folder}{os.sep}", "")))


def _end_of(failure: Failure) -> End:
    return End("failed", failure.reason, failures=failure.attempts)


def _ended(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def last_words(place: Place) -> list[str]:
    """The last lines that a run's program said when it was last started."""
    try:
        with place.log.open("rb") as log:
            log.seek(max(log.seek(0, os.SEEK_END) - _LAST, 0))
            lines = log.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    began = max((place for place, line in enumerate(lines) if line.startswith(HEAD)), default=-1)
    return [line for line in lines[began + 1 :] if line.strip()][-TAIL:]
