"""Published laws: with given transfer (Shapley values, families), effective data, the exponential and the additive law.

`Theta_j = sum_i phi_ij p_i^a_j` (ShapleyLaw paper, section 3.3). `exp(SV - max)` has an arbitrary temperature, so that
two of the Shapley laws fit it: `phi_ij = NSV_ij^kappa_j`.

Where the log must tell coefficients, searches begin at log-linear slopes of the losses in the mixture.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from shapleymix.errors import DataError, Location, UsageError
from shapleymix.laws.base import Belief, Inputs, Knobs, Observations, fitted, given, require_transfer
from shapleymix.laws.core import CoreLaw, power
from shapleymix.laws.pieces import Pieces
from shapleymix.records import FloatArray


def strength(*start: float) -> FloatArray:
    """Declare gamma, how strongly transfer acts; members say where their search begins."""
    return fitted(low=1e-6, high=20.0, start=start)


def concavity(*start: float) -> FloatArray:
    """Declare an exponent of ratios, in (0, 1]; 1 is no bound of the search but the law that is linear in them."""
    return fitted(low=0.05, high=1.0, start=start)


@dataclass(frozen=True)
class TransferLaw(CoreLaw):
    """`L_j = C_j(N, D) Theta_j(p)^-gamma_j`; members say what phi and a are made of."""

    gamma: FloatArray = strength()

    def phi(self) -> FloatArray:
        """Transfer coefficients, shape (..., M, K)."""
        raise NotImplementedError

    def pieces(self, N: FloatArray | float, D: FloatArray | float) -> Pieces:
        law, N, D = self.at(N, D)
        core = law.core_loss(N, D)
        return Pieces("power", np.zeros(core.shape), core, law.gamma, law.phi())

    def expansion(self, p: FloatArray, N: FloatArray, D: FloatArray) -> tuple[FloatArray, dict[str, FloatArray]]:
        law, *budgets = self.at(N, D)
        core, slopes = law.core_and_slopes(*budgets)
        if {known.name for known in self.symbols_to_fit()} - {*slopes, "gamma"}:
            return super().expansion(p, N, D)  # Theta has symbols of its own
        theta = self.pieces(N, D).theta(p)
        log_theta = np.log(np.where(theta > 0, theta, 1.0))
        return np.log(core) - law.gamma * log_theta, slopes | {"gamma": -law.gamma * log_theta}


@dataclass(frozen=True)
class Shapley(TransferLaw):
    """`L_j = C_j(N, D) Theta_j^-gamma_j` with `Theta_j = sum_i p_i NSV_ij`."""

    kind = "law/shapley"
    name = "shapley"
    reference = "ShapleyLaw paper, section 3.3"
    assumption = "normalised Shapley values are the transfer coefficients"
    needs = ("mixture", "transfer")

    gamma: FloatArray = strength(0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 2.0)
    nsv: FloatArray = given("MK")

    def phi(self) -> FloatArray:
        return self.nsv

    @classmethod
    def givens(cls, inputs: Inputs) -> dict[str, FloatArray]:
        return {"nsv": require_transfer(inputs, cls.name).nsv}


@dataclass(frozen=True)
class ShapleyTempered(Shapley):
    """`Theta_j = sum_i p_i NSV_ij^kappa_j`, kappa fitted; kappa = 1 is the paper's law."""

    kind = "law/shapley-tempered"
    name = "shapley-tempered"
    reference = "ShapleyLaw paper, section 3.3, with NSV^kappa"
    assumption = "Shapley values rank the transfer; its strength is fitted"

    gamma: FloatArray = strength(0.03, 0.1, 0.3, 1.0)
    kappa: FloatArray = fitted(low=1e-2, high=50.0, start=(0.5, 1.0, 2.0, 4.0, 8.0))

    def phi(self) -> FloatArray:
        return np.exp(self.kappa[..., None, :] * np.log(self.nsv))


@dataclass(frozen=True)
class ShapleyConcave(ShapleyTempered):
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
        """1 where a source and a target are of one family, else 0; shape (M, K)."""
        if inputs.languages is None:
            hint = "give a languages table with the columns language,family (languages)"
            raise UsageError("law 'family' needs the language families", hint=hint)
        family = dict(zip(inputs.languages.names, inputs.languages.family, strict=True))
        if lacking := [name for name in dict.fromkeys((*inputs.sources, *inputs.targets)) if not family.get(name)]:
            place = Location(file=inputs.languages.origin, column="family")
            message = f"no family is given for {', '.join(map(repr, lacking))}"
            raise DataError(message, location=place, hint="add the languages with their families")
        same = [[family[source] == family[target] for target in inputs.targets] for source in inputs.sources]
        return {"members": np.array(same, dtype=np.float64)}


RIDGE = 1e-4


@dataclass(frozen=True)
class EffectiveData(CoreLaw):
    """`L_j = E_j + A_j / N^alpha_j + B_j / (D Theta_j)^beta_j`, `Theta_j = sum_i phi_ij p_i`, `max_i phi_ij = 1`.

    The mixture acts only through how many tokens count for the target. Worst in range and least biased far outside of
    it: a cross-check for extrapolation.
    """

    kind = "law/effective-data"
    name = "effective-data"
    reference = "Hoffmann et al. 2022, eq. 2, with D Theta in place of D"
    assumption = "a token of another language is worth a fixed share of a token of the target's own"
    needs = ("mixture",)

    B: FloatArray = fitted(role="linear")
    beta: FloatArray = fitted(role="exponent", low=0.02, high=3.0)
    coefficients: FloatArray = fitted("MK", role="coefficients", low=1e-10, high=1e10)

    def pieces(self, N: FloatArray | float, D: FloatArray | float) -> Pieces:
        law, N, D = self.at(N, D)
        constant, by_size, by_data = law.parts(N, D)
        return Pieces("power", constant + by_size, by_data, law.beta, law.coefficients)

    @classmethod
    def starts(cls, observed: Observations, inputs: Inputs, givens: dict[str, FloatArray]) -> dict[str, FloatArray]:
        return {"coefficients": relative_worth(observed, widths=(0.1, 0.3, 1.0), least=1e-3)}

    def in_gauge(self) -> Self:
        """The same law with `max_i phi_ij = 1`; the scale goes into B exactly."""
        top = self.coefficients.max(axis=-2)
        return self.swap(coefficients=self.coefficients / top[..., None, :], B=self.B * power(top, -self.beta))


@dataclass(frozen=True)
class Exponential(CoreLaw):
    """`L_j = E_j + A_j / N^alpha_j + B_j / D^beta_j + k_j exp(sum_i t_ij p_i)`, `max_i t_ij = 0`.

    Ratios sum to one, so that a shift of all t_ij by a constant is a factor of k_j: only differences of t are known.
    """

    kind = "law/exponential"
    name = "exponential"
    reference = "Ye et al. 2025, eq. 6, with Chinchilla's terms added"
    assumption = "log of the reducible loss is linear in the ratios"
    needs = ("mixture",)
    knobs: ClassVar[Mapping[str, tuple[float, ...]]] = {"t": (30.0, 10.0, 3.0)}
    takes_repetition = False  # t is known up to a shift because ratios sum to one

    k: FloatArray = fitted(role="linear")
    t: FloatArray = fitted("MK", low=-60.0, high=60.0, positive=False)

    def pieces(self, N: FloatArray | float, D: FloatArray | float) -> Pieces:
        law, N, D = self.at(N, D)
        return Pieces("exponential", law.core_loss(N, D), law.k, np.ones_like(law.k), law.t)

    @classmethod
    def starts(cls, observed: Observations, inputs: Inputs, givens: dict[str, FloatArray]) -> dict[str, FloatArray]:
        slopes = mixture_slopes(observed)
        slopes = slopes - slopes.mean(axis=0)
        return {"t": np.stack([scale * slopes for scale in (1.0, 2.0, 4.0, 8.0)])}

    @classmethod
    def beliefs(cls, knobs: Knobs, givens: Mapping[str, FloatArray]) -> dict[str, Belief]:
        """A source that few runs hold, and these at small ratios, could have any t: `exp(60 p)` fits one run well."""
        return {"t": Belief(0.0, knobs["t"])}

    def in_gauge(self) -> Self:
        """The same law with `max_i t_ij = 0`; the shift goes into k exactly."""
        top = self.t.max(axis=-2)
        return self.swap(t=self.t - top[..., None, :], k=self.k * np.exp(top))


@dataclass(frozen=True)
class Additive(CoreLaw):
    """`L_j = E_j + A_j / N^alpha_j + B_j / D^beta_j + 1 / sum_i C_ij p_i^g_ij`, an exponent for every pair."""

    kind = "law/additive"
    name = "additive"
    reference = "Shukor et al. 2025, additive law"
    assumption = "the mixture adds to the loss, whatever N and D"
    needs = ("mixture",)

    coefficients: FloatArray = fitted("MK", role="coefficients", low=1e-8, high=1e8)
    g: FloatArray = fitted("MK", low=0.05, high=1.0, start=(0.3, 0.7))

    def pieces(self, N: FloatArray | float, D: FloatArray | float) -> Pieces:
        law, N, D = self.at(N, D)
        one = np.ones(np.shape(law.E))
        return Pieces("power", law.core_loss(N, D), one, one, law.coefficients, law.g)

    @classmethod
    def starts(cls, observed: Observations, inputs: Inputs, givens: dict[str, FloatArray]) -> dict[str, FloatArray]:
        relative = relative_worth(observed, widths=(0.3, 1.0), least=1e-2)
        return {"coefficients": np.concatenate([scale * relative for scale in (0.5, 1.5, 5.0)])}


def mixture_slopes(observed: Observations) -> FloatArray:
    """Slopes t (M, K) of `log L_j ~ c + t . p - n log N - d log D`, by weighted ridge regression; up to a constant."""
    budget = np.stack([np.log(observed.N), np.log(observed.D)], axis=1)
    columns = np.concatenate([observed.p, budget], axis=1)
    weight = observed.weight / np.maximum(observed.weight.sum(axis=0), 1e-300)
    center = weight.T @ columns  # (K, M + 2)
    level = (weight * observed.log_loss).sum(axis=0)
    gram = np.einsum("rk,rm,rn->kmn", weight, columns, columns, optimize=True)
    gram -= center[:, :, None] * center[:, None, :]
    right = (weight * observed.log_loss).T @ columns - level[:, None] * center
    ridge = RIDGE * np.maximum(np.einsum("kmm->k", gram), 1e-12) / columns.shape[1]
    solved = np.linalg.solve(gram + ridge[:, None, None] * np.eye(columns.shape[1]), right[..., None])[..., 0]
    return solved[:, : observed.p.shape[1]].T


def relative_worth(observed: Observations, widths: tuple[float, ...], least: float) -> FloatArray:
    """Coefficients (S, M, K) of 1 for the best source and less for others, by how much worse their slopes are.

    `exp(-slope / width)`, for each width S, and no less than `least`.
    """
    slopes = mixture_slopes(observed)
    slopes = slopes - slopes.min(axis=0)
    return np.maximum(np.exp(-slopes / np.array(widths)[:, None, None]), least)
