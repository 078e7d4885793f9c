"""The law on a page: its equation, its errors beside those of its rivals, what sources do, and its symbols.

Legend: M sources, K targets.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from itertools import groupby
from xml.etree.ElementTree import Element

import numpy as np

from shapleymix.fitting.comparisons import Comparison
from shapleymix.fitting.fits import Fit
from shapleymix.fitting.scores import Scores
from shapleymix.fitting.uncertainty import QUANTILES
from shapleymix.laws.terms import Terms
from shapleymix.records import FloatArray
from shapleymix.reports.budgets import matrix_of
from shapleymix.reports.charts import Span, bar, box, heat_map
from shapleymix.reports.markup import (
    MISSING,
    folded,
    listing,
    node,
    number,
    percent,
    scrolling,
    section,
    significant,
    table,
    tables,
)
from shapleymix.tables.transfer import TransferMatrix

SHOWN = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Quantiles of the held-out errors that are drawn."""
MOST = 400
"""So many coefficients are listed with their intervals; of more, the file of the fit is the place."""


def law_section(fit: Fit, comparison: Comparison | None) -> Element:
    """The law, what it errs by on runs that it has not seen, and what other laws do there."""
    law = type(fit.law)
    equation = " ".join(inspect.cleandoc(law.__doc__ or "").split("\n\n")[0].split()).replace("`", "")
    known = comparison if comparison is not None else fit.selection
    parts = [
        node("p", node("strong", law.name), f": {law.assumption}." if law.assumption else ""),
        node("p", equation, class_="equation"),
    ]
    if known is not None:
        parts.append(_compared(known, law.name))
    else:
        parts.append(node("p", "No other law was compared with it here (shapleymix compare LOG -o laws.json)."))
    if fit.held_out is None:
        parts.append(
            node(
                "p", "No runs were held out: the errors below are of the runs that it was fitted to.", class_="warnings"
            )
        )
    return section(
        "law",
        "The law, and what it errs by",
        parts,
        tables([_scores(fit.held_out or fit.fitted_scores), *_residuals(fit)]),
    )


def _compared(found: Comparison, chosen: str) -> Element:
    """Laws by their error, the best first; those that could not be fitted last, with the reason."""
    scored = sorted(
        (one for one in found.entries if one.scores), key=lambda one: one.scores.mean["PE"] if one.scores else 0
    )
    errors = [one.scores.mean["PE"] for one in scored if one.scores]
    span = Span(0.0, max([*errors, 1e-9]))
    rows = [
        [
            f"{one.law} (this report's)" if one.law == chosen else one.law,
            bar(span, error, error - one.standard_error, error + one.standard_error),
            percent(error),
            percent(one.standard_error),
            number(one.scores.mean["R2"]) if one.scores else MISSING,
            number(one.scores.mean["spearman"]) if one.scores else MISSING,
            str(one.parameters),
        ]
        for one, error in zip(scored, errors, strict=True)
    ]
    failed = [[one.law, "", one.error or MISSING, *[""] * 4] for one in found.entries if not one.scores]
    headers = ["law", "", "held-out PE", "SE", "R2", "Spearman", "numbers a target"]
    return table(headers, [*rows, *failed], caption=f"{found.design}, {found.rows} rows; bars with a standard error")


def _scores(scores: Scores) -> Element:
    rows = [
        [name, percent(scores.PE[j]), number(scores.R2[j]), number(scores.spearman[j]), str(scores.rows[j])]
        for j, name in enumerate(scores.targets)
    ]
    mean = scores.mean
    rows.append(["mean", percent(mean["PE"]), number(mean["R2"]), number(mean["spearman"]), ""])
    return table(["target", "PE", "R2", "Spearman", "losses"], rows, caption="This fit, by target")


def _residuals(fit: Fit) -> list[Element]:
    """How held-out losses scatter about the law."""
    if fit.residuals is None:
        return []
    places = [int(np.abs(QUANTILES - level).argmin()) for level in SHOWN]
    shown = 100 * np.expm1(fit.residuals[places])
    span = Span.of(shown)
    rows = [
        [name, box(span, shown[:, j].tolist()), *(f"{value:+.2f}%" for value in shown[[0, 2, 4], j].tolist())]
        for j, name in enumerate(fit.targets)
    ]
    text = "Held-out losses about the law: measured over predicted, less one; boxes hold half of them, whiskers 90%"
    return [table(["target", "", "5%", "median", "95%"], rows, caption=text)]


def transfer_section(fit: Fit, terms: Terms | None, matrix: TransferMatrix | None) -> list[Element]:
    """What each source does for each target: a given matrix, and the law's own coefficients, where there are any."""
    shown: list[tuple[str, FloatArray, Sequence[str], Sequence[str]]] = []
    if matrix is not None:
        values, unit = (
            (matrix.sv, "nats of loss drop") if matrix.sv is not None else (matrix.nsv, "normalised Shapley values")
        )
        shown.append((f"Transfer matrix, {unit}", values, matrix.sources, matrix.targets))
    if terms is not None:
        shown.append((f"Coefficients of law {fit.law.name}", matrix_of(terms), fit.sources, fit.targets))
    if not shown:
        return []
    parts = [part for one in shown for part in _matrix(*one)]
    return [
        section(
            "transfer",
            "What sources do for targets",
            node("p", "Row: source; column: target. Colours end at the largest number off the diagonal."),
            parts,
        )
    ]


def _matrix(title: str, values: FloatArray, sources: Sequence[str], targets: Sequence[str]) -> list[Element]:
    rows = [[name, *(number(value) for value in row)] for name, row in zip(sources, values.tolist(), strict=True)]
    return [
        node("h3", title),
        scrolling(
            heat_map(values, sources, targets, f"{title}, {len(sources)} sources by {len(targets)} targets"), title
        ),
        folded("The numbers", table(["source", *targets], rows, plain=True)),
    ]


def fit_section(fit: Fit) -> Element:
    """The symbols with their intervals, and how the fit of each target ended."""
    odd = [f"{one.target}: {one.state}; {one.advice}" for one in fit.status if one.advice]
    held = [f"{symbol}: {why}" for symbol, why in fit.held.items()]
    ended = [] if odd else [node("p", "Every target converged.")]
    alone = [row for row in fit.parameters() if row[1] is None]
    pairs = [row for row in fit.parameters() if row[1] is not None]
    parts: list[Element] = (
        [table(["symbol", "target", "value", "90% interval"], _symbols(alone), words=2)] if alone else []
    )
    if len(pairs) > MOST:
        parts.append(node("p", f"{len(pairs):,} coefficients of sources and targets: see the file of the fit."))
    elif pairs:
        cells = [[f"{symbol}: {source} to {target}", *_valued(rest)] for symbol, source, target, *rest in pairs]
        parts.append(folded(f"{len(pairs)} coefficients", table(["coefficient", "value", "90% interval"], cells)))
    return section(
        "fit", "Fitted symbols", ended, listing([*odd, *held]), folded("Symbols with intervals", parts) if parts else []
    )


def _symbols(rows: Sequence[tuple[str, str | None, str, float, float, float]]) -> list[list[str]]:
    """A row a symbol and target, each symbol's together."""
    ordered = [list(members) for _, members in groupby(rows, key=lambda row: row[0])]
    return [[symbol, target, *_valued(rest)] for members in ordered for symbol, _, target, *rest in members]


def _valued(cell: Sequence[float]) -> list[str]:
    value, low, high = cell
    spread = "" if np.isnan(low) or low == high else f"{significant(low)} .. {significant(high)}"
    return [significant(value, 4), spread]
