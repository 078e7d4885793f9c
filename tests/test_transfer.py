"""Transfer matrices: both tables, consistency, calibration, comparison."""

from __future__ import annotations

import gzip
import itertools
import json
import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from shapleymix.errors import DataError, StoreError, UsageError
from shapleymix.tables.run_reading import read_runs
from shapleymix.tables.runs import RunLog
from shapleymix.tables.transfer import TransferMatrix
from shapleymix.tables.transfer_reading import read_transfer

MATRICES = arrays.arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(1, 4)), elements=st.floats(-20, 20))
ENDINGS = ("csv", "csv.gz", "parquet", "jsonl")


def labelled(sv, **options) -> TransferMatrix:
    sources = [f"s{k}" for k in range(len(sv))]
    targets = [f"t{k}" for k in range(len(sv[0]))]
    return TransferMatrix.from_sv(sv, sources, targets, **options)


def brute_force_shapley(log: RunLog) -> TransferMatrix:
    """Shapley values of a coalition log by the sum over subsets, straight from the definition."""
    members = [frozenset(np.flatnonzero(row).tolist()) for row in log.p]
    payoff = dict(zip(members, log.loss[~log.trained][0] - log.loss, strict=True))
    count = len(log.sources)
    sv = np.zeros((count, len(log.targets)))
    for player in range(count):
        others = [other for other in range(count) if other != player]
        for size in range(count):
            share = math.factorial(size) * math.factorial(count - size - 1) / math.factorial(count)
            for team in map(frozenset, itertools.combinations(others, size)):
                sv[player] += share * (payoff[team | {player}] - payoff[team])
    return TransferMatrix.from_sv(sv, log.sources, log.targets)


@pytest.fixture(scope="module")
def exact(fixtures) -> TransferMatrix:
    return brute_force_shapley(read_runs(fixtures / "multilingual5_coalitions.csv"))


@pytest.fixture(scope="module")
def irds(fixtures) -> TransferMatrix:
    return read_transfer(fixtures / "multilingual5_irds_raw.csv")


def test_normalised_values_reach_one_for_each_target():
    matrix = labelled([[1.0, 0.0], [0.0, 2.0]])
    assert matrix.nsv == pytest.approx(np.array([[1, math.exp(-2)], [math.exp(-1), 1]]))


@given(MATRICES, st.floats(-5, 5))
def test_normalising_does_not_see_a_constant_added_to_a_target(sv, shift):
    assert np.allclose(labelled(sv).nsv, labelled(sv + shift).nsv, rtol=1e-9)


def test_shapes_labels_and_numbers_are_checked():
    with pytest.raises(DataError, match="shape"):
        TransferMatrix.from_sv([[1.0, 2.0]], ["a"], ["b"])
    with pytest.raises(DataError, match="'a' occurs twice"):
        TransferMatrix.from_sv([[1.0], [2.0]], ["a", "a"], ["b"])
    with pytest.raises(DataError, match="finite"):
        TransferMatrix.from_sv([[np.nan]], ["a"], ["b"])


@pytest.mark.parametrize("ending", ENDINGS)
@given(sv=MATRICES)
def test_written_and_read_back_to_the_last_bit(ending, sv, tmp_path_factory):
    path = tmp_path_factory.mktemp("sv") / f"sv.{ending}"
    drops = {f"t{k}": 1.0 + k / 3 for k in range(sv.shape[1])}
    before = labelled(sv, stderr=np.abs(sv) / 7, provenance={"N": 23712.0, "method": "exact", "loss_drop": drops})
    before.write(path)
    after = read_transfer(path)
    assert (after.sources, after.targets) == (before.sources, before.targets)
    for name in ("sv", "nsv", "stderr"):
        assert np.array_equal(getattr(after, name), getattr(before, name))
    assert after.provenance["N"] == 23712.0
    assert after.provenance["loss_drop"] == drops
    assert len(after.provenance["digest"]) == 64


def test_the_same_matrix_gives_the_same_bytes(tmp_path, exact):
    for ending in ENDINGS:
        for copy in ("a", "b"):
            exact.write(tmp_path / f"{copy}.{ending}")
        assert (tmp_path / f"a.{ending}").read_bytes() == (tmp_path / f"b.{ending}").read_bytes()
    assert gzip.decompress((tmp_path / "a.csv.gz").read_bytes()) == (tmp_path / "a.csv").read_bytes()


def test_the_record_survives_its_document(exact, tmp_path):
    exact.save(tmp_path / "sv.json")
    assert np.array_equal(read_transfer(tmp_path / "sv.json").nsv, exact.nsv)
    again = TransferMatrix.from_document(json.loads(json.dumps(exact.to_document())))
    assert np.array_equal(again.nsv, exact.nsv)
    assert again.sources == exact.sources


def test_existing_files_are_kept_without_force(tmp_path, exact):
    path = tmp_path / "sv.csv"
    (tmp_path / "sv.csv.json").write_text('{"kind": "transfer-provenance"}')
    with pytest.raises(UsageError, match="exists already"):
        exact.write(path)
    assert not path.exists()
    exact.write(path, force=True)
    with pytest.raises(UsageError, match="exists already"):
        exact.write(path)


@pytest.mark.parametrize("content", ["{}", "[1]", "not JSON", '{"kind": "fit"}'])
def test_force_never_overwrites_an_unrelated_file_beside_the_table(tmp_path, exact, content):
    """`--force` overwrote whatever was called `sv.csv.json`."""
    beside = tmp_path / "sv.csv.json"
    beside.write_text(content)
    with pytest.raises(UsageError, match="holds something else") as caught:
        exact.write(tmp_path / "sv.csv", force=True)
    assert caught.value.location.file == str(beside)
    assert beside.read_text() == content
    assert not (tmp_path / "sv.csv").exists()


def test_provenance_of_other_values_is_left_out(tmp_path, exact):
    path = tmp_path / "sv.csv"
    labelled([[1.0]], provenance={"N": 1.0}).write(path)
    assert read_transfer(path).provenance["N"] == 1.0
    path.write_text("source,target,sv\na,a,2\n")
    provenance = read_transfer(path).provenance
    assert "N" not in provenance
    assert "left out" in provenance["notice"]
    (tmp_path / "sv.csv.json").write_text("{broken")
    with pytest.raises(StoreError):
        read_transfer(path)
    packed = tmp_path / "sv.parquet"
    pl.DataFrame({"source": ["a"], "target": ["a"], "sv": [1.0]}).write_parquet(packed, metadata={"shapleymix": "{"})
    with pytest.raises(StoreError, match="broken provenance"):
        read_transfer(packed)


def test_the_order_of_rows_and_columns_does_not_matter(exact, tmp_path):
    frame = pl.DataFrame(exact.columns())
    shuffled = frame.sample(fraction=1.0, shuffle=True, seed=3).select(frame.columns[::-1])
    again = read_transfer(shuffled).aligned(exact.sources, exact.targets)
    assert np.array_equal(again.nsv, exact.nsv)


def test_only_normalised_values(exact, tmp_path):
    table = exact.columns()
    del table["sv"]
    matrix = read_transfer(table)
    assert matrix.sv is None
    assert np.array_equal(matrix.nsv, exact.nsv)
    with pytest.raises(DataError, match="only normalised"):
        matrix.calibrated(np.ones(5))
    assert matrix.compare(exact).raw is None


def test_raw_and_normalised_values_must_agree():
    table = {"source": ["a", "b"], "target": ["a", "a"], "sv": [1.0, 0.0], "nsv": [1.0, 0.5]}
    with pytest.raises(DataError, match=r"nsv = 0\.5, but exp"):
        read_transfer(table)
    table["nsv"] = [1.0, math.exp(-1) + 5e-7]
    assert read_transfer(table).nsv[1, 0] == table["nsv"][1]


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("nsv", ["2.5", "1"], "expected a value between 0 and 1"),
        ("nsv", ["0.25", "0.5"], "expected 1"),
        ("sv", ["x", "1"], "sv is not a number: 'x'"),
        ("sv", ["nan", "1"], "sv is NaN"),
        ("sv", ["", "1"], "sv is empty"),
        ("value", ["1", "1"], "has no column 'sv' or 'nsv'"),
    ],
)
def test_values_that_cannot_be(column, values, message):
    with pytest.raises(DataError, match=message):
        read_transfer({"source": ["a", "b"], "target": ["a", "a"], column: values})


def test_every_pair_once(tmp_path):
    path = tmp_path / "sv.csv"
    path.write_text("source,target,sv,stderr\nen,en,1,0.1\nen,de,1,-1\nde,de,1,\nen,en,2,0.1\n")
    with pytest.raises(DataError) as caught:
        read_transfer(path)
    text = str(caught.value)
    assert ":5 [target]: repeats the pair en -> en of line 2" in text
    assert "lacks the pair de -> en" in text
    path.write_text("source,target,sv,stderr\nen,en,1,-0.1\n")
    with pytest.raises(DataError, match=r"stderr = -0\.1"):
        read_transfer(path)


def test_one_loss_drop_a_target():
    table = {"source": ["a", "b"], "target": ["a", "a"], "sv": [1.0, 0.0], "loss_drop": [1.0, 2.0]}
    with pytest.raises(DataError, match="loss_drop = 2, but 1"):
        read_transfer(table)


def test_wide_tables_need_to_be_told_what_they_hold(tmp_path):
    path = tmp_path / "wide.csv"
    path.write_text("source,en,de\nen,1,0.5\nde,0.25,1\n")
    with pytest.raises(DataError, match="kind=raw or kind=normalized"):
        read_transfer(path)
    raw, normal = read_transfer(path, kind="raw"), read_transfer(path, kind="normalized")
    assert raw.sv is not None
    assert raw.sv.tolist() == [[1, 0.5], [0.25, 1]]
    assert normal.sv is None
    assert normal.nsv.tolist() == [[1, 0.5], [0.25, 1]]
    path.write_text("source,en,de\nen,3,0.5\nde,0.25,0.9\nde,1,1\n")
    with pytest.raises(DataError, match="for raw ones say kind=raw"):
        read_transfer(path, kind="normalized")
    with pytest.raises(UsageError, match="did you mean 'raw'"):
        read_transfer(path, kind="rwa")  # type: ignore[arg-type]


def test_a_kind_that_a_tidy_table_denies():
    with pytest.raises(DataError, match="holds sv, not nsv"):
        read_transfer({"source": ["a"], "target": ["a"], "sv": [1.0]}, kind="normalized")


def test_leaving_sources_out_normalises_again(exact):
    part = exact.aligned(["zh", "de"], exact.targets)
    assert part.sv is not None
    assert part.nsv == pytest.approx(np.exp(part.sv - part.sv.max(axis=0)), rel=1e-14)
    with pytest.raises(DataError, match="'xx' is missing"):
        exact.aligned(["xx"], exact.targets)


def test_calibration_gives_each_target_its_loss_drop(irds):
    matrix = irds.calibrated()
    assert matrix.sv is not None
    drops = irds.provenance["loss_drop"]
    assert matrix.sv.sum(axis=0) == pytest.approx([drops[name] for name in irds.targets])
    assert matrix.compare(matrix.calibrated()).cosine == pytest.approx(1.0)


def test_calibration_scales_errors_and_refuses_what_it_cannot_scale():
    matrix = labelled([[1.0], [3.0]], stderr=[[0.1], [0.2]]).calibrated([8.0])
    assert matrix.sv is not None
    assert matrix.stderr is not None
    assert matrix.sv.ravel().tolist() == [2, 6]
    assert matrix.stderr.ravel() == pytest.approx([0.2, 0.4])
    with pytest.raises(DataError, match="cannot calibrate t0"):
        labelled([[1.0], [-3.0]]).calibrated([1.0])
    with pytest.raises(DataError, match="no loss drops are known"):
        labelled([[1.0]]).calibrated()
    with pytest.raises(DataError, match="1 numbers above 0"):
        labelled([[1.0]]).calibrated([-1.0])


def test_calibrated_gradients_resemble_the_exact_values(irds, exact):
    """The measurement behind calibration as the default: the figures are those of an independent analysis."""
    calibrated, plain = irds.calibrated().compare(exact), irds.compare(exact)
    assert calibrated.cosine == pytest.approx(0.978, abs=6e-4)
    assert calibrated.pearson == pytest.approx(0.952, abs=6e-4)
    assert calibrated.cosine_off_diagonal == pytest.approx(0.940, abs=6e-4)
    assert calibrated.pearson_off_diagonal == pytest.approx(0.845, abs=6e-4)
    assert plain.cosine == pytest.approx(0.811, abs=6e-4)
    assert plain.pearson == pytest.approx(0.801, abs=6e-4)
    assert calibrated.raw is not None


def test_comparison_matches_numpy_and_labels(irds, exact):
    off = ~np.eye(5, dtype=bool)
    turned = exact.aligned(exact.sources[::-1], exact.targets[::-1])
    found = irds.compare(turned)
    a, b = irds.nsv, exact.nsv
    assert found.pearson == pytest.approx(np.corrcoef(a.ravel(), b.ravel())[0, 1])
    assert found.pearson_off_diagonal == pytest.approx(np.corrcoef(a[off], b[off])[0, 1])
    for k in range(5):
        cosine = a[:, k] @ b[:, k] / np.linalg.norm(a[:, k]) / np.linalg.norm(b[:, k])
        assert found.cosine_by_target[k] == pytest.approx(cosine)
        rest = off[:, k]
        expected = np.corrcoef(a[rest, k], b[rest, k])[0, 1]
        assert found.pearson_off_diagonal_by_target[k] == pytest.approx(expected)


def test_a_comparison_is_a_result_as_any_other(irds, exact):
    """It had neither columns nor a frame, and showed its arrays by their lengths."""
    found = irds.compare(exact)
    assert found.to_polars().columns == ["target", "cosine", "pearson", "cosine_off_diagonal", "pearson_off_diagonal"]
    assert found.to_polars()["pearson"].to_list() == found.pearson_by_target.tolist()
    assert f"cosine {found.cosine:.3f}" in repr(found)
    assert all(name in repr(found) for name in found.targets)
    assert "<table>" in found._repr_html_()


def test_comparison_of_different_labels_is_refused(exact):
    with pytest.raises(DataError, match="missing from the sources"):
        exact.compare(exact.aligned(["en", "de"], exact.targets))


def test_what_is_undefined_is_nan():
    flat = labelled([[1.0], [1.0]])
    found = flat.compare(flat)
    assert found.cosine == pytest.approx(1.0)
    assert math.isnan(found.pearson)
    same = TransferMatrix.from_sv([[1.0]], ["en"], ["en"])
    assert math.isnan(same.compare(same).cosine_off_diagonal)
