"""Ordered labels: align one table's labels to another's, or say what is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from shapleymix.errors import DataError, Fault, Location, did_you_mean
from shapleymix.records import IntArray


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
    spare = [name for name in position if name not in to] or list(position)
    faults = [Fault(f"{name!r} occurs more than once in the {what}", place, name) for name in repeated(names)]
    faults += [
        Fault(f"{name!r} is missing from the {what}", place, name, did_you_mean(name, spare))
        for name in to
        if name not in position
    ]
    if exact:
        faults += [
            Fault(f"{name!r} is not one of the {what}", place, name, did_you_mean(name, to))
            for name in position
            if name not in to
        ]
    if faults:
        raise DataError.of(faults, origin or f"the set of {what}")
    return np.array([position[name] for name in to], dtype=np.int64)


def check_label(label: str) -> str | None:
    """What makes a label unusable, or None: labels are written in `en=0.5,de=0.5` and in column names."""
    if not label.strip():
        return "is empty"
    if label != label.strip() or not label.isprintable():
        return "holds white space at an end, or a character that cannot be printed"
    bad = [mark for mark in '=,"' if mark in label]
    return f"contains {', '.join(map(repr, bad))}" if bad else None


def repeated(names: Sequence[str]) -> list[str]:
    """Labels that occur more than once, in the order in which they first occur."""
    return [name for name, count in Counter(names).items() if count > 1]
