"""The paper's formulas against the engine, and the erratum: the printed first order has the wrong sign."""

from __future__ import annotations

import numpy as np
import pytest
from known_fits import FakeFit

from shapleymix.errors import SolveError, UsageError
from shapleymix.laws.terms import PowerTerms
from shapleymix.mixing.bounds import Bounds
from shapleymix.mixing.closed_forms import (
    clipped,
    closed_form,
    diagonal,
    first_order,
    first_order_printed,
    interior,
)
from shapleymix.mixing.engine.barrier import minimise
from shapleymix.mixing.optimization import optimize

K = 10


def draw(rng: np.random.Generator, scale: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    phi = rng.uniform(0, scale, (K, K))
    np.fill_diagonal(phi, 1.0)
    return rng.uniform(0.5, 2, K), rng.uniform(0.05, 0.4, K), phi


def optimum(a, gamma, phi) -> np.ndarray:
    terms = PowerTerms(np.zeros(len(a)), a, gamma, phi)
    return minimise(terms, np.ones(len(a)), np.zeros(len(phi)), np.ones(len(phi))).p


def distances(scale: float, problems: int = 50) -> np.ndarray:
    """Mean L1 distance to the optimum of: diagonal, first order as printed, first order corrected, interior."""
    rng, rows = np.random.default_rng(0), []
    for _ in range(problems):
        drawn = draw(rng, scale)
        exact = optimum(*drawn)
        guesses = [diagonal(*drawn), first_order_printed(*drawn), first_order(*drawn)]
        inner = interior(*drawn)
        row = [np.abs(guess - exact).sum() for guess in guesses]
        rows.append([*row, np.abs(inner - exact).sum() if (inner >= 0).all() else np.nan])
    return np.nanmean(np.array(rows), axis=0)


@pytest.mark.parametrize("scale", [0.02, 0.05, 0.1])
def test_the_corrected_sign_is_nearer_and_the_interior_solution_exact(scale):
    plain, printed, corrected, exact = distances(scale)
    assert corrected < plain
    assert corrected < printed
    assert exact < 1e-9


def test_the_printed_formula_is_the_papers_language_by_language():
    a, gamma, phi = draw(np.random.default_rng(1), 0.1)
    plain = diagonal(a, gamma, phi)
    printed = [plain[i] * (1 - sum(phi[i, j] for j in range(K) if j != i) / (gamma[i] + 1)) for i in range(K)]
    np.testing.assert_allclose(first_order_printed(a, gamma, phi), np.array(printed) / np.sum(printed), rtol=1e-12)


def test_the_printed_sign_moves_away_from_the_optimum():
    plain, printed, corrected, _ = distances(0.1)
    assert printed > plain > corrected
    assert corrected < 0.75 * plain


def test_first_order_error_is_second_order_small():
    """With equal gammas the diagonal solution is exact at E = 0: halving E quarters the corrected formula's error."""
    rng = np.random.default_rng(1)
    a, _, phi = draw(rng, 0.01)
    gamma, E = np.full(K, 0.2), phi - np.eye(K)

    def error(formula, size):
        transfer = np.eye(K) + size * E
        return np.abs(formula(a, gamma, transfer) - interior(a, gamma, transfer)).sum()

    assert error(first_order, 0.5) / error(first_order, 1.0) == pytest.approx(0.25, abs=0.05)
    assert error(first_order_printed, 0.5) / error(first_order_printed, 1.0) == pytest.approx(0.5, abs=0.05)


def test_diagonal_closed_form_is_exact_only_for_equal_gammas():
    a, gamma, _ = draw(np.random.default_rng(2), 0.1)
    phi = np.diag(np.linspace(0.6, 1, K))
    assert np.abs(diagonal(a, gamma, phi) - optimum(a, gamma, phi)).sum() > 1e-3
    equal = np.full(K, 0.2)
    np.testing.assert_allclose(diagonal(a, equal, phi), optimum(a, equal, phi), atol=1e-8)


def test_clipping_keeps_caps_and_proportions():
    p, upper = np.array([0.5, 0.3, 0.15, 0.05]), np.array([0.3, 0.35, 1.0, 1.0])
    found = clipped(p, upper)
    assert found.sum() == pytest.approx(1)
    assert (found <= upper + 1e-15).all()
    assert found[2] / found[3] == pytest.approx(3)
    np.testing.assert_array_equal(found[:2], upper[:2])


def test_a_language_without_ratio_takes_nothing_when_caps_fill_the_mixture():
    """Every language with a ratio is at its cap, and what is left over is rounding: there is nothing to share."""
    found = clipped(np.array([0.5, 0.5, 0.0]), np.array([0.5 - 1e-13, 0.5, 1.0]))
    np.testing.assert_allclose(found, [0.5, 0.5, 0.0], atol=1e-12)


def test_refusals_say_why():
    a, gamma, phi = draw(np.random.default_rng(3), 0.1)
    names = tuple(f"l{i}" for i in range(K))
    free, capped = Bounds().at(names, 1.0), Bounds(caps={"l0": 0.01}).at(names, 1.0)
    terms, w = PowerTerms(np.zeros(K), a, gamma, phi), np.ones(K)
    with pytest.raises(SolveError, match="bound"):
        closed_form("interior", terms, w, capped)
    with pytest.raises(SolveError, match="square"):
        closed_form("closed-form", terms.select_sources([0, 1]), w, free)
    with pytest.raises(SolveError, match="linear"):
        closed_form("closed-form", PowerTerms(np.zeros(K), a, gamma, phi, np.full((K, K), 0.5)), w, free)
    with pytest.raises(UsageError, match="unknown method"):
        closed_form("fist-order", terms, w, free)
    with pytest.raises(SolveError, match="singular"):
        interior(a, gamma, np.ones((K, K)))


@pytest.mark.parametrize(
    "asked",
    [
        {"objective": "worst"},
        {"constraints": [lambda p: p[0] <= 0.5]},
        {"groups": "en+de<=0.5"},
        {"near": "uniform", "within": 0.2},
        {"anchor": "uniform", "kl": 0.1},
    ],
)
def test_a_formula_is_refused_where_it_knows_nothing_of_what_is_asked(asked):
    with pytest.raises(UsageError, match="knows only the mean objective under caps"):
        optimize(FakeFit(B=0), 1e9, 1e11, method="first-order", **asked)


def test_an_interior_solution_needs_every_part_of_it_positive():
    """phi^-1 1 = (1, -1): its first part alone is positive."""
    with pytest.raises(SolveError, match="not positive"):
        interior(np.ones(2), np.full(2, 0.3), np.array([[1.0, 0.0], [2.0, 1.0]]))
