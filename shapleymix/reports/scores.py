"""The tasks on a page: the score that each is predicted to have, the line that says so, and what that errs by."""

from __future__ import annotations

import warnings
from typing import NamedTuple
from xml.etree.ElementTree import Element

import numpy as np

from shapleymix.downstream.calibrations import Downstream, formula
from shapleymix.downstream.scoring import ScoredFit, scored_fit
from shapleymix.errors import ShapleyMixWarning, UsageError
from shapleymix.fitting.fits import Fit
from shapleymix.fitting.measures import ERROR, SCORES
from shapleymix.mixing.mixtures import Mixture
from shapleymix.mixing.repeating import supply_of
from shapleymix.records import FloatArray
from shapleymix.reports.markup import interval, listing, node, number, percent, section, sentence, significant, table
from shapleymix.tables.sizes import format_size

SAME = 1e-6
"""By how much scores of a mixture may differ from what the calibration says of it."""


class Scores(NamedTuple):
    """Predicted scores of the tasks (T,), with their interval."""

    score: FloatArray
    low: FloatArray
    high: FloatArray
    level: float


def scores_section(fit: Fit, downstream: Downstream, mixture: Mixture | None) -> Element:
    """Every task with its line, and what the mixture is predicted to score.

    Raises
    ------
    UsageError
        If the mixture was chosen by the scores of other tasks, or by other lines.
    """
    known = None if mixture is None else _scores(scored_fit(fit, downstream), mixture)
    told = listing(map(sentence, downstream.warnings), "warnings")
    text = "A score s is a line in a transform of the language's loss l, or a sigmoid above chance, fitted to runs."
    if mixture is not None:
        text = f"At N = {format_size(mixture.N)}, D = {format_size(mixture.D)}, with the mixture above. {text}"
    return section("tasks", "What tasks score", node("p", text), *told, _lines(downstream, known))


def _scores(fit: ScoredFit, mixture: Mixture) -> Scores:
    """What the mixture says itself, or for one that was chosen by losses, what the lines say of them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShapleyMixWarning)  # the lines' own are listed, the law's stand above
        supply = supply_of(fit, fit.sources, mixture.available)
        found = fit.predict(mixture.p[None], mixture.N, mixture.D, mixture.level, available=supply or None)
    middle, low, high = found.losses[0], found.low[0], found.high[0]
    if mixture.measure == ERROR:
        _require_same(fit, mixture, middle)
        middle, low, high = mixture.losses, mixture.losses_low, mixture.losses_high
    return Scores(SCORES.shown(middle), *SCORES.ends(low, high), mixture.level)


def _require_same(fit: ScoredFit, mixture: Mixture, errors: FloatArray) -> None:
    hint = "report the mixture with the calibration that `optimize` was given"
    if fit.targets != mixture.targets:
        raise UsageError("the mixture was chosen by the scores of other tasks than those of downstream", hint=hint)
    there = np.isfinite(mixture.losses)
    if not np.allclose(mixture.losses[there], errors[there], rtol=0, atol=SAME):
        raise UsageError("the mixture has other scores than downstream and the fit predict of it", hint=hint)


def _lines(downstream: Downstream, known: Scores | None) -> Element:
    headers = ["task", "score s at loss l", "held-out error", "held-out R2", "p-value", "runs", "losses"]
    rows = [
        [
            one.label,
            formula(one),
            number(one.held_out, 4),
            number(one.held_out_R2),
            significant(one.p_value, 2),
            str(one.rows),
            interval(*one.losses.tolist()),
        ]
        for one in downstream.calibrations
    ]
    if known is not None:
        headers[1:1] = ["score", f"{percent(known.level, 0)} interval"]
        for row, score, low, high in zip(rows, known.score, known.low, known.high, strict=True):
            row[1:1] = [number(score), interval(low, high)]
    return table(headers, rows, caption="Tasks: what their scores are told by, held out one mixture at a time")
