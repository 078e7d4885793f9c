"""Run logs read from tables: which column is what, and every fault of every cell at once."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from shapleymix.errors import DataError, Fault, did_you_mean
from shapleymix.files import Origin
from shapleymix.records import BoolArray, FloatArray
from shapleymix.tables.amounts import parse_choice
from shapleymix.tables.joining import Losses, concat
from shapleymix.tables.names import check_label
from shapleymix.tables.runs import BUDGETS, LOSSES, UNIQUE, RunLog
from shapleymix.tables.sheets import Sheet, Table, listed, numbers, read_sheet, require, texts
from shapleymix.tables.simplex import EXACT, ROUNDED, renormalise, row_sums
from shapleymix.tables.spelling import SAME_NAME, lookalikes, mistyped, twin_fault

REQUIRED = ("run", "N", "D")
OPTIONAL = ("weight", "split", "seed")
SPLITS = ("fit", "held-out")
_PREFIXES = ("p_", "loss_", "tokens_")
_NAMED_LIKE = (
    "columns are run, N, D, p_<source> or tokens_<source>, loss_<target>, weight, split, seed, tokens_unique_<source>"
)


@dataclass
class _Roles:
    """What each column of a sheet is; `ratios`, `tokens`, `unique` and `losses` map labels to columns."""

    ratios: dict[str, str] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)
    unique: dict[str, str] = field(default_factory=dict)
    losses: dict[str, str] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)

    def group(self, column: str) -> dict[str, str]:
        """The labels that a prefixed column belongs to."""
        prefix = column.split("_", 1)[0]
        return {"p": self.ratios, "loss": self.losses, "tokens": self.tokens}[prefix]

    @property
    def sources(self) -> tuple[str, ...]:
        """Labels of the sources, in the order of their columns."""
        return tuple(self.ratios or self.tokens)


def read_runs(tables: Table | Sequence[Table], *, losses: Losses = "required") -> RunLog:
    """Read a run log, or several as one.

    Parameters
    ----------
    tables : Table or sequence of Table
        A path (CSV, `.csv.gz`, Parquet, JSONL), `-` for standard input, a frame, a mapping of columns, a list of rows
        (each a mapping), or a list of these.
    losses : {"required", "optional"}
        Whether loss columns must be there; `optional` for tables of points to predict.

    Raises
    ------
    DataError
        With every fault of the table: its file, line, column, value, and what to do.
    """
    need = parse_choice(losses, ("required", "optional"), "reading of losses") == "required"
    logs = [parse_runs(read_sheet(table), need_losses=need) for table in listed(tables)]
    return logs[0] if len(logs) == 1 else concat(logs, losses=losses)


def parse_runs(sheet: Sheet, *, need_losses: bool) -> RunLog:
    """The run log in a sheet.

    Raises
    ------
    DataError
        All faults of the table at once.
    """
    faults: list[Fault] = []
    notices = list(sheet.notices)
    roles = _roles(sheet, faults)
    faults.extend(_header_faults(sheet, roles, need_losses))
    if faults:
        raise DataError.of(faults, sheet.origin)
    log = _parse_rows(sheet, roles, faults, notices)
    faults.extend(_repeated_rows(sheet, log))
    if faults:
        # Sorted by line, as a person would go through the file; the order within a line is that of the checks.
        raise DataError.of(sorted(faults, key=lambda fault: fault.location.line or 0), sheet.origin)
    return log


def _roles(sheet: Sheet, faults: list[Fault]) -> _Roles:
    roles = _Roles()
    for column in sheet.columns:
        if column.startswith(UNIQUE):
            roles.unique[column.removeprefix(UNIQUE)] = column
        elif column.startswith(_PREFIXES):
            label = column.split("_", 1)[1]
            problem = check_label(label)
            if problem:
                hint = "write p_<source> and loss_<target> with plain labels such as p_en"
                faults.append(sheet.header_fault(column, f"the label {label!r} of column {column!r} {problem}", hint))
            roles.group(column)[label] = column
        elif column not in (*REQUIRED, *OPTIONAL, "loss"):
            roles.ignored.append(column)
    if "loss" in sheet.columns and roles.losses:
        roles.ignored.append("loss")
    elif "loss" in sheet.columns:
        roles.losses["loss"] = "loss"
    faults.extend(_twins(sheet, roles))
    faults.extend(_strays(sheet, roles))
    return roles


def _strays(sheet: Sheet, roles: _Roles) -> Iterator[Fault]:
    """Unique tokens of what is no source."""
    for label, column in roles.unique.items():
        if label not in roles.sources:
            message = f"{column!r} is of a source {label!r} that has no ratios"
            yield sheet.header_fault(column, message, did_you_mean(label, roles.sources))


def _twins(sheet: Sheet, roles: _Roles) -> Iterator[Fault]:
    """Labels that look alike and differ, also of a source and a target: one language would be taken for two."""
    column = {**roles.losses, **roles.tokens, **roles.ratios}
    for name, twin in lookalikes([*roles.sources, *roles.losses]).items():
        yield sheet.header_fault(column[name], f"the label {twin_fault(name, twin)}", SAME_NAME)


def _header_faults(sheet: Sheet, roles: _Roles, need_losses: bool) -> Iterator[Fault]:
    has_budget = REQUIRED[:2] if roles.tokens else REQUIRED
    for column in (name for name in has_budget if name not in sheet.columns):
        near = _near(column, roles.ignored)
        yield sheet.header_fault(column, f"has no column {column!r}", near or _NAMED_LIKE)
    if need_losses and not roles.losses:
        near = _near("loss_<target>", [name for name in roles.ignored if "los" in name.lower()])
        yield sheet.header_fault("loss", "has no loss_<target> column", near or _NAMED_LIKE)
    if roles.ratios and roles.tokens:
        yield sheet.header_fault("tokens", "has both p_ and tokens_ columns", "keep one of the two kinds")


def _near(name: str, candidates: list[str]) -> str | None:
    """A hint that names a column which looks like a misspelt `name`."""
    lowered = {candidate.lower(): candidate for candidate in candidates}
    close = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.5)
    return f"is the column {lowered[close[0]]!r} meant? rename it to {name!r}" if close else None


def _parse_rows(sheet: Sheet, roles: _Roles, faults: list[Fault], notices: list[str]) -> RunLog:
    N = numbers(sheet, "N", faults, sizes=True)
    require(sheet, "N", N, N <= 0, "expected more than 0", faults)
    _budget(sheet, "N", N, faults)
    tokens = _matrix(sheet, roles.tokens, faults, empty=True, sizes=True)
    D = _tokens_seen(sheet, tokens, faults)
    ratios = _from_tokens(tokens) if roles.tokens else _matrix(sheet, roles.ratios, faults, empty=True)
    p = _checked_ratios(sheet, roles, ratios, D, faults, notices)
    loss = _losses(sheet, roles, faults)
    notices.extend(_ignored_notices(roles))
    notices.extend(mistyped(roles.sources, tuple(roles.losses)))
    return RunLog(
        runs=texts(sheet, "run", faults),
        N=N,
        D=D,
        p=p,
        loss=loss,
        sources=roles.sources,
        targets=tuple(roles.losses),
        weight=_weight(sheet, faults),
        split=_split(sheet, faults),
        seed=texts(sheet, "seed", faults, empty=True) if "seed" in sheet.columns else None,
        unique=_unique(sheet, roles, faults),
        origin=sheet.origin,
        digest=sheet.digest,
        notices=tuple(notices),
        lines=sheet.lines,
        files=(Origin(sheet.origin, sheet.digest),),
    )


def _matrix(
    sheet: Sheet, columns: dict[str, str], faults: list[Fault], *, empty: bool, sizes: bool = False
) -> FloatArray:
    """Columns side by side (R, len(columns)), in row-major order."""
    matrix = np.empty((sheet.rows, len(columns)))
    for index, column in enumerate(columns.values()):
        matrix[:, index] = numbers(sheet, column, faults, empty=empty, sizes=sizes)
        _nonnegative(sheet, column, matrix[:, index], faults)
    return matrix


def _unique(sheet: Sheet, roles: _Roles, faults: list[Fault]) -> FloatArray | None:
    """Unique tokens (R, M), NaN where a run has no limit; None where the table does not speak of them."""
    if not roles.unique:
        return None
    found = np.full((sheet.rows, len(roles.sources)), np.nan)
    for place, label in enumerate(roles.sources):
        if column := roles.unique.get(label):
            found[:, place] = numbers(sheet, column, faults, empty=True, sizes=True)
            require(sheet, column, found[:, place], found[:, place] <= 0, "expected more than 0", faults, _LIMIT_HINT)
    return found


_LIMIT_HINT = "leave the cell empty where the run had text enough"


def _nonnegative(sheet: Sheet, column: str, values: FloatArray, faults: list[Fault]) -> None:
    require(sheet, column, values, values < 0, "expected 0 or more", faults)


def _budget(sheet: Sheet, column: str, values: FloatArray, faults: list[Fault]) -> None:
    """A budget above 0 is one that a law's powers of it can be computed for."""
    low, high = BUDGETS
    beyond = (values > 0) & ((values < low) | (values > high))
    require(sheet, column, values, beyond, f"expected {low:g} to {high:g}", faults, _BUDGET_HINT)


_BUDGET_HINT = "N counts parameters, and D tokens"


def _tokens_seen(sheet: Sheet, tokens: FloatArray, faults: list[Fault]) -> FloatArray:
    """D (R,): as given, or the sum of the sources' tokens; where both are there they must agree to 0.5%."""
    total = row_sums(np.nan_to_num(tokens)) if tokens.shape[1] else None
    if total is not None and "D" not in sheet.columns:
        return total
    D = numbers(sheet, "D", faults, sizes=True, empty=total is not None)
    _nonnegative(sheet, "D", D, faults)
    _budget(sheet, "D", D, faults)
    if total is None:
        return D
    unequal = np.abs(D - total) > ROUNDED * np.maximum(D, total)
    for row in np.flatnonzero(unequal).tolist():
        faults.append(sheet.fault(row, "D", f"D = {D[row]:g}, but the tokens_ columns sum to {total[row]:g}"))
    empty = np.array([not str(cell).strip() for cell in sheet.columns["D"]])
    return np.where(empty, total, D)


def _from_tokens(tokens: FloatArray) -> FloatArray:
    """Ratios (R, M) of the sources' tokens; all zero where there are none."""
    total = row_sums(np.nan_to_num(tokens))[:, None]
    return np.where(total > 0, tokens / np.where(total > 0, total, 1.0), tokens)


def _checked_ratios(
    sheet: Sheet, roles: _Roles, ratios: FloatArray, D: FloatArray, faults: list[Fault], notices: list[str]
) -> FloatArray:
    """Ratios (R, M) that sum to one, or to zero in the row of an untrained model."""
    if not roles.sources:
        return ratios
    trained = ~(D == 0)
    columns = roles.ratios or roles.tokens
    blank = np.isnan(ratios)
    _empty_ratios(sheet, columns, blank & trained[:, None], faults)
    p = np.where(blank, 0.0, ratios)
    sums = row_sums(p)
    clean = ~blank.any(axis=1) & (ratios >= 0).all(axis=1)
    off = np.abs(sums - 1)
    wrong = (off > ROUNDED) & np.where(trained, clean, sums > 0)
    hint = "ratios of a row sum to 1; within 0.005 they are renormalised"
    for row in np.flatnonzero(wrong).tolist():
        faults.append(sheet.fault(row, None, f"{_sum_text(columns)} = {sums[row]:.6g}, expected 1", hint))
    rounded = int(((off > EXACT) & (off <= ROUNDED)).sum())
    if rounded:
        notices.append(
            f"ratios of {rounded} of {len(p)} rows were renormalised to sum to 1 (off by at most "
            f"{off[off <= ROUNDED].max():.2g})"
        )
    return np.where((off <= ROUNDED)[:, None], renormalise(p), p)


def _empty_ratios(sheet: Sheet, columns: dict[str, str], blank: BoolArray, faults: list[Fault]) -> None:
    names = list(columns.values())
    for row, index in np.argwhere(blank).tolist():
        if not str(sheet.columns[names[index]][row]).strip():
            faults.append(sheet.fault(row, names[index], f"{names[index]} is empty", "write 0 for a source not in use"))


def _sum_text(columns: dict[str, str]) -> str:
    names = list(columns.values())
    return " + ".join(names) if len(names) <= 6 else f"{names[0]} + ... + {names[-1]} ({len(names)} columns)"


def _losses(sheet: Sheet, roles: _Roles, faults: list[Fault]) -> FloatArray:
    """Losses (R, K), positive where measured."""
    loss = np.empty((sheet.rows, len(roles.losses)))
    for index, column in enumerate(roles.losses.values()):
        values = numbers(sheet, column, faults, empty=True)
        require(sheet, column, values, values <= 0, "expected more than 0 (nats per token)", faults)
        too_high = "expected at most 1000: losses are nats per token"
        require(sheet, column, values, values > 1000, too_high, faults)
        too_low = f"expected at least {LOSSES[0]:g}: losses are nats per token"
        require(sheet, column, values, (values > 0) & (values < LOSSES[0]), too_low, faults)
        loss[:, index] = values
    return loss


def _weight(sheet: Sheet, faults: list[Fault]) -> FloatArray | None:
    if "weight" not in sheet.columns:
        return None
    weight = numbers(sheet, "weight", faults)
    _nonnegative(sheet, "weight", weight, faults)
    return weight


def _split(sheet: Sheet, faults: list[Fault]) -> tuple[str, ...] | None:
    if "split" not in sheet.columns:
        return None
    split = texts(sheet, "split", faults)
    for row, value in enumerate(split):
        if value and value not in SPLITS:
            faults.append(sheet.fault(row, "split", f"split is {value!r}", "write fit or held-out"))
    return split


def _ignored_notices(roles: _Roles) -> Iterator[str]:
    """A line for all columns that mean nothing here, and one for each that looks misspelt."""
    labels = (*roles.sources, *roles.losses)
    known = [*OPTIONAL, *(f"{prefix}{label}" for prefix in (*_PREFIXES[:2], UNIQUE) for label in labels)]
    plain = []
    for column in roles.ignored:
        close = difflib.get_close_matches(column, known, n=1, cutoff=0.75) if column != "loss" else []
        if close:
            yield f"ignored the column {column!r}: did you mean {close[0]!r}?"
        else:
            plain.append(column)
    if plain:
        yield f"ignored {len(plain)} columns: {', '.join(plain[:8])}{', ...' if len(plain) > 8 else ''}"


def _repeated_rows(sheet: Sheet, log: RunLog) -> Iterator[Fault]:
    first: dict[tuple[str, float], int] = {}
    for row, key in enumerate(zip(log.runs, log.D.tolist(), strict=True)):
        earlier = first.setdefault(key, row)
        if earlier != row and key[0] and key[1] == key[1]:
            message = f"repeats run {key[0]!r} at D = {key[1]:g} of line {sheet.lines[earlier]}"
            yield sheet.fault(row, "run", message, "give each trained model its own run id, or remove the row")
