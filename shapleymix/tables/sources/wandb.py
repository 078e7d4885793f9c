"""Runs of Weights & Biases: `wandb:ENTITY/PROJECT` by its API, or a folder of runs that were kept offline."""

from __future__ import annotations

import json
import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from shapleymix.errors import DataError, Location, UsageError
from shapleymix.tables.addresses import WANDB
from shapleymix.tables.sheets import Sheet
from shapleymix.tables.sources.histories import History, flat, installed, sheet_of_histories

_KIND, _STEP = "wandb", "_step"


class _Run(Protocol):
    """What is asked of a run of the API."""

    id: str
    name: str
    state: str
    config: Mapping[str, object]

    def scan_history(self) -> Iterable[Mapping[str, object]]: ...


def read_wandb(address: str) -> Sheet:
    """Every number of every run of a project at every step, with the run's config.

    Raises
    ------
    DataError
        If the service does not hand them out.
    """
    path = address.removeprefix(WANDB).strip("/")
    if "/" not in path:
        raise UsageError(f"{address!r} names no project", hint="write it like wandb:ENTITY/PROJECT")
    api = installed("wandb", "wandb").Api()
    try:
        histories = [_history(run) for run in api.runs(path)]
    except Exception as error:  # the package raises what its service or the network raised
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"Weights & Biases does not hand it out: {text[:200]}", location=Location(address)) from error
    return sheet_of_histories(histories, address, _KIND, _STEP)


def _history(run: _Run) -> History:
    """What a run logged; `scan_history` leaves out no step, where `history` gives a sample."""
    steps: defaultdict[float, dict[str, object]] = defaultdict(dict)
    for place, row in enumerate(run.scan_history()):
        step = row.get(_STEP, place)
        steps[float(str(step))].update({name: value for name, value in flat(row).items() if _is_number(name, value)})
    given = flat({name: value for name, value in run.config.items() if not name.startswith("_")}, "config.")
    return History(run.name, run.id, given, dict(steps), "" if run.state == "finished" else run.state)


def _is_number(name: str, value: object) -> bool:
    return name != _STEP and isinstance(value, (int, float)) and not isinstance(value, bool)


def offline_files(folder: Path) -> list[Path]:
    """The files of runs that were kept offline; the link to the latest one is none of its own."""
    return sorted(path for path in folder.glob("**/run-*.wandb") if path.resolve().parent.name != "latest-run")


def read_offline(folder: Path) -> Sheet:
    """The runs below a folder that were kept offline, as the package wrote them."""
    files = list({path.resolve(): path for path in offline_files(folder)}.values())
    return sheet_of_histories([_offline(path) for path in files], str(folder), _KIND, _STEP)


def _offline(path: Path) -> History:
    """One run, record by record; a record's key is one name, or the names on the way to it."""
    record_of = installed("wandb.proto.wandb_internal_pb2", "wandb").Record
    name = run_id = path.stem.removeprefix("run-")
    given: dict[str, object] = {}
    steps: defaultdict[float, dict[str, object]] = defaultdict(dict)
    finished = False
    for data in _records(path.read_bytes(), str(path)):
        record = record_of.FromString(data)
        kind = record.WhichOneof("record_type")
        if kind == "run":
            name, run_id = record.run.display_name or name, record.run.run_id or run_id
        if kind in ("run", "config"):
            updates = record.run.config.update if kind == "run" else record.config.update
            config = {_key(one): json.loads(one.value_json) for one in updates}
            given |= flat({key: value for key, value in config.items() if not key.startswith("_")}, "config.")
        elif kind == "history":
            row = {_key(one): json.loads(one.value_json) for one in record.history.item}
            numbers = {key: value for key, value in flat(row).items() if _is_number(key, value)}
            steps[float(row.get(_STEP, record.history.step.num))].update(numbers)
        finished = finished or kind == "exit"
    return History(name, run_id, given, dict(steps), "" if finished else "without an end")


_MAGIC, _BLOCK, _HEADER = b":W&B", 2**15, 7
"""The records lie in blocks, as in the logs of LevelDB: 4 bytes of a checksum, 2 of the length, 1 of the kind."""
_WHOLE, _LAST = 1, 4


def _records(data: bytes, origin: str) -> Iterator[bytes]:
    """The records of a file; one that is being written ends with its last whole one."""
    if not data.startswith(_MAGIC):
        raise DataError("is no file of Weights & Biases", location=Location(origin))
    place, parts = _HEADER, list[bytes]()
    while place + _HEADER <= len(data):
        if _BLOCK - place % _BLOCK < _HEADER:
            place += _BLOCK - place % _BLOCK
            continue
        length, kind = struct.unpack_from("<HB", data, place + 4)
        parts.append(data[place + _HEADER : place + _HEADER + length])
        place += _HEADER + length
        if kind in (_WHOLE, _LAST) and place <= len(data):
            yield b"".join(parts)
            parts = []


class _Item(Protocol):
    key: str
    nested_key: list[str]


def _key(item: _Item) -> str:
    return item.key or ".".join(item.nested_key)
