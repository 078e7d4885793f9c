"""JSON documents: one a call on standard output, with a schema version, exact numbers, and no NaN."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, cast, runtime_checkable

if TYPE_CHECKING:
    from shapleymix.files import Json
    from shapleymix.records import FloatArray

SCHEMA_VERSION = 1


@runtime_checkable
class Arraylike(Protocol):
    """An array, or a number of NumPy's, without importing NumPy."""

    def tolist(self) -> object: ...


def print_document(content: Mapping[str, object]) -> None:
    """Write one document to standard output."""
    document = plain({"schema_version": SCHEMA_VERSION, **content})
    unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    text = json.dumps(document, indent=2, ensure_ascii=not unicode, allow_nan=False)
    print("".join(sign if sign.isprintable() or sign == "\n" else _escaped(sign) for sign in text))


def _escaped(sign: str) -> str:
    """A sign that a terminal would obey, as JSON writes it; such signs stand in strings only."""
    return json.dumps(sign)[1:-1]


def plain(value: object) -> Json:
    """JSON values: arrays as lists, and a number that is not finite as null."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Arraylike):
        return plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return cast("Json", value)


def by_name(names: Sequence[str], values: Iterable[object]) -> dict[str, Json]:
    """A row of numbers as `{name: number}`."""
    return dict(zip(names, map(plain, values), strict=True))


def by_pair(sources: Sequence[str], targets: Sequence[str], matrix: FloatArray | None) -> dict[str, Json] | None:
    """A matrix nested by source, then target; None stays None."""
    if matrix is None:
        return None
    return {source: by_name(targets, row) for source, row in zip(sources, matrix, strict=True)}
