"""The trade-off curve: its ends are the two optima, nothing lies below it, its points are spread, and refusals."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from known_fits import TOKENS, FakeFit

from shapleymix.errors import UsageError
from shapleymix.mixing.curves import Frontier
from shapleymix.mixing.demands import Demands
from shapleymix.mixing.frontier import _dominated, frontier
from shapleymix.mixing.optimization import optimize
from shapleymix.mixing.sides import sides_of

BUDGET = (1e9, 1e11)
TARGETS = ("en", "de", "fi")


def curve(between: str = "en:rest", points: int = 9, **options) -> Frontier:
    return frontier(FakeFit(3), *BUDGET, between, points=points, **options)


def losses(found: Frontier) -> np.ndarray:
    return np.array([(entry.first, entry.second) for entry in found.entries])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"available": TOKENS},
        {"caps": {"en": 0.5}, "floors": {"code": 0.05}},
        {"groups": "0.3<=en+de<=0.8"},
        {"near": "uniform", "within": 0.6},
        {"weights": {"en": 1, "de": 3, "fi": 1}},
    ],
    ids=str,
)
def test_the_ends_are_the_two_optima_and_nothing_lies_below(options):
    found, fit = curve(**options), FakeFit(0)
    values, terms = losses(found), fit.terms(*BUDGET)
    bounds = {name: value for name, value in options.items() if name != "weights"}
    for side, end in ((0, -1), (1, 0)):
        w = (found.first_weights, found.second_weights)[side]
        best = optimize(fit, *BUDGET, **bounds, weights=dict(zip(TARGETS, w.tolist(), strict=True)))
        assert values[end, side] == pytest.approx(best.objective, rel=1e-8)
    assert (np.diff(values[:, 0]) < 0).all()
    assert (np.diff(values[:, 1]) > 0).all()
    bounded = Demands(**bounds).bounds(fit.sources, BUDGET[1])
    others = np.random.default_rng(0).dirichlet(np.ones(4), size=4000)
    sums = others @ bounded.members.T
    inside = (others >= bounded.lower).all(axis=1) & (others <= bounded.upper).all(axis=1)
    inside &= (sums >= bounded.group_lower).all(axis=1) & (sums <= bounded.group_upper).all(axis=1)
    inside &= bounded.near is None or np.abs(others - 0.25).sum(axis=1) <= 0.6
    assert inside.any()
    for entry in found.entries:
        w = entry.share * found.first_weights + (1 - entry.share) * found.second_weights
        assert terms.objective(entry.p, w) <= terms.objective(others[inside], w).min() + 1e-12
        assert entry.certificate.relative_gap <= 1e-8
        assert entry.first_low <= entry.first_high


def test_points_are_spread_along_the_curve():
    values = losses(curve(points=11))
    assert len(values) == 11
    steps = np.hypot(*(np.diff(values, axis=0) / np.ptp(values, axis=0)).T)
    assert steps.max() < 1.5 * steps.min()


@pytest.mark.parametrize(
    ("points", "worse"),
    [
        ([(1, 2), (2, 1)], [False, False]),
        ([(1, 2), (1, 2.5), (3, 1)], [False, True, False]),
        ([(1, 2), (1 + 1e-12, 2 - 1e-12)], [False, True]),
        ([(1, 2), (1 + 1e-12, 1.5)], [True, False]),
        ([(1.5, 2 + 1e-12), (1, 2)], [True, False]),
        ([(np.nan, 1), (1, 2)], [False, False]),
    ],
)
def test_a_point_falls_where_another_is_as_good_to_a_rounding_and_better_on_a_side(points, worse):
    np.testing.assert_array_equal(_dominated(np.array(points, dtype=float)), worse)


def test_the_weights_count_within_each_side():
    found = curve("de+fi:en", weights={"en": 2, "de": 3, "fi": 1})
    np.testing.assert_allclose(found.first_weights, [0, 0.75, 0.25])
    np.testing.assert_allclose(found.second_weights, [1, 0, 0])
    entry = found.entries[4]
    assert entry.first == pytest.approx(entry.losses @ [0, 0.75, 0.25])
    assert entry.second == pytest.approx(entry.losses[0])


def test_a_curve_without_a_choice_is_one_point():
    found = curve(fix={"en": 0.4, "de": 0.3, "fi": 0.2, "code": 0.1})
    assert len(found.entries) == 1
    assert any("1 points that differ" in notice for notice in found.notices)


def test_saved_and_loaded(tmp_path):
    found = curve(points=3)
    found.save(tmp_path / "curve.json")
    assert Frontier.load(tmp_path / "curve.json") == found == curve(points=3)
    assert found.to_polars().shape == (3, 7 + 4)


def test_sides_are_read_as_they_are_written():
    families = {"Germanic": ("en", "de")}
    assert sides_of("en:rest", TARGETS, families) == (("en",), ("de", "fi"))
    assert sides_of("rest : de + fi", TARGETS, families) == (("en",), ("de", "fi"))
    assert sides_of("fi:Germanic", TARGETS, families) == (("fi",), ("en", "de"))
    assert sides_of("web:en:c++", ("web:en", "c++", "de"), {}) == (("web:en",), ("c++",))


@pytest.mark.parametrize(
    ("between", "options", "message"),
    [
        ("en", {}, "no two sides"),
        ("en:", {}, "'' is no target"),
        ("rest:rest", {}, "names no target"),
        ("en+de+fi:rest", {}, "leaves no target"),
        ("en:en+de", {}, "'en' stands on both sides"),
        ("en:finnish", {}, "'finnish' is no target"),
        ("code:rest", {}, "'code' is no target"),
        ("en:rest", {"points": 1}, "1 points are no curve"),
        ("en:rest", {"objective": "worst"}, "takes no objective 'worst'"),
        ("en:rest", {"anchor": "uniform", "kl": 1.0}, "takes no KL penalty"),
        ("en:rest", {"method": "clipped"}, "takes no method 'clipped'"),
        ("en:rest", {"what_if": "en+1B", "available": TOKENS}, "takes no what_if"),
        ("en:rest", {"compare_to": "uniform"}, "takes no compare_to"),
        ("en:rest", {"weights": {"en": 1}}, "all have weight 0"),
    ],
)
def test_wrong_curves_are_told(between, options, message):
    with pytest.raises(UsageError, match=message):
        curve(between, **options)


class Limited(FakeFit):
    """The same, where models that saw nothing have losses in the middle of the curve."""

    @property
    def coverage(self) -> SimpleNamespace:
        whole = np.array([entry.losses for entry in curve().entries])
        return SimpleNamespace(untrained=whole.min(axis=0) + 0.6 * np.ptp(whole, axis=0))


def test_points_lie_where_the_law_has_a_prediction():
    """On a real fit three of seven points had an empty axis: corners beyond an untrained model's loss."""
    fit = Limited(3)
    found = frontier(fit, *BUDGET, "en:rest", points=9)
    assert len(found.entries) == 9
    assert all((entry.losses <= fit.coverage.untrained).all() for entry in found.entries)
    assert "the curve ends where the law gives more than an untrained model's loss" in found.notices
    steps = np.abs(np.diff(losses(found), axis=0)) / np.ptp(losses(found), axis=0)
    assert np.hypot(*steps.T).max() < 0.4
    assert not any("the curve ends" in notice for notice in curve().notices)
