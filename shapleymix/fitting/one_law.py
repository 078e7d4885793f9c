"""One law fitted to one study: a parametric law with its replicates or a black box, its errors and its noise.

Legend: R rows, K targets.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from shapleymix.errors import FitError
from shapleymix.fitting.coverage import Coverage, coverage_of
from shapleymix.fitting.estimation import Estimation, Stage, estimate, resample
from shapleymix.fitting.evidence import Evidence, bootstrap_shares, cells_of, fold_masks
from shapleymix.fitting.held_out import HeldOut, Scores, find_missed, predict_held_out, refuse, score, take_logs, teach
from shapleymix.fitting.noise import Noise
from shapleymix.fitting.questions import questions_of
from shapleymix.fitting.repetition import Repetition
from shapleymix.fitting.residual import Residual
from shapleymix.fitting.study import CHOOSING, MIXTURES_NEEDED, Progress, Study, tune_beliefs
from shapleymix.fitting.symbols import Levels, draw_untold
from shapleymix.laws import BlackBox, Law
from shapleymix.laws.base import ABSURD
from shapleymix.laws.core import CoreLaw, Kaplan
from shapleymix.records import BoolArray, FloatArray, Record


@dataclass(frozen=True)
class LawFit(Record):
    """A law fitted to losses, and how these lie about it; a `Fit` is one, and says what each field is."""

    kind = "fit/law"

    law: Law
    replicates: Law | None
    stopped: tuple[str, ...]
    held: tuple[str, ...]
    coverage: Coverage
    repetition: Repetition | None
    knobs: dict[str, FloatArray]
    residual: Residual
    noise: Noise | None


@dataclass(frozen=True)
class StudyFit:
    """One law fitted to one study: what a fit keeps, and what judges it.

    Attributes
    ----------
    known : LawFit
        What a fit keeps.
    fitted : array (R, K)
        The law's losses on the rows of the study.
    used : bool array (R, K)
        The losses that it was fitted to and answers for.
    notes : tuple of str
        What is to be said of it.
    held_out : HeldOut, optional
        What fits that did not see a row say of it.
    """

    known: LawFit
    fitted: FloatArray
    used: BoolArray
    notes: tuple[str, ...]
    held_out: HeldOut | None


def fit_learner(study: Study, law: type[BlackBox], wanted: BoolArray) -> StudyFit:
    """A black box."""
    log, seen = study.log, study.evidence.observations(law, study.inputs)
    found = teach(law, log, seen, study.seed)
    used = (seen.weight > 0) & study.evidence.final[:, None]
    coverage = coverage_of(log, used, study.untrained)
    repetition = Repetition.of(study.evidence, law, study.seed, study.evidence.usual, None)
    fitted = predict_rows(study, found, study.evidence.usual)
    residual = find_missed(study, law, fitted, wanted)
    known = LawFit(found, None, (), (), coverage, repetition, {}, residual, None)
    return StudyFit(known, fitted, used, ("a black box has no bootstrap replicates",), None)


def fit_symbols(study: Study, law: type[Law], wanted: BoolArray, progress: Progress | None) -> StudyFit:
    """A parametric law with its replicates."""
    log, evidence, settings = study.log, study.evidence, study.settings
    every, stage, held_out = np.ones((1, len(log))), _stage(progress, f"fitting {law.name}"), None
    problem = Estimation.of(law, evidence, study.inputs, settings)
    problem.require_runs(every[0] > 0)
    knobs: dict[str, FloatArray] = {}
    if law.knobs and study.mixtures >= MIXTURES_NEEDED:
        masks = study.choosing_folds()
        best = tune_beliefs(problem, every[0], masks, stage)
        problem, held_out, knobs = best.problem, HeldOut.of(study, law, best.losses, masks), dict(best.knobs)
        found = estimate(problem, every, None, best.start)
    else:
        found = estimate(problem, every, stage)
    used = (problem.observed.weight > 0) & evidence.final[:, None]
    coverage, replicates, drawn_symbols = coverage_of(log, used, study.untrained), None, None
    if settings.bootstrap:
        shares = bootstrap_shares(log, settings.bootstrap, study.seed)
        stage = _stage(progress, "bootstrap")
        again = resample(replace(problem, repeated=found.repeated), shares, found.x[0], study.seed, stage)
        drawn_symbols = again.repeated
        replicates = draw_untold(again.law, problem.levels, study.seed)
    stopped = tuple(np.array(study.inputs.targets)[~found.converged[0]].tolist())
    held, point = tuple(problem.packing.fixed), found.law.map(lambda known, value: value[0])
    repetition = Repetition.of(evidence, law, study.seed, found.repeated[0], drawn_symbols)
    fitted = predict_rows(study, point, found.repeated[0])
    residual = find_missed(study, law, fitted, wanted)
    known = LawFit(point, replicates, stopped, held, coverage, repetition, knobs, residual, None)
    return StudyFit(known, fitted, used, _thin(law, evidence), held_out)


def _stage(progress: Progress | None, name: str) -> Stage:
    """What one stage reports to, by how much of it is done."""
    return None if progress is None else (lambda done, total: progress(name, done, total))


def _thin(law: type[Law], evidence: Evidence) -> tuple[str, ...]:
    """Learned transfer wants about three mixtures a source."""
    sources, mixtures = len(evidence.log.sources), len(set(evidence.log.mixture_keys))
    learns = any(known.axes == "MK" for known in law.symbols_to_fit())
    if not learns or law.knobs or mixtures >= 3 * sources:  # what is believed stands in for mixtures
        return ()
    return (f"{mixtures} mixtures for {sources} sources: to learn transfer takes {3 * sources}, better {5 * sources}",)


def fit_law(study: Study, law: type[Law], wanted: BoolArray, progress: Progress | None) -> StudyFit:
    """A law fitted to a study, with its held-out predictions where there can be any.

    The `wanted` losses (R, K), of finished runs, say what it misses of mixtures and how runs scatter about it.
    """
    wanted = wanted & study.evidence.final[:, None]
    point = fit_learner(study, law, wanted) if issubclass(law, BlackBox) else fit_symbols(study, law, wanted, progress)
    # choosing beliefs predicts held-out rows, too
    if point.held_out is None or min(study.settings.folds, study.mixtures) != min(CHOOSING, study.mixtures):
        held_out, notes = cross_validate(study, law)
        point = replace(point, held_out=held_out, notes=(*notes, *point.notes))
    return replace(point, known=replace(point.known, noise=find_noise(study, point, wanted)))


def score_fit(study: Study, point: StudyFit) -> tuple[Scores, Scores | None, dict[str, bool]]:
    """Scores of a fitted law on fitted and on held-out losses of its study, and questions to its log.

    Raises
    ------
    FitError
        If the law gives no loss where one was measured.
    """
    log, targets, held_out, fitted = study.log, study.inputs.targets, point.held_out, point.fitted
    law, residual = point.known.law, point.known.residual
    refuse(law.name, fitted, point.used & ~((fitted > 0) & (fitted < ABSURD)), log)
    seen = np.where(study.evidence.judged, log.loss, np.nan)
    scores = None if held_out is None else score(targets, seen, held_out.losses)
    left = np.log(seen / (fitted if held_out is None else held_out.law))
    knows_mixtures = "mixture" in law.needs or not log.sources
    odd = questions_of(log, take_logs(log.loss, fitted, point.used), left, study.seed, knows_mixtures=knows_mixtures)
    return score(targets, seen, fitted * np.exp(residual.mean(log.p))), scores, odd


def find_noise(study: Study, point: StudyFit, wanted: BoolArray) -> Noise | None:
    """How the wanted held-out losses (R, K) scatter about a fitted law; None without any."""
    if point.held_out is None:
        return None
    log, found = study.log, (point.held_out.law, point.fitted, point.held_out.losses)
    alone, fitted, corrected = (take_logs(log.loss, one, wanted) for one in found)
    fitted = alone if point.known.replicates is None else fitted
    return Noise.of(corrected / point.held_out.spread, alone, fitted, log.groups, cells_of(log))


def fit_other_form(study: Study, point: StudyFit) -> Kaplan | None:
    """`kaplan` fitted to a law's own curve in N and D, with what runs say of it; None where they tell no form."""
    log, law = study.log, point.known.law
    untold = (Levels.of(log, rows).find_untold(Kaplan) for rows in point.used.T)
    if not isinstance(law, CoreLaw) or point.known.coverage.together or any(untold):
        return None
    seen = replace(log, loss=log.loss * law.core(log.N, log.D) / point.fitted)
    problem = Estimation.of(Kaplan, replace(study.evidence, log=seen), study.inputs, study.settings)
    found = estimate(problem, np.ones((1, len(log)))).law.map(lambda known, value: value[0])
    return cast(Kaplan, found)


def predict_rows(study: Study, law: Law, symbols: FloatArray) -> FloatArray:
    """Losses (R, K) of a fitted law on the rows of a study, at log h and log R* (1 + M,)."""
    return study.evidence.losses(law, symbols) * np.exp(study.evidence.measure_jumps(type(law)))


def cross_validate(study: Study, law: type[Law]) -> tuple[HeldOut | None, tuple[str, ...]]:
    """Predictions of every row by a fit that did not see its mixture, or None with the reason."""
    folds, mixtures = study.settings.folds, study.mixtures
    if folds == 0:
        return None, ("no held-out error was asked for (folds = 0)",)
    if mixtures < MIXTURES_NEEDED:
        return None, (f"{mixtures} different mixtures are too few for a held-out error",)
    try:
        return predict_held_out(law, study, fold_masks(study.log, min(folds, mixtures))), ()
    except FitError as error:
        return None, (f"no held-out error: in a fold, {error.message}",)
