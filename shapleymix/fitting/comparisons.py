"""What a comparison of laws answers: each one's held-out error, which is better, and which of them `auto` takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shapleymix.display import Drawn
from shapleymix.fields import AMOUNT, SHARE, Range
from shapleymix.fitting.scores import Scores, surely
from shapleymix.laws.learned_base import LearnedBase
from shapleymix.records import FloatArray, Record
from shapleymix.tables.frames import Columns, Tabular

USUAL = LearnedBase.name
LEAST_MIXTURES = 6  # fewer do not tell their own standard error


@dataclass(frozen=True)
class Entry(Record):
    """One law in a comparison.

    `scores` are on the rows on which every compared law is defined; `coverage` is the share of the held-out losses on
    which this law is; `standard_error` is that of the mean PE over mixtures. A law that could not be fitted has its
    `error` instead.
    """

    kind = "comparison/entry"
    ranges: ClassVar[Mapping[str, Range]] = {"parameters": AMOUNT, "coverage": SHARE, "standard_error": AMOUNT}

    law: str
    parameters: int
    scores: Scores | None
    coverage: float
    standard_error: float
    error: str | None


@dataclass(frozen=True)
class Comparison(Tabular, Record):
    """Laws on the same held-out runs; `better[a, b]` is the bootstrap probability that a has the lower mean PE.

    `better`, `gap` and `gap_error` run over the entries that have scores, in their order; `mixtures` were held out.
    """

    kind = "comparison"
    plot = Drawn("laws.plot_compare")
    axes: ClassVar[Mapping[str, str]] = {"better": "LL", "gap": "LL", "gap_error": "LL"}
    ranges: ClassVar[Mapping[str, Range]] = {
        "better": SHARE, "rows": AMOUNT, "mixtures": AMOUNT, "gap_error": AMOUNT
    }  # fmt: skip

    entries: tuple[Entry, ...]
    better: FloatArray
    design: str
    rows: int
    mixtures: int
    gap: FloatArray  # (L, L) mean PE of a less that of b
    gap_error: FloatArray  # (L, L) its standard error over mixtures
    notices: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.better) != len(self._scored()):
            raise ValueError("better has another length than the entries that have scores")
        if not (np.diag(self.gap) <= np.diag(self.gap_error)).all():
            raise ValueError("gap and gap_error: a law differs from itself")

    def columns(self) -> Columns:
        """One row per law."""
        missing = float("nan")
        means = [{} if one.scores is None else one.scores.mean for one in self.entries]
        scores = {name: [mean.get(name, missing) for mean in means] for name in ("PE", "R2", "spearman")}
        rest = ("parameters", "coverage", "standard_error", "error")
        others = {name: [getattr(one, name) for one in self.entries] for name in rest}
        return {"law": [one.law for one in self.entries], **scores, **others}

    def best(self) -> str:
        """The law with the lowest mean held-out PE."""
        return self._scored()[int(np.argmin(self._errors()))].law

    def preferred(self) -> str:
        """The law that `law="auto"` takes.

        `learned-base`, unless another is better by more than two (paired) standard errors, more where there are few
        mixtures (`told`); then, or where it is not compared, the law with the fewest numbers per target within one
        standard error of the best. Of a dozen laws one is better by one standard error by luck alone.
        """
        scored = [entry.law for entry in self._scored()]
        if USUAL not in scored:
            return self._simplest()
        return self._simplest() if self.told(scored.index(self.best()), scored.index(USUAL)) < 0 else USUAL

    def told(self, one: int, other: int, wider: float = 1.0) -> int:
        """1 or -1 where the error of a law with scores is above or below another's by more than chance, else 0.

        Parameters
        ----------
        one, other : int
            Their places among the laws that have scores.
        wider : float
            What their standard errors are multiplied by.
        """
        if self.mixtures < LEAST_MIXTURES:
            return 0
        error = wider * unbiased(float(self.gap_error[one, other]), self.mixtures)
        return surely(float(self.gap[one, other]), error, self.mixtures)

    def _simplest(self) -> str:
        """The law with the fewest numbers per target within one (paired) standard error of the best."""
        errors, scored = self._errors(), self._scored()
        top = int(np.argmin(errors))
        close = [i for i in range(len(scored)) if self.gap[i, top] <= self.gap_error[i, top]]
        return scored[min(close, key=lambda i: (scored[i].parameters, errors[i]))].law

    def _scored(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.scores is not None]

    def _errors(self) -> FloatArray:
        return np.array([entry.scores.mean["PE"] for entry in self._scored() if entry.scores])


def unbiased(error: float, mixtures: int) -> float:
    """A standard error of Rubin's bootstrap, whose variance is (n - 1) / (n + 1) times the unbiased one."""
    return error * float(np.sqrt((mixtures + 1) / (mixtures - 1)))
