"""A source that the runs show too little of: its intervals are as wide as what is not known of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from simulated import FAST, inputs, mixtures, simulate, true_law, with_loss

import shapleymix as sm
from shapleymix.fitting.fit import Fit
from shapleymix.fitting.unknowns import BEYOND, SPAN, WIDER, Packing, drawn, filled
from shapleymix.laws import LAWS
from shapleymix.records import FloatArray
from shapleymix.tables.runs import RunLog

LEARNING = [name for name, law in LAWS.items() if any(known.axes == "MK" for known in law.fitted())]
ROWS = 40
ZH = 3
pytestmark = pytest.mark.filterwarnings("ignore::shapleymix.errors.ShapleyMixWarning")


def log_with(name: str, shown: FloatArray) -> RunLog:
    """A log of the law whose source zh has the ratios `shown` (R,)."""
    given = inputs()
    rest = mixtures(ROWS, 4)[:, :3]
    p = np.column_stack([rest / rest.sum(axis=1, keepdims=True) * (1 - shown[:, None]), shown])
    return simulate(true_law(name, given), given, p, noise=1e-3)


def fit_with(name: str, shown: FloatArray) -> Fit:
    options: dict[str, Any] = FAST | {"bootstrap": 60, "starts": 2}
    return sm.fit(log_with(name, shown), name, **options)


def widths(found: Fit, p: str) -> FloatArray:
    """Widths of the intervals of the four log losses at a mixture."""
    told = found.predict(p, 1e8, 3e9)
    return np.log(told.high / told.low)[0]


def first(count: int, ratio: float) -> FloatArray:
    """The ratio in the first `count` runs, 0 in the others."""
    return np.where(np.arange(ROWS) < count, ratio, 0.0)


@pytest.mark.parametrize("name", LEARNING)
def test_the_interval_of_an_unseen_source_holds_the_truth(name):
    found = fit_with(name, np.zeros(ROWS))
    told = found.predict("en=0.3,de=0.3,fr=0.2,zh=0.2", 1e8, 3e9, level=0.98)
    truth = true_law(name, inputs())(told.p, told.N, told.D)
    assert ((told.low <= truth) & (truth <= told.high)).all()


@pytest.mark.parametrize("name", ["additive", "effective-data", "learned-base", "exponential"])
def test_the_less_of_a_source_was_seen_the_wider(name):
    shown = {"well": mixtures(ROWS, 4)[:, ZH], "twice": first(2, 0.3), "once": first(1, 0.3), "never": first(0, 0.3)}
    wide = {key: widths(fit_with(name, ratios), "en=0.3,de=0.3,fr=0.1,zh=0.3").mean() for key, ratios in shown.items()}
    assert 2 * wide["well"] < wide["twice"] < wide["once"] <= 1.2 * wide["never"]


def test_a_source_at_tiny_ratios_is_widened_and_named():
    shown = np.linspace(0.0, 0.004, ROWS)
    found = fit_with("additive", shown)
    assert list(found.thin) == ["zh"]
    np.testing.assert_allclose(found.coverage.told[:, ZH], 0.4)
    np.testing.assert_array_equal(found.coverage.told[:, :ZH], 1.0)
    assert widths(found, "en=0.3,de=0.3,fr=0.2,zh=0.2").min() > 2 * widths(found, "en=0.4,de=0.3,fr=0.3,zh=0").max()


def test_checkpoints_of_one_mixture_are_one_mixture():
    """Fault: a source seen in one mixture only was thought well seen if it had three runs."""
    log = log_with("learned-base", first(6, 0.25))
    same = np.where((np.arange(ROWS) < 6)[:, None], log.p[0], log.p)
    found = sm.fit(replace(log, p=same), "learned-base", **FAST)
    assert list(found.thin) == ["zh"]
    assert found.coverage.mixtures[:, ZH].tolist() == [1] * 4
    assert any("zh" in text for text in found.warnings)


def test_a_source_is_little_known_target_by_target():
    """Fault: a source was named only if it was seen too little for every target alike."""
    log = log_with("learned-base", first(6, 0.25))
    shown, loss = np.arange(ROWS) < 6, log.loss.copy()
    loss[shown, 1] = np.nan  # no run that tells de holds any zh
    loss[:4, 2] = np.nan  # and two that tell fr do
    found = sm.fit(with_loss(log, loss), "learned-base", **FAST)
    assert list(found.thin) == ["zh"]
    assert "de" in found.thin["zh"]
    assert "fr" in found.thin["zh"]
    assert any(found.thin["zh"] in text for text in found.warnings)
    np.testing.assert_allclose(found.coverage.told[:, ZH], [1, 0, 1 - np.exp(-2), 1])


def test_well_seen_sources_keep_every_bit():
    packing = Packing(LAWS["additive"], 4, {})
    x = np.random.default_rng(0).normal(size=(5, 3, len(packing.names)))
    assert drawn(packing, x, np.ones((3, 4)), np.arange(4), 0) is x
    assert filled(packing, x, np.ones((5, 3, 4), dtype=bool)) is x


@pytest.mark.parametrize("name", LEARNING)
def test_draws_lie_in_the_range_of_the_seen_and_a_little_beyond(name):
    packing = Packing(LAWS[name], 4, {})
    rng = np.random.default_rng(1)
    low, high = packing.bounds()
    x = np.clip(rng.normal(-0.5 if name != "learned-base" else 0.5, 0.3, size=(4000, 2, len(packing.names))), low, high)
    told = np.array([[1.0, 1.0, 1.0, 0.0], [1.0, 1.0, 0.5, 1.0]])
    found = drawn(packing, x, told, np.arange(4), 0)
    again = filled(packing, x, np.broadcast_to(told > 0, (4000, 2, 4)))
    np.testing.assert_array_equal(found, drawn(packing, x, told, np.arange(4), 0))
    for known in packing.free:
        place = packing.slices()[known.name]
        if known.axes == "K":
            np.testing.assert_array_equal(found[..., place], x[..., place])
            continue
        before, after, middle = (values[..., place] for values in (x, found, again))
        np.testing.assert_array_equal(after[:, 0, :3], before[:, 0, :3])
        np.testing.assert_allclose((after[:, 1, 2] != before[:, 1, 2]).mean(), 0.5, atol=0.04)
        least, most = before[:, 0, :3].min(axis=1), before[:, 0, :3].max(axis=1)
        ends = np.maximum(least - BEYOND, low[place][0]), np.minimum(most + BEYOND, high[place][0])
        if name == "learned-base":  # searched over as it is, from zero
            ends = np.zeros(len(most)), WIDER * (most + np.maximum(most, before[:, 1].max(axis=1))) / 2
        share = (after[:, 0, 3] - ends[0]) / (ends[1] - ends[0])
        np.testing.assert_allclose(np.quantile(share, [0, 0.25, 0.5, 0.75, 1]), [0, 0.25, 0.5, 0.75, 1], atol=0.04)
        usual = np.median(before[:, 0, :3], axis=1) if name == "learned-base" else (least + most) / 2
        np.testing.assert_allclose(middle[:, 0, 3], usual)
    if name == "learned-base":
        return
    outlier = x.copy()
    place = next(packing.slices()[known.name] for known in packing.free if known.axes == "MK")
    outlier[:, 0, place] = [-20.0, 0.0, 0.0, 0.0]
    lowest = drawn(packing, outlier, told, np.arange(4), 0)[:, 0, place][:, ZH].min()
    np.testing.assert_allclose(lowest, -SPAN - BEYOND, atol=0.02)
