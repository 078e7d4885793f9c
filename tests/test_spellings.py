"""One name has one spelling: accents are composed, and names that look alike and differ are refused by name."""

from __future__ import annotations

import itertools
import unicodedata
from dataclasses import replace

import numpy as np
import pytest
from simulated import log_of

from shapleymix.errors import DataError, UsageError
from shapleymix.fitting.fit import fit
from shapleymix.mixing.groups import Group
from shapleymix.mixing.optimization import optimize
from shapleymix.mixing.sides import sides_of
from shapleymix.mixing.what_if import changes_of
from shapleymix.tables.amounts import parse_number, parse_pairs
from shapleymix.tables.languages import read_languages
from shapleymix.tables.run_reading import read_runs
from shapleymix.tables.simplex import parse_mixture
from shapleymix.tables.spelling import appearance, composed, lookalikes, near
from shapleymix.tables.transfer import TransferMatrix
from shapleymix.tables.transfer_reading import read_transfer

ONE, TWO = (unicodedata.normalize(form, "español") for form in ("NFC", "NFD"))
CYRILLIC, WIDE, HIDDEN = "\u0435s", "\uff45\uff53", "e\u200ds"
TWINS = {"Cyrillic": CYRILLIC, "full width": WIDE}


def runs(*sources: str, targets: tuple[str, ...] = ("x",)) -> dict[str, list]:
    share = 1 / len(sources)
    mixture = {f"p_{name}": [share, share] for name in sources}
    losses = {f"loss_{name}": [3.0, 2.9] for name in targets}
    return {"run": ["a", "b"], "N": [1e8, 1e8], "D": [1e9, 2e9], **mixture, **losses}


def matrix(sources: tuple[str, ...], targets: tuple[str, ...]) -> dict[str, list]:
    pairs = list(itertools.product(sources, targets))
    return {"source": [a for a, _ in pairs], "target": [b for _, b in pairs], "sv": [1.0] * len(pairs)}


def wide(sources: tuple[str, ...], targets: tuple[str, ...]) -> dict[str, list]:
    return {"source": list(sources), **{name: [1.0] * len(sources) for name in targets}}


@pytest.mark.parametrize("written", [ONE, TWO])
def test_accents_are_composed_wherever_names_come_in(written):
    """Fault: the two spellings of one name passed as two sources."""
    assert read_runs(runs(written, "en", targets=(written,))).sources == (ONE, "en")
    assert read_runs(runs(written, "en", targets=(written,))).targets == (ONE,)
    assert read_transfer(matrix((written, "en"), (written,))).sources == (ONE, "en")
    assert read_transfer(wide((written, "en"), (written,)), kind="raw").targets == (ONE,)
    assert read_languages({"language": [written], "family": ["Romance"]}).names == (ONE,)
    assert TransferMatrix.from_sv([[1.0]], [written], [written]).sources == (ONE,)
    np.testing.assert_array_equal(parse_mixture(f"{written}=0.25,en=0.75", (ONE, "en")), [0.25, 0.75])
    np.testing.assert_array_equal(parse_mixture({written: 0.25, "en": 0.75}, (ONE, "en")), [0.25, 0.75])
    assert parse_pairs(f"{written}=2", parse_number, "weight") == {ONE: 2.0}
    assert parse_pairs({written: 2}, parse_number, "weight") == {ONE: 2.0}
    assert Group.read(f"{written}+en<=0.5").sources == (ONE, "en")
    assert sides_of(f"{written}:rest", (ONE, "en"), {})[0] == (ONE,)
    assert changes_of(f"{written}+1B", (ONE,), np.array([1e9]))[0].tokens == {ONE: 1e9}


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_two_spellings_of_one_name_are_one_column_given_twice(tmp_path, ending):
    path = tmp_path / f"runs.{ending}"
    names = ["run", "N", "D", f"p_{ONE}", f"p_{TWO}", "loss_x"]
    cells = ["a", "1e8", "1e9", "0.5", "0.5", "3"]
    rows = {"csv": f"{','.join(names)}\n{','.join(cells)}\n"}
    rows["jsonl"] = "{" + ",".join(f'"{name}": "{cell}"' for name, cell in zip(names, cells, strict=True)) + "}\n"
    path.write_text(rows[ending], encoding="utf-8")
    with pytest.raises(DataError, match=rf"runs\.{ending}:1.*column 'p_{ONE}' occurs twice"):
        read_runs(path)


@pytest.mark.parametrize(
    "read", [lambda pairs: parse_pairs(pairs, parse_number, "cap"), lambda pairs: parse_mixture(pairs, (ONE,))]
)
@pytest.mark.parametrize("given", [f"{ONE}=0.5,{TWO}=0.5", {ONE: 0.5, TWO: 0.5}])
def test_a_name_that_is_given_in_both_spellings_is_given_twice(read, given):
    with pytest.raises(UsageError, match=f"'{ONE}' is given twice"):
        read(given)


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize("place", ["two sources", "two targets", "a source and a target"])
def test_names_that_look_alike_are_refused_in_every_table(twin, place):
    """Fault: `es` in Latin and in Cyrillic letters were two languages, and a target's own language was another."""
    other = TWINS[twin]
    sources, targets = {
        "two sources": (("es", other), ("x",)),
        "two targets": (("x", "y"), ("es", other)),
        "a source and a target": (("es", "en"), (other, "en")),
    }[place]
    words = f"'{other}' looks like 'es' and is written with other characters \\(U\\+"
    with pytest.raises(DataError, match=words) as caught:
        read_runs(runs(*sources, targets=targets))
    assert caught.value.location.column == (f"p_{other}" if place == "two sources" else f"loss_{other}")
    with pytest.raises(DataError, match="looks like"):
        read_transfer(matrix(sources, targets))
    with pytest.raises(DataError, match="looks like"):
        read_transfer(wide(sources, targets), kind="raw")
    with pytest.raises(DataError, match=words):
        read_languages({"language": ["es", other], "family": ["a", "b"]})


@pytest.mark.parametrize("name", [HIDDEN, "es\u200b", "\ufeffes", "es\u00ad", " es", "es\u3000"])
def test_names_with_what_nobody_sees_are_refused(name):
    with pytest.raises(DataError, match=r"cannot be printed|white space"):
        read_runs(runs(name, "en"))


def test_an_unknown_name_that_looks_like_a_known_one_is_told_so():
    """Fault: "'es' is not one of the sources, known: es"."""
    with pytest.raises(UsageError, match="is not one of the sources") as caught:
        parse_mixture(f"{CYRILLIC}=1", ("es", "en"))
    assert str(caught.value.hint).startswith(
        f"{CYRILLIC!r} looks like 'es' and is written with other characters (U+0435)"
    )
    log, sv = read_runs(runs("es", "en")), read_transfer(matrix((WIDE, "en"), ("x",)))
    with pytest.raises(DataError, match="'es' is missing from the sources of the SV matrix") as unknown:
        sv.aligned(log.sources, log.targets)
    assert "looks like" in str(unknown.value.hint)


def test_what_only_resembles_is_left_alone():
    names = [
        "en",
        "EN",
        "es",
        "español",
        "espanol",
        "ру",
        "рус",
        "中文",
        "日本語",
        "zh-Hans",
        "zh-Hant",
        "sr",
        "ср\u0431",
    ]
    assert lookalikes(names) == {}
    assert read_runs(runs(*names)).sources == tuple(names)
    assert all(composed(name) == name for name in names)
    assert appearance("рус") == "pyc"
    assert near("spañol", names) == "did you mean 'español'?"


@pytest.mark.parametrize(
    "asked",
    [
        {"caps": "jap=0.5"},
        {"floors": "jap=0.1"},
        {"available": "jap=1B"},
        {"weights": "jap=1"},
        {"groups": "jap+de<=0.5"},
        {"what_if": "jap+1B"},
    ],
)
def test_options_tell_look_alikes_apart(asked):
    """A hint "did you mean 'ja\u0440'?" looks like what was written."""
    _, _, log = log_of("additive", rows=20, noise=1e-3)
    names = ("ja\u0440", *log.sources[1:])
    fitted = fit(replace(log, sources=names, targets=names), "additive", bootstrap=0, folds=0, starts=1, threads=1)
    with pytest.raises(UsageError, match=r"looks like .* written with other characters"):
        optimize(fitted, 1e8, 1e9, **asked)
