"""The core of most laws, `C_j(N, D) = E_j + A_j / N^alpha_j + B_j / D^beta_j`, and the law that is the core alone.

Where two levels of N or D cannot tell an exponent it is held at what logs with more levels give: alpha .13 to .26, beta
.3 to .8 (5Mix, RedPajama, SlimPajama). With two sizes fitted, the error on the third falls from 1.06, 1.04, 0.90% with
Chinchilla's .35 to 0.73, 0.63, 0.70% with .2. With two D of one size fitted and later ones held out, beta .5 beats .35
on 5Mix (.37 to .54% against .52 to .73) and SlimPajama and ties on RedPajama; on the five-language log, with two D,
.35 is better by .1% of PE in cross-validation, within its standard error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from shapleymix.errors import SolveError
from shapleymix.laws.base import Law
from shapleymix.laws.symbols import Belief, Budget, fitted, over_runs
from shapleymix.laws.terms import Terms
from shapleymix.records import FloatArray

EXPONENT: Mapping[Budget, Belief] = {"N": Belief(np.log(0.2), 0.5), "D": Belief(np.log(0.5), 0.36)}
"""Of the logarithms of alpha and beta before any run.

Centres: what serves best where one size of a mixture log is left out (see above). Spreads: those of eight public
isoFLOP suites around them (Epoch's Chinchilla, ml-scalefit, Llama 3 twice, Marin three times, misfitting), whose alpha
is .31 to .71 and beta .33 to .69 when each is fitted by `chinchilla`, as `bench_coverage.py` prints.
"""
SLOPE: Mapping[Budget, Belief] = {"N": Belief(0.06, 0.045), "D": Belief(np.log(0.06), 0.4)}
"""Of `-d log L / d log N` itself, and of the logarithm of `-d log L / d log D`.

In the middle of these suites .03 to .07 and .03 to .07, in the mixture logs .05 to .09 and .06 to .16. Models of 24,000
parameters on a million bytes gain but .02 from N: a slope may be next to nothing, which no spread of a logarithm holds
without holding slopes that were never seen; this one is twice as wide as the logs', since they are few.
"""
LEAST_SLOPE = 0.002
FLATTEST, STEEPEST = 0.02, 3.0  # exponents of any curve that runs show


@dataclass(frozen=True)
class CoreLaw(Law):
    """A law built on the Chinchilla core; losses in nats, N in parameters, D in tokens."""

    relative = True
    beside: ClassVar[bool] = False  # is the core a summand of the loss (or a factor), so that a fit may do without it?

    E: FloatArray = fitted(role="linear", typical=(1.2, 1.8))
    A: FloatArray = fitted(role="linear", budget="N", typical=(300.0, 600.0))
    alpha: FloatArray = fitted(role="exponent", low=FLATTEST, high=STEEPEST, budget="N", usual=0.2, typical=(0.3, 0.4))
    B: FloatArray = fitted(role="linear", budget="D", typical=(1000.0, 2000.0))
    beta: FloatArray = fitted(role="exponent", low=FLATTEST, high=STEEPEST, budget="D", usual=0.5, typical=(0.3, 0.4))

    def core_pieces(self, N: FloatArray, D: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """E, A / N^alpha and B / D^beta, the last two of shape (..., R, K)."""
        return self.pieces_by_logs(np.log(N)[:, None], np.log(D)[:, None])

    def pieces_by_logs(self, log_N: FloatArray, log_D: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The same by the logarithms of budgets that each target may have of its own, (..., R, K) or (R, 1)."""
        with np.errstate(over="ignore"):  # infinite where a budget near zero makes it so
            by_size = over_runs(self.A) * np.exp(-over_runs(self.alpha) * log_N)
            by_data = over_runs(self.B) * np.exp(-over_runs(self.beta) * log_D)
        return over_runs(self.E), by_size, by_data

    def core(self, N: FloatArray, D: FloatArray) -> FloatArray:
        """C(N, D), shape (..., R, K)."""
        constant, by_size, by_data = self.core_pieces(N, D)
        return constant + by_size + by_data

    def pieces_at(self, N: float, D: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The core's pieces at one budget, each (..., K).

        Raises
        ------
        SolveError
            If the budget lies so far out that a piece overflows.
        """
        pieces = self.core_pieces(np.array([N]), np.array([D]))
        if not all(np.isfinite(piece).all() for piece in pieces):
            raise SolveError(f"law {self.name!r} overflows at N = {N:g}, D = {D:g}", hint="give a larger N and D")
        constant, by_size, by_data = pieces
        return constant[..., 0, :], by_size[..., 0, :], by_data[..., 0, :]

    def core_at(self, N: float, D: float) -> FloatArray:
        """C at one budget, shape (..., K); raises as `pieces_at` does."""
        constant, by_size, by_data = self.pieces_at(N, D)
        return constant + by_size + by_data

    def core_expansion(
        self, N: FloatArray, D: FloatArray, extra: FloatArray | float = 0.0
    ) -> tuple[FloatArray, dict[str, FloatArray]]:
        """The loss C + extra, and the derivatives of its logarithm by those of E, A, alpha, B, beta."""
        return self.expansion_by_logs(np.log(N)[:, None], np.log(D)[:, None], extra)

    def expansion_by_logs(
        self, log_N: FloatArray, log_D: FloatArray, extra: FloatArray | float = 0.0
    ) -> tuple[FloatArray, dict[str, FloatArray]]:
        """The same by the logarithms of budgets."""
        constant, by_size, by_data = self.pieces_by_logs(log_N, log_D)
        loss = constant + by_size + by_data + extra
        inverse = 1.0 / loss
        share_N, share_D = by_size * inverse, by_data * inverse
        return loss, {
            "E": constant * inverse,
            "A": share_N,
            "alpha": -share_N * (log_N * over_runs(self.alpha)),
            "B": share_D,
            "beta": -share_D * (log_D * over_runs(self.beta)),
        }

    def bent(self, budget: Budget, levels: FloatArray, exponent: FloatArray, amount: FloatArray) -> Self:
        """The same losses at the one or two `levels` (plain units) of a budget, with another exponent (..., K) of it.

        No run at these levels can tell the two laws apart, whatever its mixture. With one level, `amount` (..., K) is
        the budget's term there, in nats. As E stays at or above 0, exponents and amounts go no further than it allows.
        """
        size, held = (self.A, self.alpha) if budget == "N" else (self.B, self.beta)
        low, high = np.array(levels.min()), np.array(levels.max())
        term = size * power(low, -held)
        whole = self.E + term  # what E and the term must give together at the lower level
        if low < high:
            fall = term - size * power(high, -held)
            steepest = np.log1p(-np.minimum(fall / np.maximum(whole, 1e-300), 1 - 1e-12)) / np.log(low / high)
            exponent = np.clip(np.maximum(exponent, steepest), FLATTEST, STEEPEST)
            amount = fall / -np.expm1(exponent * np.log(low / high))
        amount = np.minimum(amount, whole)
        size = amount * power(low, exponent)
        if budget == "N":
            return self.replaced(E=whole - amount, A=size, alpha=exponent)
        return self.replaced(E=whole - amount, B=size, beta=exponent)

    def loosened(self, budget: Budget, level: float, apart: FloatArray) -> Self:
        """The same losses at the one `level` (plain units) of a budget, with symbols drawn that it cannot tell.

        The core's own are drawn by `bent`; a law in which the budget does more has these besides.

        Parameters
        ----------
        apart : array (..., K)
            Standard deviations from the centre of what is believed.
        """
        return self

    def rescaled(self, N0: float, D0: float) -> Self:
        return self.replaced(A=self.A * power(np.array(N0), self.alpha), B=self.B * power(np.array(D0), self.beta))


@dataclass(frozen=True)
class Chinchilla(CoreLaw):
    """`L_j = E_j + A_j / N^alpha_j + B_j / D^beta_j`."""

    kind = "law/chinchilla"
    name = "chinchilla"
    reference = "Hoffmann et al. 2022, eq. 2"
    assumption = "the mixture does not matter"
    takes_repetition = False

    def __call__(self, p: FloatArray, N: FloatArray, D: FloatArray) -> FloatArray:
        return np.broadcast_to(self.core(N, D), (*np.shape(self.E)[:-1], len(N), np.shape(self.E)[-1]))

    def expansion(self, p: FloatArray, N: FloatArray, D: FloatArray) -> tuple[FloatArray, dict[str, FloatArray]]:
        loss, slopes = self.core_expansion(N, D)
        return np.log(loss), slopes

    def terms(self, N: float, D: float) -> Terms:
        hint = "fit a law with a mixture in it, such as 'shapley-tempered' or 'learned-base'"
        raise SolveError("law 'chinchilla' does not depend on the mixture: no mixture is better", hint=hint)


def power(base: FloatArray, exponent: FloatArray) -> FloatArray:
    """`base ** exponent` for positive bases, by one exponential; the logarithm is taken before broadcasting."""
    return np.exp(exponent * np.log(base))
