"""Repeated tokens from log to mixture: a rate that was simulated is found, and every answer takes it into account."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from simulated import inputs, mixtures, true_law

from shapleymix import Fit, Mixture, compare, compare_mixtures, evaluate, fit, frontier, optimize, optimize_scales
from shapleymix.errors import UsageError
from shapleymix.fitting.likeness import like
from shapleymix.fitting.rates import Told, _Search
from shapleymix.fitting.settings import Settings
from shapleymix.fitting.study import study_of
from shapleymix.laws import EffectiveData, Exponential, LearnedBase
from shapleymix.laws.repeated import PUBLISHED, PUBLISHED_SPREAD, effective
from shapleymix.tables.languages import Languages
from shapleymix.tables.run_reading import read_runs
from shapleymix.tables.runs import RunLog

RATE, D, N = 0.4, 1e9, 1e8
QUICK = {"bootstrap": 8, "folds": 0, "starts": 2, "threads": 1}
SUPPLY = {"en": 2e7, "de": 1e8, "fr": 1e12}

pytestmark = pytest.mark.filterwarnings("ignore::shapleymix.errors.ShapleyMixWarning")


def log_with(rate: float, rows: int = 60, *, repeats: bool = True, noise: float = 1e-3, seed: int = 1) -> RunLog:
    """Runs of a concave law on three sources, two thirds of them with scarce ones."""
    given = inputs(3, 3)
    law = true_law("learned-base", given)
    draws = np.random.default_rng(seed)
    p = mixtures(rows, 3, seed)
    epochs = np.where(draws.uniform(size=p.shape) < 0.6, draws.choice([2, 4, 8, 16, 32], size=p.shape), 0)
    unique = np.where((epochs > 0) & repeats, p * D / np.maximum(epochs, 1), np.nan)
    q = effective(p, np.where(np.isnan(unique), np.inf, unique) / D, rate)
    loss = law(q, np.full(rows, N), np.full(rows, D))
    loss = loss * np.exp(noise * draws.normal(size=loss.shape))
    runs = tuple(f"run-{row}" for row in range(rows))
    return RunLog(
        runs,
        np.full(rows, N),
        np.full(rows, D),
        p,
        loss,
        given.sources,
        given.targets,
        unique=unique if repeats else None,
    )


@pytest.fixture(scope="module")
def log() -> RunLog:
    return log_with(RATE)


@pytest.fixture(scope="module")
def found(log: RunLog) -> Fit:
    return fit(log, "learned-base", **QUICK)


def test_the_rate_of_the_simulation_is_found(found: Fit):
    known = found.repetition
    assert known is not None
    assert known.told
    assert abs(np.log(known.rate / RATE)) < 0.1
    assert abs(np.log(np.median(known.rates) / RATE)) < 0.1
    assert np.std(np.log(known.rates)) < PUBLISHED_SPREAD / 3
    assert ("lambda", None, "*", known.rate) == found.parameters()[-1][:4]
    assert f"R* = {1 / known.rate:.3g} epochs" in found.summary()


def test_no_two_rates_of_a_profile_are_about_one(log: RunLog):
    """Where two steps led to one rate but for rounding, the spline through both swung far beside them."""
    study = study_of(log, None, None, Settings(**QUICK), 0)
    search = _Search(study, LearnedBase, np.ones((1, len(log))))
    for rate in (-1.0, -1.0 + 1e-12, 0.0, -0.995):
        search.visit(rate)
    assert sorted(search.x) == [-1.0, 0.0]
    for law in (EffectiveData, LearnedBase):
        profile = Told.of(study, law).profile
        assert profile is not None
        assert np.diff(profile.log_rates).min() > 0.01


def test_taking_repetition_into_account_predicts_new_runs_better(log: RunLog, found: Fit):
    fresh = log_with(RATE, seed=2)
    blind = fit(replace(log, unique=None), "learned-base", **QUICK)
    assert evaluate(found, fresh).scores.mean["PE"] < 0.002
    assert evaluate(blind, replace(fresh, unique=None)).scores.mean["PE"] > 0.005


def test_a_log_without_repetition_leaves_the_published_rate_with_its_spread():
    plain = log_with(RATE, repeats=False)
    limited = replace(plain, unique=np.full(plain.p.shape, 2 * D))
    one, other = (fit(each, "learned-base", **{**QUICK, "bootstrap": 200}) for each in (plain, limited))
    for symbol in ("gamma", "u", "a", "E"):
        np.testing.assert_array_equal(getattr(one.law, symbol), getattr(other.law, symbol))
    known = other.repetition
    assert known is not None
    assert not known.told
    assert known.rate == PUBLISHED
    assert 0.8 < np.std(np.log(known.rates)) / PUBLISHED_SPREAD < 1.2
    assert one.summary() == other.summary()


@pytest.mark.parametrize("runs", [2, 4])
def test_a_log_that_barely_repeats_leaves_the_rate_to_the_prior(runs: int):
    plain = log_with(RATE, repeats=False, noise=0.01)
    unique = np.full(plain.p.shape, np.nan)
    unique[:runs, 0] = plain.p[:runs, 0] * D / 1.6
    known = fit(replace(plain, unique=unique), "learned-base", **{**QUICK, "bootstrap": 100}).repetition
    assert known is not None
    assert known.told == (runs == 4)
    assert abs(np.log(known.rate / PUBLISHED)) < 0.3
    assert 0.7 < np.std(np.log(known.rates)) / PUBLISHED_SPREAD < 1.3


def test_tokens_of_the_languages_table_are_those_of_every_run(log: RunLog):
    known = np.array([2e7, 1e8, np.nan])
    nothing = np.full(3, np.nan)
    table = Languages(log.sources, (None,) * 3, known, None, nothing)
    by_table = fit(replace(log, unique=None), "learned-base", languages=table, **{**QUICK, "bootstrap": 0})
    by_log = fit(replace(log, unique=np.tile(known, (60, 1))), "learned-base", **{**QUICK, "bootstrap": 0})
    assert by_table.repetition == by_log.repetition or by_table.repetition.rate == by_log.repetition.rate
    blank = replace(log, unique=np.full((60, 3), np.nan))  # a log that says "no limit" is believed
    assert not fit(blank, "learned-base", languages=table, **{**QUICK, "bootstrap": 0}).repetition.told


def test_a_saved_fit_predicts_as_before(found: Fit, tmp_path):
    found.save(tmp_path / "fit.json")
    again = Fit.load(tmp_path / "fit.json")
    one, other = (each.predict("uniform", N, D, available=SUPPLY) for each in (found, again))
    np.testing.assert_array_equal(one.losses, other.losses)
    np.testing.assert_array_equal(one.high, other.high)


def test_predictions_are_the_law_at_effective_ratios(found: Fit):
    p = np.array([[0.3, 0.3, 0.4], [0.1, 0.5, 0.4]])
    unique = np.array([[2e7, np.nan, np.nan], [np.nan, 1e8, 5e8]])
    q = effective(p, np.where(np.isnan(unique), np.inf, unique) / D, found.repetition.rate)
    by_hand = found.law(q, np.full(2, N), np.full(2, D))
    np.testing.assert_allclose(found.predict(p, N, D, unique=unique).losses, by_hand, rtol=1e-13)
    named = found.predict(p, N, D, available={"en": 2e7}).losses[0]
    np.testing.assert_allclose(named, by_hand[0], rtol=1e-13)
    scarce, plenty = (found.predict(p, N, D, available=supply) for supply in ({"en": 1e6}, {"en": 1e12}))
    assert (scarce.losses > plenty.losses).all()
    np.testing.assert_array_equal(plenty.losses, found.predict(p, N, D).losses)


@pytest.mark.parametrize("unique", [[[1.0, 2.0]], "many", [[0.0, 1.0, 1.0]]])
def test_wrong_unique_tokens_are_refused_by_name(found: Fit, unique: object):
    with pytest.raises(UsageError, match="unique tokens"):
        found.predict("uniform", N, D, unique=unique)  # type: ignore[arg-type]


def warned(run) -> str:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run()
    return "\n".join(str(one.message) for one in caught)


def test_other_epochs_than_those_of_the_runs_are_told(found: Fit):
    told = warned(lambda: found.predict("uniform", N, D, available={"en": 1e6}))
    assert "repeats en 333 times; the fitted runs repeat en at most 32" in told
    assert "fresh ones" not in told
    assert "every token counts as fresh" in warned(lambda: found.predict("uniform", N, D))
    assert "repeat" not in warned(lambda: found.predict("uniform", N, D, available={"en": 1e8}))
    plain = fit(log_with(RATE, repeats=False), "learned-base", **QUICK)
    assert "published R* = 15.4" in warned(lambda: plain.predict("uniform", N, D, available={"en": 1e8}))


@pytest.mark.parametrize("objective", ["mean", "worst"])
@pytest.mark.parametrize("bounds", [{}, {"max_epochs": 6}, {"groups": "en+de<=0.5"}, {"kl": 0.01, "anchor": "uniform"}])
def test_an_optimum_pays_for_its_repetitions(found: Fit, objective: str, bounds: dict):
    mix = optimize(found, N, D, available=SUPPLY, objective=objective, **bounds)
    assert mix.relative_gap < 1e-7
    plain = found.terms(N, D)
    q = effective(mix.p, np.array([SUPPLY[name] for name in mix.sources]) / D, found.repetition.rate)
    by_hand = plain.losses(q) - plain.losses(mix.p)
    np.testing.assert_allclose(mix.repetition, by_hand, atol=1e-12)
    assert mix.repetition_cost > 0
    if objective == "mean":
        np.testing.assert_allclose(mix.repetition_cost, by_hand @ mix.weights, atol=1e-12)
    draws = np.random.default_rng(0).dirichlet(np.ones(3), 2000)
    inside = draws[(draws <= mix.caps).all(axis=1) & (draws[:, 0] + draws[:, 1] <= 0.5)]
    problem_value = [optimum_value(found, p, mix) for p in inside]
    assert mix.certificate.objective <= min(problem_value) + 1e-9
    limit = 6 if "max_epochs" in bounds else np.inf
    assert np.nanmax(mix.epochs) <= limit * (1 + 1e-9)


def optimum_value(found: Fit, p: np.ndarray, mix: Mixture) -> float:
    """What was minimised, at another mixture, from the fit's own predictions."""
    losses = found.predict(p[None], N, D, available=SUPPLY).losses[0]
    value = losses @ mix.weights if mix.objective_kind == "mean" else (losses * mix.weights).max()
    return float(value + mix.kl * np.sum(p * np.log(p * 3)))


def test_without_a_limit_epochs_end_where_they_no_longer_pay(found: Fit):
    assert found.repetition is not None
    mild = replace(found, repetition=replace(found.repetition, rate=0.02))
    free, capped = (optimize(mild, N, D, available=SUPPLY, **more) for more in ({}, {"max_epochs": 4}))
    assert np.nanmax(free.epochs) > 4
    assert free.objective < capped.objective
    assert (free.caps == 1).all()


@pytest.mark.parametrize("bounds", [{}, {"max_epochs": 3}, {"objective": "worst"}])
def test_the_worth_of_tokens_is_the_slope_of_the_optimum(found: Fit, bounds: dict):
    step, unit = 1e3, 1e7
    mix = optimize(found, N, D, available=SUPPLY, **bounds)
    for place, name in enumerate(("en", "de")):
        values = [
            optimize(found, N, D, available={**SUPPLY, name: SUPPLY[name] + sign * step}, **bounds).objective
            for sign in (1, -1)
        ]
        slope = (values[1] - values[0]) / (2 * step) * unit
        np.testing.assert_allclose(mix.token_worths[place], slope, rtol=2e-3, atol=1e-9)
    for price in mix.binding:
        if price.origin == "tokens":
            np.testing.assert_allclose(price.per_unit, mix.token_worths[mix.sources.index(price.source)], rtol=1e-9)


@pytest.mark.parametrize("objective", ["mean", "worst"])
def test_tokens_seen_thousands_of_times_have_their_worth(found: Fit, objective: str):
    """More of one's ratio is worth nothing then, and the worth of tokens was taken to be nothing with it."""
    supply = {"en": 3e4, "de": 3e4, "fr": 1e12}
    mix = optimize(found, N, D, available=supply, objective=objective, floors={"en": 0.2, "de": 0.2})
    assert (mix.epochs[:2] > 5000).all()
    for place, name in enumerate(("en", "de")):
        values = []
        for step in (300, -300):
            losses = found.predict(mix.p, N, D, available={**supply, name: supply[name] + step}).losses[0]
            values.append(losses.mean() if objective == "mean" else losses.max())
        slope = (values[1] - values[0]) / 600 * 1e7
        np.testing.assert_allclose(mix.token_worths[place], slope, rtol=1e-3 if objective == "mean" else 0.02)
        assert slope > 0 or objective == "worst"


def test_what_if_answers_as_asking_again(found: Fit):
    mix = optimize(found, N, D, available=SUPPLY, what_if="en+30M")
    again = optimize(found, N, D, available={**SUPPLY, "en": 5e7})
    (other,) = mix.what_if
    np.testing.assert_allclose(other.objective, again.objective, rtol=1e-10)
    np.testing.assert_allclose(other.gain, mix.objective - again.objective, rtol=1e-8)
    np.testing.assert_allclose(other.epochs, again.epochs, rtol=1e-4)
    assert other.gain_low <= other.gain <= other.gain_high


def test_every_way_to_ask_knows_the_supply(found: Fit):
    grid = optimize_scales(found, N, [1e7, D, 1e10], available=SUPPLY)
    for mix in grid:
        alone = optimize(found, N, mix.D, available=SUPPLY)
        np.testing.assert_allclose(mix.objective, alone.objective, rtol=1e-9)
        np.testing.assert_allclose(mix.p_low, alone.p_low, atol=1e-4)
    assert grid[0].repetition_cost == 0 < min(grid[1].repetition_cost, grid[2].repetition_cost)
    known, fresh = (
        np.array([found.predict("uniform", N, mix.D, **told).losses for mix in grid])
        for told in ({"available": SUPPLY}, {})
    )
    assert (np.diff(known / fresh, axis=0) >= 0).all(), "the more tokens of one mixture, the more repetition costs"
    curve = frontier(found, N, D, "en:rest", points=3, available=SUPPLY)
    for entry in curve.entries:
        np.testing.assert_allclose(entry.losses, found.predict(entry.p, N, D, available=SUPPLY).losses[0], rtol=1e-12)
    side = compare_mixtures(found, {"one": "uniform", "two": grid[1].mixture}, N, D, available=SUPPLY)
    np.testing.assert_allclose(side.entries[1].objective, grid[1].objective, rtol=1e-9)
    assert side.entries[1].gain_high > side.entries[1].gain_low


def test_mixtures_read_back_with_what_repetition_costs(found: Fit, tmp_path):
    mix = optimize(found, N, D, available=SUPPLY)
    mix.save(tmp_path / "mix.json")
    again = Mixture.load(tmp_path / "mix.json")
    np.testing.assert_array_equal(again.repetition, mix.repetition)
    assert again.repetition_cost == mix.repetition_cost
    np.testing.assert_array_equal(again.token_worths, mix.token_worths)


def test_a_law_without_a_place_for_repetition_says_so(log: RunLog):
    blind = fit(log, "exponential", **QUICK)
    assert blind.repetition is None
    mix = optimize(blind, N, D, available={"en": 1e8})
    assert np.nanmax(mix.epochs) <= 4 * (1 + 1e-9)
    assert "takes repeated tokens for fresh ones" in warned(
        lambda: blind.predict("uniform", N, D, available={"en": 1e8})
    )


def test_boosted_trees_take_effective_ratios(log: RunLog):
    trees = fit(log, "gbm", bootstrap=0, folds=0)
    q = effective(log.p, np.where(np.isnan(log.unique), np.inf, log.unique) / log.D[:, None], trees.repetition.rate)
    np.testing.assert_allclose(trees.predict(log.p, N, D, unique=log.unique).losses, trees.law(q, log.N, log.D))
    found = optimize(trees, N, D, available=SUPPLY, allow_nonconvex=True)
    np.testing.assert_allclose(found.losses, trees.predict(found.p, N, D, available=SUPPLY).losses[0])


def test_laws_are_compared_at_the_worth_of_tokens_that_the_log_tells(log: RunLog):
    told, blind = (
        compare(each, "learned-base", folds=4, starts=2, threads=1).entries[0].scores.mean["PE"]
        for each in (log, replace(log, unique=None))
    )
    assert told < 0.5 * blind


def test_the_rate_is_told_by_named_rows_alone(log: RunLog):
    study = study_of(log, None, None, Settings(**QUICK), 0)
    seen = np.arange(len(log)) < 40
    odd = study_of(replace(log, loss=np.where(seen[:, None], log.loss, 9.9)), None, None, Settings(**QUICK), 0)
    rows = np.isin(study.log.runs, log.runs[:40])
    one, other = (Told.of(each, LearnedBase, rows).rate for each in (study, odd))
    assert one == pytest.approx(other, rel=1e-6)
    assert Told.of(study, Exponential).profile is None


def test_a_fit_that_is_compared_is_told_the_unique_tokens(log: RunLog, found: Fit):
    told = compare(log, [found], folds=4).entries[0].scores
    assert told is not None
    assert told.mean["PE"] < 0.003


def test_a_source_like_another_is_priced_as_well(found: Fit):
    more = like(found, "oc=fr")
    scarce, plenty = (more.predict("oc=1", N, D, available={"oc": tokens}) for tokens in (1e7, 1e12))
    assert (scarce.losses[:, 2] > plenty.losses[:, 2]).all()
    mix = optimize(more, N, D, available={**SUPPLY, "oc": 1e7})
    assert mix.relative_gap < 1e-7


def test_at_rate_zero_repeated_tokens_are_fresh_ones(found: Fit):
    """No fit gives a rate of 0, but a file may: it was divided by."""
    assert found.repetition is not None
    assert found.repetition.rates is not None
    free = replace(found.repetition, rate=0.0, rates=np.zeros_like(found.repetition.rates))
    fresh = replace(found, repetition=free)
    assert free.told_lines() == ["  repeated tokens: worth as much as fresh ones, 90% interval inf .. inf"]
    assert "nan" not in str(fresh)
    half = replace(free, rates=np.linspace(0, 0.4, 8)).told_lines(1.0)[0]
    assert half.endswith(".. inf")
    even = "en=0.4,de=0.3,fr=0.3"
    scarce, plenty = (fresh.predict(even, N, D, available=tokens) for tokens in (SUPPLY, None))
    np.testing.assert_allclose(scarce.losses, plenty.losses, rtol=1e-12)
    for objective in ("mean", "worst"):
        mix, free_mix = (optimize(fresh, N, D, available=tokens, objective=objective) for tokens in (SUPPLY, None))
        assert mix.relative_gap < 1e-6
        np.testing.assert_allclose(mix.objective, free_mix.objective, rtol=1e-5)
    barely = replace(free, told=False).warnings(np.ones(3) / 3, np.array([2e7, 1e8, 1e12]), D, fresh.sources)
    assert "R* = inf epochs" in barely[0]


@pytest.mark.parametrize("part", [{"rate": -1.0}, {"rate": np.nan}, {"rates": np.array([np.inf])}])
def test_rates_that_no_fit_gives_are_refused(found: Fit, part: dict):
    assert found.repetition is not None
    with pytest.raises(ValueError, match="rates of repetition"):
        replace(found.repetition, **part)
    with pytest.raises(ValueError, match="epochs of shape"):
        replace(found, repetition=replace(found.repetition, epochs=np.ones((2, 2))))


def test_replicates_tell_how_firmly_the_runs_hold_the_rate(fixtures):
    """Fault: fits along the grid that ended early kept the start's digits, and every replicate had the same rate."""
    log = read_runs(fixtures / "repetition_runs.csv")
    found = fit(log, "learned-base", bootstrap=20, folds=0, threads=1)
    assert found.repetition is not None
    assert found.repetition.rates is not None
    assert 0.15 < np.std(np.log(found.repetition.rates)) < 0.6
