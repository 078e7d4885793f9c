"""One law fitted to one study: its symbols, its replicates, and how the fit ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from shapleymix.fitting.candidates import learned_by
from shapleymix.fitting.coverage import Coverage, coverage_of
from shapleymix.fitting.estimation import Estimate, Problem
from shapleymix.fitting.evidence import Evidence, bootstrap_shares
from shapleymix.fitting.exponents import drawn_exponents, too_flat
from shapleymix.fitting.rates import Told
from shapleymix.fitting.repetition import Repetition
from shapleymix.fitting.requirements import require_runs
from shapleymix.fitting.standing import TargetStatus, reasons, statuses
from shapleymix.fitting.study import MIXTURES_NEEDED, Progress
from shapleymix.fitting.unseen import drawn
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


def learned(told: Told, law: type[BlackBox]) -> Fitted:
    """A black box."""
    study = told.study
    log, seen = study.log, study.evidence.observations(law, study.inputs)
    found = learned_by(law, log, seen, study.seed)
    status = tuple(TargetStatus(target, "converged", "") for target in study.inputs.targets)
    note = "a black box has no bootstrap replicates"
    used = seen.weight > 0
    coverage = coverage_of(log, used, study.untrained)
    return Fitted(found, None, status, {}, (note,), coverage, used, told.known(None))


def estimated(told: Told, law: type[Law], progress: Progress | None) -> Fitted:
    """A parametric law with its replicates."""
    study = told.study
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
    used = problem.observed.weight > 0
    coverage, replicates, rates = coverage_of(log, used, study.untrained), None, None
    if settings.bootstrap:
        shares = bootstrap_shares(log, settings.bootstrap, study.seed)
        stage = _stage(progress, "bootstrap")
        again, rates = told.resampled(problem, shares, estimate.x[0], study.seed, stage)
        replicates = problem.law_at(drawn(problem.packing, again, coverage.told, study.seed))
        replicates = drawn_exponents(replicates, problem.levels, study.seed)
    held = reasons(problem.packing.law, problem.packing.held, evidence)
    standing = statuses(problem, estimate)
    point, repetition = _first(estimate), told.known(rates)
    notes = (*_thin(law, evidence), *too_flat(point, problem.levels, study.inputs.targets))
    return Fitted(point, replicates, standing, held, notes, coverage, used, repetition, losses, knobs)


def _stage(progress: Progress | None, name: str) -> Callable[[int, int], None] | None:
    """What one stage reports to, by how much of it is done."""
    return None if progress is None else (lambda done, total: progress(name, done, total))


def _first(estimate: Estimate) -> Law:
    """The law of the first weighting, without the leading axis."""
    return estimate.law.mapped(lambda known, value: value[0])


def _thin(law: type[Law], evidence: Evidence) -> tuple[str, ...]:
    """Learned transfer wants about three mixtures a source."""
    sources, mixtures = len(evidence.log.sources), len(set(evidence.log.mixture_keys))
    learns = any(known.axes == "MK" for known in law.fitted())
    if not learns or law.knobs or mixtures >= 3 * sources:  # what is believed stands in for mixtures
        return ()
    return (f"{mixtures} mixtures for {sources} sources: learned transfer wants {3 * sources}, and 5 a source is safe",)
