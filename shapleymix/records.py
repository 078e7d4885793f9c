"""Versioned JSON of every result, read back bit for bit.

A result is a frozen dataclass that mixes in `Record`. Its document is plain JSON: arrays are nested lists, floats
are written in their shortest form that reads back exactly, and a missing number (NaN) is `null`.

Whatever a file holds, loading it either gives a record whose fields have their declared types and shapes, or raises
a `StoreError` that names the file and the field.
"""

from __future__ import annotations

import dataclasses
import json
import os
import types
import typing
from collections.abc import Mapping
from typing import ClassVar, NamedTuple, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from shapleymix.display import Shown
from shapleymix.errors import Location, StoreError, UsageError, described, did_you_mean
from shapleymix.fields import Range, odd_fields
from shapleymix.files import Json, Origin, atomic_write, is_table_name, parse_json, read_once

SCHEMA_VERSION = 1

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

Hint = object  # what an annotation says: a class, or a generic alias, for which there is no common type

T = typing.TypeVar("T")

_KINDS: dict[str, type[Record]] = {}
_DEEPEST = 32  # nested lists and objects in a field of free content
IMPORT_FIRST = "import the module that defines it first"
_REWRITE = "write it again with the command that made it"


class Record(Shown):
    """Mixin for frozen dataclasses that can be saved and loaded.

    A subclass sets `kind`, the name under which its documents are known, and may set `axes`: a letter for each axis for
    tuples and arrays, `{"sources": "M", "targets": "K", "losses": "K", "phi": "MK"}`. Loading holds fields of one
    letter to one length; a digit is that length itself. The first field with a letter says how long it is, so the
    labels come first. It may set `ranges`, the lowest and highest number of a field: `{"probability": SHARE}`.
    """

    kind: ClassVar[str]
    axes: ClassVar[Mapping[str, str]] = {}
    ranges: ClassVar[Mapping[str, Range]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "kind" in cls.__dict__:
            taken = _KINDS.setdefault(cls.kind, cls)
            if taken.__module__.startswith("shapleymix.") and taken.__module__ != cls.__module__:
                raise UsageError(
                    f"{cls.kind!r} is the kind of {taken.__name__}", hint="give the class a kind of its own"
                )
            _KINDS[cls.kind] = cls

    @property
    def read_from(self) -> Origin | None:
        """The file that `load` read this record from, with its hash; None for a record that was computed."""
        return self.__dict__.get("_read_from")

    def to_document(self) -> dict[str, Json]:
        """The result as JSON-ready values, with its schema version and kind."""
        fields = {name: _encode(getattr(self, name)) for name in _field_names(type(self))}
        return {"schema_version": SCHEMA_VERSION, "kind": self.kind, **fields}

    @classmethod
    def from_document(cls, document: object, origin: str = "<document>") -> Self:
        """Rebuild a result.

        Raises
        ------
        StoreError
            If the document is of another kind, of a newer schema, or a field is missing, unknown, of another type
            or shape, or holds values that the result cannot have.
        """
        place = _Place(origin)
        return typing.cast(Self, _decode_record(*_kind_of(document, cls, place), place))

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the document to `path`, atomically; an existing file is kept unless `force`."""
        text = json.dumps(self.to_document(), indent=1, ensure_ascii=False, allow_nan=False)
        atomic_write(path, text + "\n", force=force)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote, once: `read_from` has the hash of the very bytes that were parsed.

        Raises
        ------
        StoreError
            If the file is missing, broken, of another kind or of a newer schema.
        """
        try:
            return cls.from_bytes(*read_once(path))
        except OSError as error:
            place = Location(file=os.fspath(path))
            raise StoreError(f"cannot be read: {error.strerror or error}", location=place) from error

    @classmethod
    def taken(cls, given: Self | str | os.PathLike[str]) -> Self:
        """A record as it is, or the one that a file holds.

        Raises
        ------
        UsageError
            If it is neither. StoreError if the file cannot be read.
        """
        if isinstance(given, (str, os.PathLike)):
            return cls.load(given)
        if not isinstance(given, cls):
            raise UsageError(f"{described(given)} is no {cls.kind}", hint=f"give a {cls.__name__}, or its file")
        return given

    @classmethod
    def from_bytes(cls, data: bytes, origin: Origin) -> Self:
        """The record in the bytes of a file, which is kept as `read_from`."""
        record = cls.from_document(_parsed(cls, data, origin.file), origin.file)
        object.__setattr__(record, "_read_from", origin)
        return record


def _parsed(cls: type[Record], data: bytes, file: str) -> object:
    """The document in the bytes of a file; a table is told from a document that is damaged."""
    try:
        return parse_json(data, file)
    except StoreError as error:
        place = Location(file=file)
        if not is_table_name(file):
            raise
        hint = "give the document that its command writes, a .json file"
        raise StoreError(f"is a table, not a {cls.kind}", location=place, hint=hint) from error


class _Place(NamedTuple):
    """A field of a document: its file, and the names that lead to it."""

    file: str
    field: str = ""

    def at(self, name: str) -> _Place:
        return _Place(self.file, f"{self.field}.{name}" if self.field else name)

    def refuse(self, message: str, hint: str | None = _REWRITE, cause: Exception | None = None) -> NoReturn:
        raise StoreError(message, location=Location(file=self.file, column=self.field or None), hint=hint) from cause


def _field_names(cls: type[Record]) -> list[str]:
    return [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]


# Writing


def _encode(value: object) -> Json:
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


# Reading


def _kind_of(document: object, cls: type[Record], place: _Place) -> tuple[type[Record], dict[str, object]]:
    """The class that a document says it is of, if it may stand where a `cls` is expected, and the document."""
    if not isinstance(document, dict) or "kind" not in document or "schema_version" not in document:
        place.refuse("is not a shapleymix result (no kind or schema_version)")
    version = document["schema_version"]
    if type(version) is not int or not 1 <= version <= SCHEMA_VERSION:
        message = f"has schema version {version!r:.40}; this installation reads up to {SCHEMA_VERSION}"
        place.refuse(message, "upgrade shapleymix, or make the file again")
    kind = document["kind"]
    found = _KINDS.get(kind) if isinstance(kind, str) else None
    if found is None or not issubclass(found, cls):
        expected = getattr(cls, "kind", cls.__name__.lower())
        own = isinstance(kind, str) and kind.startswith(f"{expected}/")
        place.refuse(f"holds a {kind!s:.60}, expected a {expected}", IMPORT_FIRST if own else None)
    return found, document


def _decode_record(cls: type[Record], document: Mapping[str, object], place: _Place) -> Record:
    hints = typing.get_type_hints(cls)
    names = _field_names(cls)
    for name in names:
        if name not in document:
            place.at(name).refuse(f"lacks the field {name!r}")
    values = {name: _decode_field(hints[name], document[name], place.at(name)) for name in names}
    for name, odd in odd_fields(values, cls.axes, cls.ranges):
        place.at(name).refuse(f"the field {name!r} {odd}")
    try:
        record = cls(**values)
    except (TypeError, ValueError, ArithmeticError) as error:
        place.refuse(f"holds values that do not fit: {error}", None, error)
    _check_derived(record, document, {*names, "schema_version", "kind"}, place)
    return record


def _check_derived(record: Record, document: Mapping[str, object], known: set[str], place: _Place) -> None:
    """What a document says besides the fields must follow from them: nothing that was edited there is passed over."""
    extra = [name for name in document if name not in known]
    derived = record.to_document() if extra else {}
    for name in extra:
        if name not in derived:
            place.at(name).refuse(f"holds the unknown field {name!r}", did_you_mean(name, known))
        if derived[name] != document[name]:
            hint = "it is written for those who read the file: change the fields that it follows from"
            place.at(name).refuse(f"the field {name!r} does not follow from the others", hint)


def _decode_field(hint: Hint, value: object, place: _Place) -> object:
    try:
        return _decode(hint, value, place)
    except StoreError:
        raise
    except (TypeError, ValueError, ArithmeticError, RecursionError) as error:
        name = place.field.rpartition(".")[2]
        place.refuse(f"the field {name!r} cannot be read: {error}", cause=error)


def _decode(hint: Hint, value: object, place: _Place) -> object:
    hint = _unfolded(hint)
    origin = typing.get_origin(hint)
    if origin in (types.UnionType, typing.Union):
        return None if value is None else _decode(_only_member(hint), value, place)
    if hint is np.ndarray:  # as an author of a law may write it
        return _decode_array(np.float64, value)
    if origin is np.ndarray:
        return _decode_array(typing.get_args(typing.get_args(hint)[1])[0], value)
    if origin is tuple:
        listed = _expect(list, value)
        parts = enumerate(zip(_members(hint, len(listed)), listed, strict=True))
        return tuple(_decode(inner, part, place.at(str(index))) for index, (inner, part) in parts)
    if origin is dict:
        inner = typing.get_args(hint)[1]
        return {key: _decode(inner, item, place.at(key)) for key, item in _expect(dict, value).items()}
    if isinstance(hint, type) and issubclass(hint, Record):
        return _decode_record(*_kind_of(value, hint, place), place)
    return _decode_plain(hint, value)


def _unfolded(hint: Hint) -> Hint:
    """What a name of a type stands for: since NumPy 2.5, for Python 3.12 and newer, `NDArray` is such a name."""
    stands_for = getattr(typing.get_origin(hint) or hint, "__value__", None)
    if stands_for is None:
        return hint
    given = typing.get_args(hint)
    return _unfolded(stands_for[given] if given else stands_for)


def _decode_plain(hint: Hint, value: object) -> object:
    """A single value: a text, a number, a truth value, one of some words, or anything that JSON can hold."""
    if typing.get_origin(hint) is typing.Literal:
        if value not in typing.get_args(hint):
            raise TypeError(f"expected one of {', '.join(map(str, typing.get_args(hint)))}, found {_short(value)}")
        return value
    if hint is float:
        if isinstance(value, (list, tuple)):  # older NumPy takes a list of one number for the number
            raise TypeError(f"expected a number, found {_short(value)}")
        return float(_decode_array(np.float64, [value])[0])
    if isinstance(hint, type) and hint in (str, int, bool):
        _expect(hint, value)
        return value
    return _free(value)


def _free(value: object, depth: int = 0) -> object:
    """Content without a type, as it is, if it is no deeper than anything that is written here."""
    if depth > _DEEPEST:
        raise TypeError(f"nested more than {_DEEPEST} deep")
    if isinstance(value, dict):
        return {key: _free(item, depth + 1) for key, item in value.items()}
    return [_free(item, depth + 1) for item in value] if isinstance(value, list) else value


def _expect(wanted: type[T], value: object) -> T:
    """The value, or a TypeError unless JSON gave exactly this type: a truth value is no integer."""
    if type(value) is not wanted:
        raise TypeError(f"expected {_JSON_NAMES[wanted]}, found {_short(value)}")
    return typing.cast(T, value)


_JSON_NAMES: dict[type, str] = {str: "a text", int: "a whole number", bool: "true or false"}
_JSON_NAMES |= {list: "a list", dict: "an object"}


def _short(value: object) -> str:
    return f"{value!r:.40}" if isinstance(value, (str, int, float, bool)) or value is None else type(value).__name__


def _members(hint: Hint, count: int) -> list[Hint]:
    arguments = typing.get_args(hint)
    return [arguments[0]] * count if arguments[1:] == (Ellipsis,) else list(arguments)


def _only_member(hint: Hint) -> Hint:
    return next(member for member in typing.get_args(hint) if member is not type(None))


_SCALARS: dict[type[np.generic], tuple[set[type], str]] = {
    np.float64: ({float, int}, "numbers"),
    np.int64: ({int}, "whole numbers"),
    np.bool_: ({bool}, "true and false"),
}


def _decode_array(scalar: type[np.generic], value: object) -> NDArray[np.generic]:
    """Nested lists of one kind of value; nothing is rounded, taken for true, or read out of a text."""
    _expect(list, value)
    cells = np.array(value, dtype=object)
    allowed, what = _SCALARS[scalar]
    flat = cells.reshape(-1).tolist()
    odd = set(map(type, flat)) - allowed
    if odd and scalar is np.float64:
        specials = {None: np.nan, "inf": np.inf, "-inf": -np.inf}
        flat = [specials.get(cell, cell) if cell is None or isinstance(cell, str) else cell for cell in flat]
        cells = np.fromiter(flat, dtype=object, count=len(flat)).reshape(cells.shape)
        odd = set(map(type, flat)) - allowed
    if odd:
        found = next(cell for cell in flat if type(cell) in odd)
        raise TypeError(f"expected only {what} in rows of equal length, found {_short(found)}")
    return cells.astype(scalar)
