"""Every number of a saved fit, mixture and frontier, out of its range: refused by file and field, or harmless."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from shapleymix_cli.documents.fits import fit_document
from shapleymix_cli.views.fit import fit_view
from shapleymix_cli.views.optimize import mixture_view

import shapleymix as sm
from shapleymix.errors import ShapleyMixError, StoreError
from shapleymix.records import Record

Document = dict[str, Any]
At = tuple[str | int, ...]
BUDGET = (23712, "1M")
SUPPLY = "en=20k,de=100k,fr=3M,ja=1M"
VALUES = (-1, 0, 7, 1e308, -1e308, 1e-308, None, "inf")
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def found(fixtures: Path) -> sm.Fit:
    """A fit with everything: replicates, misfit, repetition that the runs told, beliefs that were chosen."""
    log = sm.read_runs(fixtures / "repetition_runs.csv").select(np.arange(0, 64, 4))
    return sm.fit(log, "learned-base", bootstrap=3, folds=3, threads=1)


def document(record: Record) -> Document:
    return json.loads(json.dumps(record.to_document()))


def numbers(value: Any, at: At = ()) -> Iterator[tuple[At, At]]:
    """The places of all numbers, and what they are called; those of one array have one name."""
    if isinstance(value, (dict, list)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from numbers(item, (*at, key))
    elif value is None or (isinstance(value, (int, float)) and not isinstance(value, bool)):
        yield at, tuple("#" if isinstance(key, int) else key for key in at)


def tampered(whole: Document) -> Iterator[tuple[At, Document]]:
    """The document with one number of each name replaced by each value; provenance is free content."""
    first: dict[At, At] = {}
    for at, name in numbers(whole):
        if at[0] not in ("provenance", "by_source", "by_target", "rivals", "mixture"):
            first.setdefault(name, at)
    for name, at in first.items():
        for value in VALUES:
            changed = copy.deepcopy(whole)
            parent: Any = changed
            for key in at[:-1]:
                parent = parent[key]
            if parent[at[-1]] != value:
                parent[at[-1]] = value
                yield name, changed


def use_fit(found: Any) -> None:
    found.predict("uniform", *BUDGET, available=SUPPLY)
    found.parameters()
    fit_view(found, verbose=True)
    fit_document(found)
    mixture = sm.optimize(found, *BUDGET, available=SUPPLY)
    assert abs(mixture.p.sum() - 1) < 1e-9
    assert not mixture.objective_low > mixture.objective_high


def use_mixture(found: Any) -> None:
    mixture_view(found, "a law", verbose=True)
    assert found.lower_bound <= found.certificate.objective + 1e-6 or np.isnan(found.gap)
    assert all(not rival.probability > 1.001 for rival in found.baselines)


def use_frontier(found: Any) -> None:
    found.columns()
    found.summary()


def load(whole: Document) -> Any:
    """The record, or the error that refuses it."""
    try:
        return Record.from_document(whole, "a.json")
    except StoreError as error:
        return error


def held(whole: Document, use: Callable[[Any], None]) -> dict[str, set[str]]:
    """The values that were taken, by the name of the number; whatever is taken must work, or be refused by name."""
    taken: dict[str, set[str]] = {}
    for name, changed in tampered(whole):
        record = load(changed)
        if isinstance(record, StoreError):
            assert record.location.file == "a.json"
            continue
        taken.setdefault(".".join(map(str, name)), set()).add(str(_at(changed, name)))
        with np.errstate(all="ignore"), contextlib.suppress(ShapleyMixError):
            use(record)
    return taken


def _at(value: Any, name: At) -> Any:
    """The first number of that name."""
    for key in name:
        value = value[0 if key == "#" else key]
    return value


def test_numbers_of_a_fit(found: sm.Fit) -> None:
    taken = held(document(found), use_fit)
    for name in (
        "held_out.R2.#",
        "held_out.spearman.#",
        "held_out.coverage.#",
        "law.a.#",
        "law.own.#.#",
        "misfit.shared",
    ):
        assert "7" not in taken.get(name, set()), name
    assert "-1" not in taken["rows"]
    for name in ("coverage.N_range.#.#", "coverage.untrained.#", "replicates.gamma.#.#"):
        assert not taken.get(name, set()) & {"-1", "0", "inf"}, name
    assert not taken.get("residuals.#.#", set()) & {"inf", "None", "7", "1e+308"}


def test_numbers_of_a_mixture(found: sm.Fit) -> None:
    whole = document(sm.optimize(found, *BUDGET, available=SUPPLY, caps={"en": 0.3}, what_if="en+10k"))
    taken = held(whole, use_mixture)
    for name in ("level", "baselines.#.probability", "what_if.#.p.#", "certificate.lower_bound", "distance"):
        assert not taken.get(name, set()) & {"-1", "7", "1e+308", "inf"}, name
    assert not taken.get("certificate.gap", set()) & {"-1", "7", "1e+308"}


def test_numbers_of_a_frontier(found: sm.Fit) -> None:
    taken = held(document(sm.frontier(found, *BUDGET, "en:rest", points=3, available=SUPPLY)), use_frontier)
    for name in ("level", "entries.#.share", "entries.#.p.#"):
        assert not taken.get(name, set()) & {"-1", "7", "1e+308", "inf"}, name


def test_other_parts_than_belong_together_are_refused(found: sm.Fit) -> None:
    """Three rates for twenty replicates ended in an internal fault; likenesses of unknown sources were taken."""
    for path, value, message in (
        (("repetition", "rates"), [0.1], r"1 rates for \(3,\) replicates"),
        (("coverage", "alike"), {"cs": "pl"}, "alike names other sources"),
        (("knobs", "u"), [0.5], "knobs: u holds not one finite number"),
    ):
        whole = document(found)
        whole[path[0]][path[1]] = value
        with pytest.raises(StoreError, match=message):
            Record.from_document(whole, "a.json")
