"""The curvature of many small least-squares problems, and the step within a box that it asks for; knows no law.

Legend: Q problems, R residuals each, P unknowns each.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from shapleymix.records import BoolArray, FloatArray, IntArray

HELD = 1e30  # on the diagonal holds an unknown where it is
PASSES = 12  # of the pivoting that keeps a step within its box


@dataclass(frozen=True)
class Curvature:
    """`rows' rows + diag(own)` of every problem.

    Attributes
    ----------
    rows : array (Q, R, P)
        The Jacobian, each residual by the root of its weight in the curvature.
    own : array (Q, P)
        What every unknown adds by itself, > 0 where a system is solved.
    matrix : array (Q, P, P), optional
        `rows' rows`; None where residuals are fewer than unknowns, and systems are solved in their dimension.
    """

    rows: FloatArray
    own: FloatArray
    matrix: FloatArray | None

    @classmethod
    def of(cls, rows: FloatArray, own: FloatArray) -> Curvature:
        """The curvature in the form in which its systems are solved sooner."""
        if rows.shape[1] < rows.shape[2]:
            return cls(rows, own, None)
        return cls(rows, own, rows.swapaxes(1, 2) @ rows)

    def diagonal(self) -> FloatArray:
        """The diagonal, (Q, P)."""
        if self.matrix is None:
            return np.einsum("qrp,qrp->qp", self.rows, self.rows) + self.own
        return np.einsum("qpp->qp", self.matrix) + self.own

    def plus(self, ridge: FloatArray) -> Curvature:
        """The same with more (Q, P) on the diagonal."""
        return replace(self, own=self.own + ridge)

    def times(self, x: FloatArray) -> FloatArray:
        """The curvature times x (Q, P)."""
        if self.matrix is None:
            return _by(self.rows.swapaxes(1, 2), _by(self.rows, x)) + self.own * x
        return _by(self.matrix, x) + self.own * x

    def solve(self, right: FloatArray, held: BoolArray) -> FloatArray:
        """The x (Q, P) that is 0 where `held`, and elsewhere gives `right` (Q, P)."""
        own = np.where(held, HELD, self.own)
        if self.matrix is None:
            found = _solved_by_rows(self.rows, own, right)
        else:
            matrix = self.matrix.copy()
            np.einsum("qpp->qp", matrix)[:] += own
            found = np.linalg.solve(matrix, right[..., None])[..., 0]
        return np.where(held, 0.0, found)

    def __getitem__(self, which: BoolArray | IntArray) -> Curvature:
        matrix = None if self.matrix is None else self.matrix[which]
        return Curvature(self.rows[which], self.own[which], matrix)

    def __setitem__(self, which: BoolArray, other: Curvature) -> None:
        self.rows[which] = other.rows
        self.own[which] = other.own
        if self.matrix is not None and other.matrix is not None:
            self.matrix[which] = other.matrix


def boxed_step(
    curvature: Curvature, gradient: FloatArray, held: BoolArray, low: FloatArray, high: FloatArray
) -> FloatArray:
    """The minimum of `step.curvature.step / 2 + gradient.step` within a box, nearly always exactly.

    Unknowns that a free step takes out of the box are set to its edge, and let go where the slope there points inwards,
    all at once (block principal pivoting), until nothing changes; after `PASSES` the last step is taken as it is, and
    the search's own test of the objective judges it.

    Parameters
    ----------
    curvature, gradient : Curvature and array (Q, P)
        Of every problem.
    held : bool array (Q, P)
        Unknowns that are at the edge to begin with.
    low, high : array (Q, P)
        The box around the present point: `low <= 0 <= high`.
    """
    edge = np.where(held, 0.0, np.nan)  # where an unknown is held, how far from here
    step = np.empty_like(gradient)
    rows = np.arange(len(gradient))
    for _ in range(PASSES):
        moved, slope = _held_step(curvature, gradient, edge)
        step[rows] = moved
        fixed = ~np.isnan(edge)
        inwards = fixed & (((edge <= low) & (slope < 0)) | ((edge >= high) & (slope > 0)))
        beyond = np.clip(moved, low, high)
        out = ~fixed & (beyond != moved)
        if not (changed := (inwards | out).any(axis=1)).any():
            break
        edge = np.where(out, beyond, np.where(inwards, np.nan, edge))
        if not changed.all():
            rows, curvature = rows[changed], curvature[changed]
            gradient, edge, low, high = (part[changed] for part in (gradient, edge, low, high))
    return step


def _held_step(curvature: Curvature, gradient: FloatArray, edge: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The step with some unknowns held at `edge` (NaN where free), and the slope of the quadratic there."""
    held = ~np.isnan(edge)
    fixed = np.where(held, edge, 0.0)
    slope = gradient + curvature.times(fixed) if fixed.any() else gradient
    step = fixed - curvature.solve(slope, held)
    return step, gradient + curvature.times(step) if held.any() else np.zeros_like(step)


def _by(matrix: FloatArray, x: FloatArray) -> FloatArray:
    return (matrix @ x[..., None])[..., 0]


def _solved_by_rows(rows: FloatArray, own: FloatArray, right: FloatArray) -> FloatArray:
    """`(rows' rows + diag(own))^-1 right` in the dimension of the residuals (Woodbury's identity)."""
    light = right / own
    within = rows @ (rows / own[:, None, :]).swapaxes(1, 2)
    np.einsum("qrr->qr", within)[:] += 1.0
    back = np.linalg.solve(within, _by(rows, light)[..., None])
    return light - (rows.swapaxes(1, 2) @ back)[..., 0] / own
