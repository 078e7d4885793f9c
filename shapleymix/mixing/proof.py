"""How far from optimal a mixture can be: a lower bound from the pieces alone, whoever made the mixture.

For a convex objective J and any point b, J(s) >= J(b) + grad J(b) . (s - b). The least value of the right side over
the bounds is below the optimum (ShapleyLaw paper, "Convexity and optimality conditions", gives the gradient). Bounds on
single ratios are met by a sort. Rows, balls and the worst case take an engine's multipliers, and the bound is computed
from these by weak duality, so that it holds whatever they are. A mixture that breaks a bound has no proof: its gap is
infinite.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from shapleymix.mixing.goal import Goal
from shapleymix.mixing.polytope import FEASIBLE, linear_minimiser
from shapleymix.records import FloatArray, Record

AT_BOUND = 1e-9
TANGENT_OFFSETS = (1e-13, 1e-10)
"""Where a tangent may touch the objective instead of at a smaller ratio, at which a concave law has no finite slope."""
TIGHT = 1e-12
"""A gap below this, relative to the objective, needs no other tangent."""


class ProofError(RuntimeError):
    """A certificate contradicts itself: a fault of this library, not of its user."""


@dataclass(frozen=True)
class Certificate(Record):
    """`objective - lower_bound = gap >= 0`: no feasible mixture is better by more than `gap`, in the objective's unit.

    The gap is infinite for a mixture outside of its bounds, and NaN for a law without convexity, of which nothing can
    be proved. `objective` is what was minimised, with its penalty. `price` is d objective / d ratio at the margin: what
    a ratio must bring to be worth its place.
    """

    kind = "certificate"

    objective: float
    gap: float = np.nan
    relative_gap: float = np.nan
    lower_bound: float = np.nan
    price: float = np.nan


class Multipliers(NamedTuple):
    """Of rows (G,), above 0 at a floor and below at a cap; the weights (K,) of a mean loss that is nowhere above what
    is minimised; and of a ball, as `Ball.tangent` takes them."""

    rows: FloatArray
    w: FloatArray
    ball: FloatArray


@dataclass(frozen=True)
class Proof:
    """A mixture and all that is proved of it.

    Attributes
    ----------
    p : array (M,)
        The mixture.
    certificate : Certificate
        Bound on how far it is from the best one.
    ratios : array (M,)
        What each source's floor, lowered by one unit of ratio, would save at first; below 0 what its cap, raised by
        one, would; 0 where neither binds. Empty, as are the rows, where nothing is proved.
    rows : array (G,)
        The same of the rows.
    curved : dict of str to float
        The same of constraints of the user's own that are no rows, by their names.
    """

    p: FloatArray
    certificate: Certificate
    ratios: FloatArray = field(default_factory=lambda: np.zeros(0))
    rows: FloatArray = field(default_factory=lambda: np.zeros(0))
    curved: dict[str, float] = field(default_factory=dict)


def prove(goal: Goal, p: FloatArray, by: Multipliers | None = None) -> Proof:
    """The tightest proof of p (M,) by tangents at it or, where a slope is infinite, next to it.

    Without multipliers, those of bounds on single ratios alone.

    Raises
    ------
    ProofError
        If the gap of a mixture within its bounds is negative by more than rounding.
    """
    total, bounds = goal.total(p), goal.within
    within = bool(np.isfinite(total)) and goal.violation(p) <= FEASIBLE
    by = by or Multipliers(np.zeros(len(bounds.rows)), goal.active(p), np.zeros(0))
    found = []
    for base in _bases(goal, p):
        found.append(_lower_bound(goal, base, by))
        if total - found[-1][0] <= TIGHT * abs(total):
            break
    bound, price, tilt = max(found, key=lambda one: one[0])
    gap = total - bound if within else np.inf
    if gap < -FEASIBLE * (float(np.abs(tilt).sum()) + abs(total)):
        raise ProofError(
            f"the certificate says that a mixture is better than the best one, by {-gap:.3g}; "
            "this is a fault of shapleymix: please report it with the command and the fit"
        )
    gap = max(gap, 0.0)
    with np.errstate(invalid="ignore"):
        pull = np.nan_to_num(price - tilt)
    binds = np.where(pull > 0, p >= bounds.upper - AT_BOUND, p <= bounds.lower + AT_BOUND)
    return Proof(
        p=p,
        certificate=Certificate(total, gap, gap / max(abs(total), 1e-300), total - gap, price),
        ratios=np.where(binds, -pull, 0.0),
        rows=by.rows,
    )


def _bases(goal: Goal, p: FloatArray) -> list[FloatArray]:
    """Points (M,) at which tangents may touch, the mixture's own first; a KL ball has none at a ratio of zero."""
    movable, ball = goal.within.movable, goal.within.ball
    bases = [np.where(movable & (p < edge), edge, p) for edge in (0.0, *TANGENT_OFFSETS)]
    steep = ball is not None and ball.kind == "kl" and (movable & (p <= 0)).any()
    return bases[1:] if steep else bases


def _lower_bound(goal: Goal, base: FloatArray, by: Multipliers) -> tuple[float, float, FloatArray]:
    """Lower bound by weak duality, whatever the multipliers; the price at the margin, the tilted slopes (M,)."""
    bounds = goal.within
    none = np.zeros(len(base)), 0.0
    row, limit = none if bounds.ball is None or not len(by.ball) else bounds.ball.tangent(by.ball, base)
    gradient = np.where(bounds.movable, goal.gradient(base, by.w), 0.0)
    tilt = gradient - by.rows @ bounds.rows + row
    s, price = linear_minimiser(tilt, bounds.lower, bounds.upper)
    with np.errstate(invalid="ignore"):
        linear = float(np.sum(np.where(s == 0, 0.0, tilt * s)) - np.sum(np.where(base == 0, 0.0, gradient * base)))
    limits = np.where(by.rows > 0, bounds.row_low, bounds.row_high)
    sides = float(by.rows @ np.where(by.rows == 0, 0.0, limits))  # those that are not there are infinite
    bound = float(goal.pieces.objective(base, by.w)) + goal.penalty(base) + linear + sides - limit
    return (bound if np.isfinite(bound) else -np.inf), float(price), tilt
