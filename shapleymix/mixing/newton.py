"""Newton directions under the unit sum: factorise once, solve for several right-hand sides, batched.

Small matrices are inverted in one batched call. From `LARGE` on, or for one instance, LAPACK's Cholesky factors
are used an instance at a time: there the arithmetic, not the Python loop, is the cost.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import get_lapack_funcs

from shapleymix.errors import SolveError
from shapleymix.records import FloatArray

LARGE = 48
POTRF, POTRS = get_lapack_funcs(("potrf", "potrs"), dtype=np.float64)
RIDGE = 1e-14


class Factor:
    """The matrices (B, M, M), symmetric positive definite, and the rows of the equality, `free` (B, M)."""

    def __init__(self, matrix: FloatArray, free: FloatArray) -> None:
        size = matrix.shape[-1]
        self._free = free
        self._apply = _cholesky(matrix) if len(matrix) == 1 or size >= LARGE else _inverse(matrix)
        self._along = self._apply(free)
        self._total = np.add.reduce(self._along * free, axis=1, keepdims=True) + 1e-300

    def solve(self, pull: FloatArray, excess: FloatArray | float = 0.0) -> tuple[FloatArray, FloatArray]:
        """Move (B, M) with matrix @ move = pull + shift * free and sum(move) = excess; and shift (B, 1)."""
        raw = self._apply(pull)
        shift = (excess - np.add.reduce(raw * self._free, axis=1, keepdims=True)) / self._total
        return raw + shift * self._along, shift


def _inverse(matrix: FloatArray):
    inverse = np.linalg.inv(matrix)
    return lambda pull: (inverse @ pull[:, :, None])[:, :, 0]


def _cholesky(matrix: FloatArray):
    factors = [_factor(member) for member in matrix]

    def apply(pull: FloatArray) -> FloatArray:
        if len(factors) == 1:
            return POTRS(factors[0], pull[0], lower=1)[0][None]
        return np.stack([POTRS(L, b, lower=1)[0] for L, b in zip(factors, pull, strict=True)])

    return apply


def _factor(matrix: FloatArray) -> FloatArray:
    """Cholesky factor; where rounding made the matrix indefinite, the ridge grows until it is not."""
    ridge = RIDGE * matrix.diagonal().max()
    for _ in range(12):
        factor, info = POTRF(matrix, lower=1, clean=0)
        if info == 0:
            return factor
        ridge *= 10
        matrix = matrix + ridge * np.eye(len(matrix))
    raise SolveError("the curvature is not finite or not positive", hint="check the law's parameters")
