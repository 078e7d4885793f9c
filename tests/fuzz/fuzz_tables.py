"""Damaged tables: refused with file and line, or read as another reader reads them."""

from __future__ import annotations

import csv
import io
import itertools
import math
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from campaign import Campaign
from hypothesis import strategies as st
from workshop import folder

from shapleymix.errors import ShapleyMixError
from shapleymix.tables.languages import read_languages
from shapleymix.tables.run_reading import read_runs
from shapleymix.tables.transfer_reading import read_transfer

CAMPAIGN = Campaign("damaged tables")
READERS = {"runs.csv": read_runs, "coalitions.csv": read_runs, "sv.csv": read_transfer, "languages.csv": read_languages}
CELLS = (
    "", " ", "nan", "NaN", "inf", "-inf", "-1", "0", "1", "1e400", "1e-400", "1e308", "0x10", "1,5", "1_000", "½", "٣",
    "243M", "1e3B", "M", "--", "NULL", "None", "true", "=1+1", '"', "''", "\x00", "\x1b[31mred", "9" * 400, "a" * 9000,
    "en", "p_en", "\u202eabc", "\ud7ff", "0.2 ", "+0.2", "1.0000000000000002",
)  # fmt: skip
DAMAGES = (
    "cell", "cell", "cell", "header", "drop cell", "drop row", "repeat row", "drop column", "repeat column",
    "swap columns", "bytes", "truncate", "bom", "crlf", "blank line", "quote", "latin", "semicolons", "comment",
    "utf16", "extra cell",
)  # fmt: skip
COUNT = 3000


@dataclass(frozen=True)
class Damage:
    """What is done, where (numbers that are taken modulo the table's size), and with which text."""

    kind: str
    row: int
    column: int
    text: str


@dataclass(frozen=True)
class Case:
    """A table and what is done to it."""

    table: str
    damages: tuple[Damage, ...]

    def content(self) -> bytes:
        """The damaged file."""
        data = (folder() / self.table).read_bytes()
        for damage in self.damages:
            data = damaged(data, damage)
        return data


def cases() -> st.SearchStrategy[Case]:
    place = st.integers(0, 10_000)
    text = st.one_of(st.sampled_from(CELLS), st.text(max_size=6), st.floats().map(repr), st.integers().map(str))
    damage = st.builds(Damage, st.sampled_from(DAMAGES), place, place, text)
    return st.builds(Case, st.sampled_from(sorted(READERS)), st.lists(damage, min_size=1, max_size=4).map(tuple))


def damaged(data: bytes, what: Damage) -> bytes:
    """One damage done to a file's bytes."""
    if what.kind in BYTES:
        return BYTES[what.kind](data, what)
    rows = [line.split(",") for line in data.decode("utf-8", "replace").split("\n")]
    r = what.row % len(rows)
    c = what.column % len(rows[r])
    other = (c + 1) % len(rows[r])
    if what.kind == "cell":
        rows[r][c] = what.text
    elif what.kind == "header":
        rows[0][what.column % len(rows[0])] = what.text
    elif what.kind == "drop cell":
        del rows[r][c]
    elif what.kind == "extra cell":
        rows[r].insert(c, what.text)
    elif what.kind == "drop row":
        del rows[r]
    elif what.kind == "repeat row":
        rows.insert(r, list(rows[r]))
    elif what.kind == "blank line":
        rows.insert(r, [""])
    elif what.kind == "comment":
        rows.insert(r, ["# " + what.text])
    elif what.kind == "quote":
        rows[r][c] = f'"{rows[r][c]}"'
    else:
        rows = [columns_changed(row, what.kind, c, other) for row in rows]
    return "\n".join(",".join(row) for row in rows).encode("utf-8", "surrogatepass")


def columns_changed(row: list[str], kind: str, c: int, other: int) -> list[str]:
    """A row with a column dropped, repeated or exchanged for another."""
    if max(c, other) >= len(row):
        return row
    if kind == "drop column":
        return row[:c] + row[c + 1 :]
    if kind == "repeat column":
        return [*row, row[c]]
    changed = list(row)
    changed[c], changed[other] = row[other], row[c]
    return changed


BYTES = {
    "bytes": lambda data, what: _inserted(data, what.row * 31, bytes([what.column % 256])),
    "truncate": lambda data, what: data[: what.row % (len(data) + 1)],
    "bom": lambda data, what: b"\xef\xbb\xbf" + data,
    "crlf": lambda data, what: data.replace(b"\n", b"\r\n"),
    "latin": lambda data, what: _inserted(data, what.row * 31, b"\xe9"),
    "semicolons": lambda data, what: data.replace(b",", b";"),
    "utf16": lambda data, what: data.decode("utf-8", "replace").encode("utf-16"),
}


def _inserted(data: bytes, place: int, piece: bytes) -> bytes:
    at = place % (len(data) + 1)
    return data[:at] + piece + data[at:]


def trial(case: Case) -> tuple[str, dict[str, float]]:
    """Refused by name, or read as Python's own reader reads it."""
    data = case.content()
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / case.table
        path.write_bytes(data)
        try:
            table = READERS[case.table](str(path))
        except ShapleyMixError as error:
            refusal = error
        else:
            return same_as_another_reader(case.table, data, table), {}
    text = str(refusal)
    assert case.table in text, f"does not name the file: {text[:200]}"
    assert not any(ord(character) < 32 and character != "\n" for character in text), f"raw control: {text[:200]!r}"
    return f"refused: {type(refusal).__name__}", {}


def same_as_another_reader(name: str, data: bytes, table) -> str:
    """Hold what was read to the cells, as the csv module sees them."""
    lines = io.StringIO(data.decode("utf-8-sig"), newline="")
    body = itertools.dropwhile(lambda line: not line.strip(), (line for line in lines if not line.startswith("#")))
    rows = list(csv.DictReader(body))
    rows = [row for row in rows if any(value not in (None, "") for value in row.values())]
    if name == "languages.csv":
        assert tuple(row["language"].strip() for row in rows) == tuple(table.names)
    elif name == "sv.csv":
        if "sv" not in rows[0]:
            return "read, as normalized values"
        pairs = {(row["source"].strip(), row["target"].strip()): float(row["sv"]) for row in rows}
        for i, source in enumerate(table.sources):
            for j, target in enumerate(table.targets):
                assert math.isclose(pairs[source, target], table.sv[i, j]), f"sv of {source}, {target}"
    else:
        same_runs(rows, table)
    return "read, as another reader reads it"


def same_runs(rows: list[dict[str, str]], log) -> None:
    """Every loss where it belongs, every mixture a mixture."""
    assert len(log.runs) == len(rows), f"{len(log.runs)} rows of {len(rows)}"
    sums = log.p.sum(axis=1)
    assert np.all((np.abs(sums - 1) < 1e-9) | (sums == 0)), "a mixture does not sum to one"
    assert (log.p >= 0).all()
    assert (log.N > 0).all()
    for j, target in enumerate(log.targets):
        column = "loss" if target == "loss" and f"loss_{target}" not in rows[0] else f"loss_{target}"
        for r, row in enumerate(rows):
            cell = (row[column] or "").strip()
            try:
                expected = float(cell) if cell else math.nan
            except ValueError:
                continue
            read = float(log.loss[r, j])
            assert math.isclose(read, expected) or (math.isnan(read) and not expected > 0), f"{column} {r}: {cell!r}"


def test_a_damaged_table_is_refused_by_name_or_read_rightly() -> None:
    folder()
    CAMPAIGN.run(COUNT, cases(), trial)
