"""The logs of one call, each with how it is read: as the call says, or as a map file says that stands in its place."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from shapleymix.errors import DataError, Location, MixedError, UsageError
from shapleymix.tables.importing.arranging import arranged
from shapleymix.tables.importing.reading import LOG, Reading, ReadingOptions
from shapleymix.tables.importing.summaries import NoLanguageError
from shapleymix.tables.merging import merged
from shapleymix.tables.run_columns import header_faults, roles_of
from shapleymix.tables.run_ids import told_apart
from shapleymix.tables.sheets import Sheet, Table, read_sheet
from shapleymix.tables.sources.opening import read_source

MAP = ".toml"
_OWN_MAP = f'give in the place of each log that is written otherwise a map file that names it: {LOG} = "their.csv"'


@dataclass(frozen=True)
class Opened:
    """A table of a call.

    Attributes
    ----------
    sheet : Sheet
        The table as it stands.
    beside : tuple of Sheet
        The tables that are joined to it.
    how : Reading
        How it is read.
    parts : tuple of Sheet
        Other tables whose cells are in it.
    """

    sheet: Sheet
    beside: tuple[Sheet, ...]
    how: Reading
    parts: tuple[Sheet, ...] = ()

    @property
    def mapped(self) -> bool:
        """Whether a map file stands in its place."""
        return bool(self.how.logs)


def is_map(table: Table) -> bool:
    """Whether a map file is given in the place of the logs that it names."""
    return isinstance(table, (str, os.PathLike)) and os.fspath(table).lower().endswith(MAP)


def opened(tables: Sequence[Table], asked: ReadingOptions) -> list[Opened]:
    """Every table of a call, with how it is read: as is asked for, unless it is a map file.

    Raises
    ------
    UsageError
        If a map file names no log, or something is asked for and all logs are named by map files.
    """
    maps = [table for table in tables if is_map(table)]
    if maps and len(maps) == len(tables):
        _refuse_idle(asked, os.fspath(str(maps[0])))
    how = replace(Reading.of(asked), logs=())
    beside = tuple(read_sheet(one, how.layout) for one in how.join)
    plain = iter(_read([table for table in tables if not is_map(table)], beside, how))
    found: list[Opened] = []
    for table in tables:
        found += _of_map(os.fspath(str(table))) if is_map(table) else [one for one in [next(plain, None)] if one]
    sheets = told_apart([one.sheet for one in found])
    return [replace(one, sheet=sheet) for one, sheet in zip(found, sheets, strict=True)]


def _of_map(path: str) -> list[Opened]:
    """The logs that a map file names."""
    how = Reading.of(ReadingOptions(map=path))
    if not how.logs:
        hint = f'add the line {LOG} = "their.csv", or give the file as a map beside the log: map="{path}"'
        raise UsageError("is a map that names no log", location=Location(path), hint=hint)
    beside = tuple(read_sheet(one, how.layout) for one in how.join)
    return _read(how.logs, beside, how)


def _read(tables: Sequence[Table], beside: tuple[Sheet, ...], how: Reading) -> list[Opened]:
    """Tables that are read in one way; charts of one tool are one table."""
    sheets = merged([read_source(one, how.layout) for one in tables])
    return [Opened(sheet, beside, how, parts) for sheet, parts in sheets]


def _refuse_idle(asked: ReadingOptions, path: str) -> None:
    for one in fields(asked):
        if getattr(asked, one.name) is not None:
            message = f"({one.name}) does nothing here: a map file says how each log is written"
            raise UsageError(message, hint=f"write it into {path}, or leave it out")


def all_arranged(logs: Sequence[Opened], need_losses: bool) -> list[Sheet]:
    """The tables in the columns of a run log.

    Raises
    ------
    MixedError
        If what is asked for suits some of the tables that it is asked for, and not all.
    DataError
        If a table cannot be arranged.
    """
    plain = [one for one in logs if not one.mapped]
    if len(plain) > 1 and _speaks(plain[0].how):
        _refuse_mixed(plain, need_losses)
    found: list[Sheet] = []
    failed: list[tuple[Opened, DataError]] = []
    for one in logs:
        try:
            found.append(arranged(one.sheet, one.beside, one.how, need_losses=need_losses))
        except DataError as error:
            failed.append((one, error))
    for one, error in failed:
        raise _unsuited(one, error, [other for other in plain if all(other is not bad for bad, _ in failed)])
    return found


def _speaks(how: Reading) -> bool:
    """Whether a reading says anything of columns or units, which a log of ours has already."""
    return bool(how.map or how.join or how.long or how.units.notices())


def _refuse_mixed(logs: Sequence[Opened], need_losses: bool) -> None:
    """Nothing is asked for that holds for a log of ours and for a table of another kind at once."""
    own = [one.sheet.origin for one in logs if _is_ours(one.sheet, need_losses)]
    others = [one.sheet.origin for one in logs if one.sheet.origin not in own]
    if own and others:
        message = f"is a run log as it stands, and {others[0]} is not: no map or unit holds for both"
        raise MixedError(message, hint=_OWN_MAP, location=Location(own[0]), suited=others, others=own, own=True)


def _is_ours(sheet: Sheet, need_losses: bool) -> bool:
    """Whether a table has all columns of a run log under their own names."""
    roles = roles_of(sheet, [])
    return not sheet.kind and bool(roles.sources) and not list(header_faults(sheet, roles, need_losses))


def _unsuited(one: Opened, error: DataError, suited: Sequence[Opened]) -> DataError | MixedError:
    """What to say of a table whose columns are not as is said: that it does not suit, where it suits another one."""
    places = [fault.location.line for fault in error.faults] or [error.location.line]
    if (
        isinstance(error, NoLanguageError)
        or one.mapped
        or not suited
        or any(place not in (None, 1) for place in places)
    ):
        return error
    first, other = suited[0].sheet.origin, one.sheet.origin
    lack = error.faults[0].message if error.faults else error.message
    message = f"is written otherwise than {first}, for which the map holds: {lack}"
    return MixedError(message, hint=_OWN_MAP, location=Location(other), suited=[first], others=[other])
