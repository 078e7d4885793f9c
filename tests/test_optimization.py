"""From a fit to a reported mixture: its proof, intervals, rivals, weights and methods, and its file."""

from __future__ import annotations

import numpy as np
import pytest
from known_fits import SOURCES, TARGETS, TOKENS, Bumpy, FakeFit, FlatFit, mixture

from shapleymix.errors import SolveError, UsageError
from shapleymix.laws.terms import PowerTerms
from shapleymix.mixing.bounds import Group
from shapleymix.mixing.mixtures import Mixture
from shapleymix.mixing.optimization import optimize


@pytest.mark.parametrize("objective", ["mean", "worst"])
@pytest.mark.parametrize("groups", [(), "en+de<=0.5"])
@pytest.mark.parametrize(("fit", "flat"), [(FakeFit(0), False), (FlatFit(0), True)])
def test_it_is_said_where_the_mixture_decides_nothing(fit, flat, objective, groups):
    mix = optimize(fit, "1B", "100B", objective=objective, groups=groups)
    assert any("on a plateau" in notice for notice in mix.notices) == flat
    assert mix.relative_gap <= 1e-9


def test_the_optimum_comes_with_its_proof_and_beats_every_rival():
    mix = mixture(available=TOKENS, compare_to={"mine": "en=0.5,de=0.3,fi=0.2"})
    assert sum(mix.mixture.values()) == pytest.approx(1, abs=1e-12)
    assert mix.relative_gap <= 1e-9
    assert mix.lower_bound <= mix.objective
    assert mix.objective == pytest.approx(mix.losses.mean())
    assert [rival.name for rival in mix.baselines] == ["uniform", "smoothed (0.5)", "natural", "mine"]
    for rival in mix.baselines:
        if rival.within_bounds:
            assert rival.gain >= -1e-12
            assert 0 <= rival.probability <= 1
            assert rival.gain_low <= rival.gain <= rival.gain_high + 0.05


def test_the_interval_is_the_spread_of_the_replicates_optima():
    mix, fit = mixture(level=0.8), FakeFit()
    replicates = fit.replicate_terms(1e9, 1e11)
    assert replicates is not None
    single = [optimize(OneLaw(replicates.flat().take(b)), 1e9, 1e11).p for b in range(fit.B)]
    expected = np.quantile(single, [0.1, 0.9], axis=0, method="nearest")
    np.testing.assert_allclose([mix.p_low, mix.p_high], expected, atol=1e-7)


class OneLaw(FakeFit):
    """A fit whose point estimate is given, without replicates."""

    def __init__(self, law: PowerTerms) -> None:
        super().__init__(B=0)
        object.__setattr__(self, "pieces", law)

    def terms(self, N: float, D: float) -> PowerTerms:
        return self.pieces  # type: ignore[attr-defined]


def test_without_replicates_there_are_no_intervals():
    mix = optimize(FakeFit(B=0), 1e9, 1e11)
    assert np.isnan(mix.p_low).all()
    assert mix.replicates == 0
    assert np.isnan(mix.baselines[0].probability)


def test_weights_change_what_is_optimal():
    plain, finnish = mixture(), mixture(weights={"en": 0, "de": 0, "fi": 1})
    assert finnish.mixture["fi"] > plain.mixture["fi"]
    np.testing.assert_allclose(finnish.weights, [0, 0, 1])
    normalized = mixture(weights="normalized")
    alone = np.diag(FakeFit().terms(1e9, 1e11).losses(np.eye(4))[:3])
    np.testing.assert_allclose(normalized.weights, 1 / alone / 3)
    assert "predicted" in normalized.weights_origin
    with pytest.raises(UsageError, match="not a positive number"):
        mixture(weights="normalized", monolingual={"en": 2.0, "de": 0.0, "fi": 4.0})
    measured = mixture(weights="normalized", monolingual={"en": 2.0, "de": 2.0, "fi": 4.0})
    np.testing.assert_allclose(measured.weights, [1 / 6, 1 / 6, 1 / 12])
    assert "measured" in measured.weights_origin


def test_kl_pulls_towards_the_anchor():
    free, pulled = mixture(), mixture(anchor="uniform", kl=10.0)
    uniform = np.full(4, 0.25)
    assert np.abs(pulled.p - uniform).sum() < 0.1 * np.abs(free.p - uniform).sum()
    assert pulled.relative_gap <= 1e-9


def test_the_worst_case_is_better_at_the_worst():
    worst, mean = mixture(objective="worst"), mixture()
    assert worst.losses.max() < mean.losses.max()
    assert worst.objective == pytest.approx(worst.losses.max())
    assert worst.relative_gap <= 1e-9
    np.testing.assert_allclose(worst.weights, 1.0)


def test_methods_are_compared_with_the_exact_optimum():
    fit = Square()
    exact = optimize(fit, 1e9, 1e11)
    assert exact.excess == 0
    inner = optimize(fit, 1e9, 1e11, method="interior")
    np.testing.assert_allclose(inner.p, exact.p, atol=1e-8)
    printed = optimize(fit, 1e9, 1e11, method="first-order-printed")
    assert printed.excess > 0
    assert printed.distance == pytest.approx(np.abs(printed.p - exact.p).sum())
    assert any("wrong sign" in notice for notice in printed.notices)
    with pytest.raises(SolveError, match="square"):
        mixture(method="closed-form")


@pytest.mark.parametrize("method", ["closed-form", "first-order"])
def test_a_formula_that_breaks_a_bound_is_told_and_no_other(method):
    free = optimize(Square(), 1e9, 1e11, method=method)
    assert not any("breaks the bounds" in notice for notice in free.notices)
    cap = {TARGETS[0]: float(free.p[0]) - 0.05}
    broken = optimize(Square(), 1e9, 1e11, method=method, caps=cap)
    assert any("breaks the bounds" in notice for notice in broken.notices)
    assert np.isinf(broken.certificate.gap)


class Square(FakeFit):
    """As many sources as targets."""

    def __init__(self) -> None:
        super().__init__(B=0, sources=TARGETS)

    def terms(self, N: float, D: float) -> PowerTerms:
        return super().terms(N, D).select_sources([0, 1, 2])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"objective": "best"}, "unknown objective"),
        ({"method": "magic"}, "unknown method"),
        ({"weights": "equal"}, "unknown weights"),
        ({"caps": {"end": 0.5}}, "not one of the sources"),
        ({"caps": {"en": 1.5}}, "not a ratio"),
        ({"kl": 1.0}, "anchor"),
        ({"level": 1.0}, "between 0 and 1"),
    ],
)
def test_wrong_calls_say_what_is_wrong(options, message):
    with pytest.raises(UsageError, match=message):
        mixture(**options)


def test_saved_and_loaded_bit_for_bit_and_deterministic(tmp_path):
    first, again = mixture(available=TOKENS), mixture(available=TOKENS)
    first.save(tmp_path / "a.json")
    again.save(tmp_path / "b.json")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    loaded = Mixture.load(tmp_path / "a.json")
    assert loaded.mixture == first.mixture
    loaded.save(tmp_path / "c.json")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "c.json").read_bytes()


def test_laws_without_convexity_are_refused_or_searched_and_said_so():
    with pytest.raises(SolveError, match="not convex"):
        optimize(Bumpy(), 1e9, 1e11)
    found = optimize(Bumpy(), 1e9, 1e11, allow_nonconvex=True, caps={"en": 0.4})
    assert np.isnan(found.gap)
    assert any("not convex" in notice for notice in found.notices)
    draws = np.random.default_rng(1).dirichlet(np.ones(4), 20000)
    draws = draws[draws[:, 0] <= 0.4]
    assert found.objective <= Bumpy().predict(draws, 1e9, 1e11).losses.mean(axis=1).min() + 1e-9
    assert found.p[0] <= 0.4 + 1e-12


def test_a_real_fit(fixtures):
    from shapleymix.fitting.fit import fit

    fitted = fit(fixtures / "multilingual5_runs.csv", law="learned-base", bootstrap=12, folds=0)
    mix = optimize(fitted, 97_600, 2_000_000)
    assert mix.relative_gap <= 1e-9
    assert (mix.p_low <= mix.p_high).all()
    assert mix.baselines[0].gain > 0


@pytest.mark.parametrize("anchor", [(1.0, 0.0, 0.0, 0.0), (0.5, 0.5, 0.0, 0.0)])
def test_an_anchor_without_some_sources_competes_on_its_support_only(anchor):
    mix = mixture(anchor=dict(zip(SOURCES, anchor, strict=True)), kl=0.1)
    assert mix.relative_gap <= 1e-9
    assert (mix.p[np.array(anchor) == 0] == 0).all()


def test_a_closed_form_does_not_borrow_the_optimums_interval():
    assert np.isnan(optimize(Square(), 1e9, 1e11, method="closed-form").p_low).all()
    assert not np.isnan(mixture().p_low).any()


def test_the_file_names_the_ratios(tmp_path):
    import json

    mix = mixture()
    mix.save(tmp_path / "mixture.json")
    assert json.loads((tmp_path / "mixture.json").read_text())["mixture"] == mix.mixture


def test_the_penalty_is_apart_from_the_loss():
    """Issue 6, 1.7: the penalised objective was printed as the mean loss, and the baselines were shifted."""
    mix, free = mixture(anchor="en=0.7,de=0.1,fi=0.1,code=0.1", kl=0.5), mixture()
    assert mix.objective == pytest.approx(mix.losses.mean())
    assert mix.penalty == pytest.approx(0.5 * np.sum(mix.p * np.log(mix.p / [0.7, 0.1, 0.1, 0.1])))
    assert mix.certificate.objective == pytest.approx(mix.objective + mix.penalty)
    assert mix.baselines[0].objective == pytest.approx(free.baselines[0].objective)
    assert mix.kl == 0.5
    np.testing.assert_allclose(mix.anchor, [0.7, 0.1, 0.1, 0.1])


class Untrained(FakeFit):
    """Predictions above an untrained model's loss wherever a target has less than a tenth of the data."""

    def predict(self, p, N, D, level=0.9):
        found = super().predict(p, N, D, level)
        object.__setattr__(found, "above_untrained", np.asarray(p)[:, :3] < 0.1)
        return found


def test_a_rival_above_an_untrained_model_has_no_gain_but_a_reason():
    """Issue 6, 1.2: a rival at 29.4 nats, where an untrained model has 5.5, gave a gain of 8 nats and P = 100%."""
    mix = optimize(Untrained(), "1B", "100B", floors=0.11, compare_to={"mono": "en=1"})
    mono = next(rival for rival in mix.baselines if rival.name == "mono")
    assert "untrained" in mono.reason
    assert "de, fi" in mono.reason
    assert np.isnan([mono.objective, mono.gain, mono.probability, mono.gain_low]).all()
    assert np.isfinite(mix.baselines[0].gain)


def test_a_searched_mixture_keeps_groups_and_takes_any_weights():
    """Issue 6, 2: gbm's rivals ignored groups, and its weights were no others' weights."""
    options = {"allow_nonconvex": True, "groups": [Group(("fi", "code"), 0.6, 0.9)], "weights": "en=1,de=2,fi=1"}
    found = optimize(Bumpy(), 1e9, 1e11, **options)
    assert found.p[2:].sum() >= 0.6 - 1e-9
    assert not found.baselines[0].within_bounds
    np.testing.assert_allclose(found.weights, [0.25, 0.5, 0.25])
