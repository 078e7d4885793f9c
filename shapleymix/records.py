"""Versioned JSON of every result, written atomically and read back bit for bit.

A result is a frozen dataclass that mixes in `Record`. Its document is plain JSON: arrays are nested lists, floats
are written in their shortest form that reads back exactly, and a missing number (NaN) is `null`.
"""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
import types
import typing
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from shapleymix.errors import Location, StoreError, UsageError

SCHEMA_VERSION = 1

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

_DTYPES = {"FloatArray": np.float64, "IntArray": np.int64, "BoolArray": np.bool_}
_KINDS: dict[str, type[Record]] = {}


class Record:
    """Mixin for frozen dataclasses that can be saved and loaded.

    A subclass sets `kind`, the name under which its documents are known.
    """

    kind: ClassVar[str]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "kind" in cls.__dict__:
            _KINDS[cls.kind] = cls

    def to_document(self) -> dict[str, Any]:
        """The result as JSON-ready values, with its schema version and kind."""
        fields = {field.name: _encode(getattr(self, field.name)) for field in dataclasses.fields(self)}  # type: ignore[arg-type]
        return {"schema_version": SCHEMA_VERSION, "kind": self.kind, **fields}

    @classmethod
    def from_document(cls, document: Any, origin: str = "<document>") -> Self:
        """Rebuild a result.

        Raises
        ------
        StoreError
            If the document is of another kind, of a newer schema, or lacks a field.
        """
        _check_header(document, cls, origin)
        target = _KINDS[document["kind"]]
        return typing.cast(Self, _decode_record(target, document, origin))

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the document to `path`, atomically; an existing file is kept unless `force`."""
        text = json.dumps(self.to_document(), indent=1, ensure_ascii=False, allow_nan=False)
        atomic_write(path, text + "\n", force=force)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote.

        Raises
        ------
        StoreError
            If the file is missing, broken, of another kind or of a newer schema.
        """
        return cls.from_document(read_json(path), str(path))


def read_json(path: str | os.PathLike[str]) -> Any:
    """Parse a JSON file, or raise a StoreError that says what is wrong with it."""
    place = Location(file=str(path))
    try:
        return json.loads(Path(path).read_text(encoding="utf-8-sig"), parse_constant=_no_constant)
    except OSError as error:
        raise StoreError(f"cannot be read: {error.strerror or error}", location=place) from error
    except (UnicodeDecodeError, RecursionError) as error:
        raise StoreError("is not a JSON text file", location=place, hint=_REWRITE) from error
    except json.JSONDecodeError as error:
        where = Location(file=str(path), line=error.lineno)
        raise StoreError(f"is not valid JSON: {error.msg}", location=where, hint=_REWRITE) from error
    except ValueError as error:
        raise StoreError(f"is not valid JSON: {error}", location=place, hint=_REWRITE) from error


def atomic_write(path: str | os.PathLike[str], content: str | bytes, *, force: bool = False) -> None:
    """Write a file whole or not at all.

    Raises
    ------
    UsageError
        If the file exists and `force` is not set, or the folder cannot be written to.
    """
    goal = Path(path)
    if goal.exists() and not force:
        hint = "choose another name, or overwrite it with --force (force=True in Python)"
        raise UsageError("exists already", location=Location(file=str(goal)), hint=hint)
    # text is JSON, where a file name's byte that is no UTF-8 has its own escape, the one that this handler writes
    data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    try:
        handle, partial = tempfile.mkstemp(dir=goal.parent, prefix=f".{goal.name}.")
    except OSError as error:
        raise UsageError(f"cannot be written: {error.strerror}", location=Location(file=str(goal))) from error
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        os.chmod(partial, 0o666 & ~_umask())
        os.replace(partial, goal)
    except OSError as error:
        Path(partial).unlink(missing_ok=True)
        raise UsageError(f"cannot be written: {error.strerror}", location=Location(file=str(goal))) from error


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


_REWRITE = "write it again with the command that made it"


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


def _encode(value: Any) -> Any:
    if isinstance(value, Record):
        return value.to_document()
    if isinstance(value, np.ndarray):
        return _encode(value.tolist())
    if isinstance(value, np.generic):
        return _encode(value.item())
    if isinstance(value, dict):
        return {str(key): _encode(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_encode(item) for item in value]
    if isinstance(value, float):
        return value if np.isfinite(value) else _special(value)
    if value is None or isinstance(value, (str, bool, int)):
        return value
    raise TypeError(f"cannot store a {type(value).__name__}")


def _special(value: float) -> str | None:
    """NaN is a missing number; infinities keep their sign as text, since JSON has none."""
    return None if np.isnan(value) else ("inf" if value > 0 else "-inf")


def _check_header(document: Any, cls: type[Record], origin: str) -> None:
    place = Location(file=origin)
    if not isinstance(document, dict) or "kind" not in document or "schema_version" not in document:
        raise StoreError("is not a shapleymix result (no kind or schema_version)", location=place, hint=_REWRITE)
    version = document["schema_version"]
    if type(version) is not int or not 1 <= version <= SCHEMA_VERSION:
        message = f"has schema version {version!r}; this installation reads up to {SCHEMA_VERSION}"
        raise StoreError(message, location=place, hint="upgrade shapleymix, or make the file again")
    found = _KINDS.get(str(document["kind"]))
    if found is None or not issubclass(found, cls):
        expected = getattr(cls, "kind", cls.__name__.lower())
        raise StoreError(f"holds a {document['kind']}, expected a {expected}", location=place)


def _decode_record(cls: type[Record], document: dict[str, Any], origin: str) -> Record:
    hints = typing.get_type_hints(cls)
    values: dict[str, Any] = {}
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        if field.name not in document:
            message = f"lacks the field {field.name!r}"
            raise StoreError(message, location=Location(file=origin, column=field.name), hint=_REWRITE)
        values[field.name] = _decode_field(hints[field.name], document[field.name], field.name, origin)
    try:
        return cls(**values)
    except (TypeError, ValueError) as error:
        raise StoreError(f"holds values that do not fit: {error}", location=Location(file=origin)) from error


def _decode_field(hint: Any, value: Any, name: str, origin: str) -> Any:
    try:
        return _decode(hint, value, origin)
    except StoreError:
        raise
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        place = Location(file=origin, column=name)
        raise StoreError(f"the field {name!r} cannot be read: {error}", location=place, hint=_REWRITE) from error


def _decode(hint: Any, value: Any, origin: str) -> Any:
    origin_type = typing.get_origin(hint)
    if origin_type in (types.UnionType, typing.Union):
        return None if value is None else _decode(_only_member(hint), value, origin)
    if origin_type is np.ndarray:
        return _decode_array(hint, value)
    if origin_type is tuple:
        if not isinstance(value, list):
            raise TypeError(f"expected a list, found {value!r}")
        return tuple(_decode(item, part, origin) for item, part in zip(_members(hint, value), value, strict=True))
    if origin_type is dict:
        inner = typing.get_args(hint)[1]
        return {key: _decode(inner, item, origin) for key, item in value.items()}
    if isinstance(hint, type) and issubclass(hint, Record):
        _check_header(value, hint, origin)
        return _decode_record(_KINDS[value["kind"]], value, origin)
    if hint is float:
        return np.nan if value is None else float(value)
    if hint in (str, int, bool) and (not isinstance(value, hint) or (hint is int and isinstance(value, bool))):
        raise TypeError(f"expected {hint.__name__}, found {value!r}")
    return value


def _members(hint: Any, value: list[Any]) -> list[Any]:
    arguments = typing.get_args(hint)
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return [arguments[0]] * len(value)
    return list(arguments)


def _only_member(hint: Any) -> Any:
    members = [member for member in typing.get_args(hint) if member is not type(None)]
    return members[0]


def _decode_array(hint: Any, value: Any) -> NDArray[Any]:
    scalar = typing.get_args(typing.get_args(hint)[1])[0]
    if scalar is not np.float64:
        return _decode_exact(value, scalar)
    return np.asarray(value, dtype=object).astype(scalar) if _has_null(value) else np.asarray(value, dtype=scalar)


def _decode_exact(value: Any, scalar: type[np.generic]) -> NDArray[Any]:
    """Integers or truth values; nothing is rounded or taken for true."""
    found = np.asarray(value)
    if found.size and not np.can_cast(found.dtype, scalar, "safe"):
        raise TypeError(f"expected only {scalar.__name__} values")
    return found.astype(scalar)


def _has_null(value: Any) -> bool:
    if isinstance(value, list):
        return any(_has_null(item) for item in value)
    return value is None or isinstance(value, str)
