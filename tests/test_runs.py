"""Run logs: what is written reads back bit for bit, and every fault of a wrong one is named with its place."""

import hashlib
import io
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated import same_rows

from shapleymix.errors import DataError, UsageError
from shapleymix.tables.run_reading import read_runs
from shapleymix.tables.runs import RunLog, write_runs

ENDINGS = ("csv", "csv.gz", "parquet", "jsonl")
SIZES = st.floats(min_value=1, max_value=1e14)
RATIOS = st.lists(st.floats(min_value=0, max_value=1), min_size=3, max_size=3).filter(lambda row: sum(row) > 0.1)
IDS = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=6).filter(
    lambda text: text == text.strip()
)


@st.composite
def logs(draw) -> RunLog:
    """Random logs with untrained models, missing losses and any run id."""
    runs = tuple(draw(st.lists(IDS, min_size=1, max_size=5, unique=True)))
    count = len(runs)
    trained = np.array(draw(st.lists(st.booleans(), min_size=count, max_size=count)))
    p = np.array([draw(RATIOS) for _ in runs])
    loss = st.one_of(st.just(np.nan), st.floats(min_value=1e-9, max_value=20))
    return RunLog(
        runs=runs,
        N=np.array([draw(SIZES) for _ in runs]),
        D=np.where(trained, [draw(SIZES) for _ in runs], 0.0),
        p=np.where(trained[:, None], p / np.sort(p, axis=1).sum(axis=1, keepdims=True), 0.0),
        loss=np.array([[draw(loss) for _ in range(2)] for _ in runs]),
        sources=("en", "zh hans", "日本語"),
        targets=("en", "x"),
        weight=np.array([draw(st.floats(min_value=0, max_value=9)) for _ in runs]),
        split=tuple(draw(st.sampled_from(("fit", "held-out"))) for _ in runs),
        unique=np.array([[7.0, *(draw(st.one_of(st.just(np.nan), SIZES)) for _ in range(2))] for _ in runs]),
    )


@pytest.mark.parametrize("ending", ENDINGS)
@settings(deadline=None, max_examples=50)
@given(log=logs())
def test_written_and_read_back_to_the_last_bit(ending, log, tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / f"log.{ending}"
    write_runs(log, path)
    again = read_runs(path, losses="optional")
    assert same_rows(log, again)
    assert (again.notices, again.digest) == ((), hashlib.sha256(path.read_bytes()).hexdigest())


@settings(deadline=None)
@given(log=logs(), random=st.randoms())
def test_the_order_of_rows_and_columns_does_not_matter(log, random):
    columns = list(log.columns().items())
    random.shuffle(columns)
    rows = list(range(len(log)))
    random.shuffle(rows)
    shuffled = read_runs({name: [column[row] for row in rows] for name, column in _gaps(columns)}, losses="optional")
    again = shuffled.select(np.argsort(rows)).align(log.sources, log.targets)
    assert same_rows(log, again)
    assert again.mixture_keys == log.mixture_keys


def _gaps(columns):
    """Columns with None for NaN, as a frame has it."""
    return [
        (name, [None if isinstance(cell, float) and np.isnan(cell) else cell for cell in column])
        for name, column in columns
    ]


def test_every_published_log_is_read(shared_data):
    shapes = {}
    for path in sorted(shared_data.glob("*.csv")):
        if "irds" not in path.name:
            log = read_runs(path)
            shapes[path.stem] = (len(log), len(log.sources), len(log.targets))
            assert log.p[log.trained].sum(axis=1) == pytest.approx(1.0 if log.sources else 0.0)
    assert (shapes["regmix_1m_train"], shapes["chinchilla_245"]) == ((512, 17, 13), (245, 0, 1))
    assert shapes["dmsl_slimpajama_122m"] == (594, 7, 8)


def test_rounded_ratios_are_renormalised_and_counted():
    ratios = {"p_x": [0.333, 0.5], "p_y": [0.663, 0.5]}
    table = {"run": ["a", "b"], "N": [1e6] * 2, "D": [1e7] * 2, **ratios, "loss": [1, 1]}
    log = read_runs(table)
    assert log.p[0].tolist() == [0.333 / 0.996, 0.663 / 0.996]
    assert log.notices == ("ratios of 1 of 2 rows were renormalised, off by at most 0.004",)
    table["p_y"][0] = 0.661
    with pytest.raises(DataError, match=r"p_x \+ p_y = 0.994, expected 1"):
        read_runs(table)


def test_sizes_and_untrained_models():
    table = {
        "run": ["a", "u", "v"], "N": ["243M", 5e5, "1k"], "D": ["1B", 0, "0"], "p_x": ["1", "", 0], "loss": [1, 2, ""],
    }  # fmt: skip
    log = read_runs(table)
    assert (log.N.tolist(), log.trained.tolist()) == ([243e6, 5e5, 1000], [True, False, False])
    assert (log.p.tolist(), log.measured.ravel().tolist()) == ([[1], [0], [0]], [True, True, False])
    assert log.mixture_keys == ((10000,), (0,), (0,))


def test_tokens_of_each_source_instead_of_ratios():
    table = {"run": ["a", "u"], "N": [1e6] * 2, "tokens_x": ["5M", 0], "tokens_y": ["15M", ""], "loss": [1, 1]}
    log = read_runs(table)
    assert (log.p.tolist(), log.D.tolist()) == ([[0.25, 0.75], [0, 0]], [20e6, 0])
    assert read_runs(table | {"D": [20.05e6, ""]}).D.tolist() == [20.05e6, 0]
    with pytest.raises(DataError, match="the tokens_ columns sum to 2e"):
        read_runs(table | {"D": [21e6, 0]})


def test_the_mean_of_all_other_losses_is_no_target():
    table = {"N": [1e8] * 3, "D": [1e9, 2e9, 4e9], "p_x": [1] * 3, "loss_x": [3, 2.9, 2.8], "loss_y": [4, 3.7, 3.6]}
    assert read_runs(table | {"loss_z": [3.5, 3.2, 3.1]}).targets == ("x", "y", "z")
    with pytest.raises(DataError, match="loss_avg"):
        read_runs(table | {"loss_avg": [3.5, 3.3, 3.2]})


def test_tables_for_prediction_need_no_losses():
    table = {"run": ["a"], "N": [1], "D": [1], "p_x": [1]}
    assert read_runs(table, losses="optional").loss.shape == (1, 0)
    with pytest.raises(DataError, match="loss"):
        read_runs(table)


def test_standard_input_in_any_format(monkeypatch, tmp_path, fixtures):
    log = read_runs(fixtures / "multilingual5_runs.csv")
    for ending in ENDINGS:
        write_runs(log, tmp_path / f"log.{ending}")
        stream = io.TextIOWrapper(io.BytesIO((tmp_path / f"log.{ending}").read_bytes()))
        monkeypatch.setattr(sys, "stdin", stream)
        assert same_rows(read_runs("-"), log)


def test_a_byte_order_mark_and_windows_lines_are_no_fault(tmp_path, fixtures):
    text = (fixtures / "multilingual5_runs.csv").read_text()
    (tmp_path / "bom.csv").write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    assert same_rows(read_runs(tmp_path / "bom.csv"), read_runs(fixtures / "multilingual5_runs.csv"))


def test_writing_keeps_what_is_there(tmp_path, fixtures):
    log = read_runs(fixtures / "multilingual5_coalitions.csv")
    path = tmp_path / "log.csv"
    write_runs(log, path)
    with pytest.raises(UsageError, match="exists already"):
        write_runs(log, path)
    write_runs(log.select([1]), path, force=True)
    assert len(read_runs(path)) == 1
    with pytest.raises(UsageError, match="no format"):
        write_runs(log, tmp_path / "log.xlsx")


UNIQUE_HEADER = "run,N,D,p_en,p_de,loss_en,tokens_unique_de,tokens_unique_en\n"


def test_unique_tokens_of_one_log_are_no_limit_of_another(tmp_path):
    (tmp_path / "one.csv").write_text(UNIQUE_HEADER + "a,1M,1B,.5,.5,2.0,20M,30M\n")
    (tmp_path / "two.csv").write_text("run,N,D,p_de,p_en,loss_en\nb,1M,1B,.25,.75,2.1\n")
    both = read_runs([tmp_path / "one.csv", tmp_path / "two.csv"])
    np.testing.assert_array_equal(both.unique, [[30e6, 20e6], [np.nan, np.nan]])


def test_unique_tokens_go_beside_tokens_per_source(tmp_path):
    (tmp_path / "log.csv").write_text("run,N,tokens_en,tokens_de,tokens_unique_en,loss_en\na,1M,3M,1M,1M,2.0\n")
    log = read_runs(tmp_path / "log.csv")
    assert log.sources == ("en", "de")
    np.testing.assert_array_equal(log.unique, [[1e6, np.nan]])
