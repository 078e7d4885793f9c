"""The law without a mixture (Hoffmann et al. 2022, eq. 2): the baseline that every mixture law must beat."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shapleymix.errors import SolveError
from shapleymix.laws.base import Inputs, Observations
from shapleymix.laws.core import CoreLaw
from shapleymix.laws.terms import PowerTerms
from shapleymix.records import FloatArray


@dataclass(frozen=True)
class Chinchilla(CoreLaw):
    """`L_j = E_j + A_j / N^alpha_j + B_j / D^beta_j`."""

    kind = "law/chinchilla"
    name = "chinchilla"
    reference = "Hoffmann et al. 2022, eq. 2"
    assumption = "the mixture does not matter"

    def __call__(self, p: FloatArray, N: FloatArray, D: FloatArray) -> FloatArray:
        return np.broadcast_to(self.core(N, D), (*np.shape(self.E)[:-1], len(N), np.shape(self.E)[-1]))

    def expansion(self, p: FloatArray, N: FloatArray, D: FloatArray) -> tuple[FloatArray, dict[str, FloatArray]]:
        loss, slopes = self.core_expansion(N, D)
        return np.log(loss), slopes

    @classmethod
    def starts(cls, observed: Observations, inputs: Inputs, givens: dict[str, FloatArray]) -> dict[str, FloatArray]:
        return {}

    def terms(self, N: float, D: float) -> PowerTerms:
        hint = "fit a law with a mixture in it, such as 'shapley-tempered' or 'learned-concave'"
        raise SolveError("law 'chinchilla' does not depend on the mixture: no mixture is better", hint=hint)
