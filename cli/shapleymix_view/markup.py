"""Pieces of a page: every text is escaped, and every table of numbers is made by one function."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from shapleymix.files import Json
from shapleymix.tables.words import format_size

MOST_ROWS = 12
"""Rows of a table that are shown at once; the others are folded."""
VOID = frozenset({"meta", "circle", "line", "rect"})


class Markup(str):
    """Text that is markup already."""


Child = str | Iterable["Child"] | None


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


def table(
    columns: Mapping[str, Sequence[object]], caption: str = "", colours: Mapping[str, Sequence[str]] | None = None
) -> Markup:
    """A table with a header for each row and column; of many rows the first, and the others folded.

    Parameters
    ----------
    columns : mapping of str to sequence
        The cells by their column's name, the first column being the rows' names. A tuple of two is an interval, and a
        cell of markup, such as a bar, stands as it is.
    caption : str
        What the table shows.
    colours : mapping of str to sequence of str
        Classes of cells, by column.
    """
    rows = list(zip(*columns.values(), strict=True))
    places = range(len(rows))
    if len(rows) <= MOST_ROWS + 2:
        return _rows(columns, places, rows, caption, colours)
    rest = _rows(columns, places[MOST_ROWS:], rows, "", colours)
    top = _rows(columns, places[:MOST_ROWS], rows, caption, colours)
    return Markup(top + folded(f"{len(rows) - MOST_ROWS} more rows", rest))


def _rows(
    columns: Mapping[str, Sequence[object]],
    places: range,
    rows: Sequence[tuple[object, ...]],
    caption: str,
    colours: Mapping[str, Sequence[str]] | None,
) -> Markup:
    names = list(columns)
    numeric = [all(not isinstance(cell, str) for cell in columns[name]) for name in names]
    head = [
        node("th", name, scope="col", class_="number" if one else None)
        for name, one in zip(names, numeric, strict=True)
    ]
    body = []
    for place in places:
        cells = [node("th", written(rows[place][0], names[0]), scope="row")]
        for name, value, one in zip(names[1:], rows[place][1:], numeric[1:], strict=True):
            kind = colours[name][place] if colours and name in colours else ""
            text = value if isinstance(value, Markup) else written(value, name)
            cells.append(node("td", text, class_=" ".join(filter(None, ["number" if one else "", kind])) or None))
        body.append(node("tr", cells))
    parts = [node("caption", caption) if caption else None, node("thead", node("tr", head)), node("tbody", body)]
    return node(
        "div", node("table", parts), class_="scroll", tabindex="0", role="region", aria_label=caption or "More rows"
    )


def bar(value: float, interval: tuple[float, float], cap: float, top: float) -> Markup:
    """A ratio as a lying bar, with its interval and its cap."""
    (low, high), wide = interval, 100 / max(top, 1e-12)
    parts = [node("rect", width=f"{value * wide:.2f}", height="8", y="1", class_="bar")]
    if np.isfinite(low) and np.isfinite(high):
        parts.append(node("line", x1=f"{low * wide:.2f}", x2=f"{high * wide:.2f}", y1="5", y2="5", class_="whisker"))
    if cap < 1 and cap <= top:
        parts.append(node("line", x1=f"{cap * wide:.2f}", x2=f"{cap * wide:.2f}", y1="0", y2="10", class_="cap"))
    return node("svg", parts, viewBox="0 0 100 10", preserveAspectRatio="none", class_="strip", aria_hidden="true")


def scatter(title: str, x: np.ndarray, y: np.ndarray) -> Markup:
    """What was measured (y) against what is predicted (x), with the line on which they are equal."""
    low, high = float(min(x.min(), y.min())), float(max(x.max(), y.max()))
    span = (high - low) or 1.0
    dots = [
        node(
            "circle",
            cx=f"{4 + 92 * (a - low) / span:.1f}",
            cy=f"{96 - 92 * (b - low) / span:.1f}",
            r="1.6",
            class_="dot",
        )
        for a, b in zip(x.tolist(), y.tolist(), strict=True)
    ]
    line = node("line", x1="4", y1="96", x2="96", y2="4", class_="equal")
    label = f"{title}: {low:.2f} to {high:.2f} nats"
    image = node("svg", node("title", label), line, dots, viewBox="0 0 100 100", class_="scatter", role="img")
    return node("figure", image, node("figcaption", label))
