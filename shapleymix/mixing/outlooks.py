"""What a fit says of several mixtures at one budget, convex or not: predictions, replicates, and how sure they are.

Notation: M sources, K targets, R mixtures, B bootstrap replicates of the fit.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, TypedDict, TypeGuard, runtime_checkable

import numpy as np

from shapleymix import laws
from shapleymix.downstream.scoring import ScoredFit
from shapleymix.errors import ShapleyMixWarning
from shapleymix.fitting.absent import of_replicates
from shapleymix.fitting.misfit import Misfit
from shapleymix.fitting.repetition import Repetition, taken
from shapleymix.fitting.settings import LEVEL
from shapleymix.mixing.doubts import Doubts, Outlook, parts_of
from shapleymix.mixing.engine.search import is_convex
from shapleymix.mixing.engine.solving import usable_replicates
from shapleymix.mixing.fit_like import FitLike, Predicted, effect_of, little_told, misfit_of
from shapleymix.mixing.regimes import absent_of, rougher
from shapleymix.mixing.repeating import repeated_replicates, supply_of
from shapleymix.records import FloatArray


class Law(Protocol):
    """Losses (..., R, K) of mixtures p (R, M) at N and D (R,)."""

    def __call__(self, p: FloatArray, N: FloatArray, D: FloatArray) -> FloatArray: ...


@runtime_checkable
class PredictingFit(Protocol):
    """What is asked of a fit: no convexity, so that every law takes part."""

    @property
    def sources(self) -> tuple[str, ...]: ...
    @property
    def targets(self) -> tuple[str, ...]: ...
    @property
    def law(self) -> Law: ...
    @property
    def replicates(self) -> Law | None: ...
    def predict(
        self, p: FloatArray, N: float, D: float, *, level: float, runs: tuple[str, ...], strict: bool
    ) -> Predicted: ...


class Asked(TypedDict):
    """Keywords of a prediction."""

    level: float
    runs: tuple[str, ...]
    strict: bool


@runtime_checkable
class _Informed(Protocol):
    """A fit that knows what repeated tokens are worth: it takes the unique tokens at hand."""

    @property
    def repetition(self) -> Repetition | None: ...
    def predict(
        self,
        p: FloatArray,
        N: float,
        D: float,
        *,
        level: float,
        runs: tuple[str, ...],
        strict: bool,
        available: Mapping[str, float],
    ) -> Predicted: ...


def predictions(
    given: PredictingFit, p: FloatArray, supply: FloatArray, budget: tuple[float, float], asked: Asked
) -> Predicted:
    """What the fit predicts, with the unique tokens (M,) where it takes them."""
    known = supply_of(given, tuple(given.sources), supply)
    if known and _is_informed(given):
        return given.predict(p, *budget, **asked, available=known)
    return given.predict(p, *budget, **asked)


def _is_informed(fit: object) -> TypeGuard[_Informed]:
    return isinstance(fit, _Informed)


def replicated(fit: PredictingFit, p: FloatArray, supply: FloatArray, budget: tuple[float, float]) -> FloatArray | None:
    """Losses (B, R, K) of each replicate, those that `optimize` takes wherever it takes any; None without."""
    if isinstance(fit, FitLike) and is_convex(fit, *budget) and not _is_apart(fit, p):
        terms, _ = usable_replicates(repeated_replicates(fit, fit.replicate_terms(*budget), supply, budget[1]))
        return None if terms is None else np.stack([terms.losses(one) for one in p], axis=1)
    if fit.replicates is None:
        return None
    if isinstance(fit, ScoredFit):
        return fit.errors_of(_of_law(fit.fit, fit.replicates, p, supply, budget))
    return _of_law(fit, fit.replicates, p, supply, budget)


def _is_apart(fit: PredictingFit, p: FloatArray) -> bool:
    """Whether a mixture lacks a target's own language and the fit knows that for another regime, with no pieces."""
    known = absent_of(fit)
    return known is not None and bool(known.entries(p).any())


def _of_law(fit: PredictingFit, law: Law, p: FloatArray, supply: FloatArray, budget: tuple[float, float]) -> FloatArray:
    """The same of a law without convex pieces, with repeated tokens at the worth that each replicate gives them."""
    if not isinstance(law, laws.Law):
        return AtBudget(law, *budget).losses(p)
    known = getattr(fit, "repetition", None)
    N, D = (np.full(len(p), value) for value in budget)
    counted = taken(known if isinstance(known, Repetition) else None, p, None, supply, D)
    return of_replicates(law, absent_of(fit), counted, (N, D))


@dataclass(frozen=True)
class AtBudget:
    """A law at one N and D: losses (..., R, K) of mixtures p (R, M)."""

    law: Law
    N: float
    D: float

    def losses(self, p: FloatArray) -> FloatArray:
        rows = np.atleast_2d(p)
        found = self.law(rows, np.full(len(rows), self.N), np.full(len(rows), self.D))
        return np.broadcast_to(found, (*np.shape(found)[:-2], len(rows), np.shape(found)[-1]))


def doubts_of(fit: PredictingFit, replicates: FloatArray | None, level: float, budget: tuple[float, float]) -> Doubts:
    """What is unsure of every loss at one budget (N, D)."""
    drawn, effect = little_told(fit, fit.sources), effect_of(fit, *budget)
    return Doubts(misfit_of(fit, *budget), replicates is not None, level, drawn, effect)


def outlooks_of(
    fit: PredictingFit, p: FloatArray, losses: FloatArray, replicates: FloatArray | None, weights: FloatArray,
    misfit: Misfit | None, plain: FloatArray,
) -> list[Outlook]:  # fmt: skip
    """What is believed of the objective of each mixture (R, M), of losses (R, K); `plain` are those of the law."""
    objectives = weighted(losses, weights)
    values, known = _objectives(objectives, replicates, weights), absent_of(fit)
    parts = fit.sensitivity if isinstance(fit, ScoredFit) else parts_of
    return [
        Outlook(one, float(objective), spread, parts(each, weights * rougher(known, misfit, one)))
        for one, objective, spread, each in zip(p, objectives, values.T, plain, strict=True)
    ]


def plain_losses(
    fit: PredictingFit, p: FloatArray, supply: FloatArray, budget: tuple[float, float], found: Predicted
) -> FloatArray:
    """Losses (R, K) of the law: those that are predicted, or those by which scores are."""
    if not isinstance(fit, ScoredFit):
        return found.losses
    asked: Asked = {"level": LEVEL, "runs": tuple(map(str, range(len(p)))), "strict": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShapleyMixWarning)  # said with the scores
        return predictions(fit.fit, p, supply, budget, asked).losses


def weighted(losses: FloatArray, weights: FloatArray) -> FloatArray:
    """sum_j w_j loss_j over the last axis; a target of weight 0 never counts, even without a prediction."""
    counted = weights > 0
    return losses[..., counted] @ weights[counted]


def _objectives(objectives: FloatArray, replicates: FloatArray | None, weights: FloatArray) -> FloatArray:
    """Objectives (B, R) under each replicate, or (1, R) under the law; NaN where a point has no prediction."""
    if replicates is None:
        return objectives[None]
    return np.where(np.isnan(objectives), np.nan, weighted(replicates, weights))
