"""The scatter of held-out losses as a field over mixtures: against known fields, and what must not matter."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from shapleymix.fitting.misfit import Misfit, misfit_of
from shapleymix.laws import Law
from shapleymix.records import FloatArray
from shapleymix.tables.runs import RunLog

SCALE = np.array([0.01, 0.02, 0.04, 0.02])
TRUTH = Misfit(SCALE, 0.4, 0.75, 0.2, 0)


class Linear(Law):
    """A law of loss 2 everywhere, times exp(p slopes)."""

    slopes: FloatArray

    def losses(self, p, N, D):
        return 2 * np.exp(p @ self.slopes)


def linear(slopes: FloatArray | None = None) -> Linear:
    law = object.__new__(Linear)
    object.__setattr__(law, "slopes", np.zeros((5, 4)) if slopes is None else slopes)
    return law


@dataclass(frozen=True)
class Case:
    log: RunLog
    residual: FloatArray


def log_of(p: FloatArray, N: FloatArray, residual: FloatArray) -> RunLog:
    names = tuple(f"r{row}" for row in range(len(p)))
    return RunLog(names, N, np.full(len(p), 1e9), p, 2 * np.exp(residual), tuple("abcde"), tuple("wxyz"))


def drawn(rows: int, seed: int, sizes: int = 1, sources: int = 5, truth: Misfit = TRUTH) -> Case:
    """Runs whose residuals are a draw of the field, at each size another."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(sources), rows)
    near = np.exp(-(1 - np.sqrt(p) @ np.sqrt(p).T) / truth.reach)
    fields = np.linalg.cholesky(truth.smooth * near + (1 - truth.smooth) * np.eye(rows))
    between = truth.shared + (1 - truth.shared) * np.eye(len(truth.scale))
    mix = np.linalg.cholesky(between * np.outer(truth.scale, truth.scale))
    residual = np.concatenate([fields @ rng.normal(size=(rows, len(mix))) @ mix.T for _ in range(sizes)])
    return Case(log_of(np.tile(p, (sizes, 1)), 10.0 ** (6 + np.repeat(np.arange(sizes), rows)), residual), residual)


def found(case: Case, loss: FloatArray | None = None) -> Misfit:
    """What held-out residuals alone say."""
    loss = case.log.loss if loss is None else loss
    misfit = misfit_of(case.log, loss, np.full(loss.shape, 2.0), linear(), replicated=False)
    assert misfit is not None
    return misfit


def test_the_numbers_of_a_known_field_are_found():
    several = [found(drawn(120, seed)) for seed in range(8)]
    np.testing.assert_allclose(np.mean([one.scale for one in several], axis=0), SCALE, rtol=0.15)
    assert np.mean([one.shared for one in several]) == pytest.approx(0.4, abs=0.12)
    assert np.median([one.smooth for one in several]) == pytest.approx(0.75, abs=0.16)
    assert np.median([one.reach for one in several]) in (0.1, 0.2, 0.4)


@pytest.mark.parametrize("rows", [12, 40])
def test_what_a_gain_needs_holds_with_few_runs(rows: int):
    """The error of a difference of means of losses, in units of the spread that is said, has about size 1."""
    ratios = []
    for seed in range(60):
        case = drawn(rows + 2, seed)
        known = Case(case.log.select(np.arange(rows)), case.residual[:rows])
        p, error = case.log.p[rows:], case.residual[rows:].mean(axis=1)
        each = np.full(4, 0.25)
        ratios.append((error[0] - error[1]) / found(known).spread(p[0], each, p[1], each))
    assert np.sqrt(np.mean(np.square(ratios))) == pytest.approx(1, abs=0.25)


def test_noise_alone_is_not_taken_for_a_smooth_field():
    noise = Misfit(SCALE, 0.4, 0.0, 0.2, 0)
    assert np.median([found(drawn(100, seed, truth=noise)).smooth for seed in range(5)]) <= 0.25


def test_several_sizes_are_told_together_and_a_size_of_few_runs_is_left_out():
    one, two = drawn(60, 1), drawn(60, 1, sizes=2)
    assert found(two).runs == 120
    few = two.log.select(np.arange(63))
    assert found(Case(few, two.residual[:63])) == found(one)


def test_only_the_last_row_of_a_run_counts():
    case = drawn(40, 2)
    early = replace(case.log, D=case.log.D / 2, loss=case.log.loss * 1.3)
    parts = {name: np.concatenate([getattr(early, name), getattr(case.log, name)]) for name in ("N", "D", "p", "loss")}
    both = replace(early, runs=case.log.runs * 2, **parts)
    assert found(Case(both, np.tile(case.residual, (2, 1)))) == found(case)


def test_what_all_mixtures_have_in_common_cancels():
    case = drawn(50, 3)
    plain, shifted = found(case), found(case, case.log.loss * np.array([1.1, 0.8, 1.0, 1.3]))
    np.testing.assert_allclose(shifted.scale, plain.scale, rtol=1e-9)


def test_one_failed_fold_does_not_set_the_scale():
    case = drawn(30, 4)
    wild = case.log.loss.copy()
    wild[7] *= 10
    assert (found(case, wild).scale < 2 * found(case).scale).all()


def test_missing_losses_are_left_out_and_a_target_without_any_has_no_scale():
    case = drawn(100, 5)
    loss = case.log.loss.copy()
    loss[::3, 0] = np.nan
    loss[:, 3] = np.nan
    misfit = found(case, loss)
    np.testing.assert_allclose(misfit.scale[:3], found(case).scale[:3], rtol=0.4)
    assert misfit.scale[3] == 0


def regressed(rows: int, seed: int, sigma: FloatArray) -> Misfit:
    """The misfit of a law that is fitted to noise about a line, and predicts each run from the others."""
    case = drawn(rows, seed, truth=Misfit(sigma, 0.0, 0.0, 0.2, 0))
    p, residual = case.log.p, case.residual
    slopes = np.linalg.lstsq(p, residual, rcond=None)[0]
    leverage = np.diag(p @ np.linalg.pinv(p))[:, None]
    held_out = residual - (residual - p @ slopes) / (1 - leverage)
    misfit = misfit_of(case.log, case.log.loss, 2 * np.exp(held_out), linear(slopes), replicated=True)
    assert misfit is not None
    return misfit


@pytest.mark.parametrize("rows", [9, 14, 40])
def test_how_little_a_law_is_known_is_no_misfit(rows: int):
    """Five slopes for 9 runs: held-out residuals are half as large again as what a run scatters by."""
    scale = np.sqrt(np.mean([regressed(rows, seed, np.full(4, 0.02)).scale ** 2 for seed in range(40)]))
    assert scale == pytest.approx(0.02, rel=0.15)


def test_a_run_scatters_even_where_the_fit_is_exact():
    """Fault: where replicates spread as much as the residuals, a gain held no noise of a run at all."""
    case = drawn(20, 6)
    flat, predicted = np.full((20, 4), 2.0), 2 * np.exp(case.residual)
    exact, plain = (misfit_of(case.log, flat, predicted, linear(), replicated=known) for known in (True, False))
    assert exact is not None
    assert plain is not None
    np.testing.assert_allclose(exact.scale, plain.scale / 2)


def test_few_runs_tell_no_target_apart():
    """With four runs, a target whose three contrasts happen to be small is no target without noise."""
    case = drawn(4, 3, truth=Misfit(np.full(4, 0.02), 0.0, 0.0, 0.2, 0))
    quiet = case.log.loss.copy()
    quiet[:, 1] = 2 * (quiet[:, 1] / 2) ** 1e-3
    alone, many = found(case, quiet), found(drawn(120, 3, truth=Misfit(np.array([0.02, 2e-5, 0.02, 0.02]), 0, 0, 1, 0)))
    assert 0.3 < alone.scale[1] / np.median(alone.scale) < 1
    assert many.scale[1] < 0.25 * np.median(many.scale)


@pytest.mark.parametrize("lost", ["predictions", "mixtures", "sources"])
def test_nothing_is_made_up_where_nothing_is_known(lost: str):
    case = drawn(3 if lost == "mixtures" else 20, 7)
    log, predicted = case.log, np.full(case.log.loss.shape, 2.0)
    if lost == "sources":
        log = RunLog(log.runs, log.N, log.D, np.ones((20, 1)), log.loss, ("a",), log.targets)
    assert misfit_of(log, log.loss, None if lost == "predictions" else predicted, linear(), replicated=True) is None


def test_a_law_without_any_error_has_no_misfit():
    case = drawn(20, 8)
    flat = np.full((20, 4), 2.0)
    assert misfit_of(case.log, flat, flat, linear(), replicated=True) is None


def test_the_error_of_a_difference_grows_with_the_distance():
    p, each = np.full(5, 0.2), np.full(4, 0.25)
    way = [p + share * (np.eye(5)[0] - p) for share in (0, 0.01, 0.1, 0.5, 1)]
    spreads = [TRUTH.spread(p, each, q, each) for q in way]
    assert spreads[0] == 0
    assert spreads == sorted(spreads)
    seeds = np.sqrt(2 * (1 - TRUTH.smooth) * TRUTH.covariance(each, each))
    assert spreads[1] == pytest.approx(seeds, rel=0.01)
    assert TRUTH.spread(p, each, way[1], each, runs=False) < 0.1 * seeds
    assert TRUTH.spread(way[3], each, p, 2 * each) == pytest.approx(TRUTH.spread(p, 2 * each, way[3], each), rel=1e-12)
    one, other = np.eye(4)[0], np.eye(4)[1]
    assert TRUTH.covariance(one, other) == pytest.approx(0.4 * SCALE[0] * SCALE[1])
    assert TRUTH.covariance(one, one) == pytest.approx(SCALE[0] ** 2)


@pytest.mark.parametrize("wrong", [{"smooth": 1.2}, {"reach": 0.0}, {"shared": -0.1}, {"scale": np.array([np.nan])}])
def test_impossible_numbers_are_refused(wrong):
    with pytest.raises(ValueError, match=r"misfit|between"):
        Misfit(**({"scale": SCALE, "shared": 0.4, "smooth": 0.5, "reach": 0.2, "runs": 3} | wrong))
