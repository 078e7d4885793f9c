"""Whether bounds leave a mixture; where not, which of them, by how much, and the smallest repair."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog

from shapleymix.errors import Fault, InfeasibleError, SolveError
from shapleymix.mixing.constraints import Constraints
from shapleymix.records import FloatArray
from shapleymix.tables.sizes import format_size

NOTICEABLE = 1e-9
SLACK = 1e-12


def require_feasible(constraints: Constraints) -> None:
    """Say which bounds leave no mixture, by how much, and the smallest change that repairs it.

    Raises
    ------
    InfeasibleError
        With one fault for each bound, or group of bounds, that cannot hold.
    """
    faults = _crossed(constraints) or _sums(constraints)
    if not faults and constraints.grouped:
        faults = group_repair(constraints)
    if faults:
        raise InfeasibleError.of(faults, "the set of bounds")


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


def _crossed(constraints: Constraints) -> list[Fault]:
    faults = []
    for i in np.flatnonzero(constraints.lower > constraints.upper + SLACK):
        name, low, high = constraints.sources[i], constraints.lower[i], constraints.upper[i]
        hint = f"lower its floor by {low - high:.4g}, or raise its cap to {low:.4g}"
        if constraints.cap_origin[i] == "tokens":
            need = low * constraints.D / constraints.available[i]
            hint += f" ({need:.3g} epochs of its {format_size(constraints.available[i])} tokens)"
        text = f"the floor {low:.4g} of {name} is above its cap {high:.4g}, by {low - high:.4g}"
        faults.append(Fault(text, value=f"{low - high:.6g}", hint=hint))
    return faults


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
    limited = np.array([origin == "tokens" for origin in constraints.cap_origin])
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
