"""Run logs read from tables in the native columns: every fault of every cell at once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from shapleymix.display import short
from shapleymix.errors import did_you_mean
from shapleymix.files import Origin
from shapleymix.records import FloatArray
from shapleymix.tables.mixtures import EXACT, ROUNDED, renormalise, row_sums
from shapleymix.tables.runs import LATE, LOSSES, UNIQUE, LossUse, RunLog, concat
from shapleymix.tables.sheets import Sheet, Table, as_list, read_sheet
from shapleymix.tables.words import RECIPE, check_label, format_range, format_size, parse_choice

SPLITS, MARKS = ("fit", "held-out"), ("1", "0", "true", "false", "True", "False")
PREFIXES = (UNIQUE, LATE, "tokens_", "p_", "loss_")
_NUMBERS = {"weight": "weight", "schedule": "schedule"} | RECIPE
_SINGLE = ("run", "N", "D", "split", "seed", "final", *_NUMBERS.values(), "tokenizer")
_NAMED_LIKE = (
    "columns are run, N, D, p_<source> or tokens_<source>, loss_<target>, weight, split, seed, tokenizer, schedule or "
    "final, learning_rate, batch, tokens_unique_<source>; `shapleymix import` reads the tables of other tools"
)
_UNIT_HINT = "N counts parameters and D tokens: in a table, 243M is 243 million; `shapleymix import` multiplies columns"
_FEWEST_TOKENS, _MOST_TOKENS = 0.2, 1e6
"""Tokens of a run for each parameter: published ones have .3, in a study of repeated tokens, to 15,000."""
_SURELY_TOO_FEW, _SMALLEST = 1e-3, 1e3
"""Tokens of a run for each parameter, and parameters, that no run has by itself, not even one that crashed at once."""
_APART = 0.05
"""Nats between some other losses from which a mean of theirs is no loss like them."""
_SUM_HINT = (
    f"ratios of a row are parts of 1; within {ROUNDED:g} they are renormalised; `shapleymix import --map "
    "ratio_unit=weights` divides weights of any sum"
)
_PERCENT_HINT = "divide them by 100, or read the table with `shapleymix import --map ratio_unit=percent`"
_RULES = {
    "N": (1.0, 1e14, "N counts non-embedding parameters, such as 243M"),
    "D": (1.0, 1e16, "D counts tokens, such as 100B; 0 is an untrained model"),
    "p_": (0.0, np.inf, None),
    "tokens_": (0.0, np.inf, None),
    LATE: (0.0, 1 + EXACT, None),
    UNIQUE: (1.0, np.inf, "leave the cell empty where the run had more text than it read"),
    "loss_": (*LOSSES, "losses are nats per token; `shapleymix import` converts perplexity and bits"),
    "weight": (0.0, np.inf, None),
    "learning_rate": (1e-12, 1e3, "give the largest learning rate of the run"),
    "batch_tokens": (1.0, 1e12, "give the tokens of a step, or its sequences, in all rows alike"),
    "schedule": (1.0, 1e16, "the schedule counts tokens, as D; leave it empty where a run did not end"),
}
"""Least and largest number of a column, and what to do; columns of amounts may be typed as sizes."""
_SIZES = ("N", "D", "tokens_", UNIQUE, "schedule", "batch_tokens")


def read_runs(
    tables: Table | Sheet | RunLog | Sequence[Table | RunLog], *, losses: LossUse = "required", origin: str = "<memory>"
) -> RunLog:
    """Read a run log, or several as one.

    A row is a model at a token count: `run`, `N`, `D`, `p_<source>` or `tokens_<source>`, `loss_<target>` in nats a
    token, and optionally `tokens_unique_<source>`, `weight`, `split`, `seed`, and `schedule` (tokens at which the
    learning-rate schedule of the run ends) or `final` (1 where it has ended, 0 before); by default the last row of a
    run is its end; `learning_rate`, the largest of a run; `batch`, the tokens or sequences of one of its steps; and
    `tokenizer`, its name, one for all rows. Rows whose ratios miss a sum of one by at most 5e-3 are renormalised, which
    a notice says. Of a run in phases, `p1_<source>` and `D1`, `p2_<source>` and `D2` and so on
    stand in place of `p_<source>` and `D`, and are summed.

    Parameters
    ----------
    tables : Table, RunLog, or a sequence of them
        A path (CSV, `.csv.gz`, Parquet, JSONL), `-` for standard input, a frame, a mapping of columns, a log that was
        read, or a list of these.
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
    logs = [one if isinstance(one, RunLog) else _parse(read_sheet(one, origin), need) for one in as_list(tables)]
    return concat(logs, losses=losses)


def _sum_phases(sheet: Sheet) -> Sheet:
    """The sheet of runs that were trained in phases, `p1_<source>` on `D1` tokens and so on, with their sums.

    The ratios of the last phase are kept beside them, as `late_<source>`.
    """
    known = ((name, re.fullmatch(r"p([1-9])_(.+)", name)) for name in sheet.columns)
    named = {name: found for name, found in known if found and f"D{found[1]}" in sheet.columns}
    phases = sorted({int(found[1]) for found in named.values()})
    if not phases:
        return sheet
    labels = list(dict.fromkeys(found[2] for found in named.values()))
    sheet.need([f"D{n}" for n in range(1, 10) if any(f"p{n}_{label}" in sheet.columns for label in labels)])
    if phases != list(range(1, len(phases) + 1)):
        sheet.fault(f"has phases {', '.join(map(str, phases))}, and they are counted from 1")
    for name in ("D", *(f"{prefix}{label}" for prefix in ("p_", "tokens_") for label in labels)):
        if name in sheet.columns:
            sheet.fault("stands beside phases, of which it is the sum", None, name, "remove it, or the phases")
    sheet.raise_faults()
    tokens = np.stack([sheet.numbers(f"D{n}", sizes=True) for n in phases])  # (phases, R)
    for n, amount in zip(phases, tokens, strict=True):
        sheet.refuse(amount < 0, f"D{n}", amount, "expected 0 or more")
    each = [[sheet.numbers(f"p{n}_{label}", empty=True) for label in labels] for n in phases]
    p, D = np.where(tokens[:, None] > 0, np.nan_to_num(each), 0.0), tokens.sum(axis=0)  # (phases, M, R)
    for n, total, amount in zip(phases, p.sum(axis=1), tokens, strict=True):
        off = (amount > 0) & (np.abs(total - 1) > ROUNDED)
        sheet.refuse(off, f"p{n}_{labels[0]}", total, f"the sum of the ratios of phase {n}, expected 1")
    whole, several = np.einsum("nr,nmr->mr", tokens, p) / np.maximum(D, 1.0), (tokens > 0).sum(axis=0) > 1
    last = p[np.argmax((tokens > 0) * np.arange(1, len(phases) + 1)[:, None], axis=0), :, np.arange(len(D))].T
    gone = {*named, *(f"D{n}" for n in phases)}
    kept = {name: cells for name, cells in sheet.columns.items() if name not in gone}
    made = {"D": D} | {f"p_{label}": whole[place] for place, label in enumerate(labels)}
    made |= {f"{LATE}{label}": np.where(several, last[place], np.nan) for place, label in enumerate(labels)}
    return replace(sheet, columns=kept | {name: pl.Series(name, values) for name, values in made.items()})


def _parse(sheet: Sheet, need_losses: bool) -> RunLog:
    """The run log in a sheet."""
    sheet = _sum_phases(sheet)
    roles = _roles_of(sheet, need_losses)
    sheet.raise_faults()
    log = _parse_rows(sheet, roles)
    sheet.once(zip(log.runs, log.D.tolist(), strict=True), "run {!r} at D = {:g}", "run", "give each model its own id")
    if need_losses and not sheet.faults:
        _require_models(sheet, log)
        _refuse_means(sheet, log)
    sheet.raise_faults()
    return log


def _roles_of(sheet: Sheet, need_losses: bool) -> dict[str, dict[str, str]]:
    """The columns of each prefix by label; labels that cannot be used are faults, and columns that a log must have."""
    found: dict[str, dict[str, str]] = {prefix: {} for prefix in PREFIXES}
    for column in sheet.columns:
        prefix = next((prefix for prefix in PREFIXES if column.startswith(prefix)), None)
        if prefix is not None:
            label = column.removeprefix(prefix)
            found[prefix][label] = column
            if problem := check_label(label):
                sheet.fault(f"the label {label!r} of column {column!r} {problem}", None, column)
    if "loss" in sheet.columns and not found["loss_"]:
        found["loss_"]["loss"] = "loss"
    sheet.need(["N"] if found["tokens_"] else ["N", "D"], _NAMED_LIKE)
    if need_losses and not found["loss_"]:
        sheet.fault("has no loss_<target> column", None, "loss", _NAMED_LIKE)
    if found["p_"] and found["tokens_"]:
        sheet.fault("has both p_ and tokens_ columns", None, "tokens", "keep one of the two kinds")
    sources = found["p_"] or found["tokens_"]
    for label, column in (*found[UNIQUE].items(), *found[LATE].items()):
        if label not in sources:
            sheet.fault(f"{column!r} is of a source that has no ratios", None, column, did_you_mean(label, sources))
    return found


def _parse_rows(sheet: Sheet, roles: Mapping[str, Mapping[str, str]]) -> RunLog:
    notices: list[str] = []
    sources, losses = roles["p_"] or roles["tokens_"], roles["loss_"]
    written = _matrix(sheet, sources.values(), "tokens_" if roles["tokens_"] else "p_")
    if roles["tokens_"]:
        total = row_sums(np.nan_to_num(written))
        D, written = _tokens_seen(sheet, total), written / np.where(total > 0, total, 1.0)[:, None]
    else:
        D = _column(sheet, "D", "D")
    p = _check_ratios(sheet, [*sources.values()], written, D, notices)
    taken = {*_SINGLE, *(column for columns in roles.values() for column in columns.values())}
    if ignored := [name for name in sheet.columns if name not in taken]:
        renamed = ", and batch_tokens is now called batch" * ("batch_tokens" in ignored)
        notices.append(f"ignored the column{'s' * (len(ignored) > 1)} {short(ignored)}{renamed}")
    alone, unread = [name for name in sources if name not in losses], [name for name in losses if name not in sources]
    shared = len(sources) - len(alone)
    if alone and unread and 2 * shared >= max(len(sources), len(losses)):
        notices.append(f"no loss is of {short(alone)}, and no ratio of {short(unread)}: is one a typo?")
    limits, last = ([f"{prefix}{label}" for label in sources] for prefix in (UNIQUE, LATE))
    numbers = {name: one for name, one in _NUMBERS.items() if one in sheet.columns}
    log = RunLog(
        runs=sheet.texts("run") if "run" in sheet.columns else ("",) * sheet.rows,
        N=_column(sheet, "N", "N"),
        D=D,
        p=p,
        loss=_matrix(sheet, losses.values(), "loss_"),
        sources=tuple(sources),
        targets=tuple(losses),
        split=_words(sheet, "split", SPLITS),
        seed=sheet.texts("seed", empty=True) if "seed" in sheet.columns else None,
        unique=_matrix(sheet, limits, UNIQUE) if roles[UNIQUE] else None,
        late=_matrix(sheet, last, LATE) if roles[LATE] else None,
        tokenizer=sheet.texts("tokenizer", empty=True) if "tokenizer" in sheet.columns else None,
        **{name: _column(sheet, one, name, empty=name != "weight") for name, one in numbers.items()},
        origin=sheet.origin,
        digest=sheet.digest,
        notices=tuple(notices),
        lines=sheet.lines,
        files=(Origin(sheet.origin, sheet.digest),),
        parents={},
    )
    log = log if "run" in sheet.columns else _with_ids(log)
    for row in np.flatnonzero(log.ends < 0.99 * log.D).tolist() if log.schedule is not None else ():
        sheet.fault(f"schedule = {log.ends[row]:g} ends before D = {D[row]:g}", row, "schedule", _RULES["schedule"][2])
    marks = None if log.schedule is not None else _words(sheet, "final", MARKS)
    return log if marks is None else replace(log, schedule=log.ends_by(np.isin(marks, ("1", "true", "True"))))


def _column(sheet: Sheet, column: str, rule: str, *, empty: bool = False) -> FloatArray:
    """A column (R,) of numbers that keep a rule; a D of 0 is one of an untrained model."""
    low, high, hint = _RULES[rule]
    values = sheet.numbers(column, empty=empty, sizes=rule in _SIZES)
    wrong = ((values < low) | (values > high)) & ~((values == 0) & (rule == "D"))
    expected = f"{low:g} to {high:g}" if np.isfinite(high) else f"{low:g} or more"
    sheet.refuse(wrong, column, values, f"expected {expected}", hint)
    return values


def _matrix(sheet: Sheet, columns: Collection[str], rule: str) -> FloatArray:
    """Columns side by side (R, labels), in row-major order; NaN where a cell is empty, or there is no column."""
    cells = [_column(sheet, column, rule, empty=True) for column in columns]
    return np.array(cells).reshape(len(columns), sheet.rows).T.copy()


def _tokens_seen(sheet: Sheet, total: FloatArray) -> FloatArray:
    """D (R,): as given, or the sum of the sources' tokens; where both are there they must agree to 0.5%."""
    D = _column(sheet, "D", "D", empty=True)
    for row in np.flatnonzero(np.abs(D - total) > ROUNDED * np.maximum(D, total)).tolist():
        sheet.fault(f"D = {D[row]:g}, but the tokens_ columns sum to {total[row]:g}", row, "D")
    return np.where(np.isnan(D), total, D)


def _check_ratios(
    sheet: Sheet, columns: Sequence[str], written: FloatArray, D: FloatArray, notices: list[str]
) -> FloatArray:
    """Ratios (R, M) that sum to one, or to zero in the row of an untrained model."""
    if not columns:
        return written
    blank, trained = np.isnan(written), D != 0
    p = np.where(blank, 0.0, written)
    for row, index in np.argwhere(blank & trained[:, None]).tolist():
        if sheet.is_empty(row, columns[index]):
            sheet.fault("is empty", row, columns[index], "write 0 for a source that is not in use")
    sums = row_sums(p)
    off = np.abs(sums - 1)
    clean = ~blank.any(axis=1) & (p >= 0).all(axis=1)
    names = " + ".join(columns) if len(columns) <= 6 else f"{columns[0]} + ... + {columns[-1]} ({len(columns)} columns)"
    wrong = np.flatnonzero((off > ROUNDED) & np.where(trained, clean, sums > 0)).tolist()
    if wrong and (np.abs(sums[clean & trained] - 100) <= 100 * ROUNDED).all():
        sheet.fault(f"all {len(wrong)} rows sum to 100: these are percent", wrong[0], hint=_PERCENT_HINT)
        wrong = []
    for row in wrong:
        sheet.fault(f"{names} = {sums[row]:.6g}, expected 1", row, hint=_SUM_HINT)
    rounded = off[(off > EXACT) & (off <= ROUNDED)]
    if rounded.size:
        notices.append(
            f"ratios of {rounded.size} of {len(p)} rows were renormalised, off by at most {rounded.max():.2g}"
        )
    return np.where((off <= ROUNDED)[:, None], renormalise(p), p)


def _words(sheet: Sheet, column: str, allowed: tuple[str, ...]) -> tuple[str, ...] | None:
    """A column (R,) of some words; None where there is none."""
    if column not in sheet.columns:
        return None
    found = sheet.texts(column)
    for row, value in enumerate(found):
        if value and value not in allowed:
            sheet.fault(f"{column} is {value!r}", row, column, f"write {' or '.join(allowed[:2])}")
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
    return replace(log, runs=tuple(found), notices=(*log.notices, f"the table has no column run: {each}"))


def _refuse_means(sheet: Sheet, log: RunLog) -> None:
    """A column that is the mean of all other losses would count each of them twice."""
    for place, name in enumerate(log.targets if len(log.targets) > 2 and len(log) > 2 else ()):
        others = np.delete(log.loss, place, axis=1)
        if np.ptp(others, axis=1).max() > _APART and np.allclose(log.loss[:, place], others.mean(axis=1), 1e-4, 0.0):
            hint = "leave the column out: it counts every target twice"
            sheet.fault("is the mean of the other losses in every row", None, f"loss_{name}", hint)


def _require_models(sheet: Sheet, log: RunLog) -> None:
    """What no language models have: N or D in other units, in all rows or in some, or in each other's place."""
    N, D, ratio = log.N, log.D[log.trained], log.ends_by(None) / log.N
    if not D.size:
        return
    if np.median(D / N[log.trained]) < _FEWEST_TOKENS:
        sizes = f"N is {format_range(N)} parameters and D {format_range(D)} tokens"
        sheet.fault(f"{sizes}: no model is trained on so few tokens; N and D may be swapped", hint=_UNIT_HINT)
        return
    for row in np.flatnonzero(log.trained & ((ratio < _SURELY_TOO_FEW) | (ratio > _MOST_TOKENS) | (N < _SMALLEST))):
        sizes = f"N is {format_size(N[row])} parameters and D {format_size(log.D[row])} tokens"
        sheet.fault(f"{sizes}: no model is so small for its tokens, or trained on so few", int(row), None, _UNIT_HINT)
