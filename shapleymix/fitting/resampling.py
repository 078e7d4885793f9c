"""Weightings of the rows: which runs a fold leaves out, how a bootstrap replicate weighs them.

Both keep all rows of one mixture together: checkpoints of one run, and runs of one mixture at several sizes, are not
independent, and resampling rows understates the spread of a predicted loss up to ten times.
"""

from __future__ import annotations

import numpy as np

from shapleymix.records import BoolArray, FloatArray
from shapleymix.tables.runs import RunLog


def fold_masks(log: RunLog, folds: int) -> BoolArray:
    """Held-out rows of each fold, (V, R), by a hash of the mixture: the order of the rows changes nothing."""
    return log.folds(folds)[None, :] == np.arange(folds)[:, None]


def largest_mask(log: RunLog) -> BoolArray:
    """Held-out rows when the largest size is left out, (1, R)."""
    return (log.N.max() == log.N)[None, :]


def bootstrap_shares(log: RunLog, replicates: int, seed: int) -> FloatArray:
    """Weights (B, R) of a Bayesian bootstrap over mixtures (Rubin 1981): exponential draws, mean one.

    Unlike draws with replacement it never leaves a mixture out, so that laws with many symbols stay identified.
    """
    groups = log.groups
    draws = np.random.default_rng(seed).exponential(size=(replicates, int(groups.max()) + 1))
    draws /= draws.mean(axis=1, keepdims=True)
    return draws[:, groups]
