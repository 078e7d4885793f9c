"""Ordered labels: align one table's labels to another's, or say what is missing; one spelling for one name.

Unicode writes `é` as one character or as two, and has others that look like `e`: labels are composed (NFC) where they
come in, and two that look alike and still differ are faults.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence

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
    faults = [
        *_repeated(names, what, place),
        *_missing(position, to, what, place),
        *(_unknown(position, to, what, place) if exact else ()),
    ]
    if faults:
        raise DataError.of(faults, what)
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


_TWINS = str.maketrans(
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u0501\u03bf\u03bd\u03b9"
    "\u0410\u0412\u0415\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0425\u0391\u0392\u0395\u0396\u0397\u0399"
    "\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7",
    "aeopcyxijsdoviABEKMHOPCTXABEZHIKMNOPTYX",
)
"""Cyrillic and Greek letters by the Latin ones of the same shape."""


def composed(name: str) -> str:
    """A name in Unicode's composed form (NFC), so that one name has one spelling."""
    return name if name.isascii() else unicodedata.normalize("NFC", name)


def appearance(name: str) -> str:
    """What a name looks like: equal for names that a reader cannot tell apart."""
    if name.isascii():
        return name.strip()
    plain = unicodedata.normalize("NFKC", name)
    shown = "".join(sign for sign in plain if unicodedata.category(sign) != "Cf" and not "\ufe00" <= sign <= "\ufe0f")
    return unicodedata.normalize("NFC", shown).translate(_TWINS).strip()


def lookalikes(names: Iterable[str]) -> dict[str, str]:
    """Names that look like an earlier one and are another, with that one."""
    first: dict[str, str] = {}
    return {name: earlier for name in names if (earlier := first.setdefault(appearance(name), name)) != name}


def twin_fault(name: str, twin: str) -> str:
    """What is wrong with a name that looks like another, with the characters that a reader does not see."""
    codes = " ".join(f"U+{ord(sign):04X}" for sign in name if sign not in twin)
    return f"{name!r} looks like {twin!r} and is written with other characters ({codes})"


SAME_NAME = "write the name in the same characters wherever it stands"


def near(name: str, known: Iterable[str]) -> str | None:
    """A hint that names a label which looks like an unknown one, or else the nearest."""
    listed = list(known)
    twin = next((other for other in listed if appearance(other) == appearance(name)), None)
    return did_you_mean(name, listed) if twin is None else f"{twin_fault(name, twin)}: {SAME_NAME}"


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
