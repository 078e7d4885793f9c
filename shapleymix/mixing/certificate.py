"""How far from optimal a mixture can be: the Frank-Wolfe bound, which holds whoever made the mixture.

For a convex objective J and any feasible p, J(p) - J* <= grad J(p) . (p - s), where s minimises the linear function
over the feasible set (ShapleyLaw paper, "Convexity and optimality conditions", gives the gradient). Under caps s
fills the cheapest sources first: a sort. Groups, a ball around a mixture and the worst-case objective get multipliers
from a linear program (`multipliers`), and the bound is then computed from these by weak duality, so that it holds
whatever the program's tolerance. A mixture that breaks a bound has no proof: its gap is infinite.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shapleymix.fields import AMOUNT, FINITE, Range
from shapleymix.mixing.bounds import Constraints
from shapleymix.mixing.multipliers import Multipliers, multipliers_of
from shapleymix.mixing.problem import Problem, divergence
from shapleymix.records import FloatArray, Record

AT_BOUND = 1e-9
ROUNDED = 1e-9
"""Relative: by how much a file may round what is derived from its numbers."""
FEASIBLE = 1e-9
"""A mixture that breaks a bound by more than this, in units of ratio, is outside of it and has no proof."""
ROUNDING = 1e-12
EDGES = (1e-150, 1e-14, 1e-12, 1e-10)
"""Where a tangent may touch the objective instead of at a smaller ratio. At zero the slope of a concave law is
infinite; at a ratio of 1e-16 it can be 1e18, which no linear program's solver takes, though the ratio hardly counts."""
TIGHT = 1e-9
"""A gap below this, relative to the objective, needs no other tangent."""


class ProofError(RuntimeError):
    """A certificate contradicts itself: a fault of this library, not of its user."""


@dataclass(frozen=True)
class Certificate(Record):
    """`objective - lower_bound = gap >= 0`: no feasible mixture is better by more than `gap` nats.

    The gap is infinite for a mixture outside of its bounds: nothing is proved of such a one. `objective` is what was
    minimised, with its penalty. `price` is d objective / d ratio at the margin: what a ratio must bring to be worth
    its place.
    """

    kind = "certificate"
    ranges: ClassVar[Mapping[str, Range]] = {"objective": FINITE, "gap": AMOUNT, "relative_gap": AMOUNT}

    objective: float
    gap: float
    relative_gap: float
    lower_bound: float
    price: float

    def __post_init__(self) -> None:
        bound, share = self.objective - self.gap, self.relative_gap * abs(self.objective)
        if np.isfinite(self.gap) and not abs(self.lower_bound - bound) <= ROUNDED * max(abs(bound), 1.0):
            raise ValueError(f"certificate: the lower bound {self.lower_bound:g} is not the objective less the gap")
        if np.isfinite(self.gap) and not abs(self.gap - share) <= ROUNDED * max(self.gap, 1.0):
            raise ValueError(f"certificate: the gap {self.gap:g} is not its share of the objective")


@dataclass(frozen=True)
class Answer:
    """A mixture and all that is proved of it.

    Attributes
    ----------
    p : array (M,)
        The mixture.
    certificate : Certificate
        Bound on how far the mixture is from the best one.
    worth : array (M,)
        Nats that each source's cap, raised by one unit of ratio, would save; 0 where the cap does not bind.
    cost : array (M,)
        Nats that each source's floor, lowered by one unit of ratio, would save.
    group_worth, group_cost : array (G,)
        The same for the caps and floors of the groups.
    gradient : array (M,)
        Gradient of the objective.
    of_targets : array (K,)
        Weights of the targets at which it is taken; for the worst case, those of the saddle point.
    engine : str
        Name of the engine that found the mixture.
    """

    p: FloatArray
    certificate: Certificate
    worth: FloatArray
    cost: FloatArray
    group_worth: FloatArray
    group_cost: FloatArray
    gradient: FloatArray
    of_targets: FloatArray
    engine: str

    @property
    def proved(self) -> bool:
        """Whether there is a proof at all: a law without convexity has none."""
        return not np.isnan(self.certificate.gap)


def certified(problem: Problem, p: FloatArray, engine: str) -> Answer:
    """The answer that p is, with its proof.

    Raises
    ------
    ProofError
        If the gap of a mixture within its bounds is negative by more than rounding.
    """
    asked, problem = problem.constraints, problem.supported
    proof = _best_proof(problem, p)
    with np.errstate(invalid="ignore"):  # where the objective is infinite, so are its slopes
        pull = proof.price - proof.slope
    return Answer(
        p=p,
        certificate=certificate_of(problem.total(p), proof.gap, proof.price),
        worth=np.where(p >= asked.upper - AT_BOUND, np.maximum(pull, 0.0), 0.0),
        cost=np.where(p <= problem.constraints.lower + AT_BOUND, np.maximum(-pull, 0.0), 0.0),
        group_worth=np.maximum(-proof.multipliers.groups, 0.0),
        group_cost=np.maximum(proof.multipliers.groups, 0.0),
        gradient=proof.gradient,
        of_targets=proof.multipliers.w,
        engine=engine,
    )


@dataclass(frozen=True)
class _Proof:
    """The gap of a mixture by the tangents at one point, and what it was computed from."""

    gap: float
    price: float
    gradient: FloatArray
    slope: FloatArray
    multipliers: Multipliers


def _best_proof(problem: Problem, p: FloatArray) -> _Proof:
    """The tightest proof by tangents at p or, where that is loose, next to it: any point bounds a convex objective."""
    within = bool(np.isfinite(problem.total(p))) and violation(p, problem.constraints) <= FEASIBLE
    proofs = (
        _proof(problem, p, base, found, within)
        for base in _touching(problem, p)
        for found in multipliers_of(problem, base)
    )
    best = next(proofs)
    while within and not problem.further and best.gap > TIGHT * abs(problem.total(p)):
        proof = next(proofs, None)
        if proof is None:
            break
        best = proof if proof.gap < best.gap else best
    return best


def _touching(problem: Problem, p: FloatArray) -> Iterator[FloatArray]:
    """Points (M,) at which tangents may touch, the mixture's own first."""
    yield _off_the_edge(problem, p)
    for edge in EDGES[1:]:
        yield np.where((p < edge) & (problem.constraints.upper > edge), edge, p)


def _proof(problem: Problem, p: FloatArray, base: FloatArray, found: Multipliers, within: bool) -> _Proof:
    """The proof of p by the tangents at `base`."""
    bounds = problem.constraints
    gradient = problem.gradient(base, found.w)
    slope = gradient - found.tilt(bounds)
    _, price = linear_minimiser(slope, bounds.lower, bounds.upper)
    if not within:
        gap = np.inf
    elif problem.further:
        gap = _gap_of_a_program(problem, p, base)
    else:
        gap = float(frank_wolfe_gap(base, slope, bounds.lower, bounds.upper)) + found.slack(base, bounds)
        gap += problem.total(p) - float(problem.terms.objective(base, found.w)) - problem.penalty(base)
        sizes = np.abs(slope).sum() + np.abs(found.groups).sum() + np.abs(found.ball).max(initial=0.0)
        gap = not_negative(gap, FEASIBLE * len(p) * float(sizes) + ROUNDING * abs(problem.total(p)))
    return _Proof(gap, float(price), gradient, slope, found)


def _off_the_edge(problem: Problem, p: FloatArray) -> FloatArray:
    """p, with ratios of zero where a slope is infinite moved to where it is finite."""
    at_zero = (p <= 0) & (problem.constraints.upper > 0)
    ball = problem.constraints.near is not None and problem.constraints.near.kind == "kl"
    if not at_zero.any() or (not ball and np.isfinite(problem.gradient(p, problem.w)).all()):
        return p
    return np.where(at_zero, EDGES[0], p)


def uncertified(problem: Problem, p: FloatArray, engine: str) -> Answer:
    """The answer that p is for a law without convexity, of which nothing can be proved."""
    none = np.full(len(p), np.nan)
    groups = np.full(len(problem.constraints.group_names), np.nan)
    certificate = Certificate(problem.total(p), np.nan, np.nan, np.nan, np.nan)
    return Answer(p, certificate, none, none, groups, groups, none, problem.w, engine)


def _gap_of_a_program(problem: Problem, p: FloatArray, base: FloatArray) -> float:
    """The gap under the user's own constraints, whose linearised program only a cone solver knows."""
    from shapleymix.mixing.engine.cone import least_tangent

    least, rounding = least_tangent(problem, base)
    return not_negative(problem.total(p) - least, rounding)


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
    return np.inf if np.isnan(gap) else max(gap, 0.0)


def violation(p: FloatArray, bounds: Constraints) -> float:
    """By how much p (M,) breaks the worst of its bounds, in units of ratio (of nats for a KL ball).

    Infinite where p is not finite.
    """
    if not np.isfinite(p).all():
        return np.inf
    sums = bounds.members @ p if bounds.grouped else np.zeros(0)
    broken = (
        abs(1 - p.sum())[None],
        bounds.lower - p,
        p - bounds.upper,
        bounds.group_lower - sums,
        sums - bounds.group_upper,
        np.atleast_1d(_beyond_ball(p, bounds)),
    )
    return max(float(np.concatenate(broken).max()), 0.0)


def _beyond_ball(p: FloatArray, bounds: Constraints) -> float:
    near = bounds.near
    if near is None:
        return 0.0
    distance = float(np.abs(p - near.center).sum()) if near.kind == "l1" else divergence(p, near.center)
    return distance - near.radius


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
