"""Every law on the same held-out runs, and how sure it is that one beats another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Unpack

import numpy as np

from shapleymix.errors import FitError, ShapleyMixError, UsageError
from shapleymix.fitting.candidates import Candidate, Contender, candidate, contenders_of, predicted_in_parts
from shapleymix.fitting.comparisons import Comparison, Entry
from shapleymix.fitting.evidence import Logs, Table, bootstrap_shares
from shapleymix.fitting.parting import Parted, parted, parted_by
from shapleymix.fitting.rates import Part, for_comparison
from shapleymix.fitting.scores import score
from shapleymix.fitting.settings import BEYOND, SEED, CompareKeywords, Settings
from shapleymix.fitting.study import MIXTURES_NEEDED, Progress, Study, study_of
from shapleymix.keywords import checked, spelt_out
from shapleymix.records import BoolArray, FloatArray
from shapleymix.tables.languages import Languages
from shapleymix.tables.runs import RunLog
from shapleymix.tables.transfer import TransferMatrix

DRAWS = 2000


@spelt_out(Settings, CompareKeywords.__annotations__)
def compare(
    log: Logs,
    laws: Sequence[Contender] | Contender | None = None,
    transfer: TransferMatrix | Table | None = None,
    languages: Languages | Table | None = None,
    *,
    leave_largest_N: bool = False,
    split: bool = False,
    seed: int = SEED,
    progress: Progress | None = None,
    **keywords: Unpack[CompareKeywords],
) -> Comparison:
    """Compare laws on runs that they were not fitted to, and as `fit` fits them (see `min_own_tokens`).

    Parameters
    ----------
    log : RunLog, path, or a sequence of them
        Run logs; several are fitted together.
    laws : Contender or sequence of Contender, optional
        Names (also in one text, `"learned-base,chinchilla"`), Law subclasses, or objects with `predict(p, N, D)`;
        None stands for all laws that the inputs allow.
    transfer, languages : table or path, optional
        The transfer matrix and the languages table, for the laws that need them.
    leave_largest_N, split : bool
        Hold out the largest size, or the rows that the log's `split` column marks, instead of cross-validating.
        Whether runs without a target's own language are another regime is then told by the other rows alone.
    seed : int
        Seed of the paired bootstrap.
    progress : Progress, optional
        Is called with the law's name, its number and how many there are.
    folds : int
        Number of folds of the cross-validation; runs of one mixture stay in one fold.
    **keywords : Settings
        How to fit, and which rows to leave out.

    Raises
    ------
    UsageError, DataError
        If a name is unknown or the log does not allow the design.
    FitError
        If no law could be fitted.
    """
    checked("compare", keywords, CompareKeywords.__annotations__)
    whole = study_of(log, transfer, languages, Settings(bootstrap=0, **keywords), seed, with_held_out=split)
    masks, design = whole.hold_out(leave_largest_N=leave_largest_N, split=split)
    contenders = [candidate(law) for law in (whole.allowed() if laws is None else contenders_of(laws))]
    one_fit = len(masks) == 1  # its judges have no say in what it is fitted to; in folds every row judges and is fitted
    parts = parted_by(whole, ~masks[0], progress) if one_fit else parted(whole, progress=progress)
    notices = _unscored(parts, masks)
    found = contest(contenders, parts.study, masks, design, progress)
    return replace(found, notices=(*found.notices, *notices))


def _unscored(parts: Parted, masks: BoolArray) -> tuple[str, ...]:
    """How many losses that masks (V, R) hold out are of another regime than the laws are fitted to.

    Raises
    ------
    FitError
        If all are.
    """
    held = (parts.whole.evidence.weight > 0) & np.any(masks, axis=0)[:, None]
    apart = int((held & parts.lacking).sum())
    if not apart:
        return ()
    which = "held-out losses are of runs without the target's own language, another regime than the laws are fitted to"
    if apart == held.sum():
        hint = "hold out other runs, or fit one law to all (min_own_tokens=0)"
        raise FitError(f"all {apart} {which}: none is left to score", hint=hint)
    return (f"{apart} of {int(held.sum())} {which}: they are not scored",)


def contest(
    contenders: Sequence[Candidate], study: Study, masks: BoolArray, design: str, progress: Progress | None = None
) -> Comparison:
    """Put every contender to the same held-out rows.

    Raises
    ------
    FitError
        If no law could be fitted.
    """
    parts = for_comparison(study, masks)
    predictions: list[FloatArray | None] = []
    faults: list[ShapleyMixError | None] = []
    for index, contender in enumerate(contenders):
        if progress is not None:
            progress(contender.name, index, len(contenders))
        predicted, fault = _attempt(contender, parts, masks)
        predictions.append(predicted)
        faults.append(fault)
    if all(predicted is None for predicted in predictions):
        first = next(fault for fault in faults if fault is not None)
        hint = "give more runs, or name another law"
        raise FitError(f"no law could be fitted: {first.message}", hint=hint) from first
    reasons = [None if fault is None else fault.message for fault in faults]
    return _summary(contenders, predictions, reasons, study, masks, design)


def selected(study: Study, progress: Progress | None = None) -> Comparison:
    """The comparison from which `law="auto"` takes a law (see `Comparison.preferred`).

    For budgets beyond the fitted ones the laws are compared there: on the largest size, fitted to the others.

    Raises
    ------
    UsageError, FitError, DataError
        If cross-validation was not asked for, there are too few mixtures for it, or the transfer matrix has not all
        labels of the log.
    """
    if study.settings.folds < 2:
        raise UsageError("law auto needs cross-validation", hint="ask for 2 or more folds, or name a law")
    if study.mixtures < MIXTURES_NEEDED:
        message = f"law auto needs at least three different mixtures; the log has {study.mixtures}"
        raise FitError(message, hint="give more runs, or name a law")
    if study.inputs.transfer is not None:  # else every law that takes it drops out, and a lesser one wins
        study.inputs.transfer.aligned(study.inputs.sources, study.inputs.targets)
    contenders = [candidate(name) for name in study.allowed()]
    if study.settings.purpose == BEYOND:
        return contest(contenders, study, *study.beyond(), progress)
    return contest(contenders, study, *study.cross_validation(min(study.settings.folds, study.mixtures)), progress)


def _attempt(
    contender: Candidate, parts: Sequence[Part], masks: BoolArray
) -> tuple[FloatArray | None, ShapleyMixError | None]:
    """A law that these data cannot support drops out with its reason; the others go on."""
    try:
        return predicted_in_parts(contender, parts, masks), None
    except ShapleyMixError as error:
        if len(masks) and isinstance(error, UsageError):
            raise
        return None, error


def _summary(
    contenders: Sequence[Candidate],
    predictions: list[FloatArray | None],
    faults: list[str | None],
    study: Study,
    masks: BoolArray,
    design: str,
) -> Comparison:
    log, evidence = study.log, study.evidence
    wanted = (evidence.weight > 0) & np.any(masks, axis=0)[:, None]
    scored = [predicted for predicted in predictions if predicted is not None]
    common = wanted & np.all([~np.isnan(predicted) for predicted in scored], axis=0)
    by_name = {one.name: found for one, found in zip(contenders, predictions, strict=True) if found is not None}
    _require_common(common, wanted, by_name)
    draws = bootstrap_shares(log, DRAWS, study.seed)
    replicated = np.stack([_replicated_error(log.loss, predicted, common, draws) for predicted in scored])  # (L, B)
    error = replicated.std(axis=1)
    gap = replicated[:, None, :] - replicated[None, :, :]
    point = np.array([score(log.targets, log.loss, predicted, counted=common).mean["PE"] for predicted in scored])
    entries, place = [], iter(range(len(scored)))
    for contender, predicted, fault in zip(contenders, predictions, faults, strict=True):
        if predicted is None:
            entries.append(Entry(contender.name, contender.size(study), None, 0.0, float("nan"), fault))
            continue
        scores = score(log.targets, log.loss, predicted, counted=common)
        share = float((wanted & ~np.isnan(predicted)).sum() / wanted.sum())
        entries.append(Entry(contender.name, contender.size(study), scores, share, float(error[next(place)]), None))
    return Comparison(
        entries=tuple(entries),
        better=(gap < 0).mean(axis=2) + 0.5 * (gap == 0).mean(axis=2),
        design=design,
        rows=int(common.any(axis=1).sum()),
        mixtures=len(np.unique(log.groups[common.any(axis=1)])),
        gap=point[:, None] - point[None, :],
        gap_error=gap.std(axis=2),
        notices=evidence.notices + _partial(wanted, common, by_name, log),
    )


def _replicated_error(loss: FloatArray, predicted: FloatArray, common: BoolArray, draws: FloatArray) -> FloatArray:
    """Mean PE over targets under every weighting of the mixtures, (B,)."""
    error = draws @ np.where(common, np.abs(loss - predicted), 0.0)
    total = draws @ np.where(common, loss, 0.0)
    scored = common.any(axis=0)
    return (error[:, scored] / total[:, scored]).mean(axis=1)


def _require_common(common: BoolArray, wanted: BoolArray, scored: Mapping[str, FloatArray]) -> None:
    """Refuse a comparison of laws that share no held-out loss on which each of them is defined."""
    if common.any():
        return
    shares = ", ".join(f"{name} {(wanted & ~np.isnan(found)).sum()}" for name, found in scored.items())
    message = f"no held-out loss is one that every law predicts; of {int(wanted.sum())} they predict: {shares}"
    raise FitError(message, hint="compare fewer laws at once")


def _partial(wanted: BoolArray, common: BoolArray, scored: Mapping[str, FloatArray], log: RunLog) -> tuple[str, ...]:
    """Which law leaves out how many losses, for which no law is then scored."""
    lost = int((wanted & ~common).sum())
    if not lost:
        return ()
    told = []
    for name, predicted in scored.items():
        rows, targets = np.nonzero(wanted & np.isnan(predicted))
        if len(rows):
            first = f"such as {log.targets[targets[0]]} of run {log.runs[rows[0]]}"
            told.append(f"{name} at {len(rows)}, {first}")
    text = f"{lost} of {int(wanted.sum())} held-out losses lie where some law is undefined; scored on the others"
    return (f"{text} ({'; '.join(told)})",)
