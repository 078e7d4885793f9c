"""Bounds that leave no room: sources held at zero by groups, rows that touch, bands of 1e-9, steep slopes.

Each case once failed: refused though feasible, slow, or with a loose proof. Truth is the certificate, and where the
bounds leave one way only, arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from shapleymix.laws.terms import PowerTerms
from shapleymix.mixing.bounds import Bounds, Constraints, Group
from shapleymix.mixing.certificate import violation
from shapleymix.mixing.engine.rows import Rows
from shapleymix.mixing.engine.solving import solve
from shapleymix.mixing.problem import MEAN, WORST, Problem
from shapleymix.mixing.room import without_room

NAMES = ("a", "b", "c", "d", "e")


@dataclass(frozen=True)
class Held:
    """Groups, and the sources that they hold at zero together."""

    groups: tuple[Group, ...]
    held: frozenset[str] = field(default_factory=frozenset)
    floors: str | None = None

    @property
    def bounds(self) -> Constraints:
        return Bounds(groups=self.groups, floors=self.floors).at(NAMES, 1e9)


HELD = {
    "all in three": Held((Group(("a", "b", "c"), 1.0, 1.0),), frozenset("de")),
    "the rest has nothing": Held((Group(("d", "e"), 0.0, 0.0),), frozenset("de")),
    "two groups that differ by one": Held(
        (Group(("a", "b"), 0.3, 0.3), Group(("a", "b", "c"), 0.3, 0.3)), frozenset("c")
    ),
    "a floor that the caps only just allow": Held(
        (Group(("a",), 0.0, 0.4), Group(("b",), 0.0, 0.2), Group(("a", "b"), 0.6, 1.0), Group(("c", "d"), 0.4, 1.0)),
        frozenset("e"),
    ),
    "a band of 1e-9": Held((Group(("a", "b"), 0.3, 0.3 + 1e-9), Group(("a", "b", "c"), 0.3, 0.3 + 1e-9))),
    "a floor that fills its group": Held((Group(("a", "b", "c"), 0.0, 0.3),), frozenset("bc"), "a=0.3"),
    "floors that leave the rest nothing": Held((Group(("a", "b"), 0.6, 1.0),), frozenset("e"), "c=0.2,d=0.2"),
    "nothing held": Held((Group(("a", "b"), 0.2, 0.6), Group(("b", "c"), 0.1, 0.5))),
}


def concave(rng: np.random.Generator) -> PowerTerms:
    """A law whose slopes are infinite at ratio zero."""
    K = len(NAMES)
    phi = rng.uniform(0.05, 1, (K, K))
    return PowerTerms(np.zeros(K), rng.uniform(1, 3, K), rng.uniform(0.05, 0.4, K), phi, rng.uniform(0.3, 0.9, (K, K)))


@pytest.mark.parametrize("name", HELD)
def test_sources_that_groups_hold_at_zero_are_found(name):
    case = HELD[name]
    assert {NAMES[i] for i in np.flatnonzero(without_room(case.bounds))} == case.held


@pytest.mark.parametrize("objective", [MEAN, WORST])
@pytest.mark.parametrize("name", HELD)
def test_a_concave_law_is_solved_where_groups_leave_no_room(name, objective):
    """Issue 6, fuzz 1, 18, 19 and 24: an infinite slope at a ratio that cannot move refused the whole problem."""
    case = HELD[name]
    rng = np.random.default_rng(len(name))
    answer = solve(Problem(concave(rng), rng.uniform(0.5, 2, len(NAMES)), case.bounds, objective))
    assert violation(answer.p, case.bounds) <= 1e-9
    assert answer.certificate.relative_gap <= 1e-8
    assert all(answer.p[NAMES.index(source)] <= 1e-12 for source in case.held)


@pytest.mark.parametrize("name", HELD)
def test_the_start_is_strictly_inside_whatever_can_move(name):
    bounds = HELD[name].bounds
    rows = Rows.of(bounds)
    assert violation(rows.inside, bounds) <= 1e-12
    assert (rows.limits - rows.rows @ rows.inside > 0).all()


def test_the_proof_of_a_worst_case_survives_steep_slopes_of_targets_far_below():
    """Issue 6, fuzz 10: one target decides; others, 1e10 times smaller, are so steep that HiGHS refused the program."""
    rng = np.random.default_rng(3)
    law = concave(rng)
    s = np.array(law.s)
    s[:, 1:] = 0.02
    law = PowerTerms(law.floor, law.a, law.gamma, law.phi, s)
    w = np.array([1e10, 1.0, 1e-3, 1e-6, 1e-6])
    bounds = Bounds(groups=(Group(("a", "b"), 0.1, 0.5),)).at(NAMES, 1e9)
    answer = solve(Problem(law, w, bounds, WORST))
    assert answer.certificate.relative_gap <= 1e-8
