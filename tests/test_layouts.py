"""Tables as other programs write them: other marks, decimals, encodings, other JSON; one log all the same."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shapleymix as sm
from shapleymix.errors import DataError
from shapleymix.tables.cells import Layout
from shapleymix.tables.separated import read_separated

ROWS = [
    {"run": "a", "N": 1000000, "D": 20000000, "p_en": 0.25, "p_de": 0.75, "loss_en": 3.125, "loss_de": 2.5},
    {"run": "b, 2", "N": 1000000, "D": 40000000, "p_en": 0.5, "p_de": 0.5, "loss_en": 2.875, "loss_de": 2.0625},
]
TABLE = pl.DataFrame(ROWS)


def text(sep: str, decimal: str = ".") -> str:
    plain = TABLE.write_csv(separator=sep, quote_style="necessary")
    return plain if decimal == "." else TABLE.write_csv(separator=sep, decimal_comma=True)


def same(found: sm.RunLog) -> bool:
    wanted = sm.read_runs(ROWS)
    return (
        found.runs == wanted.runs
        and found.targets == wanted.targets
        and all(np.array_equal(getattr(found, name), getattr(wanted, name)) for name in ("N", "D", "p", "loss"))
    )


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize(
    ("sep", "decimal"), [(",", "."), (",", ","), (";", "."), (";", ","), ("\t", "."), ("\t", ","), ("|", ",")]
)
def test_marks_and_encodings_are_seen(sep: str, decimal: str, encoding: str, tmp_path: Path) -> None:
    """Semicolons, tabs and UTF-16 were refused, where other programs just read them."""
    path = tmp_path / "runs.csv"
    path.write_bytes(text(sep, decimal).encode(encoding))
    found = sm.read_runs(path)
    assert same(found)
    told = " ".join(found.notices)
    assert ("decimals are written with commas" in told) == (decimal == ",")
    assert ("columns are separated by" in told) == (sep != ",")
    assert ("the text is UTF-16" in told) == encoding.startswith("utf-16")


@pytest.mark.parametrize(
    "content",
    [
        json.dumps(ROWS),
        json.dumps(ROWS, indent=1),
        "\n".join(json.dumps(row) for row in ROWS),
        TABLE.write_json(),
        json.dumps(TABLE.to_dict(as_series=False), indent=2),
        json.dumps({name: dict(enumerate(column)) for name, column in TABLE.to_dict(as_series=False).items()}),
        json.dumps(ROWS).replace(".", ","),
    ],
    ids=["array", "indented", "lines", "polars", "columns", "pandas", "commas between numbers"],
)
def test_json_in_its_usual_forms(content: str, tmp_path: Path) -> None:
    """Arrays and objects of columns were refused as broken lines."""
    path = tmp_path / "runs.json"
    path.write_text(content)
    if "0,25" in content:
        with pytest.raises(DataError, match="is not valid JSON"):
            sm.read_runs(path)
    else:
        assert same(sm.read_runs(path))


def test_a_fault_in_a_json_array_has_its_line(tmp_path: Path) -> None:
    path = tmp_path / "runs.json"
    path.write_text(json.dumps([ROWS[0], {**ROWS[1], "N": -1}], indent=1))
    with pytest.raises(DataError, match=r"runs.json:11 \[N\]: N = -1"):
        sm.read_runs(path)


def test_an_object_within_a_row_is_columns(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text('{"a": {"b": 1, "c": {"d": 2}}, "e": 3}\n{"e": 4}\n')
    with pytest.raises(DataError) as caught:
        sm.read_runs(path)
    assert "has no column 'N'" in str(caught.value)


@pytest.mark.parametrize(
    ("cells", "decimal"),
    [
        (["0,25", "1"], ","),
        (["1,234", "2"], "."),  # of two kinds: the reader of numbers will ask
        (["1,234", "0,5"], ","),
        (["1.234", "0,5"], ","),
        (["0.5", "0,5"], "."),
        (["1.234,5", "7"], ","),
        (["1,234.5", "7"], "."),
        (["a, b", "1"], "."),
        (["-,5", "1"], ","),
        (["2,5e-3", "1"], ","),
        (["0,125", "1"], ","),
    ],
)
def test_which_decimal_mark(cells: list[str], decimal: str) -> None:
    found = read_separated("x;y\n" + "".join(f"{cell};1\n" for cell in cells), "t.csv", Layout())
    assert found.decimal == decimal


def test_a_number_that_could_be_two_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("run;N;D;p_en;loss_en\na;1000000;20000000;1;2,125\n")
    with pytest.raises(DataError, match="say that commas are decimal marks"):
        sm.read_runs(path)
    path.write_text("run;N;D;p_en;loss_en\na;1000000;20000000;0,5;2.5\nb;1,5M;20000000;1;2,125\n")
    with pytest.raises(DataError, match="is not a number"):
        sm.read_runs(path)


def test_semicolons_inside_of_names_stay_there(tmp_path: Path) -> None:
    """The header alone was counted: two bars in names beside one comma were taken for separators."""
    path = tmp_path / "runs.csv"
    path.write_text("run,N,D,p_a|b|c;d|e\na,1M,1M,1\n")
    assert sm.read_runs(path, losses="optional").sources == ("a|b|c;d|e",)


@settings(deadline=None, max_examples=60)
@given(
    numbers=st.lists(st.floats(0.001, 900, allow_nan=False).map(lambda x: round(x, 5)), min_size=4, max_size=12),
    sep=st.sampled_from([",", ";", "\t", "|"]),
    comma=st.booleans(),
)
def test_numbers_come_back_or_are_asked_for(numbers: list[float], sep: str, comma: bool) -> None:
    """Never another number: whatever is written with a comma is read as it was, or refused."""
    frame = pl.DataFrame({"run": [f"r{k}" for k in range(len(numbers))], "loss": numbers}).with_columns(
        N=pl.lit(1e6), D=pl.lit(1e7)
    )
    written = frame.write_csv(separator=sep, decimal_comma=comma)
    from shapleymix.files import Origin
    from shapleymix.tables.run_reading import parse_runs
    from shapleymix.tables.sheets import sheet_of

    try:
        log = parse_runs(sheet_of(written.encode(), Origin("t.csv", "")), need_losses=True)
    except DataError:
        assert comma
        return
    assert log.loss[:, 0].tolist() == numbers
