"""Every law of `LAWS` against every truth that a law must hold."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st
from simulated import SIZES, TOKENS, inputs, log_of, mixtures, simulate, true_law

from shapleymix.fitting.fit import Fit, fit
from shapleymix.laws import LAWS, Inputs, Law
from shapleymix.laws.base import Parameter
from shapleymix.records import FloatArray

EVERY = pytest.mark.parametrize("name", LAWS)
CONVEX = [name for name, law in LAWS.items() if law.pieces is not Law.pieces and "mixture" in law.needs]
# fitted coefficients carry a weak prior, and trade with the floor
# the scale of its coefficients is a gauge that only the prior holds: with less of it, a search without noise stalls
HELD_BY_PRIOR = {"exponential"}
GAUGES = {"exponential": "t", "effective-data": "coefficients"}  # symbols that are known up to one
LOOSE = {name for name, law in LAWS.items() if any(known.axes == "MK" for known in law.symbols_to_fit())}
PARTIAL = [name for name, law in LAWS.items() if "families" in law.needs]  # undefined without the target's family


def budgets(rows: int) -> tuple[FloatArray, FloatArray]:
    place = np.arange(rows)
    return np.array(SIZES)[place % 3], np.array(TOKENS)[place // 3 % 3]


def symbols_of(law: Law) -> dict[str, FloatArray]:
    return {known.name: np.asarray(getattr(law, known.name)) for known in law.parameters()}


def stack(laws: list[Law]) -> Law:
    """One law whose leading axis runs over the given ones."""
    return laws[0].map(lambda known, value: np.stack([getattr(law, known.name) for law in laws]))


@EVERY
def test_declares_what_a_reader_and_the_fitter_need(name):
    law = LAWS[name]
    assert (law.name, law.kind) == (name, f"law/{name}")
    assert law.__doc__
    assert law.reference
    assert law.assumption
    assert set(law.needs) <= {"mixture", "one mixture", "transfer", "families"}
    assert set(law.givens(inputs())) == {known.name for known in law.parameters() if not known.is_fitted}
    for known in law.symbols_to_fit():
        assert known.low < known.high
        assert np.isfinite([known.low, known.high]).all()
        assert known.low > 0 or not known.positive
        assert known.budget in (None, "N", "D")
        assert len(known.starts)


@EVERY
def test_recovers_the_truth_from_runs_without_noise(name):
    truth, given, log = log_of(name, rows=63 if name == "learned-base" else 60)
    prior = 1e-5 if name in HELD_BY_PRIOR else 1e-10 if name == "learned-base" else 1e-7
    found = fit(log, name, given.transfer, given.languages, bootstrap=0, folds=0, prior=prior)
    assert found.stopped == ()
    for symbol, value in symbols_of(truth).items():
        rtol, atol = (2e-2, 2e-3) if name in LOOSE else (1e-9, 0.0)
        np.testing.assert_allclose(getattr(found.law, symbol), value, rtol=rtol, atol=atol, err_msg=symbol)
    p, (N, D) = mixtures(40, 4, seed=9), budgets(40)
    np.testing.assert_allclose(found.law(p, 3 * N, 3 * D), truth(p, 3 * N, 3 * D), rtol=1e-4)


@EVERY
def test_noise_moves_predictions_by_less_than_itself(name):
    truth, given, log = log_of(name, rows=60, noise=2e-3)
    found = fit(log, name, given.transfer, given.languages, bootstrap=0, folds=0)
    p, (N, D) = mixtures(40, 4, seed=9), budgets(40)
    error = np.log(found.law(p, N, D) / truth(p, N, D))
    assert 1e-7 < np.sqrt(np.mean(error**2)) < 2e-3
    assert np.abs(found.law(log.p, log.N, log.D) / log.loss - 1).mean() < 2e-3


@EVERY
def test_expansion_is_the_log_of_the_equation_and_its_derivative(name):
    given = inputs(4, 3, seed=1)
    law = true_law(name, given, seed=1)
    p, (N, D) = mixtures(9, 4, seed=2), budgets(9)
    p[0] = [0.0, 0.5, 0.5, 0.0] if name not in PARTIAL else p[0]
    with np.errstate(all="raise"):
        log_loss, slopes = law.expansion(p, N, D)
    np.testing.assert_allclose(log_loss, np.log(law(p, N, D)), rtol=1e-12)
    assert set(slopes) == {known.name for known in law.symbols_to_fit()}
    for known in law.symbols_to_fit():
        np.testing.assert_allclose(slopes[known.name], numeric(law, known, p, N, D), rtol=2e-6, atol=2e-9)


@EVERY
def test_the_default_expansion_is_the_analytic_one(name):
    """The base's central differences, which a law of one's own is fitted by, against each law's own derivative."""
    given = inputs(4, 3, seed=4)
    laws = [true_law(name, given, seed) for seed in (4, 5)]
    p, (N, D) = mixtures(9, 4, seed=3), budgets(9)
    p[0] = [0.0, 0.5, 0.5, 0.0]  # undefined under the families' laws: finite there, and meaningless
    for law in (laws[0], stack(laws)):
        sure = np.isfinite(law(p, N, D))
        own, default = law.expansion(p, N, D), Law.expansion(law, p, N, D)
        np.testing.assert_allclose(default[0][sure], own[0][sure], rtol=1e-12)
        assert np.isfinite(default[0]).all()
        assert set(default[1]) == set(own[1])
        for symbol, slope in own[1].items():
            where = sure if slope.ndim == sure.ndim else sure[..., None, :]
            assert np.isfinite(default[1][symbol]).all()
            gap = np.where(where, default[1][symbol] - slope, 0.0)
            np.testing.assert_allclose(gap, 0.0, atol=1e-8, err_msg=symbol)


def numeric(law: Law, known: Parameter, p: FloatArray, N: FloatArray, D: FloatArray, step: float = 1e-5) -> FloatArray:
    """Central differences of the log loss by what the search moves: a symbol's logarithm, or a real symbol."""

    def log_loss(shift: FloatArray) -> FloatArray:
        value = known.decode(known.encode(getattr(law, known.name)) + shift)
        return np.log(law.swap(**{known.name: value})(p, N, D))

    if known.axes == "K":
        return (log_loss(np.array(step)) - log_loss(np.array(-step))) / (2 * step)
    rows = np.eye(p.shape[1])[:, :, None] * step
    return np.stack([(log_loss(row) - log_loss(-row)) / (2 * step) for row in rows], axis=1)


@EVERY
def test_json_gives_back_every_bit(name, tmp_path):
    given = inputs(4, 3)
    law = true_law(name, given, seed=5)
    law = law.map(lambda known, value: value / 3 if known.is_fitted else value)
    law.save(tmp_path / "law.json")
    for reader in (Law, LAWS[name]):
        again = reader.load(tmp_path / "law.json")
        assert type(again) is LAWS[name]
        for symbol, value in symbols_of(law).items():
            assert getattr(again, symbol).tobytes() == value.tobytes()
            assert getattr(again, symbol).shape == value.shape


@EVERY
def test_a_fit_with_replicates_survives_the_file(name, tmp_path):
    _, given, log = log_of(name, rows=30, noise=1e-2)
    found = fit(log, name, given.transfer, given.languages, bootstrap=3, folds=3, starts=1)
    found.save(tmp_path / "fit.json")
    again = Fit.load(tmp_path / "fit.json")
    assert again.to_document() == found.to_document()
    for part, whole in ((again.law, found.law), (again.replicates, found.replicates)):
        for symbol, value in symbols_of(whole).items():
            assert getattr(part, symbol).tobytes() == np.ascontiguousarray(value).tobytes()
    p, (N, D) = mixtures(5, 4, seed=3), budgets(5)
    one, two = found.predict(p, N, D), again.predict(p, N, D)
    for part in ("losses", "low", "high"):
        np.testing.assert_array_equal(getattr(one, part), getattr(two, part))


@EVERY
def test_permuted_languages_permute_predictions(name):
    given = inputs(4, 3, seed=3)
    law = true_law(name, given, seed=3)
    p, (N, D) = mixtures(7, 4, seed=4), budgets(7)
    source, target = np.array([2, 0, 3, 1]), np.array([1, 2, 0])

    def permuted(known: Parameter, value: FloatArray) -> FloatArray:
        return value[source][:, target] if known.axes == "MK" else value[target]

    other = law.map(permuted)
    np.testing.assert_allclose(other(p[:, source], N, D), law(p, N, D)[:, target], rtol=1e-13)
    moved = Inputs(
        tuple(given.sources[i] for i in source),
        tuple(given.targets[j] for j in target),
        given.transfer,
        given.languages,
    )
    labels = {symbol: value for symbol, value in law.givens(moved).items() if symbol not in ("first_N", "first_D")}
    for symbol, value in labels.items():  # budgets come with runs
        np.testing.assert_array_equal(getattr(other, symbol), value)


@pytest.mark.parametrize("name", [*CONVEX, "chinchilla"])
def test_terms_at_a_budget_are_the_prediction(name):
    """Of the law without a mixture, too, whose sources are alike: some of its tokens are as of repeated ones."""
    law = true_law(name, inputs(4, 3, seed=6), seed=6)
    p = mixtures(20, 4, seed=6) * (0.7 if name == "chinchilla" else 1.0)
    for N, D in ((1e8, 1e10), (3e9, 2e11)):
        by_terms = law.pieces(N, D).of_sources(4).losses(p)
        np.testing.assert_allclose(by_terms, law(p, np.full(20, N), np.full(20, D)), rtol=1e-12)


@settings(deadline=None, max_examples=150)
@drawn(name=st.sampled_from(CONVEX), seed=st.integers(0, 10**6), share=st.floats(0, 1), spread=st.floats(0.2, 2))
def test_objective_is_convex_along_every_chord(name, seed, share, spread):
    law = true_law(name, inputs(4, 3, seed), seed)
    terms = law.pieces(1e8, 1e10)
    left, right = mixtures(2, 4, seed, spread)
    w = np.random.default_rng(seed).uniform(0, 1, 3)
    between = terms.objective(share * left + (1 - share) * right, w)
    assert between <= share * terms.objective(left, w) + (1 - share) * terms.objective(right, w) + 1e-12


@EVERY
def test_a_leading_axis_is_a_loop(name):
    given = inputs(4, 3)
    laws = [true_law(name, given, seed) for seed in range(5)]
    whole = stack(laws)
    p, (N, D) = mixtures(8, 4, seed=5), budgets(8)
    assert whole(p, N, D).shape == (5, 8, 3)
    assert whole.targets_count() == 3
    for index, law in enumerate(laws):
        np.testing.assert_allclose(whole(p, N, D)[index], law(p, N, D), rtol=1e-13)
        batched, single = whole.expansion(p, N, D), law.expansion(p, N, D)
        np.testing.assert_allclose(batched[0][index], single[0], rtol=1e-13)
        for symbol, slope in single[1].items():
            full = np.broadcast_to(batched[1][symbol], (5, *np.broadcast_shapes(slope.shape, (1,) * slope.ndim)))
            np.testing.assert_allclose(full[index], slope, rtol=1e-11, atol=1e-15, err_msg=symbol)
        np.testing.assert_array_equal(np.broadcast_to(whole.is_defined(p), (5, 8, 3))[index], law.is_defined(p))
        if name in CONVEX:
            np.testing.assert_allclose(
                whole.pieces(1e8, 1e10).losses(p[0])[index], law.pieces(1e8, 1e10).losses(p[0]), rtol=1e-13
            )


@EVERY
def test_the_gauge_changes_no_prediction(name):
    law = true_law(name, inputs(4, 3), seed=8)
    factor = np.array([0.3, 7.0, 1e-3])
    symbols = symbols_of(law)
    for known in law.symbols_to_fit():
        if known.name == GAUGES.get(name):
            shifted = symbols[known.name] * factor if known.positive else symbols[known.name] + np.log(factor)
            law = law.swap(**{known.name: shifted})
            largest = getattr(law.in_gauge(), known.name).max(axis=0)
            np.testing.assert_allclose(largest, 1.0 if known.positive else 0.0, atol=1e-15)
    p, (N, D) = mixtures(8, 4, seed=8), budgets(8)
    np.testing.assert_allclose(law.in_gauge()(p, N, D), law(p, N, D), rtol=1e-12)


@EVERY
def test_plain_units_are_those_of_the_search(name):
    law = true_law(name, inputs(4, 3), seed=9)
    p, (N, D) = mixtures(8, 4, seed=9), budgets(8)
    N0, D0 = (5e7, 2e9) if law.relative else (1.0, 1.0)
    np.testing.assert_allclose(law.rescale(N0, D0)(p, N, D), law(p, N / N0, D / D0), rtol=1e-12)


@EVERY
def test_no_transfer_at_all_is_nan_and_masked_without_a_warning(name):
    given = inputs(4, 4)
    law = true_law(name, given, seed=2)
    p = np.array([[0.0, 0.0, 0.4, 0.6], [0.25, 0.25, 0.25, 0.25]])
    N, D = budgets(2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        losses, mask = law(p, N, D), np.broadcast_to(law.is_defined(p), (2, 4))
        log_loss, slopes = law.expansion(p, N, D)
    np.testing.assert_array_equal(np.isfinite(losses), mask)
    assert np.isfinite(log_loss).all()
    assert all(np.isfinite(slope).all() for slope in slopes.values())
    expected = [False, False, True, True] if name in PARTIAL else [True] * 4
    np.testing.assert_array_equal(mask[0], expected)
    assert mask[1].all()


@EVERY
def test_rows_where_the_law_is_undefined_do_not_bend_the_fit(name):
    truth, given, log = log_of(name, rows=60)
    p = np.concatenate([log.p, [[0.0, 0.0, 0.4, 0.6]]])
    more = simulate(truth, given, p)
    shown = np.where(np.isnan(more.loss), 9.0, more.loss)  # a measured loss that the law has no word for
    assert np.isnan(more.loss).any() == (name in PARTIAL)
    settings = {"bootstrap": 0, "folds": 0, "prior": 1e-10, "delta": np.inf}
    found = fit(replace(more, loss=shown), name, given.transfer, given.languages, **settings)
    sure = ~np.isnan(more.loss)
    predicted = np.broadcast_to(found.law(p, more.N, more.D), sure.shape)
    np.testing.assert_allclose(predicted[sure], more.loss[sure], rtol=2e-4)
