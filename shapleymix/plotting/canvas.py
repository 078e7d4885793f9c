"""A blank figure in the one style of all; fonts, and names that any of them can show.

Nothing here touches pyplot: a figure belongs to nobody but its picture, and the user's own settings of matplotlib
neither change a figure nor are changed by one.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING

from shapleymix.errors import UsageError, printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH = 6.3
"""Width of a page's text, inches: figures are made to be printed at their own size."""

SIZE, SMALL = 8.0, 7.0
"""Points of the letters, and of those in captions and ticks."""

SOLID = "DejaVu Sans"
"""The font that comes with matplotlib."""

OTHERS = (
    *("Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans CJK KR", "Noto Sans SC", "Noto Sans JP", "Noto Sans KR"),
    *("Source Han Sans SC", "WenQuanYi Zen Hei", "PingFang SC", "Hiragino Sans", "Microsoft YaHei", "Yu Gothic"),
    *("Malgun Gothic", "Noto Sans Devanagari", "Noto Sans Thai", "Noto Sans Bengali", "Noto Sans Tamil"),
    *("Arial Unicode MS", "Noto Sans"),
)
"""Fonts that have the letters which that one lacks; those that are installed are used."""

STYLE: Mapping[str, object] = {
    "font.size": SIZE,
    "axes.titlesize": SIZE,
    "axes.labelsize": SIZE,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "legend.fontsize": SMALL,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.linewidth": 1.2,
    "lines.markersize": 4.0,
    "text.parse_math": False,  # a dollar in a name is a dollar
    "axes.formatter.use_mathtext": False,
    "axes.unicode_minus": True,
    "savefig.dpi": 200.0,
    "svg.hashsalt": "shapleymix",  # else the ids within are random
    "pdf.fonttype": 42,
    "figure.facecolor": "white",
}


@contextmanager
def style() -> Iterator[None]:
    """Draw, and save, under the one style; matplotlib's settings are as before afterwards."""
    matplotlib = required()
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({**STYLE, "font.family": list(families())})
        yield


def required() -> ModuleType:
    """Matplotlib itself.

    Raises
    ------
    UsageError
        If it is not installed.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise UsageError("figures need matplotlib", hint="pip install 'matplotlib>=3.10.7'") from error
    return matplotlib


def blank(height: float, width: float = WIDTH) -> Figure:
    """An empty figure, whose parts make room for each other."""
    required()
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


@functools.cache
def families() -> tuple[str, ...]:
    """The fonts that letters are looked for in, in this order: all are installed."""
    from matplotlib.font_manager import fontManager

    known = set(fontManager.get_font_names())
    return (SOLID, *(name for name in OTHERS if name in known))


@functools.cache
def letters() -> frozenset[int]:
    """The characters that some of these fonts can show."""
    from matplotlib.font_manager import FontProperties, fontManager, get_font

    paths = [fontManager.findfont(FontProperties(family=name)) for name in families()]
    return frozenset(code for path in paths for code in get_font(path).get_charmap())


def in_letters(text: str) -> str:
    """Text in letters that can be drawn: what no font has is written as its number, `\\u4e2d`."""
    known = letters()
    return "".join(sign if ord(sign) in known else _numbered(sign) for sign in printable(text))


def _numbered(sign: str) -> str:
    return sign.encode("ascii", "backslashreplace").decode()


def unshown(labels: Iterable[str]) -> tuple[str, ...]:
    """What to say of names that are not drawn in their own letters; nothing where all are."""
    lacking = [name for name in dict.fromkeys(labels) if in_letters(name) != printable(name)]
    if not lacking:
        return ()
    listed = ", ".join(f"{name} is written {in_letters(name)}" for name in lacking[:6])
    more = f" and {len(lacking) - 6} more" if len(lacking) > 6 else ""
    names = "1 name" if len(lacking) == 1 else f"{len(lacking)} names"
    return (f"no installed font has the letters of {names}: {listed}{more}; install Noto Sans CJK",)


def caption(figure: Figure, text: str) -> None:
    """Write the caption under a figure, from edge to edge."""
    width = figure.get_figwidth()
    lines = wrapped(in_letters(text), int(width * 72 / (SMALL * 0.54)))
    figure.supxlabel("\n".join(lines), x=0.01, ha="left", fontsize=SMALL, linespacing=1.25)


def wrapped(text: str, width: int) -> list[str]:
    """A text as lines of at most `width` columns, broken between words."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".lstrip()
        if columns(longer) <= width or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def columns(text: str) -> int:
    """How wide a text is, in ordinary letters; those of Chinese, Japanese and Korean take two."""
    return sum(2 if unicodedata.east_asian_width(sign) in "WF" else 1 for sign in text)


def widest(names: Sequence[str]) -> int:
    """Columns of the longest name, as it is drawn."""
    return max((columns(in_letters(name)) for name in names), default=0)


def across(panels: int) -> int:
    """How many panels stand side by side."""
    return min(panels, 2 if panels in (2, 4) else 3)
