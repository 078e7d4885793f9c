"""Surfaces: one question has one answer, and intervals hold what they say."""

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from simulated import mixtures

from shapleymix.fitting.fit import Fit, fit
from shapleymix.fitting.noise import Noise
from shapleymix.fitting.own_fit import as_fit
from shapleymix.fitting.surface import Surface, gain_between
from shapleymix.laws.pieces import Pieces
from shapleymix.laws.task_curves import CODES, TaskCurves
from shapleymix.tables.languages import Unit
from shapleymix.tables.run_reading import read_runs

pytestmark = pytest.mark.usefixtures("one_prior")

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
LEVEL = 0.9


def mean(losses: np.ndarray) -> np.ndarray:
    return losses.mean(axis=-1)


@dataclass(frozen=True)
class Tasks:
    """Two tasks of one language, known by a line and a sigmoid."""

    targets: tuple[str, ...]
    labels: tuple[str, ...] = ("one", "two")
    noisy: bool = True

    @property
    def scatter(self) -> np.ndarray:
        return np.array([0.01, 0.02]) * self.noisy

    @property
    def loss_range(self) -> np.ndarray:
        return np.array([[0.1, 10.0], [0.1, 10.0]])

    @property
    def curves(self) -> TaskCurves:
        shape = np.array([CODES["minus"], CODES["sigmoid"]])
        return TaskCurves(np.array([0.1, 2.0]), np.array([1.0, 4.0]), np.array([0.0, 0.25]), shape)

    def draw(self, count: int) -> TaskCurves:
        a, b, guess, shape = self.curves
        wobble = 1 + 0.02 * np.random.default_rng(0).standard_normal((count, 2))
        return TaskCurves(a * wobble, b * wobble, guess, shape)


@cache
def known(case: str) -> tuple[Fit, Surface, np.ndarray]:
    """A fit, its surface in the middle of its runs, and some mixtures of these."""
    names = {
        "regimes": ("multilingual5_runs.csv", "multilingual5_coalitions.csv"),
        "repetition": ("repetition_runs.csv",),
    }
    files = [FIXTURES / name for name in names.get(case, ("multilingual5_runs.csv",))]
    log = read_runs(files)
    law = case if case in ("exponential", "mariner") else "learned-base"
    found = known("learned-base")[0] if case == "scores" else fit(log, law, bootstrap=12, folds=2)
    N, D = float(np.median(log.N)), float(np.median(log.D))
    available = np.full(len(log.sources), 0.15 * D) if case == "repetition" else None
    score = Tasks((found.targets[0],) * 2) if case == "scores" else None
    return found, found.at(N, D, available=available, score=score), log.p[log.trained][:: len(log) // 6]


CASES = pytest.mark.parametrize("case", ["learned-base", "exponential", "mariner", "regimes", "repetition", "scores"])


@CASES
def test_one_question_has_one_answer(case: str):
    _, surface, p = known(case)
    ends, middle = surface.interval(p, LEVEL), surface.mean(p)
    np.testing.assert_array_equal(surface.interval(p[2], LEVEL)[:, 0], ends[:, 2])
    np.testing.assert_array_equal(surface.mean(p[2])[0], middle[2])
    np.testing.assert_array_equal(surface.sample(p), surface.sample(p))
    np.testing.assert_allclose(surface.sample(p[0])[:, 0], surface.sample(p)[:, 0], rtol=1e-12)
    assert ((ends[0] <= middle) & (middle <= ends[1])).all()
    alone = surface.objective_interval(p, lambda losses: losses[..., 0], LEVEL)
    np.testing.assert_array_equal(alone, ends[..., 0])
    wide = surface.objective_interval(p, mean, LEVEL)
    assert ((wide[0] <= mean(middle)) & (mean(middle) <= wide[1])).all()


@CASES
def test_gains_are_of_the_two_mixtures_alone(case: str):
    _, surface, p = known(case)
    one = surface.gain(p[0], p[1], mean, LEVEL)
    assert one.value == pytest.approx(mean(surface.mean(p[1]))[0] - mean(surface.mean(p[0]))[0])
    assert one.low <= one.value <= one.high
    back = surface.gain(p[1], p[0], mean, LEVEL)
    assert (back.value, back.low, back.high) == pytest.approx((-one.value, -one.high, -one.low))
    assert one.probability + back.probability == pytest.approx(1.0)
    same = surface.gain(p[0], p[0].copy(), mean, LEVEL)
    assert (same.value, same.low, same.high, same.probability) == (0.0, 0.0, 0.0, 0.5)
    assert gain_between((surface, p[0]), (surface, p[1]), mean, LEVEL) == one
    calm = surface.gain(p[0], p[1], mean, LEVEL, runs=False)
    assert calm.high - calm.low <= one.high - one.low


@CASES
def test_predict_prints_the_surface(case: str):
    found, surface, p = known(case)
    if surface.measure == "error":
        return
    printed = found.predict(p, surface.N, surface.D, LEVEL, unique=np.broadcast_to(surface.available, p.shape))
    np.testing.assert_array_equal(printed.losses, surface.mean(p))
    there = ~np.isnan(printed.losses)
    np.testing.assert_array_equal(np.stack([printed.low, printed.high])[:, there], surface.interval(p, LEVEL)[:, there])
    assert len(printed.warnings) <= 3
    np.testing.assert_array_equal(printed.outside, surface.outside(p))


@CASES
def test_a_unit_multiplies_losses_and_all_that_is_made_of_them(case: str):
    found, surface, p = known(case)
    if surface.measure == "error":
        return
    size = np.linspace(2.0, 5.0, len(surface.targets))
    factor = 1 / (np.log(2) * size)
    in_bits = surface.read_in(Unit("bits a byte", factor))
    for ask in (Surface.mean, Surface.sample, lambda one, q: one.interval(q, LEVEL)):
        np.testing.assert_allclose(ask(in_bits, p), ask(surface, p) * factor, rtol=1e-12)
    for one, other in ((in_bits.pieces, surface.pieces), (in_bits.draws, surface.draws)):
        if one is not None and other is not None:
            np.testing.assert_allclose(one.losses(p[0]), other.losses(p[0]) * factor, rtol=1e-12)
    table = {"language": found.targets, "bytes_per_token": size}
    unique = np.tile(surface.available, (len(p), 1))
    told = found.predict(p, surface.N, surface.D, languages=table, unit="bpb", unique=unique)
    np.testing.assert_allclose(told.losses, surface.mean(p) * factor, rtol=1e-12)
    assert told.unit == in_bits.unit.name


def test_another_regime_tells_what_lacks_its_language():
    _, surface, p = known("regimes")
    own, q = surface.own, np.full(p.shape[1], 0.0)
    q[1:] = 1 / (len(q) - 1)
    lacking = own == 0
    assert lacking.any()
    np.testing.assert_array_equal(surface.of_law(q)[0][lacking], surface.absent.losses(q)[lacking])
    assert ((surface.edge >= 1e-6) == (own >= 0)).all()
    trace = q + np.where(np.arange(len(q)) == 0, 1e-9, 0.0)
    np.testing.assert_allclose(surface.mean(trace), surface.mean(q), rtol=1e-5)


def test_errors_of_tasks_are_curves_of_losses():
    found, surface, p = known("scores")
    plain = found.at(surface.N, surface.D)
    tasks = surface.score
    np.testing.assert_allclose(surface.mean(p), tasks.curves.errors(plain.mean(p)[:, [0, 0]]), rtol=1e-13)
    sharp = replace(surface, score=Tasks(tasks.targets, noisy=False))
    assert (sharp.sample(p).std(axis=0) < surface.sample(p).std(axis=0)).all()


def test_an_object_of_ones_own_is_wrapped():
    @dataclass(frozen=True)
    class Own:
        sources: tuple[str, ...] = ("a", "b")
        targets: tuple[str, ...] = ("a", "b")

        def pieces(self, N: float, D: float) -> Pieces:
            return Pieces("power", np.zeros(2), np.full(2, 3.0), np.full(2, 0.2), np.array([[1.0, 0.2], [0.3, 1.0]]))

        def predict(self, p, N, D):
            return self.pieces(1, 1).losses(p)

    p = mixtures(3, 2)
    surface = as_fit(Own()).at(1e8, 1e9)
    np.testing.assert_allclose(surface.mean(p), Own().predict(p, 0, 0), rtol=1e-14)
    assert np.isnan(surface.interval(p, LEVEL)).all()
    found, there, _ = known("learned-base")
    np.testing.assert_array_equal(
        as_fit(found).at(there.N, there.D).mean(p @ np.eye(2, 5)), there.mean(p @ np.eye(2, 5))
    )


def test_noise_is_recovered():
    """Residuals of a known scale, correlation and common part."""
    draws = np.random.default_rng(0)
    rows, targets, budgets = 1200, 4, 60
    cells = np.arange(rows) % budgets
    field = 0.6 * draws.standard_normal((rows, 1)) + 0.8 * draws.standard_normal((rows, targets))
    size = np.array([0.01, 0.02, 0.03, 0.04])
    common = draws.standard_normal((budgets, targets))[cells]
    held = size * (np.sqrt(0.75) * field + 0.5 * common)
    found = Noise.of(held, held, held, np.arange(rows), cells)
    np.testing.assert_allclose(found.scale, size, rtol=0.1)
    assert found.shared == pytest.approx(0.36 * 0.75, abs=0.06)
    assert (found.common, found.runs) == (pytest.approx(0.25, abs=0.06), pytest.approx(rows, rel=0.01))
    half = Noise.of(2 * held, 2 * held, held, np.arange(rows), cells)
    np.testing.assert_allclose(half.scale, size * np.sqrt(2), rtol=0.1)  # between what is left and what is missed
    assert Noise.of(np.full((3, 2), np.nan), *np.zeros((2, 3, 2)), np.arange(3), np.arange(3)) is None


def test_rows_of_one_mixture_are_no_runs_of_their_own():
    draws = np.random.default_rng(1)
    groups = np.repeat(np.arange(40), 5)
    alike = 0.01 * draws.standard_normal((40, 3))[groups]
    found = Noise.of(alike, alike, alike, groups, np.zeros(200, dtype=int))
    assert found.runs == pytest.approx(40, rel=0.05)


def test_an_interval_opens_with_the_distance_from_the_runs():
    found, surface, p = known("learned-base")
    widths = []
    for factor in (1.0, 4.0, 16.0):
        low, high = found.at(surface.N * factor, surface.D * factor).interval(p[:1], LEVEL)
        widths.append(float(np.log(high / low).mean()))
    assert widths[0] < widths[1] < widths[2]
