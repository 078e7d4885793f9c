"""Run logs with faults: every one is named with its place, and no bytes break the reader."""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shapleymix.errors import DataError
from shapleymix.tables.run_reading import read_runs

HEADER = "run,N,D,p_en,p_de,loss_en,loss_de\n"


def faults_of(text: str | bytes, tmp_path, name: str = "runs.csv") -> DataError:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(DataError) as caught:
        read_runs(path)
    assert str(path) in str(caught.value)
    return caught.value


def test_every_fault_at_once_with_its_place(tmp_path):
    error = faults_of(
        HEADER
        + "a,1e6,1e9,.5,.5,2,3\n"
        + "b,-1,1e9,.5,.7,nan,0\n"
        + "c,x,-5,1.5,-.5,inf,\n"
        + "a,1e6,1e9,.5,.5,2,3\n"
        + "d,1_000,1B,,1,2,NA\n"
        + ',"1,5",5,1,0,1,1\n',
        tmp_path,
    )
    expected = [
        ":3 [N]: N = -1, expected more than 0",
        ":3: p_en + p_de = 1.2, expected 1",
        ":3 [loss_en]: loss_en is NaN",
        ":3 [loss_de]: loss_de = 0, expected more than 0",
        ":4 [N]: N is not a number: 'x'",
        ":4 [D]: D = -5, expected 0 or more",
        ":4 [p_de]: p_de = -0.5, expected 0 or more",
        ":4 [loss_en]: loss_en is infinite",
        ":5 [run]: repeats run 'a' at D = 1e+09 of line 2",
        ":6 [N]: N is not a number: '1_000'",
        ":6 [p_en]: p_en is empty",
        ":6 [loss_de]: loss_de is not a number: 'NA'",
        ":7 [N]: N is not a number: '1,5'",
        ":7 [run]: run is empty",
    ]
    assert [part for part in expected if part not in str(error)] == []
    assert len(error.faults) == len(expected)
    lines = [fault.location.line for fault in error.faults]
    assert lines == sorted(lines)
    hints = {fault.hint for fault in error.faults}
    assert "leave the cell empty where nothing was measured" in hints
    assert "write decimals with a point, or say that commas are decimal marks: decimal='comma'" in hints
    assert error.faults[0].value == "-1"


def test_only_twenty_faults_are_shown(tmp_path):
    error = faults_of(HEADER + "".join(f"r{k},1,1,.5,.6,1,1\n" for k in range(50)), tmp_path)
    assert len(error.faults) == 50
    assert str(error).endswith("... and 30 more")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("\n \n", "is empty"),
        ('""\n', "is empty"),
        (HEADER, "holds no rows"),
        ("run;N;D;p_en\na;1,5;2;3\n", "has no loss_<target> column"),
        ("run\tN\tD\na\t1\t2\n", "has no loss_<target> column"),
        ("run;N;D;p_en;loss\na;1M;1M;1\n", ":2: has 4 cells, the header has 5"),
        (HEADER + "ü,1,1,1,0,1,1\n", None),
        ((HEADER + "ok,1,1,1,0,1,1\nü,1,1,1,0,1,1\n").encode("latin-1"), ":3: byte 0xfc at offset 49 is not UTF-8"),
        (HEADER.encode("utf-16"), "holds no rows"),
        (HEADER.encode("utf-16")[:-1], "is not UTF-16"),
        ("run,N\0,D\n", "NUL"),
        ("run,N,N,D,loss\na,1,1,1,1\n", "column 'N' occurs twice"),
        (HEADER + 'a,1,1,1,0,1,1\n"b,1,1,1,0,1,1\n', ":3: is not valid CSV"),
        ("run,N,D,p_,p_x=y,loss_en\na,1M,20M,0,1,3\n", "the label 'x=y' of column 'p_x=y' contains '='"),
        ("run,N,D,p_en,tokens_en,loss\na,1,1,1,1,1\n", "both p_ and tokens_"),
        ("run,N,D,split,loss\na,1,1,test,1\n", "split is 'test'"),
        ("run,N,D,weight,loss\na,1,1,-1,1\n", "weight = -1"),
        ("run,N,D,p_en\na,1,1,1\n", "has no loss_<target> column"),
        ("run,N,D,p_en,loss\nu,1,0,0.5,1\n", "p_en = 0.5, expected 1"),
        (b"PK\x03\x04....", "is a spreadsheet or a zip file"),
        (b"PAR1....", "is not a whole Parquet file"),
        (gzip.compress(b"run,N,D,loss\na,1,1,1\n", mtime=0)[:-9], "is not a whole gzip file"),
        ("[1, 2]\n", "holds something else than JSON objects"),
        ('[{"run": "a"}, {"run": "b"\n', "is not valid JSON"),
        ('[{"run": "a"},]\n', "a comma before the end of the array"),
        ('[{"run": "a"}] x\n', "goes on after its array"),
        ('[{"run": "a"}\n', "an array without an end"),
        ('{"run": ["a"], "N": [1, 2]}\n', "columns that differ in length"),
    ],
)
def test_what_is_no_run_log(content, message, tmp_path):
    if message is None:
        (tmp_path / "runs.csv").write_text(content, encoding="utf-8")
        assert read_runs(tmp_path / "runs.csv").runs == ("ü",)
    else:
        assert message in str(faults_of(content, tmp_path))


def test_every_ragged_row_with_its_line(tmp_path):
    error = faults_of(HEADER + "a,1,1,.5,.5,2\n\nb,1,1,1,0,1,1,5\nc,1,1,1,0,1,1\n", tmp_path)
    assert [fault.location.line for fault in error.faults] == [2, 4]
    assert "has 6 cells, the header has 7" in str(error)
    quoted = faults_of(HEADER + 'a,1,1,.5,.5,2\n\n"b",1,1,1,0,1,1,5\nc,1,1,1,0,1,1\n', tmp_path)
    assert quoted.faults == error.faults


def test_lines_are_those_of_an_editor(tmp_path):
    error = faults_of(HEADER + '"a\nb",1,1,1,0,1,1\n\n,,,,,,\nc,0,1,1,0,1,1\n', tmp_path)
    assert error.location.line == 6
    crlf = (HEADER + "a,1,1,1,0,1,1\n\nc,0,1,1,0,1,1\n").replace("\n", "\r\n")
    assert faults_of(crlf, tmp_path).location.line == 4


def test_broken_json_lines_are_all_named(tmp_path):
    text = '{"run":"a","N":1,"D":1,"loss":1}\n{"run":"b" "N":1}\n\n[1]\n{"run":1,"run":2}\n'
    error = faults_of(text, tmp_path, "runs.jsonl")
    assert [fault.location.line for fault in error.faults] == [2, 4, 5]
    text = '{"run":"a","N":1,"D":1,"loss":1}\n{"run":"b","N":NaN,"D":[1],"loss":true}\n'
    error = faults_of(text, tmp_path, "runs.jsonl")
    assert [fault.location.column for fault in error.faults] == ["N", "D", "loss"]


def test_missing_files_and_folders(tmp_path):
    for path in (tmp_path / "none.csv", tmp_path):
        with pytest.raises(DataError, match="cannot be read"):
            read_runs(path)
    with pytest.raises(DataError, match="cannot read a table from an int"):
        read_runs(3)  # type: ignore[arg-type]


def test_misspelt_columns_are_pointed_out(tmp_path):
    error = faults_of("Run,n,D,p_en,Loss_en\na,1,1,1,1\n", tmp_path)
    assert "is the column 'Run' meant? rename it to 'run'" in str(error)
    assert "is the column 'n' meant?" in str(error)
    assert "is the column 'Loss_en' meant?" in str(error)
    log = read_runs({"run": ["a"], "N": [1], "D": [1], "loss_en": [1], "wieght": [1], "note": ["x"], "loss": [2]})
    assert log.targets == ("en",)
    assert log.notices == (
        "ignored the column 'wieght': did you mean 'weight'?",
        "ignored 2 columns: note, loss",
    )


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=200), st.sampled_from([b"", b"run,N,D,loss\n", b'{"run":', b"PAR1", b"\x1f\x8b"]))
@example(tail=b",", head=b"")
def test_no_bytes_break_the_reader(tail, head):
    """Whatever the file, the answer is a log or a DataError."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.csv"
        path.write_bytes(head + tail)
        try:
            verdict = read_runs(path).origin
        except DataError as error:
            verdict = str(error)
    assert str(path) in verdict


UNIQUE_HEADER = "run,N,D,p_en,p_de,loss_en,tokens_unique_de,tokens_unique_en\n"


def test_faults_of_unique_tokens_name_their_cell(tmp_path):
    zero = str(faults_of(UNIQUE_HEADER + "a,1M,1B,.5,.5,2.0,0,\n", tmp_path))
    assert "tokens_unique_de" in zero
    assert "leave the cell empty" in zero
    stray = str(faults_of(UNIQUE_HEADER.replace("unique_de", "unique_dee") + "a,1M,1B,.5,.5,2.0,1,\n", tmp_path))
    assert "did you mean 'de'" in stray


@pytest.mark.parametrize(
    ("sources", "targets", "told"),
    [
        ("eng de zh", "en de zh", ["the source 'eng' is no target and the target 'en' no source"]),
        ("en de zh", "en de zh", []),
        ("en de zh ja", "en de zh", []),
        ("en de zh", "en de zh ko", []),
        ("web code books", "arc mmlu", []),
        ("en de zh fr", "en de zh qq", []),
    ],
)
def test_a_name_mistyped_in_one_column_is_told(tmp_path, sources, targets, told):
    """Fault: p_eng beside loss_en was fitted as two languages without a word."""
    names, others = sources.split(), targets.split()
    head = ["run", "N", "D", *(f"p_{name}" for name in names), *(f"loss_{name}" for name in others)]
    row = ["a", "1e6", "1e9", "1", *["0"] * (len(names) - 1), *["2"] * len(others)]
    (tmp_path / "log.csv").write_text(",".join(head) + "\n" + ",".join(row) + "\n")
    notices = read_runs(tmp_path / "log.csv").notices
    assert [text.split(":")[0] for text in notices if "no source" in text] == told
