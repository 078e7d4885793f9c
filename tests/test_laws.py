"""Truths of single laws: closed forms, limits, and what the papers say of them."""

import numpy as np
import pytest
from simulated import NAMES, inputs, languages, log_of, mixtures, true_law

from shapleymix.errors import DataError, FitError, UsageError
from shapleymix.fitting.fit import fit
from shapleymix.laws import BLACK_BOXES, LAWS, BlackBox, Inputs, Law, Observations
from shapleymix.laws.learned_base import LearnedBase
from shapleymix.laws.mixture_laws import Family, Shapley, ShapleyConcave, ShapleyTempered
from shapleymix.tables.languages import Languages
from shapleymix.tables.transfer import TransferMatrix

P = mixtures(6, 4, seed=1)
N, D = np.full(6, 2.43e8), np.full(6, 1e11)


def test_the_papers_law_by_hand():
    """Two languages, written out: L = (E + A/N^alpha + B/D^beta) (p_1 + p_2 NSV_21)^-gamma."""
    nsv = np.array([[1.0, 0.25], [0.5, 1.0]])
    one = np.ones(2)
    law = Shapley(E=1.7 * one, A=400 * one, alpha=0.34 * one, B=2000 * one, beta=0.37 * one, gamma=0.1 * one, nsv=nsv)
    core = 1.7 + 400 / 2.43e8**0.34 + 2000 / 1e11**0.37
    found = law(np.array([[0.6, 0.4]]), np.array([2.43e8]), np.array([1e11]))
    np.testing.assert_allclose(found, [[core * 0.8**-0.1, core * 0.55**-0.1]], rtol=1e-14)


def test_temperature_one_is_the_papers_law_and_exponent_one_the_tempered():
    plain = true_law("shapley", inputs())
    core = {name: getattr(plain, name) for name in ("E", "A", "alpha", "B", "beta", "gamma", "nsv")}
    tempered = ShapleyTempered(**core, kappa=np.ones(4))
    concave = ShapleyConcave(**core, kappa=np.ones(4), a=np.ones(4))
    np.testing.assert_allclose(tempered(P, N, D), plain(P, N, D), rtol=1e-14)
    np.testing.assert_allclose(concave(P, N, D), plain(P, N, D), rtol=1e-14)
    np.testing.assert_array_equal(LAWS["shapley"].givens(inputs())["nsv"], plain.nsv)


def learned_like(plain: Law, factor: float | np.ndarray = 1.0, **symbols: np.ndarray) -> LearnedBase:
    """`learned-base`, linear in the ratios, with a law's core times a factor."""
    core = {name: getattr(plain, name) * factor for name in ("E", "A", "B")}
    exponents = {name: getattr(plain, name) for name in ("alpha", "beta")}
    linear = {"a": np.ones(4), "c": np.ones(4), "own": np.eye(4), "nsv": np.zeros((4, 4)), "siblings": np.eye(4)}
    alike = dict.fromkeys(("eta", "zeta", "floor"), np.zeros(4)) | dict.fromkeys(("first_N", "first_D"), np.ones(4))
    return LearnedBase(**(core | exponents | linear | alike | {"even": np.full(4, 0.25)} | symbols))


def test_learned_base_with_much_of_the_nsv_as_coefficients_is_the_papers_law():
    """`(1 + s NSV.p)^-gamma` is `s^-gamma (NSV.p)^-gamma` as s grows: beside large coefficients the base is nothing."""
    plain, much = true_law("shapley", inputs()), 1e9
    learned = learned_like(plain, much**plain.gamma, gamma=plain.gamma, u=much * plain.gamma * plain.nsv)
    np.testing.assert_allclose(learned(P, N, D), plain(P, N, D), rtol=1e-8)


def test_no_coefficient_matters_when_gamma_is_nought():
    law = true_law("shapley-concave", inputs()).swap(gamma=np.zeros(4))
    core = law.core(N, D)
    np.testing.assert_allclose(law(P, N, D), core, rtol=1e-14)


def test_a_large_gamma_is_the_exponential_law():
    """`Theta^-gamma = (1 + u.p / gamma)^-gamma -> exp(-u.p)` as gamma goes to infinity."""
    u, nought = np.random.default_rng(0).uniform(0, 1, (4, 4)), np.zeros(4)
    exponential = true_law("exponential", inputs())
    bare = exponential.swap(E=nought, A=nought, B=nought, k=np.ones(4), t=-u)
    learned = learned_like(exponential, gamma=np.full(4, 1e7), u=u)
    ratio = learned(P, N, D) / learned.core(N, D)
    np.testing.assert_allclose(ratio, bare(P, N, D), rtol=1e-6)


def test_effective_data_is_chinchilla_with_fewer_tokens():
    law = true_law("effective-data", inputs())
    theta = P @ law.coefficients
    plain = LAWS["chinchilla"](**{name: getattr(law, name) for name in ("E", "A", "alpha", "B", "beta")})
    for j in range(4):
        np.testing.assert_allclose(law(P, N, D)[:, j], plain(P, N, D * theta[:, j])[:, j], rtol=1e-13)


def test_additive_law_in_its_own_words():
    law = true_law("additive", inputs())
    C, g = law.coefficients, law.g
    extra = np.array([[1 / sum(C[i, j] * P[r, i] ** g[i, j] for i in range(4)) for j in range(4)] for r in range(6)])
    np.testing.assert_allclose(law(P, N, D), law.core(N, D) + extra, rtol=1e-13)


def test_family_law_sums_the_ratios_of_the_family():
    law = true_law("family", inputs())
    theta = np.stack([P[:, 0] + P[:, 1], P[:, 0] + P[:, 1], P[:, 2], P[:, 3]], axis=1)
    expected = law.core(N, D) * theta**-law.gamma
    np.testing.assert_allclose(law(P, N, D), expected, rtol=1e-13)


def test_families_must_be_known():
    table = Languages(NAMES[:3], ("Germanic", None, "Romance"), np.full(3, np.nan), None, np.full(3, np.nan))
    given = Inputs(NAMES[:4], NAMES[:4], None, table)
    with pytest.raises(DataError, match="no family is given for 'de'") as caught:
        Family.givens(given)
    assert "'zh'" in str(caught.value)
    with pytest.raises(UsageError, match="needs the language families"):
        LAWS["family"].givens(Inputs(NAMES[:4], NAMES[:4]))


def test_a_law_without_its_matrix_says_how_to_get_one():
    with pytest.raises(
        UsageError, match=r"law 'shapley-tempered' needs a transfer matrix[\s\S]*Shapley values of coalition"
    ):
        LAWS["shapley-tempered"].givens(Inputs(NAMES[:4], NAMES[:4]))
    foreign = TransferMatrix.from_sv(np.eye(2), ("en", "xx"), ("en", "xx"))
    with pytest.raises(DataError, match="de"):
        LAWS["shapley"].givens(Inputs(("en", "de"), ("en", "de"), foreign))


def test_the_list_of_laws_begins_with_the_simplest():
    from shapleymix.fitting.symbols import Packing

    sizes = [len(Packing(law, 4, {}).names) for law in LAWS.values()]
    assert sizes[0] == min(sizes)
    assert set(BLACK_BOXES) == {"mariner", "gbm"}
    assert all(issubclass(box, BlackBox) and issubclass(box, Law) for box in BLACK_BOXES.values())


def observed(log) -> Observations:
    return Observations(log.p, log.N, log.D, np.log(log.loss), np.ones(log.loss.shape))


def test_boosted_trees_stop_on_mixtures_that_they_were_not_trained_on(monkeypatch):
    lightgbm = pytest.importorskip("lightgbm")
    seen: list[tuple[np.ndarray, np.ndarray]] = []
    train = lightgbm.train

    def spy(options, data, valid_sets, **more):
        seen.append((data.data.copy(), valid_sets[0].data.copy()))
        return train(options, data, valid_sets=valid_sets, **more)

    monkeypatch.setattr(lightgbm, "train", spy)
    _, _, log = log_of("learned-base", rows=40)
    BLACK_BOXES["gbm"].learn(observed(log), log.groups, 0)
    assert len(seen) == 4
    for learned, checked in seen:
        assert len(learned) + len(checked) == 40
        assert len(checked) == 8
        assert not set(map(bytes, learned[:, :4])) & set(map(bytes, checked[:, :4]))


def test_boosted_trees_need_more_than_one_mixture():
    pytest.importorskip("lightgbm")
    _, _, log = log_of("learned-base", rows=40)
    one = np.zeros(40, dtype=np.int64)
    with pytest.raises(FitError, match="too few mixtures for boosted trees"):
        BLACK_BOXES["gbm"].learn(observed(log), one, 0)


def test_families_of_targets_that_are_no_sources():
    given = Inputs(("en", "fr"), ("de",), None, languages(NAMES[:4]))
    np.testing.assert_array_equal(LAWS["family"].givens(given)["members"], [[1.0], [0.0]])


def test_a_law_in_relative_units_without_a_way_back_is_refused_before_it_is_fitted():
    class Relative(Shapley):
        kind, name, relative = "law/relative", "relative", True
        rescale = Law.rescale

    _, given, log = log_of("shapley")
    with pytest.raises(UsageError, match="relative"):
        fit(log, Relative, given.transfer, bootstrap=0, folds=0)
