"""A price is what relaxing the bound saves at first: every kind of bound, alone and where others meet it, against the
differences of a second solver's optima."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from known_fits import SOURCES, FakeFit

from shapleymix.laws.terms import PowerTerms
from shapleymix.mixing.bounds import Bounds
from shapleymix.mixing.demands import Demands
from shapleymix.mixing.engine.cone import solve_cone
from shapleymix.mixing.engine.solving import solve
from shapleymix.mixing.optimization import optimize
from shapleymix.mixing.prices import CAP, FLOOR, GROUP_CAP, GROUP_FLOOR, MANY, RANGED, RANGED_DEAR, _Bound, prices_of
from shapleymix.mixing.problem import Problem

BUDGET = (1e9, 1e11)
STEP = 2e-5
CENTER = {"en": 0.25, "de": 0.25, "fi": 0.4, "code": 0.1}
CAPS = {"en": 0.25}
BOUNDS = {
    "cap": {"caps": CAPS},
    "floor": {"floors": {"code": 0.1}},
    "fixed": {"fix": {"de": 0.25}, "caps": CAPS},
    "group cap": {"groups": ["en+de<=0.5"]},
    "group floor": {"groups": ["de+fi>=0.65"]},
    "group equal": {"groups": ["en+code=0.35"]},
    # Where bounds meet, none of these is what another leaves.
    "caps and their group": {"caps": {"en": 0.25, "de": 0.25}, "groups": ["en+de<=0.5"]},
    "a cap twice": {"caps": CAPS, "groups": ["en<=0.25"]},
    "a floor under a group": {"floors": {"en": 0.25}, "groups": ["en+de<=0.5"], "caps": {"de": 0.25}},
    "caps that fill": {"caps": {"en": 0.25, "de": 0.25, "fi": 0.4, "code": 0.1}},
}
BALLS = {
    "no ball": {},
    "l1": {"near": CENTER, "within": 0.1},
    "kl": {"near": CENTER, "within": 0.01, "distance": "kl"},
    "narrow l1": {"near": CENTER, "within": 0.001},
}
OBJECTIVES = {"mean": {}, "worst": {"objective": "worst"}, "penalised": {"anchor": CENTER, "kl": 0.05}}


def moved(problem: Problem, side: str, index: int) -> Problem:
    bound = _Bound(index, side, 0.0)
    step = STEP if side in (CAP, GROUP_CAP) else -STEP
    return bound.moved(problem, bound.at(problem) + step)


CASES = [
    *product(BOUNDS, BALLS, ["mean"]),
    *product(BOUNDS, ["no ball", "l1"], ["worst"]),
    *product(BOUNDS, ["no ball"], ["penalised"]),
]


@pytest.mark.parametrize(("bound", "ball", "kind"), CASES)
def test_a_price_is_what_relaxing_saves(bound, ball, kind):
    options = BOUNDS[bound] | BALLS[ball] | OBJECTIVES[kind]
    fit = FakeFit(B=0)
    found = {(price.side, price.source): price.per_ratio for price in optimize(fit, *BUDGET, **options).binding}
    problem, _ = Demands(**options).problem(fit, fit.terms(*BUDGET), BUDGET[1])
    bounds = problem.constraints
    width = bounds.upper - bounds.lower
    places = [(CAP, i, SOURCES[i]) for i in np.flatnonzero((bounds.upper < 1) & (width > 0))]
    places += [(FLOOR, i, SOURCES[i]) for i in np.flatnonzero((bounds.lower > 0) & (width > 0))]
    places += [(GROUP_CAP, i, bounds.group_names[i]) for i in np.flatnonzero(bounds.group_upper < 1)]
    places += [(GROUP_FLOOR, i, bounds.group_names[i]) for i in np.flatnonzero(bounds.group_lower > 0)]
    assert set(found) <= {(side, name) for side, _, name in places}
    base = problem.total(solve_cone(problem))
    for side, index, name in places:
        other = moved(problem, side, int(index))
        saved = (base - other.total(solve_cone(other))) / STEP
        assert found.get((side, name), 0.0) == pytest.approx(saved, rel=2e-2, abs=2e-3), (side, name)


@pytest.mark.parametrize(("sources", "ranged"), [(12, RANGED), (MANY, RANGED_DEAR)])
def test_the_dearest_bounds_have_ranges_fewer_of_them_where_problems_are_large(sources, ranged):
    rng = np.random.default_rng(0)
    phi = rng.uniform(0, 0.01, (sources, sources))
    np.fill_diagonal(phi, 1.0)
    terms = PowerTerms(np.zeros(sources), np.ones(sources), rng.uniform(0.05, 0.4, sources), phi)
    names, w = tuple(f"l{i}" for i in range(sources)), np.ones(sources)
    free = solve(Problem(terms, w, Bounds().at(names, 1e9))).p
    tight = dict(zip(names[: RANGED + 2], (0.8 * free).tolist(), strict=False))
    problem = Problem(terms, w, Bounds(caps=tight).at(names, 1e9))
    found = prices_of(problem, solve(problem))
    assert len(found) > RANGED
    known = [bool(np.isfinite(price.free_at)) for price in found]
    assert known == [place < ranged for place in range(len(found))]
    assert [price.per_ratio for price in found] == sorted((price.per_ratio for price in found), reverse=True)
