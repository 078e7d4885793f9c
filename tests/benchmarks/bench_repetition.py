"""What the term for repeated tokens is worth on our own runs of 1 to 32 epochs.

Three ways to fit the same runs: every token taken for a fresh one, the published rate, and the rate that the runs tell.
"""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
from _data import FIXTURES
from _report import SMALL, finish, must, row, table

import shapleymix as sm
from shapleymix.errors import ShapleyMixWarning
from shapleymix.fitting.evidence import fold_masks
from shapleymix.fitting.held_out import LawCandidate
from shapleymix.fitting.repetition import Told, at_rate
from shapleymix.fitting.settings import Settings
from shapleymix.fitting.study import Study, study_of
from shapleymix.laws import LAWS
from shapleymix.laws.pieces import PUBLISHED

LAW = LAWS["learned-base"]
FOLDS = 2 if SMALL else 8
RARE, OFTEN = 1.5, 6.0
"""Epochs of a run's most repeated source, up to which it counts as fresh, and beyond which as often repeated."""
WAYS = ("all fresh", "worth the published rate", "worth what the runs tell")


def main() -> None:
    log = sm.read_runs(FIXTURES / "repetition_runs.csv")
    study = study_of(log, None, None, Settings(bootstrap=0, folds=0), 0)
    assert log.unique is not None
    most = (log.p * log.D[:, None] / log.unique).max(axis=1)
    some = (most > RARE) & (most <= OFTEN)
    kinds = {"all runs": most > 0, "fresh": most <= RARE, "2 to 4 epochs": some, "8 to 32 epochs": most > OFTEN}
    masks = fold_masks(log, FOLDS)
    table(f"{LAW.name}: held-out PE in %, {FOLDS} folds by mixture, {len(log)} runs", "tokens are", *kinds)
    error = {}
    for way in WAYS:
        found = errors(study, masks, way)
        row(way, *(f"{100 * relative(log, found, rows):.2f}" for rows in kinds.values()))
        error[way] = relative(log, found, kinds["all runs"])
    must("PE with the term as a share of that without", error[WAYS[2]] / error[WAYS[0]], 0.9)
    if not SMALL:
        beyond(study, most > OFTEN)
        known = sm.fit(log, LAW, folds=0).repetition
        assert known is not None
        star, low, high = known.stars()
        print(f"\n{LAW.name}: R* = {star:.1f} epochs, 90% interval {low:.1f} .. {high:.1f} (published: 15.4)")
    finish()


def beyond(study: Study, often: np.ndarray) -> None:
    """Fitted to runs of few epochs, asked for those of many."""
    table(f"fitted to runs of up to {OFTEN:g} epochs, the others predicted", "tokens are", "PE, %", "bias, %")
    for way in WAYS:
        found = errors(study, often[None], way)
        bias = np.nanmean(found[often] / study.log.loss[often])
        row(way, f"{100 * relative(study.log, found, often):.2f}", f"{100 * bias:+.2f}")


def errors(study: Study, masks: np.ndarray, way: str) -> np.ndarray:
    """Predicted less measured losses (R, K) of the rows of each mask, fitted without them; rates are told by these."""
    found = np.full(study.log.loss.shape, np.nan)
    for mask in masks:
        if way == WAYS[0]:
            there = replace(study, evidence=replace(study.evidence, unique=None))
        else:
            there = at_rate(study, PUBLISHED) if way == WAYS[1] else Told.of(study, LAW, ~mask).study
        found[mask] = (LawCandidate(LAW).predict_held_out(there, mask[None]) - study.log.loss)[mask]
    return found


def relative(log: sm.RunLog, errors: np.ndarray, rows: np.ndarray) -> float:
    """Mean over targets of the mean absolute error over the mean loss."""
    return float((np.abs(errors[rows]).mean(axis=0) / log.loss[rows].mean(axis=0)).mean())


if __name__ == "__main__":
    warnings.simplefilter("ignore", ShapleyMixWarning)
    main()
