"""The rate of repetition where runs are held out, and for laws that cannot tell one themselves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from simulated import inputs, mixtures, true_law

from shapleymix import compare, fit, learning_curve
from shapleymix.fitting.estimation import Problem
from shapleymix.fitting.rates import Told
from shapleymix.fitting.requirements import settings_of
from shapleymix.fitting.settings import Settings
from shapleymix.fitting.study import study_of
from shapleymix.laws import Chinchilla, EffectiveData, Exponential, LearnedBase
from shapleymix.laws.repeated import PUBLISHED, effective
from shapleymix.tables.run_reading import read_runs
from shapleymix.tables.runs import RunLog

QUICK: dict[str, Any] = {"bootstrap": 0, "folds": 0, "starts": 2, "threads": 1}

pytestmark = pytest.mark.filterwarnings("ignore::shapleymix.errors.ShapleyMixWarning")


@pytest.fixture(scope="module")
def log(fixtures: Path) -> RunLog:
    """Half of the real runs, two targets."""
    whole = read_runs(fixtures / "repetition_runs.csv")
    return replace(whole, targets=whole.targets[:2], loss=whole.loss[:, :2]).select(np.arange(0, len(whole), 2))


def test_a_fold_is_predicted_at_a_rate_that_its_own_rows_have_no_say_in(log: RunLog) -> None:
    """The rate was told by all rows, and held-out errors with it."""
    study = study_of(log, None, None, Settings(**QUICK), 0)
    mask = study.cross_validation(3)[0][0]
    held = np.isin(log.runs, [run for run, out in zip(study.log.runs, mask.tolist(), strict=True) if out])
    flat = replace(log, loss=np.where(held[:, None], np.exp(np.log(log.loss).mean()), log.loss))
    odd = study_of(flat, None, None, Settings(**QUICK), 0)
    direct = Told.of(study, LearnedBase, ~mask).rate
    for each in (study, odd):
        ((there, numbers),) = Told.of(each, LearnedBase).without(mask[None])
        assert numbers.tolist() == [0]
        assert there.evidence.rate == pytest.approx(direct, rel=0.1)
    assert Told.of(odd, LearnedBase).rate != pytest.approx(direct, rel=0.2), "all rows would tell another"


@pytest.mark.parametrize("law", [LearnedBase, Chinchilla, Exponential])
def test_every_mask_has_one_rate(log: RunLog, law: Any) -> None:
    study = study_of(log, None, None, Settings(**QUICK), 0)
    parts = Told.of(study, law).without(study.cross_validation(4)[0])
    assert sorted(np.concatenate([numbers for _, numbers in parts]).tolist()) == list(range(4))
    assert len({there.evidence.rate for there, _ in parts}) == len(parts)
    if law is Exponential:
        assert parts[0][0].evidence.rate == PUBLISHED


def test_rows_that_tell_other_symbols_tell_the_rate_by_themselves(log: RunLog) -> None:
    """Without the largest size there is one size less, and the law has fewer unknowns."""
    study = study_of(replace(log, N=np.where(np.arange(len(log)) % 4 == 0, 1e5, log.N)), None, None, Settings(), 0)
    largest = study.hold_out(leave_largest_N=True)[0]
    assert study.evidence.held(LearnedBase, ~largest[0]) != study.evidence.held(LearnedBase)
    ((there, _),) = Told.of(study, LearnedBase).without(largest)
    assert there.evidence.rate == pytest.approx(Told.of(study, LearnedBase, ~largest[0]).rate)


def test_black_boxes_take_the_rate_that_the_log_tells_the_law_with_a_base(log: RunLog) -> None:
    """They took the published one, and said that the fitted runs repeat hardly any tokens."""
    found = fit(log, "mariner", **QUICK).repetition
    base = fit(log, "learned-base", **QUICK).repetition
    assert found is not None
    assert base is not None
    assert found.told
    assert found.rate == base.rate != PUBLISHED
    assert found.rates is None


def test_a_fit_and_a_comparison_hold_out_at_the_same_rates(log: RunLog) -> None:
    how: dict[str, Any] = {**QUICK, "folds": 3}
    own = fit(log, "mariner", **how).held_out
    del how["bootstrap"]
    scores = compare(log, "mariner", **how).entries[0].scores
    assert own is not None
    assert scores is not None
    np.testing.assert_array_equal(own.PE, scores.PE)


def test_a_learning_curve_is_at_the_rates_of_its_fits_and_counts_a_split_once(log: RunLog) -> None:
    """It took the published rate; and where the fit had three folds, its error was one more split into three."""
    how: dict[str, Any] = {"folds": 4, "threads": 1, "starts": 2}
    error = fit(log, "mariner", bootstrap=0, **how).held_out
    assert error is not None
    told = error.mean["PE"]
    alone = learning_curve(log, "mariner", parts=(4, 3), **how)
    both = learning_curve(log, "mariner", parts=(4, 3), held_out=told, **how)
    assert both.to_document() == alone.to_document()
    size = int(np.argmin(np.abs(alone.mixtures - alone.now * 0.75)))
    assert alone.PE[size] == pytest.approx(told, rel=0.05), "the means of folds and of all rows differ a little"
    more = learning_curve(log, "mariner", parts=(3,), held_out=told, **how)
    assert more.PE[-1] == told


def test_runs_that_differ_in_their_unique_tokens_alone_are_different_runs() -> None:
    """Twelve of them, six mixtures each fresh and repeated, counted as six: too few for a law of seven numbers."""
    given = inputs(3, 2)
    p = np.repeat(mixtures(6, 3), 2, axis=0)
    unique = np.where(np.arange(12)[:, None] % 2 == 0, np.nan, p * 1e9 / 8)
    law = true_law("effective-data", given)
    rows, budget = tuple(f"run-{row}" for row in range(12)), (np.full(12, 1e8), np.full(12, 1e9))
    q = effective(p, np.where(np.isnan(unique), np.inf, unique) / 1e9, 0.4)
    log = RunLog(rows, *budget, p, law(q, *budget), given.sources, given.targets, unique=unique)
    study = study_of(log, None, None, Settings(**QUICK), 0)
    problem = Problem.of(EffectiveData, study.evidence, study.inputs, study.settings)
    assert len(np.unique(settings_of(problem, study.log))) == 12
    fresh = Problem.of(Exponential, study.evidence, study.inputs, study.settings)
    assert len(np.unique(settings_of(fresh, study.log))) == 6, "to this law repeated tokens are fresh ones"
    plenty = study_of(replace(log, unique=unique * 1e3), None, None, Settings(**QUICK), 0)
    same = Problem.of(EffectiveData, plenty.evidence, plenty.inputs, plenty.settings)
    assert len(np.unique(settings_of(same, plenty.log))) == 6, "limits that nothing reaches change nothing"
