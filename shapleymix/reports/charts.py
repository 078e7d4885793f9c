"""Pictures of numbers as SVG: bars within the rows of a table, and a heat map. Colours are the style sheet's.

A bar has no letters of its own: the numbers stand beside it as text, which phones and screen readers can read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

import numpy as np

from shapleymix.records import FloatArray
from shapleymix.reports.markup import node, number

WIDE, HIGH = 200.0, 16.0
"""Units of a bar's picture; it is stretched to the cell that it stands in."""
CELL, LEGIBLE, LETTER, LEVELS = 46.0, 14, 7.5, 20
"""Pixels of a heat map's cell, the most cells in a row in which numbers are written, pixels of a letter, and how many
colours of a sign there are where they are not."""


@dataclass(frozen=True)
class Span:
    """What the ends of bars stand for."""

    low: float
    high: float

    @classmethod
    def of(cls, *values: FloatArray | Sequence[float]) -> Span:
        """The span of all finite numbers and 0."""
        flat = np.concatenate([np.ravel(np.asarray(one, dtype=float)) for one in values])
        there = flat[np.isfinite(flat)]
        low, high = float(there.min(initial=0.0)), float(there.max(initial=0.0))
        return cls(low, high if high > low else low + 1.0)

    def at(self, value: float) -> float:
        """Where a number lies, in units of the picture."""
        return WIDE * min(max((value - self.low) / (self.high - self.low), 0.0), 1.0)


def bar(span: Span, value: float, low: float = math.nan, high: float = math.nan, limit: float = math.nan) -> Element:
    """A bar from 0 to a value, with its interval as a whisker and a limit as a tick."""
    if not math.isfinite(value):
        return node("span")
    start, end = sorted((span.at(0.0), span.at(value)))
    parts = [node("rect", x=start, y=3, width=max(end - start, 0.5), height=HIGH - 6, class_="bar")]
    if math.isfinite(low) and math.isfinite(high):
        parts += _whisker(span.at(low), span.at(high))
    if math.isfinite(limit):
        parts.append(_line(span.at(limit), 0, HIGH, "limit"))
    return _strip(parts)


def box(span: Span, quantiles: Sequence[float]) -> Element:
    """Five quantiles: a whisker from end to end, a box between the inner ones, a tick at the middle; 0 as a line."""
    ends = [span.at(value) for value in quantiles]
    parts = [_line(span.at(0.0), 0, HIGH, "axis"), *_whisker(ends[0], ends[4])]
    parts.append(node("rect", x=ends[1], y=4, width=max(ends[3] - ends[1], 0.5), height=HIGH - 8, class_="bar"))
    return _strip([*parts, _line(ends[2], 2, HIGH - 2, "limit")])


def _whisker(low: float, high: float) -> list[Element]:
    across = node("line", x1=low, x2=high, y1=HIGH / 2, y2=HIGH / 2, class_="whisker")
    return [across, _line(low, 5, HIGH - 5, "whisker"), _line(high, 5, HIGH - 5, "whisker")]


def _line(x: float, top: float, bottom: float, kind: str) -> Element:
    return node("line", x1=x, x2=x, y1=top, y2=bottom, class_=kind)


def _strip(parts: list[Element]) -> Element:
    view = f"0 0 {WIDE:g} {HIGH:g}"
    return node("svg", parts, viewBox=view, preserveAspectRatio="none", class_="strip", aria_hidden="true")


def heat_map(values: FloatArray, sources: Sequence[str], targets: Sequence[str], label: str) -> Element:
    """A matrix (M, K) as coloured cells: how full a colour is tells the size, which colour the sign.

    Colours reach as far as the largest number off the diagonal, for what a language does for itself is larger by far.
    """
    own = np.array([[source == target for target in targets] for source in sources])
    known = np.nan_to_num(values)
    bound = float(np.abs(known[~own]).max(initial=0.0)) or float(np.abs(known).max(initial=0.0)) or 1.0
    full = np.sign(known) * np.minimum(np.abs(known) / bound, 1.0)
    many = max(len(sources), len(targets)) > LEGIBLE
    size = CELL / 3 if many else CELL
    left, top = _room(sources), _room(targets) if many else 22.0
    rows = [
        node("text", _cut(name), x=left - 6, y=top + (i + 0.5) * size, text_anchor="end", dominant_baseline="middle")
        for i, name in enumerate(sources)
    ]
    columns = [_column_name(name, left + (j + 0.5) * size, top - 6, turned=many) for j, name in enumerate(targets)]
    cells = _levels(full, size) if many else _squares(values, full, size)
    width, height = left + size * len(targets) + 2, top + size * len(sources) + 2
    return node(
        "svg", node("title", label), node("g", cells, transform=f"translate({left:g} {top:g})"), rows, columns,
        width=width, height=height, viewBox=f"0 0 {width:g} {height:g}", class_="heat", role="img", aria_label=label,
    )  # fmt: skip


def _squares(values: FloatArray, full: FloatArray, size: float) -> list[Element]:
    """A cell each, with its number."""
    found: list[Element] = []
    for (i, j), share in np.ndenumerate(full):
        x, y = j * size, i * size
        kind, ink = "less" if share < 0 else "more", "full" if abs(share) > 0.55 else None
        opacity = round(abs(float(share)), 3)
        found += [
            node("rect", x=x, y=y, width=size - 1, height=size - 1, fill_opacity=opacity, class_=kind),
            node("text", number(float(values[i, j]), 2), x=x + size / 2, y=y + size / 2, text_anchor="middle",
                 dominant_baseline="middle", class_=ink),
        ]  # fmt: skip
    return found


def _levels(full: FloatArray, size: float) -> list[Element]:
    """All cells of one colour as one path: ten thousand would else be megabytes."""
    levels = np.round(full * LEVELS).astype(int)
    found = []
    for level in np.unique(levels[levels != 0]).tolist():
        places = zip(*np.nonzero(levels == level), strict=True)
        path = "".join(f"M{j * size:.4g} {i * size:.4g}h{size:.3g}v{size:.3g}h-{size:.3g}" for i, j in places)
        opacity, kind = abs(level) / LEVELS, "less" if level < 0 else "more"
        found.append(node("path", d=path, fill_opacity=opacity, class_=f"{kind} many"))
    return found


def _column_name(name: str, x: float, y: float, *, turned: bool) -> Element:
    if not turned:
        return node("text", _cut(name, 6), x=x, y=y, text_anchor="middle")
    return node("text", _cut(name), x=x, y=y, transform=f"rotate(-90 {x:.6g} {y:.6g})", dominant_baseline="middle")


def _room(names: Sequence[str]) -> float:
    return LETTER * max((len(_cut(name)) for name in names), default=0) + 12


def _cut(name: str, most: int = 14) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"
