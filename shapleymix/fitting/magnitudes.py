"""Numbers that a law can be fitted to: budgets, ratios, losses and weights, or the place of each that is none.

Tables are checked as they are read; here the same holds for logs that were made in memory.
"""

from __future__ import annotations

import numpy as np

from shapleymix.errors import DataError, Fault, Location
from shapleymix.records import BoolArray, FloatArray, IntArray
from shapleymix.tables.runs import BUDGETS, LOSSES, RunLog

FAINTEST = 1e-250
"""A weight that is a smaller share of the largest cannot be told from 0 in sums of doubles and their squares."""


def require_magnitudes(log: RunLog) -> None:
    """Refuse numbers that are none, or so large or small that a law's powers of them leave floating point.

    Raises
    ------
    DataError
        With every such number: its file, line, column, run and value.
    """
    columns: dict[str, tuple[FloatArray, BoolArray, str]] = {
        name: (values, ~_within(values, BUDGETS), f"outside of {_range(BUDGETS)}, where laws are fitted")
        for name, values in (("N", log.N), ("D", log.D))
    }
    for name, ratio in zip(log.sources, log.p.T, strict=True):
        columns[f"p_{name}"] = (ratio, ~_within(ratio, (0.0, 1.0 + 1e-9)), "not between 0 and 1")
    for name, loss in zip(log.targets, log.loss.T, strict=True):
        beyond = ~_within(loss, LOSSES) & ~np.isnan(loss)
        columns[f"loss_{name}"] = (loss, beyond, f"outside of {_range(LOSSES)}, where laws are fitted")
    if log.weight is not None:
        columns["weight"] = _weights(log.weight)
    faults = [
        (row, Fault(f"{name} = {values[row]:g} of run {log.runs[row]!r} is {why}", _place(log, row, name), hint=_HINT))
        for name, (values, wrong, why) in columns.items()
        for row in np.flatnonzero(wrong).tolist()
    ]
    if faults:
        ordered = sorted(faults, key=lambda fault: (fault[1].location.line or 0, fault[0]))
        raise DataError.of([fault for _, fault in ordered], log.origin)


_HINT = "N counts parameters, D tokens; losses are nats per token; a weight of 0 leaves a row out"


def scaled_weights(log: RunLog) -> FloatArray:
    """(R,) weights of the rows, the largest between 1 and 2: only their shares matter, and sums must not overflow.

    The factor is a power of two, so that no digit changes.
    """
    if log.weight is None:
        return np.ones(len(log))
    return np.ldexp(log.weight, 1 - int(np.frexp(log.weight.max())[1]))


def _weights(weight: FloatArray) -> tuple[FloatArray, BoolArray, str]:
    """Finite, not negative, and either 0 or no vanishing share of the largest."""
    broken = ~(np.isfinite(weight) & (weight >= 0))
    if broken.any():
        return weight, broken, "no finite number of at least 0"
    largest = weight.max()
    with np.errstate(under="ignore"):
        faint = (weight > 0) & (weight < FAINTEST * largest)
    return weight, faint, f"less than {FAINTEST:g} times the largest, {largest:g}: write 0 to leave the row out"


def _within(values: FloatArray, span: tuple[float, float]) -> BoolArray:
    return (values >= span[0]) & (values <= span[1])


def _range(span: tuple[float, float]) -> str:
    return f"{span[0]:g} to {span[1]:g}"


def _place(log: RunLog, row: int, column: str) -> Location:
    return Location(log.origin, None if log.lines is None else int(log.lines[row]), column)


SAME = 0.01
"""Half of what the logs of budgets that are one may span: token counts are rounded to batches."""


def levels_of(logs: FloatArray) -> IntArray:
    """The number of each budget's level, by logs: one level spans no more than 2 SAME, wherever it lies."""
    values, place = np.unique(logs, return_inverse=True)
    starts = [0]
    while (after := int(np.searchsorted(values, values[starts[-1]] + 2 * SAME, side="right"))) < len(values):
        starts.append(after)
    return np.searchsorted(starts, place.reshape(-1), side="right") - 1


def levels(values: FloatArray) -> FloatArray:
    """The least budget of each level, ascending."""
    ordered = np.sort(values)
    return ordered[np.unique(levels_of(np.log(ordered)), return_index=True)[1]]
