"""Laws without convexity: random search and SLSQP from its best points. No certificate, and the result says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from scipy.optimize import LinearConstraint, linprog, minimize

from shapleymix.errors import InfeasibleError, SolveError, UsageError
from shapleymix.laws.terms import Terms
from shapleymix.mixing.bounds import Constraints
from shapleymix.mixing.fit_like import FitLike, predicted
from shapleymix.mixing.problem import Problem
from shapleymix.records import FloatArray

DRAWS = 4096
ROUNDS = 8
LOCAL = 4
SHRINK = 0.5
CORNERS = 48
WITHIN = 5e-10
STARTS = DRAWS * (1 + ROUNDS)
"""Random mixtures that are tried."""
NAME = "random search and SLSQP"

Value = Callable[[FloatArray], FloatArray]
"""What is minimised, at mixtures (R, M)."""


def is_convex(fit: FitLike, N: float, D: float) -> bool:
    """Whether the law has convex pieces in the mixture."""
    try:
        fit.terms(N, D)
    except SolveError:
        return False
    return True


@dataclass(frozen=True)
class Surface(Terms):
    """The predicted losses of a law without convex pieces at one budget: values, and no derivatives.

    `supply` are the unique tokens by source, where the fit takes them.
    """

    fit: FitLike
    N: float
    D: float
    supply: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, fit: FitLike, N: float, D: float) -> Surface:
        """The losses of a fit at N parameters and D tokens."""
        return cls(np.zeros(len(fit.targets)), fit, N, D)

    def with_repetition(self, unique: FloatArray, rate: FloatArray | float) -> Self:
        tokens = zip(self.fit.sources, (unique * self.D).tolist(), strict=True)
        return replace(self, supply={name: count for name, count in tokens if count > 0})

    def without_repetition(self) -> Self:
        return replace(self, supply={}) if self.supply else self

    def _values(self, q: FloatArray) -> FloatArray:
        flat = np.asarray(q, dtype=float).reshape(-1, np.shape(q)[-1])
        found = np.asarray(predicted(self.fit, flat, self.N, self.D, self.supply).losses, dtype=float)
        return np.where(np.isfinite(found), found, np.inf).reshape(*np.shape(q)[:-1], -1)


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


def _searched(value: Value, bounds: Constraints, seed: int) -> FloatArray:
    """The best few of several rounds of draws, each nearer to the best so far."""
    rng = np.random.default_rng(seed)
    corners = _corners(rng, bounds) if bounds.grouped else np.eye(len(bounds.sources))
    pool = _moved(_drawn(rng, corners), bounds)
    best = pool[np.argsort(value(pool), kind="stable")[:LOCAL]]
    for round_ in range(ROUNDS):
        share = SHRINK ** (round_ + 1)
        near = (1 - share) * best[rng.integers(len(best), size=DRAWS)] + share * _drawn(rng, corners)
        pool = np.concatenate([best, _moved(near, bounds)])
        best = pool[np.argsort(value(pool), kind="stable")[:LOCAL]]
    return best


def _drawn(rng: np.random.Generator, corners: FloatArray) -> FloatArray:
    """Random mixtures of the corners (C, M), which lie wherever these do."""
    few = min(1.0, len(corners[0]) / len(corners))  # of many corners each draw mixes a few, or all would be central
    return rng.dirichlet(np.full(len(corners), few), DRAWS) @ corners


def _corners(rng: np.random.Generator, bounds: Constraints) -> FloatArray:
    """Corners (C, M) of the mixtures within the bounds: the optima of linear programs with random costs.

    Raises
    ------
    InfeasibleError
        If no mixture meets the bounds.
    """
    found = []
    for cost in rng.normal(size=(CORNERS, len(bounds.sources))):
        solved = linprog(
            cost,
            A_ub=np.concatenate([bounds.members, -bounds.members]),
            b_ub=np.concatenate([bounds.group_upper, -bounds.group_lower]),
            A_eq=np.ones((1, len(cost))),
            b_eq=[1.0],
            bounds=list(zip(bounds.lower.tolist(), bounds.upper.tolist(), strict=True)),
            method="highs",
        )
        found += [solved.x] if solved.success else []
    corners = _inside(np.array(found).reshape(-1, len(bounds.sources)), bounds)
    if not len(corners):
        raise InfeasibleError("no mixture meets the groups' bounds", hint="widen the groups' bounds")
    return corners


def _moved(p: FloatArray, bounds: Constraints) -> FloatArray:
    """Mixtures moved into their box; under groups, of which they are mixed already, as they are."""
    if bounds.grouped:
        return _inside(p, bounds)
    p = np.clip(p, bounds.lower, bounds.upper)
    for _ in range(60):
        excess = p.sum(axis=1, keepdims=True) - 1
        room = np.where(excess > 0, p - bounds.lower, bounds.upper - p)
        total = np.maximum(room.sum(axis=1, keepdims=True), 1e-300)
        p = np.clip(p - excess * room / total, bounds.lower, bounds.upper)
    return p


def _inside(p: FloatArray, bounds: Constraints) -> FloatArray:
    """Those of the mixtures (R, M) that obey every bound."""
    low = np.concatenate([bounds.lower, bounds.group_lower, [1.0]])
    high = np.concatenate([bounds.upper, bounds.group_upper, [1.0]])
    sums = np.concatenate([p, p @ bounds.members.T, p.sum(axis=1, keepdims=True)], axis=1)
    return p[np.all((sums >= low - WITHIN) & (sums <= high + WITHIN), axis=1)]


def _refined(value: Value, starts: FloatArray, bounds: Constraints) -> FloatArray:
    """SLSQP from each start; a step-shaped law keeps the start."""
    linear = [LinearConstraint(np.ones((1, starts.shape[1])), 1.0, 1.0)]
    equal = bounds.group_lower == bounds.group_upper
    for kind in filter(np.any, (equal, ~equal)):  # SLSQP wants equalities apart
        linear.append(LinearConstraint(bounds.members[kind], bounds.group_lower[kind], bounds.group_upper[kind]))  # pyright: ignore[reportArgumentType]
    box = list(zip(bounds.lower.tolist(), bounds.upper.tolist(), strict=True))

    def one(p: FloatArray) -> float:
        inside = np.clip(p, bounds.lower, bounds.upper)
        return float(value((inside / inside.sum())[None])[0])

    found = [minimize(one, start, method="SLSQP", bounds=box, constraints=linear).x for start in starts]
    tried = np.concatenate([starts, _moved(np.array(found), bounds)])
    return tried[int(np.argmin(value(tried)))]
