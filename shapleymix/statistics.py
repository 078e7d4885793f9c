"""What every wing counts with: random streams, ranks, correlations, ends of intervals, non-negative least squares.

A generator is made by `np.random.default_rng([seed, RandomStream.X])`, with more words where a purpose needs several:
two purposes never draw the same numbers from one seed.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from shapleymix.records import BoolArray, FloatArray, IntArray

MEAN_ABSOLUTE = 1.2533
"""Standard deviations of normal noise over its mean absolute value."""


class RandomStream(IntEnum):
    """The second word of every seed, by what is drawn."""

    CURVE = 2
    """Learning curves that the errors leave possible."""
    LIKE = 3
    """How far a source is from the one that it is taken to be like."""
    BELIEFS = 4
    """The centres of what a law believes, for each replicate."""
    EXPONENTS = 5
    """Exponents of budgets that hardly vary, from public runs."""
    BOOTSTRAP = 6
    """Weights of mixtures."""
    RECIPES = 7
    """Learning rates, shuffled among runs of one size."""
    RATES = 8
    """The centre of the prior of what repeated tokens are worth."""
    SEARCH = 10
    """Starting mixtures of a search without proof."""
    LINES = 11
    """Curves of tasks."""
    NOISE = 12
    """The scatter of runs, and the error of a law's form."""
    DESIGN = 15
    """Candidates among which runs are chosen."""
    SCORES = 16
    """The scatter of tasks' scores about their curves."""
    GAME = 17
    """The coalitions of languages that text plays."""
    JUMPS = 18
    """Between which ratios a loss jumps."""


def ranks_of(columns: FloatArray) -> IntArray:
    """The number (C,) of each column (R, C) by its values, row after row, the same whatever the columns' order."""
    return np.argsort(np.lexsort(np.round(columns[::-1], 9))) if columns.size else np.arange(columns.shape[1])


def spread_evenly(count: int, most: int) -> IntArray:
    """The places of so many things, or of at most so many that lie evenly among them."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.int64))


def interval_ends(level: float) -> tuple[float, float]:
    """The quantiles between which a sample lies with probability `level`, as much left out below as above."""
    return 0.5 - level / 2, 0.5 + level / 2


def cosine(left: FloatArray, right: FloatArray, mask: BoolArray) -> FloatArray:
    """Cosine (K,) of the columns, over the entries of the mask."""
    a, b = np.where(mask, left, 0.0), np.where(mask, right, 0.0)
    norms = np.linalg.norm(a, axis=0) * np.linalg.norm(b, axis=0)
    return np.divide((a * b).sum(axis=0), norms, out=np.full(norms.shape, np.nan), where=norms > 0)


def pearson(left: FloatArray, right: FloatArray, mask: BoolArray) -> FloatArray:
    """Pearson correlation (K,) of the columns, over the entries of the mask: the cosine of what is left of the mean."""
    return cosine(_centre(left, mask), _centre(right, mask), mask)


def _centre(values: FloatArray, mask: BoolArray) -> FloatArray:
    """Columns less their means over the mask; exactly 0 where a column does not vary but for rounding."""
    kept = np.where(mask, values, 0.0)
    left = np.where(mask, kept - kept.sum(axis=0) / np.maximum(mask.sum(axis=0), 1), 0.0)
    noise = 1e-13 * np.abs(kept).max(axis=0, initial=0.0)
    return np.where(np.abs(left).max(axis=0, initial=0.0) <= noise, 0.0, left)


def nonnegative(gram: FloatArray, right: FloatArray) -> FloatArray:
    """Minimise `x.gram.x / 2 - right.x` over `x >= 0`, for grams (..., P, P), positive definite, and sides (..., P)."""
    from scipy.optimize import nnls  # late: reading tables takes no SciPy

    root = np.linalg.cholesky(gram)
    side, found = np.linalg.solve(root, right[..., None])[..., 0], np.empty(right.shape)
    for place in np.ndindex(right.shape[:-1]) if right.size else ():  # none of no unknowns, which break `nnls`
        found[place] = nnls(root[place].T, side[place])[0]
    return found
