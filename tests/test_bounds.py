"""Bounds as they are asked for: texts, names, families, fixed ratios, balls around a mixture, infeasible ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize

from shapleymix.errors import InfeasibleError, UsageError
from shapleymix.mixing.bounds import Bounds, Group, Near
from shapleymix.mixing.demands import Demands
from shapleymix.mixing.feasibility import require_anchor, require_feasible
from shapleymix.mixing.room import least_distance, without_room
from shapleymix.tables.languages import Languages

NAMES = ("en", "de", "fr", "zh")
LANGUAGES = Languages(
    NAMES,
    ("Germanic", "Germanic", "Romance", None),
    np.array([1e9, 1e8, 1e7, np.nan]),
    None,
    np.array([2.0, *[np.nan] * 3]),
)


@pytest.mark.parametrize(
    "caps",
    [
        {"en": 0.4, "de": "20%"},
        "en=0.4,de=20%",
        ["en=40%", "de=0.2"],
        ("en=0.4,de=.2",),
        np.array([0.4, 0.2, 1, 1]),
        [0.4, "20%", 1, "100%"],
    ],
)
def test_ratios_are_taken_in_every_form(caps):
    found = Bounds(caps=caps).at(NAMES, 1e9)
    np.testing.assert_allclose(found.upper, [0.4, 0.2, 1, 1])
    assert found.cap_origin == ("given", "given", "", "")
    np.testing.assert_array_equal(Bounds(floors=caps).at(NAMES, 1e9).lower[:2], [0.4, 0.2])


@pytest.mark.parametrize("cap", [0.4, "40%", "0.4", ("40%",)])
def test_one_ratio_for_all(cap):
    np.testing.assert_allclose(Bounds(caps=cap).at(NAMES, 1e9).upper, 0.4)


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.floats(1e6, 1e12))
def test_the_tighter_bound_holds_and_says_where_it_is_from(cap, fixed, floor, tokens):
    found = Bounds(caps={"en": cap, "de": cap}, fix={"en": fixed}, floors={"en": floor}, available={"en": tokens}).at(
        NAMES, 1e10
    )
    sides = {"given": cap, "fixed": fixed, "tokens": 4 * tokens / 1e10, "": 1.0}
    assert found.upper[0] == min(sides.values())
    assert sides[found.cap_origin[0]] == found.upper[0]
    assert found.lower[0] == max(floor, fixed)
    assert found.lower[0] == {"given": floor, "fixed": fixed, "": 0.0}[found.floor_origin[0]]
    assert found.upper[1] == cap
    assert found.lower[1] == 0


def test_fixed_is_a_floor_and_a_cap():
    found = Demands(fix="en=30%").bounds(NAMES, 1e9)
    assert (found.lower[0], found.upper[0], found.cap_origin[0]) == (0.3, 0.3, "fixed")
    with pytest.raises(InfeasibleError, match=r"above the ratio 0\.3 at which it is fixed"):
        Demands(fix="en=0.3", floors="en=0.5").bounds(NAMES, 1e9)
    with pytest.raises(InfeasibleError, match=r"the fixed ratio 0\.3 of en is above its cap 0\.2") as caught:
        Demands(fix="en=0.3", caps="en=0.2").bounds(NAMES, 1e9)
    assert caught.value.hint == "lower its fixed ratio by 0.1, or raise its cap to 0.3"
    with pytest.raises(InfeasibleError, match=r"the minimum of tokens, as a ratio 0\.3 of en is above its cap 0\.2"):
        Demands(min_tokens="en=300M", caps="en=0.2").bounds(NAMES, 1e9)
    with pytest.raises(UsageError, match="has no name"):
        Demands(fix=0.3).bounds(NAMES, 1e9)


def test_tokens_and_epochs_by_name_go_before_those_of_the_table():
    found = Bounds(languages=LANGUAGES, available="de=50M", max_epochs={"fr": 8}).at(NAMES, 1e10)
    np.testing.assert_array_equal(found.available, [1e9, 5e7, 1e7, np.nan])
    np.testing.assert_array_equal(found.epochs, [2, 4, 8, 4])


def test_groups_read_as_they_are_written():
    group = Group.read("cjk: zh + ja >= 10%")
    assert (group.sources, group.lower, group.upper, group.label) == (("zh", "ja"), 0.1, 1.0, "cjk")
    assert Group.read("en+de<=0.6").upper == 0.6
    assert (Group.read("en=50%").lower, Group.read("en=50%").upper) == (0.5, 0.5)
    for text in ("en<0.5", "en", "<=0.5", "en+<=0.5", "en<=", "en<=0.5<=0.6"):
        with pytest.raises(UsageError, match="is no bound"):
            Group.read(text)
    with pytest.raises(UsageError, match="not a ratio") as caught:
        Group.read("en<=60")
    assert caught.value.hint == "write 60% or 0.6"


@pytest.mark.parametrize("text", ["0.2<=en+de<=0.5", "20% <= en + de <= .5", "50%>=en+de>=0.2"])
def test_a_group_between_two_ratios(text):
    group = Group.read(text)
    assert (group.sources, group.lower, group.upper, group.label) == (("en", "de"), 0.2, 0.5, "en+de")
    assert Group.read("0.1<=cjk: zh+ja<=0.3").label == "cjk"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0.2<=en>=0.1", "no bound"),
        ("0.2<=<=0.5", "no bound"),
        ("0.2<=en+<=0.5", "no bound"),
        ("0.5<=en<=0.2", "a floor 0.5 above its cap 0.2"),
        ("20<=en<=50", "not a ratio"),
        ("0.2<=en<=0.3<=0.5", "no bound"),
        ("0.2=en=0.3", "no bound"),
    ],
)
def test_a_group_between_wrong_ratios_is_told(text, message):
    with pytest.raises(UsageError, match=message):
        Group.read(text)


def test_labels_that_hold_signs_are_found():
    found = Bounds(groups=["c++<=0.3", "web:en+c++>=0.1", "x: web:en<=0.2"]).at(("c++", "web:en", "de"), 1e9)
    np.testing.assert_array_equal(found.members, [[1, 0, 0], [1, 1, 0], [0, 1, 0]])
    assert found.group_names == ("c++", "web:en+c++", "x")


def test_a_family_is_a_group_of_its_sources():
    found = Bounds(languages=LANGUAGES, groups=["Germanic>=60%", "Germanic+zh<=0.9"]).at(NAMES, 1e9)
    np.testing.assert_array_equal(found.members, [[1, 1, 0, 0], [1, 1, 0, 1]])
    np.testing.assert_array_equal(found.group_lower, [0.6, 0])
    assert found.group_names == ("Germanic", "Germanic+zh")
    with pytest.raises(UsageError, match="'Germanics'"):
        Bounds(languages=LANGUAGES, groups="Germanics>=0.6").at(NAMES, 1e9)
    with pytest.raises(UsageError, match="families need a languages table"):
        Bounds(groups="Germanic>=0.6").at(NAMES, 1e9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"caps": {"en": 60}}, "not a ratio"),
        ({"caps": "en=x"}, "not a number"),
        ({"caps": {"en": True}}, "not a number"),
        ({"caps": {"en": None}}, "not a number"),
        ({"caps": 7 + 2j}, "values for 4 sources"),
        ({"floors": "en"}, "not a number"),
        ({"groups": 5}, "are no groups"),
        ({"groups": [5]}, "no bound"),
        ({"groups": [Group(("xx",))]}, "'xx' is not one of the sources"),
        ({"groups": Group("en+de", upper=0.3)}, r"give its sources one by one: \('en', 'de'\)"),
        ({"min_tokens": {"en": "abc"}}, "not a size"),
        ({"available": {"en": "abc"}}, "not a size"),
        ({"available": "en=1B", "max_epochs": 0}, "not above 0"),
        ({"near": "uniform"}, "go together"),
        ({"near": "uniform", "within": -1}, "L1 distance"),
        ({"near": "uniform", "within": 3}, "between 0 and 2"),
        ({"near": "en=2,de=1", "within": 0.1}, "sums to 3"),
        ({"near": "uniform", "within": 0.1, "distance": "l2"}, "unknown distance"),
        ({"near": "unimax:4", "within": 0.1}, "needs the available tokens"),
        ({"max_epochs": 3}, "does nothing without"),
        ({"anchor": "uniform"}, "does nothing without"),
        ({"monolingual": {"en": 2}}, "does nothing without"),
    ],
)
def test_what_is_wrong_is_an_error_of_ours(options, message):
    with pytest.raises(UsageError, match=message) as caught:
        Demands(**options).bounds(NAMES, 1e9)
    assert "--" not in str(caught.value)


def test_a_source_that_no_run_saw_is_held_at_zero():
    held = Demands().bounds(NAMES, 1e9, ("zh",))
    assert (held.upper[3], held.cap_origin[3]) == (0.0, "unseen")
    assert Demands(allow_unseen=True).bounds(NAMES, 1e9, ("zh",)).upper[3] == 1
    with pytest.raises(InfeasibleError, match="no run of the fit ever saw it"):
        Demands(floors="zh=0.1").bounds(NAMES, 1e9, ("zh",))
    with pytest.raises(InfeasibleError, match="allow_unseen"):
        Demands(caps="en=.2,de=.2,fr=.2").bounds(NAMES, 1e9, ("zh",))


def test_an_anchor_outside_of_the_bounds_is_named():
    anchor = np.array([0.5, 0.5, 0, 0])
    with pytest.raises(InfeasibleError, match=r"floor 0\.1 of 'fr'"):
        require_anchor(Bounds(floors="fr=0.1").at(NAMES, 1e9), anchor)
    with pytest.raises(InfeasibleError, match=r"the anchor holds en, de only.*sum to 0\.3"):
        require_anchor(Bounds(caps="en=.1,de=.2").at(NAMES, 1e9), anchor)
    with pytest.raises(InfeasibleError, match="the anchor holds en, de only"):
        require_anchor(Bounds(groups="en+de<=.2").at(NAMES, 1e9), anchor)
    require_anchor(Bounds(caps="en=.5", groups="fr+zh<=.2").at(NAMES, 1e9), anchor)
    with pytest.raises(InfeasibleError, match=r"the fixed ratio 0\.1 of 'fr'"):
        require_anchor(Bounds(fix="fr=0.1").at(NAMES, 1e9), anchor)


@pytest.mark.parametrize(
    ("groups", "held"),
    [
        ("en+de<=0", [True, True, False, False]),
        ("fr+zh>=1", [True, True, False, False]),
        (("en+de<=.5", "fr+zh<=.6"), [False] * 4),
        (("en+de<=.5", "en+fr>=1"), [False, True, False, True]),
        ("en+de<=1e-7", [False] * 4),
    ],
)
def test_sources_that_groups_leave_no_room_are_found(groups, held):
    """By the largest ratio that each source can have, one linear program a source."""
    bounds = Bounds(groups=groups).at(NAMES, 1e9)
    rows = np.concatenate([bounds.members, -bounds.members])
    limits = np.concatenate([bounds.group_upper, -bounds.group_lower])
    total = {"A_eq": np.ones((1, 4)), "b_eq": [1.0], "bounds": (0, 1)}
    largest = [-linprog(-row, A_ub=rows, b_ub=limits, **total).fun for row in np.eye(4)]
    assert [ratio <= 1e-9 for ratio in largest] == held
    assert without_room(bounds).tolist() == held


def least_by_slsqp(bounds, center, kind):
    """The same distance by a general solver, smoothed by a split of the difference for l1."""
    M = len(center)
    sums = [{"type": "eq", "fun": lambda v: v[:M].sum() - 1}]
    sums += [
        {"type": "ineq", "fun": lambda v, r=row, h=high: h - r @ v[:M]}
        for row, high in zip(bounds.members, bounds.group_upper, strict=True)
    ]
    box = list(zip(bounds.lower, bounds.upper, strict=True))
    start = np.clip(center, bounds.lower, bounds.upper)
    if kind == "kl":
        goal = lambda v: float(np.sum(v * np.log(np.maximum(v, 1e-300) / center)))  # noqa: E731
        return minimize(goal, start, method="SLSQP", bounds=box, constraints=sums, options={"ftol": 1e-13}).fun
    sums += [{"type": "ineq", "fun": lambda v: np.append(v[M:] - v[:M] + center, v[M:] + v[:M] - center)}]
    begin = np.append(start, np.abs(start - center))
    goal = lambda v: float(v[M:].sum())  # noqa: E731
    return minimize(goal, begin, method="SLSQP", bounds=box + [(0, 2)] * M, constraints=sums).fun


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6), st.sampled_from(["l1", "kl"]))
def test_the_least_distance_is_that_of_another_solver(seed, kind):
    rng = np.random.default_rng(seed)
    inside, center = rng.dirichlet(np.ones(4)), 0.05 + 0.8 * rng.dirichlet(np.ones(4))
    center /= center.sum()
    upper = np.minimum(inside + 0.1 * rng.random(4), 1)
    bounds = Bounds(caps=upper, floors=inside / 2, groups=[Group(("en", "de"), 0, min(1, inside[:2].sum() + 0.02))])
    found = bounds.at(NAMES, 1e9)
    least = least_distance(found, Near(center, 0.1, kind))
    assert least == pytest.approx(least_by_slsqp(found, center, kind), abs=2e-6)


def test_a_ball_that_the_bounds_miss_is_infeasible_with_its_repair():
    near = {"near": "uniform", "within": 0.2}
    require_feasible(Bounds(**near).at(NAMES, 1e9))
    with pytest.raises(InfeasibleError, match=r"the nearest is at 0\.5 in L1") as caught:
        require_feasible(Bounds(**near, floors="en=50%").at(NAMES, 1e9))
    wide = caught.value.hint.split()[3].rstrip(",")
    require_feasible(Bounds(near="uniform", within=float(wide), floors="en=50%").at(NAMES, 1e9))
    with pytest.raises(InfeasibleError, match="gives fr ratio 0"):
        require_feasible(Bounds(near="en=1", within=1, distance="kl", floors="fr=0.1").at(NAMES, 1e9))
    with pytest.raises(InfeasibleError, match="gives some source ratio 0, and the bounds do not"):
        require_feasible(Bounds(near="en=1", within=1, distance="kl", groups="fr+de>=0.1").at(NAMES, 1e9))


def test_a_floor_that_rounding_lifts_above_its_cap_is_no_contradiction():
    require_feasible(Bounds(floors={"a": 0.3 + 1e-15, "b": 0.7}, caps={"a": 0.3}).at(("a", "b"), 1e9))
    with pytest.raises(InfeasibleError, match=r"the floor 0\.31 of a is above its cap 0\.3"):
        require_feasible(Bounds(floors={"a": 0.31}, caps={"a": 0.3}).at(("a", "b"), 1e9))


def test_a_cap_of_one_and_a_rounding_is_one():
    """Issue 6, fuzz 15: a sum of ratios, 1 + 2e-16, was refused; what is beyond rounding still is."""
    assert Bounds(caps={"a": 1 + 2e-16}).at(("a", "b"), 1e9).upper[0] == 1.0
    with pytest.raises(UsageError, match="is not a ratio"):
        Bounds(caps={"a": 1 + 1e-9}).at(("a", "b"), 1e9)
