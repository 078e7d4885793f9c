"""Scores of laws on the screen."""

from __future__ import annotations

import math

import numpy as np

from shapleymix.fitting.comparisons import Comparison, Entry
from shapleymix.fitting.scores import Scores
from shapleymix_cli.documents.scores import error_of, numbers_of, ranked
from shapleymix_cli.views.numbers import MISSING, count, fixed, percent
from shapleymix_cli.views.tables import Part, heading, matrix, table

MOST_TARGETS = 30
"""Targets that are shown without `-v`: those of the highest error, in the order of the log."""


MOST_LAWS = 5
"""Laws of which every pair is compared without `-v`."""


def scores_table(scores: Scores, verbose: bool) -> list[Part]:
    """One row per target and the mean; coverage only where there are intervals."""
    covered = bool(np.isfinite(scores.coverage).any())
    headers = ["target", "PE", "R2", "Spearman", *(["coverage"] if covered else []), "losses"]
    worst = np.argsort(-np.nan_to_num(scores.PE, nan=-np.inf), kind="stable").tolist()
    shown = set(worst if verbose else worst[:MOST_TARGETS])
    hidden = len(worst) - len(shown)
    rows = [
        [name, *_cells(row, covered), str(int(scores.rows[place]))]
        for place, (name, row) in enumerate(zip(scores.targets, _rows(scores), strict=True))
        if place in shown
    ]
    mean = scores.mean
    last = ["mean", *_cells([mean[key] for key in ("PE", "R2", "spearman", "coverage")], covered), ""]
    more = [f"... and {count(hidden, 'more target')} with lower errors: -v and --json show all"] if hidden else []
    return [table(headers, [*rows, last]), *more]


def _rows(scores: Scores) -> list[list[float]]:
    columns = (scores.PE, scores.R2, scores.spearman, scores.coverage)
    return np.stack(columns, axis=1).tolist()


def _cells(row: list[float], covered: bool) -> list[str]:
    PE, R2, spearman, coverage = row
    return [percent(PE), fixed(R2), fixed(spearman), *([percent(coverage, 0)] if covered else [])]


def comparison_view(found: Comparison, chosen: str | None = None) -> list[Part]:
    """The laws, best first; the chosen one is marked, and without one each is compared with the first."""
    partial = any(entry.coverage < 1 and entry.scores is not None for entry in found.entries)
    chances = _chances(found) if chosen is None else {}
    headers = ["law", "numbers", "held-out PE", "SE", "R2", "Spearman"]
    headers += [*(["defined"] if partial else []), *(["P(better)"] if chances else [])]
    rows = [
        [
            f"{entry.law} (chosen)" if entry.law == chosen else entry.law,
            *_comparison_cells(entry, partial),
            *([chances.get(entry.law, MISSING)] if chances else []),
        ]
        for entry in ranked(found)
    ]
    failed = [f"{entry.law} could not be fitted: {entry.error}" for entry in found.entries if entry.error]
    title = f"{found.design[:1].upper()}{found.design[1:]}, {count(found.rows, 'row')}"
    return [heading(title), table(headers, rows), *failed, *_legend(found, chances)]


def _comparison_cells(entry: Entry, partial: bool) -> list[str]:
    mean = entry.scores.mean if entry.scores else dict.fromkeys(("PE", "R2", "spearman"), math.nan)
    size = numbers_of(entry)
    return [
        MISSING if size is None else str(size),
        percent(error_of(entry)),
        percent(entry.standard_error),
        fixed(mean["R2"]),
        fixed(mean["spearman"]),
        *([percent(entry.coverage, 0)] if partial else []),
    ]


def _chances(found: Comparison) -> dict[str, str]:
    """By law, the probability that it has a lower error than the best; nothing where there is only one."""
    scored = [entry.law for entry in found.entries if entry.scores is not None]
    best = scored.index(found.best()) if len(scored) > 1 else 0
    return {law: _chance(found, row, best) for row, law in enumerate(scored)} if len(scored) > 1 else {}


def _legend(found: Comparison, chances: dict[str, str]) -> list[Part]:
    """What the columns count, and the law that `--law auto` takes."""
    if not chances:
        return []
    return [
        "",
        "numbers: fitted per target; P(better): the law has a lower error than the first.",
        f"Law that `--law auto` takes: {found.preferred()}.",
    ]


def better_view(found: Comparison, verbose: bool) -> list[Part]:
    """Probabilities that the law of the row has the lower error than that of the column; of few laws, or with `-v`."""
    place = {entry.law: index for index, entry in enumerate(e for e in found.entries if e.scores is not None)}
    laws = [entry.law for entry in ranked(found) if entry.scores is not None]
    cells = [[_chance(found, place[row], place[column]) for column in laws] for row in laws]
    if len(laws) < 3 or (len(laws) > MOST_LAWS and not verbose):
        return []
    return ["", heading("Probability that the row's law has the lower error"), *matrix("law", laws, laws, cells)]


def _chance(found: Comparison, row: int, column: int) -> str:
    return MISSING if row == column else percent(float(found.better[row, column]), 0)
