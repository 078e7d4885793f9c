"""Budgets beyond the runs: two forms in N and D that part there, runs of few computes, and tokens for a gain."""

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated import FAST, log_of

import shapleymix as sm
from shapleymix.fitting.noise import BARE_N, BEYOND_N, form_errors
from shapleymix.laws.core import Kaplan

pytestmark = pytest.mark.usefixtures("one_prior")

GRID = np.geomspace(2e7, 4e8, 5), np.geomspace(1e9, 4e10, 5)
FAR = (6.4e9, 6.4e11)


def grid_of(law: Kaplan, N: np.ndarray, D: np.ndarray, noise: float = 0.0, seed: int = 0) -> sm.RunLog:
    """Runs of one mixture at each pair of N and D (R,)."""
    loss = law(np.zeros((len(N), 0)), N, D) * np.exp(noise * np.random.default_rng(seed).normal(size=(len(N), 1)))
    columns = [[f"r{i}" for i in range(len(N))], N, D, *loss.T]
    names = ["run", "N", "D", *(f"loss_{name}" for name in "abcd"[: loss.shape[1]])]
    return sm.read_runs(dict(zip(names, columns, strict=True)))


def bent(g: float) -> Kaplan:
    """A law of the second form, of four targets whose terms are .8 nats where the grid begins."""
    each = np.linspace(0.9, 1.1, 4)
    amount, a, b = 0.4 * each ** (1 / g), 0.3 / g * each, 0.35 / g / each
    return Kaplan(1.5 * each, amount, a, amount, b, np.full(4, g)).rescale(2e7, 1e9)


@pytest.mark.parametrize("g", [0.3, 0.5, 0.8])
def test_intervals_hold_a_truth_of_the_other_form(g: float) -> None:
    law, inside = bent(g), []
    N, D = (one.ravel() for one in np.meshgrid(*GRID))
    truth = law(np.zeros((1, 0)), *(np.array([one]) for one in FAR))
    for seed in range(8):
        fitted = sm.fit(grid_of(law, N, D, 3e-3, seed), "chinchilla", bootstrap=40)
        told = fitted.predict([], *FAR)
        inside.append((told.low <= truth) & (truth <= told.high))
        assert fitted.other_form is not None
    assert np.mean(inside) >= 0.85


def test_the_other_form_of_a_law_with_mixtures_is_of_its_own_curve() -> None:
    _, _, log = log_of("learned-base", rows=60)
    found = sm.fit(log, "learned-base", **FAST)
    assert found.other_form is not None
    for N, D in zip(log.N[:9], log.D[:9], strict=True):
        np.testing.assert_allclose(found.other_form.core(N, D), found.law.core(N, D), rtol=0.02)
    few = log.select(log.N.max() > log.N)
    assert sm.fit(few, "learned-base", **FAST).other_form is None, "two sizes tell no form"


def test_runs_of_few_computes_tell_less_of_more_compute() -> None:
    law = bent(0.6)
    N = np.concatenate([np.geomspace(1, 30, 6) * least for least in (1e7, 3e7)])
    C = np.repeat([1e17, 9e17], 6)
    along = sm.fit(grid_of(law, N, C / N, 2e-3), "chinchilla", bootstrap=20)
    full = sm.fit(
        grid_of(law, *(one.ravel() for one in np.meshgrid(np.unique(N), np.unique(C / N))), 2e-3), "chinchilla"
    )
    corner = float(N.max()), float((C / N).max())
    assert along.predict([], *corner).outside.all()
    assert not full.predict([], *corner).outside.any()
    off = np.log(np.prod(corner) / C.max())
    found = np.hypot(*form_errors(along.coverage, along.noise, *corner))
    np.testing.assert_allclose(found, BEYOND_N * off, rtol=1e-6)
    assert (form_errors(full.coverage, full.noise, *corner) == 0).all()
    for factor, more in ((4.0, 1.0), (4.0, 4.0), (4.0, 2.0)):  # models larger by the one, for more compute by the other
        found = np.hypot(*form_errors(full.coverage, full.noise, 4 * N.max(), (C / N).max() * more / factor))
        wanted = np.hypot(BEYOND_N * np.log(factor), BARE_N * np.log(factor / more))
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


@functools.cache
def fitted_to(name: str, seed: int) -> tuple[sm.Fit, sm.RunLog]:
    _, inputs, log = log_of(name, rows=30, seed=seed, noise=1e-3)
    return sm.fit(log, name, inputs.transfer, inputs.languages, **FAST), log


@settings(deadline=None, max_examples=25)
@given(
    seed=st.integers(0, 10**6),
    name=st.sampled_from(["learned-base", "exponential", "additive", "shapley"]),
    scarce=st.booleans(),
)
def test_a_rival_is_as_good_on_as_many_more_tokens(seed: int, name: str, scarce: bool) -> None:
    fitted, log = fitted_to(name, seed % 2)
    rng = np.random.default_rng(seed)
    weights = dict(zip(log.targets, rng.dirichlet(np.ones(4)).tolist(), strict=True))
    N, D = 1e8, 3e9
    available = np.full(4, 1e9) if scarce else None  # a uniform mixture sees each token .75 times, and repeats longer
    at_hand = {} if available is None else {"available": dict.fromkeys(log.sources, 1e9)}
    mix = sm.optimize(fitted, N, D, weights=weights, **at_hand)
    told = [rival for rival in mix.baselines if rival.times <= 2.25]  # as far as D is looked at
    assert told
    for rival in told:
        longer = float(fitted.at(N, D * rival.times, available=available).mean(rival.p)[0] @ mix.weights)
        assert longer == pytest.approx(mix.objective, abs=0.02 * abs(rival.gain) + 1e-6)


def test_one_number_of_tokens_tells_no_rivals_tokens() -> None:
    _, _, log = log_of("learned-base", rows=30, tokens=(3e9,))
    mix = sm.optimize(sm.fit(log, "learned-base", **FAST), 1e8, 3e9)
    assert all(np.isnan(rival.times) for rival in mix.baselines)


def test_a_target_far_from_all_runs_asks_for_one_between() -> None:
    _, _, log = log_of("learned-base", rows=30)
    near = sm.design(4, log, N=5e8, D=2e10, target_N=5e8, target_D=2e10)
    far = sm.design(4, log, N=5e8, D=2e10, target_N=7e9, target_D=1e12)
    assert len(far.notices) == len(near.notices) + 1
    np.testing.assert_array_equal(near.p, far.p)


def test_with_a_fit_the_region_lies_around_its_optimum_at_the_target() -> None:
    _, _, log = log_of("learned-base", rows=40)
    fitted = sm.fit(log, "learned-base", **FAST)
    here, there = (sm.design(4, log, fit=fitted, N=2e7, D=5e8, target_N=N, target_D=D) for N, D in ((2e7, 5e8), FAR))
    same = sm.design(4, log, fit=fitted, N=2e7, D=5e8)
    np.testing.assert_array_equal(here.p, same.p)
    assert not np.allclose(here.p, there.p)


def test_a_rest_that_is_longer_is_another_mixture() -> None:
    _, _, log = log_of("learned-base", rows=30)
    fitted, half = sm.fit(log, "learned-base", **FAST), dict.fromkeys(log.sources, 0.25)
    mix = sm.optimize(fitted, 1e8, 3e9, after=half, trained=1e9)
    assert mix.baselines
    assert all(np.isnan(rival.times) for rival in mix.baselines)


@pytest.mark.parametrize("law", ["auto", "kaplan"])
def test_a_log_without_ratios_answers_for_budgets_and_refuses_mixtures(law: str) -> None:
    N, D = (one.ravel() for one in np.meshgrid(*GRID))
    log = grid_of(bent(0.5), N, D, 1e-3)
    fitted = sm.fit(log, law, **FAST)
    np.testing.assert_allclose(fitted.predict([], N, D).losses, log.loss, rtol=0.05)
    for ask in (lambda: sm.optimize(fitted, 1e9, 1e11), lambda: fitted.predict("uniform", 1e9, 1e11)):
        with pytest.raises(sm.UsageError):
            ask()
    found = sm.compare(log, ["chinchilla", "kaplan"])
    assert found.preferred() == "kaplan", "its errors are smaller beyond chance"
    assert sm.compare(grid_of(bent(1.0), N, D, 5e-3), ["kaplan", "chinchilla"]).preferred() == "chinchilla"
