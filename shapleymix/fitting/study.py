"""What fitting and comparing both run on: the evidence, the inputs, how to fit, and what laws were found to believe.

Every value of a knob is tried on the same folds. A fit begins where the last one of its fold ended; the first begins at
starting points from the fold's own rows, since the fit to all rows has seen the held-out ones. One knob after another
is set to what predicts all targets together best; in the end each target takes, of all that was tried, what predicts
its own held-out losses best. A fold is predicted with the choice that the other folds make, so that no loss has a say
in its own prediction.

Legend: V folds, R rows, K targets, M sources, H trials, P unknowns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from importlib.metadata import version
from importlib.util import find_spec

import numpy as np

from shapleymix.errors import UsageError
from shapleymix.files import Json
from shapleymix.fitting.estimation import NEAR, Estimation, Stage, estimate, fit_repetition
from shapleymix.fitting.evidence import Evidence, Logs, Table, fold_masks, gather, inputs_of, levels, one_log
from shapleymix.fitting.settings import Settings
from shapleymix.fitting.symbols import NOISE, PriorTable
from shapleymix.laws import BLACK_BOXES, LAWS, Inputs, Law
from shapleymix.laws.base import Knobs
from shapleymix.records import BoolArray, FloatArray, IntArray
from shapleymix.statistics import MEAN_ABSOLUTE, spread_evenly
from shapleymix.tables.languages import Languages, languages_of, parents_of
from shapleymix.tables.runs import RunLog
from shapleymix.tables.transfer import TransferMatrix
from shapleymix.tables.words import parse_number, parse_whole

MOST_WORDS = 300_000  # of a vocabulary, where nothing tells an untrained model's loss
POWER = 250  # operations that a power of a ratio and its slopes take
ENOUGH, LEAST_TARGETS = 5e8, 8  # operations of an iteration of a trial; with many targets some tell what all believe


@dataclass(frozen=True)
class Trial:
    """One value of the knobs: what it believes, its fits (V, K, P), and predicted log losses (R, K) of held-out rows,
    less their jumps."""

    knobs: Mapping[str, float]
    beliefs: PriorTable
    x: FloatArray
    predicted: FloatArray


@dataclass(frozen=True)
class Tuning:
    """A problem with the beliefs that won, and what each fold's fit says (V, R, K), less jumps; NaN where untold."""

    problem: Estimation
    start: FloatArray  # (K, P), near the fit to all rows
    losses: FloatArray
    knobs: Mapping[str, FloatArray]  # what won for each target, (K,)


def tune_beliefs(problem: Estimation, share: FloatArray, masks: BoolArray, progress: Stage = None) -> Tuning:
    """Choose the knobs of the problem's law on rows weighted by `share` (R,), holding out each mask (V, R) in turn."""
    begun = estimate(problem, share[None], stop=NEAR)
    start, problem = begun.x[0], replace(problem, repeated=begun.repeated)
    fold = np.where(masks.any(axis=0), masks.argmax(axis=0), -1)
    sample = sample_of_targets(problem, len(masks))
    few = _Search(problem.only(sample), share, masks, fold)
    usual = {name: values[0] for name, values in problem.packing.law.knobs.items()}
    first = few.trial(usual)
    noise = few.noise(first)
    usual_noise = float(np.median(noise))
    every = np.full(len(start), usual_noise)  # of targets that are not in the sample
    every[sample] = noise
    # Huber's threshold is the median: at 1.345 times it, the textbook's, RegMix with 51 runs is worse by .03%
    delta = usual_noise if problem.settings.delta is None else problem.delta
    problem = replace(problem, beliefs=replace(problem.beliefs, noise=every), delta=delta)
    if problem.evidence.tells(problem.packing.law):  # h and R* of each fold, too
        x = first.x if len(sample) == len(start) else problem.fit_afresh(share * ~masks)
        problem = fit_repetition(problem, share * ~masks, x)[0]
    search, few = _Search(problem, share, masks, fold), replace(few, problem=problem.only(sample))
    trials = few.walk(few.trial(usual, first.x), progress)
    telling = [name for name in usual if len({trial.knobs[name] for trial in trials}) > 1]  # others change no belief
    if len(sample) < len(start):
        trials = [search.trial(few.best(trials).knobs)]
    won = search.errors(trials, fold >= 0).argmin(axis=0)
    believed = PriorTable.choose([trial.beliefs for trial in trials], won)
    knobs = {name: np.array([trial.knobs[name] for trial in trials])[won] for name in telling}
    found = replace(problem, beliefs=believed, repeated=begun.repeated)
    return Tuning(found, start, search.predict(trials), knobs)


def sample_of_targets(problem: Estimation, folds: int) -> IntArray:
    """Targets on which the knobs are chosen: all, or evenly spread ones where all would take too long."""
    targets, unknowns, runs = len(problem.inputs.targets), len(problem.packing.names), len(problem.observed.N)
    operations = min(runs, unknowns) ** 2 * (runs + unknowns) + POWER * runs * unknowns
    return spread_evenly(targets, max(LEAST_TARGETS, int(ENOUGH / operations / folds)))


@dataclass(frozen=True)
class _Search:
    problem: Estimation
    share: FloatArray
    masks: BoolArray
    fold: IntArray  # (R,), -1 where a row is never held out

    def believe(self, knobs: Knobs) -> PriorTable:
        """What the law believes at some knobs; a knob that nothing given hangs on changes nothing."""
        one = self.problem
        return PriorTable.of(one.packing, knobs, one.givens, one.beliefs.noise, one.levels, one.observed)

    def trial(self, knobs: Knobs, start: FloatArray | None = None) -> Trial:
        """Fits (V, K, P) to all but each fold, from those before or afresh, and what they predict of it."""
        believed, shares = self.believe(knobs), self.share * ~self.masks
        problem = replace(self.problem, beliefs=believed)
        x = problem.fit_afresh(shares) if start is None else problem.follow(shares, start)
        return Trial(dict(knobs), believed, x, pick_held_out(problem.predict(x), self.masks))

    def walk(self, first: Trial, progress: Stage) -> list[Trial]:
        """Trials along each knob in turn, from the best so far; the first knob again at the end."""
        values = self.problem.packing.law.knobs
        order = [*values, *list(values)[:1]]
        trials, best = [first], first
        for number, name in enumerate(order):
            for value in values[name]:
                knobs = {**best.knobs, name: value}
                if not any(self.believe(knobs).same(trial.beliefs) for trial in trials):
                    trials.append(self.trial(knobs, best.x))
            best = self.best(trials)
            if progress is not None:
                progress(number + 1, len(order))
        return trials

    def best(self, trials: list[Trial]) -> Trial:
        """The trial with the lowest held-out error, as the geometric mean over targets."""
        errors = self.errors(trials, self.fold >= 0)
        return trials[int(np.log(np.maximum(errors, 1e-12)).mean(axis=1).argmin())]

    def predict(self, trials: list[Trial]) -> FloatArray:
        """Losses (V, R, K) by each fold's fit, chosen by the other folds; NaN where a fit had no loss of the target."""
        stacked = np.stack([trial.x for trial in trials])
        x = np.empty(stacked.shape[1:])
        for number in range(len(self.masks)):
            others = (self.fold >= 0) & (self.fold != number) if len(self.masks) > 1 else self.fold >= 0
            which = self.errors(trials, others).argmin(axis=0)
            x[number] = stacked[which, number, np.arange(len(which))]
        return np.where(self.is_trained[:, None], np.exp(self.problem.predict(x)), np.nan)

    @cached_property
    def is_trained(self) -> BoolArray:
        """Whether each fold's fit had a loss of the target (V, K); else it stays at its start."""
        weight = self.problem.observed.weight * self.share[:, None]
        return np.stack([weight[~rows].sum(axis=0) > 0 for rows in self.masks])

    def errors(self, trials: list[Trial], rows: BoolArray) -> FloatArray:
        """Mean absolute held-out error of log losses, (H, K), over some rows; 0 where nothing was held out."""
        weight = self.weigh(rows)
        off = np.nan_to_num(np.abs(np.stack([trial.predicted for trial in trials]) - self.problem.observed.log_loss))
        total = weight.sum(axis=0)
        return np.einsum("hrk,rk->hk", off, weight) / np.where(total > 0, total, 1.0)

    def weigh(self, rows: BoolArray) -> FloatArray:
        """Weights (R, K) of held-out losses in some rows: 0 where the fit that predicts it had none of the target."""
        return self.problem.observed.weight * (self.share * rows)[:, None] * self.is_trained[np.maximum(self.fold, 0)]

    def noise(self, trial: Trial) -> FloatArray:
        """The usual held-out error of each target's log loss, (K,); the others' median where no fit had a loss of it.

        It is known to a tenth at best. Rounded, it is the same on every machine, in whatever order sums are taken.
        """
        found = np.clip(MEAN_ABSOLUTE * self.errors([trial], self.fold >= 0)[0], 1e-3, 0.1)
        known = (self.weigh(self.fold >= 0) > 0).any(axis=0)
        usual = np.where(known, found, np.median(found[known]) if known.any() else NOISE)
        return np.exp(np.round(np.log(usual), 1))


def pick_held_out(predicted: FloatArray, masks: BoolArray) -> FloatArray:
    """Of predictions by every fit (V, R, K) each row's by the fit that did not see it, by its mask (V, R); else NaN."""
    found = np.take_along_axis(predicted, masks.argmax(axis=0)[None, :, None], axis=0)[0]
    return np.where(np.any(masks, axis=0)[:, None], found, np.nan)


Progress = Callable[[str, int, int], None]
CHOOSING = 10  # folds in which a law, its regimes and what it believes are chosen, however many judge
MIXTURES_NEEDED = 3  # fewer cannot be split into a part to fit and a part to hold out


@dataclass(frozen=True)
class Study:
    """One body of evidence and one way to fit it.

    Attributes
    ----------
    evidence : Evidence
        The rows, and which losses count.
    inputs : Inputs
        Labels, transfer matrix and languages table.
    settings : Settings
        Settings of the fit.
    seed : int
        Seed of every random draw.
    untrained : array (K,)
        Loss of an untrained model, nats; where nothing tells it, one that no model has.
    """

    evidence: Evidence
    inputs: Inputs
    settings: Settings
    seed: int
    untrained: FloatArray

    @property
    def log(self) -> RunLog:
        """The rows that may be fitted."""
        return self.evidence.log

    @property
    def mixtures(self) -> int:
        """Number of different mixtures; of runs where all have one."""
        return len(np.unique(self.log.groups))

    def list_laws(self) -> list[str]:
        """The laws that the inputs can feed, simplest first; then black boxes."""
        inputs = self.inputs
        there = {
            "mixture": len(inputs.sources) > 1,
            "transfer": inputs.transfer is not None,
            "one mixture": self.mixtures < 2 or len(inputs.sources) < 2,
            "families": inputs.languages is not None and any(inputs.languages.family),
            "lightgbm": find_spec("lightgbm") is not None,
        }
        return [name for name, law in {**LAWS, **BLACK_BOXES}.items() if all(there[need] for need in law.needs)]

    def choosing_folds(self, rows: BoolArray | None = None) -> BoolArray:
        """Folds (V, R) of some rows (R,) alone, by default of all, in which a law and what it believes are chosen."""
        rows = np.ones(len(self.log), dtype=bool) if rows is None else rows
        log = self.log.select(rows)
        count = min(CHOOSING, len(np.unique(log.groups)))
        masks = np.zeros((count, len(rows)), dtype=bool)
        masks[:, rows] = fold_masks(log, count)
        return masks

    def hold_out(self, *, leave_largest_N: bool = False, split: bool = False) -> tuple[BoolArray, str]:
        """Held-out rows of every fit (V, R) of a comparison, and the design in words.

        Raises
        ------
        UsageError
            If both designs are asked for, or the log does not allow the one that is.
        """
        log, folds = self.log, min(self.settings.folds, self.mixtures)
        if self.mixtures < 2:
            raise UsageError("the log holds one run: there is nothing to hold out", hint="give more runs")
        if leave_largest_N and split:
            raise UsageError("leaving out the largest size and using the split column exclude each other")
        if not leave_largest_N and not split:
            return fold_masks(log, folds), f"{folds}-fold cross-validation grouped by mixture"
        if split and log.split is None:
            raise UsageError("the log has no split column", hint="add one with the values fit and held-out")
        aside, design = log.N.max() == log.N, f"largest size left out (N = {log.N.max():g})"
        if log.split is not None and split:
            aside, design = np.array([label != "fit" for label in log.split]), "rows held out by the split column"
        elif len(levels(log.N)) < 3:
            message = "the log has fewer than three sizes: one that is left tells nothing of another"
            raise UsageError(message, hint="use folds, or give a log with three sizes")
        if aside.all() or not aside.any():
            message = "the log has only one split: nothing to fit or nothing to hold out"
            raise UsageError(message, hint="use folds, or give a log with both kinds of rows")
        return aside[None, :], design

    def provenance(self, law: type[Law]) -> dict[str, Json]:
        """What a reader needs to make the fit again: inputs by their hash, settings, seed, version."""
        transfer = self.inputs.transfer
        return {
            "shapleymix": version("shapleymix"),
            "log": self.log.origin,
            "log_sha256": self.log.digest,
            "tokenizer": None if self.log.tokenizer is None else self.log.tokenizer[0],
            "transfer": None if transfer is None else dict(transfer.provenance),
            "law": law.name,
            "seed": self.seed,
            **asdict(self.settings),
        }


def study_of(
    logs: Logs,
    transfer: TransferMatrix | Table | None,
    languages: Languages | Table | None,
    settings: Settings,
    seed: int,
    *,
    vocabulary: float | None = None,
    with_held_out: bool = False,
) -> Study:
    """Read what a study needs; rows that a split column sets aside only `with_held_out`.

    Parameters
    ----------
    vocabulary : float, optional
        Size of the vocabulary, whose logarithm is the loss of an untrained model; a measured untrained loss (D = 0) is
        preferred.

    Raises
    ------
    DataError, UsageError
        If a table is wrong, or no row is left.
    """
    parse_whole(seed, "seed")
    log, table = one_log(logs), languages_of(languages)
    log = replace(log, parents=parents_of(table) or log.parents)
    evidence = gather(log, settings, table, with_held_out=with_held_out)
    inputs = inputs_of(evidence.log, transfer, table)
    if vocabulary is not None and not parse_number(vocabulary, "vocabulary") > 1:
        raise UsageError(f"a vocabulary of {vocabulary:g} entries", hint="give the number of tokens, such as 32000")
    return Study(evidence, inputs, settings, seed, _find_untrained(log, inputs, vocabulary))


def _find_untrained(log: RunLog, inputs: Inputs, vocabulary: float | None) -> FloatArray:
    """Loss of an untrained model (K,): measured in the log, or in the matrix's game, or ln V, or the most it may be."""
    known = np.fmax.reduce(log.loss[~log.trained], axis=0, initial=np.nan)  # the highest of models with D = 0
    measured = {} if inputs.transfer is None else inputs.transfer.provenance.get("untrained")
    if isinstance(measured, dict):
        game = np.array([float(measured.get(name, np.nan)) for name in inputs.targets])
        known = np.where(np.isnan(known), game, known)
    most = np.log(vocabulary) if vocabulary else np.nanmax(log.loss, axis=0, initial=np.log(MOST_WORDS))
    return np.where(np.isnan(known), most, known)
