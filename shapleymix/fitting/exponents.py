"""How the loss goes on with a budget that the runs hardly vary: exponents, and sizes of terms, from public runs.

Through the losses at two values of N passes a curve for every exponent, and through those at one value a curve for
every exponent and every size of the term: no run tells them apart, so what is believed of them before the fit is also
what is believed after it. The fitted law takes the centre of that belief, each replicate draws from it and is bent to
it (`CoreLaw.bent`), and an interval thus opens with the distance from the runs, for every law with Chinchilla's core.

A slope is that of the whole loss, at the mean mixture. The term of a budget of one value is carved out of E and goes no
further than E allows.

The beliefs, and whose they are, stand in `laws/core.py`.

Legend: B replicates, K targets, M sources.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from shapleymix.fitting.evidence import levels
from shapleymix.laws import Law
from shapleymix.laws.core import EXPONENT, LEAST_SLOPE, SLOPE, CoreLaw
from shapleymix.laws.symbols import Budget
from shapleymix.records import BoolArray, FloatArray
from shapleymix.streams import Stream
from shapleymix.tables.runs import RunLog

COMMON = 0.8  # of the variance of a belief is one draw for all targets of a log; in it, targets differ less than logs


@dataclass(frozen=True)
class Levels:
    """The different values of N and of D among the fitted rows, in plain units, ascending; their mean ratios (M,)."""

    N: FloatArray
    D: FloatArray
    p: FloatArray

    @classmethod
    def of(cls, log: RunLog, rows: BoolArray | None = None) -> Levels:
        """Those of some rows of a log, or of all."""
        chosen = slice(None) if rows is None else rows
        return cls(levels(log.N[chosen]), levels(log.D[chosen]), log.p[chosen].mean(axis=0))

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
            law = _gone_on(law, levels, budget, exponent, _slope(budget, np.zeros_like(exponent)))
    return law


def drawn_exponents(law: Law, levels: Levels, seed: int) -> Law:
    """Replicates (B, K) with draws of what the runs cannot tell; each keeps its losses at their N and D."""
    if not isinstance(law, CoreLaw):
        return law
    rng, other = (np.random.default_rng([seed, Stream.EXPONENTS, one]) for one in (0, 1))
    for budget, values in levels.untold(type(law)).items():
        belief = EXPONENT[budget]
        exponent = np.exp(belief.center + belief.spread * _drawn(rng, np.shape(law.E)))
        slope = _slope(budget, _drawn(rng, np.shape(law.E)))
        if len(values) == 1:
            loose = law.loosened(budget, float(values[0]), _drawn(other, np.shape(law.E)))
            steeper = _slopes(loose, levels, budget) - _slopes(law, levels, budget)
            law, slope = loose, np.maximum(slope - steeper, LEAST_SLOPE)
        law = _gone_on(law, levels, budget, exponent, slope)
    return law


def assumed(law: Law, held: Collection[str]) -> dict[str, dict[str, float]]:
    """For each budget the symbols that were held for lack of its variation, with their value."""
    found: dict[str, dict[str, float]] = {}
    for known in law.fitted():
        if known.name in held and known.budget is not None:
            found.setdefault(known.budget, {})[known.name] = float(np.ravel(getattr(law, known.name))[0])
    return found


def _slopes(law: CoreLaw, levels: Levels, budget: Budget) -> FloatArray:
    """-d log L / d log N or D (..., K) of the mean mixture at the middle of the budgets."""
    step = np.array([-1e-4, 1e-4])
    N, D = (np.exp(np.log(values).mean()) * np.ones(2) for values in (levels.N, levels.D))
    N, D = (N * np.exp(step), D) if budget == "N" else (N, D * np.exp(step))
    log_loss = np.log(law(np.stack([levels.p, levels.p]), N, D))
    return (log_loss[..., 0, :] - log_loss[..., 1, :]) / (step[1] - step[0])


def _drawn(rng: np.random.Generator, shape: tuple[int, ...]) -> FloatArray:
    """Standard normal numbers (B, K) that the targets of a replicate have mostly in common."""
    common, own = rng.standard_normal((shape[0], 1)), rng.standard_normal(shape)
    return np.sqrt(COMMON) * common + np.sqrt(1 - COMMON) * own


def _slope(budget: Budget, apart: FloatArray) -> FloatArray:
    """How steeply the loss falls with a budget, so many standard deviations from the centre of what is believed."""
    believed = SLOPE[budget].center + SLOPE[budget].spread * apart
    return np.exp(believed) if budget == "D" else np.maximum(believed, LEAST_SLOPE)


def _gone_on(law: CoreLaw, levels: Levels, budget: Budget, exponent: FloatArray, slope: FloatArray) -> CoreLaw:
    """The law with another exponent of a budget, and where the runs hold one value of it with such a slope there."""
    middle = [np.exp(np.log(values).mean(keepdims=True)) for values in (levels.N, levels.D)]
    loss, values = _loss_in_core(law, levels.p, *middle), levels.N if budget == "N" else levels.D
    return law.bent(budget, values, exponent, slope / exponent * loss)


def _loss_in_core(law: CoreLaw, p: FloatArray, N: FloatArray, D: FloatArray) -> FloatArray:
    """The loss (..., K) of one mixture at one budget, over what one nat of the core adds to it."""
    loss, core = (found[..., 0, :] for found in (law(p[None], N, D), law.core(N, D)))
    one_more = law.replaced(E=law.E + 1.0)(p[None], N, D)[..., 0, :] - loss
    return np.where(np.isnan(loss), core, loss / one_more)
