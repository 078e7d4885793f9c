"""Ordered labels: align one table's labels to another's, or say what is missing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shapleymix.errors import DataError, Fault, Location, UsageError
from shapleymix.records import IntArray
from shapleymix.tables.spelling import composed, near


def align(
    names: Sequence[str],
    *,
    to: Sequence[str],
    what: str = "languages",
    exact: bool = False,
    origin: str | None = None,
) -> IntArray:
    """Where each label of `to` stands in `names`.

    Parameters
    ----------
    names : sequence of str
        Labels that there are.
    to : sequence of str
        Labels that are wanted, in their order.
    what : str
        What the labels are, in the plural, for the message ("sources", "targets", "languages").
    exact : bool
        Whether labels of `names` that are not in `to` are faults as well.
    origin : str, optional
        The file that holds `names`, for the message.

    Returns
    -------
    index : int array (len(to),)
        Places such that `names[index[k]] == to[k]`.

    Raises
    ------
    DataError
        If a label occurs twice, is missing, or (with `exact`) is unknown; all of them at once.
    """
    place = Location(file=origin)
    position = {name: index for index, name in enumerate(names)}
    faults = [
        *_repeated(names, what, place),
        *_missing(position, to, what, place),
        *(_unknown(position, to, what, place) if exact else ()),
    ]
    if faults:
        raise DataError.of(faults, origin or f"the set of {what}")
    return np.array([position[name] for name in to], dtype=np.int64)


def check_label(label: str) -> str | None:
    """What makes a label unusable, or None: labels are written in `en=0.5,de=0.5` and in column names."""
    if not label.strip():
        return "is empty"
    if label != label.strip():
        return "begins or ends with white space"
    if not label.isprintable():
        return "holds a character that cannot be printed"
    bad = sorted({mark for mark in label if mark in '=,"\n\r\t\0'})
    return f"contains {', '.join(map(repr, bad))}" if bad else None


def labels_of(text: str, what: str) -> tuple[str, ...]:
    """Labels with commas between them, each usable and there once; `what` names the option that gave them.

    Raises
    ------
    UsageError
        If a label is unusable, or comes twice.
    """
    names = tuple(composed(name.strip()) for name in text.split(","))
    require_labels(names, what)
    return names


def require_labels(names: Sequence[str], what: str) -> None:
    """Raise a UsageError unless every label is usable and there once."""
    for name in names:
        if fault := check_label(name):
            raise UsageError(f"{what}: {name!r} {fault}")
    if twice := repeated(names):
        raise UsageError(f"{what} names {twice[0]!r} twice")


def repeated(names: Sequence[str]) -> list[str]:
    """Labels that occur more than once, in the order in which they first repeat."""
    seen: set[str] = set()
    again: dict[str, None] = {}
    for name in names:
        if name in seen:
            again[name] = None
        seen.add(name)
    return list(again)


def _repeated(names: Sequence[str], what: str, place: Location) -> list[Fault]:
    return [Fault(f"{name!r} occurs more than once in the {what}", place, name) for name in repeated(names)]


def _missing(position: dict[str, int], to: Sequence[str], what: str, place: Location) -> list[Fault]:
    spare = [name for name in position if name not in set(to)] or list(position)
    return [
        Fault(f"{name!r} is missing from the {what}", place, name, near(name, spare))
        for name in to
        if name not in position
    ]


def _unknown(position: dict[str, int], to: Sequence[str], what: str, place: Location) -> list[Fault]:
    known = set(to)
    return [
        Fault(f"{name!r} is not one of the {what}", place, name, near(name, to))
        for name in position
        if name not in known
    ]
