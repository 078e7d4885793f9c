"""One spelling for one name, and names that look alike.

Unicode writes `é` as one character or as two, and has others that look like `e`: labels are composed (NFC) where they
come in, and two that look alike and still differ are faults.
"""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterable, Sequence

from shapleymix.errors import did_you_mean

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


def mistyped(sources: Sequence[str], targets: Sequence[str]) -> list[str]:
    """What to say of a source and a target without counterpart that are spelt alike, where most names have theirs."""
    alone = [name for name in sources if name not in targets]
    if 2 * len(alone) > len(sources):
        return []
    lonely = [name for name in targets if name not in sources]
    pairs = ((name, difflib.get_close_matches(name, lonely, n=1, cutoff=0.5)) for name in alone)
    return [
        f"the source {name!r} is no target and the target {close[0]!r} no source: as two languages they are fitted; if "
        "they are one, give both columns one name"
        for name, close in pairs
        if close
    ]
