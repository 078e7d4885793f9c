"""Bounds that leave no mixture: which of them, by how much, and the smallest change that would leave one.

Axes: M sources, G rows.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.optimize import linprog

from shapleymix.errors import Fault, InfeasibleError
from shapleymix.laws.pieces import Pieces
from shapleymix.mixing.goal import Goal
from shapleymix.mixing.polytope import FEASIBLE, READ, TOKENS, UNSEEN, Ball, Polytope
from shapleymix.mixing.solving import solve
from shapleymix.records import FloatArray
from shapleymix.tables.words import format_size

RIGID = 1e4
"""What a repair pays to change a kept ratio, in place of 1."""


def require_feasible(bounds: Polytope) -> Polytope:
    """The bounds, presolved.

    Raises
    ------
    InfeasibleError
        If they leave no mixture.
    """
    if (error := explain(bounds)) is not None:
        raise error
    return bounds.presolve()


def explain(bounds: Polytope) -> InfeasibleError | None:
    """Which bounds leave no mixture, by how much, and the smallest repair; None where there is a mixture."""
    faults = _faults_of_sums(bounds)
    if not faults and (len(bounds.rows) or (bounds.lower > bounds.upper + FEASIBLE).any()):
        faults = _repair(bounds)
    if not faults and bounds.ball is not None:
        faults = _faults_of_distance(bounds, bounds.ball)
    if not faults:
        return None
    unseen = [name for name, why in zip(bounds.sources, bounds.cap_origin, strict=True) if why == UNSEEN]
    if unseen:
        why = f"; no run of the fit ever saw {', '.join(unseen)}: held at 0 unless they are allowed"
        faults = [replace(fault, message=f"{fault.message}{why}") for fault in faults]
    return InfeasibleError.of(faults, "the set of bounds")


def _faults_of_sums(bounds: Polytope) -> list[Fault]:
    for kind, values, sign in (("floors", bounds.lower, 1), ("caps", bounds.upper, -1)):
        total = float(values.sum())
        if (over := sign * (total - 1)) > FEASIBLE:
            listed = ", ".join(f"{name} {one:.4g}" for name, one in zip(bounds.sources, values, strict=True) if one)
            text = f"the {kind} sum to {total:.6g}, {'above' if sign > 0 else 'short of'} 1 by {over:.4g}: {listed}"
            lower = f"lower them by {over:.4g} in all, for instance multiply each by {1 / total:.4g}"
            return [Fault(text, value=f"{over:.6g}", hint=lower if sign > 0 else _more_supply(bounds, total))]
    return []


def _more_supply(bounds: Polytope, caps: float) -> str:
    """What would raise caps to a sum of 1."""
    parts = [f"raise the caps by {1 - caps:.4g} in all"]
    limited = np.array([why == TOKENS for why in bounds.cap_origin])
    supplied = float(bounds.upper[limited].sum())
    if supplied > 0:
        parts.append(f"allow {1 + (1 - caps) / supplied:.4g} times the epochs")
        if limited.all():
            parts.append(f"train on D = {format_size(caps * bounds.supply.D)} tokens at most")
    return ", or ".join(parts)


def _repair(bounds: Polytope) -> list[Fault]:
    """One fault for each bound of the smallest repair in the sum of absolute changes, by a linear program."""
    M, rows = len(bounds.sources), np.concatenate([np.eye(len(bounds.sources)), bounds.rows])
    low, high = np.concatenate([bounds.lower, bounds.row_low]), np.concatenate([bounds.upper, bounds.row_high])
    eye, none = np.eye(len(rows)), np.zeros((len(rows), len(rows)))
    # Columns: p, then by how much each lower and each upper bound gives way.
    A, b = np.block([[-rows, -eye, none], [rows, none, -eye]]), np.concatenate([-low, high])
    finite = np.isfinite(b)
    read = np.append(np.array(bounds.floor_origin) == READ, bounds.rigid)  # what was read stays read
    rigid = np.append(np.zeros(M, dtype=bool), bounds.rigid)
    cost = np.concatenate([np.zeros(M), *(np.where(one, RIGID, 1.0) for one in (read, rigid))])
    total = np.concatenate([np.ones(M), np.zeros(2 * len(rows))])[None]
    found = linprog(cost, A_ub=A[finite], b_ub=b[finite], A_eq=total, b_eq=[1.0], bounds=(0, None), method="highs")
    names = (*bounds.sources, *(f"the group {name}" for name in bounds.row_names))
    origins = {"floor": bounds.floor_origin, "cap": bounds.cap_origin}
    sides = (("floor", low, -1, found.x[M : M + len(rows)]), ("cap", high, 1, found.x[M + len(rows) :]))
    faults = []
    for kind, bound, sign, change in sides:
        for i in np.flatnonzero(change > FEASIBLE).tolist():
            why, other = origins[kind][i] if i < M else "", bound[i] + sign * change[i]
            named = f"the {kind} {bound[i]:.4g}{why and f' ({why})'} of {names[i]}"
            epochs = kind == "cap" and why == TOKENS and bound[i] > 0
            hint = f"change it to {other:.4g}" + (f" ({other / bound[i]:.3g} times the epochs)" if epochs else "")
            text = f"{named} cannot hold with {_against(bounds, rows[i] * -sign)}, by {change[i]:.4g}"
            faults.append(Fault(text, value=f"{change[i]:.6g}", hint=hint))
    return faults


def _against(bounds: Polytope, more_of: FloatArray) -> str:
    """What stands against a bound that asks for more of some sources (M,), or for less: their tokens, where these
    alone hold them."""
    wanted = (more_of > 0) | (more_of < 0) & (bounds.lower > bounds.upper)
    few = np.flatnonzero(wanted & (np.array(bounds.cap_origin) == TOKENS)).tolist()
    supply, D = bounds.supply, format_size(bounds.supply.D)
    sizes = [
        f"{supply.epochs[i]:g} epochs of {bounds.sources[i]}'s {format_size(supply.available[i])} tokens are "
        f"{bounds.upper[i]:.3g} of {D}"
        for i in few[:3]
    ]
    return f"the tokens: {', '.join(sizes)}" if sizes else "the others"


def _faults_of_distance(bounds: Polytope, ball: Ball) -> list[Fault]:
    """Whether no mixture within the other bounds is near enough to the centre."""
    least = 0.0 if bounds.violation(ball.center) <= FEASIBLE else _least_distance(bounds, ball)
    if least <= ball.radius * (1 + 1e-6) + FEASIBLE:
        return []
    text = f"no mixture within the other bounds is within {ball.radius:.4g} of the one to stay near"
    hint = f"widen it to {least * 1.001:.4g}, or loosen the other bounds"
    hint = hint if np.isfinite(least) else "give that mixture some of all sources that the bounds need, or use l1"
    return [Fault(f"{text}: the nearest is at {least:.4g}", value=f"{least:.6g}", hint=hint)]


def _least_distance(bounds: Polytope, ball: Ball) -> float:
    """That of the nearest mixture within the other bounds; infinite in KL where these need what the centre lacks."""
    if ball.kind == "l1":
        everywhere = replace(bounds, ball=replace(ball, radius=2.0))
        found = everywhere.minimise_linear(np.repeat([0.0, 1.0], len(bounds.sources)))
        return np.inf if found is None else ball.distance(found)
    others = replace(bounds, ball=None).hold_at_zero(ball.center == 0, "centre")
    if explain(others) is not None:
        return np.inf
    none, one = np.zeros(1), np.ones(1)
    nothing = Pieces("power", none, none, one, np.ones((len(bounds.sources), 1)))
    return solve(Goal(nothing, one, others.presolve(), kl=1.0, anchor=ball.center)).certificate.objective
