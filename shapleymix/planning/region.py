"""Mixtures within bounds: a point inside, draws, corners, and the way from outside to within.

Bounds leave a convex set. A mixture outside of it is moved towards a point inside as far as needed, and no further:
that keeps within bounds of every kind, and leaves a mixture that is within them as it is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import linprog

from shapleymix.laws.terms import PowerTerms
from shapleymix.mixing.bounds import KL, Constraints
from shapleymix.mixing.certificate import linear_minimiser
from shapleymix.mixing.engine.rows import Rows
from shapleymix.mixing.engine.solving import solve
from shapleymix.mixing.problem import Problem
from shapleymix.records import FloatArray

HALVINGS = 50
STILL = 1e-12  # of a step in ratio: rounding
LEAST_RATIO = 1e-3
"""A smaller ratio that is drawn is none: nobody trains on a few tokens of a language."""
SPARSE = (2, 3, 5, 8)
"""How many sources a sparse draw has."""
MOST_CORNERS = 400


@dataclass(frozen=True)
class Region:
    """The mixtures within bounds, and one that lies inside of them; `level` (E, M) are orthonormal rows of what their
    ratios may not leave: their sum, and whatever the bounds hold at one value."""

    constraints: Constraints
    inside: FloatArray
    level: FloatArray

    @classmethod
    def of(cls, constraints: Constraints) -> Region:
        """The region that feasible bounds leave."""
        rows, M = Rows.of(constraints), len(constraints.sources)
        held = np.eye(M)[~rows.free[:M]]
        inside, level = rows.inside[:M], np.concatenate([rows.equal[:, :M], held])
        near = constraints.near
        if near is None or near.kind != KL:
            return cls(constraints, inside, level)
        closest = _closest(constraints, near.center)
        edge = cls(constraints, closest, level).moved(inside[None])[0]
        return cls(constraints, (closest + edge) / 2, level)

    def moved(self, p: FloatArray) -> FloatArray:
        """Mixtures (R, M), those outside of the bounds on the way to the point inside, where the bounds begin."""
        way = p - self.inside
        way = way - (way @ self.level.T) @ self.level
        share = np.minimum(self._along_rows(way), 1.0)
        if self.constraints.near is not None:
            share = self._within_ball(way, share)
        return self.inside + share[:, None] * way

    def _along_rows(self, way: FloatArray) -> FloatArray:
        """How far (R,) each way leads until a bound on a ratio or a group stops it."""
        bounds = self.constraints
        rows = np.concatenate([np.eye(len(self.inside)), bounds.members])
        low = np.concatenate([bounds.lower, bounds.group_lower])
        high = np.concatenate([bounds.upper, bounds.group_upper])
        at, step = rows @ self.inside, way @ rows.T
        room = np.maximum(np.where(step > 0, high - at, at - low), 0.0)
        moving = np.abs(step) > STILL
        return np.min(np.divide(room, np.abs(step), out=np.full_like(step, np.inf), where=moving), axis=1)

    def _within_ball(self, way: FloatArray, share: FloatArray) -> FloatArray:
        """The same, until the ball around a mixture ends: its distance is convex along the way."""
        low, high = np.zeros_like(share), share
        good = self._distance(self.inside + share[:, None] * way) <= 0
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            inside = self._distance(self.inside + middle[:, None] * way) <= 0
            low, high = np.where(inside, middle, low), np.where(inside, high, middle)
        return np.where(good, share, low)

    def _distance(self, p: FloatArray) -> FloatArray:
        """By how much (R,) mixtures lie outside of the ball."""
        near = self.constraints.near
        assert near is not None
        if near.kind != KL:
            return np.abs(p - near.center).sum(axis=1) - near.radius
        with np.errstate(divide="ignore", invalid="ignore"):
            parts = np.where(p > 0, p * np.log(p / near.center), 0.0)
        return parts.sum(axis=1) - near.radius

    def draws(self, count: int, rng: np.random.Generator, concentrations: tuple[float, ...]) -> FloatArray:
        """Random mixtures (count, M), Dirichlet's of several concentrations in turn."""
        M = len(self.inside)
        each = [rng.dirichlet(np.full(M, concentration), count) for concentration in concentrations]
        drawn = np.stack(each)[np.arange(count) % len(each), np.arange(count)]
        held = np.where(drawn < LEAST_RATIO, 0.0, drawn)
        return self.moved(held / held.sum(axis=1, keepdims=True))

    def sparse(self, count: int, rng: np.random.Generator) -> FloatArray:
        """Random mixtures (count, M) of few sources each."""
        M = len(self.inside)
        held = np.minimum(np.array(SPARSE)[np.arange(count) % len(SPARSE)], M)
        ranks = rng.random((count, M)).argsort(axis=1).argsort(axis=1)
        amounts = rng.exponential(size=(count, M)) * (ranks < held[:, None])
        return self.moved(amounts / amounts.sum(axis=1, keepdims=True))

    def extremes(self, rng: np.random.Generator) -> FloatArray:
        """The most of each source, of pairs of sources, and corners of the bounds, with all that goes with them."""
        M = len(self.inside)
        eye = np.eye(M)
        pairs = [(eye[i] + eye[k]) / 2 for i in range(M) for k in range(i)]
        chosen = rng.permutation(len(pairs))[:MOST_CORNERS]
        mixed = np.concatenate([eye, *(pairs[place][None] for place in sorted(chosen.tolist()))])
        return np.concatenate([self.moved(mixed), self.corners(rng)])

    def corners(self, rng: np.random.Generator) -> FloatArray:
        """Corners (C, M) of the bounds: where the ratio of one source ends, and where random directions end."""
        M = len(self.inside)
        costs = np.concatenate([-np.eye(M), np.eye(M), rng.normal(size=(M, M))])[:MOST_CORNERS]
        if not self.constraints.grouped and self.constraints.near is None:
            return linear_minimiser(costs, self.constraints.lower, self.constraints.upper)[0]
        rows = Rows.of(self.constraints)
        found = [_end(rows, cost) for cost in costs]
        ends = np.array([p for p in found if p is not None]).reshape(-1, M)
        return self.moved(ends)


def _end(rows: Rows, cost: FloatArray) -> FloatArray | None:
    """The mixture (M,) at which a linear cost is least; None where the program finds none."""
    padded = np.zeros(rows.rows.shape[1])
    padded[: len(cost)] = cost
    found = linprog(
        padded[rows.free],
        A_ub=rows.rows[:, rows.free],
        b_ub=rows.limits - rows.rows[:, ~rows.free] @ rows.inside[~rows.free],
        A_eq=rows.equal[:, rows.free],
        b_eq=rows.totals - rows.equal[:, ~rows.free] @ rows.inside[~rows.free],
        bounds=(None, None),
        method="highs",
    )
    if not found.success:
        return None
    p = rows.inside.copy()
    p[rows.free] = found.x
    return p[: len(cost)]


def _closest(constraints: Constraints, center: FloatArray) -> FloatArray:
    """The mixture (M,) within the bounds that is closest to the centre of their KL ball, by the engine."""
    M = len(center)
    even = PowerTerms(np.zeros(1), np.full(1, 1e-6), np.ones(1), np.ones((M, 1)), np.full((M, 1), 0.5))
    return solve(Problem(even, np.ones(1), replace(constraints), kl=1.0, anchor=center)).p
