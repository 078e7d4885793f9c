"""What is asked of a fit, which may be a user's own, and what more is read of it where it is there."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol, TypeGuard, runtime_checkable

import numpy as np

from shapleymix.downstream.scoring import ScoredFit
from shapleymix.errors import UsageError, described
from shapleymix.fitting.cells import Cells, Effect
from shapleymix.fitting.misfit import Misfit
from shapleymix.fitting.settings import LEVEL
from shapleymix.laws.terms import Terms
from shapleymix.mixing.bounds import Constraints
from shapleymix.mixing.repeating import Rates
from shapleymix.records import BoolArray, FloatArray


class Predicted(Protocol):
    """What is read of a prediction: (R, K) losses and their interval. What more it says is read where it is there."""

    @property
    def losses(self) -> FloatArray: ...
    @property
    def low(self) -> FloatArray: ...
    @property
    def high(self) -> FloatArray: ...


@runtime_checkable
class FitLike(Protocol):
    """What is asked of a fit."""

    @property
    def sources(self) -> tuple[str, ...]: ...
    @property
    def targets(self) -> tuple[str, ...]: ...
    def terms(self, N: float, D: float) -> Terms: ...
    def replicate_terms(self, N: float, D: float) -> Terms | None: ...
    def predict(
        self, p: FloatArray, N: float, D: float, *, level: float = LEVEL, strict: bool = False
    ) -> Predicted: ...


@runtime_checkable
class Informed(Protocol):
    """A fit that knows what repeated tokens are worth: it predicts with the unique tokens at hand."""

    @property
    def repetition(self) -> Rates | None: ...
    def predict(
        self, p: FloatArray, N: float, D: float, *, level: float, strict: bool, available: Mapping[str, float]
    ) -> Predicted: ...


FitSpec = FitLike | str | os.PathLike[str]


def fit_of(given: FitSpec, *, for_losses: str = "") -> FitLike:
    """A fit, or the one that a file holds; not of scores where only losses will do, for what is named.

    Raises
    ------
    UsageError
        If it is neither. StoreError if the file cannot be read.
    """
    if isinstance(given, (str, os.PathLike)):
        from shapleymix.fitting.fits import Fit

        return Fit.load(given)
    if not isinstance(given, FitLike):
        hint = "give what `fit` returns, or the file in which it was saved"
        raise UsageError(f"{described(given)} is no fit", hint=hint)
    if for_losses and isinstance(given, ScoredFit):
        raise UsageError(f"{for_losses} is of losses, not of scores", hint="give the fit of the losses")
    return given


def predicted(
    fit: FitLike,
    p: FloatArray,
    N: float,
    D: float,
    supply: Mapping[str, float],
    *,
    level: float = LEVEL,
    strict: bool = False,
) -> Predicted:
    """What a fit predicts of mixtures p (R, M), with unique tokens by source where it takes them."""
    if supply and _is_informed(fit):
        return fit.predict(p, N, D, level=level, strict=strict, available=supply)
    if strict:  # a fit of a user's own need not know the word
        return fit.predict(p, N, D, level=level, strict=True)
    return fit.predict(p, N, D, level=level)


def _is_informed(fit: object) -> TypeGuard[Informed]:
    return isinstance(fit, Informed)


def unseen_sources(fit: FitLike) -> tuple[str, ...]:
    """Sources that no run of the fit ever saw; a fit of a user's own need not know."""
    return tuple(getattr(fit, "unseen", ()))


def effect_of(fit: object, N: float, D: float) -> Effect | None:
    """What losses of all mixtures of one budget have in common, where the fit knows; one of a user's own need not."""
    cells = getattr(fit, "cells", None)
    return cells.common(N, D) if isinstance(cells, Cells) else None


def misfit_of(fit: object, N: float, D: float) -> Misfit | None:
    """How held-out losses of one budget scatter about the law; a fit of a user's own need not know."""
    misfit, cells = getattr(fit, "misfit", None), getattr(fit, "cells", None)
    if misfit is None or not isinstance(cells, Cells):
        return misfit
    return replace(misfit, scale=misfit.scale * cells.factors(np.array([N]), np.array([D]), apart=True)[0])


def little_told(fit: object, sources: Sequence[str]) -> BoolArray:
    """Sources (M,) whose effect the replicates draw, since the runs tell little of it; some fits need not know."""
    little = {*getattr(fit, "unseen", ()), *getattr(fit, "thin", {})}
    return np.array([name in little for name in sources], dtype=bool)


def drawn_sources(fit: FitLike, constraints: Constraints) -> tuple[str, ...]:
    """Those of them that may get a ratio."""
    used = (little_told(fit, constraints.sources) & (constraints.upper > 0)).tolist()
    return tuple(name for name, one in zip(constraints.sources, used, strict=True) if one)
