"""Gains: their intervals against draws of everything that is unsure, the luck of the choice against simulations."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from known_fits import TOKENS, FakeFit
from simulated import inputs, mixtures, simulate, true_law

import shapleymix as sm
from shapleymix.errors import ShapleyMixWarning
from shapleymix.fitting.misfit import Misfit
from shapleymix.laws.terms import PowerTerms
from shapleymix.mixing.bounds import Constraints
from shapleymix.mixing.demands import Demands
from shapleymix.mixing.engine.solving import solve, solve_replicates
from shapleymix.mixing.gains import Beliefs
from shapleymix.mixing.grids import verdicts_over
from shapleymix.mixing.mixtures import Mixture
from shapleymix.mixing.optimization import optimize, optimize_scales
from shapleymix.mixing.problem import Problem
from shapleymix.records import FloatArray

MISFIT = Misfit(np.array([0.01, 0.02, 0.015]), 0.3, 0.6, 0.2, 20)
UNIFORM = np.full(4, 0.25)
NEAR = np.array([0.3, 0.3, 0.3, 0.1])
FAR = np.array([0.7, 0.1, 0.1, 0.1])


@dataclass(frozen=True)
class Unsure(FakeFit):
    """The fake fit with misfit."""

    misfit: Misfit | None = MISFIT


def bounds() -> Constraints:
    return Demands().bounds(FakeFit().sources, 1e11)


def problem(objective: str = "mean", w: FloatArray | None = None) -> Problem:
    return Problem(FakeFit().terms(1e9, 1e11), np.full(3, 1 / 3) if w is None else w, bounds(), objective)


def beliefs(found: Problem, **changes: object) -> Beliefs:
    replicates = FakeFit().replicate_terms(1e9, 1e11)
    return replace(Beliefs(found, replicates, MISFIT, None, 0.9), **changes)


def drawn_gains(found: Problem, runs: int = 40_000) -> FloatArray:
    """Gains of NEAR over FAR with every loss drawn: a replicate, and the field at both mixtures."""
    rng = np.random.default_rng(0)
    replicates = FakeFit().replicate_terms(1e9, 1e11)
    assert replicates is not None
    which = rng.integers(40, size=runs)
    between = MISFIT.shared + (1 - MISFIT.shared) * np.eye(3)
    targets = np.linalg.cholesky(between * np.outer(MISFIT.scale, MISFIT.scale))
    alike = MISFIT.smooth * np.exp(-(1 - np.sqrt(NEAR * FAR).sum()) / MISFIT.reach)
    mixtures = np.linalg.cholesky(np.array([[1, alike], [alike, 1]]))
    error = np.einsum("ab,rbk,jk->raj", mixtures, rng.normal(size=(runs, 2, 3)), targets)
    losses = np.stack([replicates.losses(p)[which] for p in (NEAR, FAR)], axis=1) * np.exp(error)
    weighed = found.w * losses
    near, far = (weighed.max(axis=-1) if found.worst else weighed.sum(axis=-1)).T
    return far - near


@pytest.mark.parametrize("objective", ["mean", "worst"])
@pytest.mark.parametrize("w", [(1 / 3, 1 / 3, 1 / 3), (0.7, 0.3, 0.0)])
def test_the_interval_holds_all_that_is_unsure(objective: str, w: tuple[float, ...]):
    found = problem(objective, np.array(w))
    gain, drawn = beliefs(found).gain(NEAR, FAR), drawn_gains(found)
    width = gain.high - gain.low
    np.testing.assert_allclose([gain.low, gain.high], np.quantile(drawn, [0.05, 0.95]), atol=0.06 * width)
    assert gain.probability == pytest.approx((drawn > 0).mean(), abs=0.03)
    narrow = beliefs(found, misfit=None).gain(NEAR, FAR)
    assert narrow.high - narrow.low < width


def test_gains_are_the_same_both_ways_and_nothing_against_itself():
    believed = beliefs(problem())
    forth, back = believed.gain(NEAR, FAR), believed.gain(FAR, NEAR)
    assert (forth.promised, forth.low, forth.high) == pytest.approx((-back.promised, -back.high, -back.low), rel=1e-12)
    assert forth.probability == pytest.approx(1 - back.probability)
    same = believed.gain(NEAR, NEAR.copy())
    assert (same.promised, same.value, same.low, same.high, same.probability) == (0, 0, 0, 0, 0.5)


def test_many_runs_are_surer_than_one():
    one, many = (beliefs(problem(), replicates=None).gain(NEAR, FAR, runs=runs) for runs in (True, False))
    assert one.value == many.value == one.promised
    assert one.high - one.low > 1.2 * (many.high - many.low)


def test_without_anything_to_judge_by_there_is_no_interval():
    gain = beliefs(problem(), replicates=None, misfit=None).gain(NEAR, FAR)
    assert gain.promised == gain.value
    assert np.isnan([gain.low, gain.high, gain.probability]).all()


def test_a_target_of_weight_0_adds_no_doubt():
    found = problem(w=np.array([1.0, 0.0, 0.0]))
    lost = replace(found, terms=replace(found.terms, floor=np.array([0.0, np.inf, 0.0])))
    one, other = (beliefs(each, replicates=None).outlook(NEAR).sensitivity for each in (lost, found))
    np.testing.assert_array_equal(one, other)
    assert other[1:].tolist() == [0, 0]


def test_the_optimism_is_what_the_promise_exceeds_the_truth_by():
    """Laws estimated with noise, again and again: what each promises over uniform, less what is true, in the mean."""
    rng, uniform = np.random.default_rng(0), np.full(4, 0.25)
    truth = PowerTerms(np.zeros(3), np.full(3, 2.0), np.full(3, 0.1), np.eye(4)[:, :3] * 0.4 + 0.3)
    w = np.full(3, 1 / 3)

    def noisy(law: PowerTerms, count: int) -> PowerTerms:
        return replace(law, phi=law.phi * np.exp(0.25 * rng.normal(size=(count, 4, 3))))

    excess, told = [], []
    for _ in range(60):
        estimate = noisy(truth, 1).flat().take(0)
        found = Problem(estimate, w, bounds())
        p, replicates = solve(found).p, noisy(estimate, 40)
        optima = solve_replicates((found,), (replicates,))[0]
        gain = Beliefs(found, replicates, None, optima, 0.9).gain(p, uniform)
        excess.append(gain.promised - (truth.objective(uniform, w) - truth.objective(p, w)))
        told.append(gain.promised - gain.value)
    assert np.mean(excess) > 0.005
    assert np.mean(told) == pytest.approx(np.mean(excess), rel=0.3)


def test_a_failed_replicate_is_not_all_of_the_optimism():
    fit, found = FakeFit(), problem()
    replicates = fit.replicate_terms(1e9, 1e11)
    assert replicates is not None
    optima = solve_replicates((found,), (replicates,))[0]
    wild = replace(replicates, a=np.concatenate([replicates.a[:-1], 1e6 * replicates.a[-1:]]))
    plain, odd = (beliefs(found, replicates=law, choices=optima).optimism(FAR) for law in (replicates, wild))
    assert odd == pytest.approx(plain, rel=0.2, abs=1e-3)
    nowhere = optima.copy()
    nowhere[0] = [0, 0, 0, 1]  # where the fitted law may have no finite loss
    assert np.isfinite(beliefs(found, choices=nowhere).optimism(FAR))


def told_of(mix: Mixture) -> dict[str, bool | None]:
    return {rival.name: rival.told for rival in mix.baselines}


def test_what_cannot_be_told_is_said_first(tmp_path):
    loud = replace(MISFIT, scale=10 * MISFIT.scale)
    with pytest.warns(ShapleyMixWarning, match="no mixture within the bounds is better than uniform") as caught:
        mix = optimize(Unsure(misfit=loud), "1B", "100B")
    assert mix.verdict == "no mixture within the bounds is better than uniform by more than can be told"
    assert str(caught[0].message) == mix.notices[0] == mix.verdict
    assert mix.summary().startswith(mix.verdict)
    assert list(mix.to_document())[:3] == ["schema_version", "kind", "verdict"]
    mix.save(tmp_path / "mixture.json")
    assert Mixture.load(tmp_path / "mixture.json") == mix
    assert told_of(mix) == {"uniform": False}


def test_a_rival_that_breaks_the_bounds_is_called_so():
    """Fault: "no mixture within the bounds is better than uniform" where uniform was none of them, and better."""
    loud = replace(MISFIT, scale=10 * MISFIT.scale)
    mix = optimize(Unsure(misfit=loud), "1B", "100B", caps="code=0.05")
    assert not mix.baselines[0].within_bounds
    assert "better than uniform (which breaks the bounds) by more" in mix.verdict


def test_a_gain_that_can_be_told_needs_no_word():
    mix = optimize(Unsure(), "1B", "100B", compare_to={"far": "code=1"})
    assert told_of(mix)["far"] is True
    assert "far" not in mix.verdict
    blind = optimize(FakeFit(0), "1B", "100B")
    assert (told_of(blind), blind.verdict) == ({"uniform": None}, "")
    assert blind.to_document()["verdict"] is None


def test_a_mixture_that_is_not_the_best_speaks_for_itself_alone():
    loud = Unsure(misfit=replace(MISFIT, scale=10 * MISFIT.scale))
    mix = optimize(loud, "1B", "100B", kl=0.5, anchor="uniform", compare_to={"far": "code=1"})
    assert mix.verdict.startswith("this mixture is not better than uniform")


def test_both_numbers_are_said():
    mix = optimize(Unsure(), "1B", "100B", available=TOKENS)
    for rival in mix.baselines:
        assert rival.promised == pytest.approx(rival.objective - mix.objective, abs=1e-12)
        assert rival.gain <= rival.promised
        assert rival.gain_low < rival.gain < rival.gain_high


def test_a_grid_says_where_nothing_can_be_told():
    found = optimize_scales(Unsure(misfit=replace(MISFIT, scale=10 * MISFIT.scale)), ["1B", "2B"], "100B")
    assert verdicts_over(found) == (found[0].verdict,)
    alone = [found[0], replace(found[1], baselines=())]
    assert verdicts_over(alone) == (f"at N = 1B: {found[0].verdict}",)


def test_misfit_alone_gives_intervals():
    mix = optimize(Unsure(B=0), "1B", "100B", compare_to={"far": "code=1"})
    assert mix.replicates == 0
    for rival in mix.baselines:
        assert rival.gain == rival.promised
        assert rival.gain_low < rival.gain < rival.gain_high


def test_a_source_whose_effect_is_drawn_does_not_take_the_luck_of_the_others_away():
    """Fault: one rare source switched the luck of the choice off for all; its own draws would be nearly all of it."""

    @dataclass(frozen=True)
    class Thin(Unsure):
        thin: tuple[str, ...] = ("code",)

        def replicate_terms(self, N: float, D: float) -> PowerTerms | None:
            law = super().replicate_terms(N, D)
            assert law is not None
            drawn = np.random.default_rng(1).uniform(0, 2, (len(law.phi), 3))
            return replace(law, phi=np.concatenate([law.phi[:, :3], drawn[:, None]], axis=1))

    known, drawn = Unsure(), Thin()
    alone, fixed = (optimize(fit, "1B", "100B", fix="code=0.1") for fit in (known, drawn))
    for mix in (alone, fixed):
        assert 0 < mix.baselines[0].gain < mix.baselines[0].promised
    assert fixed.baselines[0].gain == pytest.approx(alone.baselines[0].gain, rel=0.2)
    free = optimize(drawn, "1B", "100B")
    chasing = replace(drawn, thin=())
    assert free.baselines[0].gain > optimize(chasing, "1B", "100B").baselines[0].gain
    middle = 0.5 * (free.baselines[0].gain_low + free.baselines[0].gain_high)
    assert middle == pytest.approx(free.baselines[0].gain, abs=0.3 * (free.baselines[0].gain_high - middle))
    assert any("drawn in the replicates" in text and "code" in text for text in free.notices)


@pytest.mark.parametrize("which", ["rival", "candidate"])
def test_a_gain_over_a_source_that_no_run_held_lies_in_its_interval(which: str):
    """The optimum held none of it, and its rival did: replicates draw its effect to one side of what is fitted."""
    given = inputs()
    p = np.column_stack([mixtures(24, 3), np.zeros(24)])
    never = simulate(true_law("learned-base", given), given, p, sizes=(1e8,), tokens=(1e9,), noise=2e-3)
    found = sm.fit(never, "learned-base", folds=0, bootstrap=60, threads=1)
    assert found.unseen == (given.sources[3],)
    if which == "rival":
        one = optimize(found, 1e8, 1e9, compare_to={"new": "zh=0.5,en=0.5"}, level=0.5).baselines[0]
    else:
        pair = {"new": "zh=0.5,en=0.5", "a": "en=0.3,de=0.3,fr=0.4"}
        one = sm.compare_mixtures(found, pair, 1e8, 1e9, level=0.5).entries[1]
    assert one.gain_low < one.gain < one.gain_high
    assert (one.probability > 0.5) == (one.gain > 0)


def test_luck_is_at_most_all_of_a_promise():
    found = problem()
    replicates = FakeFit().replicate_terms(1e9, 1e11)
    assert replicates is not None
    choices = solve_replicates((found,), (replicates,))[0]
    near = 0.999 * solve(found).p + 0.001 * UNIFORM
    gain = beliefs(found, choices=choices).gain(solve(found).p, near)
    assert 0 <= gain.value <= gain.promised
    worse = beliefs(found, choices=choices).gain(UNIFORM, solve(found).p)
    assert worse.value == worse.promised < 0
