"""Saved results that somebody edited: they are refused with the file and the field, or they work."""

from __future__ import annotations

import contextlib
import copy
import json
import math
import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from simulated import log_of

import shapleymix as sm
from shapleymix.errors import ShapleyMixError, StoreError
from shapleymix.records import Record

Document = dict[str, Any]
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 3, 2**63, 10**300, -(10**300), 1e308, -1e-308, 0.5, "", "en", "nan", "inf", "-inf", [],
    {}, [[]], [None], {"a": 1}, [1, 2, 3], "\x1b[31m", "x" * 500, ["a", "a"], [0.5, [0.5]],
)  # fmt: skip
TRIALS = 400


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths to everything in a document."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path for key, item in inner for path in [(*at, key), *places(item, (*at, key))]]


def tampered(document: Document, rng: random.Random) -> Document:
    """The document with one thing deleted, replaced, repeated, nested, negated, swapped or moved."""
    found = copy.deepcopy(document)
    path = rng.choice(places(found))
    parent: Any = found
    for key in path[:-1]:
        parent = parent[key]
    key, kind = path[-1], rng.choice(("delete", "replace", "replace", "repeat", "deep", "negate", "reverse", "take"))
    if kind == "delete":
        del parent[key]
    elif kind == "repeat" and isinstance(parent, list):
        parent.insert(key, parent[key])
    elif kind == "deep":
        for _ in range(rng.choice((1, 5, 300))):
            parent[key] = [parent[key]]
    elif kind == "negate" and isinstance(parent[key], (int, float)):
        parent[key] = -parent[key]
    elif kind == "reverse" and isinstance(parent[key], list):
        parent[key].reverse()
    elif kind == "take":
        other: Any = document
        for step in rng.choice(places(document)):
            other = other[step]
        parent[key] = copy.deepcopy(other)
    else:
        parent[key] = copy.deepcopy(rng.choice(VALUES))
    return found


def use_fit(found: Any) -> None:
    share = 1 / max(len(found.sources), 1)
    p = np.full((1, len(found.sources)), share)
    predicted = found.predict(p, 5e7, 5e9)
    assert predicted.losses.shape == (1, len(found.targets))
    found.parameters()
    mixture = sm.optimize(found, 5e7, 5e9)
    assert math.isclose(float(mixture.p.sum()), 1.0, abs_tol=1e-9)


def use_mixture(found: Any) -> None:
    assert math.isclose(sum(found.mixture.values()), 1.0, abs_tol=1e-6)
    assert found.gap == found.certificate.gap
    assert len(found.shadow_prices) == len(found.binding)


def use_matrix(found: Any) -> None:
    assert len(found.columns()["source"]) == len(found.sources) * len(found.targets)
    found.compare(found)
    found.calibrated()


def use_comparison(found: Any) -> None:
    assert found.best() in [entry.law for entry in found.entries]
    found.preferred()


def use_prediction(found: Any) -> None:
    assert found.losses.shape == (len(found.runs), len(found.targets))
    assert found.p.shape == (len(found.runs), len(found.sources))


USES: dict[str, Callable[[Any], None]] = {
    "fit": use_fit,
    "mixture": use_mixture,
    "transfer": use_matrix,
    "comparison": use_comparison,
    "prediction": use_prediction,
}


@pytest.fixture(scope="module")
def artefacts() -> dict[str, Document]:
    """One real document of each kind, as its file holds it."""
    _, given, log = log_of("shapley-tempered", rows=24, noise=1e-2)
    assert given.transfer is not None
    drops = dict.fromkeys(given.transfer.targets, 1.5)
    transfer = sm.TransferMatrix.from_sv(
        given.transfer.sv if given.transfer.sv is not None else np.log(given.transfer.nsv) + 2,
        given.transfer.sources, given.transfer.targets, provenance={"loss_drop": drops},
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = sm.fit(log, "shapley-tempered", transfer, bootstrap=3, folds=2, threads=1)
        found = {
            "fit": fit,
            "mixture": sm.optimize(fit, 5e7, 5e9, caps={log.sources[0]: 0.3}),
            "transfer": transfer,
            "comparison": sm.compare(log, ["shapley", "shapley-tempered"], transfer, folds=2, threads=1),
            "prediction": fit.predict(log.p[:3], 5e7, 5e9),
        }
    return {kind: json.loads(json.dumps(record.to_document())) for kind, record in found.items()}


def load(path: Path) -> Any:
    """The record in a file, or the StoreError that refuses it."""
    try:
        return Record.load(path)
    except StoreError as error:
        return error


def used(record: Any) -> None:
    """Use a record as its kind is used; it may be refused there, too, but only by an error of ours."""
    with np.errstate(all="ignore"), contextlib.suppress(ShapleyMixError):
        USES[record.kind](record)
    record.to_document()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", USES)
def test_a_tampered_result_works_or_is_refused_by_file_and_field(artefacts, kind, tmp_path: Path):
    """About 7% of tampered files were internal faults that named no file."""
    rng = random.Random(f"tampered {kind}")
    path = tmp_path / f"{kind}.json"
    refused = 0
    for _ in range(TRIALS):
        path.write_text(json.dumps(tampered(artefacts[kind], rng)))
        found = load(path)
        if isinstance(found, StoreError):
            refused += 1
            assert found.location.file == str(path)
            assert str(found).startswith(str(path))
        else:
            used(found)
    assert refused > TRIALS / 4


@pytest.mark.parametrize("kind", USES)
def test_an_untouched_result_comes_back_and_works(artefacts, kind, tmp_path: Path):
    path = tmp_path / f"{kind}.json"
    path.write_text(json.dumps(artefacts[kind]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        USES[kind](Record.load(path))
    assert Record.load(path).to_document() == artefacts[kind]


@pytest.mark.parametrize("kind", USES)
def test_labels_that_repeat_and_arrays_of_another_length_name_their_field(artefacts, kind, tmp_path: Path):
    changed = copy.deepcopy(artefacts[kind])
    name = "sources" if "sources" in changed else "entries"
    changed[name] = [changed[name][0], *changed[name]]
    with pytest.raises(StoreError) as caught:
        Record.from_document(changed, "a.json")
    assert caught.value.location.file == "a.json"
    assert caught.value.location.column or kind in ("fit", "comparison")


def test_ratios_by_name_that_contradict_p_are_refused(artefacts):
    """Editing the named ratios of a mixture changed nothing, in silence: what is read is `p`."""
    changed = copy.deepcopy(artefacts["mixture"])
    names = list(changed["mixture"])
    changed["mixture"][names[0]], changed["mixture"][names[1]] = 0.123, 0.456
    with pytest.raises(StoreError, match="'mixture' does not follow from the others"):
        Record.from_document(changed, "mix.json")
