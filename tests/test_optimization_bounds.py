"""Bounds of a reported mixture: what they allow, what they cost, and how far that reaches."""

from __future__ import annotations

import numpy as np
import pytest
from known_fits import SOURCES, TOKENS, FakeFit, mixture

from shapleymix.errors import InfeasibleError, UsageError
from shapleymix.mixing.bounds import Group
from shapleymix.mixing.optimization import optimize
from shapleymix.tables.repetition import repetition


def test_caps_follow_from_tokens_and_epochs():
    mix = mixture(available=TOKENS, max_epochs=4)
    np.testing.assert_allclose(mix.caps, [1, 1, 0.08, 1])
    np.testing.assert_allclose(mix.epochs, mix.p * 1e11 / np.array([1e12, 1e11, 2e9, 5e10]))
    assert [cap.source for cap in mix.binding] == ["fi"]
    assert mix.binding[0].origin == "tokens"


def test_a_shadow_price_is_what_more_tokens_would_save():
    base, extra = mixture(available=TOKENS), mixture(available={**TOKENS, "fi": 2.001e9})
    saved = (base.objective - extra.objective) / 1e6
    price = base.binding[0]
    assert price.unit == 1e9, "1% of D"
    assert saved == pytest.approx(price.per_unit / price.unit, rel=1e-3)
    assert price.per_percent == pytest.approx(0.01 * base.shadow_prices["fi"])
    capped, looser = mixture(caps={"en": 0.2}), mixture(caps={"en": 0.2001})
    saved_per_ratio = (capped.objective - looser.objective) / 1e-4
    assert saved_per_ratio == pytest.approx(capped.binding[0].per_ratio, rel=1e-3)


def test_a_group_has_shadow_prices_too():
    options = {"groups": [Group(("de", "fi"), 0.7, 1.0)], "caps": {"de": 0.2}}
    base, looser = mixture(**options), mixture(**{**options, "caps": {"de": 0.20001}})
    price = next(cap.per_ratio for cap in base.binding if cap.source == "de")
    assert (base.objective - looser.objective) / 1e-5 == pytest.approx(price, rel=1e-3)


def test_a_group_between_two_ratios_binds_on_either_side():
    free, high = mixture(), mixture(groups="0.1<=en+de<=0.3")
    assert free.p[:2].sum() > 0.3
    assert high.p[:2].sum() == pytest.approx(0.3)
    low = mixture(groups="60%<=fi+code<=90%")
    assert low.p[2:].sum() == pytest.approx(0.6)
    assert {price.side for price in (*high.binding, *low.binding)} == {"cap of the group", "floor of the group"}
    assert max(high.relative_gap, low.relative_gap) <= 1e-8


class Partial(FakeFit):
    """A fit that no run of "code" went into."""

    unseen = ("code",)


def test_a_source_that_is_held_as_unseen_has_no_price():
    held, asked = optimize(Partial(), 1e9, 1e11, caps="en=0.1"), optimize(Partial(), 1e9, 1e11, caps="en=0.1,code=0")
    for mix in (held, asked):
        assert mix.mixture["code"] == 0
        assert [price.source for price in mix.binding] == ["en"]
    assert any("no run of the fit ever saw code" in notice for notice in held.notices)


def test_minimal_tokens_and_floors():
    mix = mixture(min_tokens="5B", floors={"code": 0.2})
    assert (mix.p >= 0.05 - 1e-15).all()
    assert mix.mixture["code"] == pytest.approx(0.2)


def test_infeasible_caps_are_refused_with_a_repair():
    with pytest.raises(InfeasibleError, match="short of 1"):
        optimize(FakeFit(), 1e9, 1e14, available=TOKENS)


@pytest.mark.parametrize("caps", [[0.4, 0.4, 0.4, 0.4], np.full(4, 0.4), 0.4, dict.fromkeys(SOURCES, 0.4)])
def test_caps_come_by_name_in_order_or_for_all(caps):
    np.testing.assert_array_equal(mixture(caps=caps).p, mixture(caps=dict.fromkeys(SOURCES, 0.4)).p)


def test_caps_of_another_length_are_refused():
    with pytest.raises(UsageError, match="cap: 2 values for 4 sources"):
        mixture(caps=[0.5, 0.5])


def test_a_price_says_how_far_it_reaches():
    """Issue 6, 5: a shadow price holds at a point."""
    base = mixture(caps={"en": 0.2})
    price = base.binding[0]
    assert price.side == "cap"
    free = mixture().mixture["en"]
    assert price.half_at < free
    assert price.free_at == pytest.approx(free, abs=1e-6)
    half = mixture(caps={"en": price.half_at}).binding[0].per_ratio
    assert half == pytest.approx(price.per_ratio / 2, rel=0.05)


@pytest.mark.parametrize(
    ("options", "side"),
    [({"floors": {"code": 0.2}}, "floor"), ({"groups": [Group(("fi", "code"), 0.0, 0.1)]}, "cap of the group")],
)
def test_floors_and_groups_have_prices(options, side):
    base = mixture(**options)
    price = next(one for one in base.binding if one.side == side)
    if side == "floor":
        looser = mixture(floors={"code": 0.1999})
    else:
        looser = mixture(groups=[Group(("fi", "code"), 0.0, 0.1001)])
    assert (base.objective - looser.objective) / 1e-4 == pytest.approx(price.per_ratio, rel=1e-2)


def test_repeated_tokens_are_named():
    """Issue 6, 1.6: five sources at 8 epochs, and not a word."""
    notices = " ".join(mixture(available=TOKENS, max_epochs=8).notices)
    assert "repeated tokens for fresh" in notices
    assert "fi" in notices.split("repeats")[1]
    assert not any("repeated" in notice for notice in mixture(available=dict.fromkeys(SOURCES, "9T")).notices)


def test_a_source_seen_once_is_not_repeated():
    """Every token once is p D / available = 1 up to rounding; a hundredth more is a repetition."""
    p, D = np.array([0.1 + 0.2, 0.7]), 1e9
    available = np.array([0.3, 0.7]) * D
    assert (p * D / available).max() > 1
    assert repetition(p, ("en", "de"), available, D) == []
    assert "repeats en 1.01 times" in repetition(p, ("en", "de"), available / np.array([1.01, 1.0]), D)[0]
