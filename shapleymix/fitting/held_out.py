"""Held-out predictions of a law or a black box, and how well they match the losses."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy.stats import norm, rankdata, t

from shapleymix.display import Columns, Tabular
from shapleymix.errors import FitError, UsageError, did_you_mean
from shapleymix.fitting.estimation import FOLD, Estimation, estimate
from shapleymix.fitting.evidence import misses_mixtures
from shapleymix.fitting.residual import Residual
from shapleymix.fitting.settings import AUTO
from shapleymix.fitting.study import MIXTURES_NEEDED, Study, pick_held_out, tune_beliefs
from shapleymix.fitting.symbols import Levels
from shapleymix.laws import BLACK_BOXES, LAWS, BlackBox, Law
from shapleymix.laws.base import ABSURD, Observations, as_losses, ask
from shapleymix.laws.core import Chinchilla
from shapleymix.laws.learned_base import LearnedBase
from shapleymix.records import BoolArray, FloatArray, IntArray, Record
from shapleymix.statistics import pearson
from shapleymix.tables.runs import RunLog

TWO_ERRORS = float(norm.cdf(2.0))
"""Probability from which one law is called better than another: that of two standard errors of a normal law."""


def find_errors(parts: FloatArray, groups: IntArray) -> FloatArray:
    """Standard errors (...) of sums over rows of parts (..., R), which sum to 0: rows of one mixture err together.

    NaN where there is one mixture, which tells none.
    """
    sums = parts @ (groups[:, None] == np.unique(groups))
    count = sums.shape[-1]
    return np.sqrt(np.square(sums).sum(axis=-1) * (count / (count - 1) if count > 1 else np.nan))


def chance_below(mean: FloatArray, error: FloatArray, count: int) -> FloatArray:
    """Probability that a mean over so many mixtures is below 0, by Student's t of its standard error."""
    return t.cdf(-mean / np.maximum(error, 1e-300), max(count - 1, 1))


def judge(mean: FloatArray | float, error: FloatArray | float, count: int) -> int:
    """1 or -1 where a mean over so many mixtures, with its standard error, is surely above or below 0, else 0."""
    below = float(chance_below(np.asarray(mean), np.asarray(error), count))
    return int(below < 1 - TWO_ERRORS) - int(below > TWO_ERRORS)


@dataclass(frozen=True)
class Scores(Tabular, Record):
    """Scores of each target; NaN where there is nothing to score.

    PE (K,) is the mean absolute error over the mean loss (normalised MAE, ShapleyLaw paper, section 4.1), a fraction.
    `coverage` (K,) is the share of losses inside their interval. `rows` (K,) counts the losses scored.
    """

    kind = "scores"
    axes: ClassVar[Mapping[str, str]] = dict.fromkeys(("targets", "PE", "R2", "spearman", "coverage", "rows"), "K")

    targets: tuple[str, ...]
    PE: FloatArray
    R2: FloatArray
    spearman: FloatArray
    coverage: FloatArray
    rows: IntArray

    def columns(self) -> Columns:
        """One row per target."""
        arrays = {name: getattr(self, name).tolist() for name in ("PE", "R2", "spearman", "coverage", "rows")}
        return {"target": self.targets, **arrays}

    @property
    def mean(self) -> dict[str, float]:
        """Mean of each score over the targets that have it."""
        return {name: mean_of(getattr(self, name)) for name in ("PE", "R2", "spearman", "coverage")}


def mean_of(values: FloatArray) -> float:
    """Mean without NaN; NaN if nothing is left."""
    there = values[~np.isnan(values)]
    return float(there.mean()) if len(there) else float("nan")


NONE = np.array(np.nan)
"""The ends of an interval that is not known."""


def score(
    targets: tuple[str, ...], loss: FloatArray, predicted: FloatArray, low: FloatArray = NONE, high: FloatArray = NONE
) -> Scores:
    """Score predictions (R, K), and their intervals, against losses (R, K), where both are there."""
    use = ~np.isnan(loss) & ~np.isnan(predicted)
    error = np.where(use, np.abs(loss - predicted), 0.0).sum(axis=0)
    PE = _ratio(error, np.where(use, loss, 0.0).sum(axis=0))
    R2, spearman = _r_squared(loss, predicted, use), _spearman(loss, predicted, use)
    bounded = use & ~np.isnan(low) & ~np.isnan(high)
    inside = bounded & (loss >= low) & (loss <= high)
    coverage = _ratio(inside.sum(axis=0), bounded.sum(axis=0))
    return Scores(targets, PE, R2, spearman, coverage, use.sum(axis=0).astype(np.int64))


def _ratio(part: FloatArray, whole: FloatArray) -> FloatArray:
    return np.divide(part, whole, out=np.full(np.shape(whole), np.nan), where=whole > 0)


def _r_squared(loss: FloatArray, predicted: FloatArray, use: BoolArray) -> FloatArray:
    """Share of the losses' variance that is explained; none of losses that are one but for rounding."""
    rows = np.maximum(use.sum(axis=0), 1)
    center = np.where(use, loss, 0.0).sum(axis=0) / rows
    spread, residual = (np.where(use, (loss - one) ** 2, 0.0).sum(axis=0) for one in (center, predicted))
    return 1.0 - _ratio(residual, np.where(spread > rows * (1e-12 * center) ** 2, spread, 0.0))


def _spearman(loss: FloatArray, predicted: FloatArray, use: BoolArray) -> FloatArray:
    """Rank correlation of every target; ties get their mean rank, a constant prediction has none."""
    one, other = (rankdata(np.where(use, each, np.nan), axis=0, nan_policy="omit") for each in (loss, predicted))
    return pearson(one, other, use)


@dataclass(frozen=True)
class HeldOut:
    """Predictions (R, K) of held-out rows by the law alone, and as a fit gives them, with what the law misses near.

    `spread` (R, K) is how much of the scatter about the law is left about the latter, in standard deviations.
    """

    law: FloatArray
    losses: FloatArray
    spread: FloatArray

    @classmethod
    def of(cls, study: Study, law: type[Law], predicted: FloatArray, masks: BoolArray) -> HeldOut:
        """From what each fit of a law (V, R, K), that did not see the rows of its mask (V, R), says without jumps."""
        log, evidence = study.log, study.evidence
        predicted = predicted * np.exp(evidence.measure_jumps_of_folds(law, masks))
        found, spread = predicted.copy(), np.ones(log.loss.shape)
        for mask, one in zip(masks, found, strict=True):
            residual = find_missed(study, law, one, evidence.judged & ~mask[:, None])
            one[mask] *= np.exp(residual.mean(log.p[mask]))
            for targets, known in residual.covariance(log.p[mask]):
                spread[np.ix_(mask, targets)] = np.sqrt(1 - residual.share + np.diag(known))[:, None]
        return cls(pick_held_out(predicted, masks), pick_held_out(found, masks), spread)


def take_logs(loss: FloatArray, found: FloatArray, wanted: BoolArray) -> FloatArray:
    """Log of measured over predicted losses (R, K); NaN where none counts."""
    with np.errstate(invalid="ignore", divide="ignore"):
        left = np.log(loss / found)
    return np.where(wanted & np.isfinite(left), left, np.nan)


def find_missed(study: Study, law: type[Law], found: FloatArray, wanted: BoolArray) -> Residual:
    """What a law of mixtures misses of them, by its losses (R, K) where they are wanted; nothing of a black box."""
    left = take_logs(study.log.loss, found, wanted & misses_mixtures(law))
    return Residual.of(study.log, left, study.evidence.weight)


def predict_held_out(law: type[Law], study: Study, masks: BoolArray) -> HeldOut:
    """Predictions (R, K) of the rows that a mask (V, R) holds out, from fits to the others; NaN elsewhere.

    A parametric law is fitted to all folds in one batch, a learner such as boosted trees to one at a time.
    """
    if issubclass(law, BlackBox):
        predicted = _predict_by_learner(law, study, masks)
    else:
        predicted = np.full((*masks.shape, len(study.inputs.targets)), np.nan)
        for alike, problem in _problems(law, study, masks):
            predicted[alike] = _predict(problem, study, masks[alike])
    found = pick_held_out(predicted, masks)
    wanted = (study.evidence.weight > 0) & np.any(masks, axis=0)[:, None]
    # a law that is tuned says nothing of a target whose every loss is in one fold: the others know nothing of it
    mute = np.zeros(found.shape[1], dtype=bool) if law.knobs else ~(wanted & ~np.isnan(found)).any(axis=0)
    refuse(law.name, found, wanted & ((found <= 0) | (found >= ABSURD) | mute), study.log)
    return HeldOut.of(study, law, predicted, masks)


def _predict(problem: Estimation, study: Study, masks: BoolArray) -> FloatArray:
    """Losses (V, R, K) by fits to the other rows; a law chooses what it believes by the other folds, or by its own."""
    if not problem.packing.law.knobs:
        found = estimate(problem, (~masks).astype(np.float64), stop=FOLD)
        return study.evidence.losses(found.law, found.repeated)
    if len(masks) > 2:
        return tune_beliefs(problem, np.ones(len(study.log)), masks).losses
    predicted = []
    for mask in masks:
        share = (~mask).astype(np.float64)
        best = tune_beliefs(problem, share, study.choosing_folds(~mask))
        predicted.append(best.problem.predict(best.problem.follow(share[None], best.start[None]))[0])
    return np.exp(np.stack(predicted))


def _problems(law: type[Law], study: Study, masks: BoolArray) -> Iterator[tuple[list[int], Estimation]]:
    """Numbers of the masks whose fits can tell the same symbols (nearly always all), with the problem of these."""
    groups: dict[tuple[tuple[str, float], ...], list[int]] = {}
    for number, mask in enumerate(masks):
        groups.setdefault(tuple(Levels.of(study.log, ~mask).find_fixed(law).items()), []).append(number)
    for alike in groups.values():
        problem = Estimation.of(law, study.evidence, study.inputs, study.settings, ~masks[alike[0]])
        for mask in masks[alike]:
            problem.require_runs(~mask)
        yield alike, problem


def _predict_by_learner(learner: type[BlackBox], study: Study, masks: BoolArray) -> FloatArray:
    log, seen = study.log, study.evidence.observations(learner, study.inputs)

    def without(mask: BoolArray) -> FloatArray:
        found = teach(learner, log, replace(seen, weight=seen.weight * ~mask[:, None]), study.seed)
        return as_losses(learner.name, ask(learner.name, lambda: found(seen.p, log.N, log.D)), log.loss.shape)

    return np.stack([without(mask) for mask in masks])


def teach(learner: type[BlackBox], log: RunLog, seen: Observations, seed: int) -> BlackBox:
    """What a black box makes of the observations of a log."""
    return ask(learner.name, lambda: learner.learn(seen, log.groups, seed))


def refuse(name: str, predicted: FloatArray, wrong: BoolArray, log: RunLog) -> None:
    """Refuse a law that gives what is no loss at `wrong` places of its predictions (R, K).

    Raises
    ------
    FitError
        Naming the law, and the first run and target.
    """
    if not wrong.any():
        return
    row, target = (int(place[0]) for place in np.nonzero(wrong))
    count = int(wrong.sum())
    more = f" (nor one for {count - 1} others)" if count > 1 else ""
    place = f"target {log.targets[target]!r} of run {log.runs[row]!r}{more}"
    message = f"law {name!r} gives no loss but {predicted[row, target]:g} for {place}"
    raise FitError(message, hint="a law gives losses in nats: finite, above 0, and NaN only where it has no answer")


def law_of(given: str | type[Law]) -> type[Law]:
    """The law that a name or a class says.

    Raises
    ------
    UsageError
        If there is no such law, or it is another kind of value.
    """
    if isinstance(given, str):
        known: dict[str, type[Law]] = {**LAWS, **BLACK_BOXES}
        if given not in known:
            raise UsageError(f"no law is called {given!r}", hint=did_you_mean(given, known))
        return known[given]
    if not (inspect.isclass(given) and issubclass(given, Law)):
        raise UsageError(f"{given!r:.60} is no law", hint="give a law's name, or a subclass of Law")
    return given


def choose_law(given: str | type[Law], study: Study) -> type[Law]:
    """The law that a name or a class says; `auto` says `learned-base`, or `chinchilla` of runs of one mixture or none.

    Raises
    ------
    UsageError
        Those of `law_of`. FitError if two mixtures are to tell what mixtures do.
    """
    if given != AUTO:
        return law_of(given)
    if len(set(study.log.mixture_keys)) == 1 or not study.inputs.sources:
        return Chinchilla
    if study.mixtures < MIXTURES_NEEDED:
        message = f"law auto needs at least three different mixtures; the log has {study.mixtures}"
        raise FitError(message, hint="give more runs, or name a law")
    return LearnedBase


def laws_of(given: Sequence[str | type[Law]] | str | type[Law]) -> list[type[Law]]:
    """One law, several, or their names in one text: `"learned-base,chinchilla"`.

    Raises
    ------
    UsageError
        If there is none, or one is no law.
    """
    if isinstance(given, str):
        given = [name.strip() for name in given.split(",")]
    listed = list(given) if isinstance(given, Sequence) else [given]
    if not listed:
        raise UsageError("no law is given to compare", hint="name at least one, or leave laws out for all")
    return [law_of(one) for one in listed]
