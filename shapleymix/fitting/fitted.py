"""One law fitted to one study: its symbols and replicates, how the fit ended, and how far it is from the losses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from shapleymix.errors import FitError
from shapleymix.fitting.estimation import Problem
from shapleymix.fitting.evidence import Evidence, bootstrap_shares, levels_of, questions_of_fit
from shapleymix.fitting.held_out import Scores, candidate, learned_by, require_losses, score
from shapleymix.fitting.noise import Noise
from shapleymix.fitting.repetition import Repetition
from shapleymix.fitting.status import Coverage, TargetStatus, coverage_of, reasons, require_runs, statuses
from shapleymix.fitting.study import MIXTURES_NEEDED, Progress, Study
from shapleymix.fitting.unknowns import drawn, drawn_exponents
from shapleymix.laws import BlackBox, Law
from shapleymix.records import BoolArray, FloatArray


@dataclass(frozen=True)
class Fitted:
    """A fitted law, its replicates, what is to be said of it, what it covers, and the losses (R, K) that it used."""

    law: Law
    replicates: Law | None
    status: tuple[TargetStatus, ...]
    held: dict[str, str]
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
    status = tuple(TargetStatus(target, "converged", "") for target in study.inputs.targets)
    note = "a black box has no bootstrap replicates"
    used = (seen.weight > 0) & study.evidence.final[:, None]
    coverage = coverage_of(log, used, study.untrained)
    return Fitted(found, None, status, {}, (note,), coverage, used, Repetition.of(study.evidence, law, study.seed))


def estimated(study: Study, law: type[Law], progress: Progress | None) -> Fitted:
    """A parametric law with its replicates."""
    log, evidence, settings = study.log, study.evidence, study.settings
    problem = Problem.of(law, evidence, study.inputs, settings)
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
        replicates = problem.law_at(drawn(problem.packing, again.x, coverage.told, evidence.ranks, study.seed))
        drawn_symbols = again.repeated
        replicates = drawn_exponents(replicates, problem.levels, study.seed)
    held = reasons(problem.packing.law, problem.packing.held, evidence)
    standing = statuses(problem, estimate)
    point = estimate.law.mapped(lambda known, value: value[0])
    repetition, notes = (
        Repetition.of(evidence, law, study.seed, estimate.repeated[0], drawn_symbols),
        _thin(law, evidence),
    )
    return Fitted(point, replicates, standing, held, notes, coverage, used, repetition, losses, knobs)


def _stage(progress: Progress | None, name: str) -> Callable[[int, int], None] | None:
    """What one stage reports to, by how much of it is done."""
    return None if progress is None else (lambda done, total: progress(name, done, total))


def _thin(law: type[Law], evidence: Evidence) -> tuple[str, ...]:
    """Learned transfer wants about three mixtures a source."""
    sources, mixtures = len(evidence.log.sources), len(set(evidence.log.mixture_keys))
    learns = any(known.axes == "MK" for known in law.fitted())
    if not learns or law.knobs or mixtures >= 3 * sources:  # what is believed stands in for mixtures
        return ()
    return (f"{mixtures} mixtures for {sources} sources: to learn transfer takes {3 * sources}, better {5 * sources}",)


@dataclass(frozen=True)
class Errors:
    """Scores on fitted and on held-out losses, how held-out ones scatter, and what is to be said of either.

    `odd` are single losses that should be questioned.
    """

    fitted: Scores
    held_out: Scores | None
    noise: Noise | None
    odd: tuple[str, ...]


def fitted_to(study: Study, law: type[Law], progress: Progress | None) -> Fitted:
    """A law fitted to a study, with its held-out predictions where there can be any."""
    point = point_of(study, law, progress)
    if point.held_out is not None and study.settings.folds:
        return point  # what choosing beliefs predicted of held-out rows
    losses, notes = held_out_losses(study, law)
    return replace(point, held_out=losses, notes=(*notes, *point.notes))


def point_of(study: Study, law: type[Law], progress: Progress | None) -> Fitted:
    """A law fitted to a study, parametric or a black box."""
    return learned(study, law) if issubclass(law, BlackBox) else estimated(study, law, progress)


def errors_of(study: Study, point: Fitted) -> Errors:
    """The errors of a fitted law on the rows of its study.

    Raises
    ------
    FitError
        If the law gives no loss where one was measured.
    """
    law, losses = type(point.law), point.held_out
    log, targets = study.log, study.inputs.targets
    fitted = losses_of(study, point)
    require_losses(law.name, fitted, point.used, log)
    counted = study.evidence.counted
    seen = np.where(counted, log.loss, np.nan)
    return Errors(
        fitted=score(targets, seen, fitted),
        held_out=None if losses is None else score(targets, seen, losses),
        noise=noise_of(study, point, counted),
        odd=tuple(questions_of_fit(log, np.log(log.loss / fitted), point.used)),
    )


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
        return candidate(law).predict_held_out(study, masks), ()
    except FitError as error:
        return None, (f"no held-out error: in a fold, {error.message}",)
