"""Saved results: every bit comes back, and whatever is wrong with a file is said."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shapleymix.errors import StoreError, UsageError
from shapleymix.files import atomic_write, read_json
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
        "matrix": np.array([[1 / 3, np.nan], [np.inf, -np.inf]]),
        "counts": np.array([1, -(2**60)]),
        "flags": np.array([True, False]),
        "text": 'zh: 中文 "\n',
        "number": 0.1,
        "count": 3,
        "sure": True,
        "maybe": None,
        "names": ("en", "de"),
        "pair": ("a", -0.0),
        "inner": Inner("x", (1.5, float("nan"))),
        "inners": (Inner("y", ()), Other("z", (2.0,), 7)),
        "table": {"en": float("inf")},
        "free": {"deep": [1, {"b": None}]},
    }
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
        assert one.dtype == other.dtype
        assert one.tobytes() == other.tobytes()
    assert after.text == before.text
    assert after.names == before.names
    assert np.signbit(after.pair[1])
    assert type(after.inners[1]) is Other
    assert np.isnan(after.inner.numbers[1])
    assert after.table == before.table
    assert after.free == before.free
    assert after.to_document() == before.to_document()


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
    text = (tmp_path / "a.json").read_text(encoding="utf-8")
    parsed = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert parsed["schema_version"] == SCHEMA_VERSION
    assert parsed["kind"] == "test/whole"
    assert parsed["matrix"] == [[1 / 3, None], ["inf", "-inf"]]
    assert "中文" in text
    assert text.endswith("\n")
    whole().save(tmp_path / "b.json")
    assert (tmp_path / "b.json").read_bytes() == (tmp_path / "a.json").read_bytes()


def test_a_base_class_loads_its_kinds_and_no_other(tmp_path):
    Other("z", (1.0,), 2).save(tmp_path / "other.json")
    assert type(Record.load(tmp_path / "other.json")) is Other
    assert type(Inner.load(tmp_path / "other.json")) is Other
    with pytest.raises(StoreError, match="holds a test/other, expected a test/whole"):
        Whole.load(tmp_path / "other.json")
    with pytest.raises(StoreError, match="holds a nonsense"):
        Record.from_document({"schema_version": 1, "kind": "nonsense"})


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"schema_version": SCHEMA_VERSION + 1}, "schema version 2; this installation reads up to 1"),
        ({"schema_version": "1"}, "schema version '1'"),
        ({"kind": ["test/whole"]}, "expected a test/whole"),
        ({"matrix": "abc"}, "'matrix' cannot be read"),
        ({"matrix": [[1.0, 2.0], [3.0]]}, "'matrix' cannot be read"),
        ({"matrix": [["abc"]]}, "'matrix' cannot be read"),
        ({"matrix": {"a": 1}}, "'matrix' cannot be read"),
        ({"counts": [1.5]}, "'counts' cannot be read"),
        ({"counts": [None]}, "'counts' cannot be read"),
        ({"flags": [2]}, "'flags' cannot be read"),
        ({"flags": ["no"]}, "'flags' cannot be read"),
        ({"text": 3}, "'text' cannot be read"),
        ({"number": "much"}, "'number' cannot be read"),
        ({"number": [1]}, "'number' cannot be read"),
        ({"count": 1.5}, "'count' cannot be read"),
        ({"count": True}, "'count' cannot be read"),
        ({"sure": "yes"}, "'sure' cannot be read"),
        ({"names": "ende"}, "'names' cannot be read"),
        ({"names": [1, 2]}, "'names' cannot be read"),
        ({"names": 3}, "'names' cannot be read"),
        ({"pair": ["a"]}, "'pair' cannot be read"),
        ({"inner": 3}, "is not a shapleymix result"),
        ({"inner": {"schema_version": 1, "kind": "test/inner", "name": "x"}}, "lacks the field 'numbers'"),
        ({"inner": {"schema_version": 1, "kind": "test/whole"}}, "expected a test/inner"),
        ({"table": [1]}, "'table' cannot be read"),
    ],
)
def test_a_wrong_document_is_refused_with_its_place(changed, said):
    with pytest.raises(StoreError) as caught:
        Whole.from_document(document(**changed), "fit.json")
    assert said in str(caught.value)
    assert caught.value.location.file == "fit.json"
    assert caught.value.exit_code == 1


@pytest.mark.parametrize("name", ["matrix", "text", "inner", "maybe", "free"])
def test_a_missing_field_is_named(name):
    part = document()
    del part[name]
    with pytest.raises(StoreError, match=f"lacks the field '{name}'"):
        Whole.from_document(part)


@pytest.mark.parametrize("thing", [None, 3, "text", [1], {}, {"kind": "test/whole"}, {"schema_version": 1}])
def test_what_is_no_result_is_refused(thing):
    with pytest.raises(StoreError, match="is not a shapleymix result"):
        Whole.from_document(thing)


@settings(max_examples=100, deadline=None)
@given(
    name=st.sampled_from(sorted(document())),
    junk=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
        max_leaves=5,
    ),
)
def test_junk_in_any_field_is_read_or_refused_but_never_a_traceback(name, junk):
    try:
        found = Whole.from_document(document(**{name: junk}))
    except StoreError:
        return
    found.to_document()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{", "not valid JSON"),
        (b"", "not valid JSON"),
        (b"\xff\xfe\x00", "not a JSON text file"),
        (b"[" * 100_000, "JSON"),
    ],
)
def test_a_broken_file_is_refused(tmp_path, content, said):
    path = tmp_path / "broken.json"
    path.write_bytes(content)
    with pytest.raises(StoreError, match=said):
        read_json(path)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(StoreError, match="No such file"):
        Whole.load(tmp_path / "nowhere.json")


def test_the_line_of_a_json_error_is_given(tmp_path):
    (tmp_path / "a.json").write_text('{\n"a": 1,\n!}')
    with pytest.raises(StoreError) as caught:
        read_json(tmp_path / "a.json")
    assert caught.value.location.line == 3


def test_nothing_is_overwritten_unasked(tmp_path):
    path = tmp_path / "a.json"
    atomic_write(path, "old")
    with pytest.raises(UsageError, match="exists already"):
        atomic_write(path, "new")
    assert path.read_text() == "old"
    atomic_write(path, b"new", force=True)
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize("step", ["replace", "fdopen", "chmod"])
def test_a_failing_write_leaves_nothing_behind_and_the_old_file_whole(tmp_path, monkeypatch, step):
    path = tmp_path / "a.json"
    path.write_text("old")

    def fail(*args: Any, **more: Any) -> None:
        if step == "fdopen":
            os.close(args[0])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(UsageError, match="No space left on device"):
        atomic_write(path, "new", force=True)
    monkeypatch.undo()
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.json"]
    assert path.read_text() == "old"


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(UsageError, match="cannot be written: No such file"):
        atomic_write(tmp_path / "no" / "a.json", "x")
    assert not list(tmp_path.iterdir())


def test_new_files_have_the_usual_permissions(tmp_path):
    atomic_write(tmp_path / "a.json", "x")
    (tmp_path / "b.json").write_text("x")
    assert (tmp_path / "a.json").stat().st_mode == (tmp_path / "b.json").stat().st_mode


def test_what_cannot_be_stored_is_our_own_mistake(tmp_path):
    with pytest.raises(TypeError, match="cannot store a set"):
        whole(free={"a": {1}}).save(tmp_path / "a.json")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("symbol", "value"), [("E", None), ("gamma", -5.0), ("alpha", 9.0), ("A", "inf"), ("gamma", [0.1])]
)
def test_a_fit_with_impossible_symbols_is_a_broken_file(tmp_path, symbol, value):
    from simulated import log_of

    from shapleymix.fitting.fit import fit
    from shapleymix.fitting.fits import Fit

    _, given, log = log_of("shapley", rows=20)
    fit(log, "shapley", given.transfer, bootstrap=0, folds=0, threads=1).save(tmp_path / "fit.json")
    document = json.loads((tmp_path / "fit.json").read_text())
    held = document["law"][symbol]
    document["law"][symbol] = value if isinstance(value, list) else [value, *held[1:]]
    (tmp_path / "broken.json").write_text(json.dumps(document))
    with pytest.raises(StoreError, match=symbol):
        Fit.load(tmp_path / "broken.json")


@pytest.mark.parametrize("text", ['{"schema_version": NaN}', '{"schema_version": ' + "1" * 5000 + "}"])
def test_numbers_that_are_none_are_a_broken_file(tmp_path, text):
    (tmp_path / "broken.json").write_text(text)
    with pytest.raises(StoreError, match="not valid JSON"):
        read_json(tmp_path / "broken.json")


def test_a_name_of_an_array_type_is_read_as_what_it_stands_for(tmp_path):
    """NumPy 2.5 made `NDArray` such a name for Python 3.12: no result with arrays could be read any more."""
    TypeAliasType = pytest.importorskip("typing_extensions").TypeAliasType
    Scalar = TypeVar("Scalar", bound=np.generic)
    Named = TypeAliasType("Named", np.ndarray[tuple[int, ...], np.dtype[Scalar]], type_params=(Scalar,))
    Twice = TypeAliasType("Twice", Named[np.int64])

    class Odd(Record):
        kind = "test/aliases"

    Odd.__annotations__ = {"x": Named[np.float64], "n": Twice, "maybe": Named[np.bool_] | None}
    Odd = dataclass(frozen=True)(Odd)
    saved = Odd(np.array([[1.0, np.nan]]), np.arange(3), None)
    saved.save(tmp_path / "odd.json")
    found = Odd.load(tmp_path / "odd.json")
    assert found == saved
    assert (found.x.dtype, found.n.dtype) == (np.float64, np.int64)
