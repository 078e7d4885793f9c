"""Two regimes of one study, runs with and without a target's own language, and a law fitted to each.

A model that never saw a language predicts it far worse than a law of the models that saw some would say. One law for
both kinds of runs is wrong about both; a law fitted without the first kind knows nothing of mixtures that lack the
language. So where the log shows two regimes, the losses of runs with the language get a fit of their own, and mixtures
without it are predicted by a fit to all runs, which knows how the other sources help. Held-out errors of `learned-base`
decide, paired by mixture, before any law is chosen or compared: a log has one answer, whichever law is fitted.

Legend: R rows or points, K targets.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from shapleymix.errors import FitError
from shapleymix.fitting.estimation import Estimation
from shapleymix.fitting.evidence import drop_losses, own_source, own_tokens, select_rows
from shapleymix.fitting.held_out import find_errors, judge, mean_of
from shapleymix.fitting.one_law import LawFit, StudyFit, fit_law
from shapleymix.fitting.study import Progress, Study, pick_held_out, sample_of_targets
from shapleymix.laws import Law
from shapleymix.laws.learned_base import LearnedBase
from shapleymix.records import BoolArray, FloatArray, IntArray
from shapleymix.tables.languages import own_data

ENOUGH = 4  # mixtures with its own language that a target needs, for a fit to these alone
APART = 2.0
"""Ratio of held-out errors, without the language over with it, from which there are two regimes unless the fit to the
others alone is surely worse. Below it there are two only if that fit is surely better."""


@dataclass(frozen=True)
class RegimeSplit:
    """A study, and its regimes.

    Attributes
    ----------
    whole, study : Study
        All losses; and those to which laws are fitted, which are the same where there is one regime.
    lacking : bool array (R, K)
        The losses of the other regime.
    """

    whole: Study
    study: Study
    lacking: BoolArray


def part_regimes(study: Study) -> RegimeSplit:
    """The study without the losses of another regime, where held-out errors of `learned-base` tell of one.

    There are two regimes if one of these holds:

    - fitted to the others alone, it surely errs less on them (paired by mixture, as laws are compared);
    - fitted to all, it errs `APART` times as much on runs without the target's own language, and fitted to the others
      alone it does not surely err more.

    Where the user set a filter on own tokens, 0 included, there is one.
    """
    study = _with_jumps(study)
    rows = _separable(study)
    one = RegimeSplit(study, study, np.zeros_like(rows))
    if study.settings.min_own_tokens is not None or not rows.any():
        return one
    with_own = (study.evidence.weight > 0) & ~rows
    alone = replace(study, evidence=drop_losses(study.evidence, rows))
    try:
        whole, others = _errors(study), _errors(alone)
    except FitError:  # too few runs
        return one
    there, before = mean_of(whole[rows]), mean_of(whole[with_own])
    gained = _judge_gains(np.where(with_own, whole - others, np.nan), study.log.groups)
    if not (gained > 0 or (gained == 0 and there > APART * before)):
        return one
    text = (
        f"{int(rows.sum())} of {int((rows | with_own).sum())} losses come from runs that saw none of the target's "
        "language. They are predicted by a fit to all runs, the others by one without them"
    )
    evidence = replace(alone.evidence, notices=(*alone.evidence.notices, text))
    return RegimeSplit(study, replace(alone, evidence=evidence), rows)


def part_regimes_by(study: Study, rows: BoolArray) -> RegimeSplit:
    """The study parted by some of its rows (R,) alone, as the laws fitted to these will be.

    The other rows judge, so that none of their losses may decide. They belong to the second regime where their mixture
    has none of the target's own language and the fitted rows show two regimes for that target.
    """
    parts = part_regimes(replace(study, evidence=select_rows(study.evidence, rows)))
    lacking = (study.evidence.weight > 0) & (own_tokens(study.log) == 0) & parts.lacking.any(axis=0)
    told = [text for text in parts.study.evidence.notices if text not in study.evidence.notices]
    found = replace(study.evidence, jumps=parts.study.evidence.jumps, notices=(*study.evidence.notices, *told))
    whole = replace(study, evidence=found)
    return RegimeSplit(whole, replace(study, evidence=drop_losses(found, lacking)) if lacking.any() else whole, lacking)


def fit_regimes(parts: RegimeSplit, law: type[Law], progress: Progress | None) -> tuple[Study, StudyFit, LawFit | None]:
    """A law fitted to the losses with the target's own language, and what tells the others, if any are apart."""
    if parts.lacking.any():
        with suppress(FitError):  # too few runs for this law
            point = fit_law(parts.study, law, parts.study.evidence.judged, progress)
            return parts.study, point, _fit_absent(parts, point.known, law, progress)
    return parts.whole, fit_law(parts.whole, law, parts.whole.evidence.judged, progress), None


def _fit_absent(parts: RegimeSplit, with_own: LawFit, law: type[Law], progress: Progress | None) -> LawFit:
    """The law fitted to all losses, for those without the target's own language.

    Log h and log R* stay those of the fit `with_own`: the other regime would pull them off.
    """
    whole, known = parts.whole, with_own.repetition
    if known is not None and known.identified:
        whole = replace(whole, evidence=replace(whole.evidence, repeated=known.symbols))
    return fit_law(whole, law, parts.lacking, progress).known


def _separable(study: Study) -> BoolArray:
    """Losses (R, K) of runs without the target's one own source, of targets that enough other mixtures hold."""
    counts, log = study.evidence.weight > 0, study.log
    lacking = (own_tokens(log) == 0) & (own_source(log.paths, log.targets) >= 0)
    enough = [len(np.unique(log.groups[rows])) >= ENOUGH for rows in (counts & ~lacking).T]
    return counts & lacking & np.array(enough)


def _with_jumps(study: Study) -> Study:
    """The study with those jumps of losses by which held-out errors are surely smaller, target by target."""
    log, evidence = study.log, study.evidence
    foreign = ~np.any(own_data(log.paths, log.targets), axis=0)
    jumps = evidence.find_jumps(np.ones(len(log), dtype=bool), foreign)
    if not (some := np.flatnonzero(jumps.height)).size:
        return study
    found = replace(study, evidence=replace(evidence, jumps=jumps))
    try:
        gains = _errors(study, some) - _errors(found, some)
    except FitError:  # too few runs
        return study
    gained = np.array([_judge_gains(one[:, None], log.groups) > 0 for one in gains.T])
    if not gained.any():
        return study
    return replace(study, evidence=replace(evidence, jumps=replace(jumps, height=np.where(gained, jumps.height, 0.0))))


def _errors(study: Study, some: IntArray | None = None) -> FloatArray:
    """Held-out errors (R, K) of log losses by `learned-base` before it chooses what it believes; NaN where none.

    Of some targets; by default of those on which beliefs are chosen.
    """
    masks = study.choosing_folds()
    problem = Estimation.of(LearnedBase, study.evidence, study.inputs, study.settings)
    some = sample_of_targets(problem, len(masks)) if some is None else some
    problem = problem.only(some)
    x = problem.fit_afresh((~masks).astype(np.float64))
    logs = problem.predict(x) + study.evidence.measure_jumps_of_folds(LearnedBase, masks)[..., some]
    predicted, found = pick_held_out(logs, masks), np.full(study.log.loss.shape, np.nan)
    found[:, some] = np.abs(predicted - np.log(study.log.loss[:, some]))
    return np.where(study.evidence.judged, found, np.nan)


def _judge_gains(gains: FloatArray, groups: IntArray) -> int:
    """1 or -1 if the mean of gains (R, K; NaN = none) is surely above or below 0 over mixtures, else 0."""
    rows = ~np.isnan(gains).all(axis=1)
    gains, groups = gains[rows], groups[rows]
    if (count := len(np.unique(groups))) < ENOUGH:
        return 0
    mean = mean_of(gains)
    parts = np.nansum(gains - mean, axis=1) / (~np.isnan(gains)).sum()
    return judge(mean, find_errors(parts, groups), count)
