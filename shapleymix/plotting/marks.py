"""Colours and marks that stay apart for the colour-blind and in grey (Okabe and Ito 2008)."""

from __future__ import annotations

from typing import Literal

INK, FAINT = "#222222", "#9a9a9a"

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")

MARKS = ("o", "s", "^", "D", "v", "P", "X")

Dash = Literal["-", "--", "-.", ":"]

DASHES: tuple[Dash, ...] = ("-", "--", "-.", ":")

DIVERGING, SEQUENTIAL = "RdBu", "Blues"
"""Maps of colours for values about zero, harm red and help blue, and for shares of one."""


def colour(place: int) -> str:
    """The colour of the series at a place; they repeat after seven."""
    return COLOURS[place % len(COLOURS)]


def mark(place: int) -> str:
    """The mark of the series at a place."""
    return MARKS[place % len(MARKS)]


def dash(place: int) -> Dash:
    """The kind of line of the series at a place."""
    return DASHES[place % len(DASHES)]
