"""Laws without convexity: random search and SLSQP from its best points. No certificate, and the result says so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import LinearConstraint, minimize

from shapleymix.errors import InfeasibleError, SolveError, UsageError
from shapleymix.laws.terms import Terms
from shapleymix.mixing.bounds import Constraints
from shapleymix.mixing.problem import Problem
from shapleymix.records import FloatArray

DRAWS = 4096
ROUNDS = 8
LOCAL = 4
SHRINK = 0.5
STARTS = DRAWS * (1 + ROUNDS)
"""Random mixtures that are tried."""
NAME = "random search and SLSQP"


def is_convex(fit: Any, N: float, D: float) -> bool:
    """Whether the law has convex pieces in the mixture."""
    try:
        fit.terms(N, D)
    except SolveError:
        return False
    return True


@dataclass(frozen=True)
class Surface(Terms):
    """The predicted losses of a law without convex pieces at one budget: values, and no derivatives."""

    fit: Any
    N: float
    D: float

    @classmethod
    def of(cls, fit: Any, N: float, D: float) -> Surface:
        """The losses of a fit at N parameters and D tokens."""
        return cls(np.zeros(len(fit.targets)), fit, N, D)

    def _values(self, p: FloatArray) -> FloatArray:
        flat = np.asarray(p, dtype=float).reshape(-1, np.shape(p)[-1])
        found = np.asarray(self.fit.predict(flat, self.N, self.D).losses, dtype=float)
        return np.where(np.isfinite(found), found, np.inf).reshape(*np.shape(p)[:-1], -1)


def search(problem: Problem, seed: int) -> FloatArray:
    """The best mixture (M,) that a seeded search finds under caps, floors and groups.

    Raises
    ------
    UsageError
        If the problem needs convexity: a KL term, a ball, or cvxpy constraints.
    """
    if problem.penalised or problem.further or problem.constraints.near is not None:
        raise UsageError("a law without convexity takes caps, floors and groups only")
    bounds = problem.constraints
    return _refined(problem.value, _searched(problem.value, bounds, seed), bounds)


def _searched(value: Any, bounds: Constraints, seed: int) -> FloatArray:
    """The best few of several rounds of draws, each nearer to the best so far."""
    rng = np.random.default_rng(seed)
    M = len(bounds.sources)
    pool = _feasible(rng.dirichlet(np.ones(M), DRAWS), bounds)
    best = pool[np.argsort(value(pool), kind="stable")[:LOCAL]]
    for round_ in range(ROUNDS):
        share = SHRINK ** (round_ + 1)
        near = (1 - share) * best[rng.integers(len(best), size=DRAWS)] + share * rng.dirichlet(np.ones(M), DRAWS)
        pool = np.concatenate([best, _feasible(near, bounds)])
        best = pool[np.argsort(value(pool), kind="stable")[:LOCAL]]
    return best


def _feasible(p: FloatArray, bounds: Constraints) -> FloatArray:
    """Draws moved into the bounds; those outside a group's bounds are dropped."""
    p = np.clip(p, bounds.lower, bounds.upper)
    for _ in range(60):
        excess = p.sum(axis=1, keepdims=True) - 1
        room = np.where(excess > 0, p - bounds.lower, bounds.upper - p)
        total = np.maximum(room.sum(axis=1, keepdims=True), 1e-300)
        p = np.clip(p - excess * room / total, bounds.lower, bounds.upper)
    sums = p @ bounds.members.T
    inside = np.all((sums >= bounds.group_lower - 1e-9) & (sums <= bounds.group_upper + 1e-9), axis=1)
    if not inside.any():
        raise InfeasibleError("no random mixture meets the groups' bounds", hint="widen the groups' bounds")
    return p[inside]


def _refined(value: Any, starts: FloatArray, bounds: Constraints) -> FloatArray:
    """SLSQP from each start; a step-shaped law keeps the start."""
    whole = LinearConstraint(np.ones((1, starts.shape[1])), 1.0, 1.0)
    groups = LinearConstraint(bounds.members, bounds.group_lower, bounds.group_upper)  # pyright: ignore[reportArgumentType]
    linear = [whole, groups] if bounds.grouped else [whole]
    box = list(zip(bounds.lower.tolist(), bounds.upper.tolist(), strict=True))

    def one(p: FloatArray) -> float:
        inside = np.clip(p, bounds.lower, bounds.upper)
        return float(value((inside / inside.sum())[None])[0])

    found = [minimize(one, start, method="SLSQP", bounds=box, constraints=linear).x for start in starts]
    tried = np.concatenate([starts, _feasible(np.array(found), bounds)])
    return tried[int(np.argmin(value(tried)))]
