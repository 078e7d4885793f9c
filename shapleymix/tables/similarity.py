"""How alike two transfer matrices are: cosine and Pearson, with and without the diagonal, per target too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shapleymix.display import text_table
from shapleymix.records import BoolArray, FloatArray, Record
from shapleymix.tables.frames import Columns, Tabular

MEASURES = ("cosine", "pearson", "cosine_off_diagonal", "pearson_off_diagonal")

Measure = Callable[[FloatArray, FloatArray, BoolArray], FloatArray]
"""Agreement (K,) of the columns of two matrices (M, K), over the entries of a mask."""


@dataclass(frozen=True)
class Similarity(Tabular, Record):
    """Agreement of two matrices (M, K); NaN where too few entries or no variation leave it undefined.

    Attributes
    ----------
    cosine, pearson : float
        Agreement over all entries, flattened, as the paper's transferability test measures it.
    cosine_off_diagonal, pearson_off_diagonal : float
        Agreement without the entries whose source is their target: stricter, as the large diagonal makes any two
        matrices look alike.
    targets : tuple of str (K,)
        Labels.
    *_by_target : array (K,)
        The same measures for each target's column.
    raw : Similarity, optional
        The same measures of the raw Shapley values, where both matrices have them.
    """

    kind: ClassVar[str] = "similarity"
    cosine: float
    pearson: float
    cosine_off_diagonal: float
    pearson_off_diagonal: float
    targets: tuple[str, ...]
    cosine_by_target: FloatArray
    pearson_by_target: FloatArray
    cosine_off_diagonal_by_target: FloatArray
    pearson_off_diagonal_by_target: FloatArray
    raw: Similarity | None = None

    def columns(self) -> Columns:
        """One row per target."""
        return {"target": self.targets} | {name: getattr(self, f"{name}_by_target") for name in MEASURES}

    def summary(self) -> str:
        """The measures over all entries, then target by target."""
        overall = ", ".join(f"{name.replace('_', ' ')} {getattr(self, name):.3f}" for name in MEASURES)
        return "\n".join([f"Similarity of two transfer matrices: {overall}", *text_table(self.columns())])


def similarity(
    left: FloatArray, right: FloatArray, targets: tuple[str, ...], off: BoolArray, raw: Similarity | None = None
) -> Similarity:
    """Compare two matrices (M, K); `off` (M, K) is the mask of the entries off the diagonal."""
    everything = np.ones_like(off)
    return Similarity(
        cosine=_overall(_cosine, left, right, everything),
        pearson=_overall(_pearson, left, right, everything),
        cosine_off_diagonal=_overall(_cosine, left, right, off),
        pearson_off_diagonal=_overall(_pearson, left, right, off),
        targets=targets,
        cosine_by_target=_cosine(left, right, everything),
        pearson_by_target=_pearson(left, right, everything),
        cosine_off_diagonal_by_target=_cosine(left, right, off),
        pearson_off_diagonal_by_target=_pearson(left, right, off),
        raw=raw,
    )


def _overall(measure: Measure, left: FloatArray, right: FloatArray, mask: BoolArray) -> float:
    """A column measure on all entries as one column."""
    return float(measure(left.reshape(-1, 1), right.reshape(-1, 1), mask.reshape(-1, 1))[0])


def _cosine(left: FloatArray, right: FloatArray, mask: BoolArray) -> FloatArray:
    """Cosine (K,) of the columns, over the entries of the mask."""
    a, b = _scaled(left, mask), _scaled(right, mask)
    norms = np.linalg.norm(a, axis=0) * np.linalg.norm(b, axis=0)
    dot = (a * b).sum(axis=0)
    return np.divide(dot, norms, out=np.full(dot.shape, np.nan), where=norms > 0)


def _pearson(left: FloatArray, right: FloatArray, mask: BoolArray) -> FloatArray:
    """Pearson correlation (K,) of the columns, over the entries of the mask: the cosine of what is left of the mean."""
    return _cosine(_centred(_scaled(left, mask), mask), _centred(_scaled(right, mask), mask), mask)


def _scaled(values: FloatArray, mask: BoolArray) -> FloatArray:
    """Columns in units of a power of two near their largest entry in the mask, and 0 outside of it.

    No measure here depends on the units, and no square of numbers below 1 overflows.
    """
    kept = np.where(mask, values, 0.0)
    _, exponent = np.frexp(np.abs(kept).max(axis=0, initial=0.0))
    return np.ldexp(kept, -exponent)


def _centred(values: FloatArray, mask: BoolArray) -> FloatArray:
    """Scaled columns less their means over the mask; exactly 0 where a column does not vary but for rounding."""
    mean = values.sum(axis=0) / np.maximum(mask.sum(axis=0), 1)
    left = np.where(mask, values - mean, 0.0)
    noise = 1e-13 * np.abs(values).max(axis=0, initial=0.0)
    return np.where(np.abs(left).max(axis=0, initial=0.0) <= noise, 0.0, left)
