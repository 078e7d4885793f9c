"""A prepared folder, read through and compared with its hashes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from shapleymix.errors import DataError, Fault, Location
from shapleymix_irds.train.data.documents import SPLITS, digest_of, split_of, token_digest
from shapleymix_irds.train.data.prepared.folder import Place
from shapleymix_irds.train.data.prepared.manifest import Language, Manifest, Settings, check_sizes, read_manifest
from shapleymix_irds.train.data.prepared.merging import map_rows
from shapleymix_irds.train.data.prepared.pool import shared_out
from shapleymix_irds.train.data.ready import cut_documents

CHECKED_AT_ONCE = 1 << 26  # tokens of a task
AGAIN = "restore the file, or prepare the corpus again (--force)"


class Check(NamedTuple):
    """Some documents of a split to read; all rows as well, if they are the first."""

    tokens: Path
    rows: Path
    dtype: str
    largest: int
    first: int
    after: int
    split: int
    digest: str
    settings: Settings


def verify(folder: Path, jobs: int = 1) -> Manifest:
    """Read all of a prepared folder.

    Raises
    ------
    StoreError
        If its manifest is broken.
    DataError
        With each file that is not what it was, and the first document in it.
    """
    manifest = read_manifest(folder)
    tasks: list[Check] = []
    for name, language in manifest.languages.items():
        check_sizes(folder, name, language)
        tasks += _checks(Place(folder), name, language, manifest.settings)
    found = sorted((number, fault) for number, fault in shared_out(check, tasks, jobs) if fault)
    faults = {
        tasks[number].tokens: Fault(text, Location(file=file), hint=AGAIN) for number, (file, text) in found[::-1]
    }
    if faults:
        raise DataError.of(list(faults.values())[::-1], str(folder))
    return manifest


def _checks(place: Place, name: str, language: Language, settings: Settings) -> Iterator[Check]:
    for number, split in enumerate(SPLITS):
        tokens, rows = (place.stream(name, split, ending) for ending in ("tokens", "documents"))
        ends = map_rows(rows)["end"]
        bounds = cut_documents(np.diff(ends, prepend=0), CHECKED_AT_ONCE)
        digest = language.split(split).digest
        for first, after in pairwise(bounds):
            yield Check(tokens, rows, language.numbers.str, language.largest, first, after, number, digest, settings)


def check(task: Check) -> tuple[str, str] | None:
    """The file that is wrong and what is wrong with it; None if nothing is."""
    rows = map_rows(task.rows)
    if not task.first and digest_of(rows) != task.digest:
        return str(task.rows), "is not what was written: its hash is another"
    some = rows[task.first : task.after]
    settings = task.settings
    if (split_of(some["place"], settings.val_share, settings.test_share) != task.split).any():
        return str(task.rows), "holds documents of another split"
    tokens = np.asarray(np.memmap(task.tokens, task.dtype, "r"))
    begin = start = int(rows["end"][task.first - 1]) if task.first else 0
    for number, (end, digest) in enumerate(zip(some["end"].tolist(), some["digest"].tolist(), strict=True)):
        if token_digest(tokens[begin:end]) != digest:
            return str(task.tokens), f"document {task.first + number + 1} is not what was written (token {begin:,} on)"
        begin = end
    if begin > start and (largest := int(tokens[start:begin].max())) > task.largest:
        return str(task.tokens), f"holds the token {largest}, larger than the {task.largest} of the manifest"
    return None
