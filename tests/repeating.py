"""Logs in which tokens repeat, simulated at a known rate."""

from __future__ import annotations

import numpy as np
from simulated import inputs, mixtures, true_law

from shapleymix.laws.pieces import effective
from shapleymix.tables.runs import RunLog

RATE, D, N = 0.4, 1e9, 1e8
QUICK = {"bootstrap": 8, "folds": 0, "starts": 2}
SUPPLY = {"en": 2e7, "de": 1e8, "fr": 1e12}


def log_with(rate: float, rows: int = 60, *, repeats: bool = True, noise: float = 1e-3, seed: int = 1) -> RunLog:
    """Runs of a concave law on three sources, two thirds of them with scarce ones."""
    given = inputs(3, 3)
    law = true_law("learned-base", given)
    draws = np.random.default_rng(seed)
    p = mixtures(rows, 3, seed)
    epochs = np.where(draws.uniform(size=p.shape) < 0.6, draws.choice([2, 4, 8, 16, 32], size=p.shape), 0)
    unique = np.where((epochs > 0) & repeats, p * D / np.maximum(epochs, 1), np.nan)
    q = effective(p, np.where(np.isnan(unique), np.inf, unique) / D, rate)
    loss = law(q, np.full(rows, N), np.full(rows, D))
    loss = loss * np.exp(noise * draws.normal(size=loss.shape))
    runs = tuple(f"run-{row}" for row in range(rows))
    return RunLog(
        runs,
        np.full(rows, N),
        np.full(rows, D),
        p,
        loss,
        given.sources,
        given.targets,
        unique=unique if repeats else None,
    )
