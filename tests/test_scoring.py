"""Mixtures chosen for scores: what `optimize` makes of them, of every law, and what it refuses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from score_tools import by_slsqp

import shapleymix as sm
from shapleymix.downstream.doubts import drawn_lines
from shapleymix.mixing.bounds import Bounds
from shapleymix.mixing.problem import Problem


@pytest.fixture(scope="module")
def tasks(fixtures):
    log = fixtures / "multilingual5_runs.csv"
    game = sm.shapley_values(sm.read_runs(fixtures / "multilingual5_coalitions.csv"))
    fit = sm.fit(log, law="shapley-tempered", transfer=game, min_own_tokens="20k", bootstrap=20, folds=4)
    return sm.scored_fit(fit, sm.calibrate_scores(log, str(fixtures / "multilingual5_scores.csv"), chance="0.25"))


def test_a_mixture_for_scores(tasks, tmp_path):
    mix = sm.optimize(tasks, 97_600, "1M", weights=tasks.weights("cloze=2,choice/zh=1"))
    assert mix.measure == "error"
    np.testing.assert_allclose(mix.weights, np.array([0, 1, 2 / 3, 2 / 3, 2 / 3]) / 3)
    predicted = tasks.fit.predict(mix.mixture, 97_600, "1M").losses[0]
    for label, score in mix.scores.items():
        known = tasks.downstream.score(label, predicted[tasks.fit.targets.index(label.rpartition("/")[2])])
        assert score == pytest.approx(float(known), abs=1e-12)
    assert mix.objective == pytest.approx(1 - mix.weights @ [mix.scores[name] for name in mix.targets])
    assert mix.objective_low < mix.objective < mix.objective_high
    terms = tasks.terms(97_600, 1e6)
    best = by_slsqp(Problem(terms, mix.weights, Bounds().at(tasks.sources, 1e6)), 6)
    assert mix.certificate.objective <= best + 1e-8
    mix.save(tmp_path / "mix.json")
    assert sm.Mixture.load(tmp_path / "mix.json").to_document() == mix.to_document()


def test_a_line_in_minus_the_loss_is_the_weighted_loss(tasks):
    """The oracle: with s = -a l + b for every task, the optimum is that of the losses weighted by a."""
    fit = tasks.fit
    lines = [replace(one, transform="minus", a=0.1 * (1 + place), b=1.0) for place, one in enumerate(tasks.tasks)]
    plain = sm.scored_fit(fit, replace(tasks.downstream, calibrations=tuple(lines)))
    mix = sm.optimize(plain, 97_600, "1M", weights=dict.fromkeys(plain.targets, 1.0), caps="zh=0.2")
    weights = {}
    for one in lines:
        weights[one.target] = weights.get(one.target, 0.0) + one.a
    known = sm.optimize(fit, 97_600, "1M", weights=weights, caps="zh=0.2")
    np.testing.assert_allclose(mix.p, known.p, atol=1e-7)
    ratio = sum(weights.values()) / len(lines)
    assert mix.shadow_prices["zh"] == pytest.approx(known.shadow_prices["zh"] * ratio, rel=1e-6)
    # Replicates of lines are drawn beside those of the law, so that ratios are no more certain than those of losses.
    assert mix.replicates == known.replicates


def test_weights_of_tasks(tasks):
    assert tasks.weights() == pytest.approx(
        {"choice/en": 0.5, "choice/zh": 0.5, "cloze/de": 1 / 3, "cloze/en": 1 / 3, "cloze/fr": 1 / 3}
    )
    assert set(tasks.weights(None, "worst").values()) == {1.0}
    with pytest.raises(sm.UsageError, match="of the worst score every task counts alike, or not"):
        tasks.weights("cloze=2,choice=1", "worst")
    with pytest.raises(sm.UsageError, match="'close', which is no task\n  hint: did you mean 'cloze'"):
        tasks.weights("close=1")
    odd = replace(tasks.tasks[0], a=-1.0, transform="exp")
    bad = replace(tasks, downstream=replace(tasks.downstream, calibrations=(odd, *tasks.tasks[1:])))
    with pytest.raises(sm.UsageError, match="choice/en scores higher where the loss is higher"):
        sm.optimize(bad, 97_600, "1M")
    sm.optimize(bad, 97_600, "1M", weights=bad.weights("cloze=1"))


def test_drawn_lines_spread_as_their_covariance_and_keep_their_sign(tasks):
    one = replace(tasks.tasks[2], dof=200)
    drawn = drawn_lines((one,), 20_000)
    np.testing.assert_allclose(np.cov(drawn.a[:, 0], drawn.b[:, 0]), one.covariance * 200 / 198, rtol=0.05)
    wide = replace(one, covariance=np.diag([(3 * one.a) ** 2, 1.0]))
    assert (np.sign(drawn_lines((wide,), 2000).a) == np.sign(one.a)).all()


@pytest.mark.parametrize(
    ("asked", "match"),
    [
        ({"method": "closed-form"}, "is for losses, not for scores"),
        ({"constraints": [lambda p: p[0] <= 0.3]}, "convex|cvxpy"),
        ({"cautious": True}, "a cautious mixture needs scores that are convex"),
    ],
)
def test_what_scores_cannot_have_is_refused_by_name(tasks, asked, match):
    with pytest.raises((sm.SolveError, sm.UsageError), match=match):
        sm.optimize(tasks, 97_600, "1M", **asked)


def test_a_trade_off_and_a_compute_budget_are_refused_by_name(tasks):
    with pytest.raises(sm.UsageError, match="a trade-off curve is of losses, not of scores"):
        sm.frontier(tasks, 97_600, "1M", "cloze/en:rest")
    with pytest.raises(sm.SolveError, match="scores are not convex in the mixture at every N and D"):
        sm.optimize_compute(tasks, 6 * 97_600 * 1e6)


def test_a_fit_without_a_tasks_language_is_refused(tasks):
    odd = replace(tasks.tasks[0], target="fi")
    with pytest.raises(sm.UsageError, match="the fit has no target fi"):
        sm.scored_fit(tasks.fit, replace(tasks.downstream, calibrations=(odd,)))


@pytest.mark.parametrize(
    ("law", "objective"),
    [
        *((law, "mean") for law in sm.LAWS if law not in ("chinchilla", "family-mean")),  # no mixture; no languages
        ("shapley", "worst"),
    ],
)
def test_every_law_bound_and_objective(fixtures, law, objective):
    """The product: each optimum is a mixture within its bounds, and no random one within them beats its bound."""
    log = sm.read_runs(fixtures / "multilingual5_runs.csv")
    inputs = {"languages": str(fixtures / "multilingual5_languages.csv")}
    if law.startswith("shapley"):
        inputs["transfer"] = sm.shapley_values(sm.read_runs(fixtures / "multilingual5_coalitions.csv"))
    fit = sm.fit(log, law=law, min_own_tokens="20k", bootstrap=0, folds=0, **inputs)
    tasks = sm.scored_fit(fit, sm.calibrate_scores(log, str(fixtures / "multilingual5_scores.csv")))
    bounds = {"caps": "zh=0.5", "floors": "ja=0.05", "groups": ["en+de<=0.5"]}
    if law != "exponential":
        bounds |= {"available": "en=300k,de=200k,fr=500k,zh=400k,ja=1M"}
    mix = sm.optimize(tasks, 97_600, "1M", objective=objective, weights=tasks.weights(None, objective), **bounds)
    assert max(mix.p[3], mix.p[:2].sum()) <= 0.5 + 1e-9
    assert mix.p[4] >= 0.05 - 1e-9
    assert mix.gap <= 1e-3
    mixtures = 0.05 * np.eye(5)[4] + 0.95 * np.random.default_rng(0).dirichlet(np.full(5, 0.7), 300)
    mixtures = mixtures[(mixtures[:, 3] <= 0.5) & (mixtures[:, :2].sum(axis=1) <= 0.5)]
    known = tasks.predict(mixtures, 97_600, 1e6, available=bounds.get("available")).losses
    values = known @ mix.weights if objective == "mean" else (known * mix.weights).max(axis=1)
    assert np.nanmin(values) >= mix.lower_bound - 1e-9


def test_doubts_of_straight_lines_are_those_of_the_losses(tasks):
    """With s = -l + b for one task a target and no scatter, an error is a loss, and so is all that is unsure of it."""
    fit = tasks.fit
    one = replace(tasks.tasks[0], transform="minus", a=1.0, b=1.0, scatter=0.0, covariance=np.zeros((2, 2)))
    lines = tuple(replace(one, task=f"t{target}", target=target) for target in fit.targets)
    plain = sm.scored_fit(fit, replace(tasks.downstream, calibrations=lines))
    asked = {"weights": dict.fromkeys(plain.targets, 1.0), "compare_to": "en=0.6,zh=0.4"}
    mix = sm.optimize(plain, 97_600, "1M", **asked)
    known = sm.optimize(fit, 97_600, "1M", weights="unweighted", compare_to="en=0.6,zh=0.4")
    np.testing.assert_allclose(mix.p, known.p, atol=1e-8)
    np.testing.assert_allclose([mix.p_low, mix.p_high], [known.p_low, known.p_high], atol=1e-6)
    pairs = [(mix.objective_low, known.objective_low), (mix.objective_high, known.objective_high)]
    pairs += [
        (getattr(ours, name), getattr(theirs, name))
        for ours, theirs in zip(mix.baselines, known.baselines, strict=True)
        for name in ("gain", "gain_low", "gain_high", "probability", "objective_low", "objective_high")
    ]
    np.testing.assert_allclose(*zip(*pairs, strict=True), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(mix.losses_low, known.losses_low, rtol=1e-9)


def test_tasks_of_one_target_err_alike(tasks):
    """Two tasks with one line are as unsure as one; two of different targets are surer in their mean."""
    fit = tasks.fit
    one = replace(tasks.tasks[0], transform="minus", a=1.0, b=1.0, scatter=0.0, covariance=np.zeros((2, 2)))
    widths = {}
    for name, pair in {"en": ["en"], "zh": ["zh"], "alike": ["en", "en"], "apart": ["en", "zh"]}.items():
        lines = tuple(replace(one, task=f"t{place}", target=target) for place, target in enumerate(pair))
        scored = sm.scored_fit(fit, replace(tasks.downstream, calibrations=lines))
        mix = sm.optimize(scored, 97_600, "1M", fix="en=0.4,zh=0.3,de=0.1,fr=0.1,ja=0.1")
        widths[name] = mix.objective_high - mix.objective_low
    assert widths["alike"] == pytest.approx(widths["en"], rel=1e-9)
    assert widths["apart"] < (widths["en"] + widths["zh"]) / 2


def test_scores_are_predicted_of_whatever_losses_are(tasks):
    """One less the lines' errors at the law's losses, of named mixtures, lists and arrays, with names and tokens."""
    found = tasks.predict(["uniform", "en=0.4,de=0.2,fr=0.2,zh=0.1,ja=0.1"], "97.6k", [1e6, 2e6], runs=("even", "odd"))
    losses = tasks.fit.predict(["uniform", "en=0.4,de=0.2,fr=0.2,zh=0.1,ja=0.1"], "97.6k", [1e6, 2e6])
    assert (found.runs, found.targets, found.measure) == (("even", "odd"), tasks.targets, "error")
    for place, task in enumerate(tasks.tasks):
        at = losses.losses[:, tasks.fit.targets.index(task.target)]
        np.testing.assert_allclose(found.scores[:, place], task.score(at), rtol=1e-12)
    assert found.columns()["score"] == found.scores.ravel().tolist()
    assert (np.array(found.columns()["low"]) <= found.scores.ravel()).all()
    assert "Prediction of scores: 2 x 5 (points x tasks)" in found.summary()
    with pytest.raises(sm.UsageError, match="these are losses, not scores"):
        _ = losses.scores
    with pytest.raises(sm.OutsideError, match="no prediction for en"):
        tasks.predict("uniform", "97.6k", "1k", strict=True)


def test_a_comparison_of_scores_is_that_of_the_optimum(tasks):
    """The same gains, intervals and probabilities as `optimize` gives over its rivals."""
    supply = {"available": dict.fromkeys(tasks.sources, "5M")}
    best = sm.optimize(tasks, 97_600, "1M", weights=tasks.weights("cloze=2,choice=1"), **supply)
    for rival in best.baselines:
        asked = {"rival": dict(zip(tasks.sources, rival.p, strict=True)), "best": best}
        found = sm.compare_mixtures(tasks, asked, 97_600, "1M", weights="cloze=2,choice=1", **supply)
        entry = found.entries[1]
        np.testing.assert_allclose(entry.gain, rival.promised, atol=1e-12)
        np.testing.assert_allclose(entry.gain_high - entry.gain_low, rival.gain_high - rival.gain_low, atol=1e-12)
        told, known = ((one.objective_low, one.objective, one.objective_high) for one in (entry, best))
        np.testing.assert_allclose(told, known, rtol=1e-12)
        assert found.columns()["score"][1] == 1 - entry.objective


def test_weights_of_tasks_are_those_of_losses_nowhere(tasks):
    named = sm.compare_mixtures(tasks, ["uniform", "en=1"], 97_600, "1M", weights="cloze=1")
    assert named.weights.tolist() == pytest.approx([0, 0, 1 / 3, 1 / 3, 1 / 3])
    for ask in (lambda **asked: sm.compare_mixtures(tasks, ["uniform"], 97_600, "1M", **asked),
                lambda **asked: sm.optimize(tasks, 97_600, "1M", **asked)):  # fmt: skip
        with pytest.raises(sm.UsageError, match="normalized weights are of losses, not of scores"):
            ask(weights="normalized")
        with pytest.raises(sm.UsageError, match="'close', which is no task"):
            ask(weights="close=1")
