"""Laws `L_j = C_j(N, D) Theta_j(p)^-gamma_j` whose transfer coefficients are given: by Shapley values, or by families.

`Theta_j = sum_i phi_ij p_i^a_j` (ShapleyLaw paper, section 3.3). `exp(SV - max)` has an arbitrary temperature, so that
two of the Shapley laws fit it: `phi_ij = NSV_ij^kappa_j`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from shapleymix.errors import DataError, Fault, Location, UsageError
from shapleymix.laws.base import Inputs, require_transfer
from shapleymix.laws.core import CoreLaw
from shapleymix.laws.pieces import Pieces
from shapleymix.laws.symbols import fitted, given
from shapleymix.records import FloatArray


def strength(*start: float) -> FloatArray:
    """Declare gamma, how strongly transfer acts; members say where their search begins."""
    return fitted(low=1e-6, high=20.0, start=start, typical=(0.1, 0.3))


def concavity(*start: float) -> FloatArray:
    """Declare an exponent of ratios, in (0, 1]; 1 is no bound of the search but the law that is linear in them."""
    return fitted(low=0.05, high=1.0, start=start, typical=(0.4, 0.8))


@dataclass(frozen=True)
class TransferLaw(CoreLaw):
    """`L_j = C_j(N, D) Theta_j(p)^-gamma_j`; members say what phi and a are made of."""

    gamma: FloatArray = strength()

    def phi(self) -> FloatArray:
        """Transfer coefficients, shape (..., M, K)."""
        raise NotImplementedError

    def pieces(self, N: FloatArray | float, D: FloatArray | float) -> Pieces:
        law, N, D = self.at(N, D)
        core = law.fall(N, D)
        return Pieces("power", np.zeros(core.shape), core, law.gamma, law.phi())


@dataclass(frozen=True)
class ShapleyTransfer(TransferLaw):
    """What the laws that are given Shapley values share."""

    needs = ("mixture", "transfer")

    nsv: FloatArray = given("MK")

    @classmethod
    def givens(cls, inputs: Inputs) -> dict[str, FloatArray]:
        return {"nsv": require_transfer(inputs, cls.name).nsv}


@dataclass(frozen=True)
class Shapley(ShapleyTransfer):
    """`L_j = C_j(N, D) Theta_j^-gamma_j` with `Theta_j = sum_i p_i NSV_ij`."""

    kind = "law/shapley"
    name = "shapley"
    reference = "ShapleyLaw paper, section 3.3"
    assumption = "normalised Shapley values are the transfer coefficients"

    gamma: FloatArray = strength(0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 2.0)

    def phi(self) -> FloatArray:
        return self.nsv


@dataclass(frozen=True)
class TemperedTransfer(ShapleyTransfer):
    """What the laws with `phi_ij = NSV_ij^kappa_j` share."""

    kappa: FloatArray = fitted(low=1e-2, high=50.0, start=(0.5, 1.0, 2.0, 4.0, 8.0), typical=(1.5, 3.0))

    def phi(self) -> FloatArray:
        return np.exp(self.kappa[..., None, :] * np.log(self.nsv))


@dataclass(frozen=True)
class ShapleyTempered(TemperedTransfer):
    """`Theta_j = sum_i p_i NSV_ij^kappa_j`, kappa fitted; kappa = 1 is the paper's law."""

    kind = "law/shapley-tempered"
    name = "shapley-tempered"
    reference = "ShapleyLaw paper, section 3.3, with NSV^kappa"
    assumption = "Shapley values rank the transfer; its strength is fitted"

    gamma: FloatArray = strength(0.03, 0.1, 0.3, 1.0)


@dataclass(frozen=True)
class ShapleyConcave(TemperedTransfer):
    """`Theta_j = sum_i NSV_ij^kappa_j p_i^a_j` with `0 < a <= 1`, still convex to optimise."""

    kind = "law/shapley-concave"
    name = "shapley-concave"
    reference = "ShapleyLaw paper, section 3.3, with NSV^kappa and p^a"
    assumption = "Shapley values rank the transfer; its strength and its diminishing returns are fitted"

    gamma: FloatArray = strength(0.05, 0.2, 0.6)
    a: FloatArray = concavity(0.4, 0.7, 0.95)

    def pieces(self, N: FloatArray | float, D: FloatArray | float) -> Pieces:
        found, (law, _, _) = super().pieces(N, D), self.at(N, D)
        return replace(found, s=law.a[..., None, :] + np.zeros(np.shape(found.phi)))


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
