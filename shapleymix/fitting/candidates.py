"""What a comparison takes: a law that is fitted, a black box that learns, a predictor that is taken as it is."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeGuard, runtime_checkable

import numpy as np

from shapleymix.errors import FitError, Location, UsageError, did_you_mean
from shapleymix.fitting.estimation import Problem
from shapleymix.fitting.evidence import Evidence
from shapleymix.fitting.packing import Packing
from shapleymix.fitting.study import Study
from shapleymix.laws import BLACK_BOXES, LAWS, BlackBox, Law
from shapleymix.laws.answers import ABSURD, as_losses, asked
from shapleymix.laws.base import Observations
from shapleymix.records import BoolArray, FloatArray
from shapleymix.tables.runs import RunLog

UNCOUNTED = 10**6  # a black box is never the simplest


@runtime_checkable
class Predictor(Protocol):
    """Anything that predicts: losses (R, K), or a result with `losses`, from p (R, M), N (R,) and D (R,)."""

    def predict(self, p: FloatArray, N: FloatArray, D: FloatArray, /) -> object: ...


@runtime_checkable
class Informed(Protocol):
    """A predictor that knows what repeated tokens are worth, such as a fit."""

    @property
    def repetition(self) -> object: ...
    def predict(self, p: FloatArray, N: FloatArray, D: FloatArray, *, unique: FloatArray) -> object: ...


Contender = str | type[Law] | type[BlackBox] | Predictor | type[Predictor]
"""What may be compared: a law's name, a law, a black box, or anything that predicts."""


class Candidate(Protocol):
    """What a comparison asks of a law: a name, a size, and predictions of rows that it was not fitted to."""

    @property
    def name(self) -> str:
        """Unique among the compared."""
        ...

    def size(self, study: Study) -> int:
        """Number of fitted values per target."""
        ...

    def predict_held_out(self, study: Study, masks: BoolArray) -> FloatArray:
        """Predictions (R, K) of the rows that a mask (V, R) holds out, from fits to the others; NaN elsewhere."""
        ...


@dataclass(frozen=True)
class LawCandidate:
    """A parametric law: all folds are fitted in one batch."""

    law: type[Law]

    @property
    def name(self) -> str:
        return self.law.name

    def size(self, study: Study) -> int:
        return len(Packing(self.law, len(study.log.sources), study.evidence.held(self.law)).names)

    def predict_held_out(self, study: Study, masks: BoolArray) -> FloatArray:
        log, evidence = study.log, study.evidence
        if self.law.knobs:
            return self._tuned(study, masks)
        predicted = np.full((*masks.shape, len(study.inputs.targets)), np.nan)
        for alike in _alike(self.law, evidence, masks):
            problem = Problem.of(self.law, evidence, study.inputs, study.settings, ~masks[alike[0]])
            for mask in masks[alike]:
                require_runs(problem, evidence, ~mask)
            estimate = problem.estimate((~masks[alike]).astype(np.float64))
            predicted[alike] = estimate.law.losses(problem.observed.p, log.N, log.D)
            held = np.any(masks[alike], axis=0)[:, None] & (problem.observed.weight > 0)
            require_losses(self.name, _held_out(predicted[alike], masks[alike]), held, log)
        return _held_out(predicted, masks)

    def _tuned(self, study: Study, masks: BoolArray) -> FloatArray:
        """Predictions of a law that chooses what it believes: by the other folds, or by folds of its own."""
        log, evidence = study.log, study.evidence
        predicted = np.full((len(log), len(study.inputs.targets)), np.nan)
        for alike in _alike(self.law, evidence, masks):
            problem = Problem.of(self.law, evidence, study.inputs, study.settings, ~masks[alike[0]])
            for mask in masks[alike]:
                require_runs(problem, evidence, ~mask)
            if len(alike) > 2:
                found = study.memory.tuned(problem, np.ones(len(log)), masks[alike]).losses
                predicted = np.where(np.isnan(found), predicted, found)
                continue
            for mask in masks[alike]:
                share = (~mask).astype(np.float64)
                best = study.memory.tuned(problem, share, study.inner_folds(~mask))
                estimate = best.problem.follow(share[None], best.start[None])
                losses = np.exp(best.problem.predicted(estimate)[0])
                predicted[mask] = losses[mask]
        held = np.any(masks, axis=0)[:, None] & (evidence.weight > 0)
        told = ~np.isnan(predicted)  # not where a target's every loss is in one fold: of it the others know nothing
        require_losses(self.name, predicted, held & told, log)
        return predicted


@dataclass(frozen=True)
class BlackBoxCandidate:
    """A learner such as boosted trees: one fit a fold."""

    learner: type[BlackBox]

    @property
    def name(self) -> str:
        return self.learner.name

    def size(self, study: Study) -> int:
        return UNCOUNTED

    def predict_held_out(self, study: Study, masks: BoolArray) -> FloatArray:
        log = study.log
        seen = study.evidence.observations(self.learner, study.inputs)

        def fitted_without(mask: BoolArray) -> Law:
            weight = seen.weight * ~mask[:, None]
            return learned_by(self.learner, log, replace(seen, weight=weight), study.seed)

        def predicted(law: Law) -> FloatArray:
            return as_losses(self.name, asked(self.name, lambda: law(seen.p, log.N, log.D)), log.loss.shape)

        found = _held_out(np.stack([predicted(fitted_without(mask)) for mask in masks]), masks)
        _require_numbers(self.name, found, study, masks)
        return found


@dataclass(frozen=True)
class FixedCandidate:
    """Anything with `predict(p, N, D)`: not fitted again, so its own data must not include the held-out rows."""

    predictor: Predictor
    label: str

    @property
    def name(self) -> str:
        return self.label

    def size(self, study: Study) -> int:
        return UNCOUNTED

    def predict_held_out(self, study: Study, masks: BoolArray) -> FloatArray:
        log = study.log
        answer = asked(self.label, lambda: _predicted(self.predictor, log))
        losses = as_losses(self.label, getattr(answer, "losses", answer), log.loss.shape)
        _require_numbers(self.label, losses, study, masks)
        return np.where(np.any(masks, axis=0)[:, None], losses, np.nan)


def _predicted(predictor: Predictor, log: RunLog) -> object:
    """What is predicted of a log; a fit of ours is told the unique tokens of each run."""
    if log.unique is not None and _is_informed(predictor):
        return predictor.predict(log.p, log.N, log.D, unique=log.unique)
    return predictor.predict(log.p, log.N, log.D)


def _is_informed(predictor: object) -> TypeGuard[Informed]:
    return isinstance(predictor, Informed)


def learned_by(learner: type[BlackBox], log: RunLog, seen: Observations, seed: int) -> BlackBox:
    """What a black box makes of the observations of a log."""
    known = (seen.p, log.N, log.D, seen.log_loss, seen.weight, log.groups, seed)
    return asked(learner.name, lambda: learner.learn(*known))


def require_losses(name: str, predicted: FloatArray, wanted: BoolArray, log: RunLog) -> None:
    """Refuse a fitted law that gives no loss (R, K) where one is wanted and its `defined` says that it has one.

    Raises
    ------
    FitError
        Naming the law, and the first run and target.
    """
    _refuse(name, predicted, wanted & ~((predicted > 0) & (predicted < ABSURD)), log)


def _require_numbers(name: str, predicted: FloatArray, study: Study, masks: BoolArray) -> None:
    """Refuse infinite predictions, and a target without any; single ones may be NaN, where there is no answer."""
    wanted = (study.evidence.weight > 0) & np.any(masks, axis=0)[:, None]
    mute = ~(wanted & ~np.isnan(predicted)).any(axis=0)
    _refuse(name, predicted, wanted & ((np.abs(predicted) >= ABSURD) | mute), study.log)


def _refuse(name: str, predicted: FloatArray, wrong: BoolArray, log: RunLog) -> None:
    if not wrong.any():
        return
    row, target = (int(place[0]) for place in np.nonzero(wrong))
    count = int(wrong.sum())
    more = f" (nor one for {count - 1} others)" if count > 1 else ""
    message = (
        f"law {name!r} gives no loss but {predicted[row, target]:g} for target {log.targets[target]!r} of run "
        f"{log.runs[row]!r}{more}"
    )
    raise FitError(message, hint="a law gives losses in nats: finite, above 0, and NaN only where it has no answer")


def _alike(law: type[Law], evidence: Evidence, masks: BoolArray) -> list[list[int]]:
    """Numbers of the masks, those together whose fits can tell the same symbols: nearly always all."""
    found: dict[tuple[str, ...], list[int]] = {}
    for number, mask in enumerate(masks):
        held = evidence.held(law, ~mask)
        found.setdefault(tuple(f"{name}={value}" for name, value in held.items()), []).append(number)
    return list(found.values())


def _held_out(predicted: FloatArray, masks: BoolArray) -> FloatArray:
    """From predictions of every fit (V, R, K), each row's by the fit that did not see it."""
    chosen = np.take_along_axis(predicted, masks.argmax(axis=0)[None, :, None], axis=0)[0]
    return np.where(np.any(masks, axis=0)[:, None], chosen, np.nan)


def candidate(law: Contender) -> Candidate:
    """A candidate from a law's name, a Law or BlackBox class, or an object with `predict(p, N, D)`.

    Raises
    ------
    UsageError
        If it is none of these.
    """
    if isinstance(law, str):
        law = named_law(law)
    if inspect.isclass(law):
        if issubclass(law, BlackBox):
            return BlackBoxCandidate(law)
        if issubclass(law, Law):
            return LawCandidate(law)
        law = law()
    if isinstance(law, Predictor):
        return FixedCandidate(law, getattr(law, "name", type(law).__name__))
    raise UsageError(f"{law!r} is no law", hint="give a law's name, a Law subclass, or an object with predict(p, N, D)")


def law_of(given: str | type[Law]) -> type[Law]:
    """The law that a name or a class says.

    Raises
    ------
    UsageError
        If there is no such law, or it is another kind of value.
    """
    if isinstance(given, str):
        return named_law(given)
    if not (inspect.isclass(given) and issubclass(given, Law)):
        raise UsageError(f"{given!r:.60} is no law", hint="give a law's name, or a subclass of Law")
    return given


def contenders_of(given: Sequence[Contender] | Contender) -> list[Contender]:
    """One contender, several, or their names in one text: `"learned-base,chinchilla"`.

    Raises
    ------
    UsageError
        If there is none.
    """
    if isinstance(given, str):
        given = [name.strip() for name in given.split(",")]
    listed: list[Contender] = list(given) if isinstance(given, Sequence) else [given]
    if not listed:
        raise UsageError("no law is given to compare", hint="name at least one, or leave laws out for all")
    return listed


def named_law(name: str) -> type[Law]:
    """The law of that name, or an error with the nearest one."""
    known: dict[str, type[Law]] = {**LAWS, **BLACK_BOXES}
    if name not in known:
        raise UsageError(f"no law is called {name!r}", hint=did_you_mean(name, known))
    return known[name]


def require_runs(problem: Problem, evidence: Evidence, rows: BoolArray) -> None:
    """Refuse a law with more numbers per target than there are runs to tell them.

    Raises
    ------
    FitError
        Naming the law, the target, what is there and what is needed.
    """
    log = evidence.log
    _require_mixtures(problem, evidence, rows)
    if problem.packing.law.knobs:
        return  # what is believed tells the numbers that the runs do not
    settings = {(key, n, d) for key, n, d in zip(log.mixture_keys, log.N.tolist(), log.D.tolist(), strict=True)}
    number = {setting: index for index, setting in enumerate(sorted(settings))}
    which = np.array([number[s] for s in zip(log.mixture_keys, log.N.tolist(), log.D.tolist(), strict=True)])
    needed = len(problem.packing.names)
    for index, target in enumerate(log.targets):
        use = rows & (problem.observed.weight[:, index] > 0)
        count = len(np.unique(which[use]))
        if count < needed:
            message = (
                f"law {problem.packing.law.name!r} fits {needed} numbers for target {target!r} "
                f"but has {count} different runs for it"
            )
            hint = "add runs, loosen the filters, or choose a law with fewer symbols"
            raise FitError(message, hint=hint, location=Location(file=log.origin, column=f"loss_{target}"))


def _require_mixtures(problem: Problem, evidence: Evidence, rows: BoolArray) -> None:
    """One mixture tells nothing about mixtures."""
    if "mixture" not in problem.packing.law.needs:
        return
    keys = {key for key, use in zip(evidence.log.mixture_keys, rows, strict=True) if use}
    if len(keys) < 2:
        message = f"law {problem.packing.law.name!r} needs different mixtures; all {int(rows.sum())} runs have one"
        raise FitError(message, hint="add runs of other mixtures, or fit 'chinchilla'")
