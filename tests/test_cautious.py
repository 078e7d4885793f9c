"""The cautious mixture: against a search of everything, and with every bound, weight and objective that it may meet."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pytest
from known_fits import TOKENS, FakeFit
from test_gains import MISFIT, Unsure

from shapleymix.errors import SolveError, UsageError
from shapleymix.laws.terms import ExponentialTerms, PowerTerms, Terms
from shapleymix.mixing.cautious import cautious, lower_bound
from shapleymix.mixing.certificate import violation
from shapleymix.mixing.demands import Demands
from shapleymix.mixing.engine.solving import solve, solve_replicates
from shapleymix.mixing.frontier import frontier
from shapleymix.mixing.gains import Beliefs
from shapleymix.mixing.mixtures import Mixture
from shapleymix.mixing.optimization import optimize, optimize_scales
from shapleymix.mixing.problem import Problem
from shapleymix.records import FloatArray

BUDGET = ("1B", "100B")
UNIFORM = np.full(4, 0.25)
LITTLE = replace(MISFIT, scale=0.3 * MISFIT.scale)


def gain_low(mix: Mixture, name: str = "uniform") -> float:
    return next(rival.gain_low for rival in mix.baselines if rival.name == name)


def surely(fit: FakeFit | None = None, **options) -> Mixture:
    return optimize(Unsure(misfit=LITTLE) if fit is None else fit, *BUDGET, **options)


@pytest.mark.parametrize("objective", ["mean", "worst"])
@pytest.mark.parametrize("scale", [0.0, 0.5])
def test_no_mixture_of_very_many_has_a_better_lower_bound(objective: str, scale: float):
    fit = FakeFit()
    found = Problem(fit.terms(1e9, 1e11), np.full(3, 1 / 3), Demands().bounds(fit.sources, 1e11), objective)
    replicates = fit.replicate_terms(1e9, 1e11)
    assert replicates is not None
    optima = solve_replicates((found,), (replicates,))[0]
    beliefs = Beliefs(found, replicates, replace(MISFIT, scale=scale * MISFIT.scale), optima, 0.9)
    best = solve(found)
    p = cautious(beliefs, best, UNIFORM).answer.p
    rng = np.random.default_rng(0)
    centres = [2 + 60 * centre for centre in (best.p, UNIFORM, p)]
    tried = np.concatenate([rng.dirichlet(centre, 60) for centre in (*centres, np.ones(4))])
    bounds = [lower_bound(beliefs, one, best.p, UNIFORM) for one in tried]
    own = lower_bound(beliefs, p, best.p, UNIFORM)
    gain = float(found.value(UNIFORM) - found.value(best.p))
    assert own >= max(0.0, lower_bound(beliefs, best.p, best.p, UNIFORM)) - 1e-12
    assert own >= max(bounds) - 0.03 * gain


def test_caution_costs_what_is_said_and_keeps_its_proof():
    plain, wary = surely(), surely(cautious="uniform")
    assert gain_low(wary) >= gain_low(plain) > 0
    assert wary.method == "cautious"
    assert wary.cautious == "uniform"
    assert wary.objective == pytest.approx(plain.objective + wary.excess, abs=1e-12)
    assert 0 <= wary.excess <= wary.gap
    assert wary.distance == pytest.approx(float(np.abs(wary.p - plain.p).sum()))
    assert np.isnan(wary.p_low).all()
    assert wary.binding == ()


def test_where_nothing_is_sure_it_is_the_baseline_itself_and_says_so_first():
    loud = Unsure(misfit=replace(MISFIT, scale=10 * MISFIT.scale))
    mix = optimize(loud, *BUDGET, cautious="en=0.4,de=0.3,fi=0.2,code=0.1")
    np.testing.assert_array_equal(mix.p, [0.4, 0.3, 0.2, 0.1])
    assert gain_low(mix, mix.cautious) == 0
    assert mix.verdict.startswith("no mixture was found that is better than en=0.4")
    assert mix.notices[0] == mix.verdict


def test_where_all_is_sure_it_is_the_optimum():
    @dataclass(frozen=True)
    class Sure(Unsure):
        def replicate_terms(self, N: float, D: float) -> PowerTerms | None:
            return self.terms(N, D).flat((5,))

    fit = Sure(misfit=replace(MISFIT, scale=1e-9 * MISFIT.scale))
    np.testing.assert_allclose(surely(fit, cautious="uniform").p, surely(fit).p, atol=1e-6)


def test_the_usual_baseline_rests_on_the_tokens():
    assert surely(cautious=True).cautious == "uniform"
    assert surely(cautious=True, available=TOKENS).cautious == "natural"
    assert surely(cautious=False).cautious == surely(cautious=None).cautious == ""
    with_own = surely(cautious={"en": 0.4, "de": 0.3, "fi": 0.2, "code": 0.1})
    assert with_own.cautious == "the baseline"
    named = surely(cautious="en=.25,de=.25,fi=.25,code=.25")
    assert named.cautious == "uniform"
    assert [rival.name for rival in named.baselines] == ["uniform"]


BOUNDS = {
    "none": {},
    "caps": {"caps": "en=0.3", "floors": "code=0.05"},
    "tokens": {"available": TOKENS, "max_epochs": 2},
    "groups": {"groups": "en+de<=0.4"},
    "ball": {"near": "uniform", "within": 0.2},
    "kl ball": {"near": "uniform", "within": 0.05, "distance": "kl"},
    "cvxpy": {"constraints": (lambda p: p[0] <= p[1],)},
    "away": {"floors": "code=0.4"},
}
WEIGHTS = {"unweighted": {}, "one target": {"weights": "fi=1"}, "normalized": {"weights": "normalized"}}


KINDS = (("power", "unweighted", "worst"), ("power", "one target", "mean"), ("exponential", "normalized", "mean"))


@pytest.mark.parametrize(("bounds", "kind"), list(product(BOUNDS, KINDS)))
def test_caution_under_every_bound_weight_and_objective(bounds: str, kind: tuple[str, str, str]):
    law, weights, objective = kind
    few = Exponential(B=5, misfit=LITTLE) if law == "exponential" else Unsure(B=5, misfit=LITTLE)
    options = {**BOUNDS[bounds], **WEIGHTS[weights], "objective": objective}
    plain, wary = (optimize(few, *BUDGET, **options, **more) for more in ({}, {"cautious": "uniform"}))
    rules = Demands(**options).bounds(few.sources, 1e11)
    assert violation(wary.p, rules) <= 1e-9
    assert gain_low(wary) >= gain_low(plain) - 1e-9
    assert wary.objective >= plain.objective - 1e-9
    assert wary.excess <= wary.gap + 1e-7
    if bounds == "cvxpy":
        assert wary.p[0] <= wary.p[1] + 1e-6


@dataclass(frozen=True)
class Exponential(Unsure):
    """The unsure fit under an exponential law."""

    def terms(self, N: float, D: float) -> Terms:  # pyright: ignore[reportIncompatibleMethodOverride]
        power = FakeFit.terms(self, N, D)
        return ExponentialTerms(np.full(3, 1.5), np.full(3, 0.8), -power.phi)

    def replicate_terms(self, N: float, D: float) -> Terms | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        rng, point = np.random.default_rng(7), self.terms(N, D)
        assert isinstance(point, ExponentialTerms)
        return replace(point, t=point.t * np.exp(0.1 * rng.normal(size=(self.B, 4, 3))))


def test_several_budgets_are_those_one_by_one():
    fit = Unsure(B=8, misfit=LITTLE)
    both = optimize_scales(fit, ["1B", "2B"], "100B", cautious="uniform")
    for mix, N in zip(both, ("1B", "2B"), strict=True):
        np.testing.assert_allclose(mix.p, optimize(fit, N, "100B", cautious="uniform").p, atol=1e-6)


def test_misfit_alone_or_replicates_alone_are_enough():
    for fit in (Unsure(B=0, misfit=LITTLE), FakeFit(B=20)):
        wary = optimize(fit, *BUDGET, cautious="uniform")
        assert gain_low(wary) >= max(0.0, gain_low(optimize(fit, *BUDGET)))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"kl": 0.1, "anchor": "uniform"}, "KL penalty"),
        ({"method": "closed-form"}, "method 'closed-form'"),
        ({"what_if": "fi+1B", "available": TOKENS}, "what_if"),
    ],
)
def test_what_it_cannot_meet_is_refused_by_name(options, named: str):
    with pytest.raises(UsageError, match=named):
        surely(cautious="uniform", **options)


def test_a_frontier_takes_no_caution():
    with pytest.raises(UsageError, match="cautious"):
        frontier(FakeFit(), *BUDGET, "en:rest", cautious="uniform")


def test_wrong_baselines_are_refused():
    with pytest.raises(UsageError, match="interval"):
        optimize(FakeFit(B=0), *BUDGET, cautious="uniform")
    with pytest.raises(UsageError, match="natural"):
        surely(cautious="natural")
    with pytest.raises(UsageError, match="xx"):
        surely(cautious="xx=1")


@dataclass(frozen=True)
class Needy(Unsure):
    """Each target needs its own source."""

    def terms(self, N: float, D: float) -> PowerTerms:
        return replace(super().terms(N, D), phi=np.eye(4)[:, :3])


def test_a_baseline_without_a_finite_loss_is_refused():
    with pytest.raises(SolveError, match="no finite loss at the baseline"):
        optimize(Needy(B=0), *BUDGET, cautious="en=0.5,de=0.5")


def test_a_baseline_that_lacks_a_source_may_gain_by_it():
    lacking: FloatArray = np.array([0.6, 0.2, 0.2, 0.0])
    fit = Unsure(B=0, misfit=replace(MISFIT, scale=0.01 * MISFIT.scale))
    mix = optimize(fit, *BUDGET, cautious=dict(zip(fit.sources, lacking.tolist(), strict=True)), floors="code=0.1")
    assert mix.p[3] >= 0.1 - 1e-9
    assert gain_low(mix, "the baseline") > 0


def test_it_is_read_back_as_written(tmp_path):
    mix = surely(cautious="uniform")
    mix.save(tmp_path / "wary.json")
    assert Mixture.load(tmp_path / "wary.json") == mix
