"""Losses that jump unless some source has its least ratio: found, predicted, drawn where runs leave it open."""

import itertools
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from simulated import HEIGHT, JUMPING, LEAST, jumping, jumps, mixtures

import shapleymix as sm
from shapleymix.fitting.fit import Fit
from shapleymix.fitting.jumps import NEVER, Jumps

pytestmark = pytest.mark.usefixtures("one_prior")

N, D = JUMPING["sizes"][0], JUMPING["tokens"][0]
EVEN = np.full(4, 0.25)


@pytest.fixture(scope="module")
def fit() -> Fit:
    return sm.fit(jumping(80)[0], bootstrap=20)


@pytest.fixture(scope="module", params=["learned-base", "additive", "exponential"])
def fit_of_law(request: pytest.FixtureRequest) -> Fit:
    return sm.fit(jumping(80)[0], request.param, bootstrap=0, folds=0)


def test_least_ratios_lie_between_those_that_are_found(fit: Fit) -> None:
    assert fit.jumps is not None
    assert not fit.jumps.height[:-1].any()
    np.testing.assert_allclose(fit.jumps.height[-1], HEIGHT, atol=0.05)
    low, high = fit.jumps.low[:, -1], fit.jumps.high[:, -1]
    assert np.all((low < LEAST) & (high >= np.minimum(LEAST, NEVER)))
    assert np.all(high[1:] < 0.7)


def test_new_runs_are_predicted_at_either_side_and_both_lie_in_the_interval_between(fit: Fit) -> None:
    new, smooth = jumping(200, seed=0)
    held = fit.predict(new.p, new.N, new.D)
    factor = fit.jumps.mean(new.p)[:, -1]
    known = (factor == 0) | (factor == fit.jumps.height[-1])
    assert known.mean() > 0.8
    off = np.abs(held.losses[:, -1] / new.loss[:, -1] - 1)
    assert np.median(off[known]) < 0.02
    open_ = (factor > 0.1 * HEIGHT) & (factor < 0.9 * HEIGHT)
    assert open_.any()
    ends = np.stack([smooth, smooth * np.exp(HEIGHT)], axis=1)[open_] * [1.01, 0.99]
    assert np.mean((held.low[open_, -1:] < ends) & (ends < held.high[open_, -1:])) > 0.9


def test_a_law_that_leaves_out_no_jump_says_nothing_of_them(fit: Fit) -> None:
    """`chinchilla` knows no mixtures, and boosted trees learn jumps."""
    assert any("higher without" in text for text in fit.notices)
    for law in ("chinchilla", "gbm"):
        other = sm.fit(jumping(80)[0], law, bootstrap=0, folds=0)
        assert other.jumps is None
        assert not any("higher without" in text for text in other.notices)


def test_no_jump_is_seen_where_there_is_none() -> None:
    assert sm.fit(jumping(60, height=0.0)[0], bootstrap=0, folds=0).jumps is None


def test_draws_have_the_mean_and_order_of_the_sources_does_not_matter(fit: Fit) -> None:
    for p in mixtures(20, 4, 3):
        drawn = np.exp(fit.jumps.draw(p, 20_000, 1)).mean(axis=0)
        np.testing.assert_allclose(np.log(drawn), fit.jumps.mean(p[None])[0], atol=0.01)
        turned = Jumps(fit.jumps.low[::-1], fit.jumps.high[::-1], fit.jumps.height)
        np.testing.assert_array_equal(turned.draw(p[::-1], 50, 1), fit.jumps.draw(p, 50, 1))


ASKED: list[dict[str, Any]] = [
    {"weights": "xx=1"}, {"weights": "xx=1,fr=1,zh=1"}, {"weights": "xx=0.001,de=1"},
    {"weights": "xx=1,de=4", "kl": 1.0, "anchor": [0.7, 0.28, 0.01, 0.01]},
    {"weights": "xx=1,fr=1,zh=1", "available": "de=300M,fr=400M,zh=1B,en=3B", "max_epochs": 2},
    {"weights": "xx=1,fr=1,zh=1", "caps": "de=.2,fr=.6", "groups": "de+zh<=.5"},
    {"weights": "xx=1,fr=1", "near": [0.6, 0.15, 0.15, 0.1], "within": 0.1},
    {"weights": "xx=1,fr=1,zh=1", "objective": "worst"},
    {"weights": "xx=1,fr=1,zh=1", "after": "en=.9,de=.1", "trained": "1B"},
    {"weights": "xx=1", "constraints": [lambda p: cp.norm(cp.hstack(list(p.values())) - EVEN, 2) <= 0.01]},
]  # fmt: skip


@pytest.mark.parametrize("asked", ASKED, ids=range(len(ASKED)))
def test_an_optimum_is_as_good_as_one_above_each_least_ratio_and_without_help(
    fit_of_law: Fit, asked: dict[str, Any]
) -> None:
    """A second road: the law's optimum with each floor typed, where it is above the bounds' own."""
    question, mix = sm.problem(fit_of_law, N, D, **asked), sm.optimize(fit_of_law, N, D, **asked)
    found = [sm.optimize(replace(fit_of_law, jumps=None), N, D, **asked).p]
    for name, least in zip(fit_of_law.sources, fit_of_law.jumps.high[:, -1].tolist(), strict=True):
        with suppress(sm.ShapleyMixError):
            found.append(sm.optimize(replace(fit_of_law, jumps=None), N, D, **asked, floors={name: least}).p)
    if fit_of_law.jumps.mean(found[0][None])[0, -1] == 0:  # what the law misses else moves no optimum
        found = found[:1]
    assert question.total(mix.p) <= min(map(question.total, found)) + 1e-9
    assert mix.certificate.relative_gap < 1e-9
    assert question.goal.violation(mix.p) < 1e-8
    assert all(one.origin != "jump" for one in mix.binding)
    assert next(one.within_bounds for one in mix.baselines if one.name == "uniform") == (
        question.goal.violation(question.ratios("uniform")) < 1e-8
    )


@pytest.mark.parametrize("objective", ["mean", "worst"])
def test_where_no_source_may_help_the_higher_losses_are_minimised(fit_of_law: Fit, objective: str) -> None:
    """Fault: the law's without the jump were, and the worst of the other losses."""
    jumps = fit_of_law.jumps
    caps = np.where(jumps.high[:, -1] < NEVER, jumps.low[:, -1], 1.0)
    mix = sm.optimize(fit_of_law, N, D, caps=caps, objective=objective)
    p = np.random.default_rng(0).dirichlet(np.ones(len(caps)), 10_000)
    p = np.vstack([mix.p, p[(p <= caps).all(axis=1)]])
    losses = fit_of_law.at(N, D).of_law(p) * np.exp(jumps.height)
    values = losses.mean(axis=1) if objective == "mean" else losses.max(axis=1)
    assert mix.certificate.lower_bound <= values.min() + 1e-9
    np.testing.assert_allclose(values[0], mix.certificate.lower_bound, rtol=1e-8)
    assert mix.binding or objective == "worst"
    for one in mix.binding:
        wider = caps + one.change * (np.array(mix.sources) == one.source)
        other = sm.optimize(fit_of_law, N, D, caps=wider, objective=objective)
        np.testing.assert_allclose(one.saves, mix.objective - other.objective, atol=1e-7)


@pytest.mark.parametrize("turn", [1, -1])
def test_two_losses_that_jump_are_kept_from_it_together(fit: Fit, turn: int) -> None:
    """Whatever their order: by the second road, each pair of floors typed."""
    low, high = np.ones((4, 4)), np.full((4, 4), NEVER)
    low[[1, 2], 3], high[[1, 2], 3] = [0.3, 0.4], [0.35, 0.5]
    low[[1, 3], 0], high[[1, 3], 0] = [0.5, 0.6], [0.55, 0.65]
    order = [0, 3] if turn > 0 else [3, 0]
    height = np.array([0.25, 0.0, 0.0, 0.3])
    columns = np.arange(4)
    columns[[0, 3]] = order
    both = replace(fit, jumps=Jumps(low[:, columns], high[:, columns], height[columns]))
    for asked in ({}, {"floors": {"en": 0.3}}, {"caps": {"de": 0.52}}, {"weights": "xx=1,de=2,zh=.1"}):
        question, mix, found = sm.problem(both, N, D, **asked), sm.optimize(both, N, D, **asked), []
        tops = np.minimum(both.jumps.high, question.bounds.upper[:, None])
        for first, second in itertools.product(range(4), repeat=2):
            floors = dict.fromkeys(fit.sources, 0.0) | dict(asked.get("floors", {}))
            for place, target in ((first, 0), (second, 3)):
                floors[fit.sources[place]] = max(floors[fit.sources[place]], float(tops[place, target] % 1))
            with suppress(sm.ShapleyMixError):
                found.append(sm.optimize(replace(fit, jumps=None), N, D, **(asked | {"floors": floors})).p)
        assert question.total(mix.p) <= min(map(question.total, found)) + 1e-9


def test_frontiers_stay_above_and_files_keep_jumps(fit: Fit, tmp_path: Path) -> None:
    curve = sm.frontier(fit, N, D, "xx:fr+zh", points=4)
    assert not any(jumps(one.p) for one in curve.entries[1:])
    fit.save(tmp_path / "fit.json")
    p = mixtures(5, 4, 8)
    np.testing.assert_array_equal(Fit.load(tmp_path / "fit.json").at(N, D).mean(p), fit.at(N, D).mean(p))


@pytest.mark.parametrize("rows", [3, 9, 12, 60, 400])
def test_noise_has_ends_in_order_and_few_losses_have_no_jump(rows: int) -> None:
    rng = np.random.default_rng(rows)
    loss = np.where(rng.random((rows, 30)) < 0.1, np.nan, rng.standard_t(2, (rows, 30)))
    loss[:, 0] = np.nan
    found = Jumps.of(mixtures(rows, 4, rows, 0.4), loss)
    assert np.all(found.low < found.high)
    assert np.all(found.height >= 0)
    assert not found.height[0]
    assert rows > 8 or not found.height.any()


def test_a_few_failed_runs_of_one_mixture_or_of_many_are_no_jump() -> None:
    log, _ = jumping(60, height=0.0)
    rng = np.random.default_rng(0)
    for failed in (rng.choice(60, 1), rng.choice(60, 6)):
        loss = log.loss.copy()
        loss[failed, -1] *= 1.3
        assert sm.fit(replace(log, loss=loss), bootstrap=0, folds=0).jumps is None


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
    assert fit.jumps is not None
    assert np.nanmean(sm.evaluate(fit, new).scores.PE) < 0.0111  # LightGBM's, of `bench_accuracy.py`
