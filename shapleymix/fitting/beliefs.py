"""What a law believes before any run, chosen by cross-validation, one knob after the other.

Every value of a knob is tried on the same folds, each fit beginning where the last one of its fold ended, and the first
at starting points of the fold's own: from the fit to all rows it would keep what the held-out ones told. The walk goes
on from what all targets like best; in the end each target takes, of all that was tried, what predicts its own held-out
losses best. Predictions of a fold are those of the choice that the other folds make, so that no loss has a say in its
own prediction.

Legend: V folds, R rows, K targets, M sources, H trials, P unknowns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from shapleymix.display import short
from shapleymix.fitting.estimation import Problem
from shapleymix.fitting.shared import worn
from shapleymix.fitting.unknowns import NOISE, Believed
from shapleymix.laws.symbols import Knobs
from shapleymix.records import BoolArray, FloatArray, IntArray

POWER = 100  # operations that a power of a ratio and its slopes take
ENOUGH, LEAST_TARGETS = 2e9, 8  # operations of an iteration of a trial; with many targets some tell what all believe
QUIET = 1.2533  # standard deviation of normal noise over its mean absolute value
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Trial:
    """One value of the knobs: what it believes, its fits (V, K, P), predicted log losses (R, K) of held-out rows."""

    knobs: Mapping[str, float]
    believed: Believed
    x: FloatArray
    predicted: FloatArray


@dataclass(frozen=True)
class Tuned:
    """A problem with the beliefs that won, and what each fold's fit predicts of it, (R, K); NaN where not held out."""

    problem: Problem
    start: FloatArray  # (K, P), near the fit to all rows
    losses: FloatArray
    knobs: Mapping[str, FloatArray]  # what won for each target, (K,)


def tuned(problem: Problem, share: FloatArray, masks: BoolArray, progress: Progress | None = None) -> Tuned:
    """Choose the knobs of the problem's law on rows weighted by `share` (R,), holding out each mask (V, R) in turn."""
    begun = problem.estimate(share[None])
    start, problem = begun.x[0], replace(problem, repeated=begun.repeated)
    fold = np.where(masks.any(axis=0), masks.argmax(axis=0), -1)
    sample = _sample(problem, len(masks))
    few = _Search(problem.only(sample), share, masks, fold)
    usual = {name: values[0] for name, values in problem.packing.law.knobs.items()}
    first = few.trial(usual)
    search = _Search(_with_noise(problem, few.noise(first), sample), share, masks, fold)
    search = search.apart(first.x if len(sample) == len(start) else None)
    few = replace(few, problem=search.problem.only(sample))
    trials = few.walk(few.trial(usual, first.x), progress)
    if len(sample) < len(start):
        trials = [search.trial(few.best(trials).knobs)]
    won = search.choice(trials, fold >= 0)
    believed = Believed.chosen([trial.believed for trial in trials], won)
    knobs = {name: np.array([trial.knobs[name] for trial in trials])[won] for name in few.telling()}
    found = replace(search.problem, believed=believed, repeated=begun.repeated)
    return Tuned(found, start, np.exp(search.predicted(trials)), knobs)


def _sample(problem: Problem, folds: int) -> IntArray:
    """Some targets, evenly spread, on which the knobs are walked: all, unless that took too long."""
    targets, unknowns, runs = len(problem.inputs.targets), len(problem.packing.names), len(problem.observed.N)
    operations = min(runs, unknowns) ** 2 * (runs + unknowns) + POWER * runs * unknowns
    count = max(LEAST_TARGETS, int(ENOUGH / operations / folds))
    return np.unique(np.linspace(0, targets - 1, min(count, targets)).astype(np.int64))


def _with_noise(problem: Problem, noise: FloatArray, sample: IntArray) -> Problem:
    """The problem with the usual error of the targets of a sample, and of the others their median.

    Huber's threshold is that median: at 1.345 times it, the textbook's, RegMix with 51 runs is worse by .03%.
    """
    usual = float(np.median(noise))
    every = np.full(len(problem.inputs.targets), usual)
    every[sample] = noise
    return replace(problem, believed=replace(problem.believed, noise=every), threshold=usual)


@dataclass(frozen=True)
class _Search:
    problem: Problem
    share: FloatArray
    masks: BoolArray
    fold: IntArray  # (R,), -1 where a row is never held out

    def believed(self, knobs: Knobs) -> Believed:
        """What the law believes at some knobs; a knob that nothing given hangs on changes nothing."""
        problem = self.problem
        return Believed.of(problem.packing, knobs, problem.givens, problem.believed.noise)

    def apart(self, x: FloatArray | None) -> _Search:
        """The same with h and R* of each fold's own, told from its fits (V, K, P), where the runs tell them."""
        if not self.problem.evidence.tells(self.problem.packing.law):
            return self
        shares = self.share * ~self.masks
        return replace(self, problem=worn(self.problem, shares, self.problem.begun(shares) if x is None else x)[0])

    def telling(self) -> list[str]:
        """The knobs that change anything: without a transfer matrix its share does not."""
        values = self.problem.packing.law.knobs
        usual = {name: each[0] for name, each in values.items()}
        first = self.believed(usual)
        return [
            name
            for name in values
            if not all(self.believed({**usual, name: value}).same(first) for value in values[name])
        ]

    def trial(self, knobs: Knobs, start: FloatArray | None = None) -> Trial:
        """Fits (V, K, P) to all but each fold, from those before or afresh, and what they predict of it."""
        believed, shares = self.believed(knobs), self.share * ~self.masks
        problem = replace(self.problem, believed=believed)
        x = problem.begun(shares) if start is None else problem.follow(shares, start)
        return Trial(dict(knobs), believed, x, held_out(problem.predicted(x), self.fold))

    def walk(self, first: Trial, progress: Progress | None) -> list[Trial]:
        """Trials along each knob in turn, from the best so far; the first knob again at the end."""
        values = self.problem.packing.law.knobs
        order = [*values, *list(values)[:1]]
        trials, best = [first], first
        for number, name in enumerate(order):
            for value in values[name]:
                knobs = {**best.knobs, name: value}
                if not any(self.believed(knobs).same(trial.believed) for trial in trials):
                    trials.append(self.trial(knobs, best.x))
            best = self.best(trials)
            if progress is not None:
                progress(number + 1, len(order))
        return trials

    def best(self, trials: list[Trial]) -> Trial:
        """The trial that all targets together like best."""
        errors = self.errors(trials, self.fold >= 0)
        return trials[int(np.log(np.maximum(errors, 1e-12)).mean(axis=1).argmin())]

    def choice(self, trials: list[Trial], rows: BoolArray) -> IntArray:
        """The trial (K,) that each target takes, by the errors of some rows."""
        return self.errors(trials, rows).argmin(axis=0)

    def predicted(self, trials: list[Trial]) -> FloatArray:
        """Log losses (R, K) of each fold by the choice of the others; NaN where a fit was told nothing of a target."""
        stacked = np.stack([trial.predicted for trial in trials])
        found = np.full(stacked.shape[1:], np.nan)
        for number, rows in enumerate(self.masks):
            others = (self.fold >= 0) & (self.fold != number) if len(self.masks) > 1 else self.fold >= 0
            which = self.choice(trials, others)
            found[rows] = stacked[which, :, np.arange(len(which))].T[rows]
        return np.where(self.told, found, np.nan)

    @cached_property
    def told(self) -> BoolArray:
        """Whether the fit that predicts a row was told anything of the target, (R, K); else it stays at its start."""
        weight = self.problem.observed.weight * self.share[:, None]
        of_fold = np.stack([weight[~rows].sum(axis=0) > 0 for rows in self.masks])
        return of_fold[np.maximum(self.fold, 0)]

    def errors(self, trials: list[Trial], rows: BoolArray) -> FloatArray:
        """Mean absolute held-out error of log losses, (H, K), over some rows."""
        seen = self.problem.observed
        weight = seen.weight * (self.share * rows)[:, None] * self.told
        off = np.abs(np.stack([trial.predicted for trial in trials]) - seen.log_loss)
        total = weight.sum(axis=0)
        return np.einsum("hrk,rk->hk", off, weight) / np.where(total > 0, total, 1.0)

    def noise(self, trial: Trial) -> FloatArray:
        """The usual held-out error of each target's log loss, (K,); that of the others where no fit was told of one."""
        found = np.clip(QUIET * self.errors([trial], self.fold >= 0)[0], 1e-3, 0.1)
        known = (self.told & (self.problem.observed.weight > 0) & (self.fold >= 0)[:, None]).any(axis=0)
        return np.where(known, found, np.median(found[known]) if known.any() else NOISE)


def held_out(predicted: FloatArray, fold: IntArray) -> FloatArray:
    """Of predictions by every fit (V, R, K) each row's by the fit of its fold (R,), which did not see it."""
    return np.take_along_axis(predicted, np.maximum(fold, 0)[None, :, None], axis=0)[0]


def check_knobs(knobs: Mapping[str, FloatArray], targets: int) -> None:
    """Refuse what no choice of beliefs gives: not one finite number for each of so many targets.

    Raises
    ------
    ValueError
        Naming the knob.
    """
    for name, values in knobs.items():
        if values.shape != (targets,) or not np.isfinite(values).all():
            raise ValueError(f"knobs: {name} holds not one finite number for each of {targets} targets")


def knobs_told(knobs: Mapping[str, FloatArray], targets: Sequence[str]) -> list[str]:
    """What cross-validation chose, in words: nothing where it chose nothing."""
    told = [f"{name} {_usual_and_others(values, targets)}" for name, values in knobs.items()]
    return [f"prior strengths, chosen by cross-validation: {', '.join(told)}"] if told else []


def _usual_and_others(values: FloatArray, targets: Sequence[str]) -> str:
    """The value (K,) of most targets, then the others, each with its targets."""
    found, count = np.unique(values, return_counts=True)
    first, *rest = found[np.argsort(-count, kind="stable")].tolist()
    others = [f"{one:g} for {short([targets[j] for j in np.flatnonzero(values == one).tolist()])}" for one in rest]
    return f"{first:g} ({'; '.join(others)})" if others else f"{first:g}"
