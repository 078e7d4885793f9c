"""The folder while it is prepared: whose it is, and what of it is finished."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO

import numpy as np

from shapleymix.errors import Location, StoreError, UsageError
from shapleymix.records import Record
from shapleymix_irds.train.data.documents import SPLITS
from shapleymix_irds.train.data.pieces import Reading, cut, kind_of
from shapleymix_irds.train.data.prepared.manifest import FULL, MANIFEST, Language, Settings, Source
from shapleymix_irds.train.disk import disk_errors

SETTINGS = "settings.json"
LANGUAGE = "language.json"
PLAN = "plan.json"
PARTS = ".parts"  # pieces that are not yet merged
LOCK = ".lock"
ANEW = "restore it, name another folder with -o, or begin anew with --force"


@dataclass(frozen=True)
class Plan(Record):
    """How one language is prepared: the type of its numbers, its files, and their pieces (file, start, stop)."""

    kind = "preparation"

    dtype: str
    files: tuple[Source, ...]
    pieces: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Place:
    """Where the files of a prepared folder lie."""

    root: Path

    def language(self, name: str) -> Path:
        """The record of a finished language."""
        return self.root / name / LANGUAGE

    def stream(self, name: str, split: str, ending: str) -> Path:
        """The tokens or documents of a split."""
        return self.root / name / f"{split}.{ending}"

    def parts(self, name: str) -> Path:
        """The folder of a language's pieces."""
        return self.root / PARTS / name


@contextlib.contextmanager
def claimed(out: Path) -> Iterator[None]:
    """Within, the folder is this process's; the lock ends with the process, however it dies.

    Raises
    ------
    UsageError
        If it holds something else, cannot be written, or another process prepares it.
    """
    if out.exists() and not out.is_dir():
        raise UsageError("is a file, expected a folder", location=Location(file=str(out)), hint="give -o a folder")
    with disk_errors(out, FULL), contextlib.ExitStack() as stack:
        out.mkdir(parents=True, exist_ok=True)
        _check_own(out)
        _lock(out, stack.enter_context((out / LOCK).open("a")))
        kept = stack.pop_all()
    with kept:
        yield


def _check_own(out: Path) -> None:
    """Refuse a folder that holds other things."""
    foreign = next((path.name for path in sorted(out.iterdir()) if not path.name.startswith(".")), None)
    if foreign and not ((out / SETTINGS).exists() or (out / MANIFEST).exists()):
        hint = "give -o a folder that is new or empty"
        raise UsageError(f"holds {foreign}, and is no prepared corpus", location=Location(file=str(out)), hint=hint)


def _lock(out: Path, stream: IO[str]) -> None:
    """Refuse a folder that another process has locked."""
    with contextlib.suppress(OSError):  # a file system without locks
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message, hint = "another process prepares this folder", "wait for it to end, or choose another -o"
            raise UsageError(message, location=Location(file=str(out)), hint=hint) from None


def clear(out: Path) -> None:
    """Remove what was prepared in a folder, and nothing else; the manifest first, so that nobody trains on a rest."""
    for name in (MANIFEST, SETTINGS):
        (out / name).unlink(missing_ok=True)
    shutil.rmtree(out / PARTS, ignore_errors=True)
    for path in (path for path in out.iterdir() if path.is_dir()):
        for name in (LANGUAGE, *(f"{split}.{ending}" for split in SPLITS for ending in ("tokens", "documents"))):
            (path / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # it holds something else
            path.rmdir()


def check_settings(out: Path, settings: Settings) -> None:
    """Refuse to continue what was begun with other settings; write them down where nothing was begun.

    Raises
    ------
    UsageError
        With what differs.
    StoreError
        If what was written is broken.
    """
    path = out / SETTINGS
    if not path.exists():
        settings.save(path)
    elif changed := Settings.load(path).changed(settings):
        message = f"was prepared with other settings: {'; '.join(changed)}"
        raise UsageError(message, location=Location(file=str(out)), hint="give them, another -o, or --force")


def sources_of(root: Path, files: list[Path]) -> tuple[Source, ...]:
    """Files as they are now."""
    found = ((path, path.stat()) for path in files)
    return tuple(Source(str(path.relative_to(root)), stat.st_size, stat.st_mtime_ns) for path, stat in found)


def finished(place: Place, name: str, files: tuple[Source, ...]) -> Language | None:
    """The record of a language that was prepared to its end.

    Raises
    ------
    UsageError
        If its files are not those that it was made of.
    """
    path = place.language(name)
    if not path.exists():
        return None
    language = Language.load(path)
    _check_files(name, language.files, files)
    return language


def plan_of(place: Place, root: Path, name: str, files: tuple[Source, ...], reading: Reading, size: int) -> Plan:
    """The plan by which a language was begun, or a new one.

    Raises
    ------
    UsageError
        If its files have changed since.
    """
    path = place.parts(name) / PLAN
    if path.exists():
        with contextlib.suppress(StoreError):  # cut short when the machine went down: nothing was begun by it
            plan = Plan.load(path)
            _check_files(name, plan.files, files)
            return plan
    shutil.rmtree(place.parts(name), ignore_errors=True)
    path.parent.mkdir(parents=True)
    paths = [root / source.file for source in files]
    kind = max((kind_of(each, reading) for each in paths), key=lambda kind: kind.itemsize)
    bounds = [(number, cut(each, size, reading.end)) for number, each in enumerate(paths)]
    pieces = tuple((number, start, stop) for number, cuts in bounds for start, stop in pairwise(cuts))
    plan = Plan(np.dtype(kind).name, files, pieces)
    plan.save(path)
    return plan


def _check_files(name: str, before: tuple[Source, ...], now: tuple[Source, ...]) -> None:
    """Refuse to mix what was made of files with what has become of them."""
    if before == now:
        return
    known, found = ({source.file: source for source in sources} for sources in (before, now))
    file = next(each for each in sorted({*known, *found}) if known.get(each) != found.get(each))
    what = "is new" if file not in known else "is missing" if file not in found else "has changed"
    message = f"{what} since language {name!r} was prepared"
    raise UsageError(message, location=Location(file=file), hint=ANEW)
