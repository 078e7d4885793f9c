"""A fit on the screen."""

from __future__ import annotations

import math

from shapleymix.fitting.beliefs import knobs_told
from shapleymix.fitting.fits import Fit
from shapleymix.fitting.repetition import EVERY_TARGET
from shapleymix_cli.documents.laws import formula_of
from shapleymix_cli.views.numbers import count, interval, percent, significant, size
from shapleymix_cli.views.scores import comparison_view, scores_table
from shapleymix_cli.views.tables import Part, heading, matrix

BOUND = 0.01
"""An interval that reaches below this share of its upper end tells only that end."""

MOST_LABELS = 30
"""Targets, or sources, of which the parameters are shown without `-v`."""

MOST_ADVICE = 8
"""Different pieces of advice that are shown, those on most targets first."""

MOST_NAMES = 6
"""Targets that one piece of advice names."""

Cell = tuple[float, float, float]


def fit_view(found: Fit, verbose: bool) -> list[Part]:
    """The law, how it was chosen, how well it predicts, its parameters, and where it may be trusted."""
    law = type(found.law)
    parts: list[Part] = [heading(f"Law {law.name}: {law.assumption}"), f"  {formula_of(law)}", ""]
    if found.selection is not None:
        parts += [*comparison_view(found.selection, law.name), ""]
    parts += [*_scores(found, verbose), "", *_parameters(found, verbose), *_left_out(found)]
    parts += _told([*knobs_told(found.knobs, found.targets), *_repetition(found)])
    return [*parts, *_advice(found), _ranges(found)]


def _told(texts: list[str]) -> list[Part]:
    """Texts as sentences."""
    return [f"{text[:1].upper()}{text[1:]}." for text in map(str.strip, texts)]


def _repetition(found: Fit) -> list[str]:
    """What the log told of repeated tokens."""
    return [] if found.repetition is None else found.repetition.told_lines()


def _scores(found: Fit, verbose: bool) -> list[Part]:
    fitted = f"fitted PE {percent(found.fitted_scores.mean['PE'])}"
    if found.held_out is None:
        return [
            heading(f"On the runs it was fitted to ({count(found.rows, 'row')})"),
            *scores_table(found.fitted_scores, verbose),
        ]
    parts = [
        heading(f"On held-out mixtures ({count(found.rows, 'row')}; {fitted})"),
        *scores_table(found.held_out, verbose),
    ]
    if verbose:
        parts += ["", heading("On the runs it was fitted to"), *scores_table(found.fitted_scores, verbose)]
    return parts


def _parameters(found: Fit, verbose: bool) -> list[Part]:
    """Symbols a target with their intervals; then each matrix of coefficients."""
    labels = max(len(found.targets), len(found.sources))
    if labels > MOST_LABELS and not verbose:
        return [f"The parameters of {count(labels, 'language')}: see -v, --json or the file of -o.", ""]
    alone: dict[str, dict[str, Cell]] = {}
    paired: dict[str, dict[str, dict[str, Cell]]] = {}
    for symbol, source, target, *cell in found.parameters():
        value, low, high = cell
        if target == EVERY_TARGET:
            continue  # it is told in words
        if source is None:
            alone.setdefault(symbol, {})[target] = (value, low, high)
        else:
            paired.setdefault(symbol, {}).setdefault(source, {})[target] = (value, low, high)
    positive = {known.name for known in type(found.law).fitted() if known.positive}
    parts: list[Part] = []
    if alone:
        intervals = " with 90% intervals" if found.replicates is not None else ""
        parts += [heading(f"Parameters{intervals}"), *_rows(found, "symbol", alone, True), ""]
    for symbol, rows in paired.items():
        bounded = symbol in positive
        parts += [heading(f"{symbol} (row: source, column: target)")]
        parts += [*_rows(found, "source", rows, verbose, bounded), ""]
    return parts


def _rows(
    found: Fit, corner: str, rows: dict[str, dict[str, Cell]], intervals: bool, bounded: bool = False
) -> list[Part]:
    """A matrix of values (bounds, for `bounded` ones that are not told apart from 0); below each row its intervals."""
    names, cells = [], []
    for name, row in rows.items():
        ordered = [row.get(target) for target in found.targets]
        names.append(name)
        cells.append(["-" if cell is None else _value(cell, bounded) for cell in ordered])
        spread = ["" if cell is None else _spread(*cell[1:]) for cell in ordered]
        if intervals and any(spread):
            names.append("")
            cells.append(spread)
    return matrix(corner, names, found.targets, cells)


def _value(cell: Cell, bounded: bool) -> str:
    """The value; where the data tell an upper bound only, that bound."""
    value, low, high = cell
    if bounded and math.isfinite(high) and 0 <= low < BOUND * high:
        return f"< {significant(high, 2)}"
    return significant(value, 3 if bounded else 4)


def _spread(low: float, high: float) -> str:
    """An interval; only its upper end where it reaches down to nothing, and nothing for a symbol that was held."""
    if low == high:
        return ""
    return f"< {significant(high)}" if 0 <= low < BOUND * high else interval(low, high, significant)


def _left_out(found: Fit) -> list[Part]:
    return [f"{symbol}: {reason}" for symbol, reason in found.held.items()]


def _advice(found: Fit) -> list[Part]:
    """What ended otherwise than it should, each advice once with its targets."""
    targets: dict[tuple[str, str], list[str]] = {}
    for one in found.status:
        if one.advice:
            targets.setdefault((one.state, one.advice), []).append(one.target)
    if not targets:
        return ["Every target converged."]
    common = sorted(targets.items(), key=lambda item: -len(item[1]))
    shown = [f"{_named(names)}: {state}; {advice}" for (state, advice), names in common[:MOST_ADVICE]]
    hidden = sum(len(names) for _, names in common[MOST_ADVICE:])
    more = [f"... and advice on {count(hidden, 'more target')}: see --json"] if hidden else []
    return ["", heading("Status"), *shown, *more, ""]


def _named(targets: list[str]) -> str:
    """The first targets, and how many more."""
    hidden = len(targets) - MOST_NAMES
    return ", ".join(targets[:MOST_NAMES]) + (f" and {hidden} more" if hidden > 0 else "")


def _ranges(found: Fit) -> str:
    """Where predictions interpolate."""
    N, D = (_range(*bounds) for bounds in (found.N_range.tolist(), found.D_range.tolist()))
    return f"Fitted at N {N}, D {D}."


def _range(low: float, high: float) -> str:
    return size(low) if low == high else f"{size(low)} to {size(high)}"
