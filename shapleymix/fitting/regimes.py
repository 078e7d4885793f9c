"""One law fitted to one study, and to each of its regimes: runs with and without a target's own language.

A model that never saw a language predicts it far worse than the law of those that did says, however little they saw.
One law for both is pulled off by such runs; without them it knows nothing of such mixtures. So where the log tells the
two regimes apart, its losses of runs with the language are fitted alone, and mixtures without it are predicted by the
fit to all runs, which knows how all other sources help. Held-out errors of `learned-base` tell them apart, paired by
mixture, before any law is chosen or compared: one log has one answer, whatever law is asked.

Legend: R rows or points, K targets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from shapleymix.display import short
from shapleymix.errors import FitError
from shapleymix.fitting.coverage import Coverage, coverage_of, require_runs
from shapleymix.fitting.estimation import Estimation, Stage
from shapleymix.fitting.evidence import (
    TRACE,
    Evidence,
    bootstrap_shares,
    chosen,
    levels_of,
    own_source,
    own_tokens,
    without,
)
from shapleymix.fitting.held_out import (
    Scores,
    learned_by,
    mean_of,
    over_mixtures,
    predicted_held_out,
    require_losses,
    score,
    surely,
)
from shapleymix.fitting.least_squares import CONVERGED
from shapleymix.fitting.noise import Noise
from shapleymix.fitting.questions import questions_of_fit, questions_of_recipes
from shapleymix.fitting.repetition import Repetition
from shapleymix.fitting.study import MIXTURES_NEEDED, Progress, Study, held_out, sample_of_targets
from shapleymix.fitting.symbols import drawn_exponents
from shapleymix.laws import BlackBox, Law
from shapleymix.laws.learned_base import LearnedBase
from shapleymix.records import BoolArray, FloatArray, IntArray, Record


@dataclass(frozen=True)
class Fitted:
    """A fitted law, its replicates, what is to be said of it, what it covers, and the losses (R, K) that it used."""

    law: Law
    replicates: Law | None
    stopped: tuple[str, ...]
    held: tuple[str, ...]
    notes: tuple[str, ...]
    coverage: Coverage
    used: BoolArray
    repetition: Repetition | None
    held_out: FloatArray | None = None
    knobs: Mapping[str, FloatArray] = field(default_factory=dict)


def learned(study: Study, law: type[BlackBox]) -> Fitted:
    """A black box."""
    log, seen = study.log, study.evidence.observations(law, study.inputs)
    found = learned_by(law, log, seen, study.seed)
    note = "a black box has no bootstrap replicates"
    used = (seen.weight > 0) & study.evidence.final[:, None]
    coverage = coverage_of(log, used, study.untrained)
    return Fitted(found, None, (), (), (note,), coverage, used, Repetition.of(study.evidence, law, study.seed))


def estimated(study: Study, law: type[Law], progress: Progress | None) -> Fitted:
    """A parametric law with its replicates."""
    log, evidence, settings = study.log, study.evidence, study.settings
    problem = Estimation.of(law, evidence, study.inputs, settings)
    require_runs(problem, evidence, np.ones(len(log), dtype=bool))
    every, stage, losses = np.ones((1, len(log))), _stage(progress, f"fitting {law.name}"), None
    knobs: Mapping[str, FloatArray] = {}
    if law.knobs and study.mixtures >= MIXTURES_NEEDED:
        masks = study.inner_folds(np.ones(len(log), dtype=bool))
        best = study.memory.tuned(problem, every[0], masks, stage)
        problem, losses, knobs = best.problem, best.losses, best.knobs
        estimate = problem.estimate(every, None, best.start)
    else:
        estimate = problem.estimate(every, stage)
    used = (problem.observed.weight > 0) & evidence.final[:, None]
    coverage, replicates, drawn_symbols = coverage_of(log, used, study.untrained), None, None
    if settings.bootstrap:
        shares = bootstrap_shares(log, settings.bootstrap, study.seed)
        stage = _stage(progress, "bootstrap")
        again = replace(problem, repeated=estimate.repeated).resample(shares, estimate.x[0], study.seed, stage)
        drawn_symbols = again.repeated
        replicates = drawn_exponents(again.law, problem.levels, study.seed)
    held, states = tuple(problem.packing.held), zip(study.inputs.targets, estimate.status[0].tolist(), strict=True)
    stopped = tuple(target for target, state in states if state != CONVERGED)
    point = estimate.law.mapped(lambda known, value: value[0])
    repetition = Repetition.of(evidence, law, study.seed, estimate.repeated[0], drawn_symbols)
    return Fitted(point, replicates, stopped, held, _thin(law, evidence), coverage, used, repetition, losses, knobs)


def _stage(progress: Progress | None, name: str) -> Stage | None:
    """What one stage reports to, by how much of it is done."""
    return None if progress is None else (lambda done, total: progress(name, done, total))


def _thin(law: type[Law], evidence: Evidence) -> tuple[str, ...]:
    """Learned transfer wants about three mixtures a source."""
    sources, mixtures = len(evidence.log.sources), len(set(evidence.log.mixture_keys))
    learns = any(known.axes == "MK" for known in law.fitted())
    if not learns or law.knobs or mixtures >= 3 * sources:  # what is believed stands in for mixtures
        return ()
    return (f"{mixtures} mixtures for {sources} sources: to learn transfer takes {3 * sources}, better {5 * sources}",)


def fitted_to(study: Study, law: type[Law], progress: Progress | None) -> Fitted:
    """A law fitted to a study, with its held-out predictions where there can be any."""
    point = learned(study, law) if issubclass(law, BlackBox) else estimated(study, law, progress)
    if point.held_out is not None and study.settings.folds:
        return point  # what choosing beliefs predicted of held-out rows
    losses, notes = held_out_losses(study, law)
    return replace(point, held_out=losses, notes=(*notes, *point.notes))


def errors_of(study: Study, point: Fitted) -> tuple[Scores, Scores | None, tuple[str, ...]]:
    """Scores of a fitted law on fitted and on held-out losses of its study, and single losses to be questioned.

    Raises
    ------
    FitError
        If the law gives no loss where one was measured.
    """
    log, targets, losses, fitted = study.log, study.inputs.targets, point.held_out, losses_of(study, point)
    require_losses(point.law.name, fitted, point.used, log)
    seen = np.where(study.evidence.counted, log.loss, np.nan)
    held_out = None if losses is None else score(targets, seen, losses)
    odd = questions_of_fit(log, np.log(log.loss / fitted), point.used)
    rates = questions_of_recipes(log, np.log(seen / (fitted if losses is None else losses)), study.seed)
    return score(targets, seen, fitted), held_out, (*odd, *rates)


def noise_of(study: Study, point: Fitted, counted: BoolArray) -> Noise | None:
    """How the counted held-out losses (R, K) scatter about a fitted law; None without any."""
    if point.held_out is None:
        return None
    log = study.log
    with np.errstate(invalid="ignore", divide="ignore"):
        held, fitted = (np.log(log.loss / found) for found in (point.held_out, losses_of(study, point)))
    held = np.where(counted & study.evidence.final[:, None] & np.isfinite(held), held, np.nan)
    budgets = np.stack([levels_of(np.log(values)) for values in (log.N, log.D)], axis=1)
    cells = np.unique(budgets, axis=0, return_inverse=True)[1].reshape(-1)
    return Noise.of(held, fitted, log.groups, cells, replicated=point.replicates is not None)


def losses_of(study: Study, point: Fitted) -> FloatArray:
    """Losses (R, K) of a fitted law on the rows of a study."""
    symbols = study.evidence.usual if point.repetition is None else point.repetition.symbols
    return study.evidence.losses(point.law, symbols)


def held_out_losses(study: Study, law: type[Law]) -> tuple[FloatArray | None, tuple[str, ...]]:
    """Predictions of every row by a fit that did not see its mixture, or None with the reason."""
    folds, mixtures = study.settings.folds, study.mixtures
    if folds == 0:
        return None, ("no held-out error was asked for (folds = 0)",)
    if mixtures < MIXTURES_NEEDED:
        return None, (f"{mixtures} different mixtures are too few for a held-out error",)
    masks, _ = study.cross_validation(min(folds, mixtures))
    try:
        return predicted_held_out(law, study, masks), ()
    except FitError as error:
        return None, (f"no held-out error: in a fold, {error.message}",)


@dataclass(frozen=True)
class Absent(Record):
    """What tells the losses of mixtures without a target's own language.

    Attributes
    ----------
    law, replicates : Law
        The law fitted to all runs, with its bootstrap replicates.
    coverage : Coverage
        What all runs cover.
    own : int array (K,)
        Each target's own source; -1 where no fitted run was without it, and there is nothing to tell apart.
    noise : Noise, optional
        How held-out losses of runs without the target's own language scatter.
    """

    kind = "fit/absent"
    axes: ClassVar[Mapping[str, str]] = {"own": "K"}

    law: Law
    replicates: Law | None
    coverage: Coverage
    own: IntArray
    noise: Noise | None

    def entries(self, p: FloatArray) -> BoolArray:
        """Which losses (R, K) of mixtures p (R, M) are of this regime."""
        return (self.own >= 0) & (p[:, self.own] < TRACE)

    def warnings(self, targets: tuple[str, ...], p: FloatArray) -> tuple[str, ...]:
        """Which targets' losses are of this regime at points p (R, M)."""
        there = np.any(self.entries(p), axis=0)
        if not there.any():
            return ()
        names = short([name for name, off in zip(targets, there, strict=True) if off])
        return (
            f"for mixtures without {names}, the loss on {'each' if there.sum() > 1 else 'it'} comes from a fit to all "
            "runs; an optimum keeps some of it unless the bounds forbid that",
        )


ENOUGH = 4  # mixtures with its own language that a target needs, for a fit to these alone
APART = 2.0
"""Where one law errs so many times as much on held-out runs without the language as on the others, they are apart
unless the fit to the others alone is surely worse; else only if it is surely better."""


@dataclass(frozen=True)
class Parted:
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

    @property
    def notices(self) -> tuple[str, ...]:
        """That there are two regimes, and what told them apart."""
        return tuple(text for text in self.study.evidence.notices if text not in self.whole.evidence.notices)


def parted(study: Study) -> Parted:
    """The study without the losses of another regime, where held-out errors of `learned-base` tell of one.

    They are apart if it surely errs less on the others when it is fitted to these alone (paired by mixture, as laws are
    compared); or if, fitted to all, it errs `APART` times as much on runs without the target's own language, and the
    other fit does not surely err more. A filter on own tokens, 0 too, says otherwise.
    """
    rows = _separable(study)
    one = Parted(study, study, np.zeros_like(rows))
    if study.settings.min_own_tokens is not None or study.settings.folds < 2 or not rows.any():
        return one
    with_own = (study.evidence.weight > 0) & ~rows
    alone = replace(study, evidence=without(study.evidence, rows))
    try:
        whole, others = _errors(study), _errors(alone)
    except FitError:  # too few runs
        return one
    there, before = mean_of(whole[rows]), mean_of(whole[with_own])
    gained = _surely(np.where(with_own, whole - others, np.nan), study.log.groups)
    if not (gained > 0 or (gained == 0 and there > APART * before)):
        return one
    text = (
        f"{int(rows.sum())} of {int((rows | with_own).sum())} losses come from runs that saw none of the target's "
        "language. They are predicted by a fit to all runs, the others by one without them"
    )
    evidence = replace(alone.evidence, notices=(*alone.evidence.notices, text))
    return Parted(study, replace(alone, evidence=evidence), rows)


def parted_by(study: Study, rows: BoolArray) -> Parted:
    """The study parted by some of its rows (R,) alone, as the laws fitted to these will be.

    Of the other rows, which judge, no loss has a say in it: theirs are apart where their mixture has none of the
    target's own language and the rows that are fitted show that for another regime.
    """
    parts = parted(replace(study, evidence=chosen(study.evidence, rows)))
    lacking = (study.evidence.weight > 0) & (own_tokens(study.log) == 0) & parts.lacking.any(axis=0)
    if not lacking.any():
        return Parted(study, study, lacking)
    evidence = without(study.evidence, lacking)
    alone = replace(study, evidence=replace(evidence, notices=(*evidence.notices, *parts.notices)))
    return Parted(study, alone, lacking)


def fitted_apart(parts: Parted, law: type[Law], progress: Progress | None) -> tuple[Study, Fitted, Absent | None]:
    """A law fitted to the losses with the target's own language, and what tells the others, if any are apart."""
    if parts.lacking.any():
        try:
            point = fitted_to(parts.study, law, progress)
            return parts.study, point, _absent(parts, point, law, progress)
        except FitError:  # too few runs for this law
            pass
    return parts.whole, fitted_to(parts.whole, law, progress), None


def _absent(parts: Parted, with_own: Fitted, law: type[Law], progress: Progress | None) -> Absent:
    """The law fitted to all losses, for those without the target's own language.

    Log h and log R* stay those of the fit `with_own`: the other regime would pull them off.
    """
    whole, known = parts.whole, with_own.repetition
    if known is not None and known.told:
        whole = replace(whole, evidence=replace(whole.evidence, repeated=known.symbols))
    point = fitted_to(whole, law, progress)
    own = np.where(parts.lacking.any(axis=0), own_source(whole.log.sources, whole.log.targets), -1)
    noise = noise_of(whole, point, parts.lacking)
    return Absent(point.law, point.replicates, point.coverage, own, noise)


def _separable(study: Study) -> BoolArray:
    """Losses (R, K) of runs without the target's one own source, of targets that enough other mixtures hold."""
    counts, log = study.evidence.weight > 0, study.log
    lacking = (own_tokens(log) == 0) & (own_source(log.sources, log.targets) >= 0)
    enough = [len(np.unique(log.groups[rows])) >= ENOUGH for rows in (counts & ~lacking).T]
    return counts & lacking & np.array(enough)


def _errors(study: Study) -> FloatArray:
    """Held-out errors (R, K) of log losses by `learned-base` before it chooses what it believes; NaN where none.

    Of many targets some tell whether there are two regimes, as they tell what all believe.
    """
    masks, _ = study.cross_validation(min(study.settings.folds, study.mixtures))
    problem = Estimation.of(LearnedBase, study.evidence, study.inputs, study.settings)
    some = sample_of_targets(problem, len(masks))
    problem = problem.only(some)
    x = problem.begun((~masks).astype(np.float64))
    predicted, found = held_out(problem.predicted(x), masks.argmax(axis=0)), np.full(study.log.loss.shape, np.nan)
    found[:, some] = np.abs(predicted - problem.observed.log_loss)
    return np.where(study.evidence.counted, found, np.nan)


def _surely(gains: FloatArray, groups: IntArray) -> int:
    """1 or -1 if the mean of gains (R, K; NaN = none) is surely above or below 0 over mixtures, else 0."""
    rows = ~np.isnan(gains).all(axis=1)
    gains, groups = gains[rows], groups[rows]
    if (count := len(np.unique(groups))) < ENOUGH:
        return 0
    mean = mean_of(gains)
    parts = np.nansum(gains - mean, axis=1) / (~np.isnan(gains)).sum()
    return surely(mean, over_mixtures(parts, groups), count)
