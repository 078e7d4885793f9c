"""Every law under every filter at points inside and outside: flagged where outside, NaN where above the untrained."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from simulated import FAST, languages

import shapleymix as sm
from shapleymix.fitting.evidence import one_log
from shapleymix.fitting.fits import Fit
from shapleymix.game.values import shapley_values
from shapleymix.laws import LAWS
from shapleymix.records import BoolArray, FloatArray
from shapleymix.tables.run_reading import read_runs
from shapleymix.tables.runs import RunLog

pytestmark = pytest.mark.filterwarnings("ignore::shapleymix.errors.ShapleyMixWarning")
FILTERS: dict[str, dict[str, float]] = {
    "none": {}, "own tokens": {"min_own_tokens": 20_000}, "tokens": {"min_tokens": 20_000},
}  # fmt: skip
UNTRAINED = float(np.log(256))
N = 97_600.0
POINTS = {  # mixture in the order of the log's sources, and D
    "inside": ((0.3, 0.2, 0.15, 0.2, 0.15), 1.5e6),
    "far in D": ((0.3, 0.2, 0.15, 0.2, 0.15), 8e6),
    "no zh, no ja": ((0.5, 0.3, 0.2, 0.0, 0.0), 1.5e6),
    "en alone": ((1.0, 0.0, 0.0, 0.0, 0.0), 1.5e6),
}
P, D = np.array([p for p, _ in POINTS.values()]), np.array([d for _, d in POINTS.values()])


@pytest.fixture(scope="module")
def log(fixtures) -> RunLog:
    return one_log(read_runs(fixtures / "multilingual5_runs.csv").aligned(["en", "de", "fr", "zh", "ja"]))


@pytest.fixture(scope="module", params=list(product(LAWS, FILTERS)), ids="-".join)
def case(request, log, fixtures) -> tuple[Fit, BoolArray]:
    """A fit, and the losses (R, K) that its filter leaves in, by a loop over the rows."""
    law, filter_ = request.param
    needs = "transfer" in LAWS[law].needs
    matrix = shapley_values(read_runs(fixtures / "multilingual5_coalitions.csv")) if needs else None
    limits = FILTERS[filter_]
    families = languages(("en", "de", "fr", "zh", "ja"))
    found = sm.fit(log, law, matrix, families, vocabulary=256, **FAST | {"starts": 1}, **limits)
    used = np.zeros(log.loss.shape, dtype=bool)
    for row, j in np.ndindex(*used.shape):
        tokens = log.p[row] * log.D[row]
        least = tokens[log.sources.index(log.targets[j])]
        used[row, j] = least >= limits.get("min_own_tokens", 0) and tokens.min() >= limits.get("min_tokens", 0)
    return found, used & np.broadcast_to(found.law.defined(log.p), used.shape)


def expected_outside(log: RunLog, used: BoolArray) -> BoolArray:
    """Whether each point is beyond what the used losses of each target cover, (4, K)."""
    out = np.zeros((len(P), len(log.targets)), dtype=bool)
    for j, rows in enumerate(used.T):
        low, high = log.p[rows].min(axis=0) - 1e-3, log.p[rows].max(axis=0) + 1e-3
        out[:, j] = (low > P).any(axis=1) | (high < P).any(axis=1)
        out[:, j] |= (log.D[rows].max() * 1.01 < D) | (log.D[rows].min() / 1.01 > D)
    return out


def expected_above(found: Fit) -> tuple[FloatArray, BoolArray]:
    """The law's own values, and where they are above the untrained model's loss."""
    raw = np.broadcast_to(found.law(P, np.full(len(P), N), D), (len(P), len(found.targets)))
    limits = found.coverage.untrained
    assert (
        (np.abs(limits - UNTRAINED) < 1e-12) | (np.abs(limits - 5.54) < 0.02)
    ).all()  # of the vocabulary, or measured
    return raw, raw > limits


def test_points_outside_are_flagged_and_what_is_impossible_is_no_number(case, log):
    found, used = case
    told = found.predict(P, N, D)
    raw, above = expected_above(found)
    np.testing.assert_array_equal(told.outside, expected_outside(log, used))
    np.testing.assert_array_equal(told.above_untrained, above)
    np.testing.assert_array_equal(told.losses, np.where(above, np.nan, raw))
    assert told.outside[1].all()
    assert not told.outside[0].any()
    for j, name in enumerate(found.targets):
        assert any(f"no prediction for {name} " in text for text in told.warnings) == above[:, j].any()


def test_strict_refuses_what_is_flagged_and_nothing_else(case):
    found, _ = case
    for index in range(len(P)):
        told = found.predict(P[index], N, D[index])
        if (told.outside | told.above_untrained).any():
            with pytest.raises(sm.OutsideError) as refusal:
                found.predict(P[index], N, D[index], strict=True)
            flagged = (told.outside | told.above_untrained)[0]
            names = [name for name, bad in zip(found.targets, flagged, strict=True) if bad]
            assert f"no prediction for {', '.join(names)}:" in str(refusal.value)
            if len(told.warnings) > 1:  # a line each, as the faults of a table
                assert [fault.message for fault in refusal.value.faults] == list(told.warnings)
        else:
            strict = found.predict(P[index], N, D[index], strict=True)
            np.testing.assert_array_equal(strict.losses, told.losses)


def test_a_rival_above_the_untrained_has_no_number(case):
    found, _ = case
    if found.law.name == "chinchilla":
        pytest.skip("a law without mixtures has no optimum")
    rivals = {name: p for name, (p, d) in POINTS.items() if d == 1.5e6}
    answer = sm.optimize(found, N, 1.5e6, compare_to=rivals)
    _, above = expected_above(found)
    told = {rival.name: rival for rival in answer.baselines}
    assert set(rivals) <= set(told)
    for (name, (_, d)), lost in zip(POINTS.items(), above, strict=True):
        if d != 1.5e6:
            continue
        rival, names = told[name], [target for target, bad in zip(found.targets, lost, strict=True) if bad]
        assert np.isnan(rival.objective) == bool(names)
        assert np.isnan(rival.gain) == bool(names)
        assert rival.reason == (f"above an untrained model's loss for {', '.join(names)}" if names else "")
