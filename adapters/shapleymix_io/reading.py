"""Other tools' logs as a run log: one map says which column is what, and nothing is taken that is no model's."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
import polars as pl

from shapleymix.errors import DataError, Location, UsageError, caution
from shapleymix.files import Origin
from shapleymix.tables.run_reading import read_runs
from shapleymix.tables.sheets import Sheet, as_list, read_sheet
from shapleymix.tables.words import parse_size
from shapleymix_io.column_map import LONG, NEEDED, PHASES, PREFIXES, SINGLE, ColumnMap, Map, One, factors, is_named
from shapleymix_io.forms import Source
from shapleymix_io.meaning import counts_from_zero, groups_of, misfits, native, numbers_of, summary_rows
from shapleymix_io.names import counts_steps
from shapleymix_io.olmix import OLMIX
from shapleymix_io.sources import gather
from shapleymix_io.stores import Progress
from shapleymix_io.table import FILE, HIDDEN, LANG, LINE, PATH, Swarm, Table

TEXTS = ("run", "seed", "split", "tokenizer")
_OLMIX_LACKS = {"N": "N=30M", "D": "D=3B", "unit": "unit=bpb"}
"""What olmix's files may not say of runs, as one would type it."""
_JUDGED = {"p": "loss", "loss": "p", "tokens": "loss"}
"""Keys whose columns are judged by what they hold, and the key that has the same labels."""
Sources = Source | Sequence[Source]


@dataclass(frozen=True)
class Imported:
    """A run log that was read from other tools.

    Attributes
    ----------
    frame : polars.DataFrame
        Its rows, in the columns that `shapleymix.read_runs` reads.
    sheet : Sheet
        The same, with the line and the file that each row stands in, which the faults of `read_runs` name.
    taken : dict
        What each thing of a log was taken from.
    notices : tuple of str
        What was left out or changed.
    files : tuple of Origin
        The files that were read, with their hashes.
    swarm : Swarm, optional
        What a configuration beside the runs says.
    """

    frame: pl.DataFrame
    sheet: Sheet
    taken: dict[str, str]
    notices: tuple[str, ...]
    files: tuple[Origin, ...]
    swarm: Swarm | None


def read(source: Sources, map: Map | None = None, *, join: Sources = ()) -> pl.DataFrame:
    """The runs that another tool keeps, in the columns that `shapleymix.read_runs` reads.

    Parameters
    ----------
    source : Sources
        One or several: a table (CSV, Parquet, JSON, a polars.DataFrame), a `trainer_state.json`, a log of Megatron, a
        folder of TensorBoard events or of olmix, an MLflow store (`sqlite:///mlflow.db`), or `wandb:ENTITY/PROJECT`.
    map : Map, optional
        Which column is what: a mapping, or texts such as `"loss=eval/loss/{lang}"`.
    join : Sources
        Tables with a row a run, such as its N and ratios, joined by the ids of runs.

    Raises
    ------
    DataError
        With every fault of a table: its file, line, column, and what to do.
    UsageError
        If the map is none.
    """
    found = imported(as_list(source), ColumnMap.of(map), as_list(join))
    read_runs(found.sheet, losses="optional")  # its faults name the lines of the files
    caution(found.notices)
    return found.frame


def imported(
    sources: Sequence[Source], how: ColumnMap, join: Sequence[Source] = (), progress: Progress | None = None
) -> Imported:
    """The same with what it was taken from, without warnings."""
    table, how = gather(sources, how, join, progress)
    is_long = not how.columns.keys().isdisjoint(LONG)
    return _Columns(*(widen(table, how) if is_long else (table, how))).log()


def widen(table: Table, how: ColumnMap) -> tuple[Table, ColumnMap]:
    """The wide table of one with a row for each run and language, or each number; and what of the map is left to do.

    Rows that agree in all that the map names of a run (`run`, `N`, `D`, ...) belong together. A source that a run has
    no row for has ratio 0.

    Raises
    ------
    DataError
        If a column is not there, or a run has a language twice.
    """
    by_name = "name" in how.columns or "value" in how.columns
    label = str(how.columns.get("name" if by_name else "language", "name"))
    plain = {key: str(one) for key in PREFIXES if isinstance(one := how.columns.get(key), str) and LANG not in one}
    values = {"": str(how.columns.get("value", "value"))} if by_name else plain
    table.need((label, *values.values()), "of a long table")
    called = table.texts(label) if by_name else table.texts(label).replace(dict(how.languages))
    frame = table.frame.with_columns(called.alias(label)).filter(~table.texts(label).is_in(how.ignore))
    table = replace(table, frame=frame)
    own = (f"{prefix}{LANG}" for key, prefix in PREFIXES.items() if key not in how.columns)
    whole = [*how.columns.values(), *SINGLE, *own]
    same = [name for name in table.columns if name not in (label, *values.values()) and is_named(name, whole)]
    for row in frame.select(pl.struct(label, *same).is_duplicated()).to_series().arg_true():
        table.fault(
            f"{frame[label][row]!r} comes twice for one run and D", label, row, "map run=COLUMN tells runs apart"
        )
    table.raise_faults()
    cells = [
        pl.col(column).filter(pl.col(label) == name).first().alias(f"{PREFIXES.get(key, '')}{name}")
        for key, column in values.items()
        for name in frame[label].drop_nulls().unique(maintain_order=True)
    ]
    ours = [pl.col(name).first() for name in frame.columns if name.startswith(HIDDEN)]
    wide = frame.group_by(same, maintain_order=True).agg(*cells, *ours)
    shares = tuple(PREFIXES[key] for key in ("p", "tokens", "unique") if key in values)
    wide = wide.drop([one.name for one in wide if shares and one.name.startswith(shares) and one.is_null().all()])
    left = {key: one for key, one in how.columns.items() if key not in (*LONG, *values)}
    return replace(table, frame=wide), replace(how, columns=left, languages=how.languages if by_name else {})


class _Columns:
    """The columns of a table, taken by a map."""

    def __init__(self, table: Table, how: ColumnMap) -> None:
        self.table, self.how = table, how
        self.notices = list(table.notices)
        self.taken: dict[str, str] = {}
        self.names = table.called

    def log(self) -> Imported:
        """The rows of a run log that have a loss."""
        single = {key: how for key in SINGLE if (how := self._single(key)) is not None}
        claimed = {part for how in single.values() for part in (str(how), *factors(str(how)))} | set(self.how.ignore)
        claimed |= {name for one in self.how.ignore for name in self.table.matching(one).values()}
        found: dict[str, Mapping[str, One]] = {}
        # of two patterns that match a column, it belongs to the more exact one
        for key in sorted(PREFIXES, key=lambda key: -len(str(self.how.columns.get(key, PREFIXES[key])))):
            found[key] = self._by_language(key, claimed)
        self._require(single, found)
        self.table.raise_faults()
        found |= self._without_misfits(found)
        self._leave_out_summaries(single.get("run"), [*found["p"].values(), *found["loss"].values()])
        targets = found["loss"].keys()
        if targets and all(map(str.isdigit, targets)) and targets.isdisjoint(found["p"]):
            self.notices.append("losses are numbered and match no source: map languages.0=... names them")
        loss = self._in_nats(self._with_losses(self._all_cells("loss", found["loss"])))
        tokens = {} if found["p"] else self._all_cells("tokens", found["tokens"])
        parts = {key: self._ratios(self._all_cells(key, found[key])) for key in ("p", *PHASES) if found[key]}
        parts |= {"tokens": {label: one.fill_null(0.0) for label, one in tokens.items()}}
        parts |= {"unique": self._all_cells("unique", found["unique"]), "loss": loss}
        columns = {key: self._cells(key, how) for key, how in single.items()}
        self.table.raise_faults()
        ahead = {name: columns[name] for name in ("run", "N", "D") if name in columns}
        named = {f"{PREFIXES[key]}{label}": one for key, part in parts.items() for label, one in part.items()}
        frame = pl.DataFrame({**ahead, **named, **columns})
        swarm = self.table.swarm
        if swarm and self.how.unit == "bpb":
            swarm = replace(swarm, bytes_per_token={name: self._bytes(name) for name in loss})
        rows = self.table.frame
        homes = rows[FILE].to_list() if FILE in rows.columns else ()
        sheet = replace(read_sheet(frame, self.table.origin), lines=rows[LINE].fill_null(0).to_numpy(), homes=homes)
        return Imported(frame, sheet, self.taken, (*self.notices,), self.table.files, swarm)

    def _without_misfits(self, found: Mapping[str, Mapping[str, One]]) -> dict[str, Mapping[str, One]]:
        """The columns of each key without those that are none by what they hold, which is said; others are refused."""
        plain = {key: {label: self.names.get(str(one), "") for label, one in found[key].items()} for key in _JUDGED}
        cells = numbers_of(self.table, [name for one in plain.values() for name in one.values() if name])
        p = [np.round(np.nan_to_num(cells[name]), 6) for name in plain["p"].values() if name in cells]
        mixtures, kept = groups_of(np.column_stack([np.zeros(self.table.frame.height), *p])), {}
        if self.names.get("run") == PATH and {"run", "p1"}.isdisjoint(self.how.columns):
            again = pl.struct(PATH, pl.Series(mixtures)).is_first_distinct() & ~pl.col(PATH).is_first_distinct()
            for row in self.table.frame.select(again).to_series().arg_true()[:1]:
                self.table.fault("holds several mixtures, so that it is no single run", None, row, "map run=COLUMN")
        for key, other in _JUDGED.items():
            known = {label: cells[name] for label, name in plain[key].items() if name in cells}
            odd = misfits(key, known, {*found[other], *self.how.languages.values()}, mixtures) if len(known) > 1 else {}
            refused = ",".join(plain[key][label] for label, (_, is_sure) in odd.items() if not is_sure)
            for label, (why, is_sure) in odd.items():
                if is_sure:
                    self.notices.append(f"{plain[key][label]!r} {why}: it is not taken")
                else:
                    hint = f"leave it out: map ignore={refused}; or name it: map languages.{label}={label}"
                    self.table.fault(f"{label!r} {why}, and no language", plain[key][label], hint=hint)
            kept[key] = {label: one for label, one in found[key].items() if label not in odd}
        self.table.raise_faults()
        return kept

    def _leave_out_summaries(self, run: One | None, columns: Sequence[One]) -> None:
        """Leave out rows that are means or the like of the others, and say so."""
        ids, named = self.names.get(str(run), self.table.columns[0]), [self.names.get(str(one), "") for one in columns]
        if (rows := pl.Series(summary_rows(self.table, ids, [*filter(None, named)]))).any():
            called = ", ".join(self.table.texts(ids).filter(rows).fill_null("without a name"))
            self.notices.append(f"left out rows that are means or the like of the others: {called}")
            self.table = replace(self.table, frame=self.table.frame.filter(~rows))

    def _single(self, key: str) -> One | None:
        """The column of one key; a form's own columns are taken by name alone where they are of a joined table."""
        own = key in self.table.columns and (key in self.table.homes or not self.table.kind or key in ("run", "N", "D"))
        usual = key if own and (key, "D1" in self.how.columns) != ("D", True) else None
        how = self.how.columns.get(key, "run" if key == "run" and PATH in self.table.columns else usual)
        if how is None or isinstance(how, Mapping):
            return None
        self.taken[key] = str(how)
        columns, factor = self._product(key, how)
        if key in ("D", *PHASES.values()) and len(columns) == 1 and factor is None and counts_steps(columns[0][0]):
            self.table.fault("seems to count steps, not tokens", columns[0][0], hint="D=COLUMN*512k, or *1 for tokens")
        return how

    def _cells(self, key: str, how: One) -> pl.Series:
        """The cells of a column, the product of several, or one number for all rows."""
        columns, factor = self._product(key, how)
        if not columns:
            return pl.Series([factor] * self.table.frame.height, dtype=pl.Float64)
        first, _ = columns[0]
        if key in TEXTS:
            return self.table.texts(first)
        values = reduce(operator.mul, [self.table.numbers(name) + more for name, more in columns])
        blank = values.is_null() & self.table.texts(first).is_null()
        for row in blank.arg_true() if key in ("N", "D") else ():
            self.table.fault(f"has no {key}", first, row)
        steps = [name for name, more in columns if key == "D" and counts_steps(name) and not more]
        if early := [name for name in steps if counts_from_zero(self.table.numbers(name).to_numpy())]:
            self.notices.append(f"the numbers of {early[0]!r} look counted from 0: then it is D=({early[0]}+1)*...")
        return values * (1.0 if factor is None else factor)

    def _all_cells(self, key: str, columns: Mapping[str, One]) -> dict[str, pl.Series]:
        """The cells of the columns of a key, by language."""
        return {label: self._cells(f"{key}.{label}", how) for label, how in columns.items()}

    def _product(self, key: str, how: One) -> tuple[list[tuple[str, int]], float | None]:
        """The columns that are multiplied, what is added to each, and the number; one for all rows has no column."""
        columns, factor = [], None
        for part in [str(how)] if str(how) in self.names else factors(str(how)):
            name = part if part in self.names else part.removesuffix("+1")
            try:
                if name in self.names:
                    columns.append((self.names[name], int(name != part)))
                else:
                    factor = parse_size(part) * (1.0 if factor is None else factor)
            except UsageError:
                self.table.unknown(part, key)
                return [], None
        return columns, factor

    def _by_language(self, key: str, claimed: set[str]) -> Mapping[str, One]:
        """The columns of a key by language; none of ratios where the map speaks of tokens or phases, and so on."""
        how, called = self.how.columns.get(key), self.how.languages
        rivals = {"p": ("tokens", "p1"), "tokens": ("p", "p1")}.get(key, ())
        if how is None and not self.how.columns.keys().isdisjoint(rivals):
            return {}
        if isinstance(how, Mapping):
            self.taken[key] = ", ".join(map(str, how.values()))
            return {called.get(label, label): one for label, one in how.items()}
        pattern = native(self.table, key, self.how) if how is None else str(how)
        found = {label: name for label, name in self.table.matching(pattern).items() if name not in claimed}
        alone = "loss" if how is None and "loss" in self.table.columns else pattern if LANG not in pattern else ""
        if key == "loss" and alone and not found:
            self.taken[key] = alone
            return {"all": alone}
        if how is not None and not found:
            hint = f"write {LANG} for the language, such as {key}_{LANG}; a long table needs language=COLUMN"
            self.table.unknown(pattern, key, None if LANG in pattern else hint)
        claimed |= {*found.values()}
        self.taken |= {key: f"{pattern} ({', '.join(found)})"} if found else {}
        named = {called.get(label, label): name for label, name in found.items()}
        if len(named) < len(found):
            self.table.fault(f"two languages of {pattern} have one name", hint="ignore one of them")
        return named

    def _require(self, columns: Mapping[str, One], found: Mapping[str, Mapping[str, One]]) -> None:
        """A fault for all that a log needs and has not; D may be the sum of tokens, or of phases."""
        usual = _OLMIX_LACKS if self.table.kind == OLMIX else {}
        there = {*columns, *(key for key, some in found.items() if some)}
        lacking = [key for key, keys in NEEDED.items() if there.isdisjoint(keys)]
        lacking += ["unit"] if usual and not self.how.unit else []
        if lacking and not self.table.faults:
            pairs = " ".join(f"--map {usual.get(key, f'{key}=...')}" for key in lacking)
            hint = f"--show proposes a map; or give {pairs}; or --join a table that has it"
            swarm = f"name the YAML of olmix launch too, or with the numbers of your runs add {pairs}"
            self.table.fault(f"nothing says which columns are {', '.join(lacking)}", hint=swarm if usual else hint)

    def _ratios(self, found: Mapping[str, pl.Series]) -> dict[str, pl.Series]:
        """Ratios as parts of one, an empty cell being none of it; `read_runs` judges their sums."""
        p = pl.DataFrame(found).fill_null(0.0).to_numpy(order="c")
        sums = p.sum(axis=1, keepdims=True)
        whole = {"fraction": 1.0, "percent": 100.0}.get(self.how.ratio_unit, np.where(sums > 0, sums, 1.0))
        return {name: pl.Series(column) for name, column in zip(found, (p / whole).T, strict=True)}

    def _in_nats(self, found: Mapping[str, pl.Series]) -> dict[str, pl.Series]:
        """Losses in nats a token."""
        unit, known = self.how.unit or "nats", self.how.bytes_per_token
        if isinstance(known, Mapping) and (odd := [name for name in found if name not in known]):
            raise UsageError(f"map: bytes_per_token has no number of {odd[0]!r}", hint="give each target its number")
        least, nats, every = (1.0 if unit == "perplexity" else 0.0), {}, pl.concat(found.values())
        for name, values in found.items():
            for row in (values <= least).arg_true():
                self.table.fault(f"the loss of {name} is {values[row]:g}, expected more than {least:g}", None, row)
            factor = math.log(2) * self._bytes(name) if unit in ("bits", "bpb") else 1.0
            nats[name] = values.log() if unit == "perplexity" else values * factor
        if unit != "nats":
            now = "nats a byte" if unit == "bpb" and known is None else "nats"
            self.notices.append(f"losses were read as {unit}, {every.min():.4g} to {every.max():.4g}, now {now}")
        return nats

    def _bytes(self, target: str) -> float:
        """What the unit of a target's loss counts bits of: the bytes of a token, or the token itself."""
        known = self.how.bytes_per_token
        return known[target] if isinstance(known, Mapping) else known or 1.0

    def _with_losses(self, loss: Mapping[str, pl.Series]) -> dict[str, pl.Series]:
        """The losses of rows that have one: crashed runs, and steps at which none was measured, are left out."""
        found = pl.DataFrame(dict(loss)).select(pl.all().replace([math.inf, -math.inf], None))
        rows = found.select(pl.any_horizontal(pl.all().is_not_null())).to_series()
        if not rows.any():
            self.table.raise_faults()
            raise DataError("has no row with a loss", location=Location(self.table.origin))
        if left := rows.len() - rows.sum():
            self.notices.append(f"left out {left} of {rows.len()} rows, which have no loss")
        self.table = replace(self.table, frame=self.table.frame.filter(rows))
        return found.filter(rows).to_dict()
