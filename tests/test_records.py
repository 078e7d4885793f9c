"""Saved results, files and errors: every bit comes back, and whatever is wrong with a file has its place."""

import hashlib
import io
import json
import os
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shapleymix.errors import (
    DataError,
    Fault,
    FitError,
    InfeasibleError,
    Location,
    SolveError,
    StoreError,
    UsageError,
    did_you_mean,
)  # fmt: skip
from shapleymix.files import Origin, atomic_write, read_json, read_once
from shapleymix.records import SCHEMA_VERSION, BoolArray, FloatArray, IntArray, Record


@dataclass(frozen=True)
class Inner(Record):
    kind = "test/inner"

    name: str
    numbers: tuple[float, ...]


@dataclass(frozen=True)
class Other(Inner):
    kind = "test/other"

    more: int


@dataclass(frozen=True)
class Whole(Record):
    kind = "test/whole"

    matrix: FloatArray
    counts: IntArray
    flags: BoolArray
    text: str
    number: float
    count: int
    sure: bool
    maybe: FloatArray | None
    names: tuple[str, ...]
    pair: tuple[str, float]
    inner: Inner
    inners: tuple[Inner, ...]
    table: dict[str, float]
    free: dict[str, Any]


def whole(**changes: Any) -> Whole:
    values: dict[str, Any] = {
        "matrix": np.array([[1 / 3, np.nan], [np.inf, -np.inf]]), "counts": np.array([1, -(2**60)]),
        "flags": np.array([True, False]), "text": 'zh: 中文 "\n', "number": 0.1, "count": 3, "sure": True,
        "maybe": None, "names": ("en", "de"), "pair": ("a", -0.0), "inner": Inner("x", (1.5, float("nan"))),
        "inners": (Inner("y", ()), Other("z", (2.0,), 7)), "table": {"en": float("inf")},
        "free": {"deep": [1, {"b": None}]},
    }  # fmt: skip
    return Whole(**(values | changes))


def document(**changes: Any) -> dict[str, Any]:
    return whole().to_document() | changes


def test_everything_comes_back(tmp_path):
    path = tmp_path / "whole.json"
    before = whole()
    before.save(path)
    after = Whole.load(path)
    for name in ("matrix", "counts", "flags"):
        one, other = getattr(before, name), getattr(after, name)
        assert (one.dtype, one.tobytes()) == (other.dtype, other.tobytes())
    assert (after.text, after.names) == (before.text, before.names)
    assert np.signbit(after.pair[1])
    assert type(after.inners[1]) is Other
    assert np.isnan(after.inner.numbers[1])
    assert (after.table, after.free, after.to_document()) == (before.table, before.free, before.to_document())


@settings(max_examples=150, deadline=None)
@given(values=st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=8), one=st.floats())
def test_every_float_comes_back_bit_for_bit(values, one):
    numbers = np.array(values, dtype=np.float64)
    numbers[np.isnan(numbers)] = np.nan  # one NaN is as good as another
    text = json.dumps(whole(matrix=numbers, number=one).to_document(), allow_nan=False)
    again = Whole.from_document(json.loads(text))
    assert again.matrix.tobytes() == numbers.tobytes()
    assert again.number == one or (np.isnan(one) and np.isnan(again.number))


def test_the_file_is_plain_versioned_json(tmp_path):
    whole().save(tmp_path / "a.json")
    content = json.loads((tmp_path / "a.json").read_text())
    assert (content["schema_version"], content["kind"]) == (SCHEMA_VERSION, "test/whole")
    assert content["matrix"] == [[1 / 3, None], ["inf", "-inf"]]
    found = Whole.load(tmp_path / "a.json")
    assert found == whole()
    assert found.read_from.sha256 == hashlib.sha256((tmp_path / "a.json").read_bytes()).hexdigest()
    assert Whole.taken(tmp_path / "a.json") == Whole.taken(found)
    with pytest.raises(UsageError):
        Whole.taken(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [name for name in document() if name not in ("kind", "schema_version")])
@pytest.mark.parametrize(
    "junk", [None, 1, 1.5, True, "x", [], [1], [[1], [1, 2]], {}, {"kind": "test/inner"}, [None, "y"]]
)
def test_junk_in_a_field_is_read_or_refused_by_its_name(name, junk):
    found: Whole | Location | None = None
    try:
        found = Whole.from_document(document(**{name: junk}), "a.json")
    except StoreError as error:
        found = error.location
    assert isinstance(found, Whole) or (found.file, str(found.column).split(".")[0]) == ("a.json", name)


@pytest.mark.parametrize(
    ("changed", "column"),
    [
        ({"kind": "test/nothing"}, None), ({"schema_version": SCHEMA_VERSION + 1}, None),
        ({"matrix": [["x"]]}, "matrix"), ({"counts": [1.5]}, "counts"), ({"flags": [1]}, "flags"),
        ({"pair": ["a"]}, "pair"),
        ({"inner": {"schema_version": SCHEMA_VERSION, "kind": "test/inner", "name": 3, "numbers": []}}, "inner.name"),
    ],
)  # fmt: skip
def test_a_wrong_document_is_refused_at_its_field(changed, column):
    with pytest.raises(StoreError) as caught:
        Whole.from_document(document(**changed), "a.json")
    assert (caught.value.location.file, caught.value.location.column) == ("a.json", column)


def test_a_missing_field_and_what_is_no_result_are_refused():
    for thing in ({name: value for name, value in document().items() if name != "count"}, {}, [], None, "x"):
        with pytest.raises(StoreError):
            Whole.from_document(thing)
    extra = Whole.from_document(document(unknown=1))
    assert extra == whole()


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b'{"a": 1}'])
def test_a_broken_file_is_refused(tmp_path, content):
    (tmp_path / "a.json").write_bytes(content)
    for path in (tmp_path / "a.json", tmp_path / "none.json", tmp_path, tmp_path / "runs.csv"):
        with pytest.raises(StoreError) as caught:
            Whole.load(path)
        assert caught.value.location.file


# files


def test_a_file_is_written_whole_and_kept_unless_forced(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    atomic_write(path, "old")
    path.chmod(0o640)
    with pytest.raises(UsageError):
        atomic_write(path, "new")
    link = tmp_path / "link.txt"
    link.symlink_to(path)
    atomic_write(link, b"new", force=True)
    assert (path.read_text(), link.is_symlink(), path.stat().st_mode & 0o777) == ("new", True, 0o640)
    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(UsageError):
        atomic_write(path, "newer", force=True)
    assert (path.read_text(), sorted(one.name for one in tmp_path.iterdir())) == ("new", ["a.txt", "link.txt"])


def failing(*given: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("name", ["", "none/a.txt", "a\0b", "x" * 300])
def test_a_name_that_cannot_be_written_is_refused(tmp_path, name):
    with pytest.raises(UsageError):
        atomic_write(f"{tmp_path}/{name}", "x")
    with pytest.raises(UsageError):
        atomic_write(3, "x")  # type: ignore[arg-type]


def test_what_is_read_carries_the_hash_of_its_bytes(tmp_path, monkeypatch):
    (tmp_path / "a.json").write_bytes(b"\xef\xbb\xbf[1]")
    data, origin = read_once(tmp_path / "a.json")
    assert origin == Origin(str(tmp_path / "a.json"), hashlib.sha256(data).hexdigest())
    assert read_json(tmp_path / "a.json") == ([1], origin)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"[2]")))
    assert read_json("-")[0] == [2]


# errors


def test_errors_have_codes_places_and_hints():
    kinds = [DataError, UsageError, FitError, SolveError, InfeasibleError, StoreError]
    assert len({kind.code for kind in kinds}) == len(kinds)
    assert [kind for kind in kinds if kind.exit_code == 2] == [UsageError]
    place = Location("runs.csv", 5, "p_en")
    one = DataError.of([Fault("is empty", place, hint="fill it in")])
    assert (one.location, one.hint, str(one)) == (
        place, "fill it in", "runs.csv:5 [p_en]: is empty\n  hint: fill it in",
    )  # fmt: skip
    for fault, shown in ((lambda row: "x" * row, 20), (lambda row: f"the cell {row}", 2)):  # 25 kinds, and one kind
        many = DataError.of([Fault(fault(row), place, hint="the same") for row in range(25)], "runs.csv")
        assert (len(many.faults), str(many).count("runs.csv:5"), str(many).count("the same")) == (25, shown, 1)
    forged = DataError("\x1b[31mred\nrun", location=Location("a\nb"))
    assert "\x1b" not in str(forged)
    assert "\n" not in str(forged)


def test_the_nearest_name_is_offered_or_all():
    assert did_you_mean("frnech", ["french", "german"]) == "did you mean 'french'?"
    assert did_you_mean("zz", ["en", "de"]) == "known: en, de"
    assert did_you_mean("zz", []) is None
    assert did_you_mean("zz", [f"{number}" for number in range(99)]).endswith(", ...")  # type: ignore[union-attr]
