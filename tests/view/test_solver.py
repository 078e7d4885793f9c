"""The page's solver against the library's, on generated goals: laws x bounds x the worst case x a pull."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from known_fits import BOUNDS, KINDS, goal_of
from page_tools import optima_of
from shapleymix_view.page_data import goal_document

from shapleymix.mixing.infeasibility import require_feasible
from shapleymix.mixing.polytope import FEASIBLE
from shapleymix.mixing.solving import solve


@pytest.mark.parametrize("M", [0, 24], ids=["small", "24 sources"])
def test_both_solvers_find_the_same_optimum_and_prove_it(M: int):
    kinds = product(KINDS, BOUNDS, range(1 if M else 2), (False, True), (False, True))
    goals = [goal_of(law, bounds, seed, worst=worst, kl=kl, M=M) for law, bounds, seed, worst, kl in kinds]
    goals = [replace(goal, within=require_feasible(goal.within)) for goal in goals]
    asked = [goal_document(one) | {"w": one.w.tolist(), "kl": one.kl, "worst": one.worst} for one in goals]
    for goal, found in zip(goals, optima_of(asked), strict=True):
        p, best = np.array(found["p"]), solve(goal)
        assert goal.violation(p) <= FEASIBLE
        np.testing.assert_allclose(goal.total(p), best.certificate.objective, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(found["objective"], goal.value(p), rtol=1e-12)
        assert 0 <= found["gap"] <= 1e-8 * abs(best.certificate.objective)
