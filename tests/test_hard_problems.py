"""Problems that the fuzz campaign found hard, each for its own reason: once wrong, refused, loose or with a warning.

Truth is the certificate, whose bound holds whoever made the mixture, and the bounds themselves.
"""

from __future__ import annotations

import pytest

from shapleymix.errors import SolveError
from shapleymix.mixing.certificate import violation
from shapleymix.mixing.demands import Demands
from shapleymix.mixing.engine.solving import solve
from shapleymix.mixing.problem import Problem
from tests.fuzz.problems import BUDGET, Case

BAND, CAP, EQUAL, FLOOR = "band", "cap", "equal", "floor"

HARD = {
    "an L1 ball, fixed sources, weights of e+-14": Case(
        14845153, 12, 16, "linear", "large", "mean", "extreme", "tokens", True, 3, slack=1e-9, near="l1", sparse=True
    ),
    "equal groups that fix a source of an L1 ball": Case(
        0, 18, 18, "linear", "spread", "mean", "extreme", "loose", groups=(EQUAL,) * 4, near="l1"
    ),
    "equal groups that fix a source, exponential": Case(
        21, 21, 1, "exponential", groups=(EQUAL,) * 4, slack=1e-3, anchor="zeros", caps="loose"
    ),
    "a band of 2e-9 in an L1 ball": Case(
        131072, 23, 12, "exponential", "large", "worst", "zeros", "tight", True, 0, (BAND, FLOOR, EQUAL), 1e-9,
        near="l1", sparse=True,
    ),
    "one row that is tight, others that only looked so": Case(
        183, 18, 12, "linear", "spread", caps="tight", floors=True, groups=(FLOOR, EQUAL, CAP, FLOOR), slack=1e-6,
        anchor="uniform", sparse=True,
    ),
    "the same for the worst case": Case(
        1, 15, 1, "linear", "spread", "worst", "extreme", "loose", True, 0, (BAND, BAND, EQUAL), 0.0, "random"
    ),
    "a worst case of 4e13 with a KL penalty": Case(
        4035016, 10, 17, "linear", "spread", "worst", "extreme", "tight", True, anchor="zeros", sparse=True
    ),
    "ratios next to zero where slopes are 1e18": Case(
        80029, 17, 23, "concave", "plain", "worst", "random", "tokens", groups=(BAND, FLOOR, BAND), slack=1e-3,
        sparse=True,
    ),
    "the same beside equal groups": Case(
        9198723, 12, 25, "concave", "plain", "worst", groups=(BAND, EQUAL, CAP, BAND), slack=0.0, sparse=True
    ),
    "a KL ball whose nearest mixture is at the edge of a band": Case(
        0, 14, 28, "exponential", "plain", "worst", "random", floors=True, fixed=1, groups=(EQUAL, BAND, EQUAL),
        slack=1e-9, near="kl", sparse=True,
    ),
    "multipliers from 1 to 1e-13 in one worst case": Case(
        686728261, 5, 12, "linear", "large", "worst", "extreme", "tight", groups=(CAP, CAP), slack=1e-3, sparse=True
    ),
    "three targets at the top whose slopes differ by 1e7": Case(
        3450, 28, 28, "linear", "spread", "worst", "extreme", "tight", fixed=1, groups=(CAP,), slack=1e-9, sparse=True
    ),
    "one source, twenty targets of unlike size": Case(
        616937455, 1, 20, "linear", "large", "worst", "extreme", floors=True, groups=(EQUAL, CAP, FLOOR, BAND),
        sparse=True,
    ),
    "a group that leaves 1e-9, where a unit of ratio is worth 1e18": Case(
        318799175, 2, 10, "linear", "large", "worst", "random", "tight", True, 0, (BAND, CAP, CAP, FLOOR), 1e-9,
        sparse=True,
    ),
    "weights of zero in a worst case with an anchor": Case(
        1966574789, 25, 20, "linear", "spread", "worst", "zeros", slack=0.0, anchor="uniform", sparse=True
    ),
    "a KL ball across three bands of 1e-9": Case(
        387333096, 7, 22, "exponential", "large", caps="tokens", groups=(BAND, BAND, BAND), slack=1e-9,
        anchor="random", near="kl", sparse=True,
    ),
    "equalities that an ill-conditioned step would leave": Case(
        2834, 20, 13, "concave", "large", "worst", "extreme", "tight", True, 0, (BAND, BAND, FLOOR, FLOOR), 0.0,
        near="l1", sparse=True,
    ),
    "bands of 2e-9 beside an L1 ball": Case(
        143, 29, 24, "concave", "spread", "worst", "zeros", groups=(CAP, CAP, BAND, BAND), slack=1e-9, near="l1"
    ),
    "two ratios that share 1e-9, where slopes are 1e4": Case(
        17, 12, 23, "concave", "plain", "mean", "random", floors=True, groups=(FLOOR, CAP, EQUAL), slack=1e-9,
        sparse=True,
    ),
}  # fmt: skip

NOWHERE = {
    "an L1 ball that leaves a target nothing": Case(
        6, 6, 6, "linear", "large", "mean", "extreme", "tokens", True, 3, slack=1e-9, near="l1", sparse=True
    ),
    "groups that leave a target nothing": Case(
        4, 4, 12, "linear", "plain", "mean", "extreme", "loose", True, 3, (CAP, CAP, CAP, FLOOR), 1e-3, sparse=True
    ),
    "a fixed ratio that leaves the other a rounding": Case(
        1816084913, 2, 11, "linear", "spread", "worst", fixed=1, slack=1e-3, sparse=True
    ),
    "a cap that the other's floor makes nothing": Case(
        201542229, 2, 11, "linear", caps="tokens", fixed=1, slack=1e-3, anchor="random", sparse=True
    ),
}


def problem_of(case: Case) -> Problem:
    """The library's problem of a case, its weights as they are."""
    made = case.problem
    N, D = BUDGET
    return Demands(**made.options).problem(made.fit, made.fit.terms(N, D), D)[0]


@pytest.mark.parametrize("name", HARD)
def test_a_hard_problem_is_solved_and_proved(name):
    problem = problem_of(HARD[name])
    answer = solve(problem)
    assert violation(answer.p, problem.constraints) <= 1e-9
    assert answer.certificate.relative_gap <= 1e-8


@pytest.mark.parametrize("name", NOWHERE)
def test_a_target_that_no_mixture_reaches_is_refused_without_a_warning(name):
    """Issue 6, fuzz 17: a rounding below zero became NaN, and infinite slopes met each other."""
    with pytest.raises(SolveError, match=r"not finite|transfers anything"):
        solve(problem_of(NOWHERE[name]))
