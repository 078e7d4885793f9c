"""The linear rows of a problem's bounds, and a point strictly within them for an interior method to begin at."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog

from shapleymix.errors import InfeasibleError
from shapleymix.mixing.bounds import Constraints
from shapleymix.records import BoolArray, FloatArray

NARROW = 1e-13
ROOMY = 1e-6
ROOM = 1e-12
STILL = 1e-9
NEXT_TO = 1e-11
CENTRING = 60
EXACT = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}


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
            inside, strict = _strictly_inside(rows, limits, equal, totals, inside)
            equal, totals = np.concatenate([equal, rows[~strict]]), np.concatenate([totals, limits[~strict]])
            rows, limits = rows[strict], limits[strict]
        inside, free = _settled(inside, equal, totals, bounds)
        spanning, _ = _spans(equal[:, free])
        equal = np.zeros((len(spanning), len(free)))
        equal[:, free] = spanning
        if room <= ROOMY:
            inside = _centred(rows, limits, equal, free, inside)
        keep = np.any(rows[:, free] != 0, axis=1)
        return cls(rows[keep], limits[keep], equal, equal @ inside, inside, free)


def _settled(
    point: FloatArray, equal: FloatArray, totals: FloatArray, bounds: Constraints
) -> tuple[FloatArray, BoolArray]:
    """The point moved onto the equalities, of which a program's solver is some digits off; and what is free to move.

    What the equalities hold, though no bound of its own does, is put on its bound exactly where it is next to it.
    """
    x, size = point.copy(), len(bounds.sources)
    low, high = (np.append(side, np.full(len(x) - size, end)) for side, end in ((bounds.lower, 0), (bounds.upper, 2)))
    free = high - low > NARROW
    x = np.where(free, x, low)
    x[free] += _least_change(equal[:, free], totals - equal @ x)
    moving = free.copy()
    moving[free] = np.abs(_spans(equal[:, free])[1]).max(axis=0, initial=0.0) > STILL
    x = np.where(moving, x, np.where(x - low < NEXT_TO, low, np.where(high - x < NEXT_TO, high, x)))
    x[moving] += _least_change(equal[:, moving], totals - equal @ x)
    return x, moving


def _least_change(equal: FloatArray, missing: FloatArray) -> FloatArray:
    """The smallest change by which the equalities rise by what is missing."""
    change = np.linalg.lstsq(equal, missing, rcond=STILL)[0] if equal.size else np.zeros(equal.shape[1])
    return np.asarray(change, dtype=np.float64)


def _spans(equal: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Orthonormal rows that span the equalities, and rows that span what these leave: equalities that say the same
    twice, or differ in little, would make Newton's matrix singular."""
    if not equal.size:
        return equal[:0], np.eye(equal.shape[1])
    _, sizes, rows = np.linalg.svd(equal)
    rank = int(np.count_nonzero(sizes > STILL * max(float(sizes[0]), 1e-300)))
    return rows[:rank], rows[rank:]


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
        options=EXACT,
    )
    if not found.success or found.x[-1] < -1e-9:
        raise InfeasibleError("the bounds leave no mixture", hint="widen a group's bounds, or the distance allowed")
    inside = np.asarray(found.x[:-1], dtype=float)
    slack = limits - rows @ inside
    return inside, float(np.min(slack / units, initial=1.0))


def _strictly_inside(
    rows: FloatArray, limits: FloatArray, equal: FloatArray, totals: FloatArray, point: FloatArray
) -> tuple[FloatArray, BoolArray]:
    """A point with as many slacks above zero as any point has, and which they are.

    The mean of `point` and of points that have slack in rows without any so far, as long as there are such.
    """
    points, touched = [point], limits - rows @ point <= ROOM
    while touched.any():
        goal = rows[touched].sum(axis=0)
        found = linprog(
            goal, A_ub=rows, b_ub=limits, A_eq=equal, b_eq=totals, bounds=(None, None), method="highs", options=EXACT
        )
        slack = limits - rows @ found.x if found.success else np.full(len(rows), -1.0)
        if slack.min() < -ROOMY or not (touched & (slack > ROOM)).any():
            break
        points.append(np.asarray(found.x, dtype=float))
        touched = touched & (slack <= ROOM)
    inside = np.mean(points, axis=0)
    return inside, limits - rows @ inside > ROOM


def _centred(
    rows: FloatArray, limits: FloatArray, equal: FloatArray, free: BoolArray, inside: FloatArray
) -> FloatArray:
    """The analytic centre of the rows, by Newton's method from a point strictly inside; equalities are kept."""
    if not free.any():
        return inside
    x = inside.copy()
    along = _spans(equal[:, free])[1].T
    ways = rows[:, free] @ along
    ways = ways[np.abs(ways).max(axis=1, initial=0.0) > 0]
    slack = (limits - rows @ x)[np.abs(rows[:, free] @ along).max(axis=1, initial=0.0) > 0]
    if not len(slack) or not along.shape[1]:
        return x
    for _ in range(CENTRING):
        scaled = ways / slack[:, None]
        move = np.linalg.lstsq(scaled, -np.ones(len(slack)), rcond=None)[0]
        shift = scaled @ move
        size = float(np.linalg.norm(shift))
        step = 1.0 if size < 0.25 else min(1 / (1 + size), 0.9 / max(float(shift.max()), 1e-300))
        x[free] += step * (along @ move)
        slack = slack * (1 - step * shift)
        if size < 0.1:
            break
    return x
