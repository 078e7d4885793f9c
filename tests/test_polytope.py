"""Bounds as people write them: what they hold, what they refuse, and what to do where they leave no mixture."""

from dataclasses import replace

import numpy as np
import pytest
from known_fits import BOUNDS, bounds_of
from scipy.optimize import linprog

from shapleymix.errors import InfeasibleError, UsageError
from shapleymix.mixing.bounds import Bounds, Group, polytope_of
from shapleymix.mixing.infeasibility import explain, require_feasible
from shapleymix.mixing.polytope import FIXED, GIVEN, TOKENS, UNSEEN, Polytope, linear_minimiser
from shapleymix.mixing.solving import corners
from shapleymix.tables.languages import Languages

NAMES = ("en", "de", "fi", "zh")
D = 1e11


def bounds(**keywords) -> Polytope:
    beside = {name: keywords.pop(name) for name in ("unseen", "usual_epochs") if name in keywords}
    return polytope_of(Bounds(**keywords), NAMES, D, **beside)


@pytest.mark.parametrize(
    ("keywords", "lower", "upper"),
    [
        ({}, [0, 0, 0, 0], [1, 1, 1, 1]),
        ({"caps": "en=0.3,de=40%"}, [0, 0, 0, 0], [0.3, 0.4, 1, 1]),
        ({"caps": 0.4, "floors": {"fi": 0.1}}, [0, 0, 0.1, 0], [0.4] * 4),
        ({"fix": "zh=0.25"}, [0, 0, 0, 0.25], [1, 1, 1, 0.25]),
        ({"available": "fi=2B", "max_epochs": 4}, [0, 0, 0, 0], [1, 1, 0.08, 1]),
        ({"available": "fi=2B,de=10B", "max_epochs": {"fi": 2}}, [0] * 4, [1, 0.4, 0.04, 1]),
        ({"available": "fi=2B", "caps": "fi=0.01"}, [0] * 4, [1, 1, 0.01, 1]),
        ({"min_tokens": "1B"}, [0.01] * 4, [1] * 4),
        ({"min_tokens": "de=5B", "floors": "de=0.01"}, [0, 0.05, 0, 0], [1] * 4),
        ({"unseen": ("zh",)}, [0] * 4, [1, 1, 1, 0]),
        ({"available": "fi=0", "usual_epochs": np.inf}, [0] * 4, [1, 1, 0, 1]),
        ({"available": "fi=2B", "usual_epochs": np.inf}, [0] * 4, [1, 1, 1, 1]),
    ],
)
def test_of_two_bounds_on_a_ratio_the_tighter_holds(keywords, lower, upper):
    found = bounds(**keywords)
    np.testing.assert_allclose(found.lower, lower)
    np.testing.assert_allclose(found.upper, upper)


def test_each_bound_says_where_it_comes_from():
    found = bounds(caps="en=0.3", available="de=10B", fix="fi=0.1", min_tokens="zh=1B", unseen=("zh",))
    assert (found.cap_origin, found.floor_origin) == ((GIVEN, TOKENS, FIXED, UNSEEN), ("", "", FIXED, TOKENS))


@pytest.mark.parametrize(
    ("text", "members", "low", "high"),
    [
        ("en+de<=0.3", "en de", 0, 0.3), ("cjk: zh+fi>=10%", "zh fi", 0.1, 1), ("0.2<=en+de<=0.5", "en de", 0.2, 0.5),
        ("en+zh=50%", "en zh", 0.5, 0.5), ("Germanic>=60%", "en de", 0.6, 1),
        (Group(("en", "fi"), upper=0.4, name="x"), "en fi", 0, 0.4),
    ],
)  # fmt: skip
def test_groups_are_rows(text, members, low, high):
    nothing = np.full(4, np.nan)
    table = Languages(NAMES, ("Germanic", "Germanic", "Uralic", "Sinitic"), nothing, None, nothing)
    found = bounds(groups=text, languages=table)
    assert [name for name, one in zip(NAMES, found.rows[0], strict=True) if one] == [n for n in NAMES if n in members]
    assert (max(found.row_low[0], 0), min(found.row_high[0], 1)) == (low, high)


@pytest.mark.parametrize(
    "keywords",
    [
        {"caps": "xx=0.3"}, {"caps": "en=1.3"}, {"floors": "en=-0.1"}, {"fix": "0.3"}, {"groups": "en+xx<=0.2"},
        {"groups": "en+de"}, {"groups": "0.5<=en+de<=0.2"}, {"near": "uniform"}, {"within": 0.1}, {"max_epochs": 0},
        {"near": "uniform", "within": 3}, {"near": "uniform", "within": 0, "distance": "kl"},
        {"near": "uniform", "within": 0.1, "distance": "l2"}, {"available": "en=many"}, {"min_tokens": "xx=1B"},
    ],
)  # fmt: skip
def test_what_is_no_bound_is_a_usage_error(keywords):
    with pytest.raises(UsageError):
        bounds(**keywords)


@pytest.mark.parametrize(
    ("keywords", "short"),
    [
        ({"caps": 0.2}, 0.2), ({"caps": "en=0.3", "floors": "en=0.4"}, 0.1), ({"floors": 0.3}, 0.2),
        ({"available": "en=2B,de=2B,fi=2B,zh=2B"}, 0.68), ({"groups": ["en+de<=0.2", "fi+zh<=0.5"]}, 0.3),
        ({"groups": "en+de>=0.9", "caps": "en=0.3,de=0.3"}, 0.3), ({"fix": "en=0.5,de=0.6"}, 0.1),
        ({"near": "en=1", "within": 0.2, "caps": 0.3}, 1.4),
        ({"near": "en=.4,de=.2,fi=.2,zh=.2", "within": 0.001, "distance": "kl", "fix": "en=.3"}, None),
        ({"unseen": ("zh",), "floors": "zh=0.1"}, 0.1),
    ],
)  # fmt: skip
def test_bounds_that_leave_no_mixture_name_the_repair_and_it_repairs(keywords, short):
    with pytest.raises(InfeasibleError) as caught:
        require_feasible(bounds(**keywords))
    error = caught.value
    assert error.hint
    faults = error.faults or [error]
    if short is not None and error.faults:
        assert sum(float(fault.value) for fault in faults) == pytest.approx(short, rel=1e-3)
    elif short is not None and keywords.get("near"):
        assert f"{short:.4g}" in error.message
    if keywords.get("caps") == 0.2:
        require_feasible(bounds(caps=0.25))
    if "groups" in keywords and isinstance(keywords["groups"], list):
        require_feasible(bounds(groups=["en+de<=0.5", "fi+zh<=0.5"]))


@pytest.mark.parametrize("kind", BOUNDS)
def test_bounds_around_a_mixture_leave_one(kind):
    for seed in range(5):
        found = bounds_of(kind, 5, np.random.default_rng(seed))
        assert explain(found) is None
        vertices = corners(found, np.random.default_rng(0), 10)
        outside = [replace(found, ball=None).violation(p) if kind == "kl" else found.violation(p) for p in vertices]
        assert max(outside) < 1e-8


def test_sums_with_one_value_are_found_whatever_leaves_them_no_other():
    found = require_feasible(bounds(groups=["en+de<=0.5", "fi+zh<=0.5"]))
    np.testing.assert_array_equal(found.row_low, found.row_high)
    held = require_feasible(bounds(groups=["en+de<=0.5", "en+fi>=0.7"], fix="en=0.5"))
    np.testing.assert_allclose(held.upper[:2], [0.5, 0.0], atol=1e-9)
    assert not held.movable[1]


def test_filling_the_cheapest_first_is_the_linear_program():
    rng = np.random.default_rng(0)
    cost, lower, upper = rng.normal(size=(8, 5)), np.full(5, 0.05), rng.uniform(0.2, 0.6, 5)
    s, _ = linear_minimiser(cost, lower, upper)
    for one, p in zip(cost, s, strict=True):
        theirs = linprog(one, A_eq=np.ones((1, 5)), b_eq=[1], bounds=list(zip(lower, upper, strict=True)))
        assert one @ p == pytest.approx(theirs.fun)


def test_violation_is_the_worst_of_all_bounds():
    found = bounds(caps="en=0.3", groups="en+de<=0.4", near="uniform", within=0.2)
    assert found.violation(np.full(4, 0.25)) == pytest.approx(0.1)
    assert found.violation(np.array([0.5, 0.1, 0.2, 0.2])) == pytest.approx(max(0.2, 0.5 - 0.2))
    assert found.violation(np.full(4, np.nan)) == np.inf
