"""How own data's help grows as models and trainings do: with the fall of the core, and never beyond it.

By `g_j = exp(x_j)`, where `gamma_j x_j` is a share eta_j of the fall of log C_j from the smallest size to N (at the
fewest tokens), and a share zeta_j of its fall from the fewest tokens to D (at N). Where own data do most of the help, a
mixture without any keeps `C^(1 - eta)` of the one fall and `C^(1 - zeta)` of the other. Neither share is more than one,
so that no prediction rises with D, whatever the mixture, nor with N from the fewest tokens on: with b between -1 and 1,

    d log L / d log D = (1 + zeta b) d log C / d log D.

The fall of a core ends at E, and the growth with it: powers of N and D, which know no end, promised that more tokens
make a language with little of its own data ever worse.

Legend: R points, K targets.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from shapleymix.laws.core import CoreLaw
from shapleymix.laws.symbols import over_runs
from shapleymix.records import FloatArray

LEAST, MOST = 1e-300, 1e300  # of a core of which a logarithm is taken
FURTHEST = 200.0  # of x: e to that is as good as infinite, and its products are not


@dataclass(frozen=True)
class Growth:
    """How own data's help has grown by each run's budget, and what becomes of a usual mixture by it, (..., R, K).

    Attributes
    ----------
    factor : array (..., R, K)
        Of the help of own data.
    help : array (..., 1, K)
        Own data's help at an even ratio, where nothing has grown.
    """

    factor: FloatArray
    help: FloatArray

    @property
    def before(self) -> FloatArray:
        """Theta of own data alone at an even ratio where nothing has grown, (..., 1, K)."""
        return 1.0 + self.help

    @property
    def after(self) -> FloatArray:
        """The same where it has, (..., R, K)."""
        return 1.0 + self.help * self.factor

    @property
    def scale(self) -> FloatArray:
        """What Theta is divided by, (..., R, K), so that growth tells mixtures apart and moves no even one's loss."""
        return self.after / self.before


@dataclass(frozen=True)
class Falls:
    """The falls of log C to each run's budget: with N at the fewest tokens, and from there with D.

    Attributes
    ----------
    core : CoreLaw
        The law whose core falls.
    budgets : tuple
        Logarithms of N and D, (R, 1) or (..., 1, K), where it begins, between the two falls, and where it ends.
    """

    core: CoreLaw
    budgets: tuple[tuple[FloatArray, FloatArray], ...]

    @classmethod
    def of(cls, core: CoreLaw, first: tuple[FloatArray, FloatArray], N: FloatArray, D: FloatArray) -> Falls:
        """Those from the smallest N and D (..., K) to budgets (R,)."""
        first_N, first_D = (np.log(over_runs(one)) for one in first)
        log_N, log_D = np.log(N)[:, None], np.log(D)[:, None]
        return cls(core, ((first_N, first_D), (log_N, first_D), (log_N, log_D)))

    def heights(self) -> tuple[FloatArray, FloatArray]:
        """By how much log C falls with N, and with D, (..., R, K)."""
        cores = (sum(self.core.pieces_by_logs(*at)) for at in self.budgets)
        levels = [np.log(np.clip(core, LEAST, MOST)) for core in cores]
        return levels[0] - levels[1], levels[1] - levels[2]

    def slopes(self) -> list[dict[str, FloatArray]]:
        """Derivatives of both by the logarithms of the core's symbols."""
        slopes = [self.core.expansion_by_logs(*at)[1] for at in self.budgets]
        return [{name: one[name] - other[name] for name in one} for one, other in pairwise(slopes)]


@dataclass(frozen=True)
class Shares:
    """What of each fall goes to own data, symbols (..., 1, K) that stand above."""

    eta: FloatArray
    zeta: FloatArray
    gamma: FloatArray

    def log_factor(self, falls: Falls) -> FloatArray:
        """x (..., R, K)."""
        size, data = falls.heights()
        return np.clip((self.eta * size + self.zeta * data) / self.gamma, -FURTHEST, FURTHEST)

    def slopes(self, falls: Falls) -> dict[str, FloatArray]:
        """Derivatives of x by the logarithm of each symbol on which it hangs; by eta and zeta themselves."""
        size, data = falls.heights()
        by_size, by_data = falls.slopes()
        x = self.log_factor(falls)
        moves = (np.abs(x) < FURTHEST) / self.gamma
        found = {name: moves * (self.eta * by + self.zeta * by_data[name]) for name, by in by_size.items()}
        return found | {"eta": moves * size, "zeta": moves * data, "gamma": -moves * self.gamma * x}
