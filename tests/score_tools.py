"""A second solver for mixtures chosen for scores."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from shapleymix.mixing.problem import Problem


def by_slsqp(problem: Problem, starts: int, seed: int = 0) -> float:
    """The lowest total that SLSQP finds from random starts."""
    bounds = problem.constraints
    box = list(zip(np.maximum(bounds.lower, 1e-9), bounds.upper, strict=True))
    linear = [{"type": "eq", "fun": lambda p: p.sum() - 1}]
    linear += [
        {"type": "ineq", "fun": lambda p, row=row, most=most: most - row @ p}
        for row, most in zip(bounds.members, bounds.group_upper, strict=True)
    ]

    def total(p):
        return problem.total(np.clip(p, 1e-12, 1))

    found = [
        minimize(total, start, method="SLSQP", bounds=box, constraints=linear, options={"ftol": 1e-13, "maxiter": 400})
        for start in np.random.default_rng(seed).dirichlet(np.ones(len(box)), starts)
    ]
    return min(one.fun for one in found if one.success)
