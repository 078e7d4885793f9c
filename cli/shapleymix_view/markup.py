"""Pieces of a page: every text is escaped, and every table of numbers is made by one function."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike

from shapleymix.files import Json
from shapleymix.tables.words import format_size

MOST_ROWS = 12
"""Rows of a table that are shown at once; the others are folded."""
VOID = frozenset({"meta", "circle", "line", "rect", "polygon", "polyline", "input"})


class Markup(str):
    """Text that is markup already."""


Child = str | Iterable["Child"] | None
Columns = Mapping[str, Sequence[object]]
Colours = Mapping[str, Sequence[str]]


def node(tag: str, *children: Child, **attributes: str | bool | None) -> Markup:
    """An element; a plain text within it is escaped, and an attribute's underscores are hyphens (`class_` is class)."""
    named = ((name.rstrip("_").replace("_", "-"), value) for name, value in attributes.items())
    shown = "".join(
        f" {name}" if value is True else f' {name}="{html.escape(value)}"'
        for name, value in named
        if value not in (None, False)
    )
    if tag in VOID:
        return Markup(f"<{tag}{shown}/>")
    return Markup(f"<{tag}{shown}>{''.join(_flat(children))}</{tag}>")


def _flat(children: Iterable[Child]) -> Iterable[str]:
    for child in children:
        if isinstance(child, Markup):
            yield child
        elif isinstance(child, str):
            yield html.escape(child, quote=False)
        elif child is not None:
            yield from _flat(child)


def section(name: str, title: str, *children: Child) -> Markup:
    """A part of the page."""
    return node("section", node("h2", title, id=f"{name}-title"), *children, id=name, aria_labelledby=f"{name}-title")


def folded(title: str, *children: Child) -> Markup:
    """What only some readers want to see; on paper it stands open."""
    return node("details", node("summary", title), *children)


def embedded(data: Json) -> Markup:
    """JSON within a script element, which nothing in it can end."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))


def percent(value: float) -> str:
    return f"{value:z.2%}"


FORMS: Mapping[str, Callable[[float], str]] = {
    **dict.fromkeys(("tokens", "available", "read"), format_size),
    **dict.fromkeys(("PE", "standard error"), percent),
    "P(better)": "{:.0%}".format,
    **dict.fromkeys(("weight", "epochs", "parameters", "value", "low", "high"), "{:.4g}".format),
}
"""How the numbers of a column are written, by its name; others have four decimals."""


def written(value: object, name: str = "") -> str:
    """A cell as text: a number as its column has it, `low .. high`, and a dash where there is nothing."""
    if isinstance(value, tuple):
        ends = [written(one, name) for one in value]
        return "–" if "–" in ends else " .. ".join(ends)
    if value is None or value != value:
        return "–"
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    if isinstance(value, (int, np.integer)) and name not in FORMS:
        return f"{value:,}"
    if isinstance(value, (int, float, np.number)):
        number = float(value)
        return "no limit" if np.isinf(number) else FORMS.get(name, "{:.4f}".format)(number)
    return str(value)


def table(columns: Columns, caption: str = "", colours: Colours = MappingProxyType({}), *, fold: bool = True) -> Markup:
    """A table with a header for each row and column; of many rows the first, and the others folded.

    Parameters
    ----------
    columns : mapping of str to sequence
        The cells by their column's name, the first column being the rows' names. A tuple of two is an interval.
    caption : str
        What the table shows.
    colours : mapping of str to sequence of str
        Classes of cells, by column.
    fold : bool
        Whether many rows are folded.
    """
    places = range(max(map(len, columns.values())))
    if len(places) <= MOST_ROWS + 2 or not fold:
        return _rows(columns, places, caption, colours)
    rest = _rows(columns, places[MOST_ROWS:], "", colours)
    top = _rows(columns, places[:MOST_ROWS], caption, colours)
    return Markup(top + folded(f"{len(places) - MOST_ROWS} more rows", rest))


def _rows(columns: Columns, places: range, caption: str, colours: Colours) -> Markup:
    first, *others = columns
    kinds = {name: "" if any(isinstance(cell, str) for cell in columns[name]) else "number" for name in columns}
    head = [node("th", name, scope="col", class_=kind or None) for name, kind in kinds.items()]
    body = []
    for place in places:
        cells = [node("th", written(columns[first][place], first), scope="row")]
        for name in others:
            kind = colours[name][place] if name in colours else kinds[name]
            cells.append(node("td", written(columns[name][place], name), class_=kind or None))
        body.append(node("tr", cells))
    parts = [node("caption", caption) if caption else None, node("thead", node("tr", head)), node("tbody", body)]
    label = caption or "More rows"
    return node("div", node("table", parts), class_="scroll", tabindex="0", role="region", aria_label=label)


def named(text: str) -> Markup:
    """A name, which may be cut where it has no room."""
    return node("span", text, class_="name", title=text)


def rows(items: Sequence[Markup], ends: tuple[float, float], **attributes: str) -> Markup:
    """Rows with bars on one scale."""
    return node("ol", items, class_="rows", data_ends=f"{ends[0]:.5f} {ends[1]:.5f}", **attributes)


def scale_of(values: ArrayLike) -> tuple[float, float]:
    """Ends of a scale that holds all values, and zero."""
    known = np.nan_to_num(np.append(np.ravel(values), 0.0), posinf=0.0, neginf=0.0)
    return (float(known.min()), float(known.max())) if np.ptp(known) > 0 else (0.0, 1.0)


def strip(value: float, low: float, high: float, ends: tuple[float, float], cap: float = np.nan) -> Markup:
    """A lying bar from zero to a value, in the value's own unit on a scale between ends, with its interval and cap."""
    (left, right), kind = ends, "bar down" if value < 0 else "bar"
    parts = [node("rect", x=f"{min(value, 0):.5f}", width=f"{abs(value):.5f}", height="8", y="1", class_=kind)]
    lines = [("whisker", low, high, 5, 5), ("zero", 0, 0 if left < 0 else np.nan, 0, 10), ("cap", cap, cap, 0, 10)]
    parts += [
        node("line", x1=f"{a:.5f}", x2=f"{b:.5f}", y1=str(top), y2=str(bottom), class_=name)
        for name, a, b, top, bottom in lines
        if np.isfinite([a, b]).all()
    ]
    box = f"{left:.5f} 0 {right - left:.5f} 10"
    return node("svg", parts, viewBox=box, preserveAspectRatio="none", class_="strip", aria_hidden="true")


def gain_row(name: Markup, gain: float, low: float, high: float, ends: tuple[float, float], *more: str) -> Markup:
    """A gain beside its name, as a bar and as numbers."""
    small = [node("small", one, class_="ends") for one in (gained(low, high), *more)]
    parts = name, strip(float(np.nan_to_num(gain)), low, high, ends), node("b", signed(gain)), small
    return node("div", parts, class_="row gains")


def signed(value: float) -> str:
    """A gain, which shows its sign."""
    return "–" if np.isnan(value) else f"{value:+.4f}".replace("-", "−")


def gained(low: float, high: float) -> str:
    """The interval of a gain."""
    return written((low, high)).replace("-", "−")


def control(label: str, key: str, at: int | None, value: float, top: float, step: str, name: str = "") -> Markup:
    """A slider of what is asked under a key, beside a number that may be typed, or of steps what it says."""
    place = None if at is None else str(at)
    known = {"min": "0", "step": step, "data_of": key, "data_at": place, "value": f"{value:g}"}
    slider = node("input", type="range", max=f"{top:g}", aria_label=label, **known)
    if at is None:
        return node("div", slider, node("output"), class_="control", hidden=True)
    highest, label = "1" if top == 1 else None, f"{label}, as a number"  # a weight may be typed that no slider reaches
    number = node("input", type="number", required=True, max=highest, aria_label=label, **known)
    return node("div", named(name), slider, number, class_="control")


def curve(points: np.ndarray, now: int, fitted: np.ndarray, title: str) -> Markup:
    """Losses above the steps of a slider: budgets and losses with their ends (4, steps), and the ends of the runs'."""
    (steps, losses, low, high), last = points, len(points[0]) - 1
    bottom, top = float(np.nanmin(points[1:])), float(np.nanmax(points[1:]))
    room, known = 0.06 * (top - bottom or 1.0), np.isfinite(losses)
    left, right = (8 + 384 * np.interp(np.log(fitted), np.log(steps), np.linspace(0, 1, last + 1))).tolist()

    def path(values: np.ndarray) -> list[str]:
        return [f"{place},{-values[place]:.6f}" for place in np.flatnonzero(known & np.isfinite(values)).tolist()]

    box = f"0 {-top - room:.6f} {last} {top - bottom + 2 * room:.6f}"
    band = node("rect", x=f"{left:.1f}", width=f"{max(right - left, 6):.1f}", y="4", height="130", class_="fitted")
    inside = [
        node("polygon", points=" ".join([*path(low), *path(high)[::-1]]), class_="spread"),
        node("polyline", points=" ".join(path(losses)), class_="loss"),
        node("line", x1=str(now), x2=str(now), y1="-999", y2="999", class_="now"),
    ]
    size = {"x": "8", "y": "4", "width": "384", "height": "112", "preserveAspectRatio": "none"}
    texts = [
        node("text", format_size(step, 3), x=f"{8 + 384 * place / last:.0f}", y="130", text_anchor=anchor)
        for place, step in enumerate(steps.tolist())
        for anchor in ["start" if place == 0 else "end" if place == last else "middle"]
    ]
    texts.append(node("text", f"{top + room:.3f}", x="388", y="16", text_anchor="end", class_="level"))
    texts.append(node("text", f"{bottom - room:.3f}", x="12", y="112", class_="level"))
    parts = node("title", title), band, node("svg", inside, viewBox=box, class_="plot", **size), texts
    image = node("svg", parts, viewBox="0 0 400 134", class_="curve", role="img")
    return node("figure", node("figcaption", title), image)


def scatter(title: str, x: np.ndarray, y: np.ndarray, unit: str) -> Markup:
    """What was measured (y) against what is predicted (x), with the line on which they are equal."""
    low, high = float(min(x.min(), y.min())), float(max(x.max(), y.max()))
    span = (high - low) or 1.0
    places = zip(4 + 92 * (x - low) / span, 96 - 92 * (y - low) / span, strict=True)
    dots = [node("circle", cx=f"{a:.1f}", cy=f"{b:.1f}", r="1.6", class_="dot") for a, b in places]
    line = node("line", x1="4", y1="96", x2="96", y2="4", class_="equal")
    label = f"{title}: {low:.2f} to {high:.2f} {unit}"
    image = node("svg", node("title", label), line, dots, viewBox="0 0 100 100", class_="scatter", role="img")
    return node("figure", image, node("figcaption", label))
