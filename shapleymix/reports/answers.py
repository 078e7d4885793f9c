"""The optimum on a page: its ratios, proof, losses, prices, rivals, and what makes it doubtful.

Legend: M sources, K targets.
"""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree.ElementTree import Element

import numpy as np

from shapleymix.fitting.measures import measure_of
from shapleymix.mixing.mixtures import Mixture
from shapleymix.reports.charts import Span, bar
from shapleymix.reports.markup import (
    MISSING,
    interval,
    listing,
    node,
    number,
    percent,
    section,
    sentence,
    significant,
    table,
    tables,
)
from shapleymix.tables.sizes import format_size

PROVED = 1e-12
"""A gap below this share of the objective is called rounding."""


def optimum_section(mixture: Mixture) -> Element:
    """All that is known of a mixture."""
    title = f"The mixture for N = {format_size(mixture.N)}, D = {format_size(mixture.D)}"
    doubts = [sentence(one) for one in mixture.notices if one != mixture.verdict]  # that is at the top
    return section("optimum", title, _proof(mixture), listing(doubts, "warnings"), tables(_parts(mixture)))


def _parts(mixture: Mixture) -> Iterator[Element]:
    yield _ratios(mixture)
    yield _losses(mixture)
    if mixture.binding:
        yield _prices(mixture)
    if mixture.baselines:
        yield _rivals(mixture)
    if mixture.what_if:
        yield _what_ifs(mixture)


def _proof_in_words(mixture: Mixture) -> str:
    """What the certificate says."""
    if np.isnan(mixture.gap):
        return "No proof: the law is not convex in the mixture."
    if not np.isfinite(mixture.gap):
        return "No proof: the mixture breaks a bound."
    small = measure_of(mixture.measure).amount(f"{mixture.gap:.1e}")
    within = "rounding" if mixture.relative_gap < PROVED else small
    return f"No mixture within the bounds is better by more than {within}."


def _proof(mixture: Mixture) -> Element:
    measure = measure_of(mixture.measure)
    ends = measure.ends(mixture.objective_low, mixture.objective_high)
    spread = f", {percent(mixture.level, 0)} interval {interval(*ends)}" if np.isfinite(ends[0]) else ""
    kind = f"{measure.objective(mixture.objective_kind, mixture.weights)}, {mixture.weights_origin}"
    value = number(measure.shown(mixture.objective), 4)
    value = value if measure.flipped else measure.amount(value)
    return node("p", f"Objective ({kind}): {value}{spread}. {_proof_in_words(mixture)}")


def _ratios(mixture: Mixture) -> Element:
    span = Span(0.0, float(np.nanmax([*mixture.p, *np.nan_to_num(mixture.p_high), 1e-3])))
    limits = np.where((mixture.caps < 1) & (mixture.caps <= span.high), mixture.caps, np.nan)
    rows = [
        [
            name,
            bar(span, mixture.p[i], mixture.p_low[i], mixture.p_high[i], limits[i]),
            number(mixture.p[i], 4),
            interval(mixture.p_low[i], mixture.p_high[i]),
            format_size(float(mixture.p[i] * mixture.D)),
            number(mixture.floors[i], 4) if mixture.floors[i] > 0 else MISSING,
            number(mixture.caps[i], 4) if mixture.caps[i] < 1 else MISSING,
            number(mixture.epochs[i], 2),
        ]
        for i, name in enumerate(mixture.sources)
    ]
    headers = ["source", "", "ratio", f"{percent(mixture.level, 0)} interval", "tokens", "floor", "cap", "epochs"]
    return table(headers, rows, caption="Ratios: bars with intervals, and caps as ticks")


def _losses(mixture: Mixture) -> Element:
    measure = measure_of(mixture.measure)
    middle = measure.shown(mixture.losses)
    low, high = measure.ends(mixture.losses_low, mixture.losses_high)
    there = np.concatenate([middle, high])
    span = Span(0.0, float(np.nanmax(there)) if np.isfinite(there).any() else 1.0)
    columns = zip(mixture.targets, middle, low, high, mixture.weights, strict=True)
    rows = [
        [name, bar(span, value, *ends), number(value), interval(*ends), significant(weight)]
        for name, value, *ends, weight in columns
    ]
    headers = [measure.of, "", measure.noun, f"{percent(mixture.level, 0)} interval", "weight"]
    return table(headers, rows, caption=measure.heading)


def _prices(mixture: Mixture) -> Element:
    rows = [
        [
            price.source,
            f"{price.side} {number(price.bound, 4)}",
            significant(price.per_percent),
            f"{significant(price.per_unit)} per {format_size(price.unit)}",
            number(price.half_at, 4),
            number(price.free_at, 4),
        ]
        for price in mixture.binding
    ]
    headers = ["source", "bound", "per 1% of D", "per tokens", "half of it at", "nothing at"]
    return table(
        headers, rows, caption=f"Shadow prices: {measure_of(mixture.measure).gained} where a bound gives way", words=2
    )


def _rivals(mixture: Mixture) -> Element:
    rivals, measure = mixture.baselines, measure_of(mixture.measure)
    span = Span.of([one.gain for one in rivals], [one.gain_low for one in rivals], [one.gain_high for one in rivals])
    rows = [
        [
            one.name,
            bar(span, one.gain, one.gain_low, one.gain_high),
            one.reason or number(measure.shown(one.objective), 4),
            number(one.gain, 4),
            interval(one.gain_low, one.gain_high, 4),
            percent(one.probability, 0),
        ]
        for one in rivals
    ]
    headers = ["mixture", "", "objective", "gain", f"{percent(mixture.level, 0)} interval", "P(better)"]
    text = f"Against other mixtures (gain: {measure.brings}, less the luck of the choice in what is promised)"
    return table(headers, rows, caption=text)


def _what_ifs(mixture: Mixture) -> Element:
    measure = measure_of(mixture.measure)
    rows = [
        [
            one.name,
            one.reason or number(measure.shown(one.objective), 4),
            number(one.gain, 4),
            interval(one.gain_low, one.gain_high, 4),
        ]
        for one in mixture.what_if
    ]
    headers = ["data", "objective", "gain", f"{percent(mixture.level, 0)} interval"]
    return table(headers, rows, caption=f"With other data at hand: {measure.gained} by the optimum then")
