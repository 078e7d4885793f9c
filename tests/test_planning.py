"""Which runs next: bounds hold, updates are Bayes' rule, and the choice is near the best that enumeration finds."""

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shapleymix as sm
from shapleymix.planning.design import NOISE, choose, features, move_within

FIVE = Path(__file__).parents[1] / "fixtures" / "multilingual5_runs.csv"
NAMES, FAMILIES = ("en", "de", "fr", "zh", "ja"), FIVE.with_name("multilingual5_languages.csv")


@pytest.fixture(scope="module")
def log() -> sm.RunLog:
    return sm.read_runs(FIVE)


def drawn(count: int, seed: int, sources: int = 4) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.ones(sources), size=count)


def variance_after(runs: np.ndarray, region: np.ndarray) -> float:
    """The mean variance over a region by Bayesian regression written out."""
    F, asked = features(runs), features(region)
    precision = np.eye(F.shape[1]) + F.T @ F / NOISE**2
    return float(np.mean(np.sum(asked * np.linalg.solve(precision, asked.T).T, axis=1)))


@pytest.mark.parametrize("seed", range(4))
def test_the_error_is_that_of_bayesian_regression(seed: int) -> None:
    pool, region, trained = drawn(40, seed), drawn(60, seed + 100), drawn(3, seed + 200)
    order, error = choose(pool, region, trained, 5)
    for count in range(6):
        runs = np.concatenate([trained, pool[order[:count]]])
        assert error[count] ** 2 == pytest.approx(variance_after(runs, region), rel=1e-8)


@pytest.mark.parametrize("seed", range(4))
def test_the_choice_is_near_the_best_of_all(seed: int) -> None:
    pool, region = drawn(14, seed), drawn(60, seed + 100)
    best = min(variance_after(pool[list(some)], region) for some in combinations(range(14), 3))
    order, _ = choose(pool, region, np.zeros((0, 4)), 3)
    assert variance_after(pool[order], region) <= 1.05 * best


BOUNDS: list[dict[str, Any]] = [
    {"caps": {"zh": 0.3}, "floors": 0.05},
    {"groups": ["en+de<=0.5", "zh+ja>=0.2"], "languages": FAMILIES, "keep_within": "Germanic", "kept": "uniform"},
    {"fix": {"en": 0.25}}, {"near": "uniform", "within": 0.3}, {"near": "uniform", "within": 0.05, "distance": "kl"},
    {"available": {"ja": 100_000}, "max_epochs": 2},
]  # fmt: skip


@pytest.mark.parametrize("bounds", BOUNDS, ids=lambda one: "+".join(one))
def test_all_that_is_planned_lies_within_bounds(log: sm.RunLog, bounds: dict[str, Any]) -> None:
    plan = sm.design(12, log, D=1e6, **bounds)
    area = sm.problem(sm.fit(log, law="additive", bootstrap=0, folds=0, min_own_tokens=0), 1e5, 1e6, **bounds).within
    assert max(area.violation(p) for p in plan.p) < 1e-7
    assert len(plan.p) == 12
    moved = move_within(area, np.random.default_rng(0).dirichlet(np.ones(5), 50))
    assert max(area.violation(p) for p in moved) < 1e-7
    assert len(np.unique(moved.round(6), axis=0)) > 40
    free = (area.movable) & (area.upper < 1)
    assert (moved[:, free] == area.upper[free]).mean() < 0.1 if free.any() else True, "random ones lie inside"
    np.testing.assert_allclose(plan.p.sum(axis=1), 1, atol=1e-9)


def test_a_source_is_in_a_plan_or_is_not(log: sm.RunLog) -> None:
    plan = sm.design(6, log, batches=2, caps={"zh": 0.4})
    assert not np.any((plan.p != 0) & (plan.p < 1e-12))


def test_planned_runs_are_new(log: sm.RunLog) -> None:
    few = log.select(np.arange(8))
    plan = sm.design(4, few, candidates=log.p)
    assert all(np.abs(few.p - p).max(axis=1).min() > 1e-4 for p in plan.p)
    with pytest.raises(sm.UsageError):
        sm.design(4, log, candidates=log.p)


def test_a_plan_is_a_run_log_without_losses(log: sm.RunLog, tmp_path: Path) -> None:
    plan = sm.design(4, log, batches=2)
    assert plan.batch.tolist() == [1, 1, 2, 2]
    plan.save(tmp_path / "plan.json")
    assert sm.Design.load(tmp_path / "plan.json") == plan
    again = sm.read_runs(
        {name: column for name, column in plan.columns().items() if name != "planned_batch"}, losses="optional"
    )
    np.testing.assert_allclose(again.p, plan.p, atol=1e-12)


def test_one_seed_one_plan_and_the_order_of_rows_is_nothing(log: sm.RunLog) -> None:
    first, turned = sm.design(4, log, seed=3), sm.design(4, log.select(np.arange(len(log))[::-1]), seed=3)
    np.testing.assert_array_equal(first.p, turned.p)
    assert not np.array_equal(first.p, sm.design(4, log, seed=4).p)


@pytest.mark.parametrize(
    "asked",
    [
        {}, {"sources": "en"}, {"sources": ["en", "de"], "available": {"en": 1e6}},
        {"sources": NAMES, "candidates": drawn(2, 0, 5)}, {"sources": NAMES, "batches": 9}, {"sources": NAMES, "D": 0},
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(asked: dict[str, Any]) -> None:
    with pytest.raises(sm.UsageError):
        sm.design(4, **asked)
