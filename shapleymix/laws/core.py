"""The core of most laws, `C_j(N, D) = E_j + A_j / N^alpha_j + B_j / D^beta_j`, and laws of N and D alone.

Where two levels of N or D cannot tell an exponent it is held at what logs with more levels give: alpha .13 to .26, beta
.3 to .8 (5Mix, RedPajama, SlimPajama). With two sizes fitted, the error on the third falls from 1.06, 1.04, 0.90% with
Chinchilla's .35 to 0.73, 0.63, 0.70% with .2. With two D of one size fitted and later ones held out, beta .5 beats .35
on 5Mix (.37 to .54% against .52 to .73) and SlimPajama and ties on RedPajama; on the five-language log, with two D,
.35 is better by .1% of PE in cross-validation, within its standard error.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from shapleymix.laws.base import Belief, Budget, Inputs, Law, Observations, fitted
from shapleymix.laws.pieces import Pieces
from shapleymix.records import FloatArray

EXPONENT_PRIOR: Mapping[Budget, Belief] = {"N": Belief(np.log(0.2), 0.5), "D": Belief(np.log(0.5), 0.36)}
"""Of the logarithms of alpha and beta before any run.

Centres: what serves best where one size of a mixture log is left out (see above). Spreads: those of eight public
isoFLOP suites around them (Epoch's Chinchilla, ml-scalefit, Llama 3 twice, Marin three times, misfitting), whose alpha
is .31 to .71 and beta .33 to .69 when each is fitted by `chinchilla`, as `bench_coverage.py` prints.
"""
SLOPE_PRIOR: Mapping[Budget, Belief] = {"N": Belief(0.08, 0.06), "D": Belief(np.log(0.06), 0.4)}
"""Of `-d log L / d log N` itself, and of the logarithm of `-d log L / d log D`.

In the middle of these suites .03 to .07 and .03 to .07, in the mixture logs .05 to .09 and .06 to .16. Models of 24,000
parameters on a million bytes gain but .02 from N: a slope may be next to nothing, which no spread of a logarithm holds
without holding slopes that were never seen. From 1.3M parameters and 1B tokens to 1B and 25B, RegMix's losses fall to
23 to 59%. Of fits to one size 5Mix is told 4.5 times as large to 1.7% and RedPajama to 1.7%
(3.4 and 1.8% with .06), ours 4.1 times as large to 11.3% (9.3%); inside 90% intervals lie 100, 100 and 88%, and of
RegMix's 92% (70% with .06 and a spread of .045).
"""
LEAST_SLOPE = 0.002
WORTH_PRIOR = Belief(np.log(40.0), 0.8)
"""Of the logarithm of R*, the epochs beyond which a repeated token is worth little. Muennighoff et al. 2023 give 15.4
with harm left out; with it, repeats are worth more and harm more."""
HARM_PRIOR = Belief(-5.0, 1.5)
"""Of the logarithm of h: five public logs and ours give -7.3 to -3.7; strong weight decay lowers it."""
SHARED_WORTH = 0.5
"""Share of the variance of log R* that all sources of a log have in common."""
LEAST_BENT, MOST_BENT = 0.1, 2.0  # g of `kaplan`: public suites have .2 to 1.2
TERMS: Mapping[Budget, tuple[str, str]] = {"N": ("A", "alpha"), "D": ("B", "beta")}
"""Amount and exponent of each budget's term in the core."""
FLATTEST, STEEPEST = 0.02, 3.0  # exponents of any curve that runs show


@dataclass(frozen=True)
class BudgetLaw(Law):
    """A law with a floor, a power of N and a power of D; losses in nats, N in parameters, D in tokens."""

    relative = True

    E: FloatArray = fitted(role="linear")
    A: FloatArray = fitted(role="linear", budget="N")
    alpha: FloatArray = fitted(role="exponent", low=FLATTEST, high=STEEPEST, budget="N", usual=0.2)
    B: FloatArray = fitted(role="linear", budget="D")
    beta: FloatArray = fitted(role="exponent", low=FLATTEST, high=STEEPEST, budget="D", usual=0.5)

    def parts(self, N: FloatArray, D: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """E, A / N^alpha and B / D^beta of a law whose symbols have the axes of N and D (see `Law.at`)."""
        with np.errstate(over="ignore"):  # infinite where a budget near zero makes it so
            return self.E, self.A * power(N, -self.alpha), self.B * power(D, -self.beta)

    def rescale(self, N0: float, D0: float) -> Self:
        return self.swap(A=self.A * power(np.array(N0), self.alpha), B=self.B * power(np.array(D0), self.beta))


@dataclass(frozen=True)
class CoreLaw(BudgetLaw):
    """A law built on the Chinchilla core, in which the three are added."""

    def core_loss(self, N: FloatArray, D: FloatArray) -> FloatArray:
        """C(N, D) of such a law."""
        constant, by_size, by_data = self.parts(N, D)
        return constant + by_size + by_data

    def core_and_slopes(self, N: FloatArray, D: FloatArray) -> tuple[FloatArray, dict[str, FloatArray]]:
        """The same, and the derivatives of its logarithm by those of E, A, alpha, B, beta."""
        constant, by_size, by_data = self.parts(N, D)
        core = constant + by_size + by_data
        share_N, share_D = by_size / core, by_data / core
        slopes = {"E": constant / core, "A": share_N, "B": share_D}
        exponents = {"alpha": -share_N * np.log(N) * self.alpha, "beta": -share_D * np.log(D) * self.beta}
        return core, slopes | exponents

    def core(self, N: FloatArray | float, D: FloatArray | float) -> FloatArray:
        """C at scalar budgets, (..., K), or at budgets (R,), (..., R, K)."""
        law, N, D = self.at(N, D)
        return law.core_loss(N, D)

    def with_harm(
        self, log_loss: FloatArray, slopes: dict[str, FloatArray], harm: FloatArray, N: FloatArray, D: FloatArray
    ) -> tuple[FloatArray, dict[str, FloatArray]]:
        """What `expansion` gives, with the `harm` (..., R, K) of repeated tokens added, as a share of C(N, D)."""
        law, N, D = self.at(N, D)
        core, by_core = law.core_and_slopes(N, D)
        loss = np.exp(log_loss)
        whole = loss + harm * core
        share = loss / whole
        found = {name: by * (share if by.ndim == share.ndim else share[..., None, :]) for name, by in slopes.items()}
        return np.log(whole), found | {name: found[name] + (1 - share) * by for name, by in by_core.items()}

    def with_exponent(self, budget: Budget, levels: FloatArray, exponent: FloatArray, amount: FloatArray) -> Self:
        """The same losses at the one or two `levels` (plain units) of a budget, with another exponent (..., K) of it.

        No run at these levels can tell the two laws apart, whatever its mixture. With one level, `amount` (..., K) is
        the budget's term there, in nats. As E stays at or above 0, exponents and amounts go no further than it allows.
        """
        size, before = (getattr(self, name) for name in TERMS[budget])
        low, high = np.array(levels.min()), np.array(levels.max())
        term = size * power(low, -before)
        whole = self.E + term  # what E and the term must give together at the lower level
        if low < high:
            fall = term - size * power(high, -before)
            steepest = np.log1p(-np.minimum(fall / np.maximum(whole, 1e-300), 1 - 1e-12)) / np.log(low / high)
            exponent = np.clip(np.maximum(exponent, steepest), FLATTEST, STEEPEST)
            amount = fall / -np.expm1(exponent * np.log(low / high))
        amount = np.minimum(amount, whole)
        found = amount * power(low, exponent), exponent
        return self.swap(E=whole - amount, **dict(zip(TERMS[budget], found, strict=True)))

    def redraw(self, budget: Budget, level: float, deviations: FloatArray) -> Self:
        """The same losses at the one `level` (plain units) of a budget, with symbols drawn that it cannot tell.

        The core's own are drawn by `with_exponent`; a law in which the budget does more has these besides.

        Parameters
        ----------
        deviations : array (..., K)
            Standard deviations from the centre of what is believed.
        """
        return self


@dataclass(frozen=True)
class Chinchilla(CoreLaw):
    """`L_j = E_j + A_j / N^alpha_j + B_j / (D sum_i q_i)^beta_j`, where q are the effective ratios of repeated tokens.

    Without repetition they sum to one.
    """

    kind = "law/chinchilla"
    name = "chinchilla"
    reference = "Hoffmann et al. 2022, eq. 2"
    assumption = "the mixture does not matter"

    def __call__(self, p: FloatArray, N: FloatArray, D: FloatArray) -> FloatArray:
        return self.core(N, D * p.sum(axis=-1) if p.shape[-1] else D)  # as many fresh tokens as D is worth

    def pieces(self, N: FloatArray | float, D: FloatArray | float) -> Pieces:
        law, N, D = self.at(N, D)
        constant, by_size, by_data = law.parts(N, D)
        each = np.ones_like(by_data)[..., None, :]  # (..., 1, K): all sources are alike, however many there are
        return Pieces("power", constant + by_size, by_data, law.beta * np.ones_like(by_data), each)


@dataclass(frozen=True)
class Kaplan(BudgetLaw):
    """`L_j = E_j + (A_j / N^alpha_j + B_j / D^beta_j)^g_j`: Chinchilla's at g = 1, Kaplan's at E = 0 and beta = 1.

    What this form and the core say of budgets beyond the runs, where both tell these as well, is how unsure either is.
    """

    kind = "law/kaplan"
    name = "kaplan"
    reference = "Kaplan et al. 2020, eq. 1.5, with a floor"
    assumption = "the mixture does not matter; neither N nor D alone bounds the loss"
    needs = ("one mixture",)
    takes_repetition = False

    A: FloatArray = fitted(budget="N")
    B: FloatArray = fitted(budget="D")
    g: FloatArray = fitted(low=LEAST_BENT, high=MOST_BENT)

    def core(self, N: FloatArray | float, D: FloatArray | float) -> FloatArray:
        """Losses at scalar budgets, (..., K), or at budgets (R,), (..., R, K)."""
        law, N, D = self.at(N, D)
        constant, by_size, by_data = law.parts(N, D)
        return constant + power(by_size + by_data, law.g)

    def pieces(self, N: FloatArray | float, D: FloatArray | float) -> Pieces:
        found = self.core(N, D)
        return Pieces("power", found, 0 * found, 1 + 0 * found, np.ones_like(found)[..., None, :])

    @classmethod
    def starts(cls, observed: Observations, inputs: Inputs, givens: dict[str, FloatArray]) -> dict[str, FloatArray]:
        """Both terms alike, and together a fourth of the loss."""
        usual = np.exp(np.average(observed.log_loss, axis=0, weights=observed.weight))
        each = list(itertools.product((0.3, 0.6), (0.3, 0.6), (0.4, 1.0)))
        alpha, beta, g = (np.array(one)[:, None] * np.ones(len(usual)) for one in zip(*each, strict=True))
        half = (usual / 4) ** (1 / g) / 2
        return {"A": half, "B": half, "alpha": alpha, "beta": beta, "g": g}


def models_harm(law: type[Law]) -> bool:
    """Whether a law knows of the harm that repeated tokens do, besides what they are worth: where it has mixtures."""
    return issubclass(law, CoreLaw) and law.takes_repetition and not issubclass(law, Chinchilla)


def repetition_prior(sources: int) -> tuple[FloatArray, FloatArray]:
    """Centre (H,) and covariance (H, H) of log h and each source's log R*, before any run."""
    covariance = np.pad(WORTH_PRIOR.spread**2 * (SHARED_WORTH + (1 - SHARED_WORTH) * np.eye(sources)), (1, 0))
    covariance[0, 0] = HARM_PRIOR.spread**2
    return np.append(HARM_PRIOR.center, np.full(sources, WORTH_PRIOR.center)), covariance


def power(base: FloatArray, exponent: FloatArray) -> FloatArray:
    """`base ** exponent` for positive bases, by one exponential; the logarithm is taken before broadcasting."""
    return np.exp(exponent * np.log(base))
