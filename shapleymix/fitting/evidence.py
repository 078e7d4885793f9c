"""What a fit gets to see: the rows, which losses count, what the budgets can tell, and what was left out.

A checkpoint of a decaying learning rate is no final loss, and early ones bend the law's curve in D. A fit answers for
final losses: a checkpoint counts by a power of its share of the run's schedule, and only finished runs are judged.
Legend: R rows, K targets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from shapleymix.errors import DataError, Location
from shapleymix.fitting.jumps import Jumps
from shapleymix.fitting.settings import ALL, FINAL, Settings
from shapleymix.laws import BlackBox, Inputs, Law, Observations
from shapleymix.laws.core import CoreLaw, models_harm, repetition_prior
from shapleymix.laws.pieces import effective, harmful
from shapleymix.records import BoolArray, FloatArray, IntArray
from shapleymix.statistics import RandomStream
from shapleymix.tables.languages import Languages, column_of, harm_map, own_data
from shapleymix.tables.run_reading import read_runs
from shapleymix.tables.runs import RunLog
from shapleymix.tables.sheets import Table
from shapleymix.tables.transfer import TransferMatrix, read_transfer
from shapleymix.tables.words import format_size, parse_size

SAME = 0.01
"""Budgets whose logarithms span no more than twice this count as one: token counts are rounded to batches."""


def levels_of(logs: FloatArray) -> IntArray:
    """The number of each budget's level, by logs: one level spans no more than 2 SAME, wherever it lies."""
    values, place = np.unique(logs, return_inverse=True)
    starts = [0]
    while (after := int(np.searchsorted(values, values[starts[-1]] + 2 * SAME, side="right"))) < len(values):
        starts.append(after)
    return np.searchsorted(starts, place.reshape(-1), side="right") - 1


def levels(values: FloatArray) -> FloatArray:
    """The least budget of each level, ascending."""
    ordered = np.sort(values)
    return ordered[np.unique(levels_of(np.log(ordered)), return_index=True)[1]]


def cells_of(log: RunLog) -> IntArray:
    """The number (R,) of each row's N and D: rows of one number have both levels in common."""
    budgets = np.stack([levels_of(np.log(values)) for values in (log.N, log.D)], axis=1)
    return np.unique(budgets, axis=0, return_inverse=True)[1].reshape(-1)


TOGETHER = 0.3
"""How far (in logs) budgets may lie from the line on which N and D change together: ratios are never quite one."""


def line_of(N: FloatArray, D: FloatArray) -> FloatArray | None:
    """The line `a log N + b log D = c`, (a, b, c) with a^2 + b^2 = 1, near which all budgets lie; None for no such.

    On it no run tells what N does from what D does. Logs with one N or one D: see `Levels.find_untold`.
    """
    if min(len(levels(N)), len(levels(D))) < 2:
        return None
    logs = np.log(np.stack([N, D], axis=1))
    middle = logs.mean(axis=0)
    normal = np.linalg.svd(logs - middle, full_matrices=False)[2][1]
    normal = normal if normal[1] > 0 else -normal
    return np.append(normal, normal @ middle) if np.abs((logs - middle) @ normal).max() <= TOGETHER else None


def beyond_line(line: FloatArray, N: FloatArray, D: FloatArray) -> FloatArray:
    """Factors (R,) by which one of N and D would have to change for budgets to lie on such a line; 1 near it."""
    off = np.abs(line[0] * np.log(N) + line[1] * np.log(D) - line[2])
    return np.where(off > TOGETHER, np.exp(off / np.abs(line[:2]).max()), 1.0)


def parting_run(line: FloatArray, N: FloatArray, D: FloatArray) -> str:
    """That budgets lie on a line, and the run of the least N of theirs that would part N and D."""
    tokens = np.array([D.min(), D.max(), 4 * D.max()])
    best = tokens[(beyond_line(line, np.full(3, N.min()), tokens) > 1).argmax()]
    run = f"a run of N = {format_size(float(N.min()))}, D = {format_size(float(best))}"
    return f"N and D change together: budgets off that line are told by public runs alone; {run} would part them"


def is_finished(log: RunLog) -> BoolArray:
    """(R,) rows at the end of their run's schedule."""
    return log.D / log.ends >= FINISHED


FINISHED = 0.99
"""Share of the schedule at which a run is finished: token counts are rounded to batches."""
CHECKPOINT_POWER, EARLIEST = 4.0, 0.45
"""Power of the share by which a checkpoint counts, and the share before which it does not (`bench_accuracy.py`)."""
OFTEN, TELLING = 1.5, 3
"""Epochs of some source, and how many runs with so many, that tell what repetition costs."""
HARM_ERROR = 0.8
"""Relative error of the formula of harm, for a single run: such runs weigh less, and h is known less well.

Predicted from fits to smaller pools or other sizes, best epochs are off by a factor of .87 to 1.6, harm by its cube
(`bench_repetition.py`).
"""


@dataclass(frozen=True)
class Evidence:
    """A log with the weight of every loss; weight zero where it was not measured or was filtered out.

    `final` (R,) are the rows for whose losses the fit answers, by which it is judged. `unique` (R, M) are the unique
    tokens that each run could draw on (NaN: no limit, or none is known). `repeated` (1 + M,) are log h and each
    source's log R* where another fit has told them. `jumps` are those of losses, which laws of mixtures leave out.
    """

    log: RunLog
    weight: FloatArray  # (R, K)
    final: BoolArray
    notices: tuple[str, ...]
    unique: FloatArray
    repeated: FloatArray | None = None
    jumps: Jumps | None = None

    @property
    def judged(self) -> BoolArray:
        """(R, K) the losses by which fits are judged."""
        return (self.weight > 0) & self.final[:, None]

    @cached_property
    def shares(self) -> FloatArray:
        """(R, M) unique tokens as a share of each run's D; infinite for no limit."""
        return np.where(np.isnan(self.unique), np.inf, self.unique) / self.log.D[:, None]

    @cached_property
    def harms(self) -> FloatArray:
        """(R, K) what repeated tokens would do to each loss at h = 1, as a share of the core."""
        log = self.log
        each = harmful(log.p, self.shares, log.N[:, None], log.D[:, None])
        return each @ harm_map(log.paths, log.targets)

    def repeats(self, law: type[Law]) -> bool:
        """Whether some run repeats tokens, and the law has h and R*."""
        return issubclass(law, CoreLaw) and law.takes_repetition and bool((self.log.p > self.shares).any())

    def tells(self, law: type[Law]) -> bool:
        """Whether enough runs see tokens often enough to tell what that does, and nothing else has."""
        if not self.repeats(law) or self.repeated is not None:
            return False
        often = np.any(self.log.p > self.shares * OFTEN, axis=1)
        return len({self.log.runs[row] for row in np.flatnonzero(often).tolist()}) >= TELLING

    @property
    def usual(self) -> FloatArray:
        """(1 + M,) log h and log R* where these runs do not tell them."""
        return repetition_prior(self.log.p.shape[1])[0] if self.repeated is None else self.repeated

    def ratios(self, repeated: FloatArray) -> FloatArray:
        """What laws take for the ratios (..., R, M) at log h and log R* (..., 1 + M): less where tokens repeat."""
        return effective(self.log.p, self.shares, np.exp(-repeated[..., 1:])[..., None, :])

    def losses(self, law: Law, repeated: FloatArray) -> FloatArray:
        """Losses (..., R, K) of a law in plain units on the rows, without jumps; at log h and log R* (..., 1 + M)."""
        log = self.log
        q = self.ratios(repeated if self.repeats(type(law)) else self.usual) if law.takes_repetition else log.p
        found = law.losses(q, log.N, log.D)
        if self.repeats(type(law)) and models_harm(type(law)) and isinstance(law, CoreLaw):
            found = found + law.core(log.N, log.D) * (np.exp(repeated[..., 0])[..., None, None] * self.harms)
        return found

    def jumps_beside(self, law: type[Law]) -> Jumps | None:
        """The jumps that a law leaves out: none of a law without mixtures, nor of a black box, which learns them."""
        return self.jumps if misses_mixtures(law) else None

    def notices_of(self, *laws: type[Law]) -> tuple[str, ...]:
        """The notices, and what there is to say of jumps where one of these laws leaves them out."""
        jumps = next(filter(None, map(self.jumps_beside, laws)), None)
        return self.notices if jumps is None else (*self.notices, *jumps.describe(self.log.sources, self.log.targets))

    def measure_jumps(self, law: type[Law]) -> FloatArray:
        """(R, K) by how much log losses are higher than a law says, where they jump."""
        jumps = self.jumps_beside(law)
        return np.zeros(self.log.loss.shape) if jumps is None else jumps.mean(self.log.p)

    def find_jumps(self, rows: BoolArray, wanted: BoolArray) -> Jumps:
        """The jumps of the losses of some targets (K,), by those rows (R,) that have the N and D which most have."""
        cells, rows = cells_of(self.log), rows & self.judged.any(axis=1)
        rows = rows & (cells == np.bincount(cells[rows], minlength=1).argmax())
        return Jumps.of(self.log.p[rows], np.log(np.where(self.judged & wanted, self.log.loss, np.nan)[rows]))

    def measure_jumps_of_folds(self, law: type[Law], masks: BoolArray) -> FloatArray:
        """The same (V, R, K) where rows that a mask (V, R) holds out jump as the other rows tell."""
        known = self.measure_jumps(law)
        found = np.repeat(known[None], len(masks), axis=0)
        for place, mask in enumerate(masks if known.any() else ()):
            found[place, mask] = self.find_jumps(~mask, np.any(known, axis=0)).mean(self.log.p[mask])
        return found

    def units(self, law: type[Law]) -> tuple[float, float]:
        """N and D are divided by these for the search: geometric means, or 1 where the law is fitted in plain units."""
        if not law.relative:
            return 1.0, 1.0
        return float(np.exp(np.log(self.log.N).mean())), float(np.exp(np.log(self.log.D).mean()))

    def observations(self, law: type[Law], inputs: Inputs) -> Observations:
        """The rows in the units of the search."""
        law.require(inputs)
        loss = self.log.loss
        weight = np.where(np.isnan(loss), 0.0, self.weight)
        log_loss = np.log(np.where(np.isnan(loss), 1.0, loss)) - self.measure_jumps(law)
        N0, D0 = self.units(law)
        p = self.ratios(self.usual) if law.takes_repetition else self.log.p
        return Observations(p, self.log.N / N0, self.log.D / D0, log_loss, weight)


def misses_mixtures(law: type[Law]) -> bool:
    """Whether a law says of mixtures what runs may add to: a black box has fitted itself to what is left."""
    return "mixture" in law.needs and not issubclass(law, BlackBox)


def gather(
    log: RunLog, settings: Settings, languages: Languages | None = None, *, with_held_out: bool = False
) -> Evidence:
    """The rows that a fit may use; those that the log's `split` column sets aside only `with_held_out`.

    Unique tokens are those of the log, else of the languages table for all runs.

    Raises
    ------
    DataError
        If no trained row is left.
    """
    least, own_least = parse_size(settings.min_tokens), parse_size(settings.min_own_tokens or 0.0)
    share, fewest = log.D / log.ends, (log.p * log.D[:, None]).min(axis=1, initial=np.inf)
    wanted = {"untrained models (D = 0)": log.trained}
    if log.split is not None and not with_held_out:
        wanted["held out by the split column"] = np.array([label == "fit" for label in log.split])
    wanted[f"a language has fewer than {least:g} tokens"] = fewest >= least
    if settings.checkpoints == FINAL:
        usable = np.all(list(wanted.values()), axis=0)
        if usable.any() and not (usable & (share >= FINISHED)).any():
            hint = "check the schedule or final column, or fit the losses along runs (checkpoints = all)"
            raise DataError("no run reaches the end of its schedule", location=Location(file=log.origin), hint=hint)
        wanted["of runs that did not reach the end of their schedule"] = ~np.isnan(share)
        wanted[f"before {EARLIEST:g} of their run's schedule"] = share >= EARLIEST
    keep, notices = np.ones(len(log), dtype=bool), list[str]()
    for what, inside in wanted.items():
        if lost := int((keep & ~inside).sum()):
            notices.append(f"left out {lost} {'row' if lost == 1 else 'rows'}: {what}")
        keep &= inside
    if not keep.any():
        hint = "check D, the split column, and the filters on tokens"
        raise DataError("no trained run is left to fit", location=Location(file=log.origin), hint=hint)
    kept = log.select(keep)
    measured, own = ~np.isnan(kept.loss), own_tokens(kept) >= own_least
    if not own.all():
        notices.append(
            f"left out {int((measured & ~own).sum())} losses of runs with fewer than "
            f"{own_least:g} tokens of that language"
        )
    counts, final, of_checkpoints = _by_schedule(share[keep], settings)
    given = 1.0 if kept.weight is None else kept.weight / max(kept.weight.max(), 1e-300)  # only shares matter
    weight = np.where(measured & own, (given * counts)[:, None], 0.0)
    totals = (weight * final[:, None]).sum(axis=0).tolist()
    if empty := [name for name, total in zip(log.targets, totals, strict=True) if total == 0]:
        hint = "fill in losses, drop the column, give rows a weight above 0, or loosen the filter on own tokens"
        place = Location(file=log.origin, column=f"loss_{empty[0]}")
        raise DataError(f"no usable loss for {', '.join(map(repr, empty))}", location=place, hint=hint)
    if not own_least and (absent := int(((own_tokens(kept) == 0) & measured).sum())):
        notices.append(
            f"{absent} of {kept.loss.size} losses come from runs that saw none of the target's language, which often "
            f"behave differently: {ONE_LAW}"
        )
    at_hand = np.broadcast_to(column_of(languages, "available_tokens", log.sources), kept.p.shape)
    unique = at_hand if kept.unique is None else kept.unique
    return Evidence(kept, weight, final, (*of_checkpoints, *notices), unique)


def _by_schedule(share: FloatArray, settings: Settings) -> tuple[FloatArray, BoolArray, tuple[str, ...]]:
    """Weight of each row by its share (R,) of the schedule, which rows judge fits, and notices about checkpoints."""
    every, early = np.ones(len(share)), ~(share >= FINISHED)
    count = f"{early.sum()} of {len(share)} rows are checkpoints before the end of their run: the fit answers for"
    if not early.any():
        return every, ~early, ()
    if settings.checkpoints == ALL:
        return every, every > 0, (f"{count} losses along a run, not for final ones, and all rows count alike",)
    how = f"each counts by its share of the run's tokens, to the power {CHECKPOINT_POWER:g}"
    text = f"{count} final losses, and {how} (checkpoints all answers for losses along a run)"
    return np.minimum(share, 1.0) ** CHECKPOINT_POWER, ~early, (text,)


def drop_losses(evidence: Evidence, rows: BoolArray) -> Evidence:
    """The same without some losses (R, K), those of another regime."""
    notices = tuple(text for text in evidence.notices if not text.endswith(ONE_LAW))
    return replace(evidence, weight=np.where(rows, 0.0, evidence.weight), notices=notices)


def select_rows(evidence: Evidence, rows: BoolArray) -> Evidence:
    """Some of its rows (R,) alone."""
    arrays = {name: getattr(evidence, name)[rows] for name in ("weight", "final", "unique")}
    return replace(evidence, log=evidence.log.select(rows), **arrays)


def own_source(sources: Sequence[str], targets: Sequence[str]) -> IntArray:
    """For each target (K,) the place of the source that alone is its own data, or -1."""
    own = own_data(sources, targets)
    return np.where(own.sum(axis=0) == 1, own.argmax(axis=0) if len(sources) else -1, -1)


def own_tokens(log: RunLog) -> FloatArray:
    """Tokens of each target's own data in each run, (R, K); infinite for a target that has none among the sources."""
    own = own_data(log.paths, log.targets)
    return np.where(own.any(axis=0), log.p @ own * log.D[:, None], np.inf)


ONE_LAW = "one law is fitted to all; a filter on own tokens (min_own_tokens) leaves them out"


TRACE = 1e-6  # of all tokens: less of a language is none of it, and no answer hangs on a solver's rounding


def traceless(p: FloatArray) -> FloatArray:
    """Ratios without the traces that `TRACE` takes for none: a law's power of one may be far from that of zero."""
    return np.where(p < TRACE, 0.0, p)


Logs = RunLog | Table | Sequence[RunLog | Table]


def one_log(logs: Logs) -> RunLog:
    """One log from one or several; rows in an order of their own, so that the file's order changes nothing."""
    log = read_runs(logs)
    log = replace(log, p=traceless(log.p))
    order = sorted(range(len(log)), key=lambda row: (log.groups[row], log.contents[row]))
    return log.select(np.array(order, dtype=np.int64))


def inputs_of(log: RunLog, transfer: TransferMatrix | Table | None, languages: Languages | None = None) -> Inputs:
    """The labels, the transfer matrix (calibrated where it has the loss drops) and the languages table of a fit."""
    matrix = transfer if transfer is None or isinstance(transfer, TransferMatrix) else read_transfer(transfer)
    if matrix is not None and not matrix.in_nats:
        matrix = matrix.calibrate()
    return Inputs(log.sources, log.targets, matrix, languages, log.parents)


def fold_masks(log: RunLog, folds: int) -> BoolArray:
    """Held-out rows of each fold, (V, R), by a hash of the mixture: the order of the rows changes nothing."""
    return log.folds(folds)[None, :] == np.arange(folds)[:, None]


def bootstrap_shares(log: RunLog, replicates: int, seed: int) -> FloatArray:
    """Weights (B, R) of a Bayesian bootstrap over mixtures (Rubin 1981): exponential draws, mean one.

    Unlike draws with replacement it never leaves a mixture out, so that laws with many symbols stay identified.
    """
    groups = log.groups
    draws = np.random.default_rng([seed, RandomStream.BOOTSTRAP]).exponential(size=(replicates, int(groups.max()) + 1))
    draws /= draws.mean(axis=1, keepdims=True)
    return draws[:, groups]
