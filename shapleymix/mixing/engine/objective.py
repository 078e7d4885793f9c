"""The weighted objective as the engine sees it: gradient and curvature at interior mixtures, without checks.

`Terms` answers for every mixture, at a price; the engine stays strictly inside the simplex and calls this tens of
times a millisecond. Arrays carry exactly one leading axis B (replicates, budgets, weights), except that matrices
shared by the whole batch stay two-dimensional. Sources fixed by their bounds have their slopes masked to zero.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shapleymix.downstream.pieces import Lines, Scored
from shapleymix.errors import SolveError
from shapleymix.laws.repeated import effective_slopes
from shapleymix.laws.terms import ExponentialTerms, PowerTerms, Terms
from shapleymix.records import BoolArray, FloatArray

# Stands for ratio zero where a slope is infinite there, so that it is merely huge.
TINY = 1e-150
RIDGE = 1e-14
SMALLEST = 1e-200


class Local(NamedTuple):
    """Derivatives at one point: gradient (B, M), and U, h, diagonal with Hessian = U diag(h) U' + diagonal.

    `level` (B, K) sums to the size of what the mixture can change, the unit in which a bound is small.
    """

    gradient: FloatArray
    inner: FloatArray
    second: FloatArray
    diagonal: FloatArray | None
    level: FloatArray

    def hessian(self) -> FloatArray:
        """(B, M, M), a fresh array."""
        root = self.inner * np.sqrt(self.second)[:, None, :]
        matrix = root @ root.transpose(0, 2, 1)
        diagonal = diagonals(matrix)
        # Sources that do the same for every target leave it singular; the ridge changes the path only.
        diagonal *= 1 + RIDGE
        diagonal += SMALLEST
        if self.diagonal is not None:
            diagonal += self.diagonal
        return matrix


class Scoring(NamedTuple):
    """Error rates of tasks in place of losses: their lines, and of the law floor, a or k, and weights, all (B, T)."""

    lines: Lines
    floor: FloatArray
    amount: FloatArray
    w: FloatArray

    def chained(self, u: FloatArray, first: FloatArray, second: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Weighted derivatives (B, T) by the inner quantity, from those of losses that are u above their floor.

        A curvature below zero counts as none: steps go downhill all the same.
        """
        once, twice = self.lines.slopes(self.floor + u)
        return self.w * once * first, self.w * np.maximum(once * second + twice * first**2, 0.0)

    def take(self, rows: BoolArray) -> Scoring:
        """The members of the batch where `rows` holds."""
        return Scoring(self.lines.take(rows), self.floor[rows], self.amount[rows], self.w[rows])


class Smooth(NamedTuple):
    """sum_j w_j loss_j(p) + kl sum_i p_i log(p_i / anchor_i), without its constants.

    `scale` (B, K) is w a gamma for powers and w k for exponentials; `matrix` holds phi or t, `slope` the same with
    the rows of fixed sources zeroed; `free` (B, M) is 1 where a source may move; `unique` and `rate` (B, M) are those
    of the terms, where tokens are repeated; `base` (B, K) is added to Theta. Where tasks are scored, `scoring` has the
    weights, and `scale` has none.
    """

    scale: FloatArray
    matrix: FloatArray
    slope: FloatArray
    free: FloatArray
    exponent: FloatArray | None = None
    s: FloatArray | None = None
    kl: float = 0.0
    log_anchor: FloatArray | None = None
    unique: FloatArray | None = None
    rate: FloatArray | None = None
    base: FloatArray | None = None
    scoring: Scoring | None = None

    def at(self, p: FloatArray) -> Local:
        """Derivatives at the interior mixtures p (B, M)."""
        unique, rate = self.unique, self.rate
        local = self._law(p) if unique is None or rate is None else self._repeated(p, unique, rate)
        return local if self.kl == 0 else self._anchored(local, p)

    def take(self, rows: BoolArray) -> Smooth:
        """The members of the batch where `rows` holds."""
        return self._replace(
            scale=self.scale[rows],
            matrix=_rows(self.matrix, rows),
            slope=_rows(self.slope, rows),
            free=self.free[rows],
            exponent=None if self.exponent is None else self.exponent[rows],
            s=None if self.s is None else _rows(self.s, rows),
            log_anchor=None if self.log_anchor is None else self.log_anchor[rows],
            unique=None if self.unique is None else _vectors(self.unique, rows),
            rate=None if self.rate is None else _vectors(self.rate, rows),
            base=None if self.base is None else self.base[rows],
            scoring=None if self.scoring is None else self.scoring.take(rows),
        )

    @property
    def has_steep(self) -> bool:
        """Whether any slope can be infinite at ratio zero."""
        return self.kl > 0 or self.s is not None

    def steep(self) -> BoolArray:
        """(B, M) sources with an infinite slope at ratio zero: such a ratio is tiny at the optimum, never zero."""
        free = self.free > 0
        if self.kl > 0:
            return free
        if self.s is None:
            return np.zeros_like(free)
        return free & np.any((self.s < 1) & (self.slope * self.scale[:, None, :] > 0), axis=-1)

    def _law(self, q: FloatArray) -> Local:
        """Derivatives of the law in effective ratios."""
        return self._exponential(q) if self.exponent is None else self._power(q, self.exponent)

    def _repeated(self, p: FloatArray, unique: FloatArray, rate: FloatArray) -> Local:
        """Derivatives in p by the chain rule; the law falls in q, and q is concave, so nothing is below zero."""
        q, slope, bend = effective_slopes(p, unique, rate)
        local = self._law(q)
        curved = local.gradient * bend
        if local.diagonal is not None:
            curved += local.diagonal * slope**2
        return local._replace(gradient=local.gradient * slope, inner=local.inner * slope[:, :, None], diagonal=curved)

    def _based(self, transferred: FloatArray) -> FloatArray:
        return transferred if self.base is None else self.base + transferred

    def _power(self, p: FloatArray, exponent: FloatArray) -> Local:
        if self.s is not None:
            return self._concave(p, exponent, self.s)
        theta = self._based(_weigh_rows(p, self.matrix))
        pull, second = self._outer(theta, exponent)
        return Local(-_weigh(self.slope, pull), self.slope, second, None, pull * theta)

    def _outer(self, theta: FloatArray, exponent: FloatArray) -> tuple[FloatArray, FloatArray]:
        """By how much weighted losses fall in Theta, and their second derivative (B, K)."""
        pull = self.scale * theta**-exponent
        second = pull * exponent / theta
        if self.scoring is None:
            return pull, second
        return self.scoring.chained(self.scoring.amount * theta ** (1 - exponent), pull, second)

    def _concave(self, p: FloatArray, exponent: FloatArray, s: FloatArray) -> Local:
        column = np.maximum(p, TINY)[:, :, None]
        part = column**s
        theta = self._based(np.sum(self.matrix * part, axis=1))
        inner = s * self.slope * part / column
        pull, second = self._outer(theta, exponent)
        bend = _weigh(inner * (1 - s) / column, pull)
        return Local(-_weigh(inner, pull), inner, second, bend, pull * theta)

    def _exponential(self, p: FloatArray) -> Local:
        value = self.scale * np.exp(_weigh_rows(p, self.matrix))
        if self.scoring is None:
            return Local(_weigh(self.slope, value), self.slope, value, None, value)
        first, second = self.scoring.chained(value, value, value)
        return Local(_weigh(self.slope, first), self.slope, second, None, first)

    def _anchored(self, local: Local, p: FloatArray) -> Local:
        inside = np.maximum(p, TINY)
        gradient = local.gradient + self.free * self.kl * (np.log(inside) + 1 - self.log_anchor)
        bend = self.free * self.kl / inside
        diagonal = bend if local.diagonal is None else local.diagonal + bend
        level = np.append(local.level, np.full((len(p), 1), self.kl), axis=1)
        return local._replace(gradient=gradient, diagonal=diagonal, level=level)


def smooth_of(
    terms: Terms, w: FloatArray, free: BoolArray, absent: BoolArray, kl: float, anchor: FloatArray | None
) -> Smooth:
    """The engine's view of flat terms (one leading axis B, or none on shared matrices).

    `free` and `absent` (B, M) mark the sources that may move, and those fixed at ratio zero.

    Raises
    ------
    SolveError
        If a target that counts gets no transfer from any source that may be used: its loss is infinite everywhere.
    """
    mask = free.astype(float)
    log_anchor = None if anchor is None else np.log(np.where(anchor > 0, anchor, 1.0))
    scoring = _scoring(terms, w)
    if scoring is not None:
        w = np.where(w > 0, 1.0, 0.0)
    if isinstance(terms, ExponentialTerms):
        return Smooth(w * terms.k, terms.t, _masked(terms.t, free), mask, kl=kl, log_anchor=log_anchor, scoring=scoring)
    if not isinstance(terms, PowerTerms):
        raise SolveError(f"the engine does not know terms of type {type(terms).__name__}")
    scale = w * terms.a * terms.gamma
    if terms.base is None:
        phi, base = _reaching(terms.phi, scale, absent), None
    else:  # a target with a base has a finite loss, whatever reaches it
        phi, base = terms.phi, np.broadcast_to(terms.base, scale.shape)
    exponent = np.broadcast_to(terms.gamma + 1, scale.shape)
    slope = _masked(phi, free)
    return Smooth(scale, phi, slope, mask, exponent, terms.s, kl, log_anchor, terms.unique, terms.rate, base, scoring)


def _scoring(terms: Terms, w: FloatArray) -> Scoring | None:
    """What scored tasks need beside the law; None for losses."""
    if not isinstance(terms, Scored):
        return None
    amount = terms.k if isinstance(terms, ExponentialTerms) else terms.a if isinstance(terms, PowerTerms) else w
    floor, amount = (np.broadcast_to(value, w.shape) for value in (terms.floor, amount))
    return Scoring(Lines(*(np.broadcast_to(value, w.shape) for value in terms.lines)), floor, amount, w)


def _reaching(phi: FloatArray, scale: FloatArray, absent: BoolArray) -> FloatArray:
    """phi, with ones for targets that nothing reaches and that do not count; else an error."""
    usable = phi * ~absent[:, :, None] if absent.any() else phi
    lost = usable.max(axis=-2) <= 0
    if not lost.any():
        return phi
    if np.any(lost & (scale > 0)):
        places = ", ".join(str(j) for j in np.flatnonzero(np.any(lost & (scale > 0), axis=0)))
        hint = "give the targets weight zero, or allow a source that helps them"
        raise SolveError(f"no usable source transfers anything to target number {places}", hint=hint)
    return np.where(lost[..., None, :], 1.0, phi)


def _masked(matrix: FloatArray, free: BoolArray) -> FloatArray:
    return matrix if free.all() else matrix * free[:, :, None]


def _rows(matrix: FloatArray, rows: BoolArray) -> FloatArray:
    return matrix if matrix.ndim == 2 else matrix[rows]


def _vectors(vector: FloatArray, rows: BoolArray) -> FloatArray:
    return vector if vector.ndim == 1 else vector[rows]


def _weigh_rows(p: FloatArray, matrix: FloatArray) -> FloatArray:
    return p @ matrix if matrix.ndim == 2 else (p[:, None, :] @ matrix)[:, 0, :]


def _weigh(matrix: FloatArray, weights: FloatArray) -> FloatArray:
    return weights @ matrix.T if matrix.ndim == 2 else (matrix @ weights[:, :, None])[:, :, 0]


def diagonals(matrix: FloatArray) -> FloatArray:
    """The diagonals (B, M) of contiguous matrices (B, M, M), as a view to write to."""
    size = matrix.shape[-1]
    return matrix.reshape(len(matrix), size * size)[:, :: size + 1]


def add_to_diagonal(matrix: FloatArray, diagonal: FloatArray) -> None:
    """Add (B, M) to the diagonals of contiguous matrices (B, M, M), in place."""
    view = diagonals(matrix)
    view += diagonal
