"""What losses of one N and D have in common, and how much they scatter: against known effects, and without any."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

import shapleymix as sm
from shapleymix.fitting.cells import Cells, cells_of
from shapleymix.fitting.fits import Fit
from shapleymix.fitting.uncertainty import Spread, residual_quantiles
from shapleymix.mixing.doubts import Doubts, Outlook
from shapleymix.mixing.fit_like import misfit_of
from shapleymix.records import FloatArray
from shapleymix.tables.runs import RunLog

SIZES, TOKENS, MIXTURES, TARGETS = (1e6, 4e6, 1.6e7, 6.4e7), (1e8, 2e8, 4e8), 25, 4
EVEN = np.ones((2, 2))
TWO = Cells(np.array([1e6, 1e7]), np.array([1e8, 1e8]), np.full(2, 9.0), EVEN, EVEN, np.ones(2), 0.5)
NOISE, TAU = np.array([0.02, 0.03, 0.02, 0.01]), np.array([0.02, 0.01, 0.01, 0.02])


@dataclass(frozen=True)
class Truth:
    """Losses about a law that is linear in logs: effects of cells and scatter, and a fit that follows the former."""

    log: RunLog
    residual: FloatArray
    fitted: FloatArray


def drawn(seed: int, tau: FloatArray = TAU, louder: float = 1.0, tokens: tuple[float, ...] = TOKENS) -> Truth:
    """Runs of every cell, those of the largest size scattering so many times as far."""
    rng = np.random.default_rng(seed)
    N, D = (values.ravel() for values in np.meshgrid(SIZES, tokens, indexing="ij"))
    effects = tau * rng.normal(size=(len(N), TARGETS))
    place = np.repeat(np.arange(len(N)), MIXTURES)
    noise = NOISE * rng.normal(size=(len(place), TARGETS)) * np.where(N[place] == SIZES[-1], louder, 1.0)[:, None]
    X = np.stack([np.ones(len(N)), np.log(N), np.log(D)], axis=1)
    means = np.stack([(effects[place] + noise)[place == cell].mean(axis=0) for cell in range(len(N))])
    fitted: FloatArray = np.linalg.pinv(X) @ means
    residual = effects[place] + noise - (X @ fitted)[place]
    p = np.tile(rng.dirichlet(np.ones(3), MIXTURES), (len(N), 1))
    runs = tuple(map(str, range(len(place))))
    log = RunLog(runs, N[place], D[place], p, 2 * np.exp(residual), tuple("abc"), tuple("wxyz"))
    return Truth(log, residual, fitted)


def cells(truth: Truth) -> Cells:
    found = cells_of(truth.log, truth.residual)
    assert found is not None
    return found


def spread(truth: Truth, found: Cells | None) -> Spread:
    """Intervals of held-out scatter alone, with cells or without."""
    residual, log = truth.residual, truth.log
    known = residual if found is None else residual / found.factors(log.N, log.D)
    return Spread(None, residual_quantiles(known, log.groups), None, found)


def width(one: Spread, N: FloatArray, D: FloatArray) -> FloatArray:
    low, high = one.interval(np.ones((len(N), TARGETS)), np.ones((len(N), 3)) / 3, N, D, 0.9)
    return np.log(high / low)


def test_the_effects_of_known_cells_are_found():
    several = [cells(drawn(seed)) for seed in range(30)]
    tau = np.sqrt(np.mean([one.effect**2 for one in several], axis=0))
    np.testing.assert_allclose(np.log(tau / TAU), 0, atol=np.log(1.6))  # drawn to the mean of all targets
    assert (tau[[0, 3]] > tau[[1, 2]]).all()


def test_the_scatter_of_known_cells_is_found():
    several = [cells(drawn(seed, 0 * TAU, louder=2.5)) for seed in range(10)]
    quiet, loud = (np.mean([one.factor[rows] for one in several]) for rows in (slice(0, 9), slice(9, 12)))
    assert loud / quiet == pytest.approx(2.5, rel=0.1)


def test_a_common_error_is_no_scatter_of_gains():
    """One cell is off by a lot at every mixture: its losses scatter about the law, and not about each other."""
    truth = drawn(1, 0 * TAU)
    off = truth.log.N == 1e6
    found = cells(replace(truth, residual=truth.residual + np.where(off, 0.1, 0.0)[:, None]))
    np.testing.assert_allclose(found.apart, cells(truth).apart, rtol=1e-9)
    assert (found.factor[:3] > 2 * found.factor[3:].max()).all()


def test_intervals_at_budgets_without_runs_hold_what_they_say():
    """Fault: what losses of one budget have in common was in no interval elsewhere, and 90% held three of four."""
    N, D = np.array([8e6, 2.56e8, 1e6]), np.array([2.8e8, 2e8, 8e8])
    X = np.stack([np.ones(3), np.log(N), np.log(D)], axis=1)
    inside: dict[str, list[float]] = {"with": [], "without": []}
    for seed in range(60):
        truth = drawn(seed)
        rng = np.random.default_rng([seed, 1])
        error = TAU * rng.normal(size=(3, TARGETS)) + NOISE * rng.normal(size=(3, TARGETS)) - X @ truth.fitted
        for name, found in (("with", cells(truth)), ("without", None)):
            bound = width(spread(truth, found), N, D) / 2
            inside[name].append((np.abs(error) <= bound).mean())
    assert np.mean(inside["with"]) == pytest.approx(0.9, abs=0.03)
    assert np.mean(inside["without"]) < 0.86


def test_intervals_of_louder_and_quieter_cells_hold_what_they_say():
    """Fault: one scale for all cells held nearly all losses of quiet ones, and two of three of a loud one."""
    inside = np.zeros((2, 2))
    for seed in range(30):
        seen, new = drawn(seed, 0 * TAU, 2.5), drawn(seed + 1000, 0 * TAU, 2.5)
        loud = SIZES[-1] == new.log.N
        for number, found in enumerate((cells(seen), None)):
            held = np.abs(new.residual) <= width(spread(seen, found), new.log.N, new.log.D) / 2
            inside[number] += [held[~loud].mean() / 30, held[loud].mean() / 30]
    np.testing.assert_allclose(inside[0], 0.9, atol=0.025)
    assert inside[1, 0] > 0.93
    assert inside[1, 1] < 0.75


def test_without_effects_intervals_are_as_before():
    ratios = []
    for seed in range(30):
        truth = drawn(seed, 0 * TAU)
        N, D = np.append(truth.log.N, 8e6), np.append(truth.log.D, 2.8e8)
        ratios.append(width(spread(truth, cells(truth)), N, D) / width(spread(truth, None), N, D))
    assert np.mean(ratios) == pytest.approx(1, abs=0.02)
    assert np.quantile(ratios, [0.02, 0.98]) == pytest.approx(1, abs=0.15)


def test_an_effect_grows_from_the_cells_outwards_and_without_steps():
    found = cells(drawn(0))
    away = 1.6e7 * np.exp(np.array([0.0, 0.005, 0.1, 0.4, 1.0]))
    sd = found.elsewhere(away, np.full(5, 4e8))[:, 0]
    assert sd[0] == 0
    assert sd[1] < 0.02 * found.effect[0]
    assert (np.diff(found.elsewhere(6.4e7 * np.array([1, 2, 8, 64.0]), np.full(4, 4e8))[:, 0]) > 0).all()
    factors = found.factors(6.4e7 * np.array([1, 1.001, 1.01, 1e6]), np.full(4, 4e8))
    np.testing.assert_allclose(factors[:3], np.tile(found.factor[-1], (3, 1)), rtol=0.01)
    np.testing.assert_allclose(factors[3], 1, rtol=0.2)


def test_scale_order_and_names_do_not_matter():
    truth = drawn(1, louder=2)
    found, rng = cells(truth), np.random.default_rng(0)
    rows, targets = rng.permutation(len(truth.log)), rng.permutation(TARGETS)
    other = cells_of(truth.log.select(rows), 3 * truth.residual[rows][:, targets])
    assert other is not None
    np.testing.assert_allclose(other.factor, found.factor[:, targets], rtol=1e-9)
    np.testing.assert_allclose(other.effect, 3 * found.effect[targets], rtol=1e-9)
    assert other.shared == pytest.approx(found.shared)


def test_effects_that_all_targets_share_are_told_from_those_that_each_has():
    alone, together = (np.mean([cells(one).shared for one in many]) for many in (
        [drawn(seed, 2 * TAU) for seed in range(10)],
        [replace(one, residual=np.repeat(one.residual[:, :1], 4, axis=1)) for one in map(drawn, range(10))],
    ))  # fmt: skip
    assert alone < 0.2
    assert together == pytest.approx(1)


def test_rows_of_one_mixture_tell_no_more_than_one():
    """Three seeds of each mixture that are off alike: the means over cells are no surer for it."""
    truth = drawn(3, 0 * TAU)
    again = np.repeat(np.arange(len(truth.log)), 3)
    many = replace(truth.log.select(again), runs=tuple(map(str, range(len(again)))))
    found = cells_of(many, truth.residual[again])
    assert found is not None
    np.testing.assert_allclose(found.effect, cells(truth).effect, atol=1e-3)
    np.testing.assert_array_equal(found.runs, MIXTURES)


def test_missing_losses_are_left_out_and_a_target_without_any_has_neither():
    truth = drawn(2, louder=2)
    residual = truth.residual.copy()
    residual[::3, 0] = np.nan
    residual[:, 3] = np.nan
    residual[SIZES[0] == truth.log.N, 1] = np.nan
    found = cells_of(truth.log, residual)
    assert found is not None
    assert (found.effect[:3] > 0).all()
    assert found.effect[3] == 0
    np.testing.assert_allclose(found.factor[:, 0], cells(truth).factor[:, 0], rtol=0.35)


@pytest.mark.parametrize("lost", ["budgets", "mixtures", "losses", "tokens", "alike"])
def test_nothing_is_made_up_where_there_are_no_cells(lost: str):
    truth = drawn(0)
    log, residual = truth.log, truth.residual
    rng = np.random.default_rng(0)
    if lost == "budgets":
        log, residual = log.select(np.arange(MIXTURES)), residual[:MIXTURES]
    elif lost == "mixtures":
        keep = np.arange(len(log)) % MIXTURES < 3
        log, residual = log.select(keep), residual[keep]
    elif lost == "losses":
        residual = np.full_like(residual, np.nan)
    elif lost == "tokens":
        log = replace(log, D=0 * log.D)
    else:
        log = replace(log, N=np.exp(rng.uniform(10, 18, len(log))))
    assert cells_of(log, residual) is None


def test_three_sizes_of_one_token_count_tell_scatter_and_no_effect():
    truth = drawn(0, tokens=(1e8,))
    keep = SIZES[0] < truth.log.N
    found = cells_of(truth.log.select(keep), truth.residual[keep])
    assert found is not None
    np.testing.assert_array_equal(found.effect, 0.0)
    np.testing.assert_array_equal(found.elsewhere(np.array([1e6, 1e9]), np.array([1e8, 1e9])), 0.0)


def test_residuals_of_zero_are_no_fault():
    truth = drawn(0)
    found = cells(replace(truth, residual=0 * truth.residual))
    np.testing.assert_array_equal(found.effect, 0.0)
    np.testing.assert_array_equal(found.factor, 1.0)


def test_one_failed_fold_does_not_set_an_effect():
    truth = drawn(4)
    wild = truth.residual.copy()
    wild[7] += 20
    assert (cells(replace(truth, residual=wild)).effect < 1.6 * cells(truth).effect + 0.01).all()


def test_hundreds_of_budgets_are_thinned_evenly():
    truth = drawn(0, tokens=tuple(1e8 * 1.1 ** np.arange(60)))
    found = cells(truth)
    assert len(found.N) == 150
    assert set(found.N) == set(SIZES)
    assert (found.D.min(), found.D.max()) == (truth.log.D.min(), truth.log.D.max())


# in fits and answers


@cache
def fitted(path: Path) -> Fit:
    return sm.fit(sm.read_runs(path), "learned-base", bootstrap=9, folds=4, threads=1)


@pytest.fixture
def fit(fixtures: Path) -> Fit:
    return fitted(fixtures / "study" / "log.csv")


def test_a_fit_keeps_its_cells(fit: Fit, tmp_path: Path):
    fit.save(tmp_path / "fit.json")
    again = Fit.load(tmp_path / "fit.json")
    assert again.cells == fit.cells
    assert fit.cells is not None
    for point in ((389760, 1e6), (97600, 7e5), (1.5e6, 4e6)):
        one, other = (each.predict("uniform", *point) for each in (fit, again))
        np.testing.assert_array_equal(one.low, other.low)
        assert (one.low < one.losses).all()


def test_gains_stay_and_the_objective_opens_by_what_all_mixtures_have_in_common(fit: Fit):
    assert fit.cells is not None
    without = replace(fit, cells=replace(fit.cells, effect=0 * fit.cells.effect))
    for N, D in ((389760, 999424), (1.5e6, 4e6)):
        known, bare = (sm.optimize(one, N, D) for one in (fit, without))
        assert [entry.gain for entry in known.baselines] == [entry.gain for entry in bare.baselines]
        assert known.objective == bare.objective
        assert known.objective_high - known.objective_low > bare.objective_high - bare.objective_low


def test_a_difference_has_no_effect_in_it_and_a_loss_has():
    effect = TWO
    at = np.array([1.0, 2.0])
    known, bare = (Doubts(None, True, 0.9, None, one) for one in (effect.common(1e9, 1e8), None))
    one, other = (Outlook(np.ones(1), value, np.full(5, value), at) for value in (3.0, 2.5))
    assert known.gain(other, one) == bare.gain(other, one)
    assert bare.objective(one) == (3.0, 3.0)
    low, high = known.objective(one)
    sd = effect.common(1e9, 1e8).scale[0]
    assert high - low == pytest.approx(2 * norm.ppf(0.95) * sd * np.sqrt(0.5 * 9 + 0.5 * 5), rel=0.1)


@pytest.mark.parametrize("wrong", [
    {"factor": np.ones((2, 3))}, {"factor": np.zeros((2, 2))}, {"effect": np.array([np.nan, 1.0])},
    {"effect": np.ones(3)}, {"apart": np.ones((3, 2))}, {"apart": -EVEN},
])  # fmt: skip
def test_impossible_numbers_are_refused(wrong: dict[str, FloatArray]):
    TWO.check(2)
    with pytest.raises(ValueError, match="cells"):
        replace(TWO, **wrong).check(2)


def test_intervals_hold_losses_of_the_study_that_were_trained_later(fit: Fit, fixtures: Path):
    """Fault: they held 71% of the proof's losses of runs with the target's own language."""
    new = sm.read_runs(fixtures / "study" / "proof.csv")
    told = fit.predict(new.p, new.N, new.D)
    inside = (told.low <= new.loss) & (new.loss <= told.high)
    assert 0.85 <= inside[new.p > 0].mean() <= 0.97


def test_gains_know_how_runs_of_their_budget_scatter(fit: Fit):
    """Fault: pairs of mixtures of the cell that scatters most lay within 90% intervals in four of five."""
    assert fit.cells is not None
    assert fit.misfit is not None
    N, D = float(fit.cells.N[-1]), float(fit.cells.D[-1])
    known = misfit_of(fit, N, D)
    assert known is not None
    np.testing.assert_allclose(known.scale, fit.misfit.scale * fit.cells.apart[-1], rtol=1e-3)
    widths = []
    for times in (0.5, 1.0, 2.0):
        answer = sm.optimize(replace(fit, cells=replace(fit.cells, apart=times * fit.cells.apart)), N, D)
        widths.append(answer.baselines[0].gain_high - answer.baselines[0].gain_low)
    assert widths == sorted(widths)
    assert widths[2] > 1.5 * widths[1]
