"""Any table in the columns of a run log, as a reading asks for: joined, widened, and with its columns found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from shapleymix.errors import DataError, Fault, UsageError, did_you_mean
from shapleymix.tables.importing.column_map import LABELLED, SINGLE, ColumnMap, Columns, One
from shapleymix.tables.importing.long_tables import widened
from shapleymix.tables.importing.patterns import LANG, found, is_pattern, weight
from shapleymix.tables.importing.reading import Reading
from shapleymix.tables.importing.summaries import NoLanguageError, counts_steps, how_to_ignore, no_language, summaries
from shapleymix.tables.importing.table_joins import Qualified, joined, qualified
from shapleymix.tables.importing.unfinished import ends_told
from shapleymix.tables.importing.usual_maps import is_history, with_usual
from shapleymix.tables.runs import PREFIXES, own_columns
from shapleymix.tables.sheets import Place, Sheet
from shapleymix.tables.sizes import parse_size


def arranged(sheet: Sheet, others: Sequence[Sheet], reading: Reading, *, need_losses: bool) -> Sheet:
    """The sheet with the columns of a run log; `others` are joined to it, and runs that need losses have some.

    Raises
    ------
    DataError
        If a table to be joined does not fit, or a column of the map is not there.
    """
    run = reading.map.roles.get("run")
    sheet = replace(sheet, notices=(*sheet.notices, *ends_told(sheet)))
    if others:
        sheet = joined(sheet, others, None if run is None else str(run))
    map = with_usual(reading.map, sheet)
    if reading.long:
        sheet, map = widened(sheet, map)
    if not (map or others or reading.long):
        return sheet
    return _with_losses(_Columns(sheet, qualified(sheet), map).taken(), need_losses)


@dataclass(frozen=True)
class _Columns:
    """The columns of a sheet, by which a map's names are found."""

    sheet: Sheet
    qualified: Qualified
    map: ColumnMap

    def taken(self) -> Sheet:
        """The sheet with the columns of the map, and a log's own columns where the map does not speak of them."""
        faults: list[Fault] = []
        chosen: dict[str, One] = {}
        for role in SINGLE:
            one = self.map.roles.get(role, role if role in self.sheet.columns else None)
            if one is not None:
                chosen |= self._single(role, one, faults)
        claimed = {str(column) for column in chosen.values()} | set(self._ignored())
        doubtful: dict[str, str] = {}
        for role in sorted(LABELLED, key=self._weight, reverse=True):
            columns = self._labelled(role, claimed, faults)
            chosen |= columns
            claimed |= set(map(str, columns.values()))
            doubtful |= self._summaries(role, columns)
        if faults:
            raise DataError.of(faults, self.sheet.origin)
        if doubtful:
            raise NoLanguageError.of(list(self._no_languages(doubtful)), self.sheet.origin)
        return self._renamed(chosen)

    def _single(self, role: str, one: One, faults: list[Fault]) -> dict[str, One]:
        column = self._column(one)
        if column is None:
            faults.append(self._unknown(role, str(one)))
        elif role == "D" and self.map.tokens_per_step is None and isinstance(column, str) and counts_steps(column):
            message = f"the column {column!r} counts steps by its name, and D counts tokens"
            faults.append(self.sheet.header_fault(column, message, _STEPS_HINT))
        return {} if column is None else {role: column}

    def _column(self, one: One) -> One | None:
        """A column by its name; a number or a size that names no column is itself; None for anything else."""
        if not isinstance(one, str):
            return one
        if one in self.sheet.columns:
            return one
        return self.qualified.get(one, _size(one))

    def _labelled(self, role: str, claimed: set[str], faults: list[Fault]) -> dict[str, One]:
        """The columns of a role by their names in a run log."""
        how = self.map.labelled.get(role)
        if how is None:
            return self._own(role, claimed, faults)
        if isinstance(how, str) and not is_pattern(how):
            return self._bare(role, how, faults)
        return self._called(role, self._by_label(role, how, claimed, faults), faults)

    def _summaries(self, role: str, columns: Mapping[str, One]) -> dict[str, str]:
        """What a pattern took for a language and is called as averages and totals are, with its column."""
        how = self.map.labelled.get(role)
        if not (isinstance(how, str) and is_pattern(how)):
            return {}
        labels = {native.removeprefix(PREFIXES[role]): str(column) for native, column in columns.items()}
        return {label: labels[label] for label in summaries(labels, self.map.languages)}

    def _no_languages(self, doubtful: Mapping[str, str]) -> Iterator[Fault]:
        for label, column in doubtful.items():
            yield self.sheet.header_fault(column, no_language(label), how_to_ignore(doubtful.values(), label))

    def _called(self, role: str, columns: Mapping[str, One], faults: list[Fault]) -> dict[str, One]:
        """Columns by their names in a run log, with the languages as they are called there."""
        named: dict[str, One] = {}
        for label, column in columns.items():
            name = f"{PREFIXES[role]}{self.map.called(label)}"
            if name in named:
                message = f"{column!r} and {named[name]!r} are both {name}"
                faults.append(self.sheet.header_fault(str(column), message, 'ignore one of them: map="ignore=..."'))
            named[name] = column
        return named

    def _own(self, role: str, claimed: set[str], faults: list[Fault]) -> dict[str, One]:
        """A log's own columns of a role."""
        own = own_columns([name for name in self.sheet.columns if name not in claimed], role)
        if role == "loss" and not own and "loss" in self.sheet.columns and "loss" not in claimed:
            return {"loss": "loss"}
        return self._called(role, {name.removeprefix(PREFIXES[role]): name for name in own}, faults)

    def _bare(self, role: str, how: str, faults: list[Fault]) -> dict[str, One]:
        if role != "loss":
            hint = f"write {LANG} for the language, such as {role}_{LANG}; or ask for a long table (long)"
            raise UsageError(f"map: {role} = {how!r} is one column, expected one of each language", hint=hint)
        column = how if how in self.sheet.columns else self.qualified.get(how)
        if column is None:
            faults.append(self._unknown(role, how))
        return {} if column is None else {"loss": column}

    def _by_label(self, role: str, how: Columns, claimed: set[str], faults: list[Fault]) -> dict[str, One]:
        if isinstance(how, Mapping):
            named = {label: self._column(one) for label, one in how.items()}
            faults.extend(self._unknown(role, str(how[label])) for label, one in named.items() if one is None)
            return {label: one for label, one in named.items() if one is not None}
        assert isinstance(how, str)
        columns = found(how, [name for name in self.sheet.columns if name not in claimed], self.qualified)
        kept: dict[str, One] = {label: name for label, name in columns.items() if name not in claimed}
        if not kept:
            faults.append(self._unknown(role, how))
        return kept

    def _ignored(self) -> Iterator[str]:
        for name in self.map.ignore:
            if is_pattern(name):
                yield from found(name, self.sheet.columns, self.qualified).values()
            yield self.qualified.get(name, name)

    def _weight(self, role: str) -> int:
        how = self.map.labelled.get(role, PREFIXES[role])
        return weight(how) if isinstance(how, str) else 10_000

    def _unknown(self, role: str, name: str) -> Fault:
        hint = did_you_mean(name, self.sheet.columns)
        what = "no column matches" if is_pattern(name) else "has no column"
        return self.sheet.header_fault(None, f"{what} {name!r}, which is to be {role}", hint)

    def _renamed(self, taken: Mapping[str, One]) -> Sheet:
        """The sheet with these columns alone; what is a number holds for all rows."""
        sheet = self.sheet
        columns = {
            name: sheet.columns[one] if isinstance(one, str) else [one] * sheet.rows for name, one in taken.items()
        }
        places = {name: sheet.place(one) for name, one in taken.items() if isinstance(one, str)}
        places |= {
            name: Place(name, sheet.origin, sheet.lines) for name, one in taken.items() if not isinstance(one, str)
        }
        used = set(map(str, taken.values()))
        spare = [name for name in sheet.columns if name not in used]
        told = [f"ignored {len(spare)} columns: {', '.join(spare[:8])}{', ...' if len(spare) > 8 else ''}"]
        notices = (*sheet.notices, *(told if spare else ()))
        return replace(sheet, columns=columns, places=places, notices=notices)


_STEPS_HINT = 'say how many tokens a step takes: map="tokens_per_step=..." (1 where the column counts tokens after all)'


def _size(text: str) -> float | None:
    try:
        return parse_size(text)
    except UsageError:
        return None


def _with_losses(sheet: Sheet, need_losses: bool) -> Sheet:
    """The sheet without runs that crashed before a loss, and a history without the steps at which none was measured."""
    losses = [cells for name, cells in sheet.columns.items() if name == "loss" or name.startswith(PREFIXES["loss"])]
    if not (need_losses or is_history(sheet)) or not losses:
        return sheet
    kept = [row for row in range(sheet.rows) if any(map(_says_something, (cells[row] for cells in losses)))]
    if len(kept) in (0, sheet.rows):
        return sheet
    return replace(sheet.taken(kept), notices=(*sheet.notices, _left_out(sheet.rows - len(kept))))


def _says_something(cell: object) -> bool:
    return str(cell).strip().lower() not in ("", "nan")


def _left_out(rows: int) -> str:
    return f"left out {rows} {'row' if rows == 1 else 'rows'} without a loss"
