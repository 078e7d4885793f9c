"""Ids of runs: made where a table has none, told apart where files are named alike, and each once for each D."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from shapleymix.errors import Fault
from shapleymix.records import FloatArray
from shapleymix.tables.runs import RunLog
from shapleymix.tables.sheets import Sheet
from shapleymix.tables.training_logs import ONE_RUN, own_ids


def told_apart(sheets: Sequence[Sheet]) -> list[Sheet]:
    """The sheets, those of one run each with ids that tell them apart, as their files lie."""
    files = [sheet.origin for sheet in sheets if sheet.kind in ONE_RUN]
    ids = dict(zip(files, own_ids(files), strict=True))
    return [
        replace(sheet, columns={**sheet.columns, "run": [ids[sheet.origin]] * sheet.rows})
        if sheet.kind in ONE_RUN
        else sheet
        for sheet in sheets
    ]


def made_ids(
    N: FloatArray,
    D: FloatArray,
    p: FloatArray,
    unique: FloatArray | None,
    seed: tuple[str, ...] | None,
    notices: list[str],
) -> tuple[str, ...]:
    """Ids (R,) for rows that have none: those of one N, mixture and seed are one run, unless D repeats.

    A table without ratios has nothing to tell its runs apart: each row is one.
    """
    rows = len(N)
    if not p.shape[1]:
        notices.append("the table has no ids of runs: each row is a run of its own")
        return tuple(f"run-{row + 1}" for row in range(rows))
    limits = np.zeros((rows, 0)) if unique is None else unique
    exact = np.column_stack([N, np.round(p, 6), limits]).tolist()
    models = [(*map(repr, numbers), name) for numbers, name in zip(exact, seed or [""] * rows, strict=True)]
    seen: dict[tuple[object, ...], int] = {}
    names: dict[tuple[object, ...], str] = {}
    found = []
    for model, tokens in zip(models, D.tolist(), strict=True):
        time = seen[(*model, tokens)] = seen.get((*model, tokens), 0) + 1
        found.append(names.setdefault((*model, time), f"run-{len(names) + 1}"))
    notices.append("the table has no ids of runs: rows of one N, mixture and seed are one run")
    return tuple(found)


_REPEATS = "give each trained model its own run id, or remove the row"
_REPEATED_NAMES = 'name the column that tells the runs apart, map="run=ID", or remove the row'


def repeated_rows(sheet: Sheet, log: RunLog) -> Iterator[Fault]:
    """Rows of one run and D, after the first."""
    first: dict[tuple[str, float], int] = {}
    own = "run" not in sheet.columns or sheet.place("run").column == "run"
    for row, key in enumerate(zip(log.runs, log.D.tolist(), strict=True)):
        earlier = first.setdefault(key, row)
        if earlier != row and key[0] and key[1] == key[1]:
            message = f"repeats run {key[0]!r} at D = {key[1]:g} of line {sheet.lines[earlier]}"
            yield sheet.fault(row, "run", message, _REPEATS if own else _REPEATED_NAMES)
