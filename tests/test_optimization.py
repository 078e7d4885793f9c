"""From a fit to a reported mixture: proof, intervals, rivals, bounds in tokens, scales and compute."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from shapleymix.errors import InfeasibleError, SolveError, UsageError
from shapleymix.laws import Law
from shapleymix.laws.shapley import Shapley
from shapleymix.laws.terms import PowerTerms
from shapleymix.mixing.bounds import Group
from shapleymix.mixing.compute import optimize_compute
from shapleymix.mixing.mixtures import Mixture
from shapleymix.mixing.optimization import optimize, optimize_scales
from shapleymix.tables.repetition import repetition

SOURCES, TARGETS = ("en", "de", "fi", "code"), ("en", "de", "fi")
TOKENS = {"en": "1T", "de": "100B", "fi": "2B", "code": "50B"}


@dataclass(frozen=True)
class Predicted:
    losses: np.ndarray
    low: np.ndarray
    high: np.ndarray
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class FakeFit:
    """A ShapleyLaw with known parameters: M = 4 sources, K = 3 targets, B bootstrap replicates."""

    B: int = 40
    size_matters: bool = True
    data_matter: bool = True
    sources: tuple[str, ...] = SOURCES
    targets: tuple[str, ...] = TARGETS
    held: dict[str, str] = field(default_factory=dict)
    law: type[Law] = Shapley

    def core(self, N: float, D: float) -> np.ndarray:
        size = 400 / N**0.34 if self.size_matters else 0.3
        return np.array([1.6, 1.8, 2.1]) + size + (2000 / D**0.37 if self.data_matter else 0.2)

    def terms(self, N: float, D: float) -> PowerTerms:
        phi = np.array([[1, 0.3, 0.2], [0.15, 1, 0.1], [0.1, 0.05, 1], [0.3, 0.1, 0.05]])
        return PowerTerms(np.zeros(3), self.core(N, D), np.array([0.08, 0.1, 0.15]), phi)

    def replicate_terms(self, N: float, D: float) -> PowerTerms | None:
        if not self.B:
            return None
        rng, point = np.random.default_rng(7), self.terms(N, D)
        wobble = np.exp(0.1 * rng.normal(size=(self.B, 3)))
        phi = point.phi * np.exp(0.1 * rng.normal(size=(self.B, 4, 3)))
        return PowerTerms(np.zeros(3), point.a * np.ones((self.B, 1)), point.gamma * wobble, phi)

    def predict(self, p, N, D, level=0.9) -> Predicted:
        losses = self.terms(float(N), float(D)).losses(np.asarray(p))
        return Predicted(losses, losses - 0.1, losses + 0.1, ("N is far out",) if float(N) > 1e10 else ())


def mixture(**options) -> Mixture:
    return optimize(FakeFit(), "1B", "100B", **options)


@dataclass(frozen=True)
class FlatFit(FakeFit):
    """The same, but no target feels the mixture."""

    def terms(self, N: float, D: float) -> PowerTerms:
        return replace(super().terms(N, D), gamma=np.zeros(3))


@pytest.mark.parametrize("objective", ["mean", "worst"])
@pytest.mark.parametrize("groups", [(), "en+de<=0.5"])
@pytest.mark.parametrize(("fit", "flat"), [(FakeFit(0), False), (FlatFit(0), True)])
def test_it_is_said_where_the_mixture_decides_nothing(fit, flat, objective, groups):
    mix = optimize(fit, "1B", "100B", objective=objective, groups=groups)
    assert any("does not depend on the mixture" in notice for notice in mix.notices) == flat
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


def test_caps_follow_from_tokens_and_epochs():
    mix = mixture(available=TOKENS, max_epochs=4)
    np.testing.assert_allclose(mix.caps, [1, 1, 0.08, 1])
    np.testing.assert_allclose(mix.epochs, mix.p * 1e11 / np.array([1e12, 1e11, 2e9, 5e10]))
    assert [cap.source for cap in mix.binding] == ["fi"]
    assert mix.binding[0].origin == "tokens"


def test_a_shadow_price_is_what_more_tokens_would_save():
    base, extra = mixture(available=TOKENS), mixture(available={**TOKENS, "fi": 2.001e9})
    saved = (base.objective - extra.objective) / 1e6
    price = base.binding[0]
    assert price.unit == 1e9, "1% of D"
    assert saved == pytest.approx(price.per_unit / price.unit, rel=1e-3)
    assert price.per_percent == pytest.approx(0.01 * base.shadow_prices["fi"])
    capped, looser = mixture(caps={"en": 0.2}), mixture(caps={"en": 0.2001})
    saved_per_ratio = (capped.objective - looser.objective) / 1e-4
    assert saved_per_ratio == pytest.approx(capped.binding[0].per_ratio, rel=1e-3)


def test_a_group_has_shadow_prices_too():
    options = {"groups": [Group(("de", "fi"), 0.7, 1.0)], "caps": {"de": 0.2}}
    base, looser = mixture(**options), mixture(**{**options, "caps": {"de": 0.20001}})
    price = next(cap.per_ratio for cap in base.binding if cap.source == "de")
    assert (base.objective - looser.objective) / 1e-5 == pytest.approx(price, rel=1e-3)


def test_a_group_between_two_ratios_binds_on_either_side():
    free, high = mixture(), mixture(groups="0.1<=en+de<=0.3")
    assert free.p[:2].sum() > 0.3
    assert high.p[:2].sum() == pytest.approx(0.3)
    low = mixture(groups="60%<=fi+code<=90%")
    assert low.p[2:].sum() == pytest.approx(0.6)
    assert {price.side for price in (*high.binding, *low.binding)} == {"cap of the group", "floor of the group"}
    assert max(high.relative_gap, low.relative_gap) <= 1e-8


class Partial(FakeFit):
    """A fit that no run of "code" went into."""

    unseen = ("code",)


def test_a_source_that_is_held_as_unseen_has_no_price():
    held, asked = optimize(Partial(), 1e9, 1e11, caps="en=0.1"), optimize(Partial(), 1e9, 1e11, caps="en=0.1,code=0")
    for mix in (held, asked):
        assert mix.mixture["code"] == 0
        assert [price.source for price in mix.binding] == ["en"]
    assert any("no run of the fit ever saw code" in notice for notice in held.notices)


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


def test_minimal_tokens_and_floors():
    mix = mixture(min_tokens="5B", floors={"code": 0.2})
    assert (mix.p >= 0.05 - 1e-15).all()
    assert mix.mixture["code"] == pytest.approx(0.2)


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


def test_scales_in_one_batch_are_single_calls():
    table = optimize_scales(FakeFit(), ["500M", "1B"], [1e10, 1e11], available=TOKENS)
    assert [(mix.N, mix.D) for mix in table] == [(5e8, 1e10), (5e8, 1e11), (1e9, 1e10), (1e9, 1e11)]
    single = mixture(available=TOKENS)
    np.testing.assert_allclose(table[3].p, single.p, atol=1e-8)
    np.testing.assert_allclose(table[3].p_low, single.p_low, atol=1e-7)


@pytest.mark.parametrize(
    ("N", "D", "named"), [([], 1e10, "N"), ([1e9, 0], 1e10, "N"), (1e9, [], "D"), (1e9, [0.0, 1e10], "D")]
)
def test_scales_need_sizes_above_zero(N, D, named):
    with pytest.raises(UsageError, match=f"^{named} must be positive"):
        optimize_scales(FakeFit(), N, D)


@pytest.mark.parametrize("searched", [False, True])
def test_compute_refuses_a_law_without_convexity_with_the_way_out(searched):
    """`allow_nonconvex` was passed over, and the refusal asked for it."""
    with pytest.raises(SolveError, match="not known to be convex in the mixture: optima without proof") as refused:
        optimize_compute(Bumpy(), 1e21, allow_nonconvex=searched)
    assert "several N and D of that budget" in str(refused.value.hint)


def test_compute_is_split_as_a_fine_scan_says():
    fit = FakeFit(B=0)
    mix = optimize_compute(fit, "1e21")
    np.testing.assert_allclose(mix.N * mix.D, 1e21 / 6, rtol=1e-9)
    near = [optimize(fit, mix.N * f, mix.D / f).objective for f in (0.99, 1.01)]
    assert mix.objective <= min(near)


def test_compute_needs_a_law_in_both_N_and_D():
    with pytest.raises(SolveError, match="does not depend on N"):
        optimize_compute(FakeFit(B=0, size_matters=False), 1e21)
    with pytest.raises(SolveError, match="one D"):
        optimize_compute(FakeFit(B=0, data_matter=False, held={"B": "the log holds one D"}), 1e21)


def test_sizes_without_a_mixture_are_passed_over():
    """With few tokens at hand a small model, on the many tokens of its share, has no mixture; a larger one has."""
    fit = FakeFit(B=0)
    found = optimize_compute(fit, 1e21, available=dict.fromkeys(SOURCES, 2e10), max_epochs=4)
    assert found.D <= 4 * 4 * 2e10 * (1 + 1e-9)
    with pytest.raises(InfeasibleError, match="floors sum to"):
        optimize_compute(fit, 1e21, floors=0.3)


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


def test_infeasible_caps_are_refused_with_a_repair():
    with pytest.raises(InfeasibleError, match="short of 1"):
        optimize(FakeFit(), 1e9, 1e14, available=TOKENS)


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


class Bumpy(FakeFit):
    """A law without convex pieces."""

    def terms(self, N: float, D: float) -> PowerTerms:
        raise SolveError("not convex", hint="use another law")

    def predict(self, p, N, D, level=0.9) -> Predicted:
        p = np.asarray(p)
        losses = 2 + 0.1 * np.sin(8 * p[:, :3]) + (p[:, :3] - 0.5) ** 2
        return Predicted(losses, losses, losses)


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
    from shapleymix.fitting.fits import fit

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


@pytest.mark.parametrize("caps", [[0.4, 0.4, 0.4, 0.4], np.full(4, 0.4), 0.4, dict.fromkeys(SOURCES, 0.4)])
def test_caps_come_by_name_in_order_or_for_all(caps):
    np.testing.assert_array_equal(mixture(caps=caps).p, mixture(caps=dict.fromkeys(SOURCES, 0.4)).p)


def test_caps_of_another_length_are_refused():
    with pytest.raises(UsageError, match="cap: 2 values for 4 sources"):
        mixture(caps=[0.5, 0.5])


def test_a_closed_form_does_not_borrow_the_optimums_interval():
    assert np.isnan(optimize(Square(), 1e9, 1e11, method="closed-form").p_low).all()
    assert not np.isnan(mixture().p_low).any()


def test_the_file_names_the_ratios(tmp_path):
    import json

    mix = mixture()
    mix.save(tmp_path / "mixture.json")
    assert json.loads((tmp_path / "mixture.json").read_text())["mixture"] == mix.mixture


def test_a_price_says_how_far_it_reaches():
    """Issue 6, 5: a shadow price holds at a point."""
    base = mixture(caps={"en": 0.2})
    price = base.binding[0]
    assert price.side == "cap"
    free = mixture().mixture["en"]
    assert price.half_at < free
    assert price.free_at == pytest.approx(free, abs=1e-6)
    half = mixture(caps={"en": price.half_at}).binding[0].per_ratio
    assert half == pytest.approx(price.per_ratio / 2, rel=0.05)


@pytest.mark.parametrize(
    ("options", "side"),
    [({"floors": {"code": 0.2}}, "floor"), ({"groups": [Group(("fi", "code"), 0.0, 0.1)]}, "cap of the group")],
)
def test_floors_and_groups_have_prices(options, side):
    base = mixture(**options)
    price = next(one for one in base.binding if one.side == side)
    if side == "floor":
        looser = mixture(floors={"code": 0.1999})
    else:
        looser = mixture(groups=[Group(("fi", "code"), 0.0, 0.1001)])
    assert (base.objective - looser.objective) / 1e-4 == pytest.approx(price.per_ratio, rel=1e-2)


def test_repeated_tokens_are_named():
    """Issue 6, 1.6: five sources at 8 epochs, and not a word."""
    notices = " ".join(mixture(available=TOKENS, max_epochs=8).notices)
    assert "repeated tokens for fresh" in notices
    assert "fi" in notices.split("repeats")[1]
    assert not any("repeated" in notice for notice in mixture(available=dict.fromkeys(SOURCES, "9T")).notices)


def test_a_source_seen_once_is_not_repeated():
    """Every token once is p D / available = 1 up to rounding; a hundredth more is a repetition."""
    p, D = np.array([0.1 + 0.2, 0.7]), 1e9
    available = np.array([0.3, 0.7]) * D
    assert (p * D / available).max() > 1
    assert repetition(p, ("en", "de"), available, D) == []
    assert "repeats en 1.01 times" in repetition(p, ("en", "de"), available / np.array([1.01, 1.0]), D)[0]


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
