"""What the term for repeated tokens is worth on our own runs of 1 to 32 epochs. Prints the results' table.

Three ways to fit the same runs: every token taken for a fresh one, the published rate, and the rate that the runs tell.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from _data import FIXTURES
from _report import finish, must, row, table

import shapleymix as sm
from shapleymix.fitting.candidates import LawCandidate
from shapleymix.fitting.evidence import one_log
from shapleymix.fitting.rates import Told, at_rate
from shapleymix.fitting.settings import Settings
from shapleymix.fitting.study import Study, study_of
from shapleymix.laws import LAWS, Law
from shapleymix.laws.repeated import PUBLISHED

LAW = "learned-base"
FOLDS = 8
RARE, OFTEN = 1.5, 6.0
"""Epochs of a run's most repeated source, up to which it counts as fresh, and beyond which as often repeated."""
SETTINGS = Settings(bootstrap=0, folds=0)


def main() -> None:
    log = one_log(FIXTURES / "repetition_runs.csv")
    grouped(log, LAW)
    beyond(log, LAW)
    rate(log, LAW)
    finish()


def grouped(log: sm.RunLog, law: str) -> None:
    """Held-out error by cross-validation grouped by mixture, by how often a run repeats."""
    folds = log.folds(FOLDS)
    masks = [folds == fold for fold in range(FOLDS)]
    found = {way: _errors(log, law, masks, way) for way in WAYS}
    most = epochs(log).max(axis=1)
    kinds = {
        "all runs": most > 0,
        "fresh": most <= RARE,
        "2 to 4 epochs": (most > RARE) & (most <= OFTEN),
        "8 to 32 epochs": most > OFTEN,
    }
    table(f"{law}: held-out PE in %, {FOLDS} folds grouped by mixture, {len(log)} runs", "tokens are", *kinds)
    for way, errors in found.items():
        row(way, *(f"{100 * _relative(log, errors, rows):.2f}" for rows in kinds.values()))
    told, blind = (_relative(log, found[way], kinds["all runs"]) for way in ("worth what the runs tell", "all fresh"))
    must(f"{law}: PE with the term as a share of that without", told / blind, 0.9)


def beyond(log: sm.RunLog, law: str) -> None:
    """Fitted to runs of few epochs, asked for those of many."""
    mask = epochs(log).max(axis=1) > OFTEN
    table(
        f"{law}: fitted to the {int((~mask).sum())} runs of up to {OFTEN:g} epochs, the others predicted",
        "tokens are",
        "PE, %",
        "bias, %",
    )
    for way in WAYS:
        errors = _errors(log, law, [mask], way)
        bias = np.nanmean(errors[mask] / log.loss[mask])
        row(way, f"{100 * _relative(log, errors, mask):.2f}", f"{100 * bias:+.2f}")


def rate(log: sm.RunLog, law: str) -> None:
    """The rate of all runs, with its interval."""
    known = sm.fit(log, law, folds=0).repetition
    assert known is not None
    low, high = 1 / known.interval(0.9)[::-1]
    print(f"\n{law}: R* = {1 / known.rate:.1f} epochs, 90% interval {low:.1f} .. {high:.1f} (published: 15.4)")


def epochs(log: sm.RunLog) -> np.ndarray:
    """How often each run sees the text of each source (R, M)."""
    assert log.unique is not None
    return log.p * log.D[:, None] / log.unique


def _fresh(study: Study, law: type[Law], seen: np.ndarray) -> Study:
    return replace(study, evidence=replace(study.evidence, unique=None))


def _published(study: Study, law: type[Law], seen: np.ndarray) -> Study:
    return at_rate(study, PUBLISHED)


def _told(study: Study, law: type[Law], seen: np.ndarray) -> Study:
    return Told.of(study, law, seen).study


WAYS = {"all fresh": _fresh, "worth the published rate": _published, "worth what the runs tell": _told}
"""What is made of a study before it is fitted to the rows that are seen; rates are told by these alone."""


def _errors(log: sm.RunLog, law: str, masks: list[np.ndarray], way: str) -> np.ndarray:
    """Predicted less measured losses (R, K) of the rows of each mask, fitted without them; NaN elsewhere."""
    study = study_of(log, None, None, SETTINGS, 0)
    found = np.full(log.loss.shape, np.nan)
    for mask in masks:
        there = WAYS[way](study, LAWS[law], ~mask)
        predicted = LawCandidate(LAWS[law]).predict_held_out(there, mask[None])
        found[mask] = predicted[mask] - log.loss[mask]
    return found


def _relative(log: sm.RunLog, errors: np.ndarray, rows: np.ndarray) -> float:
    """Mean over targets of the mean absolute error over the mean loss."""
    return float((np.abs(errors[rows]).mean(axis=0) / log.loss[rows].mean(axis=0)).mean())


if __name__ == "__main__":
    main()
