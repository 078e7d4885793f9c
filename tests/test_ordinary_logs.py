"""Ordinary logs of one target, from the log to the mixture, replicates included."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from shapleymix.errors import ShapleyMixWarning
from shapleymix.fitting.fit import fit
from shapleymix.mixing.optimization import optimize
from shapleymix.tables.runs import RunLog


def one_target(seed: int) -> RunLog:
    """20 runs of three sources at 3 sizes and 3 budgets, drawn from a law with half a percent of noise."""
    rng = np.random.default_rng(seed)
    p, n = rng.dirichlet(np.ones(3), 20), 20
    N, D = rng.choice([1e7, 5e7, 2e8], n), rng.choice([1e9, 4e9, 1.6e10], n)
    theta = p @ np.array([1.0, *rng.uniform(0.05, 0.9, 2)])
    loss = 1.5 + 400 * N**-0.34 + 900 * (D * theta) ** -0.33
    losses = (loss * np.exp(rng.normal(0, 0.005, n)))[:, None]
    names = tuple(f"r{i}" for i in range(n))
    return RunLog(names, N, D, p, losses, ("a", "b", "c"), ("a",))


@pytest.mark.parametrize("law", ["learned-base", "effective-data", "additive"])
@pytest.mark.parametrize("seed", range(2))
def test_a_log_of_one_target_is_optimised(seed, law):
    """Issue 6, section 2: LinAlgError in `optimize` for 16 of 60 such logs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShapleyMixWarning)
        fitted = fit(one_target(seed), law=law, bootstrap=30, folds=0, threads=1)
        mix = optimize(fitted, 1e9, 2e10)
    assert np.isfinite(mix.p).all()
    assert mix.relative_gap <= 1e-8
    assert mix.replicates > 0
