"""What bounds leave, by linear programs: which sources have no room, and how near to a mixture another can be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.optimize import linprog

from shapleymix.errors import SolveError
from shapleymix.mixing.bounds import L1, Constraints, Near
from shapleymix.records import BoolArray, FloatArray

SLACK = 1e-12
MOST = 1e12
CUTS = 60
ENOUGH = 1e-10
INFEASIBLE = 2
"""HiGHS's status, as SciPy numbers it."""


def without_room(constraints: Constraints) -> BoolArray:
    """Sources (M,) whose ratio the groups together hold at zero, though no bound of its own does.

    One linear program over y = p times a factor, free to grow until every source that can be used has at least 1.
    """
    G, M = constraints.members.shape
    doubtful = (constraints.lower <= 0) & (constraints.upper > 0)
    if not G or not doubtful.any():
        return np.zeros(M, dtype=bool)
    rows = np.concatenate([np.eye(M), -np.eye(M), constraints.members, -constraints.members])
    limits = np.concatenate([constraints.upper, -constraints.lower, constraints.group_upper, -constraints.group_lower])
    found = linprog(
        np.concatenate([np.zeros(M + 1), -np.ones(M)]),
        A_ub=np.block([[rows, -limits[:, None], np.zeros((len(rows), M))], [-np.eye(M), np.zeros((M, 1)), np.eye(M)]]),
        b_ub=np.zeros(len(rows) + M),
        A_eq=np.concatenate([np.ones(M), [-1.0], np.zeros(M)])[None],
        b_eq=[0.0],
        bounds=[*[(0.0, None)] * M, (1.0, MOST), *[(0.0, 1.0)] * M],
        method="highs",
    )
    if not found.success:
        return np.zeros(M, dtype=bool)
    return _all_at_zero(constraints, doubtful & (np.asarray(found.x[M + 1 :]) < 0.5))


def _all_at_zero(constraints: Constraints, suspects: BoolArray) -> BoolArray:
    """Those of the suspects that no mixture within the bounds gives any ratio: their largest sum is zero."""
    held = suspects.copy()
    while held.any():
        p = _program(constraints, 0, -held.astype(float), np.zeros((0, len(held))), np.zeros(0))
        used = held & (p > SLACK) if p is not None else held
        if not used.any():
            break
        held &= ~used
    return held


def least_distance(constraints: Constraints, near: Near) -> float:
    """The smallest distance of a mixture within the box and the groups from the centre; +inf for a KL divergence
    that no mixture there makes finite."""
    return _least_l1(constraints, near.center) if near.kind == L1 else _least_kl(constraints, near.center)


def _least_l1(constraints: Constraints, center: FloatArray) -> float:
    """A linear program over p and t >= |p - center|."""
    M = len(center)
    eye = np.eye(M)
    ball = np.block([[eye, -eye], [-eye, -eye]])
    found = _program(constraints, M, np.append(np.zeros(M), np.ones(M)), ball, np.append(center, -center))
    assert found is not None, "bounds that are feasible by themselves"
    return float(np.abs(found[:M] - center).sum())


def _least_kl(constraints: Constraints, center: FloatArray) -> float:
    """Kelley's cutting planes on each x log(x / c) - x + c, which is convex and not negative; they bound the least
    divergence from below, and the best point so far does from above: the lower bound is returned."""
    live = center > 0
    within = replace(constraints, upper=np.where(live, constraints.upper, 0.0))
    if (within.lower > within.upper + SLACK).any():
        return np.inf
    index, c = np.flatnonzero(live), center[live]
    rows, bounds = np.zeros((0, len(center) + len(c))), np.zeros(0)
    x, least, best = c, 0.0, np.inf
    cost = np.append(np.zeros(len(center)), np.ones(len(c)))
    for _ in range(CUTS):
        # t_i >= f(x_i) + f'(x_i) (p_i - x_i) = p_i log(x_i / c_i) - x_i + c_i.
        cut = np.zeros((len(c), rows.shape[1]))
        cut[np.arange(len(c)), index] = np.log(x / c)
        cut[np.arange(len(c)), len(center) + np.arange(len(c))] = -1.0
        rows, bounds = np.concatenate([rows, cut]), np.append(bounds, x - c)
        found = _program(within, len(c), cost, rows, bounds)
        if found is None:
            return np.inf
        p = np.maximum(found[: len(center)][live], 0.0)
        least = max(least, float(found[len(center) :].sum()))
        best = min(best, float(np.sum(np.where(p > 0, p * np.log(np.maximum(p, 1e-300) / c), 0.0) - p + c)))
        if best - least <= ENOUGH:
            break
        x = np.maximum(p, 1e-12 * c)
    return max(least, 0.0)


def _program(
    constraints: Constraints, extra: int, cost: FloatArray, rows: FloatArray, right: FloatArray
) -> FloatArray | None:
    """The optimum of a linear program over p (M,) within the box and the groups, and `extra` variables >= 0."""
    M, G = len(constraints.sources), len(constraints.group_names)
    groups = np.concatenate([-constraints.members, constraints.members])
    found = linprog(
        cost,
        A_ub=np.concatenate([rows, np.concatenate([groups, np.zeros((2 * G, extra))], axis=1)]),
        b_ub=np.concatenate([right, -constraints.group_lower, constraints.group_upper]),
        A_eq=np.append(np.ones(M), np.zeros(extra))[None],
        b_eq=[1.0],
        bounds=[
            *zip(constraints.lower.tolist(), np.maximum(constraints.lower, constraints.upper).tolist(), strict=True),
            *[(0.0, None)] * extra,
        ],
        method="highs",
    )
    if found.success:
        return np.asarray(found.x, dtype=float)
    if found.status == INFEASIBLE:
        return None
    raise SolveError(f"the feasibility of the bounds could not be decided: {found.message}")
