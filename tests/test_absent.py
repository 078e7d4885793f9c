"""Runs without a target's own language are fitted apart where, and only where, they are another regime."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import shapleymix as sm
from shapleymix.errors import ShapleyMixWarning
from shapleymix.fitting.evidence import own_tokens
from shapleymix.fitting.fits import Fit
from shapleymix.fitting.parting import parted
from shapleymix.fitting.settings import Settings
from shapleymix.fitting.study import study_of
from shapleymix.planning.knowledge import knowledge_of

NAMES = ("en", "de", "fr", "zh")
BOOTSTRAP, FOLDS = 9, 4


def two_regimes(jump: float, rows: int = 30, seed: int = 0) -> sm.RunLog:
    """Runs of one size, half of them without some languages, whose losses are then so much higher in their log."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(4), rows)
    p[: rows // 2][rng.random((rows // 2, 4)) < 0.4] = 0.0
    p[p.sum(axis=1) == 0, 0] = 1.0
    p /= p.sum(axis=1, keepdims=True)
    helped = 1 + 0.8 * p**0.5 + 0.2 * (p**0.5).sum(axis=1, keepdims=True)
    loss = 3 * helped**-0.3 * np.exp(0.003 * rng.normal(size=(rows, 4)) + jump * (p == 0))
    runs = tuple(f"r{row}" for row in range(rows))
    return sm.RunLog(runs, np.full(rows, 1e8), np.full(rows, 1e9), p, loss, NAMES, NAMES)


@pytest.fixture(scope="module")
def log() -> sm.RunLog:
    return two_regimes(1.2)


@pytest.fixture(scope="module")
def fits(log) -> dict[str, Fit]:
    """By default, of the runs with the language, and one law for all."""
    least = {"default": None, "with": 1.0, "all": 0.0}
    return {
        name: sm.fit(log, "learned-base", min_own_tokens=value, bootstrap=BOOTSTRAP, folds=FOLDS, threads=1)
        for name, value in least.items()
    }


def test_each_regime_has_the_fit_that_it_would_have_alone(log, fits):
    """Fault: runs without a language pulled the one law off, and opened every interval."""
    found = {name: fit.predict(log.p, log.N, log.D) for name, fit in fits.items()}
    lacking = log.p == 0
    assert lacking.any(axis=0).all()
    assert fits["default"].parameters() == fits["with"].parameters()
    for of_regime, rows in (("with", ~lacking), ("all", lacking)):
        np.testing.assert_array_equal(found["default"].losses[rows], found[of_regime].losses[rows])
    np.testing.assert_array_equal(found["default"].low[~lacking], found["with"].low[~lacking])
    assert not found["default"].outside.any()
    width = {name: np.log(one.high / one.low) for name, one in found.items()}
    assert width["default"][~lacking].mean() < 0.3 * width["all"][~lacking].mean()
    inside = (found["default"].low <= log.loss) & (log.loss <= found["default"].high)
    assert inside[lacking].mean() > 0.8


def test_the_fit_says_what_it_did_and_predictions_where_it_matters(log, fits):
    assert [text for text in fits["default"].notices if "another regime, fitted apart" in text]
    assert not [text for text in fits["default"].notices if "one law is fitted to all" in text]
    assert [text for text in fits["all"].notices if "filter on own tokens" not in text]
    (text,) = [one for one in fits["default"].predict("en=0.5,de=0.5", 1e8, 1e9).warnings if "another regime" in one]
    assert text.startswith("mixtures without fr, zh are another regime")
    assert fits["default"].predict("uniform", 1e8, 1e9).warnings == ()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("jump", [0.0, 0.3, 1.2])
def test_regimes_are_told_on_every_draw(jump, seed):
    """Fault: held-out errors on the others had to fall, by however little, and most draws were missed by chance."""
    study = study_of(two_regimes(jump, seed=seed), None, None, Settings(bootstrap=0, folds=FOLDS, threads=1), 0)
    assert parted(study).lacking.any() == (jump > 0)


def test_one_law_stays_where_there_is_one_regime():
    log = two_regimes(0.0)
    found, plain = (
        sm.fit(log, "learned-base", min_own_tokens=least, bootstrap=BOOTSTRAP, folds=FOLDS, threads=1)
        for least in (None, 0.0)
    )
    assert found.absent is None
    assert found.parameters() == plain.parameters()


@pytest.mark.parametrize("law", ["additive", "chinchilla", "gbm"])
def test_other_laws_tell_the_regimes_apart_or_stay_one(law):
    log = two_regimes(1.2, rows=60)
    found = sm.fit(log, law, bootstrap=BOOTSTRAP, folds=FOLDS, threads=1)
    plain = sm.fit(log, law, min_own_tokens=0.0, bootstrap=BOOTSTRAP, folds=FOLDS, threads=1)
    with_own = log.p > 0
    errors = [
        np.abs(np.log(one.predict(log.p, log.N, log.D).losses / log.loss))[with_own].mean() for one in (found, plain)
    ]
    assert errors[0] <= errors[1] * 1.0001
    assert (found.absent is not None) == (law != "gbm")


def repeating(rows: int = 48, rate: float = 0.3) -> sm.RunLog:
    """Runs that repeat tokens, a quarter of them without two languages, whose losses are then much higher."""
    rng = np.random.default_rng(3)
    p = rng.dirichlet(np.ones(4), rows)
    for row in range(0, rows, 4):
        p[row, rng.permutation(4)[:2]] = 0.0
    p /= p.sum(axis=1, keepdims=True)
    epochs = np.where((rng.random(p.shape) < 0.5) | (p == 0), 1.0, rng.choice([2, 6, 15], p.shape))
    q = p / epochs * (1 + (1 - np.exp(-rate * (epochs - 1))) / rate)
    helped = 1 + 4 * q**0.45 + 0.4 * (q.sum(axis=1, keepdims=True) - q)
    loss = 2.2 * helped**-0.25 * np.exp(0.006 * rng.normal(size=p.shape))
    loss = np.where(p == 0, loss * (1.7 + 0.6 * rng.random(p.shape)), loss)
    runs, unique = tuple(f"r{row}" for row in range(rows)), np.where(p > 0, p / epochs, np.nan) * 1e9
    return sm.RunLog(runs, np.full(rows, 1e8), np.full(rows, 1e9), p, loss, NAMES, NAMES, unique=unique)


@pytest.mark.filterwarnings("ignore::shapleymix.errors.ShapleyMixWarning")
def test_the_rate_of_repetition_is_told_by_the_runs_that_are_fitted():
    """Fault: runs that were set apart pulled the rate off, out of the interval that it has without them."""
    log = repeating()
    found, alone = (
        sm.fit(log, "learned-base", min_own_tokens=least, bootstrap=8, folds=3, threads=1) for least in (None, 1.0)
    )
    assert found.absent is not None
    assert found.repetition.rate == alone.repetition.rate == pytest.approx(0.3, rel=0.2)
    np.testing.assert_array_equal(found.repetition.rates, alone.repetition.rates)
    lacking = log.p == 0
    one, other = (fit.predict(log.p, log.N, log.D, unique=log.unique) for fit in (found, alone))
    np.testing.assert_array_equal(one.losses[~lacking], other.losses[~lacking])
    inside = (one.low <= log.loss) & (log.loss <= one.high)
    assert inside[lacking].mean() > 0.8
    best = sm.optimize(found, 1e8, 1e9, fix="zh=0", available={"en": 1e8, "de": 1e8})
    again = found.predict(best.p, 1e8, 1e9, available={"en": 1e8, "de": 1e8}).losses[0]
    np.testing.assert_allclose(best.losses, again, rtol=1e-9)
    assert best.objective == pytest.approx(again.mean(), rel=1e-9)


def test_laws_are_compared_and_chosen_on_what_the_fit_will_do(log):
    """Fault: `auto` and `compare` judged one law for both regimes, which no fit then was."""
    laws, how = ["learned-base", "chinchilla"], {"folds": FOLDS, "threads": 1}
    default, alone, one = (sm.compare(log, laws, min_own_tokens=least, **how) for least in (None, 1.0, 0.0))
    assert [entry.scores for entry in default.entries] == [entry.scores for entry in alone.entries]
    assert default.entries[0].scores.mean["PE"] < one.entries[0].scores.mean["PE"]
    assert [text for text in default.notices if "another regime, fitted apart" in text]
    found = sm.fit(log, bootstrap=0, **how)
    assert found.absent is not None
    chosen = next(entry for entry in found.selection.entries if entry.law == found.law.name)
    assert found.held_out.mean["PE"] == pytest.approx(chosen.scores.mean["PE"], rel=0.1)


def test_a_learning_curve_is_that_of_the_runs_that_are_fitted(log):
    """Fault: it was one law's for both regimes, three times as high as the error of the fit."""
    default, alone = (
        sm.learning_curve(log, "learned-base", min_own_tokens=least, folds=FOLDS, threads=1) for least in (None, 1.0)
    )
    np.testing.assert_array_equal(default.expected, alone.expected)
    assert [text for text in default.notices if "another regime, fitted apart" in text]
    assert alone.notices == ()


@pytest.mark.filterwarnings("ignore::shapleymix.errors.ShapleyMixWarning")
def test_a_plan_is_made_by_the_fit_that_fit_makes(log):
    """Fault: a plan took one law for both regimes unless a filter was given."""
    how = {"law": "learned-base", "seed": 0}
    default = sm.design(2, log, **how)
    fit = sm.fit(log, "learned-base", bootstrap=64, threads=1)
    assert fit.absent is not None
    np.testing.assert_array_equal(default.p, sm.design(2, log, fit=fit, seed=0).p)
    one_law = sm.design(2, log, min_own_tokens=0, **how)
    assert not np.array_equal(default.optimum, one_law.optimum)


@pytest.mark.filterwarnings("ignore::shapleymix.errors.ShapleyMixWarning")
@pytest.mark.parametrize("least", [None, 1.0, 0.0], ids=["apart", "left out", "one law"])
def test_a_plan_counts_on_no_loss_that_its_fit_leaves_out(log, least):
    """Fault: every loss of a run without a language counted as telling the law, and such runs were planned."""
    fit = sm.fit(log, "learned-base", min_own_tokens=least, bootstrap=8, folds=FOLDS, threads=1)
    held = knowledge_of(log, fit, "learned-base", None, None, None, 0, {})
    mixtures, _, seen = held._evidence()
    counted = np.ones(seen.shape, dtype=bool) if least == 0 else mixtures > 0
    np.testing.assert_array_equal(seen, counted)
    plan = sm.design(4, log, fit=fit, purpose="region", seed=0)
    assert (plan.p > 0).all() or least == 0
    capped = sm.design(2, log, fit=fit, purpose="region", caps={"zh": 0}, seed=0)
    assert (capped.p[:, 3] == 0).all()
    assert (capped.p[:, :3] > 0).all() or least == 0


def test_a_trace_of_a_language_is_none_of_it(fits):
    """Fault: a millionth of a token took a mixture out of the other regime, with 5 nats less for its target."""
    fit = fits["default"]
    none, trace = (fit.predict(np.array([0.5, 0.5 - share, 0.0, share]), 1e8, 1e9).losses for share in (0.0, 1e-9))
    np.testing.assert_allclose(trace[0, 3], none[0, 3], rtol=1e-8)  # zh, of which there is a trace


def test_a_saved_fit_predicts_the_same(log, fits, tmp_path: Path):
    fits["default"].save(tmp_path / "fit.json")
    again = Fit.load(tmp_path / "fit.json")
    for name in ("losses", "low", "high"):
        one, other = (getattr(fit.predict(log.p, 1e8, 1e9), name) for fit in (again, fits["default"]))
        np.testing.assert_array_equal(one, other)


def test_a_fit_with_another_number_of_own_sources_is_refused(fits):
    absent = fits["default"].absent
    with pytest.raises(ValueError, match="own names one of 4 sources"):
        replace(fits["default"], absent=replace(absent, own=np.array([0, 1, 2, 9])))


@pytest.mark.parametrize("kept", [slice(0), slice(1), slice(BOOTSTRAP - 2)], ids=["none", "one", "fewer"])
def test_a_fit_whose_regimes_have_other_numbers_of_replicates_is_refused(fits, kept):
    """Fault: such a file was taken, and predictions ended in broadcasting errors or intervals without their values."""
    absent = fits["default"].absent
    fewer = absent.replicates.mapped(lambda known, value: value[kept] if np.ndim(value) > len(known.axes) else value)
    with pytest.raises(ValueError, match="replicates beside"):
        replace(fits["default"], absent=replace(absent, replicates=fewer if kept.stop else None))


def test_a_fit_with_replicates_and_no_rates_of_theirs_is_refused(fits):
    """Fault: replicates then took repeated tokens for fresh ones."""
    known = fits["default"].repetition
    with pytest.raises(ValueError, match="no rates for"):
        replace(fits["default"], repetition=replace(known, rates=None))


def test_an_evaluation_tells_the_regimes_apart_and_of_fits_that_do_not(log, fits):
    for fit in fits.values():
        (text,) = [one for one in sm.evaluate(fit, log).warnings if "losses are of runs without" in one]
        assert text.startswith(f"{int((log.p == 0).sum())} of {log.p.size} losses")
    scored = sm.evaluate(fits["default"], log).scores
    assert scored.mean["PE"] < sm.evaluate(fits["with"], log).scores.mean["PE"]
    assert scored.mean["PE"] < sm.evaluate(fits["all"], log).scores.mean["PE"]


def test_candidates_without_a_language_are_compared_in_their_regime(fits):
    told = sm.compare_mixtures(fits["default"], {"all": "uniform", "two": "en=0.5,de=0.5"}, 1e8, 1e9)
    two = told.entries[1]
    assert two.objective_low <= two.objective <= two.objective_high
    assert two.gain_low <= two.gain <= two.gain_high
    assert two.gain_high < -0.3


@pytest.mark.parametrize("law", ["exponential", "additive", "hellinger"])
@pytest.mark.filterwarnings("ignore::shapleymix.errors.ShapleyMixWarning")
def test_gains_of_other_laws_lie_in_their_intervals_in_either_regime(log, law):
    """Fault: a law without a place for repetition was asked for the replicates of the wrong regime."""
    fit = sm.fit(log, law, bootstrap=BOOTSTRAP, folds=FOLDS, threads=1)
    for one in sm.compare_mixtures(fit, {"two": "en=0.5,de=0.5", "all": "uniform"}, 1e8, 1e9).entries:
        assert np.isnan(one.gain) or one.gain_low - 1e-9 <= one.gain <= one.gain_high + 1e-9
        assert one.objective_low <= one.objective <= one.objective_high


def test_no_loss_of_the_other_regime_is_absurd_for_being_above_the_untrained_models(log):
    found = sm.fit(log, "learned-base", vocabulary=20, bootstrap=BOOTSTRAP, folds=FOLDS, threads=1)
    assert np.isfinite(found.predict(log.p, log.N, log.D).losses).all()


def test_a_source_that_is_like_another_joins_both_regimes(log, fits):
    with pytest.warns(ShapleyMixWarning, match="little is known"):
        found = sm.like(fits["default"], "it=fr")
    plain = found.predict("en=0.4,de=0.3,it=0.3", 1e8, 1e9)
    assert np.isfinite(plain.losses).all()
    assert plain.losses[0, 3] > 1.5 * plain.losses[0, 0]


def test_the_five_languages_are_predicted_better_in_each_regime(fixtures: Path):
    """Beside what all losses of a target are off by at another size, which runs of one size cannot tell."""
    log = sm.read_runs(fixtures / "multilingual5_runs.csv")
    small, large = log.select(log.N < 5e4), log.select(log.N > 5e4)
    lacking = own_tokens(large) == 0

    def errors(least: float | None) -> tuple[float, float]:
        found = sm.fit(small, "learned-base", min_own_tokens=least, bootstrap=0, folds=5, threads=1)
        off = np.log(found.predict(large.p, large.N, large.D).losses / large.loss)
        off = np.abs(off - np.nanmedian(np.where(lacking, np.nan, off), axis=0))
        return float(off[~lacking].mean()), float(off[lacking].mean())

    default, one_law, filtered = errors(None), errors(0.0), errors(1.0)
    assert default[0] < 0.9 * one_law[0]
    assert default[1] == pytest.approx(one_law[1], rel=1e-2)
    assert default[1] < 0.7 * filtered[1]


@pytest.mark.parametrize("worst", [False, True], ids=["mean", "worst"])
@pytest.mark.parametrize("bounds", [{}, {"fix": "zh=0"}, {"caps": "zh=0,de=0.3"}], ids=["free", "fixed", "capped"])
@pytest.mark.parametrize("cautious", [False, True], ids=["best", "cautious"])
@pytest.mark.parametrize("weights", [None, {"en": 1, "zh": 2}], ids=["alike", "some"])
@pytest.mark.filterwarnings("ignore::shapleymix.errors.ShapleyMixWarning")
def test_an_optimum_and_its_rivals_have_the_losses_that_are_predicted(fits, worst, bounds, cautious, weights):
    """Fault: a rival without a language was given the law of those with it, 1.7 nats too little; so was an optimum."""
    fit, rivals = fits["default"], {"two": "en=0.5,de=0.5", "one": "zh=1"}
    how = {"objective": "worst" if worst else "mean", "weights": weights, **bounds}
    found = sm.optimize(fit, 1e8, 1e9, compare_to=rivals, cautious="uniform" if cautious else None, **how)

    def objective(p: np.ndarray) -> float:
        losses = found.weights * fit.predict(p, 1e8, 1e9).losses[0]
        return float(losses[found.weights > 0].max() if worst else losses.sum())

    assert found.objective == pytest.approx(objective(found.p), rel=1e-9)
    assert found.objective == pytest.approx(found.certificate.objective, rel=1e-9)
    np.testing.assert_allclose(found.losses, fit.predict(found.p, 1e8, 1e9).losses[0], rtol=1e-9)
    for rival in found.baselines:
        assert rival.objective == pytest.approx(objective(rival.p), rel=1e-9)
        assert rival.promised == pytest.approx(rival.objective - found.objective, abs=1e-9)
    if not cautious:
        feasible = [p for p in np.random.default_rng(0).dirichlet(np.ones(4), 50) * (found.caps > 0) if p.sum() > 0]
        shares = [p / p.sum() for p in feasible]
        inside = [p for p in shares if (p <= found.caps + 1e-12).all()]
        assert min(map(objective, inside)) >= found.objective * (1 - 1e-9)


@pytest.mark.filterwarnings("ignore::shapleymix.errors.ShapleyMixWarning")
def test_optimize_and_compare_say_the_same_gain_over_a_mixture_without_a_language(fits):
    fit = fits["default"]
    found = sm.optimize(fit, 1e8, 1e9, compare_to={"two": "en=0.5,de=0.5"})
    rival = next(one for one in found.baselines if one.name == "two")
    told = sm.compare_mixtures(fit, {"two": rival.p, "best": found.p}, 1e8, 1e9).entries[1]
    assert told.gain == pytest.approx(rival.promised, rel=1e-6)
    assert (told.gain_low, told.gain_high) == pytest.approx((rival.gain_low, rival.gain_high), rel=0.05)


@pytest.mark.filterwarnings("ignore::shapleymix.errors.ShapleyMixWarning")
def test_the_points_of_a_frontier_have_the_losses_that_are_predicted(fits):
    fit = fits["default"]
    found = sm.frontier(fit, 1e8, 1e9, between="en+de:fr+zh", fix="zh=0")
    for point in found.entries:
        losses = fit.predict(point.p, 1e8, 1e9).losses[0]
        np.testing.assert_allclose(point.losses, losses, rtol=1e-9)
        sides = [point.first, point.second]
        np.testing.assert_allclose(sides, [losses[:2].mean(), losses[2:].mean()], rtol=1e-9)


def test_intervals_hold_what_they_say_where_there_are_two_regimes():
    """Fault: replicates that are wild where the other regime's runs lie took half of the scatter's variance off."""
    judged, fitted = two_regimes(1.2, rows=400, seed=7), two_regimes(1.2, rows=60, seed=6)
    told = sm.fit(fitted, "learned-base", bootstrap=20, folds=5, threads=1).predict(judged.p, judged.N, judged.D)
    inside = (told.low <= judged.loss) & (judged.loss <= told.high)
    assert inside[judged.p > 0].mean() == pytest.approx(0.9, abs=0.05)
