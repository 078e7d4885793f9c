"""FamilyLaw (He et al. 2025): transfer only within a language family."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shapleymix.errors import DataError, Fault, Location, UsageError
from shapleymix.laws.base import Inputs
from shapleymix.laws.symbols import given
from shapleymix.laws.transfer import TransferLaw, safe_log, strength
from shapleymix.records import FloatArray


@dataclass(frozen=True)
class Family(TransferLaw):
    """`L_j = C_j(N, D) Theta_j^-gamma_j`, Theta the summed ratio of j's family, fitted for each target.

    This is the form of the ShapleyLaw paper's comparison. Undefined where a family's ratio is zero.
    """

    kind = "law/family"
    name = "family"
    reference = "He et al. 2025; ShapleyLaw paper, section 2.2"
    assumption = "transfer is full within a family and none outside of it"
    needs = ("mixture", "families")

    gamma: FloatArray = strength(0.02, 0.05, 0.1, 0.2, 0.4)
    members: FloatArray = given("MK")

    def phi(self) -> FloatArray:
        return self.members

    def expansion(self, p: FloatArray, N: FloatArray, D: FloatArray) -> tuple[FloatArray, dict[str, FloatArray]]:
        return self.transfer_expansion(N, D, safe_log(self.theta(p, N, D)))

    @classmethod
    def givens(cls, inputs: Inputs) -> dict[str, FloatArray]:
        return {"members": same_family(inputs, inputs.sources)}


@dataclass(frozen=True)
class FamilyMean(Family):
    """FamilyLaw as published: one law a family, fitted to the mean loss of its targets, predicting that for each."""

    kind = "law/family-mean"
    name = "family-mean"
    reference = "He et al. 2025, eq. of the family's loss"
    assumption = "all languages of a family have one loss; transfer is full within it and none outside"

    @classmethod
    def seen_losses(cls, loss: FloatArray, inputs: Inputs) -> FloatArray:
        together = same_family(inputs, inputs.targets)
        measured = ~np.isnan(loss)
        total = np.where(measured, loss, 0.0) @ together
        count = measured @ together
        mean = total / np.maximum(count, 1.0)
        return np.where(measured & (count == together.sum(axis=0)), mean, np.nan)


def same_family(inputs: Inputs, rows: tuple[str, ...]) -> FloatArray:
    """1 where a row's language and a target are of one family, else 0; shape (rows, K)."""
    if inputs.languages is None:
        hint = "give a languages table with the columns language,family (languages=)"
        raise UsageError("law 'family' needs the language families", hint=hint)
    family = dict(zip(inputs.languages.names, inputs.languages.family, strict=True))
    lacking = [name for name in dict.fromkeys((*rows, *inputs.targets)) if not family.get(name)]
    if lacking:
        place = Location(file=inputs.languages.origin, column="family")
        raise DataError.of(
            [
                Fault(f"no family is given for {name!r}", place, hint="add the language with its family")
                for name in lacking
            ],
            "the languages table",
        )
    of_row = np.array([family[name] for name in rows])
    of_target = np.array([family[name] for name in inputs.targets])
    return (of_row[:, None] == of_target[None, :]).astype(np.float64)
