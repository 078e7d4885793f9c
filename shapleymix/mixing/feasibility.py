"""Whether bounds leave a mixture at all; if not, which of them, by how much, and the smallest repair."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy.optimize import linprog

from shapleymix.errors import Fault, InfeasibleError, Location, SolveError
from shapleymix.mixing.bounds import FIXED, L1, TOKENS, UNSEEN, Constraints, Near
from shapleymix.mixing.room import SLACK, least_distance
from shapleymix.records import BoolArray, FloatArray
from shapleymix.tables.sizes import format_size

NOTICEABLE = 1e-9


def require_feasible(constraints: Constraints) -> None:
    """Say which bounds leave no mixture, by how much, and the smallest change that repairs it.

    Raises
    ------
    InfeasibleError
        With one fault for each bound, or group of bounds, that cannot hold.
    """
    faults = _broken(constraints)
    if faults:
        raise InfeasibleError.of(_naming_unseen(constraints, faults, _broken), "the set of bounds")


def _broken(constraints: Constraints) -> list[Fault]:
    """The bounds that leave no mixture, each with its repair; nothing where there is a mixture."""
    faults = _crossed(constraints) or _sums(constraints)
    if not faults and constraints.grouped:
        faults = group_repair(constraints)
    if not faults and constraints.near is not None:
        faults = _too_far(constraints, constraints.near)
    return faults


def _naming_unseen(
    constraints: Constraints, faults: list[Fault], broken: Callable[[Constraints], list[Fault]]
) -> list[Fault]:
    """The faults, which say so where it is sources held at 0 as unseen that leave no mixture."""
    held = np.array([why == UNSEEN for why in constraints.cap_origin], dtype=bool)
    if not held.any() or broken(_allowing(constraints, held)):
        return faults
    names = ", ".join(name for name, out in zip(constraints.sources, held.tolist(), strict=True) if out)
    why = f"; no run of the fit ever saw {names}: held at 0"
    way = "allow sources that were never seen (allow_unseen)"
    return [
        fault
        if way in (fault.hint or "")
        else replace(fault, message=f"{fault.message}{why}", hint=f"{fault.hint}, or {way}" if fault.hint else way)
        for fault in faults
    ]


def _allowing(constraints: Constraints, held: BoolArray) -> Constraints:
    """The bounds without those that hold unseen sources at 0."""
    origins = tuple("" if out else why for why, out in zip(constraints.cap_origin, held.tolist(), strict=True))
    return replace(constraints, upper=np.where(held, 1.0, constraints.upper), cap_origin=origins)


def group_repair(constraints: Constraints) -> list[Fault]:
    """One fault for each bound of the smallest repair in the sum of absolute changes, by a linear program."""
    G, M = constraints.members.shape
    # Columns: p, then how far each floor, cap, group floor and group cap gives way.
    eye, none = np.eye(M), np.zeros
    A = np.block(
        [
            [-eye, -eye, none((M, M)), none((M, 2 * G))],
            [eye, none((M, M)), -eye, none((M, 2 * G))],
            [-constraints.members, none((G, 2 * M)), -np.eye(G), none((G, G))],
            [constraints.members, none((G, 2 * M)), none((G, G)), -np.eye(G)],
        ]
    )
    b = np.concatenate([-constraints.lower, constraints.upper, -constraints.group_lower, constraints.group_upper])
    cost = np.concatenate([np.zeros(M), np.ones(2 * M + 2 * G)])
    total = np.concatenate([np.ones(M), np.zeros(2 * M + 2 * G)])[None]
    found = linprog(cost, A_ub=A, b_ub=b, A_eq=total, b_eq=[1.0], bounds=(0, None), method="highs")
    if not found.success:
        raise SolveError(f"the feasibility of the bounds could not be decided: {found.message}")
    return _faults(constraints, found.x[M:])


def _faults(constraints: Constraints, change: FloatArray) -> list[Fault]:
    G, M = constraints.members.shape
    if change.sum() <= NOTICEABLE:
        return []
    kinds = [("floor", constraints.sources, constraints.lower, -1), ("cap", constraints.sources, constraints.upper, 1)]
    kinds += [
        ("floor of the group", constraints.group_names, constraints.group_lower, -1),
        ("cap of the group", constraints.group_names, constraints.group_upper, 1),
    ]
    parts = np.split(change, np.cumsum([M, M, G]))
    return [
        Fault(
            f"the {kind} {names[i]} = {bounds[i]:.4g} cannot hold with the others, by {part[i]:.4g}",
            value=f"{part[i]:.6g}",
            hint=f"change it to {bounds[i] + sign * part[i]:.4g}",
        )
        for (kind, names, bounds, sign), part in zip(kinds, parts, strict=True)
        for i in np.flatnonzero(part > NOTICEABLE)
    ]


def require_anchor(constraints: Constraints, anchor: FloatArray) -> None:
    """Refuse an anchor from which every mixture within the bounds is infinitely far: KL(p || anchor) is finite only
    where p is zero with the anchor.

    Raises
    ------
    InfeasibleError
        With the sources that the bounds ask for and the anchor lacks, or the bounds that leave too little of it.
    """

    def broken(bounds: Constraints) -> list[Fault]:
        return _without_anchor(bounds, anchor)

    faults = broken(constraints)
    if faults:
        raise InfeasibleError.of(_naming_unseen(constraints, faults, broken), "the bounds with the anchor")


def _without_anchor(constraints: Constraints, anchor: FloatArray) -> list[Fault]:
    """The bounds that leave no mixture on the anchor's sources; nothing where there is one."""
    absent = anchor == 0
    faults = [
        Fault(
            f"the {_floor_kind(constraints, i)} {constraints.lower[i]:.4g} of {constraints.sources[i]!r} cannot hold: "
            "the anchor gives it ratio 0, and the KL term keeps it there",
            hint="give the anchor some of it, or drop the bound",
        )
        for i in np.flatnonzero(absent & (constraints.lower > SLACK)).tolist()
    ]
    if not faults and absent.any():
        on_support = replace(constraints, upper=np.where(absent, constraints.lower, constraints.upper))
        inner = _sums(on_support) or (group_repair(on_support) if constraints.grouped else [])
        kept = ", ".join(name for name, out in zip(constraints.sources, absent.tolist(), strict=True) if not out)
        text = f"the anchor holds {kept} only, and within the bounds no mixture of these exists"
        hint = "give the anchor more sources, or loosen the bounds"
        faults = [Fault(f"{text}: {fault.message}", hint=hint) for fault in inner]
    return faults


def _too_far(constraints: Constraints, near: Near) -> list[Fault]:
    """Whether any mixture within the other bounds is near enough."""
    unit = "in L1 distance" if near.kind == L1 else "nats of KL divergence"
    least = least_distance(constraints, near)
    if least <= near.radius + NOTICEABLE:
        return []
    text = f"no mixture within the other bounds is within {near.radius:.4g} of the one to stay near"
    if not np.isfinite(least):
        lacking = constraints.lower > np.where(near.center > 0, np.inf, SLACK)
        names = ", ".join(constraints.sources[i] for i in np.flatnonzero(lacking)) or "some source"
        return [Fault(f"{text}: it gives {names} ratio 0, and the bounds do not", hint="give it some, or use l1")]
    hint = f"widen it to {_up(least):.4g}, or loosen the other bounds"
    return [Fault(f"{text}: the nearest is at {least:.4g} {unit}", value=f"{least:.6g}", hint=hint)]


def _up(value: float) -> float:
    """Rounded up in the fourth digit, so that the number that is printed suffices."""
    return value * (1 + 1e-3)


def _floor_kind(constraints: Constraints, i: int) -> str:
    """What a lower bound is: a floor, a fixed ratio, or the fewest tokens that are asked for."""
    kinds = {FIXED: "fixed ratio", TOKENS: "minimum of tokens, as a ratio"}
    return kinds.get(constraints.floor_origin[i] if constraints.floor_origin else "", "floor")


def _crossed(constraints: Constraints) -> list[Fault]:
    crossed = np.flatnonzero(constraints.lower > constraints.upper + SLACK).tolist()
    return [Fault(*_crossing(constraints, i)) for i in crossed]


def _crossing(constraints: Constraints, i: int) -> tuple[str, Location, str, str]:
    """Message, (no) place, value and hint for one source whose lower bound is above its upper one."""
    name, low, high = constraints.sources[i], constraints.lower[i], constraints.upper[i]
    kind, value = _floor_kind(constraints, i), f"{low - high:.6g}"
    if constraints.cap_origin[i] == UNSEEN:
        text = f"{name} has a {kind} of {low:.4g}, but no run of the fit ever saw it: it is held at 0"
        hint = f"drop the {kind}, fit on runs that hold it, or allow sources that were never seen (allow_unseen)"
        return text, Location(), value, hint
    if constraints.cap_origin[i] == FIXED:
        text = f"the {kind} {low:.4g} of {name} is above the ratio {high:.4g} at which it is fixed"
        return text, Location(), value, "give one of the two"
    hint = f"lower its {kind} by {low - high:.4g}, or raise its cap to {low:.4g}"
    if constraints.cap_origin[i] == TOKENS and constraints.available[i] > 0:
        need = low * constraints.D / constraints.available[i]
        hint += f" ({need:.3g} epochs of its {format_size(constraints.available[i])} tokens)"
    return f"the {kind} {low:.4g} of {name} is above its cap {high:.4g}, by {low - high:.4g}", Location(), value, hint


def _sums(constraints: Constraints) -> list[Fault]:
    floors, caps = float(constraints.lower.sum()), float(constraints.upper.sum())
    if floors > 1 + SLACK:
        listed = ", ".join(
            f"{name} {value:.4g}" for name, value in zip(constraints.sources, constraints.lower, strict=True) if value
        )
        hint = f"lower them by {floors - 1:.4g} in all, for instance multiply each by {1 / floors:.4g}"
        return [Fault(f"the floors sum to {floors:.6g}, above 1 by {floors - 1:.4g}: {listed}", hint=hint)]
    if caps < 1 - SLACK:
        listed = ", ".join(
            f"{name} {value:.4g}" for name, value in zip(constraints.sources, constraints.upper, strict=True)
        )
        text = f"the caps sum to {caps:.6g}, short of 1 by {1 - caps:.4g}: {listed}"
        return [Fault(text, value=f"{1 - caps:.6g}", hint=_more_supply(constraints, caps))]
    return []


def _more_supply(constraints: Constraints, caps: float) -> str:
    short = 1 - caps
    general = f"raise the caps by {short:.4g} in all ({format_size(short * constraints.D)} tokens)"
    limited = np.array([origin == TOKENS for origin in constraints.cap_origin])
    if not limited.any():
        return general
    supplied = float(constraints.upper[limited].sum())
    factor = 1 + short / supplied if supplied else np.inf
    epochs = constraints.epochs[limited]
    allowed = f"{epochs.min():.3g}" if epochs.min() == epochs.max() else f"{epochs.min():.3g} to {epochs.max():.3g}"
    parts = [general]
    if np.isfinite(factor):
        parts.append(f"allow {factor:.4g} times the epochs ({allowed} now)")
    if limited.all():
        parts.append(f"train on D = {format_size(caps * constraints.D)} tokens at most")
    return ", or ".join(parts)
