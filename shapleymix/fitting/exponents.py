"""How the loss goes on with a budget that the runs hardly vary: exponents, and sizes of terms, from public runs.

Through the losses at two values of N passes a curve for every exponent, and through those at one value a curve for
every exponent and every size of the term: no run tells them apart, so what is believed of them before the fit is also
what is believed after it. The fitted law takes the centre of that belief, each replicate draws from it and is bent to
it (`CoreLaw.bent`), and an interval thus opens with the distance from the runs, for every law with Chinchilla's core.

The beliefs, and whose they are, stand in `laws/core.py`.

Legend: B replicates, K targets.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from shapleymix.laws import Law
from shapleymix.laws.core import EXPONENT, LEAST_SLOPE, SLOPE, CoreLaw
from shapleymix.laws.symbols import Budget
from shapleymix.records import BoolArray, FloatArray
from shapleymix.tables.runs import RunLog

STREAM = 4  # second word of the seed: these draws are others than those of the bootstrap, of beliefs and of sources
COMMON = 0.8  # of the variance of a belief is one draw for all targets of a log; in it, targets differ less than logs


@dataclass(frozen=True)
class Levels:
    """The different values of N and of D among the fitted rows, in plain units, ascending."""

    N: FloatArray
    D: FloatArray

    @classmethod
    def of(cls, log: RunLog, rows: BoolArray | None = None) -> Levels:
        """Those of some rows of a log, or of all."""
        chosen = slice(None) if rows is None else rows
        return cls(np.unique(log.N[chosen]), np.unique(log.D[chosen]))

    def untold(self, law: type[Law]) -> dict[Budget, FloatArray]:
        """The budgets with one or two values that a law's symbols need more of, and these."""
        both: dict[Budget, FloatArray] = {"N": self.N, "D": self.D}
        return {budget: values for budget, values in both.items() if len(values) < 3 and law.of_budget(budget)}


def completed(law: Law, levels: Levels) -> Law:
    """The law (..., K) with the centres of what its runs cannot tell; the same losses at their N and D."""
    if not isinstance(law, CoreLaw):
        return law
    for budget, values in levels.untold(type(law)).items():
        if len(values) == 1:
            exponent = np.full(np.shape(law.E), np.exp(EXPONENT[budget].center))
            slope = _slope(budget, np.zeros_like(exponent))
            law = law.bent(budget, values, exponent, _amount(law, levels, slope / exponent))
    return law


def drawn_exponents(law: Law, levels: Levels, seed: int) -> Law:
    """Replicates (B, K) with draws of what the runs cannot tell; each keeps its losses at their N and D."""
    if not isinstance(law, CoreLaw):
        return law
    rng = np.random.default_rng([seed, STREAM])
    for budget, values in levels.untold(type(law)).items():
        belief = EXPONENT[budget]
        exponent = np.exp(belief.center + belief.spread * _drawn(rng, np.shape(law.E)))
        slope = _slope(budget, _drawn(rng, np.shape(law.E)))
        law = law.bent(budget, values, exponent, _amount(law, levels, slope / exponent))
    return law


def assumed(law: Law, held: Collection[str]) -> dict[str, dict[str, float]]:
    """For each budget the symbols that were held for lack of its variation, with their value."""
    found: dict[str, dict[str, float]] = {}
    for known in law.fitted():
        if known.name in held and known.budget is not None:
            found.setdefault(known.budget, {})[known.name] = float(np.ravel(getattr(law, known.name))[0])
    return found


def _drawn(rng: np.random.Generator, shape: tuple[int, ...]) -> FloatArray:
    """Standard normal numbers (B, K) that the targets of a replicate have mostly in common."""
    common, own = rng.standard_normal((shape[0], 1)), rng.standard_normal(shape)
    return np.sqrt(COMMON) * common + np.sqrt(1 - COMMON) * own


def _slope(budget: Budget, apart: FloatArray) -> FloatArray:
    """How steeply the loss falls with a budget, so many standard deviations from the centre of what is believed."""
    believed = SLOPE[budget].center + SLOPE[budget].spread * apart
    return np.exp(believed) if budget == "D" else np.maximum(believed, LEAST_SLOPE)


def _amount(law: CoreLaw, levels: Levels, share: FloatArray) -> FloatArray:
    """A share of the core at the middle of the fitted budgets, nats."""
    middle = (np.exp(np.log(values).mean(keepdims=True)) for values in (levels.N, levels.D))
    return share * law.core(*middle)[..., 0, :]
