"""Losses that jump unless some source has its least ratio: found, predicted, drawn where runs leave it open."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from simulated import HEIGHT, LEAST, STEPPED, jumps, mixtures, stepped

import shapleymix as sm
from shapleymix.fitting.fit import Fit
from shapleymix.fitting.steps import NEVER, Steps

pytestmark = pytest.mark.usefixtures("one_prior")

N, D = STEPPED["sizes"][0], STEPPED["tokens"][0]


@pytest.fixture(scope="module")
def fit() -> Fit:
    return sm.fit(stepped(80)[0], bootstrap=20)


def test_least_ratios_lie_between_those_that_are_found(fit: Fit) -> None:
    assert fit.steps is not None
    assert not fit.steps.height[:-1].any()
    np.testing.assert_allclose(fit.steps.height[-1], HEIGHT, atol=0.05)
    low, high = fit.steps.low[:, -1], fit.steps.high[:, -1]
    assert np.all((low < LEAST) & (high >= np.minimum(LEAST, NEVER)))
    assert np.all(high[1:] < 0.7)


def test_new_runs_are_predicted_at_either_side_and_both_lie_in_the_interval_between(fit: Fit) -> None:
    new, smooth = stepped(200, seed=0)
    held = fit.predict(new.p, new.N, new.D)
    factor = fit.steps.mean(new.p)[:, -1]
    known = (factor == 0) | (factor == fit.steps.height[-1])
    assert known.mean() > 0.8
    off = np.abs(held.losses[:, -1] / new.loss[:, -1] - 1)
    assert np.median(off[known]) < 0.02
    open_ = (factor > 0.1 * HEIGHT) & (factor < 0.9 * HEIGHT)
    assert open_.any()
    ends = np.stack([smooth, smooth * np.exp(HEIGHT)], axis=1)[open_] * [1.01, 0.99]
    assert np.mean((held.low[open_, -1:] < ends) & (ends < held.high[open_, -1:])) > 0.9


def test_no_jump_is_seen_where_there_is_none() -> None:
    assert sm.fit(stepped(60, height=0.0)[0], bootstrap=0, folds=0).steps is None


def test_draws_have_the_mean_and_order_of_the_sources_does_not_matter(fit: Fit) -> None:
    for p in mixtures(20, 4, 3):
        drawn = np.exp(fit.steps.draw(p, 20_000, 1)).mean(axis=0)
        np.testing.assert_allclose(np.log(drawn), fit.steps.mean(p[None])[0], atol=0.01)
        turned = Steps(fit.steps.low[::-1], fit.steps.high[::-1], fit.steps.height)
        np.testing.assert_array_equal(turned.draw(p[::-1], 50, 1), fit.steps.draw(p, 50, 1))


def test_an_optimum_stays_on_the_better_side(fit: Fit, tmp_path: Path) -> None:
    for weights in ("xx=1", "xx=1,de=4", "xx=0.001,de=1"):
        mix, law_alone = (sm.optimize(one, N, D, weights=weights) for one in (fit, replace(fit, steps=None)))
        question = sm.problem(fit, N, D, weights=weights)
        assert question.objective(mix.p) <= question.objective(law_alone.p) + 1e-12
        assert mix.certificate.relative_gap < 1e-9
    curve = sm.frontier(fit, N, D, "xx:rest", points=4)
    assert not any(jumps(p) for p in (sm.optimize(fit, N, D, weights="xx=1,de=4").p, *(one.p for one in curve.entries)))
    fit.save(tmp_path / "fit.json")
    p = mixtures(5, 4, 8)
    for one in (fit, Fit.load(tmp_path / "fit.json")):
        np.testing.assert_array_equal(one.at(N, D).mean(p), fit.at(N, D).mean(p))


def test_a_source_like_another_helps_as_that_does(fit: Fit) -> None:
    """All ratios are below the least ones but that of the new source, or of the first, which helps nobody."""
    more = sm.like(fit, "yy=fr")
    helped, alone = more.at(N, D).mean(np.array([[0.3, 0.0, 0.1, 0.1, 0.5], [0.8, 0.0, 0.1, 0.1, 0.0]]))[:, -1]
    assert helped < 0.9 * alone


def test_kept_back_swarm_is_predicted_better_than_by_trees(shared_data: Path) -> None:
    log = sm.read_runs(shared_data / "wiki40b_1m_train.csv")
    order = np.random.default_rng(1).permutation(len(log))
    fit = sm.fit(log.select(np.sort(order[:128])), bootstrap=0)
    new = log.select(order[128:])
    assert fit.steps is not None
    assert np.nanmean(sm.evaluate(fit, new).scores.PE) < 0.0111  # LightGBM's, of `bench_accuracy.py`
