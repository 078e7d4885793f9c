"""From a folder of text to a prepared one.

Whatever ends it, the same command continues: pieces that were written whole are kept, and what was begun of others is
written again. Languages are finished one by one, so that later ones can be added to a folder.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from shapleymix.errors import DataError, Location, UsageError
from shapleymix_irds.train.data.corpus import check_shares, chosen, languages_in
from shapleymix_irds.train.data.documents import SPLITS
from shapleymix_irds.train.data.prepared.folder import (
    PARTS,
    Place,
    Plan,
    check_settings,
    claimed,
    clear,
    finished,
    plan_of,
    sources_of,
)
from shapleymix_irds.train.data.prepared.manifest import (
    MANIFEST,
    Language,
    Manifest,
    Settings,
    Source,
    is_prepared,
    read_manifest,
)
from shapleymix_irds.train.data.prepared.merging import Merge, merge
from shapleymix_irds.train.data.prepared.pool import shared_out
from shapleymix_irds.train.data.prepared.writing import Task, Written, write_piece, written

PIECES = (1 << 23, 1 << 28)  # least and most bytes of a piece: at most minutes of work, which is what a stop can cost
FOR_EACH_JOB = 8  # pieces at least, if they are not too small, so that no process is left over
TOLD_EVERY = 5.0  # seconds


@dataclass(frozen=True)
class How:
    """How the work is done, which changes nothing of what comes out.

    Attributes
    ----------
    jobs : int
        Processes.
    force : bool
        Whether what a folder holds is prepared anew.
    piece : int, optional
        Bytes of a source that are prepared at once; as suits the sources if not given.
    tell : callable
        What takes lines of progress.
    """

    jobs: int = 1
    force: bool = False
    piece: int | None = None
    tell: Callable[[str], None] = lambda _: None

    def piece_of(self, sources: dict[str, tuple[Source, ...]]) -> int:
        """Bytes of a piece of these sources."""
        total = sum(source.bytes for each in sources.values() for source in each)
        return self.piece or min(max(total // (FOR_EACH_JOB * self.jobs), PIECES[0]), PIECES[1])


def prepare(
    corpus: Path, out: Path, languages: tuple[str, ...], settings: Settings, how: How | None = None
) -> Manifest:
    """Prepare languages of a corpus folder, or continue to.

    Raises
    ------
    UsageError
        If a language or a setting is wrong, the folder is another's, or the disk is full.
    DataError
        If a source is broken, or a split is empty.
    """
    how = how or How()
    check_shares(settings.val_share, settings.test_share, validated=False)
    if is_prepared(corpus):
        raise UsageError("is prepared already", location=Location(file=str(corpus)), hint="train on it: --corpus")
    files = chosen(str(corpus), languages)
    _check_apart(corpus, out)
    with claimed(out):
        if how.force:
            clear(out)
        check_settings(out, settings)
        found = _prepared(corpus, Place(out), files, settings, how)
        known = read_manifest(out).languages if is_prepared(out) else {}
        manifest = Manifest(settings, _in_order({**known, **found}, list(languages_in(str(corpus)))))
        manifest.save(out / MANIFEST, force=True)
        shutil.rmtree(out / PARTS, ignore_errors=True)
    return manifest


def _in_order(languages: dict[str, Language], order: list[str]) -> dict[str, Language]:
    """Languages as the corpus lists them, whenever they were added; those that it has no more come last."""
    return {name: languages[name] for name in (*order, *languages) if name in languages}


def _check_apart(corpus: Path, out: Path) -> None:
    """Refuse to write among the sources."""
    inside, outside = out.resolve(), corpus.resolve()
    if inside == outside or outside in inside.parents:
        message = f"lies within the corpus {corpus}"
        raise UsageError(message, location=Location(file=str(out)), hint="name a folder beside it with -o")


def _prepared(
    root: Path, place: Place, files: dict[str, list[Path]], settings: Settings, how: How
) -> dict[str, Language]:
    """The languages, of which those that are finished already take no time."""
    sources = {name: sources_of(root, paths) for name, paths in files.items()}
    found = {name: finished(place, name, each) for name, each in sources.items()}
    plans = {
        name: plan_of(place, root, name, sources[name], settings.reading, how.piece_of(sources))
        for name, language in found.items()
        if language is None
    }
    pieces = _write(root, place, plans, settings, how)
    merges = [Merge(place, name, plan, pieces[name]) for name, plan in plans.items()]
    for task in merges:
        _check_filled(task.language, task.pieces)
    made = {merges[number].language: language for number, language in shared_out(merge, merges, how.jobs)}
    return {name: language or made[name] for name, language in found.items()}


def _write(root: Path, place: Place, plans: dict[str, Plan], settings: Settings, how: How) -> dict[str, list[Written]]:
    """What the pieces of each language hold, once all of them are written."""
    tasks = [
        Task(name, root / plan.files[file].file, start, stop, place.parts(name), number, plan.dtype, settings)
        for name, plan in plans.items()
        for number, (file, start, stop) in enumerate(plan.pieces)
    ]
    known = {(task.language, task.number): written(task) for task in tasks}
    left = [task for task in tasks if known[task.language, task.number] is None]
    if len(left) < len(tasks):
        how.tell(f"{len(tasks) - len(left)} of {len(tasks)} pieces are there already")
    clock = _Clock(len(left), how.tell)
    for number, each in shared_out(write_piece, left, how.jobs):
        known[left[number].language, left[number].number] = each
        clock.count(sum(each.tokens))
    whole = {key: each for key, each in known.items() if each is not None}
    return {name: [whole[name, number] for number in range(len(plan.pieces))] for name, plan in plans.items()}


class _Clock:
    """Says now and then how far the work has come."""

    def __init__(self, pieces: int, tell: Callable[[str], None]) -> None:
        self._pieces, self._tell = pieces, tell
        self._done = self._tokens = 0
        self._began = self._last = time.monotonic()

    def count(self, tokens: int) -> None:
        """A piece more is written."""
        self._done, self._tokens = self._done + 1, self._tokens + tokens
        now = time.monotonic()
        if now - self._last < TOLD_EVERY and self._done < self._pieces:
            return
        self._last = now
        rate = self._tokens / max(now - self._began, 1e-9)
        self._tell(f"{self._done} of {self._pieces} pieces, {self._tokens / 1e6:,.1f}M tokens, {rate:,.0f} a second")


def _check_filled(language: str, pieces: list[Written]) -> None:
    """Refuse a language of which a split is empty: it could not be trained on, or not be measured."""
    counts = [sum(piece.documents[number] for piece in pieces) for number in range(len(SPLITS))]
    if all(counts):
        return
    message = f"language {language!r} has {sum(counts)} documents, of which none is in {SPLITS[counts.index(0)]}"
    raise DataError(message, hint="separate documents by an empty line; give more text, or larger shares")
