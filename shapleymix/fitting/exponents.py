"""How the loss goes on with a budget that the runs hardly vary: exponents, and sizes of terms, from public runs.

Through the losses at two values of N passes a curve for every exponent, and through those at one value a curve for
every exponent and every size of the term: no run tells them apart, so what is believed of them before the fit is also
what is believed after it. The fitted law takes the centre of that belief, each replicate draws from it and is bent to
it (`CoreLaw.bent`), and an interval thus opens with the distance from the runs, for every law with Chinchilla's core.

The belief is that of eight public isoFLOP suites (Epoch's Chinchilla, ml-scalefit, Llama 3 twice, Marin three times,
misfitting), each fitted by `chinchilla`, and of three published mixture logs: see `bench_coverage.py`, which prints
them. Suites: alpha .31 to .71, beta .33 to .69; mixture logs: alpha .13 to .26, beta .3 to .8.

Legend: B replicates, K targets.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from shapleymix.laws import Law
from shapleymix.laws.core import CoreLaw
from shapleymix.laws.symbols import Budget
from shapleymix.records import BoolArray, FloatArray
from shapleymix.tables.runs import RunLog

STREAM = 2  # second word of the seed: these draws are others than those of the bootstrap and of unseen sources


@dataclass(frozen=True)
class Belief:
    """Log-normal beliefs: the centre, and the standard deviations of the log that targets share, and of each alone."""

    centre: float
    shared: float
    own: float

    def draw(self, rng: np.random.Generator, replicates: int, targets: int) -> FloatArray:
        """Values (B, K)."""
        common = self.shared * rng.standard_normal((replicates, 1))
        return self.centre * np.exp(common + self.own * rng.standard_normal((replicates, targets)))


EXPONENT: Mapping[Budget, Belief] = {"N": Belief(0.2, 0.45, 0.2), "D": Belief(0.5, 0.3, 0.2)}
"""Of alpha and beta: centred where leaving out the largest size of the mixture logs is best (laws/core.py)."""

SLOPE: Mapping[Budget, Belief] = {"N": Belief(0.06, 0.35, 0.2), "D": Belief(0.06, 0.35, 0.2)}
"""Of the loss, `-d log L / d log N` and `-d log L / d log D`: .03 to .07 in the middle of each suite, in the mixture
logs .05 to .09 and .06 to .16."""


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
            exponent, slope = (np.full(np.shape(law.E), belief[budget].centre) for belief in (EXPONENT, SLOPE))
            law = law.bent(budget, values, exponent, _amount(law, levels, slope / exponent))
    return law


def drawn_exponents(law: Law, levels: Levels, seed: int) -> Law:
    """Replicates (B, K) with draws of what the runs cannot tell; each keeps its losses at their N and D."""
    if not isinstance(law, CoreLaw):
        return law
    rng = np.random.default_rng([seed, STREAM])
    for budget, values in levels.untold(type(law)).items():
        exponent, slope = (belief[budget].draw(rng, *np.shape(law.E)) for belief in (EXPONENT, SLOPE))
        law = law.bent(budget, values, exponent, _amount(law, levels, slope / exponent))
    return law


def assumed(law: Law, held: Collection[str]) -> dict[str, dict[str, float]]:
    """For each budget the symbols that were held for lack of its variation, with their value."""
    found: dict[str, dict[str, float]] = {}
    for known in law.fitted():
        if known.name in held and known.budget is not None:
            found.setdefault(known.budget, {})[known.name] = float(np.ravel(getattr(law, known.name))[0])
    return found


def _amount(law: CoreLaw, levels: Levels, share: FloatArray) -> FloatArray:
    """A share of the core at the middle of the fitted budgets, nats."""
    middle = (np.exp(np.log(values).mean(keepdims=True)) for values in (levels.N, levels.D))
    return share * law.core(*middle)[..., 0, :]
