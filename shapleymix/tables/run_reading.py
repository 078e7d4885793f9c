"""Run logs read from tables: every fault of every cell at once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Unpack

import numpy as np

from shapleymix.errors import DataError, Fault, UsageError
from shapleymix.files import Origin
from shapleymix.keywords import checked, spelt_out
from shapleymix.records import BoolArray, FloatArray
from shapleymix.tables.amounts import parse_choice
from shapleymix.tables.importing.reading import ReadingKeywords, ReadingOptions
from shapleymix.tables.importing.units import LOSS_UNITS, Units
from shapleymix.tables.joining import Losses, concat
from shapleymix.tables.other_layouts import of_foreign_ratios, of_other_kind, strangers
from shapleymix.tables.percent_signs import without_signs
from shapleymix.tables.run_columns import Roles, header_faults, ignored_notices, roles_of, summary_notices
from shapleymix.tables.run_ids import made_ids, repeated_rows
from shapleymix.tables.runs import BUDGETS, LOSSES, RunLog
from shapleymix.tables.several import Opened, all_arranged, opened
from shapleymix.tables.sheets import Sheet, Table, listed, numbers, require, texts
from shapleymix.tables.simplex import EXACT, ROUNDED, renormalise, row_sums
from shapleymix.tables.spelling import mistyped

SPLITS = ("fit", "held-out")
OURS = Units()
"""Nats a token, and ratios that sum to 1."""


@spelt_out(ReadingOptions, ReadingKeywords.__annotations__)
def read_runs(
    tables: Table | Sequence[Table], *, losses: Losses = "required", **reading: Unpack[ReadingKeywords]
) -> RunLog:
    """Read a run log, or several as one.

    Other tables than our own are read with a `map` of their columns, `long`, their units, and tables to `join`;
    what is said so holds for all tables of the call, but a map file says how its own log is.

    Parameters
    ----------
    tables : Table or sequence of Table
        A path (CSV, `.csv.gz`, Parquet, JSON), `-` for standard input, a frame, a mapping of columns, a list of rows
        (each a mapping), a map file (`.toml`) that names its log, or a list of these.
    losses : {"required", "optional"}
        Whether loss columns must be there; `optional` for tables of points to predict.
    **reading : ReadingOptions
        How the tables are written, all in one way; a map file says how its own log is.

    Raises
    ------
    DataError
        With every fault of the table: its file, line, column, value, and what to do.
    UsageError
        If what is said of the tables does not hold for all of them.
    """
    checked("read_runs", reading, ReadingKeywords.__annotations__)
    need = parse_choice(losses, ("required", "optional"), "reading of losses") == "required"
    found = opened(listed(tables), ReadingOptions(**reading))
    sheets = all_arranged(found, need)
    logs = [_one_log(one, sheet, need) for one, sheet in zip(found, sheets, strict=True)]
    return logs[0] if len(logs) == 1 else concat(logs, losses=losses)


def _one_log(one: Opened, sheet: Sheet, need_losses: bool) -> RunLog:
    """The log of one table, arranged, and those that are joined to it, which count among its files."""
    log = parse_runs(sheet, need_losses=need_losses, units=one.how.units, raw=None if one.how.map else one.sheet)
    others = (*one.parts, *one.beside)
    files = (*log.files, *(Origin(other.origin, other.digest) for other in others), *one.how.files)
    digest = hashlib.sha256("".join(other.digest for other in (sheet, *others)).encode()).hexdigest()
    return replace(log, files=files, digest=digest if others else log.digest)


def parse_runs(sheet: Sheet, *, need_losses: bool, units: Units = OURS, raw: Sheet | None = None) -> RunLog:
    """The run log in a sheet; `raw` is what it was before its tool's columns were found, to be told from.

    Raises
    ------
    DataError
        All faults of the table at once.
    """
    faults: list[Fault] = []
    notices = list(sheet.notices)
    roles = roles_of(sheet, faults)
    faults.extend(header_faults(sheet, roles, need_losses))
    if not (faults or roles.sources) and (other := of_foreign_ratios(sheet, roles)):
        raise other
    if faults:
        raise of_other_kind(sheet, raw) or DataError.of(faults, sheet.origin)
    log = _parse_rows(sheet, roles, units, faults, notices)
    repeats = list(repeated_rows(sheet, log))
    if repeats and "loss" in sheet.columns and (other := of_other_kind(sheet)):
        raise other
    faults.extend(repeats)
    if faults:
        # Sorted by line, as a person would go through the file; the order within a line is that of the checks.
        raise DataError.of(sorted(faults, key=lambda fault: fault.location.line or 0), sheet.origin)
    return log


def _parse_rows(sheet: Sheet, roles: Roles, units: Units, faults: list[Fault], notices: list[str]) -> RunLog:
    N = numbers(sheet, "N", faults, sizes=True)
    require(sheet, "N", N, N <= 0, "expected more than 0", faults)
    _budget(sheet, "N", N, faults)
    sheet = without_signs(sheet, roles.ratios.values(), units.whole or 1)
    sheet = without_signs(sheet, roles.losses.values() if units.loss == "percent" else (), 100)
    tokens = _matrix(sheet, roles.tokens, faults, empty=True, sizes=True)
    D = _tokens_seen(sheet, tokens, units, faults)
    if roles.tokens and units.ratio != "fraction":
        raise UsageError("ratio_unit does nothing to tokens_ columns", hint="leave it out (ratio_unit)")
    ratios = _from_tokens(tokens) if roles.tokens else _matrix(sheet, roles.ratios, faults, empty=True)
    p = _checked_ratios(sheet, roles, ratios, D, OURS if roles.tokens else units, faults, notices)
    loss = _losses(sheet, roles, units, faults)
    notices.extend(_doubts(loss, units))
    seed = texts(sheet, "seed", faults, empty=True) if "seed" in sheet.columns else None
    unique = _unique(sheet, roles, faults)
    notices.extend(units.notices())
    notices.extend(ignored_notices(roles))
    notices.extend(summary_notices(sheet, roles))
    notices.extend(mistyped(roles.sources, tuple(roles.losses)))
    notices.extend(strangers(sheet, roles))
    return RunLog(
        runs=texts(sheet, "run", faults) if "run" in sheet.columns else made_ids(N, D, p, unique, seed, notices),
        N=N,
        D=D,
        p=p,
        loss=loss,
        sources=roles.sources,
        targets=tuple(roles.losses),
        weight=_weight(sheet, faults),
        split=_split(sheet, faults),
        seed=seed,
        unique=unique,
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


def _unique(sheet: Sheet, roles: Roles, faults: list[Fault]) -> FloatArray | None:
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


def _tokens_seen(sheet: Sheet, tokens: FloatArray, units: Units, faults: list[Fault]) -> FloatArray:
    """D (R,): as given, or the sum of the sources' tokens; where both are there they must agree to 0.5%."""
    total = row_sums(np.nan_to_num(tokens)) if tokens.shape[1] else None
    if total is not None and "D" not in sheet.columns:
        return total
    D = numbers(sheet, "D", faults, sizes=True, empty=total is not None) * units.tokens_per_step
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
    sheet: Sheet,
    roles: Roles,
    written: FloatArray,
    D: FloatArray,
    units: Units,
    faults: list[Fault],
    notices: list[str],
) -> FloatArray:
    """Ratios (R, M) that sum to one, or to zero in the row of an untrained model."""
    if not roles.sources:
        return written
    ratios = _parts_of_one(written, units)
    trained = ~(D == 0)
    columns = roles.ratios or roles.tokens
    blank = np.isnan(ratios)
    _empty_ratios(sheet, columns, blank & trained[:, None], faults)
    p = np.where(blank, 0.0, ratios)
    sums = row_sums(p)
    clean = ~blank.any(axis=1) & (ratios >= 0).all(axis=1)
    off = np.abs(sums - 1)
    wrong = (off > ROUNDED) & np.where(trained, clean, sums > 0)
    told = row_sums(np.nan_to_num(written))
    for row in np.flatnonzero(wrong).tolist():
        wanted = "more than 0" if units.whole is None else f"{units.whole:g}"
        message = f"{_sum_text(columns)} = {told[row]:.6g}, expected {wanted}"
        faults.append(sheet.fault(row, None, message, _sum_hint(told[wrong], bool(wrong.all()), units)))
    rounded = int(((off > EXACT) & (off <= ROUNDED)).sum())
    if rounded:
        notices.append(
            f"ratios of {rounded} of {len(p)} rows were renormalised to sum to 1 (off by at most "
            f"{off[off <= ROUNDED].max():.2g})"
        )
    return np.where((off <= ROUNDED)[:, None], renormalise(p), p)


def _parts_of_one(written: FloatArray, units: Units) -> FloatArray:
    """Ratios (R, M) as parts of one; weights are divided by the sum of their row."""
    if units.whole is not None:
        return written / units.whole
    total = row_sums(np.nan_to_num(written))[:, None]
    return np.where(total > 0, written / np.where(total > 0, total, 1.0), written)


def _sum_hint(sums: FloatArray, every: bool, units: Units) -> str:
    """What rows that do not sum to the whole may be; `sums` are those of all such rows, perhaps of `every` row."""
    if units.whole == 1 and (np.abs(sums - 100) <= 100 * ROUNDED).all():
        return "the ratios are percentages: read them with ratio_unit=percent"
    if units.whole == 1 and ((sums > 1.5).all() or (every and (sums > 0).all())):
        return "ratios of a row sum to 1; weights that sum to anything are read with ratio_unit=weights"
    if units.whole is None:
        return "give each trained model a weight above 0"
    return f"ratios of a row sum to {units.whole:g}; within {units.whole * ROUNDED:g} they are renormalised"


def _empty_ratios(sheet: Sheet, columns: dict[str, str], blank: BoolArray, faults: list[Fault]) -> None:
    names = list(columns.values())
    whole: BoolArray = np.all(blank, axis=1) if len(names) > 1 else np.zeros(len(blank), dtype=bool)
    for row in np.flatnonzero(whole).tolist():
        if not any(str(sheet.columns[name][row]).strip() for name in names):
            faults.append(sheet.fault(row, None, "has no ratios", "give them, or leave out a row that is no run"))
    for row, index in np.argwhere(blank & ~whole[:, None]).tolist():
        if not str(sheet.columns[names[index]][row]).strip():
            faults.append(sheet.fault(row, names[index], f"{names[index]} is empty", "write 0 for a source not in use"))


def _sum_text(columns: dict[str, str]) -> str:
    names = list(columns.values())
    return " + ".join(names) if len(names) <= 6 else f"{names[0]} + ... + {names[-1]} ({len(names)} columns)"


def _losses(sheet: Sheet, roles: Roles, units: Units, faults: list[Fault]) -> FloatArray:
    """Losses (R, K) in nats per token, positive where measured."""
    loss = np.empty((sheet.rows, len(roles.losses)))
    units.check_targets(tuple(roles.losses))
    word = LOSS_UNITS[units.loss]
    for index, (target, column) in enumerate(roles.losses.items()):
        written = numbers(sheet, column, faults, empty=True)
        require(sheet, column, written, written <= units.least, f"expected more than {units.least:g} ({word})", faults)
        values = units.nats(written, target)
        sound = written > units.least
        require(sheet, column, written, sound & (values > 1000), f"expected at most 1000 nats: {_UNIT} {word}", faults)
        too_low = f"expected at least {LOSSES[0]:g} nats: {_UNIT} {word}"
        require(sheet, column, written, sound & (values < LOSSES[0]), too_low, faults)
        loss[:, index] = values
    return loss


_UNIT = "losses are read as"
_MOST = 15.0
"""Nats: a guess among three million tokens costs no more, and no tokenizer has so many."""


def _doubts(loss: FloatArray, units: Units) -> Iterator[str]:
    """Losses that no model of language has, which are rather in another unit."""
    high = loss[loss > _MOST]
    if high.size and units.loss == "nats":
        yield (
            f"{high.size} losses are above {_MOST:g} nats per token, up to {high.max():g}, worse than a guess among "
            "3 million tokens: perplexities and error rates are read as such (unit)"
        )


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
