"""The rows of bounds for an interior method: what is tight, what can move, and where it begins.

Truth is one linear program a row: a row whose largest slack is zero is an equality, and no other is.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.optimize import linprog

from shapleymix.mixing.certificate import violation
from shapleymix.mixing.demands import Demands
from shapleymix.mixing.engine.rows import Rows
from tests.fuzz.problems import BUDGET, Case

EXACT = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
KINDS = (
    (),
    ("cap", "floor"),
    ("equal", "floor", "band"),
    ("equal", "equal", "cap", "floor"),
    ("band", "band", "band"),
)
CASES = [
    Case(
        seed,
        7,
        2,
        caps=("none", "tight")[seed // 2 % 2],
        floors=seed % 2 == 0,
        fixed=seed % 4,
        groups=groups,
        slack=slack,
        near=near,
        sparse=True,
    )
    for seed, (groups, slack, near) in enumerate(itertools.product(KINDS, (0.0, 1e-9, 1e-6), ("none", "l1")))
]


def bounds_of(case: Case):
    made = case.problem
    return Demands(**made.options).bounds(made.sources, BUDGET[1])


def polytope(bounds):
    """All bounds as A x <= b and C x = d over x = (p, v), v >= |p - center| in an L1 ball."""
    M, near = len(bounds.lower), bounds.near
    A = np.concatenate([np.eye(M), -np.eye(M), bounds.members, -bounds.members])
    b = np.concatenate([bounds.upper, -bounds.lower, bounds.group_upper, -bounds.group_lower])
    C = np.ones((1, M))
    if near is not None:
        eye = np.eye(M)
        ball = np.block([[eye, -eye], [-eye, -eye], [np.zeros((1, M)), np.ones((1, M))]])
        A, C = np.concatenate([np.pad(A, ((0, 0), (0, M))), ball]), np.pad(C, ((0, 0), (0, M)))
        b = np.concatenate([b, near.center, -near.center, [near.radius]])
    return A, b, C


def dimension(bounds) -> int:
    """Of the set of mixtures (and distances v), by the rows whose largest slack is zero."""
    A, b, C = polytope(bounds)

    def most(row, limit) -> float:
        found = linprog(row, A_ub=A, b_ub=b, A_eq=C, b_eq=[1.0], bounds=(None, None), options=EXACT)
        return limit - found.fun

    tight = np.array([most(row, limit) < 1e-11 for row, limit in zip(A, b, strict=True)])
    return A.shape[1] - int(np.linalg.matrix_rank(np.concatenate([C, A[tight]]), tol=1e-9))


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.seed))
def test_what_can_move_is_what_the_bounds_leave(case):
    """Issue 6: rows that could be loose were taken as tight; equalities said twice made Newton's matrix singular."""
    bounds = bounds_of(case)
    found = Rows.of(bounds)
    p = found.inside[: len(bounds.lower)]
    assert violation(p, bounds) <= 1e-11
    assert (p >= bounds.lower).all()
    assert (found.limits - found.rows @ found.inside > 0).all()
    np.testing.assert_allclose(found.equal @ found.inside, found.totals, rtol=0, atol=1e-15)
    np.testing.assert_allclose(found.equal @ found.equal.T, np.eye(len(found.equal)), atol=1e-12)
    assert not found.equal[:, ~found.free].any()
    assert np.count_nonzero(found.free) - len(found.equal) == dimension(bounds)
