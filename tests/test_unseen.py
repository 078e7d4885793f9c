"""A source that the runs show too little of: its intervals are as wide as what is not known of it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from simulated import FAST, inputs, mixtures, simulate, true_law, with_loss

import shapleymix as sm
from shapleymix.fitting.fit import Fit
from shapleymix.fitting.symbols import Packing
from shapleymix.laws import LAWS
from shapleymix.records import FloatArray
from shapleymix.tables.runs import RunLog

LEARNING = [name for name, law in LAWS.items() if any(known.axes == "MK" for known in law.symbols_to_fit())]
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


def test_the_interval_of_an_unseen_source_holds_the_truth():
    found = fit_with("learned-base", np.zeros(ROWS))
    told = found.predict("en=0.3,de=0.3,fr=0.2,zh=0.2", 1e8, 3e9, level=0.98)
    truth = true_law("learned-base", inputs())(told.p, told.N, told.D)
    assert ((told.low <= truth) & (truth <= told.high)).all()


def test_the_less_of_a_source_was_seen_the_wider():
    shown = {"well": mixtures(ROWS, 4)[:, ZH], "twice": first(2, 0.3), "once": first(1, 0.3), "never": first(0, 0.3)}
    wide = {
        key: widths(fit_with("learned-base", ratios), "en=0.3,de=0.3,fr=0.1,zh=0.3").mean()
        for key, ratios in shown.items()
    }
    assert 3 * wide["well"] < min(wide["once"], wide["twice"])
    assert 3 * max(wide["once"], wide["twice"]) < wide["never"]


def test_a_source_at_tiny_ratios_is_widened_and_named():
    found = fit_with("learned-base", np.linspace(0.0, 0.004, ROWS))
    assert list(found.thin) == ["zh"]
    assert widths(found, "en=0.3,de=0.3,fr=0.2,zh=0.2").min() > 2 * widths(found, "en=0.4,de=0.3,fr=0.3,zh=0").max()


def test_checkpoints_of_one_mixture_are_one_mixture():
    """Fault: a source seen in one mixture only was thought well seen if it had three runs."""
    log = log_with("learned-base", first(6, 0.25))
    same = np.where((np.arange(ROWS) < 6)[:, None], log.p[0], log.p)
    found = sm.fit(replace(log, p=same), "learned-base", **FAST)
    assert (list(found.thin), found.coverage.mixtures[:, ZH].tolist()) == (["zh"], [1] * 4)
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
    np.testing.assert_array_equal(found.coverage.mixtures[:, ZH], [6, 0, 2, 6])


@pytest.mark.parametrize("name", LEARNING)
def test_a_source_without_runs_is_taken_for_the_middle_one(name):
    packing = Packing(LAWS[name], 4, {})
    x = np.random.default_rng(1).random((5, 2, len(packing.names)))
    seen = np.array([[True, True, True, False], [False] * 4])
    found = packing.fill_unseen(x, np.broadcast_to(seen, (5, 2, 4)))
    assert packing.fill_unseen(x, np.ones((5, 2, 4), dtype=bool)) is x
    for known in packing.free:
        before, after = (values[..., packing.slices[known.name]] for values in (x, found))
        if known.axes == "K":
            np.testing.assert_array_equal(after, before)
            continue
        np.testing.assert_array_equal(after[:, 0, :3], before[:, 0, :3])
        np.testing.assert_array_equal(after[:, 0, ZH], np.median(before[:, 0, :3], axis=1))
        np.testing.assert_array_equal(after[:, 1], np.median(before[:, 1], axis=1, keepdims=True) * np.ones(4))
