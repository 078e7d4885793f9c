"""HTML as a tree of elements: what is written is escaped where the tree becomes text, whatever a name holds."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from xml.etree.ElementTree import Element, tostring

from shapleymix.files import Json

Child = Element | str
MISSING = "–"


def node(tag: str, *children: Child | Iterable[Child], **attributes: str | float | None) -> Element:
    """An element with its children, texts or elements; an attribute `aria_label` is written aria-label, `class_` class.

    Attributes of None are left out.
    """
    known = {name.strip("_").replace("_", "-"): value for name, value in attributes.items() if value is not None}
    made = Element(tag, {name: value if isinstance(value, str) else f"{value:.6g}" for name, value in known.items()})
    for child in children:
        for one in [child] if isinstance(child, (Element, str)) else child:
            _append(made, one)
    return made


def _append(parent: Element, child: Child) -> None:
    """Texts belong to the element before them, where there is one."""
    if isinstance(child, Element):
        parent.append(child)
    elif len(parent):
        parent[-1].tail = (parent[-1].tail or "") + child
    else:
        parent.text = (parent.text or "") + child


def html(root: Element) -> str:
    """The tree as text, with its doctype."""
    return f"<!doctype html>\n{tostring(root, encoding='unicode', method='html')}\n"


def embedded(content: Json) -> str:
    """JSON that may stand within a script element: nothing in it ends that element, or begins a comment."""
    text = json.dumps(content, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def section(name: str, title: str, *children: Child | Iterable[Child]) -> Element:
    """A part of the page with its heading."""
    return node("section", node("h2", title, id=f"{name}-title"), *children, id=name, aria_labelledby=f"{name}-title")


def table(
    headers: Sequence[str],
    rows: Iterable[Sequence[Child]],
    *,
    caption: str = "",
    words: int = 1,
    plain: bool = False,
) -> Element:
    """A table that scrolls on its own where it is too wide; the first column names the rows.

    Parameters
    ----------
    headers : sequence of str
        What the columns are; an empty one is of pictures.
    rows : iterable of sequence of Child
        The cells.
    caption : str
        What the table shows.
    words : int
        So many columns from the left hold words, not numbers.
    plain : bool
        Whether all other cells are numbers, which is then said once and not of each.
    """
    kinds = [None if place < words or plain else "number" for place in range(len(headers))]
    head = [node("th", name, scope="col", class_=kind) for name, kind in zip(headers, kinds, strict=True)]
    body = [
        node("tr", node("th", cells[0], scope="row"), map(_cell, cells[1:], kinds[1:]))
        for cells in rows
    ]  # fmt: skip
    parts = [node("thead", node("tr", head)), node("tbody", body)]
    known = [node("caption", caption)] if caption else []
    return scrolling(node("table", known, parts, class_="plain" if plain else None), caption or headers[0])


def _cell(content: Child, kind: str | None) -> Element:
    return node("td", content, class_=kind if isinstance(content, str) else "picture")


def tables(those: Iterable[Element]) -> Element:
    """Tables beside one another as far as there is room."""
    return node("div", those, class_="tables")


def scrolling(content: Element, label: str) -> Element:
    """A frame that scrolls sideways, by keys as well."""
    return node("div", content, class_="scroll", tabindex="0", role="region", aria_label=label)


def listing(items: Iterable[Child], class_: str | None = None) -> list[Element]:
    """Points one below another; nothing where there are none."""
    points = [node("li", item) for item in items]
    return [node("ul", points, class_=class_)] if points else []


def folded(title: str, *children: Child | Iterable[Child]) -> Element:
    """What is shown when it is asked for."""
    return node("details", node("summary", title), *children)


def terms_of(pairs: Mapping[str, Child]) -> Element:
    """Words with what they stand for."""
    return node("dl", [part for name, value in pairs.items() for part in (node("dt", name), node("dd", value))])


def sentence(text: str) -> str:
    """A remark as a sentence of its own."""
    return f"{text[0].upper()}{text[1:]}."


def number(value: float | None, digits: int = 3) -> str:
    """A number with so many digits after its point."""
    return MISSING if value is None or math.isnan(value) else f"{value:z.{digits}f}"


def significant(value: float, digits: int = 3) -> str:
    """A number with so many digits that count."""
    return MISSING if math.isnan(value) else f"{value:z.{digits}g}"


def percent(value: float, digits: int = 2) -> str:
    """A share as percent."""
    return MISSING if math.isnan(value) else f"{value:z.{digits}%}"


def interval(low: float, high: float, digits: int = 3) -> str:
    """`low .. high`; nothing where there is none."""
    return "" if math.isnan(low) or math.isnan(high) else f"{number(low, digits)} .. {number(high, digits)}"
