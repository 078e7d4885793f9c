"""Scores as pieces of the mixture at one budget: what an optimisation of accuracy works on.

A task's error rate is `e_t(p) = 1 - s_t(loss_j(p))`, where j is its language and s_t its calibrated line. A law's loss
is an outer function of one inner quantity z_j(p) (see `laws.terms`), and so is the error: `e_t = psi_t(z_j(p))`. Where
psi_t is convex (and, for power terms, falls in z, which is concave), e_t is convex in the mixture. With `u = loss -
floor` and `kappa = (gamma + 1) / gamma` for power terms, 1 for exponential ones, that is so where

    -l       always
    log l    floor >= 0 (a sum of log-convex functions is log-convex)
    exp(-l)  u <= kappa
    1/l      kappa floor + (kappa - 2) u >= 0, and floor >= 0: for all u where gamma <= 1
    sigmoid  a u (1 - 2 sigma) <= kappa, sigma = 1 / (1 + exp(a l - b))

which is that `kappa e'(l) + u e''(l) >= 0`; each holds for all u from 0 to where it holds.
Legend: B replicates, M sources, T tasks, each with the columns of its target.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from shapleymix.downstream.calibrations import Calibration
from shapleymix.downstream.transforms import TRANSFORMS
from shapleymix.errors import SolveError
from shapleymix.laws.products import product, weigh_rows
from shapleymix.laws.terms import ExponentialTerms, PowerTerms, Slopes, Terms
from shapleymix.records import BoolArray, FloatArray, IntArray

SHAPES = tuple(TRANSFORMS.values())
CODES = {shape.name: float(code) for code, shape in enumerate(SHAPES)}


class Lines(NamedTuple):
    """The lines of T tasks, with any leading axes: numbers a and b, guess (chance, 0 for a line), codes of shapes."""

    a: FloatArray
    b: FloatArray
    guess: FloatArray
    shape: FloatArray

    def errors(self, loss: FloatArray) -> FloatArray:
        """Error rates (..., T) at the losses (..., T) of each task's language."""
        found = np.empty(np.broadcast_shapes(np.shape(loss), np.shape(self.a)))
        for code, rows in self._by_shape():
            found[..., rows] = 1 - SHAPES[code].score(loss[..., rows], *self._some(rows))
        return found

    def slopes(self, loss: FloatArray) -> tuple[FloatArray, FloatArray]:
        """First and second derivative of the error rates in the losses."""
        shape = np.broadcast_shapes(np.shape(loss), np.shape(self.a))
        first, second = np.empty(shape), np.empty(shape)
        for code, rows in self._by_shape():
            once, twice = SHAPES[code].slopes(loss[..., rows], *self._some(rows))
            first[..., rows], second[..., rows] = -once, -twice
        return first, second

    def sensitivity(self, loss: FloatArray, w: FloatArray) -> FloatArray:
        """(2 T) what sum_t w_t e_t changes by for a change of each log loss (T,), and of each score for itself."""
        there = np.where(np.isfinite(loss), loss, np.nan)
        return np.concatenate([w * np.nan_to_num(self.slopes(there)[0] * there), w])

    def take(self, rows: BoolArray) -> Lines:
        """Some members of the one leading axis."""
        return Lines(*(value if value.ndim == 1 else value[rows] for value in self))

    def _some(self, rows: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        return self.a[..., rows], self.b[..., rows], self.guess[..., rows]

    def _by_shape(self) -> list[tuple[int, IntArray]]:
        """Every shape that occurs, and the tasks of it: the same ones in every replicate."""
        places: dict[int, list[int]] = {}
        for place, code in enumerate(self.shape.reshape(-1, self.shape.shape[-1])[0].tolist()):
            places.setdefault(int(code), []).append(place)
        return [(code, np.array(rows)) for code, rows in places.items()]


@dataclass(frozen=True)
class Scored(Terms):
    """What scored terms have beside the law's, whose columns are those of the tasks' targets.

    Attributes
    ----------
    score_a, score_b, guess, shape : array (..., T)
        The numbers of each task's line, and the code of its transform.
    """

    score_a: FloatArray = field(kw_only=True)
    score_b: FloatArray = field(kw_only=True)
    guess: FloatArray = field(kw_only=True)
    shape: FloatArray = field(kw_only=True)

    @property
    def lines(self) -> Lines:
        """The lines of the tasks."""
        return Lines(self.score_a, self.score_b, self.guess, self.shape)

    @property
    def kappa(self) -> FloatArray:
        """(..., T) loss'' u / loss'^2, in derivatives of the inner quantity: what bends the loss upward."""
        raise NotImplementedError

    def of_inner(self, z: FloatArray) -> FloatArray:
        """Losses (..., T) less their floor at inner quantities z (..., T)."""
        raise NotImplementedError

    def inner(self, p: FloatArray) -> FloatArray:
        """The inner quantities z (..., T) of mixtures p (..., M)."""
        raise NotImplementedError

    def parts(self, p: FloatArray) -> FloatArray:
        """(M, T) what each source adds to them at a mixture (M,): concave in its ratio alone."""
        raise NotImplementedError

    def losses(self, p: FloatArray) -> FloatArray:
        """Error rate of every task (..., T) at mixtures p (..., M)."""
        return self.lines.errors(self.floor + self._values(self.effective(p)))

    def plain_losses(self, p: FloatArray) -> FloatArray:
        """Losses of the tasks' languages (..., T), nats per token."""
        return super().losses(p)

    def sensitivity(self, p: FloatArray, losses: FloatArray, w: FloatArray) -> FloatArray:
        return self.lines.sensitivity(self.plain_losses(p), w)

    def convex_up_to(self, u: FloatArray) -> BoolArray:
        """(..., T) whether the error is convex in the mixture where losses less their floor are at most u (..., T)."""
        kappa, floor = self.kappa, self.floor
        with np.errstate(over="ignore", invalid="ignore"):
            steep = self.score_a * (1 - 2 / (1 + np.exp(self.score_a * (floor + u) - self.score_b)))
            known = {
                "minus": np.ones_like(u, dtype=bool),
                "loss": np.ones_like(u, dtype=bool),
                "log": floor + np.zeros_like(u) >= 0,
                "exp": u <= kappa,
                "inverse": (floor >= 0) & ((kappa >= 2) | (kappa * floor + (kappa - 2) * u >= 0)),
                "sigmoid": u * np.maximum(steep, 0.0) <= kappa,
            }
        found = np.zeros(np.broadcast_shapes(np.shape(u), np.shape(self.shape)), dtype=bool)
        for name, holds in known.items():
            found |= (self.shape == CODES[name]) & holds & ~np.isnan(u)
        return found

    def _chained(self, q: FloatArray, at: Slopes) -> Slopes:
        """Derivatives by the chain rule. A curvature below zero counts as none, so that a search goes downhill."""
        once, twice = self.lines.slopes(self.floor + self._values(q))
        with np.errstate(invalid="ignore", over="ignore"):
            bend = product(once, at.second) + product(twice, at.first**2)
        return Slopes(at.inner, at.bend, product(once, at.first), np.maximum(np.nan_to_num(bend, posinf=np.inf), 0.0))


@dataclass(frozen=True)
class ScoredPower(Scored, PowerTerms):
    """Error rates under power terms."""

    @property
    def kappa(self) -> FloatArray:
        with np.errstate(divide="ignore"):
            return (self.gamma + 1) / self.gamma

    def inner(self, p: FloatArray) -> FloatArray:
        return self.theta(p)

    def parts(self, p: FloatArray) -> FloatArray:
        q = self.effective(p)[:, None]
        return self.phi * (q if self.s is None else q**self.s)

    def of_inner(self, z: FloatArray) -> FloatArray:
        with np.errstate(divide="ignore"):
            return product(self.a, z**-self.gamma)

    def _slopes(self, q: FloatArray) -> Slopes:
        return self._chained(q, PowerTerms._slopes(self, q))


@dataclass(frozen=True)
class ScoredExponential(Scored, ExponentialTerms):
    """Error rates under exponential terms."""

    @property
    def kappa(self) -> FloatArray:
        return np.ones_like(self.k)

    def inner(self, p: FloatArray) -> FloatArray:
        return weigh_rows(p, self.t)

    def parts(self, p: FloatArray) -> FloatArray:
        return self.t * p[:, None]

    def of_inner(self, z: FloatArray) -> FloatArray:
        return self.k * np.exp(z)

    def _slopes(self, q: FloatArray) -> Slopes:
        return self._chained(q, ExponentialTerms._slopes(self, q))


def scored_terms(terms: Terms, places: IntArray, lines: Lines) -> Scored:
    """The error rates of tasks under a law's terms.

    Parameters
    ----------
    terms : Terms
        The law at a budget, of K targets.
    places : int array (T,)
        The target of each task.
    lines : Lines
        Their lines, with the leading axis of the terms or none.

    Raises
    ------
    SolveError
        If the law has another form.
    """
    law = terms.select(places)
    more = {"score_a": lines.a, "score_b": lines.b, "guess": lines.guess, "shape": lines.shape}
    if isinstance(law, PowerTerms):
        return ScoredPower(
            law.floor, law.a, law.gamma, law.phi, law.s, base=law.base, unique=law.unique, rate=law.rate, **more
        )
    if isinstance(law, ExponentialTerms):
        return ScoredExponential(law.floor, law.k, law.t, unique=law.unique, rate=law.rate, **more)
    raise SolveError(f"scores of tasks are not known for terms of type {type(terms).__name__}")


def lines_of_tasks(calibrations: tuple[Calibration, ...]) -> Lines:
    """The lines of calibrated tasks."""
    return Lines(
        np.array([one.a for one in calibrations]),
        np.array([one.b for one in calibrations]),
        np.array([one.base for one in calibrations]),
        np.array([CODES[one.transform] for one in calibrations]),
    )
