"""Tables in JSON: an object a line, an array of objects, or an object of columns."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from shapleymix.errors import DataError, Fault, Location
from shapleymix.tables.cells import Cells, plain, refusal
from shapleymix.tables.names import repeated
from shapleymix.tables.training_logs import is_trainer_state, read_trainer_state

_ONE_A_LINE = 'write one JSON object a line, such as {"run": "a", "N": 23712}'


def read_json(text: str, origin: str) -> Cells:
    """Cells of JSON text, whichever of the forms it has; an object within a row is columns such as `config.lr`.

    Raises
    ------
    DataError
        If it is not valid, or of another form; every broken line where there is an object a line.
    """
    start = text.lstrip()[:1]
    if start == "[":
        return _array(text, origin)
    whole = _whole(text) if start == "{" else None
    if whole is not None and is_trainer_state(whole):
        return read_trainer_state(whole, origin)
    if whole is not None and all(isinstance(value, (list, dict)) for value in whole.values()) and whole:
        return _columns(whole, origin)
    return _lines(text, origin) if whole is None else rows_of([whole], [1], origin)


def _whole(text: str) -> dict[str, object] | None:
    """The one object that the text is; None where it is something else, such as an object a line."""
    try:
        found = _DECODER.decode(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _lines(text: str, origin: str) -> Cells:
    """One JSON object a line; a key that a line lacks is an empty cell."""
    records: list[dict[str, object]] = []
    lines: list[int] = []
    faults: list[Fault] = []
    for line, content in enumerate(text.split("\n"), start=1):
        if not content.strip():
            continue
        found = _object(content)
        if isinstance(found, str):
            faults.append(Fault(found, Location(origin, line), None, _ONE_A_LINE))
        else:
            records.append(found)
            lines.append(line)
    if faults:
        raise DataError.of(faults, origin)
    return rows_of(records, lines, origin)


def _object(content: str) -> dict[str, object] | str:
    """The object in a line, or what is wrong with the line."""
    try:
        found = _DECODER.decode(content)
    except (ValueError, RecursionError) as error:
        return _wrong(error)
    return found if isinstance(found, dict) else "is not a JSON object"


def _array(text: str, origin: str) -> Cells:
    """An array of objects, each with the line on which it begins."""
    records: list[dict[str, object]] = []
    lines: list[int] = []
    counted, line = 0, 1
    place = _next(text, text.index("[") + 1)
    while text[place : place + 1] not in ("]", ""):
        line, counted = line + text.count("\n", counted, place), place
        try:
            found, end = _DECODER.raw_decode(text, place)
            place = _after(text, end)
        except (ValueError, RecursionError) as error:
            raise refusal(origin, _wrong(error), line=getattr(error, "lineno", line)) from error
        if not isinstance(found, dict):
            raise refusal(origin, "is an array that holds something else than JSON objects", _ONE_A_LINE, line)
        records.append(found)
        lines.append(line)
    if text[place + 1 :].strip() or not text[place:]:
        message = "goes on after its array" if text[place:] else "is an array without an end"
        raise refusal(origin, f"is not valid JSON: {message}", line=text.count("\n", 0, place) + 1)
    return rows_of(records, lines, origin)


def _next(text: str, place: int) -> int:
    """The next place without white space."""
    while text[place : place + 1].isspace():
        place += 1
    return place


def _after(text: str, end: int) -> int:
    """Where the next element begins, or the array ends."""
    place = _next(text, end)
    if text[place : place + 1] == ",":
        place = _next(text, place + 1)
        if text[place : place + 1] == "]":
            raise json.JSONDecodeError("a comma before the end of the array", text, place)
    elif text[place : place + 1] not in ("]", ""):
        raise json.JSONDecodeError("Expecting ',' delimiter", text, place)
    return place


def _columns(whole: Mapping[str, object], origin: str) -> Cells:
    """Columns as arrays, or as objects by the number of the row, as pandas writes them."""
    columns = {name: list(_values(column)) for name, column in whole.items()}
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise refusal(origin, f"holds columns that differ in length: {lengths}", _ONE_A_LINE)
    rows = next(iter(lengths.values()))
    return Cells({name: plain(column) for name, column in columns.items()}, list(range(1, rows + 1)))


def _values(column: object) -> Iterable[object]:
    return column.values() if isinstance(column, dict) else column if isinstance(column, list) else ()


def rows_of(records: list[dict[str, object]], lines: list[int], origin: str) -> Cells:
    """Records as cells; a mapping within one is columns, none of which may be there already."""
    flat = []
    for record, line in zip(records, lines, strict=True):
        try:
            flat.append(_flat(record))
        except ValueError as error:
            raise refusal(origin, str(error), "rename one of the two", line) from error
    names = dict.fromkeys(name for record in flat for name in record)
    return Cells({name.strip(): plain([record.get(name) for record in flat]) for name in names}, lines)


def _flat(record: Mapping[str, object]) -> dict[str, object]:
    """A row whose objects are columns of their own, with a point between the names."""
    if not any(isinstance(value, dict) for value in record.values()):
        return dict(record)
    found: dict[str, object] = {}
    for name, value in record.items():
        inner = (
            {f"{name}.{key}": one for key, one in _flat(value).items()} if isinstance(value, dict) else {name: value}
        )
        if twice := found.keys() & inner.keys():
            raise ValueError(f"{min(twice)!r} occurs twice, as a name and as a key within a mapping")
        found.update(inner)
    return found


def _wrong(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"is not valid JSON: {error.msg} at character {error.colno}"
    return f"is not valid JSON: {error.args[0]}"


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError(f"the key {repeated([name for name, _ in pairs])[0]!r} occurs twice")
    return found


_DECODER = json.JSONDecoder(object_pairs_hook=_without_repeats)
