"""What a fit covers, target by target; and what is said, and not shown, of points outside of it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated import FAST, log_of

from shapleymix.errors import StoreError, UsageError
from shapleymix.fitting.coverage import BUDGET_SLACK, RATIO_SLACK, Coverage, Extrapolation, coverage_of
from shapleymix.fitting.evidence import gather
from shapleymix.fitting.fit import Fit, fit
from shapleymix.fitting.settings import Settings
from shapleymix.game.coalitions import shapley_values
from shapleymix.tables.run_reading import read_runs

EN_DE = "en=0.5,de=0.5"


@pytest.fixture(scope="module")
def filtered(fixtures: Path) -> Fit:
    """The README's fit: losses of runs with few tokens of the target's own language left out."""
    log = read_runs(fixtures / "multilingual5_runs.csv")
    matrix = shapley_values(read_runs(fixtures / "multilingual5_coalitions.csv"))
    return fit(log, "shapley-tempered", matrix, min_own_tokens=20_000, starts=2, **FAST)


# what is covered


def test_ranges_are_of_the_losses_that_were_used_not_of_the_rows():
    _, _, log = log_of("learned-base", rows=40)
    evidence = gather(log, Settings(min_own_tokens=float(np.median(log.p * log.D[:, None]))))
    found = coverage_of(evidence.log, evidence.weight > 0, np.full(4, np.nan))
    for j in range(4):
        rows = np.flatnonzero(evidence.weight[:, j] > 0)
        assert 0 < len(rows) < 40
        for i in range(4):
            ratios = [float(evidence.log.p[row, i]) for row in rows]
            assert found.p_range[j, i].tolist() == [min(ratios), max(ratios)]
            mixed = {tuple(evidence.log.p[row].tolist()) for row in rows if evidence.log.p[row, i] > 0}
            assert found.mixtures[j, i] == len(mixed)
        assert found.N_range[j].tolist() == [evidence.log.N[rows].min(), evidence.log.N[rows].max()]
        assert found.D_range[j].tolist() == [evidence.log.D[rows].min(), evidence.log.D[rows].max()]


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 10**6), sources=st.integers(0, 4), targets=st.integers(1, 3))
def test_a_point_is_outside_where_any_of_its_numbers_is(seed, sources, targets):
    rng = np.random.default_rng(seed)
    ratios = np.sort(rng.uniform(0, 1, (targets, sources, 2)), axis=-1)
    budgets = np.sort(10 ** rng.uniform(6, 9, (2, targets, 2)), axis=-1)
    counts = np.ones((targets, sources), dtype=np.int64)
    compute, ratio = (np.sort(np.exp(rng.uniform(*ends, (targets, 2))), axis=1) for ends in ((30, 38), (-4, 4)))
    known = Coverage(ratios, budgets[0], budgets[1], counts, np.full(targets, np.nan), {}, compute, ratio)
    p, N, D = rng.uniform(0, 1, (5, sources)), 10 ** rng.uniform(6, 9, 5), 10 ** rng.uniform(6, 9, 5)
    names = tuple("abcd")
    apart = np.zeros((5, targets), dtype=bool)
    found = Extrapolation(p, N, D, names[:sources], names[:targets], known, {}, apart).outside
    for r in range(5):
        for j in range(targets):
            off = [not budgets[0, j, 0] / BUDGET_SLACK <= N[r] <= budgets[0, j, 1] * BUDGET_SLACK]
            off += [not budgets[1, j, 0] / BUDGET_SLACK <= D[r] <= budgets[1, j, 1] * BUDGET_SLACK]
            off += [not low - RATIO_SLACK <= x <= high + RATIO_SLACK for x, (low, high) in zip(p[r], ratios[j])]  # noqa: B905
            n, d = (float(np.clip(x, *span)) for x, span in zip((N[r], D[r]), budgets[:, j], strict=True))
            pairs = (n * d, compute[j]), (d / n, ratio[j])
            off += [not low / BUDGET_SLACK <= x <= high * BUDGET_SLACK for x, (low, high) in pairs]
            assert found[r, j] == any(off)


# a filtered fit predicted fr = 14.05 nats without a word


@pytest.mark.parametrize("mixture", [EN_DE, "en=1"])
def test_a_loss_above_the_untrained_models_is_no_prediction(filtered, mixture):
    fr = filtered.targets.index("fr")
    raw = filtered.law(filtered.predict(mixture, 97600, "2M").p, np.array([97600.0]), np.array([2e6]))
    assert raw[0, fr] > 10  # the law's own value stays within reach, and is as absurd as before
    found = filtered.predict(mixture, 97600, "2M")
    np.testing.assert_array_equal(found.above_untrained, raw > filtered.coverage.untrained)
    assert np.isnan(found.losses[0, fr])
    assert np.isnan([found.low[0, fr], found.high[0, fr]]).all()
    assert found.outside[0, fr]
    assert not (found.losses > filtered.coverage.untrained).any()
    text = "\n".join(found.warnings)
    assert "untrained model" in text
    assert "lies outside of the fitted range" in text


def test_the_untrained_loss_is_measured_or_that_of_the_vocabulary(filtered, noisy):
    np.testing.assert_allclose(filtered.coverage.untrained, [5.54902, 5.54401, 5.54395, 5.55375, 5.52961])
    _, given_, log = noisy
    empty = replace(log.select([0]), D=np.zeros(1), p=np.zeros((1, 4)), runs=("empty",), loss=np.full((1, 4), 4.0))
    empty.loss[0, 3] = np.nan
    both = fit([log, empty], "shapley", given_.transfer, vocabulary=32_000, **FAST)
    np.testing.assert_allclose(both.coverage.untrained, [4.0, 4.0, 4.0, np.log(32_000)])
    assert (fit(log, "chinchilla", **FAST).coverage.untrained == np.log(300_000)).all()
    with pytest.raises(UsageError, match="vocabulary of 1"):
        fit(log, "chinchilla", vocabulary=1, **FAST)


# the warning grows with the distance, and names what was held


def test_coverage_of_other_languages_is_refused(filtered):
    twelve = replace(filtered.coverage, p_range=np.zeros((4, 12, 2)), mixtures=np.zeros((4, 12), dtype=np.int64))
    with pytest.raises(StoreError) as caught:
        Fit.from_document(replace(filtered, coverage=twelve).to_document())
    assert caught.value.location.column
