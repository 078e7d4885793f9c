"""What the budgets of a log cannot tell: the loss at them stays, and intervals open away from them."""

from dataclasses import replace

import numpy as np
import pytest
from simulated import log_of, mixtures

from shapleymix.fitting.fit import fit
from shapleymix.fitting.symbols import Levels, draw_untold
from shapleymix.laws import LAWS
from shapleymix.laws.core import EXPONENT_PRIOR, LEAST_SLOPE, SLOPE_PRIOR, CoreLaw
from shapleymix.laws.learned_base import LearnedBase

CORES = [name for name, law in LAWS.items() if issubclass(law, CoreLaw)]
FACTORS = [name for name in CORES if name not in ("effective-data", "exponential", "additive")]
LOW, HIGH = np.array([1e8]), np.array([8e8])
TOKENS = np.array([3e9])
MEAN = np.full(4, 0.25)


def truth_of(name: str) -> CoreLaw:
    """A simulated law with Chinchilla's core."""
    return log_of(name, rows=24)[0]


def spread_out(law: CoreLaw, count: int, levels: Levels, seed: int) -> CoreLaw:
    """So many replicates of a law, each with a draw of its own."""
    return draw_untold(
        law.map(lambda known, value: np.stack([value] * count) if known.is_fitted else value), levels, seed
    )


@pytest.mark.parametrize("name", CORES)
@pytest.mark.parametrize(("sizes", "tokens"), [((1e8,), (1e9, 3e9, 9e9)), ((1e8, 8e8), (3e9,)), ((1e8,), (3e9,))])
def test_what_is_drawn_changes_no_loss_at_the_budgets_that_were_seen(name, sizes, tokens):
    truth = truth_of(name)
    if isinstance(truth, LearnedBase):  # what one value of a budget cannot tell is held at nothing
        truth = truth.swap(
            eta=truth.eta * (len(sizes) > 1),
            zeta=truth.zeta * (len(tokens) > 1),
            first_N=np.full(4, min(sizes)),
            first_D=np.full(4, min(tokens)),
        )
    levels = Levels(np.array(sizes), np.array(tokens), MEAN, False)
    p = mixtures(6, 4, seed=3)
    drawn = spread_out(truth, 50, levels, seed=1)
    assert min(symbol.min() for symbol in (drawn.E, drawn.alpha, drawn.beta)) >= 0
    for N in sizes:
        for D in tokens:
            budget = np.full(6, N), np.full(6, D)
            expected = truth(p, *budget)
            np.testing.assert_allclose(levels.complete(truth)(p, *budget), expected, rtol=1e-10)
            inside = (drawn.alpha < 2.9) & (drawn.beta < 2.9)  # a bound of the exponent comes before the losses
            found = np.where(inside[:, None, :], drawn(p, *budget), expected)
            np.testing.assert_allclose(found, np.broadcast_to(expected, found.shape), rtol=1e-9)


@pytest.mark.parametrize(("levels", "moves"), [((1e8,), True), ((1e8, 8e8), True), ((1e8, 3e8, 8e8), False)])
def test_replicates_part_beyond_budgets_that_tell_too_little(levels, moves):
    truth = truth_of("chinchilla")
    drawn = spread_out(truth, 400, Levels(np.array(levels), np.array([1e9, 2e9, 3e9]), MEAN, False), seed=1)
    p = np.full((3, 4), 0.25)
    spread = np.log(drawn(p, np.array([1.6e9, 6.4e9, 2.56e10]), np.full(3, 2e9))).std(axis=0)
    assert ((np.diff(spread, axis=0) > 0).all(), (spread > 1e-3).all()) == (moves, moves)


def slopes_of(law: CoreLaw, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`-d log L / d log N` and `-d log L / d log D` of a mixture at `LOW` and `TOKENS`, (..., K) each."""
    up, down = np.exp(1e-4), np.exp(-1e-4)
    by_size = np.log(law(p[None], LOW * down, TOKENS) / law(p[None], LOW * up, TOKENS))
    by_data = np.log(law(p[None], LOW, TOKENS * down) / law(p[None], LOW, TOKENS * up))
    return by_size[..., 0, :] / 2e-4, by_data[..., 0, :] / 2e-4


@pytest.mark.parametrize("name", FACTORS)
def test_one_budget_goes_on_as_public_runs_do_where_the_core_is_a_factor(name):
    _, given, log = log_of("effective-data", rows=30, sizes=(1e8,), tokens=(3e9,), noise=2e-3)
    found = fit(log, name, given.transfer, given.languages, bootstrap=20, folds=0)
    levels = Levels.of(log, slice(None))
    drawn = spread_out(found.law, 2000, levels, seed=0)
    for law, near in ((found.law, 0.03), (drawn, 0.1)):
        by_size, by_data = (np.median(slope.reshape(-1, 4), axis=0) for slope in slopes_of(law, levels.p))
        np.testing.assert_allclose(by_size, SLOPE_PRIOR["N"].center, rtol=near)
        assert by_data == pytest.approx(np.exp(SLOPE_PRIOR["D"].center), rel=near)
    steep = slopes_of(drawn, levels.p)[0].std(axis=0)
    assert (steep > 0.6 * SLOPE_PRIOR["N"].spread).all(), "the draws are as unsure as the belief"
    assert (slopes_of(found.replicates, levels.p)[0] > 0.9 * LEAST_SLOPE).all()


def test_a_law_of_another_core_and_a_term_that_the_mixture_tells_are_left_alone():
    """Effective data's B and beta are told by the mixtures, whatever the tokens."""
    truth = truth_of("effective-data")
    levels = Levels(np.array([1e7, 1e8, 1e9]), np.array([3e9]), MEAN, False)
    assert levels.complete(truth) is truth
    assert spread_out(truth, 3, levels, seed=0).beta.tolist() == [truth.beta.tolist()] * 3


@pytest.mark.parametrize("seed", range(3))
def test_intervals_hold_the_truth_beyond_two_sizes(seed):
    """Truths with exponents of the belief, fitted at two sizes: at 4 times the larger, 90% means 90%."""
    rng = np.random.default_rng(seed)
    inside = []
    for number in range(4):
        truth, _, log = log_of("chinchilla", rows=40, sizes=(1e8, 3e8), tokens=(1e9, 3e9, 9e9), noise=3e-3, seed=number)
        drawn = truth.swap(
            alpha=np.exp(EXPONENT_PRIOR["N"].center + EXPONENT_PRIOR["N"].spread * rng.standard_normal(4))
        )
        scale = 0.3 * truth.E * 1e8**drawn.alpha
        law = drawn.swap(A=scale)
        loss = law(log.p, log.N, log.D) * np.exp(3e-3 * rng.standard_normal(log.loss.shape))
        found = fit(replace(log, loss=loss), "chinchilla", bootstrap=60, folds=3, starts=2)
        told = found.predict([0.25] * 4, 1.2e9, 3e9)
        expected = law(told.p, told.N, told.D)
        inside.append((told.low <= expected) & (expected <= told.high))
    assert np.mean(inside) >= 0.75
