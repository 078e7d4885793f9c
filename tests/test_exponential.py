"""The exponential law on sparse mixtures: what few runs hold must not explode elsewhere."""

from __future__ import annotations

import numpy as np

import shapleymix as sm

SOURCES = tuple(f"s{number:02}" for number in range(24))


def sparse(count: int, seed: int) -> np.ndarray:
    """Mixtures of a few of 24 sources each."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(24, 0.08), size=count)
    p[p < 0.02] = 0.0
    return p / p.sum(axis=1, keepdims=True)


def test_sources_that_few_runs_hold_do_not_explode_elsewhere():
    """Without a belief in t, `exp(50 p)` of a source at small ratios fits its one run, and errs by 1e16 elsewhere."""
    helps = np.random.default_rng(1).uniform(0.0, 1.0, (24, 3))
    p = np.concatenate([sparse(36, 2), sparse(200, 3)])
    noise = 0.02 * np.random.default_rng(4).normal(size=(236, 3))
    loss = 2.0 * (1 + np.sqrt(p) @ helps) ** -0.3 * np.exp(noise)
    one = np.ones(236)
    log = sm.RunLog(tuple(f"r{row}" for row in range(236)), 1e8 * one, 1e9 * one, p, loss, SOURCES, ("a", "b", "c"))
    found = sm.fit(log.select(np.arange(36)), "exponential", bootstrap=0, folds=0, threads=1)
    error = np.abs(found.law(p, 1e8 * one, 1e9 * one) / loss - 1)[36:]
    assert error.mean() < 0.06
    assert error.max() < 0.5
