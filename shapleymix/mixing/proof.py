"""How far from optimal a mixture can be: a lower bound from the pieces alone, whoever made the mixture.

For a convex objective J and any point b, J(s) >= J(b) + grad J(b) . (s - b). The least value of the right side over
the bounds is below the optimum (ShapleyLaw paper, "Convexity and optimality conditions", gives the gradient). Bounds on
single ratios are met by a sort. Rows, balls and the worst case get multipliers from a linear program, and the bound is
then computed from these by weak duality, so that it holds whatever the program's tolerance. A mixture that breaks a
bound has no proof: its gap is infinite.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from shapleymix.mixing.goal import Goal
from shapleymix.mixing.polytope import FEASIBLE, Duals, linear_minimiser
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
    gap: float
    relative_gap: float
    lower_bound: float
    price: float


@dataclass(frozen=True)
class Proof:
    """A mixture and all that is proved of it.

    Attributes
    ----------
    p : array (M,)
        The mixture.
    certificate : Certificate
        Bound on how far it is from the best one.
    caps, floors : array (M,)
        What each source's cap, raised by one unit of ratio, or floor, lowered by one, would save at first; 0 where it
        does not bind.
    rows : array (G,)
        The same of the rows: above 0 at a floor, below 0 at a cap.
    """

    p: FloatArray
    certificate: Certificate
    caps: FloatArray
    floors: FloatArray
    rows: FloatArray

    @property
    def gap(self) -> float:
        """Relative gap."""
        return self.certificate.relative_gap


def prove(goal: Goal, p: FloatArray) -> Proof:
    """The tightest proof of p (M,) by tangents at it or, where a slope is infinite, next to it.

    Raises
    ------
    ProofError
        If the gap of a mixture within its bounds is negative by more than rounding.
    """
    total, bounds = goal.total(p), goal.within
    within = bool(np.isfinite(total)) and bounds.violation(p) <= FEASIBLE
    if goal.cones is not None:
        goal = replace(goal, within=goal.cones.tangents(bounds, p))
    best = None
    tangents = ((base, w, duals) for base in _bases(goal, p) for w, duals in _multipliers(goal, base))
    for base, w, duals in tangents:
        found = _bound(goal, base, w, duals)
        best = found if best is None or found[0] > best[0] else best
        if total - best[0] <= TIGHT * abs(total):
            break
    assert best is not None
    bound, price, tilt, duals = best
    gap = total - bound if within else np.inf
    if gap < -FEASIBLE * (float(np.abs(tilt).sum()) + abs(total)):
        raise ProofError(
            f"the certificate says that a mixture is better than the best one, by {-gap:.3g}; "
            "this is a fault of shapleymix: please report it with the command and the fit"
        )
    gap = max(gap, 0.0)
    with np.errstate(invalid="ignore"):
        pull = np.nan_to_num(price - tilt)
    return Proof(
        p=p,
        certificate=Certificate(total, gap, gap / max(abs(total), 1e-300), total - gap, price),
        caps=np.where(p >= bounds.upper - AT_BOUND, np.maximum(pull, 0.0), 0.0),
        floors=np.where(p <= bounds.lower + AT_BOUND, np.maximum(-pull, 0.0), 0.0),
        rows=duals.rows[: len(bounds.rows)],
    )


def unproved(goal: Goal, p: FloatArray) -> Proof:
    """The answer that p is for a law without convexity."""
    none, certificate = np.zeros(len(p)), Certificate(goal.total(p), np.nan, np.nan, np.nan, np.nan)
    return Proof(p, certificate, none, none, np.zeros(len(goal.within.rows)))


def _bases(goal: Goal, p: FloatArray) -> Iterator[FloatArray]:
    """Points (M,) at which tangents may touch, the mixture's own first."""
    movable = goal.within.movable
    for edge in (0.0, *TANGENT_OFFSETS):
        base = np.where(movable & (p < edge), edge, p)
        if edge == 0 or (base != p).any():
            slopes = goal.pieces.jacobian(base)[:, goal.w > 0].sum(axis=1) + goal.penalty_gradient(base)
            ball = goal.within.ball
            steep = ball is not None and ball.kind == "kl" and bool((movable & (base <= 0)).any())
            if np.isfinite(slopes[movable]).all() and not steep:
                yield base
    yield np.where(movable & (p < TANGENT_OFFSETS[-1]), TANGENT_OFFSETS[-1], p)


def _multipliers(goal: Goal, base: FloatArray) -> Iterator[tuple[FloatArray, Duals]]:
    """Weights of the mean objective that bounds the goal's, and multipliers; the likeliest first."""
    bounds, counted = goal.within, goal.w > 0
    cost, tangents = goal.linearised([base])
    sizes = np.abs(np.concatenate([cost[None], tangents.slopes]))
    units = {float(np.median(sizes[sizes > 0])), float(sizes.max())} if sizes.any() else {1.0}
    for unit in () if bounds.is_box and not goal.worst else units:
        found = bounds.minimise_linear(cost / unit, base, tangents.over(unit, base))
        if found is None:
            continue
        duals, w = found[1], goal.w
        if goal.worst:
            w = np.zeros_like(goal.w)
            w[counted] = goal.w[counted] * duals.targets / max(float(duals.targets.sum()), 1e-300)
        if w.any():
            yield w, Duals(duals.rows * unit, duals.ball * unit, duals.limit * unit, duals.targets)
    yield goal.active(base), Duals(np.zeros(len(bounds.rows)), np.zeros_like(base), 0.0, np.zeros(0))


def _bound(goal: Goal, base: FloatArray, w: FloatArray, duals: Duals) -> tuple[float, float, FloatArray, Duals]:
    """Lower bound by weak duality, whatever the multipliers; the price at the margin, the tilted slopes (M,)."""
    bounds = goal.within
    movable = bounds.movable
    gradient = np.where(movable, goal.gradient(base, w), 0.0)
    tilt = gradient - duals.rows @ bounds.rows + duals.ball
    s, price = linear_minimiser(tilt, bounds.lower, bounds.upper)
    with np.errstate(invalid="ignore"):
        linear = float(np.sum(np.where(s == 0, 0.0, tilt * s)) - np.sum(np.where(base == 0, 0.0, gradient * base)))
    limits = np.where(duals.rows > 0, bounds.row_low, bounds.row_high)
    sides = float(np.sum(np.where(duals.rows == 0, 0.0, duals.rows * np.where(duals.rows == 0, 0.0, limits))))
    bound = float(goal.pieces.objective(base, w)) + goal.penalty(base) + linear + sides - duals.limit
    return (bound if np.isfinite(bound) else -np.inf), float(price), tilt, duals
