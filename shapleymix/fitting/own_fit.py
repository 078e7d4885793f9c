"""Fits that are not ours: an object that predicts losses, wrapped once, at the door.

Axes: B replicates, R mixtures, M sources, K targets.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np

from shapleymix.errors import UsageError, described
from shapleymix.fitting.fit import Fit
from shapleymix.fitting.surface import LossSource, Score, Surface, with_score
from shapleymix.laws.pieces import Pieces
from shapleymix.records import FloatArray

FitSpec = object
"""A `Fit`, the file of a saved one, or an object of the user's own (see `Predicts`)."""


@runtime_checkable
class Predicts(Protocol):
    """An object of the user's own: losses (R, K), or a result with `losses`, from p (R, M), N (R,) and D (R,).

    It may give convex pieces besides, `pieces(N, D) -> Pieces`, and such of draws, `draws(N, D) -> Pieces`.
    """

    sources: tuple[str, ...]
    targets: tuple[str, ...]

    def predict(self, p: FloatArray, N: FloatArray, D: FloatArray, /) -> object: ...


@dataclass(frozen=True)
class OfObject(LossSource):
    """What an object of the user's own says at one budget."""

    given: Predicts
    N: float
    D: float
    pieces: Pieces | None
    draws: Pieces | None

    def losses(self, p: FloatArray) -> FloatArray:
        if self.pieces is not None:
            return self.pieces.losses(p)
        answer = self.given.predict(p[None], np.array([self.N]), np.array([self.D]))
        return np.asarray(getattr(answer, "losses", answer), dtype=np.float64).reshape(-1)

    def of_replicates(self, p: FloatArray) -> FloatArray | None:
        return None if self.draws is None else self.draws.losses(p)


@dataclass(frozen=True)
class OwnFit:
    """An object of the user's own in the place of a fit: of it nothing is known but what it predicts."""

    given: Predicts
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    coverage = repetition = provenance = residual = jumps = None
    tells_tokens: ClassVar[bool] = False
    parents: ClassVar[Mapping[str, str]] = MappingProxyType({})
    unseen: ClassVar[tuple[str, ...]] = ()
    caveats: ClassVar[tuple[str, ...]] = ()

    def at(self, N: float, D: float, *, available: FloatArray | None = None, score: Score | None = None) -> Surface:
        """What it says of losses at one budget."""
        pieces, draws = (_pieces_of(self.given, name, N, D) for name in ("pieces", "draws"))
        samples, K = 1 if draws is None else draws.batch[0], len(self.targets)
        known = OfObject(self.targets, samples, self.given, N, D, pieces, draws)
        supply = np.full(len(self.sources), np.nan) if available is None else available
        own, edge = np.full(K, -1), np.zeros(K)
        found = Surface(self.sources, self.targets, N, D, "loss", supply, pieces, draws, own, edge, None, known)
        return found if score is None else with_score(found, score)


def _pieces_of(given: object, name: str, N: float, D: float) -> Pieces | None:
    stated = getattr(given, name, None)
    found = stated(N, D) if callable(stated) else None
    return found if isinstance(found, Pieces) else None


AnyFit = Fit | OwnFit


def as_fit(given: FitSpec) -> AnyFit:
    """A fit, the one that a file holds, or an object of the user's own, wrapped.

    Raises
    ------
    UsageError
        If it predicts nothing. StoreError if the file cannot be read.
    """
    if isinstance(given, (Fit, OwnFit)):
        return given
    if isinstance(given, (str, os.PathLike)):
        return Fit.load(given)
    if isinstance(given, Predicts):
        return OwnFit(given, tuple(given.sources), tuple(given.targets))
    hint = "give a Fit, its file, or an object with sources, targets and predict(p, N, D)"
    raise UsageError(f"{described(given)} is no fit", hint=hint)
