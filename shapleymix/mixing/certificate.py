"""How far from optimal a mixture can be, from nothing but gradients: the Frank-Wolfe bound, and shadow prices.

For a convex objective J and any feasible p, J(p) - J* <= grad J(p) . (p - s), where s minimises the linear function
over the feasible set (ShapleyLaw paper, "Convexity and optimality conditions", gives the gradient). Under caps s
fills the cheapest sources first: a sort. Under further linear bounds a linear program proposes their multipliers,
and the bound is then computed from these by weak duality, so that it holds whatever the program's tolerance.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import linprog

from shapleymix.errors import SolveError
from shapleymix.laws.terms import Terms
from shapleymix.mixing.bounds import Constraints
from shapleymix.records import FloatArray, Record

AT_BOUND = 1e-9
FEASIBLE = 1e-9
"""A mixture that breaks a bound by more than this, in units of ratio, is outside of it and has no proof."""
ROUNDING = 1e-12
TOKENS = 1e9


class ProofError(RuntimeError):
    """A certificate contradicts itself: a fault of this library, not of its user."""


@dataclass(frozen=True)
class Certificate(Record):
    """`objective - lower_bound = gap >= 0`: no feasible mixture is better by more than `gap` nats.

    The gap is infinite for a mixture outside of its bounds: nothing is proved of such a one. `price` is
    d objective / d ratio at the margin: what a ratio must bring to be worth its place.
    """

    kind = "certificate"

    objective: float
    gap: float
    relative_gap: float
    lower_bound: float
    price: float


@dataclass(frozen=True)
class BindingCap(Record):
    """A source at its cap. `shadow_price` (nats per unit of ratio) and `per_billion_tokens` (nats saved per extra
    billion unique tokens, at the epochs allowed) say what a little more of it is worth."""

    kind = "binding_cap"

    source: str
    cap: float
    origin: str
    shadow_price: float
    per_billion_tokens: float


def linear_minimiser(gradient: FloatArray, lower: FloatArray, upper: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The mixture (..., M) that minimises `gradient . s` under bounds, and the price (...) at its margin."""
    order = np.argsort(gradient, axis=-1, kind="stable")
    low, high = np.broadcast_to(lower, gradient.shape), np.broadcast_to(upper, gradient.shape)
    room = np.take_along_axis(high - low, order, axis=-1)
    rest = (1 - low.sum(axis=-1))[..., None]
    before = np.cumsum(room, axis=-1) - room
    filled = np.clip(rest - before, 0.0, room)
    s = low.copy()
    np.put_along_axis(s, order, np.take_along_axis(low, order, axis=-1) + filled, axis=-1)
    last = np.sum((before < rest - AT_BOUND) & (room > 0), axis=-1, keepdims=True) - 1
    # The marginal source is the last one that the fill touches, counted among those with room.
    touched = np.argsort(~(room > 0), axis=-1, kind="stable")
    margin = np.take_along_axis(touched, np.maximum(last, 0), axis=-1)
    price = np.take_along_axis(np.take_along_axis(gradient, order, axis=-1), margin, axis=-1)[..., 0]
    return s, price


def frank_wolfe_gap(p: FloatArray, gradient: FloatArray, lower: FloatArray, upper: FloatArray) -> FloatArray:
    """gradient . (p - s) -> (...), the bound on the excess of p under bounds; +inf where a slope is infinite."""
    s, _ = linear_minimiser(gradient, lower, upper)
    move = p - s
    with np.errstate(invalid="ignore"):
        return np.sum(np.where(move == 0, 0.0, gradient * move), axis=-1)


def certify(
    terms: Terms,
    w: FloatArray,
    p: FloatArray,
    constraints: Constraints,
    *,
    kl: float = 0.0,
    anchor: FloatArray | None = None,
) -> tuple[Certificate, FloatArray]:
    """The certificate of one mixture p (M,), and the prices (M,) of each source with its groups' multipliers.

    It begins with the bounds: where p breaks one of them by more than `FEASIBLE`, the gap is infinite.

    Raises
    ------
    ProofError
        If the gap of a mixture within its bounds is negative by more than rounding.
    """
    if anchor is not None and kl > 0:  # KL is infinite off the anchor's support: no mixture there competes
        constraints = replace(constraints, upper=np.where(anchor > 0, constraints.upper, constraints.lower))
    gradient = objective_gradient(terms, w, p, kl, anchor)
    objective = objective_value(terms, w, p, kl, anchor)
    multipliers = group_multipliers(gradient, constraints)
    tilt = multipliers @ constraints.members if len(multipliers) else np.zeros_like(p)
    gap = float(frank_wolfe_gap(p, gradient - tilt, constraints.lower, constraints.upper))
    gap += float(_complementarity(multipliers, p, constraints))
    _, price = linear_minimiser(gradient - tilt, constraints.lower, constraints.upper)
    if violation(p, constraints) <= FEASIBLE:
        slopes = np.abs(gradient[np.isfinite(gradient)]).sum() + np.abs(multipliers).sum()
        gap = not_negative(gap, FEASIBLE * len(p) * float(slopes) + ROUNDING * abs(objective))
    else:
        gap = np.inf
    return certificate_of(objective, gap, float(price)), float(price) + tilt


def violation(p: FloatArray, constraints: Constraints) -> float:
    """By how much p (M,) breaks the worst of its bounds, in units of ratio; infinite where it is not finite."""
    if not np.isfinite(p).all():
        return np.inf
    sums = constraints.members @ p if constraints.grouped else np.zeros(0)
    broken = (
        abs(1 - p.sum())[None],
        constraints.lower - p,
        p - constraints.upper,
        constraints.group_lower - sums,
        sums - constraints.group_upper,
    )
    return max(float(np.concatenate(broken).max()), 0.0)


def certificate_of(objective: float, gap: float, price: float) -> Certificate:
    """The certificate that says `gap`; relative to the objective, too."""
    return Certificate(objective, gap, gap / max(abs(objective), 1e-300), objective - gap, price)


def not_negative(gap: float, rounding: float) -> float:
    """The gap of a mixture within its bounds, at least 0.

    Raises
    ------
    ProofError
        If it is below zero by more than `rounding`: the mixture would be better than the best.
    """
    if gap < -rounding:
        raise ProofError(
            f"the certificate says that a mixture is better than the best one, by {-gap:.3g} nats; "
            "this is a fault of shapleymix: please report it with the command and the fit"
        )
    return max(gap, 0.0)


def objective_value(
    terms: Terms, w: FloatArray, p: FloatArray, kl: float = 0.0, anchor: FloatArray | None = None
) -> float:
    """sum_j w_j loss_j(p) + kl sum_i p_i log(p_i / anchor_i) for one mixture."""
    value = float(terms.objective(p, w))
    if anchor is None or kl == 0:
        return value
    inside = p > 0
    with np.errstate(divide="ignore"):  # infinite off the anchor's support
        return value + kl * float(np.sum(p[inside] * np.log(p[inside] / anchor[inside])))


def objective_gradient(
    terms: Terms, w: FloatArray, p: FloatArray, kl: float = 0.0, anchor: FloatArray | None = None
) -> FloatArray:
    """Gradient of `objective_value`, -inf at ratio zero where the anchor is not zero."""
    gradient = terms.gradient(p, w)
    if anchor is None or kl == 0:
        return gradient
    with np.errstate(divide="ignore", invalid="ignore"):
        pull = np.where(anchor > 0, np.log(p / anchor) + 1, 0.0)
    return gradient + kl * pull


def group_multipliers(gradient: FloatArray, constraints: Constraints) -> FloatArray:
    """(G,) multipliers of the groups in the linear program min gradient . s, positive at a group's floor."""
    if not constraints.grouped:
        return np.zeros(0)
    if not np.isfinite(gradient).all():
        return np.zeros(len(constraints.group_names))
    A, low, high = constraints.members, constraints.group_lower, constraints.group_upper
    unit = max(float(np.abs(gradient).max()), 1e-300)
    found = linprog(
        gradient / unit,
        A_ub=np.concatenate([-A, A]),
        b_ub=np.concatenate([-low, high]),
        A_eq=np.ones((1, len(gradient))),
        b_eq=[1.0],
        bounds=np.stack([constraints.lower, constraints.upper], axis=1),
        method="highs",
    )
    if not found.success:
        raise SolveError(f"the certificate's linear program failed: {found.message}")
    at_floor, at_cap = np.split(np.maximum(-found.ineqlin.marginals, 0.0) * unit, 2)
    return at_floor - at_cap


def binding_caps(
    p: FloatArray, gradient: FloatArray, prices: FloatArray, constraints: Constraints
) -> tuple[BindingCap, ...]:
    """Sources at a cap below one, with what more of each would be worth."""
    worth = np.maximum(0.0, prices - gradient)
    per_ratio = np.where(np.isnan(constraints.available), 1.0, constraints.epochs) * TOKENS / constraints.D
    at_cap = (p >= constraints.upper - AT_BOUND) & (constraints.upper < 1)
    return tuple(
        BindingCap(
            constraints.sources[i],
            float(constraints.upper[i]),
            constraints.cap_origin[i],
            float(worth[i]),
            float(worth[i] * per_ratio[i]),
        )
        for i in np.flatnonzero(at_cap)
    )


def _complementarity(multipliers: FloatArray, p: FloatArray, constraints: Constraints) -> float:
    """What the multipliers of bounds on groups that p does not meet add to the gap."""
    if not len(multipliers):
        return 0.0
    at = constraints.members @ p
    bound = np.where(multipliers > 0, constraints.group_lower, constraints.group_upper)
    return float(np.sum(multipliers * (at - bound)))
