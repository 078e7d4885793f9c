"""Mixtures at several sizes and token counts, and at those that a budget of compute buys."""

from __future__ import annotations

import numpy as np
import pytest
from known_fits import SOURCES, TOKENS, Bumpy, FakeFit, mixture

from shapleymix.errors import InfeasibleError, SolveError, UsageError
from shapleymix.mixing.compute import optimize_compute
from shapleymix.mixing.optimization import optimize, optimize_scales


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
