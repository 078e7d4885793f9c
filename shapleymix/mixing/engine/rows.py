"""The linear rows of a problem's bounds, and a point strictly within them for an interior method to begin at."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import null_space
from scipy.optimize import linprog

from shapleymix.errors import InfeasibleError
from shapleymix.mixing.bounds import Constraints
from shapleymix.records import BoolArray, FloatArray

NARROW = 1e-13
ROOMY = 1e-6
ROOM = 1e-12
MOST = 1e12
CENTRING = 60


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
        size = len(bounds.sources)
        width = bounds.upper - bounds.lower
        free = np.append(width > NARROW, np.ones(len(inside) - size, dtype=bool))
        inside[:size] = np.where(free[:size], inside[:size], bounds.lower)
        equal, totals = _independent(equal, totals, free)
        free[free] = _moving(equal[:, free])
        if room <= ROOMY:
            inside = _centred(rows, limits, equal, free, inside)
        keep = np.any(rows[:, free] != 0, axis=1)
        return cls(rows[keep], limits[keep], equal, totals, inside, free)


def _independent(equal: FloatArray, totals: FloatArray, free: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Equalities that span all: one said twice would make Newton's matrix singular."""
    chosen: list[int] = []
    basis = np.zeros((0, np.count_nonzero(free)))
    for index, row in enumerate(equal[:, free]):
        rest = row - (basis @ row) @ basis
        rest = rest - (basis @ rest) @ basis
        if np.linalg.norm(rest) > 1e-9 * max(np.linalg.norm(row), 1e-300):
            chosen.append(index)
            basis = np.concatenate([basis, rest[None] / np.linalg.norm(rest)])
    return equal[chosen], totals[chosen]


def _moving(equal: FloatArray) -> BoolArray:
    """Which entries the equalities let move at all."""
    size = equal.shape[1]
    if not size:
        return np.zeros(0, dtype=bool)
    along = null_space(equal) if len(equal) else np.eye(size)
    return np.abs(along).max(axis=1, initial=0.0) > 1e-9


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


def _strictly_inside(
    rows: FloatArray, limits: FloatArray, equal: FloatArray, totals: FloatArray, point: FloatArray
) -> tuple[FloatArray, BoolArray]:
    """A point with as many slacks above zero as any point has, and which they are.

    One linear program over y = x times a factor, free to grow until every slack that can be positive is at least 1:
    slacks of 1e-9 are then far above the solver's tolerance. Where equalities contradict each other by a rounding, no
    factor helps, and the feasible `point` stands.
    """
    m, n = rows.shape
    goal = np.concatenate([np.zeros(n + 1), -np.ones(m)])
    found = linprog(
        goal,
        A_ub=np.column_stack([rows, -limits, np.eye(m)]),
        b_ub=np.zeros(m),
        A_eq=np.column_stack([equal, -totals, np.zeros((len(equal), m))]),
        b_eq=np.zeros(len(equal)),
        bounds=[*[(None, None)] * n, (1.0, MOST), *[(0.0, 1.0)] * m],
        method="highs",
    )
    if not found.success:
        return point, limits - rows @ point > ROOM
    inside = np.asarray(found.x[:n], dtype=float) / float(found.x[n])
    return inside, (np.asarray(found.x[n + 1 :]) > 0.5) & (limits - rows @ inside > ROOM)


def _centred(
    rows: FloatArray, limits: FloatArray, equal: FloatArray, free: BoolArray, inside: FloatArray
) -> FloatArray:
    """The analytic centre of the rows, by Newton's method from a point strictly inside; equalities are kept."""
    if not free.any():
        return inside
    x = inside.copy()
    along = null_space(equal[:, free]) if len(equal) else np.eye(int(np.count_nonzero(free)))
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
