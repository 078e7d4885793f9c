"""What a fit gets to see: the rows, which losses count, what the budgets can tell, and what was left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from shapleymix.errors import DataError, Location, UsageError
from shapleymix.fitting.magnitudes import levels, require_magnitudes, scaled_weights
from shapleymix.fitting.questions import progress, questions_of_log
from shapleymix.laws import Inputs, Law
from shapleymix.laws.base import Observations
from shapleymix.laws.repeated import PUBLISHED, effective
from shapleymix.records import BoolArray, FloatArray, IntArray
from shapleymix.tables.by_source import column_of
from shapleymix.tables.joining import concat
from shapleymix.tables.languages import Languages, LanguagesSpec, languages_of
from shapleymix.tables.run_reading import read_runs
from shapleymix.tables.runs import RunLog
from shapleymix.tables.sheets import Table, listed
from shapleymix.tables.transfer import TransferMatrix
from shapleymix.tables.transfer_reading import read_transfer

OFTEN, TELLING = 1.5, 3
"""Epochs of some source, and how many runs with so many, that tell what repetition costs."""


@dataclass(frozen=True)
class Filters:
    """Which rows may inform the fit.

    `min_tokens`: no row whose mixture gives some language fewer tokens (the paper's rule, 1.5e9 there).
    `min_own_tokens`: a row informs target j only where j's own language has that many.
    `drop_warmup`: no checkpoint before that share of the last D of its run; runs of one row stay.
    `last_only`: no checkpoint but the last of its run.
    """

    min_tokens: float = 0.0
    min_own_tokens: float = 0.0
    drop_warmup: float = 0.0
    last_only: bool = False

    def __post_init__(self) -> None:
        share = self.drop_warmup
        if not (isinstance(share, (int, float)) and 0 <= share < 1):
            hint = "give the share of each run to leave out, such as 0.25"
            raise UsageError(f"a warm-up of {share} of each run", hint=hint)


@dataclass(frozen=True)
class Evidence:
    """A log with the weight of every loss; weight zero where it was not measured or was filtered out.

    `unique` (R, M) are the unique tokens that each run could draw on (NaN: no limit; None: none is known), and `rate`
    is that at which repeated ones lose their worth.
    """

    log: RunLog
    weight: FloatArray  # (R, K)
    notices: tuple[str, ...]
    unique: FloatArray | None = None
    rate: float = PUBLISHED

    @property
    def ratios(self) -> FloatArray:
        """What laws take for the ratios (R, M): fewer where tokens are repeated."""
        if self.unique is None:
            return self.log.p
        u = np.where(np.isnan(self.unique), np.inf, self.unique) / self.log.D[:, None]
        return effective(self.log.p, u, self.rate)

    @property
    def tells_repetition(self) -> bool:
        """Whether enough runs see tokens often enough to tell what that costs."""
        if self.unique is None:
            return False
        often = np.any(self.log.p * self.log.D[:, None] > self.unique * OFTEN, axis=1)
        return len({self.log.runs[row] for row in np.flatnonzero(often).tolist()}) >= TELLING

    @property
    def N0(self) -> float:
        """Geometric mean size; the search works on N / N0."""
        return float(np.exp(np.log(self.log.N).mean()))

    @property
    def D0(self) -> float:
        """Geometric mean token count."""
        return float(np.exp(np.log(self.log.D).mean()))

    def units(self, law: type[Law]) -> tuple[float, float]:
        """N and D are divided by these for the search; by 1 where the law is fitted in plain units."""
        return (self.N0, self.D0) if law.relative else (1.0, 1.0)

    def held(self, law: type[Law], rows: BoolArray | None = None) -> dict[str, float]:
        """Symbols of the law that the budgets (of some rows) cannot tell, with the value they are held at."""
        chosen = slice(None) if rows is None else rows
        counts = {"N": len(levels(self.log.N[chosen])), "D": len(levels(self.log.D[chosen]))}
        held: dict[str, float] = {}
        for known in law.fitted():
            count = counts[known.budget] if known.budget else 3
            if count == 1:
                held[known.name] = 0.0
            elif count == 2 and known.usual is not None:
                held[known.name] = known.usual
        return held

    def observations(self, law: type[Law], inputs: Inputs, shares: FloatArray | None = None) -> Observations:
        """The rows in the units of the search; `shares` (R,) multiplies the weights."""
        law.require(inputs)
        loss = law.seen_losses(self.log.loss, inputs)
        weight = np.where(np.isnan(loss), 0.0, self.weight)
        if shares is not None:
            weight = weight * shares[:, None]
        log_loss = np.log(np.where(np.isnan(loss), 1.0, loss))
        N0, D0 = self.units(law)
        p = self.ratios if law.takes_repetition else self.log.p
        return Observations(p, self.log.N / N0, self.log.D / D0, log_loss, weight)


def gather(log: RunLog, filters: Filters, *, with_held_out: bool = False) -> Evidence:
    """The rows that a fit may use; those that the log's `split` column sets aside only `with_held_out`.

    Raises
    ------
    DataError
        If no trained row is left.
    """
    notices: list[str] = []
    keep = _drop(log.D != 0, "untrained models (D = 0)", notices)
    if log.split is not None and not with_held_out:
        inside = np.array([label == "fit" for label in log.split])
        keep &= _drop(inside, "held out by the split column", notices, within=keep)
    if filters.min_tokens > 0:
        enough = (log.p * log.D[:, None]).min(axis=1, initial=np.inf) >= filters.min_tokens
        keep &= _drop(enough, f"with a language below {filters.min_tokens:g} tokens", notices, within=keep)
    if filters.drop_warmup > 0:
        warm = progress(log) >= filters.drop_warmup
        keep &= _drop(warm, f"in the first {filters.drop_warmup:.0%} of their run's tokens", notices, within=keep)
    if filters.last_only:
        keep &= _drop(progress(log) >= 1.0, "that are not the last of their run", notices, within=keep)
    if not keep.any():
        raise DataError("no trained run is left to fit", location=Location(file=log.origin), hint=_NOTHING_LEFT)
    kept = log.select(keep)
    require_magnitudes(kept)
    measured, own = ~np.isnan(kept.loss), _enough_own(kept, filters.min_own_tokens)
    if not own.all():
        notices.append(
            f"left out {int((measured & ~own).sum())} losses whose own language has below "
            f"{filters.min_own_tokens:g} tokens"
        )
    weight = np.where(measured & own, scaled_weights(kept)[:, None], 0.0)
    _check_targets(kept, weight)
    notices += _absent_own(kept, filters)
    return Evidence(kept, weight, (*notices, *questions_of_log(kept, weight > 0)))


_NOTHING_LEFT = "check D, the split column, and the filters on tokens"


def _drop(keep: BoolArray, what: str, notices: list[str], within: BoolArray | None = None) -> BoolArray:
    lost = int((~keep if within is None else within & ~keep).sum())
    if lost:
        notices.append(f"left out {lost} {'row' if lost == 1 else 'rows'} {what}")
    return keep.copy()


def without(evidence: Evidence, rows: BoolArray) -> Evidence:
    """The same without some losses (R, K), those of another regime."""
    notices = tuple(text for text in evidence.notices if not text.endswith(ONE_LAW))
    return replace(evidence, weight=np.where(rows, 0.0, evidence.weight), notices=notices)


def chosen(evidence: Evidence, rows: BoolArray) -> Evidence:
    """Some of its rows (R,) alone."""
    unique = None if evidence.unique is None else evidence.unique[rows]
    return replace(evidence, log=evidence.log.select(rows), weight=evidence.weight[rows], unique=unique)


def own_source(sources: Sequence[str], targets: Sequence[str]) -> IntArray:
    """For each target the index of the source of its name, or -1."""
    place = {name: index for index, name in enumerate(sources)}
    return np.array([place.get(name, -1) for name in targets], dtype=np.int64)


def own_tokens(log: RunLog) -> FloatArray:
    """Tokens of each target's own language in each run, (R, K); infinite for a target that is no source."""
    own = own_source(log.sources, log.targets)
    if not len(log.sources):
        return np.full(log.loss.shape, np.inf)
    return np.where(own >= 0, log.p[:, np.maximum(own, 0)] * log.D[:, None], np.inf)


def _enough_own(log: RunLog, minimum: float) -> BoolArray:
    return own_tokens(log) >= minimum


def _absent_own(log: RunLog, filters: Filters) -> list[str]:
    """Runs without the target's own language follow another regime; say so unless they were filtered out."""
    absent = int(((own_tokens(log) == 0) & ~np.isnan(log.loss)).sum())
    if filters.min_own_tokens > 0 or not absent:
        return []
    return [
        f"{absent} of {log.loss.size} losses are of runs without the target's own language, often another regime: "
        f"{ONE_LAW}"
    ]


def _check_targets(log: RunLog, weight: FloatArray) -> None:
    empty = [name for name, total in zip(log.targets, weight.sum(axis=0), strict=True) if total == 0]
    if empty:
        place = Location(file=log.origin, column=f"loss_{empty[0]}")
        raise DataError(f"no usable loss for {', '.join(map(repr, empty))}", location=place, hint=_NO_LOSS)


_NO_LOSS = "fill in the losses, drop the column, give rows a weight above 0, or loosen the filter on own tokens"


ONE_LAW = "one law is fitted to all; a filter on own tokens (min_own_tokens) leaves them out"


Logs = RunLog | Table | Sequence[RunLog | Table]


def one_log(logs: Logs) -> RunLog:
    """One log from one or several; rows in an order of their own, so that the file's order changes nothing."""
    read = [log if isinstance(log, RunLog) else read_runs(log) for log in listed(logs)]
    log = read[0] if len(read) == 1 else concat(read)
    order = sorted(range(len(log)), key=lambda row: (log.mixture_keys[row], log.N[row], log.D[row], log.runs[row]))
    return log.select(np.array(order, dtype=np.int64))


def inputs_of(
    log: RunLog, transfer: TransferMatrix | Table | None = None, languages: LanguagesSpec | None = None
) -> Inputs:
    """The labels, the transfer matrix and the languages table of a fit."""
    matrix = transfer if transfer is None or isinstance(transfer, TransferMatrix) else read_transfer(transfer)
    return Inputs(log.sources, log.targets, matrix, languages_of(languages))


def limits_of(log: RunLog, languages: Languages | None) -> FloatArray | None:
    """Unique tokens (R, M) of each run: of the log, else of the languages table for all; None if neither says."""
    if log.unique is not None:
        return log.unique
    available = column_of(languages, "available_tokens", log.sources)
    return None if np.isnan(available).all() else np.broadcast_to(available, log.p.shape)


def fold_masks(log: RunLog, folds: int) -> BoolArray:
    """Held-out rows of each fold, (V, R), by a hash of the mixture: the order of the rows changes nothing."""
    return log.folds(folds)[None, :] == np.arange(folds)[:, None]


def largest_mask(log: RunLog) -> BoolArray:
    """Held-out rows when the largest size is left out, (1, R)."""
    return (log.N.max() == log.N)[None, :]


def bootstrap_shares(log: RunLog, replicates: int, seed: int) -> FloatArray:
    """Weights (B, R) of a Bayesian bootstrap over mixtures (Rubin 1981): exponential draws, mean one.

    Unlike draws with replacement it never leaves a mixture out, so that laws with many symbols stay identified.
    """
    groups = log.groups
    draws = np.random.default_rng(seed).exponential(size=(replicates, int(groups.max()) + 1))
    draws /= draws.mean(axis=1, keepdims=True)
    return draws[:, groups]
