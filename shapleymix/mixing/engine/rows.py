"""The linear rows of a problem's bounds, and a point strictly within them for an interior method to begin at."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog

from shapleymix.errors import InfeasibleError
from shapleymix.mixing.bounds import Constraints
from shapleymix.records import BoolArray, FloatArray, IntArray

NARROW = 1e-13
ROOMY = 1e-6
ROOM = 1e-11


@dataclass(frozen=True)
class Rows:
    """rows x <= limits and equal x = totals over x = (p, v), with a point strictly within the rows.

    `free` marks the entries of x that can move at all.
    """

    rows: FloatArray
    limits: FloatArray
    equal: FloatArray
    totals: FloatArray
    inside: FloatArray
    free: BoolArray

    @classmethod
    def of(cls, bounds: Constraints) -> Rows:
        """The rows of some bounds; those that no mixture meets strictly become equalities.

        Raises
        ------
        InfeasibleError
            If the bounds leave no mixture.
        """
        rows, limits, units, equal, totals = _written(bounds)
        inside, room = _deepest(rows, limits, units, equal, totals)
        if room <= ROOMY:
            inside, strict = _averaged(rows, limits, equal, totals)
            equal, totals = np.concatenate([equal, rows[~strict]]), np.concatenate([totals, limits[~strict]])
            rows, limits = rows[strict], limits[strict]
        size = len(bounds.sources)
        width = bounds.upper - bounds.lower
        free = np.append(width > NARROW, np.ones(len(inside) - size, dtype=bool))
        inside[:size] = np.where(free[:size], inside[:size], bounds.lower)
        chosen = _independent(equal[:, free])
        if len(chosen) >= np.count_nonzero(free[:size]) > 0 and len(inside) == size:
            free[:] = False  # the equalities leave one mixture, the one inside
        keep = np.any(rows[:, free] != 0, axis=1)
        return cls(rows[keep], limits[keep], equal[chosen], totals[chosen], inside, free)


def _independent(rows: FloatArray) -> IntArray:
    """Indices of rows that span all: an equality said twice would make Newton's matrix singular."""
    if not rows.size:
        return np.zeros(0, dtype=np.int64)
    chosen: list[int] = []
    basis = np.zeros((0, rows.shape[1]))
    for index, row in enumerate(rows):
        rest = row - (basis @ row) @ basis
        rest = rest - (basis @ rest) @ basis
        if np.linalg.norm(rest) > 1e-9 * max(np.linalg.norm(row), 1e-300):
            chosen.append(index)
            basis = np.concatenate([basis, rest[None] / np.linalg.norm(rest)])
    return np.array(chosen, dtype=np.int64)


def _written(bounds: Constraints) -> tuple[FloatArray, ...]:
    """Rows, limits and units (how wide each row can be) of the inequalities; rows and totals of the equalities."""
    M, near = len(bounds.sources), bounds.near
    rows = np.concatenate([np.eye(M), bounds.members])
    low = np.concatenate([bounds.lower, bounds.group_lower])
    high = np.concatenate([bounds.upper, bounds.group_upper])
    tied = high - low <= NARROW
    # A cap that the others' floors imply says nothing, and neither does a group's bound that its members' bounds imply.
    implied = np.append(1 - (bounds.lower.sum() - bounds.lower), bounds.members @ bounds.upper)
    above, below = (
        ~tied & (high < np.minimum(implied, 1.0)),
        ~tied & (low > np.append(np.full(M, -1.0), rows[M:] @ bounds.lower)),
    )
    inequalities, limits = np.concatenate([rows[above], -rows[below]]), np.concatenate([high[above], -low[below]])
    width = np.minimum(high - low, 1.0)
    units = np.concatenate([width[above], width[below]])
    equal, totals = np.concatenate([np.ones((1, M)), rows[tied]]), np.concatenate([[1.0], low[tied]])
    if near is not None and near.kind == "l1":
        eye = np.eye(M)
        ball = np.block([[eye, -eye], [-eye, -eye], [np.zeros((1, M)), np.ones((1, M))]])
        inequalities = np.concatenate([np.pad(inequalities, ((0, 0), (0, M))), ball])
        limits = np.concatenate([limits, near.center, -near.center, [near.radius]])
        units = np.append(units, np.full(2 * M + 1, max(near.radius / M, NARROW)))
        equal = np.pad(equal, ((0, 0), (0, M)))
    return inequalities, limits, units, equal, totals


def _deepest(
    rows: FloatArray, limits: FloatArray, units: FloatArray, equal: FloatArray, totals: FloatArray
) -> tuple[FloatArray, float]:
    """The point with the largest least slack, in units, and that slack."""
    found = linprog(
        np.append(np.zeros(rows.shape[1]), -1.0),
        A_ub=np.column_stack([rows, units]),
        b_ub=limits,
        A_eq=np.column_stack([equal, np.zeros(len(equal))]),
        b_eq=totals,
        bounds=[*[(None, None)] * rows.shape[1], (None, 1.0)],
        method="highs",
    )
    if not found.success or found.x[-1] < -1e-9:
        raise InfeasibleError("the bounds leave no mixture", hint="widen a group's bounds, or the distance allowed")
    inside = np.asarray(found.x[:-1], dtype=float)
    slack = limits - rows @ inside
    return inside, float(np.min(slack / units, initial=1.0))


def _averaged(
    rows: FloatArray, limits: FloatArray, equal: FloatArray, totals: FloatArray
) -> tuple[FloatArray, BoolArray]:
    """The mean of the points that are deepest in each row, and which rows can be met strictly at all."""
    points = []
    for row in rows:
        found = linprog(row, A_ub=rows, b_ub=limits, A_eq=equal, b_eq=totals, bounds=(None, None), method="highs")
        if found.x is not None:
            points.append(found.x)
    if not points:
        raise InfeasibleError("the bounds leave no mixture", hint="widen a group's bounds, or the distance allowed")
    inside = np.mean(points, axis=0)
    return inside, limits - rows @ inside > ROOM
