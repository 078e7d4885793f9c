"""Transfer matrices: both tables, consistency, calibration, comparison."""

import gzip
import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from shapleymix.errors import DataError, StoreError, UsageError
from shapleymix.fitting.fit import fit
from shapleymix.game.coalitions import shapley_values
from shapleymix.tables.transfer import TransferMatrix, read_transfer

MATRICES = arrays.arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(1, 4)), elements=st.floats(-20, 20))
ENDINGS = ("csv", "csv.gz", "parquet", "jsonl")


def labelled(sv, **options) -> TransferMatrix:
    sources = [f"s{k}" for k in range(len(sv))]
    targets = [f"t{k}" for k in range(len(sv[0]))]
    return TransferMatrix.from_sv(sv, sources, targets, **options)


@pytest.fixture(scope="module")
def exact(fixtures) -> TransferMatrix:
    return shapley_values(fixtures / "multilingual5_coalitions.csv")


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
    assert (after.provenance["N"], after.provenance["loss_drop"]) == (23712.0, drops)
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


def test_existing_files_are_kept_without_force(tmp_path, exact):
    path = tmp_path / "sv.csv"
    (tmp_path / "sv.csv.json").write_text('{"kind": "transfer-provenance"}')
    with pytest.raises(UsageError, match="exists already"):
        exact.write(path)
    assert not path.exists()
    exact.write(path, force=True)
    with pytest.raises(UsageError, match="exists already"):
        exact.write(path)


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


def test_the_order_of_rows_and_columns_does_not_matter(exact, tmp_path):
    frame = pl.DataFrame(exact.columns())
    shuffled = frame.sample(fraction=1.0, shuffle=True, seed=3).select(frame.columns[::-1])
    again = read_transfer(shuffled).align(exact.sources, exact.targets)
    assert np.array_equal(again.nsv, exact.nsv)


def test_only_normalised_values(exact, tmp_path):
    table = exact.columns()
    del table["sv"]
    matrix = read_transfer(table)
    assert matrix.sv is None
    assert np.array_equal(matrix.nsv, exact.nsv)
    with pytest.raises(DataError, match="only normalised"):
        matrix.calibrate(np.ones(5))
    assert matrix.compare(exact).raw is None


def test_raw_and_normalised_values_agree_up_to_rounding():
    table = {"source": ["a", "b"], "target": ["a", "a"], "sv": [1.0, 0.0], "nsv": [1.0, math.exp(-1) + 5e-7]}
    assert read_transfer(table).nsv[1, 0] == math.exp(-1)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"nsv": ["2.5", "1"]}, "nsv = 2.5, expected 1"), ({"nsv": ["0.25", "0.5"]}, "expected 1"),
        ({"sv": ["x", "1"]}, "sv is not a finite number: 'x'"), ({"sv": ["nan", "1"]}, "sv is not a finite number"),
        ({"sv": ["", "1"]}, "sv is empty"), ({"value": ["1", "1"]}, "has no column 'sv' or 'nsv'"),
        ({"sv": [1.0, 0.0], "nsv": [1.0, 0.5]}, r"nsv = 0\.5, expected"),
        ({"sv": [1.0, 0.0], "loss_drop": [1.0, 2.0]}, "loss_drop = 2, expected 1"),
    ],
)  # fmt: skip
def test_values_that_cannot_be(columns, message):
    with pytest.raises(DataError, match=message):
        read_transfer({"source": ["a", "b"], "target": ["a", "a"], **columns})


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


def test_leaving_sources_out_normalises_again(exact):
    part = exact.align(["zh", "de"], exact.targets)
    assert part.nsv == pytest.approx(np.exp(part.sv - part.sv.max(axis=0)), rel=1e-14)
    with pytest.raises(DataError, match="'xx' is missing"):
        exact.align(["xx"], exact.targets)


def test_calibration_gives_each_target_its_loss_drop(irds, fixtures):
    matrix = irds.calibrate()
    drops = irds.provenance["loss_drop"]
    assert matrix.sv.sum(axis=0) == pytest.approx([drops[name] for name in irds.targets])
    assert matrix.compare(matrix.calibrate()).cosine == pytest.approx(1.0)
    log = fixtures / "multilingual5_runs.csv"
    fits = [fit(log, "shapley", one, bootstrap=0, folds=0).law for one in (irds, matrix)]
    np.testing.assert_array_equal(fits[0].nsv, fits[1].nsv)


def test_calibration_scales_errors_and_refuses_what_it_cannot_scale():
    matrix = labelled([[1.0], [3.0]], stderr=[[0.1], [0.2]]).calibrate([8.0])
    assert (matrix.sv.ravel().tolist(), matrix.stderr.ravel()) == ([2, 6], pytest.approx([0.2, 0.4]))
    with pytest.raises(DataError, match="cannot calibrate t0"):
        labelled([[1.0], [-3.0]]).calibrate([1.0])
    with pytest.raises(DataError, match="no loss drops are known"):
        labelled([[1.0]]).calibrate()
    with pytest.raises(DataError, match="1 numbers above 0"):
        labelled([[1.0]]).calibrate([-1.0])


def test_calibrated_gradients_resemble_the_exact_values(irds, exact):
    """The measurement behind calibration as the default: the figures are those of an independent analysis."""
    calibrated, plain = irds.calibrate().compare(exact), irds.compare(exact)
    assert calibrated.cosine == pytest.approx(0.978, abs=6e-4)
    assert calibrated.pearson == pytest.approx(0.952, abs=6e-4)
    assert calibrated.cosine_off_diagonal == pytest.approx(0.940, abs=6e-4)
    assert calibrated.pearson_off_diagonal == pytest.approx(0.845, abs=6e-4)
    assert plain.cosine == pytest.approx(0.811, abs=6e-4)
    assert plain.pearson == pytest.approx(0.801, abs=6e-4)
    assert calibrated.raw is not None


def test_comparison_matches_numpy_and_labels(irds, exact):
    off = ~np.eye(5, dtype=bool)
    turned = exact.align(exact.sources[::-1], exact.targets[::-1])
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


def test_comparison_of_different_labels_is_refused(exact):
    with pytest.raises(DataError, match="missing from the sources"):
        exact.compare(exact.align(["en", "de"], exact.targets))


def test_what_is_undefined_is_nan():
    flat = labelled([[1.0], [1.0]])
    found = flat.compare(flat)
    assert found.cosine == pytest.approx(1.0)
    assert math.isnan(found.pearson)
    same = TransferMatrix.from_sv([[1.0]], ["en"], ["en"])
    assert math.isnan(same.compare(same).cosine_off_diagonal)
