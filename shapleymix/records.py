"""Versioned JSON of every result, read back bit for bit.

A result is a frozen dataclass that mixes in `Record`. Its document is plain JSON: arrays are nested lists, floats
are written in their shortest form that reads back exactly, and a missing number (NaN) is `null`.

Loading a file either gives a record whose fields have their declared types and shapes, or raises a `StoreError` that
names the file and the field.
"""

from __future__ import annotations

import os
import types
import typing
from collections.abc import Mapping
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from shapleymix.display import Shown, field_names
from shapleymix.errors import Location, StoreError, UsageError, described
from shapleymix.files import WRITE_AGAIN, Json, Origin, is_table_name, plain, read_json, write_json

SCHEMA_VERSION = 2

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

T = typing.TypeVar("T")
Hint = object  # what an annotation says: a class, or a generic alias, for which there is no common type

_KINDS: dict[str, type[Record]] = {}
IMPORT_FIRST = "name its file with --law-file, or import the module that defines it first"
_PLAIN = (str, int, bool, list, dict)
_SPECIAL = {None: np.nan, "inf": np.inf, "-inf": -np.inf}
"""What JSON has no number for."""


class Record(Shown):
    """Mixin for frozen dataclasses that can be saved and loaded.

    A subclass sets `kind`, the name under which its documents are known, and may set `axes`: a letter for each axis of
    tuples and arrays, `{"sources": "M", "targets": "K", "losses": "K", "phi": "MK"}`. Loading holds fields of one
    letter to one length; a digit is that length itself. The first field with a letter says how long it is, so the
    labels come first.
    """

    kind: ClassVar[str]
    axes: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "kind" in cls.__dict__:
            _KINDS[cls.kind] = cls

    @classmethod
    def shapes(cls) -> Mapping[str, str]:
        """The axes of every field that has some; after a `*`, the last ones of any number."""
        return cls.axes

    @property
    def read_from(self) -> Origin | None:
        """The file that `load` read this record from, with its hash; None for a record that was computed."""
        return self.__dict__.get("_read_from")

    def to_document(self) -> dict[str, Json]:
        """The result as JSON-ready values, with its schema version and kind."""
        fields = {name: plain(getattr(self, name), endless=str) for name in field_names(self)}
        return {"schema_version": SCHEMA_VERSION, "kind": self.kind, **fields}

    @classmethod
    def from_document(cls, document: object, origin: str = "<document>") -> Self:
        """Rebuild a result; what a document holds besides the fields is passed over.

        Raises
        ------
        StoreError
            If the document is of another kind, of a newer schema, or a field is missing, of another type or shape.
        """
        return typing.cast(Self, _decode_record(cls, document, Location(origin)))

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the document to `path`, atomically; an existing file is kept unless `force`."""
        write_json(self.to_document(), path, force=force)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote, once: `read_from` has the hash of the very bytes that were parsed.

        Raises
        ------
        StoreError
            If the file is missing, broken, of another kind or of a newer schema.
        """
        if is_table_name(path):
            raise StoreError("is a table: give the .json that its command writes", location=Location(os.fspath(path)))
        document, origin = read_json(path)
        record = cls.from_document(document, origin.file)
        object.__setattr__(record, "_read_from", origin)
        return record

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


def _decode_record(cls: type[Record], document: object, place: Location) -> Record:
    """The record of a document that may stand where a `cls` is expected."""
    if not isinstance(document, dict) or "kind" not in document or "schema_version" not in document:
        raise StoreError("is not a shapleymix result (no kind or schema_version)", location=place, hint=WRITE_AGAIN)
    version, kind = document["schema_version"], document["kind"]
    if type(version) is not int or version != SCHEMA_VERSION:
        message = f"has schema version {version!r:.40}; this installation reads {SCHEMA_VERSION}"
        raise StoreError(message, location=place, hint="upgrade shapleymix, or make the file again")
    found = _KINDS.get(kind) if isinstance(kind, str) else None
    if found is None or not issubclass(found, cls):
        expected = getattr(cls, "kind", cls.__name__.lower())
        own = isinstance(kind, str) and kind.startswith(f"{expected}/")
        message = f"holds a {kind!s:.60}, expected a {expected}"
        raise StoreError(message, location=place, hint=IMPORT_FIRST if own else None)
    values = decode_fields(found, document, place)
    _check_shapes(values, found.shapes(), place)
    try:
        return found(**values)
    except (TypeError, ValueError, ArithmeticError) as error:
        raise StoreError(f"holds values that do not fit: {error}", location=place) from error


def decode_fields(cls: type, document: Mapping[str, object], place: Location) -> dict[str, object]:
    """The fields of a dataclass in a document, each of the type that its annotation says."""
    hints = typing.get_type_hints(cls)
    return {name: _decode_field(hints[name], document, name, place) for name in field_names(cls)}


def _decode_field(hint: Hint, document: Mapping[str, object], name: str, place: Location) -> object:
    within = Location(place.file, column=f"{place.column}.{name}" if place.column else name)
    if name not in document:
        raise StoreError(f"lacks the field {name!r}", location=within, hint=WRITE_AGAIN)
    try:
        return _decode(hint, document[name], within)
    except StoreError:
        raise
    except (TypeError, ValueError, ArithmeticError, RecursionError) as error:
        raise StoreError(f"the field {name!r} cannot be read: {error}", location=within, hint=WRITE_AGAIN) from error


def _decode(hint: Hint, value: object, place: Location) -> object:
    """A value of the type that an annotation says."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if (alias := getattr(origin or hint, "__value__", None)) is not None:  # since NumPy 2.5 `NDArray` is a name
        return _decode(alias[arguments] if arguments else alias, value, place)
    if origin in (types.UnionType, typing.Union):
        member = next(member for member in arguments if member is not type(None))
        return None if value is None else _decode(member, value, place)
    if hint is np.ndarray or origin is np.ndarray:  # bare, as an author of a law may write it
        return _decode_array(typing.get_args(arguments[1])[0] if arguments else np.float64, value)
    if origin is tuple:
        parts = _expect(list, value)
        members = [arguments[0]] * len(parts) if arguments[1:] == (Ellipsis,) else arguments
        return tuple(_decode(inner, part, place) for inner, part in zip(members, parts, strict=True))
    if origin is dict:
        return {key: _decode(arguments[1], item, place) for key, item in _expect(dict, value).items()}
    if origin is typing.Literal and value not in arguments:
        raise TypeError(f"expected one of {', '.join(map(str, arguments))}, found {value!r:.40}")
    if isinstance(hint, type) and issubclass(hint, Record):
        return _decode_record(hint, value, place)
    if hint is float:
        return float(_decode_array(np.float64, [value]).item())
    return _expect(hint, value) if isinstance(hint, type) and hint in _PLAIN else value


def _expect(wanted: type[T], value: object) -> T:
    """The value, or a TypeError unless JSON gave exactly this type: a truth value is no integer."""
    if type(value) is not wanted:
        raise TypeError(f"expected {wanted.__name__}, found {value!r:.40}")
    return typing.cast(T, value)


_CELLS: dict[type[np.generic], set[type]] = {np.float64: {float, int}, np.int64: {int}, np.bool_: {bool}}


def _decode_array(scalar: type[np.generic], value: object) -> NDArray[np.generic]:
    """Nested lists of one kind of value; nothing is rounded, taken for true, or read out of a text."""
    cells = np.array(_expect(list, value), dtype=object)
    flat = cells.ravel().tolist()
    if scalar is np.float64 and not set(map(type, flat)) <= _CELLS[scalar]:
        flat = [_SPECIAL.get(cell, cell) if cell is None or isinstance(cell, str) else cell for cell in flat]
    odd = [cell for cell in flat if type(cell) not in _CELLS[scalar]]
    if odd:
        raise TypeError(f"expected rows of equal length of {scalar.__name__}, found {odd[0]!r:.40}")
    return np.array(flat, dtype=scalar).reshape(cells.shape)


def _check_shapes(values: dict[str, object], axes: Mapping[str, str], place: Location) -> None:
    """Lengths that agree; an empty array, of which JSON forgets the other lengths, gets its shape back."""
    lengths: dict[str, int] = {}
    for name, letters in axes.items():
        if (value := values[name]) is None:
            continue
        found = value.shape if isinstance(value, np.ndarray) else (len(typing.cast(tuple, value)),)
        if letters[0] == "*":
            found, letters = found[1 - len(letters) :], letters[1:]
        for letter, length in zip(letters, found, strict=False):
            lengths.setdefault(letter, int(letter) if letter.isdigit() else length)
        shape = tuple(int(letter) if letter.isdigit() else lengths.get(letter, 0) for letter in letters)
        if isinstance(value, np.ndarray) and value.size == 0 and 0 in shape:
            values[name] = value.reshape(shape)
        elif found != shape:
            raise StoreError(f"has shape {found}, expected {shape}", location=Location(place.file, column=name))
