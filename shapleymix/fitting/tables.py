"""Tables as people give them, paths or objects, turned into what a fit needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shapleymix.fitting.evidence import Evidence, Filters, gather
from shapleymix.laws import Inputs
from shapleymix.tables.languages import Languages, read_languages
from shapleymix.tables.reading import Table
from shapleymix.tables.runs import RunLog, concat, read_runs
from shapleymix.tables.transfer import TransferMatrix, read_transfer

Logs = RunLog | Table | Sequence[RunLog | Table]


def one_log(logs: Logs) -> RunLog:
    """One log from one or several; rows in an order of their own, so that the file's order changes nothing."""
    listed: list[Any] = list(logs) if isinstance(logs, (list, tuple)) else [logs]
    read = [log if isinstance(log, RunLog) else read_runs(log) for log in listed]
    log = read[0] if len(read) == 1 else concat(read)
    order = sorted(range(len(log)), key=lambda row: (log.mixture_keys[row], log.N[row], log.D[row], log.runs[row]))
    return log.select(np.array(order, dtype=np.int64))


def evidence_of(
    logs: Logs, min_tokens: float = 0.0, min_own_tokens: float = 0.0, *, with_held_out: bool = False
) -> Evidence:
    """The evidence in the logs; rows that a split column sets aside only `with_held_out`."""
    return gather(one_log(logs), Filters(min_tokens, min_own_tokens), with_held_out=with_held_out)


def inputs_of(
    log: RunLog, transfer: TransferMatrix | Table | None = None, languages: Languages | Table | None = None
) -> Inputs:
    """The labels, the transfer matrix and the languages table of a fit."""
    matrix = transfer if transfer is None or isinstance(transfer, TransferMatrix) else read_transfer(transfer)
    known = languages if languages is None or isinstance(languages, Languages) else read_languages(languages)
    return Inputs(log.sources, log.targets, matrix, known)
