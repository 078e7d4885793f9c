"""Every law on the same held-out runs, and how sure it is that one beats another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Unpack

import numpy as np

from shapleymix.display import Columns, Tabular
from shapleymix.errors import FitError, ShapleyMixError, UsageError
from shapleymix.fitting.estimation import EVERY
from shapleymix.fitting.evidence import Logs, Table
from shapleymix.fitting.held_out import Scores, chance_below, find_errors, judge, laws_of, predict_held_out, score
from shapleymix.fitting.regimes import RegimeSplit, part_regimes, part_regimes_by
from shapleymix.fitting.settings import SEED, Keywords, Settings, with_settings
from shapleymix.fitting.study import Progress, Study, study_of
from shapleymix.fitting.symbols import Levels, Packing
from shapleymix.laws import BlackBox, Law
from shapleymix.laws.core import Chinchilla
from shapleymix.laws.learned_base import LearnedBase
from shapleymix.records import BoolArray, FloatArray, Record
from shapleymix.tables.languages import Languages
from shapleymix.tables.transfer import TransferMatrix

USUAL = LearnedBase.name, Chinchilla.name
"""The laws that `fit` takes by default, of which the first that was compared is to be beaten."""
LEAST_MIXTURES = 6  # fewer do not tell their own standard error
UNCOUNTED = 10**6  # numbers of a black box, which is never the simplest


@dataclass(frozen=True)
class Entry(Record):
    """One law in a comparison.

    `scores` are on the rows on which every compared law is defined; `coverage` is the share of the held-out losses on
    which this law is; `standard_error` is that of the mean PE over mixtures. A law that could not be fitted has its
    `error` instead.
    """

    kind = "comparison/entry"

    law: str
    parameters: int
    scores: Scores | None
    coverage: float
    standard_error: float
    error: str | None


@dataclass(frozen=True)
class Comparison(Tabular, Record):
    """Laws on the same held-out runs.

    `gap`, `gap_error` and `better` run over the entries that have scores, in their order; `mixtures` were held out.
    """

    kind = "comparison"
    axes: ClassVar[Mapping[str, str]] = {"gap": "LL", "gap_error": "LL"}

    entries: tuple[Entry, ...]
    design: str
    rows: int
    mixtures: int
    gap: FloatArray  # (L, L) mean PE of a less that of b
    gap_error: FloatArray  # (L, L) its standard error over mixtures
    notices: tuple[str, ...]

    def columns(self) -> Columns:
        """One row per law."""
        means = [{} if one.scores is None else one.scores.mean for one in self.entries]
        scores = {name: [mean.get(name, np.nan) for mean in means] for name in ("PE", "R2", "spearman")}
        rest = ("parameters", "coverage", "standard_error", "error")
        others = {name: [getattr(one, name) for one in self.entries] for name in rest}
        return {"law": [one.law for one in self.entries], **scores, **others}

    def best(self) -> str:
        """The law with the lowest mean held-out PE."""
        return self._list_scored()[int(self.gap[:, 0].argmin())]

    def preferred(self) -> str:
        """The law to take: the usual one, unless the best is better by more than chance."""
        scored, best = self._list_scored(), self.best()
        usual = next((name for name in USUAL if name in scored), best)
        return usual if self.significance(scored.index(best), scored.index(usual)) >= 0 else best

    @property
    def better(self) -> FloatArray:
        """(L, L) the probability that law a has a lower mean PE than law b."""
        return chance_below(self.gap, self.gap_error, self.mixtures)

    def significance(self, one: int, other: int) -> int:
        """1 or -1 where the error of a law with scores is above or below another's by more than chance, else 0.

        Parameters
        ----------
        one, other : int
            Their places among the laws that have scores.
        """
        if self.mixtures < LEAST_MIXTURES:
            return 0
        return judge(self.gap[one, other], self.gap_error[one, other], self.mixtures)

    def _list_scored(self) -> list[str]:
        return [entry.law for entry in self.entries if entry.scores is not None]


@with_settings
def compare(
    log: Logs,
    laws: Sequence[str | type[Law]] | str | type[Law] | None = None,
    transfer: TransferMatrix | Table | None = None,
    languages: Languages | Table | None = None,
    *,
    leave_largest_N: bool = False,
    split: bool = False,
    seed: int = SEED,
    progress: Progress | None = None,
    **settings: Unpack[Keywords],
) -> Comparison:
    """Compare laws on runs that they were not fitted to, and as `fit` fits them (see `min_own_tokens`).

    Parameters
    ----------
    log : RunLog, path, or a sequence of them
        Run logs; several are fitted together.
    laws : str or type[Law], or a sequence of them, optional
        Names (also in one text, `"learned-base,chinchilla"`) or Law subclasses;
        None stands for all laws that the inputs allow, and boosted trees where lightgbm is installed.
    transfer : table or path, optional
        The transfer matrix, with Shapley values of every source for every target, for laws that need it.
    languages : table or path, optional
        The languages table: families, unique tokens and parents, for laws that need them.
    leave_largest_N, split : bool
        Hold out the largest size, or the rows that the log's `split` column marks, instead of cross-validating.
        Whether runs without a target's own language behave differently is then decided by the other rows alone.
    seed : int
        Seed of what black boxes draw.
    progress : Progress, optional
        Is called with the law's name, its number and how many there are.

    Raises
    ------
    UsageError, DataError
        If a name is unknown or the log does not allow the design.
    FitError
        If no law could be fitted.
    """
    whole = study_of(log, transfer, languages, Settings(**settings, bootstrap=0), seed, with_held_out=split)
    masks, design = whole.hold_out(leave_largest_N=leave_largest_N, split=split)
    contenders = laws_of(whole.list_laws() if laws is None else laws)
    one_fit = len(masks) == 1  # its judges have no say in what it is fitted to; in folds every row judges and is fitted
    parts = part_regimes_by(whole, ~masks[0]) if one_fit else part_regimes(whole)
    unscored, found, faults = _note_unscored(parts, masks), dict[int, FloatArray](), dict[int, ShapleyMixError]()
    for place, contender in enumerate(contenders):
        if progress is not None:
            progress(contender.name, place, len(contenders))
        try:
            found[place] = predict_held_out(contender, parts.study, masks).losses
        except UsageError:
            raise
        except ShapleyMixError as error:  # a law that these data cannot support drops out; the others go on
            faults[place] = error
    if not found:
        hint = "give more runs, or name another law"
        raise FitError(f"no law could be fitted: {faults[0].message}", hint=hint) from faults[0]
    table = _summary(contenders, found, faults, parts.study, masks, design)
    return replace(table, notices=(*table.notices, *unscored))


def _note_unscored(parts: RegimeSplit, masks: BoolArray) -> tuple[str, ...]:
    """How many losses that masks (V, R) hold out are of another regime than the laws are fitted to.

    Raises
    ------
    FitError
        If all are.
    """
    aside = parts.whole.evidence.judged & np.any(masks, axis=0)[:, None]
    unscored = int((aside & parts.lacking).sum())
    if not unscored:
        return ()
    which = "held-out losses are from runs without the target's language, to which no law is fitted"
    if unscored == aside.sum():
        hint = "hold out other runs, or fit one law to all: 0 as the least own tokens"
        raise FitError(f"all {unscored} {which}: none is left to score", hint=hint)
    return (f"{unscored} of {int(aside.sum())} {which}: they are not scored",)


def _summary(
    contenders: Sequence[type[Law]], found: Mapping[int, FloatArray], faults: Mapping[int, ShapleyMixError],
    study: Study, masks: BoolArray, design: str,
) -> Comparison:  # fmt: skip
    """The table of what laws predicted of the rows that masks (V, R) hold out, or why they did not.

    Predicted losses (R, K) and errors stand by the place of their law among the contenders.
    """
    log, evidence = study.log, study.evidence
    wanted = evidence.judged & np.any(masks, axis=0)[:, None]
    known = {place: wanted & ~np.isnan(predicted) for place, predicted in found.items()}
    common = np.all(list(known.values()), axis=0)
    if not common.any():
        each = [f"{contenders[place].name} {one.sum()}" for place, one in known.items()]
        message = f"no held-out loss is predicted by every law; of {int(wanted.sum())} they predict: {', '.join(each)}"
        raise FitError(message, hint="compare fewer laws at once")
    seen = np.where(common, log.loss, np.nan)
    scores = {place: score(log.targets, seen, predicted) for place, predicted in found.items()}
    point = np.array([one.mean["PE"] for one in scores.values()])
    off = np.stack([_off(log.loss, predicted, common, scores[place].PE) for place, predicted in found.items()])
    gap, groups = point[:, None] - point[None, :], log.groups[common.any(axis=1)]
    error, gap_error = (find_errors(each, groups) for each in (off, off[:, None] - off[None, :]))
    errors, entries = dict(zip(found, error.tolist(), strict=True)), list[Entry]()
    for place, contender in enumerate(contenders):
        rest = None, 0.0, float("nan"), faults[place].message if place in faults else None
        if place in found:
            rest = scores[place], float(known[place].sum() / wanted.sum()), errors[place], None
        fixed = Levels.of(log, EVERY).find_fixed(contender)
        size = UNCOUNTED if issubclass(contender, BlackBox) else len(Packing(contender, len(log.sources), fixed).names)
        entries.append(Entry(contender.name, size, *rest))
    notices = evidence.notices_of(*contenders)
    if lost := int((wanted & ~common).sum()):
        text = f"{lost} of {int(wanted.sum())} held-out losses lie where some law is undefined; scored on the others"
        notices = (*notices, text)
    return Comparison(tuple(entries), design, len(groups), len(np.unique(groups)), gap, gap_error, notices)


def _off(loss: FloatArray, predicted: FloatArray, common: BoolArray, PE: FloatArray) -> FloatArray:
    """By how much each scored row moves a mean PE: its errors less PE (K,) of its losses, as shares of the sums."""
    rows, scored = common.any(axis=1), common.any(axis=0)
    seen, missed = (np.where(common, found, 0.0)[rows][:, scored] for found in (loss, np.abs(loss - predicted)))
    return ((missed - PE[scored] * seen) / seen.sum(axis=0)).mean(axis=1)
