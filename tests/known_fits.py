"""Fits whose laws are known, as the optimiser takes them: no log was fitted."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from shapleymix.errors import SolveError
from shapleymix.laws import Law
from shapleymix.laws.shapley import Shapley
from shapleymix.laws.terms import PowerTerms
from shapleymix.mixing.mixtures import Mixture
from shapleymix.mixing.optimization import optimize

SOURCES, TARGETS = ("en", "de", "fi", "code"), ("en", "de", "fi")
TOKENS = {"en": "1T", "de": "100B", "fi": "2B", "code": "50B"}


@dataclass(frozen=True)
class Predicted:
    losses: np.ndarray
    low: np.ndarray
    high: np.ndarray
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class FakeFit:
    """A ShapleyLaw with known parameters: M = 4 sources, K = 3 targets, B bootstrap replicates."""

    B: int = 40
    size_matters: bool = True
    data_matter: bool = True
    sources: tuple[str, ...] = SOURCES
    targets: tuple[str, ...] = TARGETS
    held: dict[str, str] = field(default_factory=dict)
    law: type[Law] = Shapley

    def core(self, N: float, D: float) -> np.ndarray:
        size = 400 / N**0.34 if self.size_matters else 0.3
        return np.array([1.6, 1.8, 2.1]) + size + (2000 / D**0.37 if self.data_matter else 0.2)

    def terms(self, N: float, D: float) -> PowerTerms:
        phi = np.array([[1, 0.3, 0.2], [0.15, 1, 0.1], [0.1, 0.05, 1], [0.3, 0.1, 0.05]])
        return PowerTerms(np.zeros(3), self.core(N, D), np.array([0.08, 0.1, 0.15]), phi)

    def replicate_terms(self, N: float, D: float) -> PowerTerms | None:
        if not self.B:
            return None
        rng, point = np.random.default_rng(7), self.terms(N, D)
        wobble = np.exp(0.1 * rng.normal(size=(self.B, 3)))
        phi = point.phi * np.exp(0.1 * rng.normal(size=(self.B, 4, 3)))
        return PowerTerms(np.zeros(3), point.a * np.ones((self.B, 1)), point.gamma * wobble, phi)

    def predict(self, p, N, D, level=0.9) -> Predicted:
        losses = self.terms(float(N), float(D)).losses(np.asarray(p))
        return Predicted(losses, losses - 0.1, losses + 0.1, ("N is far out",) if float(N) > 1e10 else ())


def mixture(**options) -> Mixture:
    return optimize(FakeFit(), "1B", "100B", **options)


@dataclass(frozen=True)
class FlatFit(FakeFit):
    """The same, but no target feels the mixture."""

    def terms(self, N: float, D: float) -> PowerTerms:
        return replace(super().terms(N, D), gamma=np.zeros(3))


class Bumpy(FakeFit):
    """A law without convex pieces."""

    def terms(self, N: float, D: float) -> PowerTerms:
        raise SolveError("not convex", hint="use another law")

    def predict(self, p, N, D, level=0.9) -> Predicted:
        p = np.asarray(p)
        losses = 2 + 0.1 * np.sin(8 * p[:, :3]) + (p[:, :3] - 0.5) ** 2
        return Predicted(losses, losses, losses)
