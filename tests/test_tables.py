"""Tables and the words in them: what is read, and the kind and place of every fault of what is not."""

import gzip
import math
import tempfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shapleymix.errors import DataError, ShapleyMixError, StoreError, UsageError
from shapleymix.mixing.bounds import families_of
from shapleymix.tables import words
from shapleymix.tables.languages import column_of, languages_of, parents_of, paths_of, read_languages, tokens_at_hand
from shapleymix.tables.mixtures import check, format_mixture, parse_mixture, renormalise
from shapleymix.tables.run_reading import read_runs
from shapleymix.tables.transfer import read_transfer
from shapleymix.tables.words import align, amounts, format_size, parse_pairs, parse_size

HEADER = "run,N,D,p_en,p_de,loss_en,loss_de,weight,split"
GOOD = "ok,1M,1B,0.5,0.5,2.5,2.6,1,fit"


def refused(read, *given, kind: type[ShapleyMixError] = DataError, **options) -> ShapleyMixError:
    with pytest.raises(kind) as caught:
        read(*given, **options)
    return caught.value


def places(error: ShapleyMixError) -> list[tuple[int | None, str | None]]:
    found = [fault.location for fault in error.faults] or [error.location]
    return [(place.line, place.column) for place in found]


@pytest.mark.parametrize(
    ("cells", "columns"),
    [
        ("a,,1B,1,0,2,2,1,fit", ["N"]), ("a,-1,1B,1,0,2,2,1,fit", ["N"]), ("a,0.243,1B,1,0,2,2,1,fit", ["N"]),
        ("a,1M,0.5,1,0,2,2,1,fit", ["D"]), ("a,1M,1_000_000,1,0,2,2,1,fit", ["D"]),
        ("a,1M,1B,0.7,0.2,2,2,1,fit", [None]), ("a,1M,1B,50,50,2,2,1,fit", [None]),
        ("a,1M,1B,1.5,-0.5,2,2,1,fit", ["p_de"]), ("a,1M,1B,1,,2,2,1,fit", ["p_de"]),
        ("a,1M,1B,x,1,2,2,1,fit", ["p_en"]), ("a,1M,1B,1,0,nan,2,1,fit", ["loss_en"]),
        ("a,1M,1B,1,0,-2,inf,1,fit", ["loss_de", "loss_en"]), ("a,1M,1B,1,0,2 nats,5000,1,fit", ["loss_de", "loss_en"]),
        ("a,1M,1B,1,0,2,2,-1,test", ["split", "weight"]), (",1M,1B,1,0,2,2,1,fit", ["run"]),
        ("ok,1M,1B,1,0,2,2,1,fit", ["run"]),
    ],
)  # fmt: skip
def test_every_wrong_cell_has_its_place(tmp_path, cells, columns):
    path = tmp_path / "runs.csv"
    path.write_text(f'{HEADER}\n\n{GOOD}\n"two\nlines",1M,1B,0.5,0.5,2.5,2.6,1,fit\n{cells}\n')
    error = refused(read_runs, path)
    assert sorted(places(error), key=str) == sorted([(6, column) for column in columns], key=str)
    assert error.location.file == str(path)


def test_faults_of_one_kind_are_one_sentence_and_others_come_by_line(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text("\n".join([HEADER, *(f"r{row},x,1B,1,0,2,2,1,fit" for row in range(30))]))
    error = refused(read_runs, path)
    assert (places(error), str(error).count(" [N]")) == ([(row + 2, "N") for row in range(30)], 2)
    assert "29 more" in str(error)
    assert f"{path}:31" in str(error)
    assert error.faults[0].value == "x"


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"", None), (b'""\n,\n', None), (b"run,N,D\n", None), (b"run;N;D;p_en;loss\na;1;2;1;3\n", 1),
        (b"run,N,N\na,1,2\n", 1), (b"run,N,D,p_en,loss\nok,1,1,1,1\nb,1M,1M,1\n", 3),
        (b'run,N,D,p_en,loss\nok,1,1,1,1\n"b,1M,1M,1\n', 3), (b"run,N,D,p_en,loss\nok,1,1,1,1\n\xfc,1,1,1,1\n", 3),
        (b"run,N,D,p_en\na,1,1,1\n", 1), (b"run,N,D,p_en,tokens_de,loss\na,1,1,1,1,1\n", 1),
        (b"run,N,D,p_en,tokens_unique_de,loss\na,1,1,1,1,1\n", 1), (b"run,N,D,p_en=x,loss\na,1,1,1,1\n", 1),
        (b'{"run": "a"}\n{"run": \n[1]\n', 2), (b"\x1f\x8b not gzip", None), (b"PAR1 not parquet", None),
    ],
)  # fmt: skip
def test_what_is_no_run_log_is_refused_at_its_line(tmp_path, content, line):
    path = tmp_path / "runs.csv"
    path.write_bytes(content)
    assert places(refused(read_runs, path))[0][0] == line


@pytest.mark.parametrize("given", [[1, 2], 3, None, {"run": ["a"], "N": [1, 2]}])
def test_what_is_no_table_is_refused(given):
    assert refused(read_runs, given).hint


def test_missing_files_and_folders_are_refused(tmp_path):
    for read in (read_runs, read_transfer, read_languages):
        for path in (tmp_path / "none.csv", tmp_path):
            assert refused(read, path).location.file == str(path)


LOG = f"{HEADER}\n{GOOD}\nb,1.1B,2B,0.25,0.75,,2.7,2,held-out\n"


@settings(deadline=None, max_examples=200)
@given(
    place=st.integers(0, len(LOG) - 1),
    cell=st.sampled_from(
        ["", "nan", "1e400", "1,5", "½", "243M", '"', "\x00", "9" * 400, "\u202e", "\n", ",", "-", "0"]
    ),
    cut=st.integers(0, 6),
)
def test_a_damaged_log_is_read_as_python_reads_it_or_refused_with_its_file(place, cell, cut):
    text = LOG[:place] + cell + LOG[place + cut :]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.csv"
        path.write_text(text, newline="")
        found = None
        try:
            log = read_runs(path)
        except DataError as error:
            found = error.location.file
        if found is not None:
            assert found == str(path)
            return
    rows = [line.split(",") for line in text.splitlines() if line.strip(",")]
    for row, run in enumerate(log.runs if '"' not in text and log.N.size == len(rows) - 1 else ()):
        cells = dict(zip((name.strip() for name in rows[0]), rows[row + 1], strict=True))
        assert run == cells.get("run", run).strip()
        for name, value in (("N", log.N[row]), ("D", log.D[row]), *zip(log.targets, log.loss[row], strict=True)):
            written = cells.get(name) or cells.get(f"loss_{name}") or ""
            assert math.isnan(value) if not written.strip() else parse_size(written) == value


def test_one_table_in_every_form_reads_alike(tmp_path):
    columns = {"run": ["1", "2"], "N": ["243M", "1.1B"], "D": ["2e9", "0"], "p_x": ["1", None], "loss": ["2.5", None]}
    frame = pl.DataFrame(columns)
    native = {"run": [1.0, 2.0], "N": np.array([243e6, 1.1e9]), "D": [2e9, 0], "p_x": [1, None], "loss": [2.5, np.nan]}
    frame.write_csv(tmp_path / "a.csv")
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress((tmp_path / "a.csv").read_bytes()))
    frame.write_parquet(tmp_path / "a.parquet")
    frame.write_ndjson(tmp_path / "a.jsonl")
    for table in (
        frame,
        columns,
        native,
        *(tmp_path / f"a.{ending}" for ending in ("csv", "csv.gz", "parquet", "jsonl")),
    ):
        log = read_runs(table)
        assert (log.runs, log.N.tolist(), log.p.tolist()) == (("1", "2"), [243e6, 1.1e9], [[1.0], [0.0]])
        assert log.measured.tolist() == [[True], [False]]


def test_rows_without_ids_are_runs_by_size_mixture_and_seed():
    table = {
        "N": [1e6] * 4, "D": [1e7, 2e7, 1e7, 1e7], "p_en": [0.5, 0.5, 1, 0.5], "p_de": [0.5, 0.5, 0, 0.5], "loss": 3.0,
    }  # fmt: skip
    log = read_runs(table)
    assert log.runs == ("run-1", "run-1", "run-2", "run-3")
    assert any("no column run" in notice for notice in log.notices)
    assert read_runs({**table, "seed": [1, 2, 1, 1]}).runs == ("run-1", "run-2", "run-3", "run-4")
    assert read_runs({"N": [1e6] * 2, "D": [1e7, 2e7], "loss": [3, 2]}).runs == ("run-1", "run-2")


def test_unused_columns_are_said():
    log = read_runs({"run": ["a"], "N": [1e6], "D": [1e9], "p_x": [1], "loss": [4.0], "lr": [1]})
    assert any("lr" in notice for notice in log.notices)


# languages tables, and amounts by source


def test_a_languages_table_is_read_and_aligned(tmp_path):
    path = tmp_path / "languages.csv"
    path.write_text("language,family,available_tokens,weight,max_epochs,note\nen,west,5T,1,,x\nfi,,20B,2,4,y\n")
    table = read_languages(path)
    assert (table.names, table.family) == (("en", "fi"), ("west", None))
    assert table.available_tokens.tolist() == [5e12, 20e9]
    assert [np.isnan(value) for value in table.max_epochs] == [True, False]
    assert table.notices
    assert table.weight.tolist() == [1, 2]
    assert languages_of(table) is table
    assert languages_of(None) is None
    np.testing.assert_array_equal(column_of(table, "max_epochs", ("sw", "fi")), [np.nan, 4])
    np.testing.assert_array_equal(tokens_at_hand(("fi", "sw"), table, "sw=1B"), [20e9, 1e9])
    assert refused(tokens_at_hand, ("fi",), table, path, kind=UsageError).hint


def test_a_parent_is_a_family():
    """The same group by another name: of names without slashes, it bounds their sum as a slash does."""
    rows = {"language": ["a", "b", "c"], "available_tokens": [1e9] * 3}
    parent = read_languages({**rows, "parent": ["en", "en", None]})
    assert parent.family == read_languages({**rows, "family": ["en", "en", None]}).family == ("en", "en", None)
    assert families_of(parent, ("a", "b", "c"), {}) == {"en": ("a", "b")}
    assert read_languages(parent.columns()).nested
    parents = parents_of(parent) | {"d": "a"}
    assert paths_of(("a", "c", "d"), parents, ("en",)) == ("en/a", "c", "en/a/d")
    assert paths_of(("a", "d"), parents, ("a",)) == ("a", "a/d"), "a source of a target's own name is its own data"
    assert list(families_of(None, ("en/a", "en/b", "c"), {}).values()) == [("en/a", "en/b")]
    assert places(refused(read_languages, {**rows, "parent": ["x"] * 3, "family": ["x"] * 3})) == [(1, "family")]


def test_faults_of_a_languages_table():
    table = {"language": ["en", "en", "a=b", ""], "available_tokens": ["x", -1, 0, 1], "weight": [1, None, -1, 1]}
    found = {(line, column) for line, column in places(refused(read_languages, table))}
    cells = {(1, "available_tokens"), (2, "available_tokens"), (3, "available_tokens"), (2, "weight"), (3, "weight")}
    assert found == cells | {(2, "language"), (3, "language"), (4, "language")}
    assert places(refused(read_languages, {"lang": ["en"]})) == [(1, "language")]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, [1, 2, 3]), ("fi=50%", [1, 2, 0.5]), (["en=.1", "fi=0.2"], [0.1, 2, 0.2]), ({"de": 0.25}, [1, 0.25, 3]),
        (0.5, [0.5] * 3), ("0.5", [0.5] * 3), ([0.1, 0.2, 0.3], [0.1, 0.2, 0.3]),
        (np.array([0.1, 0.2, 0.3]), [0.1, 0.2, 0.3]),
    ],
)  # fmt: skip
def test_amounts_by_name_in_order_or_one_for_all(given, expected):
    found = amounts(np.array([1.0, 2.0, 3.0]), given, ("en", "de", "fi"), words.parse_ratio, "cap")
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("given", ["xx=1", "en=2", "en=x", "en=1,en=1", "=1", [0.1, 0.2], {0.1, 0.2, 0.3}, [1, [2], 3]])
def test_amounts_that_are_none_are_refused(given):
    refused(amounts, np.ones(3), given, ("en", "de", "fi"), words.parse_ratio, "cap", kind=UsageError)


def test_ratios_pairs_and_whole_numbers():
    assert [words.parse_ratio(text) for text in ("40%", ".4", 1 + 1e-13)] == [0.4, 0.4, 1.0]
    assert (words.ratio_number("250%"), parse_pairs("en=5T", parse_size, "tokens")) == (2.5, {"en": 5e12})
    assert words.parse_whole(3, "count") == 3
    for wrong in (True, 2.0, "2", -1, None):
        refused(words.parse_whole, wrong, "count", kind=UsageError)
    assert "60%" in str(refused(words.parse_ratio, 60, kind=UsageError).hint)


# sizes


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *[("243M", 243e6), ("100B", 1e11), ("1.5e9", 1.5e9), ("1.1b", 1.1e9), ("2G", 2e9), (" 0.3 k ", 300.0)],
        *[("4T", 4e12), ("50k", 5e4), ("+7", 7.0), (23712, 23712.0), (np.float64(2.5), 2.5), (np.array(3), 3.0)],
    ],
)
def test_sizes_are_the_nearest_double_to_what_is_typed(text, value):
    assert parse_size(text) == value
    if isinstance(text, str):
        log = read_runs({"run": ["a"], "N": [text], "D": [1], "p_x": [1]}, losses="optional")
        assert log.N[0] == value


@pytest.mark.parametrize("text", ["", "M", "-1", "1e2M", "1_000", "inf", "nan", "12 Mio", "٣", True, None, [1], 1e400])
def test_what_is_no_size_is_refused_with_an_example(text):
    assert "243M" in str(refused(parse_size, text, "N", kind=UsageError).hint)
    refused(words.parse_budget, 0.5, "N", kind=UsageError)


@given(st.floats(min_value=1e-9, max_value=1e25))
def test_a_size_is_written_so_that_it_reads_back(value):
    assert parse_size(format_size(value)) == pytest.approx(value, rel=5e-4)
    assert parse_size(format_size(value, 17)) == pytest.approx(value, rel=1e-11)


# names and mixtures


def test_labels_are_aligned_or_all_that_are_missing_are_named():
    assert align(["en", "de", "fr"], to=["fr", "en"]).tolist() == [2, 0]
    error = refused(align, ["en", "de", "de"], to=["en", "ed", "xx"], exact=True)
    assert {fault.value for fault in error.faults} == {"de", "ed", "xx"}
    assert "'de'" in str(error.faults[1].hint)


NAMES = ("en", "de", "fr")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("en=.5,de=0.5", [0.5, 0.5, 0]), ("en=50%,fr=50%", [0.5, 0, 0.5]), ("uniform", [1 / 3] * 3),
        ({"de": 1}, [0, 1, 0]), ([0.2, 0.3, 0.5], [0.2, 0.3, 0.5]), ("en=0.333,de=0.333,fr=0.333", [1 / 3] * 3),
    ],
)  # fmt: skip
def test_mixtures_as_people_write_them(given, expected):
    np.testing.assert_allclose(parse_mixture(given, NAMES), expected, rtol=1e-12)


@pytest.mark.parametrize(
    "given", ["en=0.5", "xx=1", "en=1,en=0", "en", "en=half", "en=-1,de=2", "2:1:1", [1, 0], {}, 5]
)
def test_what_is_no_mixture_is_refused(given):
    refused(parse_mixture, given, NAMES, kind=UsageError)


@given(st.lists(st.floats(1e-6, 1), min_size=3, max_size=3))
def test_a_mixture_is_written_so_that_it_reads_back_to_the_last_bit(weights):
    p = renormalise(weights)
    np.testing.assert_array_equal(parse_mixture(format_mixture(p, NAMES), NAMES), p)
    check(p[None])
    refused(check, p[None] * 1.1)
    refused(check, -p[None])


def test_a_mixture_in_a_file(tmp_path):
    path = tmp_path / "mixture.json"
    for text in ('{"en": 0.5, "de": "50%"}', '{"kind": "mixture", "mixture": {"en": 0.5, "de": 0.5}}'):
        path.write_text(text)
        assert parse_mixture(str(path), NAMES).tolist() == [0.5, 0.5, 0]
    for text in ("{", "[1]", "{}", '{"kind": "fit"}', '{"en": 2}', '{"kind": "mixture", "mixture": {"xx": 1}}'):
        path.write_text(text)
        assert refused(parse_mixture, path, NAMES, kind=StoreError).location.file == str(path)
