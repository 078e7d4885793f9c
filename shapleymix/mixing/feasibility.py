"""Where groups are involved: the smallest total change of bounds that leaves a mixture, by a linear program."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog

from shapleymix.errors import Fault, SolveError
from shapleymix.mixing.constraints import Constraints
from shapleymix.records import FloatArray

NOTICEABLE = 1e-9


def group_repair(constraints: Constraints) -> list[Fault]:
    """One fault for each bound of the smallest repair (in the sum of absolute changes); none if all can hold."""
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
