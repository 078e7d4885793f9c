"""Run logs read from tables in the native columns: every fault of every cell at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from shapleymix.display import short
from shapleymix.errors import DataError, Fault, did_you_mean
from shapleymix.files import Origin
from shapleymix.records import FloatArray
from shapleymix.tables.mixtures import EXACT, ROUNDED, renormalise, row_sums
from shapleymix.tables.runs import LOSSES, UNIQUE, Losses, RunLog, concat
from shapleymix.tables.sheets import Sheet, Table, listed, numbers, read_sheet, require, texts
from shapleymix.tables.words import check_label, format_range, parse_choice

SPLITS, MARKS = ("fit", "held-out"), ("1", "0", "true", "false", "True", "False")
PREFIXES = (UNIQUE, "tokens_", "p_", "loss_")
_SINGLE = ("run", "N", "D", "weight", "split", "seed", "schedule", "final")
_NAMED_LIKE = (
    "columns are run, N, D, p_<source> or tokens_<source>, loss_<target>, weight, split, seed, schedule or final, "
    "tokens_unique_<source>; `shapleymix import` reads the tables of other tools"
)
_LOSS_HINT = "losses are nats per token; `shapleymix import` converts perplexity and bits"
_UNIT_HINT = "N counts parameters and D tokens: in a table, 243M is 243 million; `shapleymix import` multiplies columns"
_MOST_TOKENS = 1e6
"""Tokens of a run for each parameter: published ones have up to 15,000."""
_SUM_HINT = f"ratios of a row are parts of 1; within {ROUNDED:g} they are renormalised"
_RULES = {
    "N": (1.0, 1e14, "N counts non-embedding parameters, such as 243M"),
    "D": (1.0, 1e16, "D counts tokens, such as 100B; 0 is an untrained model"),
    "p_": (0.0, np.inf, None),
    "tokens_": (0.0, np.inf, None),
    UNIQUE: (1.0, np.inf, "leave the cell empty where the run had more text than it read"),
    "loss_": (*LOSSES, _LOSS_HINT),
    "weight": (0.0, np.inf, None),
    "schedule": (1.0, 1e16, "the schedule counts tokens, as D; leave it empty where a run did not end"),
}
"""Least and largest number of a column, and what to do; columns of amounts may be typed as sizes."""
_SIZES = ("N", "D", "tokens_", UNIQUE, "schedule")


def read_runs(tables: Table | Sequence[Table], *, losses: Losses = "required", origin: str = "<memory>") -> RunLog:
    """Read a run log, or several as one.

    A row is a model at a token count: `run`, `N`, `D`, `p_<source>` or `tokens_<source>`, `loss_<target>` in nats a
    token, and optionally `tokens_unique_<source>`, `weight`, `split`, `seed`, and `schedule` (tokens at which the
    learning-rate schedule of the run ends) or `final` (1 where it has ended, 0 before); by default the last row of a
    run is its end. Rows whose ratios miss a sum of one by at most 5e-3 are renormalised, which a notice says.

    Parameters
    ----------
    tables : Table or sequence of Table
        A path (CSV, `.csv.gz`, Parquet, JSONL), `-` for standard input, a frame, a mapping of columns, or a list of
        these.
    losses : {"required", "optional"}
        Whether loss columns must be there; `optional` for tables of points to predict.
    origin : str
        What messages call a table that is no file.

    Raises
    ------
    DataError
        With every fault of the table: its file, line, column, value, and what to do. Of a log that must have losses
        also if N and D are no language models': in other units, or swapped.
    """
    need = parse_choice(losses, ("required", "optional"), "reading of losses") == "required"
    logs = [parse_runs(read_sheet(table, origin), need_losses=need) for table in listed(tables)]
    return concat(logs, losses=losses)


def parse_runs(sheet: Sheet, *, need_losses: bool) -> RunLog:
    """The run log in a sheet.

    Raises
    ------
    DataError
        All faults of the table at once, sorted by line, as a person would go through the file.
    """
    faults: list[Fault] = []
    roles = _roles_of(sheet, faults)
    faults.extend(_header_faults(sheet, roles, need_losses))
    if faults:
        raise DataError.of(faults, sheet.origin)
    log = _parse_rows(sheet, roles, faults)
    faults.extend(_repeated_rows(sheet, log))
    if need_losses and not faults:
        faults.extend(_no_models(sheet, log))
    if faults:
        raise DataError.of(sorted(faults, key=lambda fault: fault.location.line or 0), sheet.origin)
    return log


@dataclass(frozen=True)
class _Roles:
    """What each column of a sheet is: columns by label, and those that mean nothing."""

    ratios: Mapping[str, str]
    tokens: Mapping[str, str]
    unique: Mapping[str, str]
    losses: Mapping[str, str]
    ignored: tuple[str, ...]

    @property
    def sources(self) -> Mapping[str, str]:
        return self.ratios or self.tokens


def _roles_of(sheet: Sheet, faults: list[Fault]) -> _Roles:
    """What each column is, by its name; labels that cannot be used are faults."""
    found: dict[str, dict[str, str]] = {prefix: {} for prefix in PREFIXES}
    others = []
    for column in sheet.columns:
        prefix = next((prefix for prefix in PREFIXES if column.startswith(prefix)), None)
        if prefix is None:
            others.append(column)
            continue
        label = column.removeprefix(prefix)
        found[prefix][label] = column
        if problem := check_label(label):
            faults.append(sheet.header_fault(column, f"the label {label!r} of column {column!r} {problem}"))
    if "loss" in others and not found["loss_"]:
        found["loss_"]["loss"] = "loss"
    ignored = tuple(name for name in others if name not in (*_SINGLE, *found["loss_"]))
    return _Roles(found["p_"], found["tokens_"], found[UNIQUE], found["loss_"], ignored)


def _header_faults(sheet: Sheet, roles: _Roles, need_losses: bool) -> Iterator[Fault]:
    """Columns that a log cannot be without."""
    for column in ("N",) if roles.tokens else ("N", "D"):
        if column not in sheet.columns:
            yield sheet.header_fault(column, f"has no column {column!r}", _NAMED_LIKE)
    if need_losses and not roles.losses:
        yield sheet.header_fault("loss", "has no loss_<target> column", _NAMED_LIKE)
    if roles.ratios and roles.tokens:
        yield sheet.header_fault("tokens", "has both p_ and tokens_ columns", "keep one of the two kinds")
    for label, column in roles.unique.items():
        if label not in roles.sources:
            message = f"{column!r} is of a source {label!r} that has no ratios"
            yield sheet.header_fault(column, message, did_you_mean(label, roles.sources))


def _parse_rows(sheet: Sheet, roles: _Roles, faults: list[Fault]) -> RunLog:
    notices: list[str] = []
    written = _matrix(sheet, roles.sources, "tokens_" if roles.tokens else "p_", faults)
    D = _tokens_seen(sheet, row_sums(np.nan_to_num(written)) if roles.tokens else None, faults)
    p = _checked_ratios(sheet, roles, written, D, faults, notices)
    if roles.ignored:
        notices.append(f"ignored {len(roles.ignored)} columns: {short(roles.ignored)}")
    unlimited = {label: roles.unique.get(label, "") for label in roles.sources}
    log = RunLog(
        runs=texts(sheet, "run", faults) if "run" in sheet.columns else ("",) * sheet.rows,
        N=_column(sheet, "N", "N", faults),
        D=D,
        p=p,
        loss=_matrix(sheet, roles.losses, "loss_", faults),
        sources=tuple(roles.sources),
        targets=tuple(roles.losses),
        weight=_column(sheet, "weight", "weight", faults) if "weight" in sheet.columns else None,
        split=_words(sheet, "split", SPLITS, faults),
        seed=texts(sheet, "seed", faults, empty=True) if "seed" in sheet.columns else None,
        unique=_matrix(sheet, unlimited, UNIQUE, faults) if roles.unique else None,
        schedule=_column(sheet, "schedule", "schedule", faults, empty=True) if "schedule" in sheet.columns else None,
        origin=sheet.origin,
        digest=sheet.digest,
        notices=tuple(notices),
        lines=sheet.lines,
        files=(Origin(sheet.origin, sheet.digest),),
    )
    log = log if "run" in sheet.columns else _with_ids(log)
    for row in np.flatnonzero(log.ends < 0.99 * log.D).tolist() if log.schedule is not None else ():
        message = f"schedule = {log.ends[row]:g} ends before D = {D[row]:g}"
        faults.append(sheet.fault(row, "schedule", message, _RULES["schedule"][2]))
    marks = None if log.schedule is not None else _words(sheet, "final", MARKS, faults)
    return log if marks is None else replace(log, schedule=log.ends_by(np.isin(marks, ("1", "true", "True"))))


def _column(sheet: Sheet, column: str, rule: str, faults: list[Fault], *, empty: bool = False) -> FloatArray:
    """A column (R,) of numbers that keep a rule; a D of 0 is one of an untrained model."""
    low, high, hint = _RULES[rule]
    values = numbers(sheet, column, faults, empty=empty, sizes=rule in _SIZES)
    wrong = ((values < low) | (values > high)) & ~((values == 0) & (rule == "D"))
    expected = f"{low:g} to {high:g}" if np.isfinite(high) else f"{low:g} or more"
    require(sheet, column, values, wrong, f"expected {expected}", faults, hint)
    return values


def _matrix(sheet: Sheet, columns: Mapping[str, str], rule: str, faults: list[Fault]) -> FloatArray:
    """Columns side by side (R, labels), in row-major order; NaN where a cell is empty, or a label has no column."""
    matrix = np.full((sheet.rows, len(columns)), np.nan)
    for index, column in enumerate(columns.values()):
        if column:
            matrix[:, index] = _column(sheet, column, rule, faults, empty=True)
    return matrix


def _tokens_seen(sheet: Sheet, total: FloatArray | None, faults: list[Fault]) -> FloatArray:
    """D (R,): as given, or the sum of the sources' tokens; where both are there they must agree to 0.5%."""
    if total is not None and "D" not in sheet.columns:
        return total
    D = _column(sheet, "D", "D", faults, empty=total is not None)
    if total is None:
        return D
    for row in np.flatnonzero(np.abs(D - total) > ROUNDED * np.maximum(D, total)).tolist():
        faults.append(sheet.fault(row, "D", f"D = {D[row]:g}, but the tokens_ columns sum to {total[row]:g}"))
    return np.where(np.isnan(D), total, D)


def _checked_ratios(
    sheet: Sheet, roles: _Roles, written: FloatArray, D: FloatArray, faults: list[Fault], notices: list[str]
) -> FloatArray:
    """Ratios (R, M) that sum to one, or to zero in the row of an untrained model."""
    if not roles.sources:
        return written
    columns = list(roles.sources.values())
    blank, trained = np.isnan(written), D != 0
    p = np.where(blank, 0.0, written)
    if roles.tokens:
        total = row_sums(p)[:, None]
        p = np.where(total > 0, p / np.where(total > 0, total, 1.0), p)
    for row, index in np.argwhere(blank & trained[:, None]).tolist():
        if sheet.is_empty(row, columns[index]):
            faults.append(sheet.fault(row, columns[index], "is empty", "write 0 for a source that is not in use"))
    sums = row_sums(p)
    off = np.abs(sums - 1)
    clean = ~blank.any(axis=1) & (p >= 0).all(axis=1)
    names = " + ".join(columns) if len(columns) <= 6 else f"{columns[0]} + ... + {columns[-1]} ({len(columns)} columns)"
    for row in np.flatnonzero((off > ROUNDED) & np.where(trained, clean, sums > 0)).tolist():
        faults.append(sheet.fault(row, None, f"{names} = {sums[row]:.6g}, expected 1", _SUM_HINT))
    rounded = off[(off > EXACT) & (off <= ROUNDED)]
    if rounded.size:
        told = f"renormalised to sum to 1 (off by at most {rounded.max():.2g})"
        notices.append(f"ratios of {rounded.size} of {len(p)} rows were {told}")
    return np.where((off <= ROUNDED)[:, None], renormalise(p), p)


def _words(sheet: Sheet, column: str, allowed: tuple[str, ...], faults: list[Fault]) -> tuple[str, ...] | None:
    """A column (R,) of some words; None where there is none."""
    if column not in sheet.columns:
        return None
    found = texts(sheet, column, faults)
    for row, value in enumerate(found):
        if value and value not in allowed:
            faults.append(sheet.fault(row, column, f"{column} is {value!r}", f"write {' or '.join(allowed[:2])}"))
    return found


def _with_ids(log: RunLog) -> RunLog:
    """The log with ids of its runs: rows of one N, mixture and seed are one run, unless D repeats.

    A table without ratios has nothing to tell its runs apart: each row is one.
    """
    each = "rows with the same N, mixture and seed are taken as one run" if log.sources else "each row is one run"
    limits = np.zeros((len(log), 0)) if log.unique is None else np.nan_to_num(log.unique)
    exact = np.column_stack([log.N, np.round(log.p, 6), limits] if log.sources else [np.arange(len(log))]).tolist()
    seen: Counter[tuple[object, ...]] = Counter()
    names: dict[tuple[object, ...], str] = {}
    found = []
    for numbers_of, seed, tokens in zip(exact, log.seed or [""] * len(log), log.D.tolist(), strict=True):
        model = (*numbers_of, seed)
        seen[*model, tokens] += 1
        found.append(names.setdefault((*model, seen[*model, tokens]), f"run-{len(names) + 1}"))
    told = f"the table has no column run: {each}"
    return replace(log, runs=tuple(found), notices=(*log.notices, told))


def _repeated_rows(sheet: Sheet, log: RunLog) -> Iterator[Fault]:
    """Rows of one run and D, after the first."""
    first: dict[tuple[str, float], int] = {}
    hint = "give each trained model its own run id, or remove the row"
    for row, key in enumerate(zip(log.runs, log.D.tolist(), strict=True)):
        earlier = first.setdefault(key, row)
        if earlier != row and key[0] and key[1] == key[1]:
            message = f"repeats run {key[0]!r} at D = {key[1]:g} of line {sheet.lines[earlier]}"
            yield sheet.fault(row, "run" if "run" in sheet.columns else None, message, hint)


def _no_models(sheet: Sheet, log: RunLog) -> Iterator[Fault]:
    """What no language models have: N or D in other units, or in each other's place."""
    N, D = log.N, log.D[log.trained]
    sizes = f"N is {format_range(N)} parameters and D {format_range(D)} tokens"
    if not D.size:
        return
    if D.max() < N.min():
        message = f"{sizes}: no model is trained on fewer tokens than it has parameters; N and D may be swapped"
        yield sheet.header_fault(None, message, _UNIT_HINT)
    elif N.max() < 1e3 or D.max() > _MOST_TOKENS * N.min():
        yield sheet.header_fault(None, f"{sizes}: no model is so small for its tokens", _UNIT_HINT)
