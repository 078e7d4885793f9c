"""Ridge regression with coefficients of at least zero, for many problems at once.

Legend: Q problems, P columns.
"""

from __future__ import annotations

import numpy as np

from shapleymix.records import BoolArray, FloatArray

TURNS = 100
PATIENCE = 3  # turns in which a problem may get no better before it exchanges one column at a time
SLACK = 1e-10


def nonnegative(gram: FloatArray, right: FloatArray) -> FloatArray:
    """Minimise `x.gram.x / 2 - right.x` over `x >= 0`, for grams (Q, P, P), positive definite, and right sides (Q, P).

    Block principal pivoting (Portugal et al. 1994; Kim and Park 2011): all columns on the wrong side change sides at
    once, and, where that goes in circles, only the last of them, which is sure to end. Problems that are done drop out.
    """
    scale = np.sqrt(np.einsum("qpp->qp", gram))
    gram, right = gram / (scale[:, :, None] * scale[:, None, :]), right / scale
    x, inside = np.zeros_like(right), np.zeros(right.shape, dtype=bool)
    fewest = np.full(len(right), right.shape[1] + 1)
    patience = np.full(len(right), PATIENCE)
    left = np.arange(len(right))
    for _ in range(TURNS):
        x[left], wrong = _tried(gram[left], right[left], inside[left])
        count = wrong.sum(axis=1)
        left, wrong, count = left[count > 0], wrong[count > 0], count[count > 0]
        if not len(left):
            break
        better = count < fewest[left]
        fewest[left] = np.where(better, count, fewest[left])
        patience[left] = np.where(better, PATIENCE, patience[left] - 1)
        inside[left] ^= np.where((patience[left] < 0)[:, None], _last(wrong), wrong)
    return np.maximum(x, 0.0) / scale


def _tried(gram: FloatArray, right: FloatArray, inside: BoolArray) -> tuple[FloatArray, BoolArray]:
    """The solution on the columns inside, and the columns on the wrong side: negative, or of a negative slope."""
    both = inside[:, :, None] & inside[:, None, :]
    matrix = np.where(both, gram, np.eye(right.shape[1]))
    x = np.linalg.solve(matrix, np.where(inside, right, 0.0)[..., None])[..., 0]
    slope = np.einsum("qpr,qr->qp", gram, x) - right
    small = SLACK * np.abs(right).max(axis=1, keepdims=True)
    return x, np.where(inside, x < -small, slope < -small)


def _last(wrong: BoolArray) -> BoolArray:
    """The last true column of each row alone."""
    place = wrong.shape[1] - 1 - wrong[:, ::-1].argmax(axis=1)
    return np.arange(wrong.shape[1]) == place[:, None]
