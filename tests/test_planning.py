"""`design`: deterministic, within bounds, better than chance, and every odd request refused by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from simulated import inputs, log_of, mixtures, simulate, true_law

import shapleymix as sm
from shapleymix.laws import LAWS
from shapleymix.mixing.demands import Demands
from shapleymix.planning.belief import before_any_run
from shapleymix.planning.optimum import WORSE, optimum_of
from shapleymix.tables.joining import concat
from shapleymix.tables.runs import RunLog

FIVE = ("en", "de", "fr", "zh", "ja")
QUICK: dict[str, Any] = {"law": "learned-base"}


@pytest.fixture(scope="module")
def log() -> RunLog:
    return log_of("learned-base", rows=30, noise=5e-3, sizes=(1e7,), tokens=(1e9,))[2]


@pytest.fixture(scope="module")
def fitted(log: RunLog) -> sm.Fit:
    return sm.fit(log, "learned-base", bootstrap=16, folds=3, threads=1)


def left(p: np.ndarray, region: np.ndarray, own: np.ndarray) -> float:
    """Mean variance over a region once mixtures were trained, by the definition."""
    after = before_any_run(own).after(p, np.ones(len(p)), np.ones((len(p), own.shape[1]), dtype=bool))
    return float(np.mean(np.sum(after.features(region) ** 2, axis=-1)))


def test_the_plan_leaves_less_unknown_than_chance_does():
    pool, own = mixtures(120, 5, 1, 0.5), np.eye(5, dtype=bool)
    plan = sm.design(12, sources=FIVE, candidates=pool, purpose="region")
    np.testing.assert_array_equal(plan.p, pool[plan.candidate])
    rng = np.random.default_rng(0)
    random = [left(pool[rng.permutation(120)[:12]], pool, own) for _ in range(40)]
    found = left(plan.p, pool, own)
    assert found < 0.9 * min(random)
    assert plan.region_error[-1] == pytest.approx(np.sqrt(found), rel=1e-4)


def test_losses_told_by_the_plan_are_predicted_better_than_those_of_chance():
    """A law of which the program knows nothing but the prior; the same law is fitted to both."""
    given = inputs(5, 5, seed=3)
    law, pool, region = true_law("learned-base", given, seed=3), mixtures(120, 5, 5, 0.4), mixtures(200, 5, 6, 0.4)
    budget = {"sizes": (1e7,), "tokens": (1e9,)}
    everything = simulate(law, given, pool, noise=1e-2, seed=4, **budget)
    truth = law(region, np.full(200, 1e7), np.full(200, 1e9))

    def error(rows: np.ndarray) -> float:
        fit = sm.fit(everything.select(np.sort(rows)), "learned-base", bootstrap=0, folds=0, threads=1)
        return float(np.abs(fit.law.losses(region, np.full(200, 1e7), np.full(200, 1e9)) / truth - 1).mean())

    plan = sm.design(14, sources=given.sources, candidates=pool, purpose="region")
    random = [error(np.random.default_rng(draw).permutation(120)[:14]) for draw in range(3)]
    assert error(plan.candidate) < np.median(random)


def test_the_same_call_gives_the_same_plan_and_another_seed_other_candidates():
    one, again = (sm.design(3, sources=FIVE[:3]) for _ in range(2))
    assert one == again
    assert one != sm.design(3, sources=FIVE[:3], seed=1)


def test_a_plan_is_kept_whole_and_read_as_a_run_log(tmp_path: Path, log: RunLog, fitted: sm.Fit):
    for plan in (sm.design(4, sources=FIVE), sm.design(4, log, fit=fitted, batches=2, run_N="1B")):
        plan.save(tmp_path / "plan.json", force=True)
        assert sm.Design.load(tmp_path / "plan.json") == plan
        assert str(len(plan)) in plan.summary()
    again = sm.read_runs(plan.columns(), losses="optional")
    np.testing.assert_array_equal(again.p, plan.p)
    assert set(again.N) == {1e9}
    assert plan.batch.tolist() == [1, 1, 2, 2]
    assert [sum(row.values()) for row in plan.mixtures] == pytest.approx([1.0] * 4)


def test_runs_that_are_planned_already_count_as_trained(log: RunLog, fitted: sm.Fit):
    """A plan in two calls is as good as one, and repeats nothing."""
    for first in (sm.design(4, sources=FIVE, run_N=1e7, run_D=1e9), sm.design(4, log, fit=fitted)):
        waiting = sm.read_runs(first.columns(), losses="optional")
        both = [waiting, log] if first.trained else [waiting]
        second = sm.design(4, both, fit=fitted if first.trained else None)
        assert second.trained == first.trained + 4
        assert not set(second.runs) & set(first.runs)
        assert np.abs(first.p[:, None] - second.p[None]).sum(axis=-1).min() > 1e-3
        assert second.region_error[0] == pytest.approx(first.region_error[-1], rel=1e-3)


def test_a_plan_for_the_optimum_asks_about_the_optimum(log: RunLog, fitted: sm.Fit):
    plans = {purpose: sm.design(6, log, fit=fitted, purpose=purpose) for purpose in ("optimum", "region")}
    assert plans["optimum"].optimum_error[-1] <= plans["region"].optimum_error[-1] * (1 + 1e-9)
    assert plans["region"].region_error[-1] <= plans["optimum"].region_error[-1] * (1 + 1e-9)
    best = sm.optimize(fitted, 1e7, 1e9)
    np.testing.assert_allclose(plans["optimum"].optimum, best.p, atol=1e-6)
    for plan in plans.values():
        assert (np.diff(plan.optimum_error) <= 1e-12).all()
        assert (np.diff(plan.region_error) <= 1e-12).all()


@pytest.mark.parametrize("asked", [{}, {"caps": 0.4}, {"groups": "en+de<=0.3"}, {"near": "uniform", "within": 0.5}])
def test_runs_for_an_optimum_lie_where_it_may_lie(asked: dict[str, Any], log: RunLog, fitted: sm.Fit):
    """They were of one source nearly, which tell most of the law, and were the optimum of none."""
    plan = sm.design(6, log, fit=fitted, **asked)
    mean = fitted.law.losses(np.vstack([plan.optimum, plan.p]), np.full(7, 1e7), np.full(7, 1e9)).mean(axis=1)
    assert mean[1:].max() <= (1 + WORSE) * mean[0] + 1e-9
    assert mean[1:].min() >= mean[0] - 1e-6
    assert plan.optimum_error[-1] < plan.optimum_error[0]


def test_mixtures_are_moved_towards_the_optimum_as_far_as_needed(fitted: sm.Fit):
    best = optimum_of(fitted, 1e7, 1e9, Demands())
    given = np.vstack([np.eye(len(fitted.sources)), best.p, 0.99 * best.p + 0.01 / len(best.p)])
    moved = best.nearby(given)
    np.testing.assert_allclose(moved[-2:], given[-2:], atol=1e-12)
    limit = (1 + WORSE) * best.problem.value(best.p)
    far = best.problem.value(given) > limit
    np.testing.assert_allclose(best.problem.value(moved)[far], limit, rtol=1e-6)
    assert far.any()


def test_a_fit_of_another_log_is_refused(log: RunLog, fitted: sm.Fit):
    """It was taken without a word: the runs told what they had never been asked."""
    for other in (log.select(log.p[:, 0] < 0.5 * log.p[:, 0].max()), replace(log, loss=np.full_like(log.loss, np.nan))):
        with pytest.raises(sm.UsageError, match="does not hold the runs of the fit"):
            sm.design(2, other, fit=fitted)


def test_the_budget_is_the_cheapest_that_most_mixtures_were_trained_at(log: RunLog):
    """It was the largest number of rows, and the last D of any of them."""
    few = log.select(np.arange(10))
    larger, longer = replace(few, N=4 * few.N), replace(few.select(np.arange(3)), D=2 * few.D[:3])
    several = concat([few, larger, longer])
    plan = sm.design(2, several, **QUICK, purpose="region")
    assert (plan.N, plan.D) == (1e7, 1e9)
    assert plan.because == "as most mixtures so far, the smallest of such sizes"
    assert sm.design(2, sources=FIVE, run_N=1e7, run_D=1e9).because == "as asked"
    assert sm.design(2, few, **QUICK, run_N=4e7).because == "N as asked, the other as most mixtures so far"


BOUNDS: dict[str, dict[str, Any]] = {
    "caps": {"caps": 0.4},
    "floors and fix": {"floors": "en=0.3", "fix": {"de": 0.1}},
    "groups": {"groups": "en+de<=0.3"},
    "tokens": {"available": "en=1B,de=5B", "max_epochs": 2, "D": "10B"},
    "near": {"near": "uniform", "within": 0.2, "distance": "kl"},
}


@pytest.mark.parametrize("kind", BOUNDS)
@pytest.mark.parametrize("known", [False, True])
def test_bounds_hold(kind: str, known: bool, log: RunLog, fitted: sm.Fit):
    asked = BOUNDS[kind]
    plan = sm.design(5, log, fit=fitted, **asked) if known else sm.design(5, sources=FIVE[:4], **asked)
    p = dict(zip(plan.sources, plan.p.T, strict=True))
    holds = {
        "caps": lambda: plan.p.max() <= 0.4 + 1e-9,
        "floors and fix": lambda: p["en"].min() >= 0.3 - 1e-9 and np.allclose(p["de"], 0.1),
        "groups": lambda: (p["en"] + p["de"]).max() <= 0.3 + 1e-9,
        "tokens": lambda: p["en"].max() <= 0.2 + 1e-9,
        "near": lambda: np.sum(plan.p * np.log(np.maximum(plan.p, 1e-300) * 4), axis=1).max() <= 0.2 + 1e-9,
    }
    assert holds[kind]()
    np.testing.assert_allclose(plan.p.sum(axis=1), 1.0, atol=1e-9)


@pytest.mark.parametrize("law", [name for name, law in LAWS.items() if not {"transfer", "families"} & set(law.needs)])
def test_every_law_plans_or_says_why_not(law: str):
    """Runs at several N and D, with losses missing and a target that is no source."""
    _, _, log = log_of("learned-base", rows=36, noise=5e-3)
    loss = log.loss.copy()
    loss[::5, 1] = np.nan
    log = replace(log, loss=loss, targets=("en", "de", "fr", "code"))
    fit = sm.fit(log, law, bootstrap=8, folds=3, threads=1)
    plan = sm.design(4, log, fit=fit)
    assert np.isfinite(plan.region_error).all()
    assert plan.region_error[-1] < plan.region_error[0]
    assert len(np.unique(plan.p, axis=0)) == 4
    assert (plan.purpose == "region") == (law == "chinchilla")


def test_a_fit_without_its_runs_says_by_replicates_how_sure_it_is(fitted: sm.Fit):
    plan = sm.design(4, fit=fitted)
    assert np.isfinite(plan.optimum_error).all()
    with pytest.raises(sm.UsageError, match="how sure it is"):
        sm.design(4, fit=replace(fitted, replicates=None))


def test_tokens_are_repeated_as_it_pays_where_the_fit_knows_what_that_costs(log: RunLog, fitted: sm.Fit):
    """As in `optimize`; a plan capped them at four epochs, which left no mixture of scarce tokens."""
    scarce = dict.fromkeys(fitted.sources, 1e9)
    plan = sm.design(3, log, fit=fitted, N=1e9, D=1e11, available=scarce)
    assert len(plan.p) == 3
    with pytest.raises(sm.InfeasibleError):
        sm.design(3, log, fit=fitted, N=1e9, D=1e11, available=scarce, max_epochs=4)


def test_a_law_without_replicates_is_told_what_would_plan(log: RunLog, fitted: sm.Fit):
    """It was told to give the log, which it had."""
    bare = replace(sm.fit(log, "hellinger", bootstrap=0, folds=0, threads=1), replicates=None)
    with pytest.raises(sm.UsageError, match="how sure it is") as refused:
        sm.design(2, log, fit=bare)
    assert "learned-base" in str(refused.value.hint)


def test_losses_of_hardly_any_own_data_are_left_out_of_the_fit_that_is_made(log: RunLog, fitted: sm.Fit):
    least = 0.15 * float(log.D.min())
    how = {"law": "learned-base", "purpose": "optimum", "seed": 0}
    made = sm.design(3, log, min_own_tokens=least, **how)
    given = sm.design(3, log, fit=sm.fit(log, "learned-base", bootstrap=64, min_own_tokens=least), **how)
    np.testing.assert_array_equal(made.p, given.p)
    assert not np.array_equal(made.optimum, sm.design(3, log, **how).optimum)
    with pytest.raises(sm.UsageError, match="min_own_tokens does nothing"):
        sm.design(3, log, fit=fitted, min_own_tokens=least)


def test_a_fit_without_held_out_runs_takes_their_scatter_from_those_it_saw(log: RunLog):
    """It was taken for one percent, also where the runs scatter by ten."""
    noisy = replace(log, loss=log.loss * np.exp(0.1 * np.random.default_rng(0).normal(size=log.loss.shape)))
    errors = [
        sm.design(
            2, one, fit=sm.fit(one, "learned-base", bootstrap=0, folds=0, threads=1), purpose="region"
        ).region_error[0]
        for one in (log, noisy)
    ]
    assert errors[1] > 2 * errors[0]


def test_too_few_runs_for_a_law_are_planned_as_before_any(log: RunLog):
    with pytest.warns(sm.ShapleyMixWarning, match="no law could be fitted"):
        plan = sm.design(3, log.select(np.arange(2)), law="additive")
    assert (plan.trained, plan.purpose) == (2, "region")
    assert np.isfinite(plan.region_error).all()


def test_a_log_is_fitted_here_where_no_fit_is_given(log: RunLog):
    plan = sm.design(3, log, **QUICK)
    assert np.isfinite(plan.optimum).all()
    assert (plan.N, plan.D) == (1e7, 1e9)


def test_the_order_of_rows_changes_nothing(log: RunLog, fitted: sm.Fit):
    mixed = log.select(np.random.default_rng(0).permutation(len(log)))
    one, other = sm.design(4, log, fit=fitted), sm.design(4, mixed, fit=fitted)
    np.testing.assert_array_equal(one.p, other.p)
    np.testing.assert_allclose(one.region_error, other.region_error, rtol=1e-6)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"n": 0, "sources": FIVE}, "n: 0 is not a whole number"),
    ({"n": 3}, "nothing says what the sources are"),
    ({"n": 3, "sources": "en"}, "no list of names"),
    ({"n": 3, "sources": ["en", "en"]}, "'en' is given twice"),
    ({"n": 3, "sources": ["a=b", "c"]}, "contains '='"),
    ({"n": 3, "sources": []}, "none is given"),
    ({"n": 3, "sources": FIVE, "batches": 4}, "4 batches of 3 runs"),
    ({"n": 3, "sources": FIVE, "purpose": "best"}, "best"),
    ({"n": 3, "sources": FIVE, "candidates": np.eye(4)}, "mixtures of shape"),
    ({"n": 3, "sources": FIVE, "candidates": "uniform"}, "no list of mixtures"),
    ({"n": 3, "sources": FIVE, "candidates": ["uniform", "en=1"]}, "3 runs of 2 candidates"),
    ({"n": 3, "sources": FIVE, "available": "en=1B"}, "need the tokens"),
    ({"n": 3, "sources": FIVE, "caps": 0.1}, "cannot hold|sum"),
    ({"n": 3, "sources": FIVE, "objective": "worst"}, "has no keyword 'objective'"),
    ({"n": 3, "sources": FIVE, "fix": "en=0.2,de=0.2,fr=0.2,zh=0.2,ja=0.2"}, "3 runs of 1 candidates"),
]


@pytest.mark.parametrize(("asked", "told"), REFUSED)
def test_what_makes_no_sense_is_refused_by_name(asked: dict[str, Any], told: str):
    with pytest.raises(sm.ShapleyMixError, match=told):
        sm.design(**asked)


def test_sources_beside_a_log_are_refused(log: RunLog):
    with pytest.raises(sm.UsageError, match="those of the runs so far"):
        sm.design(3, log, sources=FIVE)


def test_one_source_has_nothing_to_choose_from():
    with pytest.raises(sm.UsageError, match="2 runs of 1 candidates"):
        sm.design(2, sources=["en"])
