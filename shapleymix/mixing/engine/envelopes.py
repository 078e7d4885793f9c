"""Error rates that are not convex in the mixture, and the convex functions that lie below them.

An error rate is `psi(z)` of one inner quantity z of the mixture (see `downstream.pieces`): concave as far as some z,
convex beyond it (for power terms), or the other way round (for exponential ones). Between the least and the largest z
that the bounds allow, its convex envelope is the chord from the concave end to where it touches psi, then psi. With z
concave, and the envelope falling in it, what comes out is convex in the mixture, and nowhere above the error rate.

Legend: M sources, T tasks.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from shapleymix.downstream.pieces import Scored, ScoredPower
from shapleymix.laws.terms import Rows, Slopes, Terms
from shapleymix.mixing.bounds import Constraints
from shapleymix.mixing.certificate import linear_minimiser
from shapleymix.mixing.problem import Problem
from shapleymix.records import BoolArray, FloatArray

HALVINGS = 40
"""Of the way to where a chord touches; wherever they end, it lies below."""


def unproved(problem: Problem) -> BoolArray:
    """Tasks (T,) that count, and whose error rate is not known to be convex in all mixtures within the bounds."""
    terms = problem.terms
    if not isinstance(terms, Scored):
        return np.zeros(len(problem.w), dtype=bool)
    low, high = inner_range(terms, problem.constraints)
    return (problem.w > 0) & ~terms.convex_up_to(_highest(terms, low, high))


def inner_range(terms: Scored, bounds: Constraints) -> tuple[FloatArray, FloatArray]:
    """Inner quantities (T,) below and above which there are none within the bounds on single sources.

    A concave part of a source lies above its chord and below its tangents, of which sums are least and largest at a
    corner.
    """
    lower, upper = bounds.lower, _reachable(bounds)
    width = upper - lower
    at_low, at_high = terms.parts(lower), terms.parts(upper)
    chord = np.where(width[:, None] > 0, (at_high - at_low) / np.where(width > 0, width, 1.0)[:, None], 0.0)
    base = terms.inner(np.zeros(len(lower)))
    least = base + at_low.sum(axis=0) + _least(chord, lower, upper)
    middle = lower + 0.5 * width
    steep = np.where(width[:, None] > 0, terms.slopes(middle).inner, 0.0)
    touching = terms.parts(middle).sum(axis=0) + ((lower - middle)[:, None] * steep).sum(axis=0)
    largest = np.minimum(base + touching - _least(-steep, lower, upper), base + at_high.clip(min=at_low).sum(axis=0))
    return least, np.maximum(largest, least)


def _reachable(bounds: Constraints) -> FloatArray:
    """Upper bounds (M,) that leave the others their floors."""
    return np.clip(bounds.upper, bounds.lower, np.maximum(bounds.lower, 1 - bounds.lower.sum() + bounds.lower))


def _least(slope: FloatArray, lower: FloatArray, upper: FloatArray) -> FloatArray:
    """The least slope . (p - lower) (T,) of mixtures within bounds, for slopes (M, T)."""
    corner, _ = linear_minimiser(slope.T, lower, upper)
    return np.sum(slope.T * (corner - lower), axis=1)


def _highest(terms: Scored, low: FloatArray, high: FloatArray) -> FloatArray:
    """The highest losses less their floor (T,): they fall in z under power terms, and rise under exponential ones."""
    return terms.of_inner(low if isinstance(terms, ScoredPower) else high)


@dataclass(frozen=True)
class Enveloped(Terms):
    """Scored terms with chords in place of some tasks' error rates.

    Attributes
    ----------
    scored : Scored
        The error rates.
    joint, height, steep : array (T,)
        Where a chord touches, and its height and slope there.
    side : array (T,)
        The chord holds for z below its joint (-1), above it (1), or nowhere (0).
    """

    scored: Scored = field(kw_only=True)
    joint: FloatArray = field(kw_only=True)
    height: FloatArray = field(kw_only=True)
    steep: FloatArray = field(kw_only=True)
    side: FloatArray = field(kw_only=True)

    @classmethod
    def of(cls, terms: Scored, bounds: Constraints, bent: BoolArray) -> Enveloped:
        """The convex envelopes of those tasks (T,) that are bent, within the bounds."""
        low, high = inner_range(terms, bounds)
        left = isinstance(terms, ScoredPower)
        anchor, end = (low, high) if left else (high, low)
        joint, steep = _tangents(terms, anchor, end)
        height = _value(terms, joint)[0]
        side = np.where(bent, -1.0 if left else 1.0, 0.0)
        return cls(terms.floor, scored=terms, joint=joint, height=height, steep=steep, side=side)

    @property
    def n_sources(self) -> int:
        return self.scored.n_sources

    @property
    def n_targets(self) -> int:
        return self.scored.n_targets

    def losses(self, p: FloatArray) -> FloatArray:
        off = self.scored.inner(p) - self.joint
        with np.errstate(invalid="ignore"):
            return np.where(off * self.side > 0, self.height + self.steep * off, self.scored.losses(p))

    def slopes(self, p: FloatArray) -> Slopes:
        at = self.scored.slopes(p)
        on = (self.scored.inner(p) - self.joint) * self.side > 0
        return Slopes(at.inner, at.bend, np.where(on, self.steep, at.first), np.where(on, 0.0, at.second))

    def select(self, targets: Rows) -> Enveloped:
        numbers = (getattr(self, name)[targets] for name in ("joint", "height", "steep", "side"))
        joint, height, steep, side = numbers
        scored = self.scored.select(targets)
        return Enveloped(scored.floor, scored=scored, joint=joint, height=height, steep=steep, side=side)


def _value(terms: Scored, z: FloatArray) -> tuple[FloatArray, FloatArray]:
    """psi and its derivative (T,) at inner quantities z (T,)."""
    u = terms.of_inner(z)
    by_loss, _ = terms.lines.slopes(terms.floor + u)
    with np.errstate(invalid="ignore", divide="ignore"):
        by_inner = -terms.gamma * u / z if isinstance(terms, ScoredPower) else u
        return terms.lines.errors(terms.floor + u), np.nan_to_num(by_loss * by_inner, posinf=0.0, neginf=0.0)


def _tangents(terms: Scored, anchor: FloatArray, end: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Where the tangent of psi passes through psi at the anchor, or just below, and its slope (T,).

    Beyond the inflexion the tangent's height at the anchor falls. Where it stays above as far as the end, the chord
    goes there.
    """
    start = _value(terms, anchor)[0]

    def above(z: FloatArray) -> BoolArray:
        height, slope = _value(terms, z)
        return height + slope * (anchor - z) > start

    near, far = anchor.copy(), end.copy()
    for _ in range(HALVINGS):
        middle = 0.5 * (near + far)
        over = above(middle)
        near, far = np.where(over, middle, near), np.where(over, far, middle)
    slope = _value(terms, far)[1]
    whole = above(end)
    ends = _value(terms, end)[0]
    with np.errstate(invalid="ignore", divide="ignore"):
        chord = np.where(end == anchor, slope, (ends - start) / (end - anchor))
    return np.where(whole, end, far), np.where(whole, chord, slope)
