"""Logs in which tokens repeat, simulated at a known worth and harm."""

import numpy as np
from simulated import inputs, mixtures, true_law

from shapleymix.fitting.evidence import Evidence
from shapleymix.tables.runs import RunLog

SYMBOLS, D, N = np.append(-4.0, np.full(3, np.log(5.0))), 1e9, 1e8
QUICK = {"bootstrap": 8, "folds": 0, "starts": 2}
SUPPLY = {"en": 2e7, "de": 1e8, "fr": 1e12}


def log_with(rows: int = 60, *, repeats: bool = True, noise: float = 1e-3, seed: int = 1) -> RunLog:
    """Runs of a concave law on three sources, two thirds of them with scarce ones."""
    given = inputs(3, 3)
    law, p = true_law("learned-base", given), mixtures(rows, 3, seed)
    draws, budget = np.random.default_rng(seed), np.ones(rows)
    epochs = np.where(draws.uniform(size=p.shape) < 0.6, draws.choice([2, 4, 8, 16], size=p.shape), 0)
    unique = np.where((epochs > 0) & repeats, p * D / np.maximum(epochs, 1), np.nan)
    runs, blank = tuple(f"run-{row}" for row in range(rows)), np.ones((rows, 3))
    log = RunLog(runs, N * budget, D * budget, p, blank, given.sources, given.targets, unique=unique)
    loss = Evidence(log, blank, budget > 0, (), unique).losses(law, SYMBOLS) * np.exp(
        noise * draws.normal(size=p.shape)
    )
    return RunLog(runs, log.N, log.D, p, loss, log.sources, log.targets, unique=unique if repeats else None)
