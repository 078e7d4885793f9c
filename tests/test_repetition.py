"""Repeated tokens from log to mixture: the truth is found, what no run tells is the prior, optima are proved."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from known_fits import BOUNDS, bounds_of
from repeating import QUICK, SUPPLY, SYMBOLS, D, N, log_with
from simulated import inputs, true_law

from shapleymix import Fit, compare, evaluate, fit, optimize
from shapleymix.errors import UsageError
from shapleymix.fitting.residual import Residual
from shapleymix.fitting.surface import LawAtBudget
from shapleymix.laws import LAWS
from shapleymix.laws.core import HARM_PRIOR, WORTH_PRIOR
from shapleymix.laws.pieces import effective, harmful
from shapleymix.mixing.goal import Goal
from shapleymix.mixing.solving import solve
from shapleymix.tables.languages import Languages, harm_map
from shapleymix.tables.runs import RunLog

pytestmark = pytest.mark.filterwarnings("ignore::shapleymix.errors.ShapleyMixWarning")
WORN = [name for name, law in LAWS.items() if law.takes_repetition and name != "chinchilla"]


@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("name", WORN)
@pytest.mark.parametrize("seed", range(3))
def test_pieces_with_a_supply_are_convex_have_true_slopes_and_proved_optima(name: str, bounds: str, seed: int):
    rng, given = np.random.default_rng([seed, WORN.index(name), BOUNDS.index(bounds)]), inputs(4, 3, seed)
    supply = np.where(rng.random(4) < 0.3, np.inf, 10 ** rng.uniform(-2.5, -0.2, 4))
    symbols = np.append(
        rng.normal(HARM_PRIOR.center, HARM_PRIOR.spread), rng.normal(WORTH_PRIOR.center, WORTH_PRIOR.spread, 4)
    )
    size, tokens = 10 ** rng.uniform(7, 9.5), 10 ** rng.uniform(8.5, 10.5)
    law = true_law(name, given, seed)
    none = Residual(
        given.targets, np.arange(4), (), np.zeros((0, 4)), np.zeros((0, 3)), np.zeros((0, 3)), np.zeros(0, dtype=int)
    )
    regime = LawAtBudget(law, None, size, tokens, supply, symbols, None, harm_map(given.sources, given.targets), none)
    pieces, w = regime.pieces, rng.uniform(0.2, 1, 3)
    p, q = 0.01 + 0.96 * rng.dirichlet(np.ones(4), (2, 40))
    steps = 1e-6 * np.eye(4)
    slopes = [(pieces.objective(p + step, w) - pieces.objective(p - step, w)) / 2e-6 for step in steps]
    np.testing.assert_allclose(pieces.gradient(p, w), np.stack(slopes, axis=1), rtol=1e-5, atol=1e-6)
    share = rng.uniform(size=(40, 1))
    chord = share * pieces.losses(p) + (1 - share) * pieces.losses(q)
    assert (pieces.losses(share * p + (1 - share) * q) <= chord * (1 + 1e-12)).all()
    goal = Goal(pieces, w, bounds_of(bounds, 4, rng), worst=bool(seed % 2), kl=0.0, anchor=None)
    proof = solve(goal)
    assert proof.certificate.relative_gap <= 1e-7
    others = [one for one in 0.5 * p + 0.5 * proof.p if goal.within.violation(one) <= 1e-9]
    others += [one for one in 0.98 * proof.p + 0.02 * q if goal.within.violation(one) <= 1e-9]
    assert all(goal.total(one) >= proof.certificate.lower_bound * (1 - 1e-9) for one in others)


def test_harm_is_the_stated_one_and_nothing_up_to_an_epoch():
    p, u = np.array([0.4, 0.2, 0.3]), np.array([0.05, 0.2, np.inf])
    e, U = 0.4 / 0.05, 0.05 * D
    np.testing.assert_allclose(harmful(p, u, N, D), [N / U * e * 0.4**2 * (1 - 1 / e) ** 3, 0.0, 0.0], rtol=1e-13)
    assert harm_map(("en", "de", "fr"), ("de", "maths", "en")).tolist() == [[0, 1, 1], [1, 1, 0], [1, 1, 1]]


@pytest.fixture(scope="module")
def log() -> RunLog:
    return log_with()


@pytest.fixture(scope="module")
def found(log: RunLog) -> Fit:
    return fit(log, "learned-base", **QUICK)


def test_the_worth_and_the_harm_of_the_simulation_are_found(log: RunLog, found: Fit):
    known = found.repetition
    assert known.identified
    assert known.mixed
    assert np.abs(known.symbols - SYMBOLS).max() < 0.3
    assert np.std(known.replicates[:, 1:], axis=0).max() < WORTH_PRIOR.spread / 2
    assert [row[:3] for row in found.parameters()[-4:]] == [
        ("h", None, "*"),
        *(("R*", one, "*") for one in log.sources),
    ]
    fresh = log_with(seed=2)
    blind = fit(replace(log, unique=None), "learned-base", **QUICK)
    assert evaluate(found, fresh).scores.mean["PE"] < 0.003
    assert evaluate(blind, replace(fresh, unique=None)).scores.mean["PE"] > 0.01
    told, other = (
        compare(each, "effective-data", folds=4, starts=2).entries[0].scores.mean["PE"]
        for each in (log, replace(log, unique=None))
    )
    assert told < other


def test_a_log_without_repetition_is_fitted_as_before_and_leaves_the_prior():
    plain = log_with(repeats=False)
    limited = replace(plain, unique=np.full(plain.p.shape, 2 * D))
    one, other = (fit(each, "learned-base", **{**QUICK, "bootstrap": 200}) for each in (plain, limited))
    for symbol in ("gamma", "u", "a", "E"):
        np.testing.assert_array_equal(getattr(one.law, symbol), getattr(other.law, symbol))
        np.testing.assert_array_equal(getattr(one.replicates, symbol), getattr(other.replicates, symbol))
    known = other.repetition
    assert not known.identified
    assert known.symbols[0] == HARM_PRIOR.center
    assert 0.8 < np.std(known.replicates[:, 0]) / HARM_PRIOR.spread < 1.2
    assert one.summary() == other.summary()
    mix = optimize(one, N, D, available={"en": 1e7})
    assert mix.p_low[0] < mix.p[0] < mix.p_high[0]


def test_tokens_of_the_languages_table_are_those_of_every_run(log: RunLog):
    known, nothing = np.array([2e7, 1e8, np.nan]), np.full(3, np.nan)
    table = Languages(log.sources, (None,) * 3, known, None, nothing)
    quick = {**QUICK, "bootstrap": 0}
    by_table = fit(replace(log, unique=None), "learned-base", languages=table, **quick)
    by_log = fit(replace(log, unique=np.tile(known, (60, 1))), "learned-base", **quick)
    np.testing.assert_array_equal(by_table.repetition.symbols, by_log.repetition.symbols)
    blank = replace(log, unique=np.full((60, 3), np.nan))  # a log that says "no limit" is believed
    assert not fit(blank, "learned-base", languages=table, **quick).repetition.identified


def test_a_saved_fit_predicts_as_before_and_as_the_formulas_say(found: Fit, tmp_path):
    found.save(tmp_path / "fit.json")
    one, other = (each.predict("uniform", N, D, available=SUPPLY) for each in (found, Fit.load(tmp_path / "fit.json")))
    np.testing.assert_array_equal(one.losses, other.losses)
    np.testing.assert_array_equal(one.high, other.high)
    p, unique = np.array([[0.3, 0.3, 0.4], [0.1, 0.5, 0.4]]), np.array([[2e7, np.nan, np.nan], [np.nan, 1e8, 5e8]])
    u, budgets = np.where(np.isnan(unique), np.inf, unique) / D, (np.full(2, N), np.full(2, D))
    symbols = found.repetition.symbols
    by_hand = found.law(effective(p, u, np.exp(-symbols[1:])), *budgets)
    by_hand = by_hand + found.law.core(*budgets) * np.exp(symbols[0]) * harmful(p, u, N, D)
    by_hand = by_hand * np.exp(found.residual.mean(p))
    np.testing.assert_allclose(found.predict(p, N, D, unique=unique).losses, by_hand, rtol=1e-12)
    np.testing.assert_allclose(found.predict(p, N, D, available={"en": 2e7}).losses[0], by_hand[0], rtol=1e-12)
    plenty = found.predict(p, N, D, available={"en": 1e12})
    np.testing.assert_array_equal(plenty.losses, found.predict(p, N, D).losses)


@pytest.mark.parametrize("unique", [[[1.0, 2.0]], "many", [[0.0, 1.0, 1.0]]])
def test_wrong_unique_tokens_are_refused_by_name(found: Fit, unique: object):
    with pytest.raises(UsageError, match="unique tokens"):
        found.predict("uniform", N, D, unique=unique)  # type: ignore[arg-type]


def test_other_epochs_than_those_of_the_runs_are_told_and_widen(found: Fit):
    def warned(fit: Fit, available: dict[str, float]) -> int:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fit.predict("uniform", N, D, available=available)
        return sum("repeat" in str(one.message) for one in caught)

    assert [warned(found, {"en": tokens}) > 0 for tokens in (1e6, 1e8, 1e12)] == [True, False, False]
    assert warned(fit(log_with(repeats=False), "learned-base", **QUICK), {"en": 1e8})
    known, even = found.repetition, np.full(3, 1 / 3)
    most = known.epochs[:, 1]
    assert known.form(even, most) == 0 < known.form(even, 2 * most) < known.form(np.eye(3)[0], 2 * most)


def test_one_mixture_is_resampled_by_run(log: RunLog):
    rng, rows = np.random.default_rng(0), 40
    tokens, ones = 10 ** rng.uniform(8.5, 10.5, rows), np.ones((rows, 1))
    loss = (2 + 2000 / tokens**0.35)[:, None] * np.exp(0.01 * rng.normal(size=(rows, 1)))
    alone = RunLog(
        tuple(map(str, range(rows))), N * ones[:, 0], tokens, ones, loss, ("en",), ("en",), unique=5e9 * ones
    )
    known = fit(alone, **{**QUICK, "bootstrap": 30, "folds": 5})
    assert known.law.name == "chinchilla"
    assert np.ptp(known.replicates.E) > 0
