"""Damaged saved results: refused by the file's name, or used without a fault of ours."""

from __future__ import annotations

import copy
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from campaign import Campaign
from hypothesis import strategies as st
from workshop import BUDGET, checked, folder

CAMPAIGN = Campaign("damaged artefacts")
COUNT = 2000
FILES = ("fit.json", "sv-fit.json", "mix.json")
VALUES = (
    None, True, False, 0, -1, 1, 2**63, 10**400, -(10**400), 1e308, -1e-308, 0.5, "", "en", "nan", "Infinity", [], {},
    [[]], [None], {"a": 1}, [1, 2, 3], "\x1b[31m", "\ud800", "x" * 5000, "__class__", ["en", "en"],
)  # fmt: skip
KINDS = ("replace", "replace", "delete", "repeat", "rename", "deep", "swap", "duplicate key", "cut", "byte")


@dataclass(frozen=True)
class Edit:
    """One damage: its kind, the steps to its place (each taken modulo what there is), and a value."""

    kind: str
    steps: tuple[int, ...]
    value: int


@dataclass(frozen=True)
class Case:
    """A saved file, its damages, and how it is used."""

    file: str
    edits: tuple[Edit, ...]
    use: int


def cases() -> st.SearchStrategy[Case]:
    steps = st.lists(st.integers(0, 60), min_size=1, max_size=6).map(tuple)
    edit = st.builds(Edit, st.sampled_from(KINDS), steps, st.integers(0, 10_000))
    files, uses = st.sampled_from(FILES), st.integers(0, 3)
    return st.builds(Case, files, st.lists(edit, min_size=1, max_size=2).map(tuple), uses)


def damaged(text: str, edits: tuple[Edit, ...]) -> bytes:
    """The file after its damages; those of the text come last."""
    document: Any = json.loads(text)
    for edit in edits:
        if edit.kind not in ("cut", "byte", "duplicate key"):
            _change(document, edit)
    text = json.dumps(document)
    data = text.encode("utf-8")
    for edit in edits:
        at = (edit.value * 7919) % (len(data) + 1)
        if edit.kind == "cut":
            data = data[:at]
        elif edit.kind == "byte":
            data = data[:at] + bytes([edit.value % 256]) + data[at + 1 :]
        elif edit.kind == "duplicate key":
            data = data.replace(b'{"', b'{"kind": "fit", "', 1)
    return data


def _change(document: Any, edit: Edit) -> None:
    parent, key = _place(document, edit.steps)
    value = copy.deepcopy(VALUES[edit.value % len(VALUES)])
    if edit.kind == "delete":
        del parent[key]
    elif edit.kind == "repeat" and isinstance(parent, list):
        parent.insert(key, copy.deepcopy(parent[key]))
    elif edit.kind == "rename" and isinstance(parent, dict):
        parent[str(value)[:50]] = parent.pop(key)
    elif edit.kind == "swap" and isinstance(parent, list):
        parent.reverse()
    elif edit.kind == "deep":
        nested: Any = value
        for _ in range(400):
            nested = [nested]
        parent[key] = nested
    else:
        parent[key] = value


def _place(document: Any, steps: tuple[int, ...]) -> tuple[Any, Any]:
    """A container in the document and a key of it."""
    parent, key = document, next(iter(document))
    for step in steps:
        inner = document if parent is None else parent
        keys = list(inner) if isinstance(inner, dict) else list(range(len(inner)))
        key = keys[step % len(keys)]
        if not isinstance(inner[key], (dict, list)) or not inner[key]:
            return inner, key
        parent = inner[key]
    keys = list(parent) if isinstance(parent, dict) else list(range(len(parent)))
    return parent, keys[steps[-1] % len(keys)]


def words(case: Case, path: str) -> list[str]:
    """A command that uses the file."""
    if case.file == "mix.json":
        fit = str(folder() / "fit.json")
        return [
            ["predict", fit, "--mixture", path, *BUDGET],
            ["optimize", fit, *BUDGET, "--compare-to", path],
            ["optimize", fit, *BUDGET, "--anchor", path, "--kl", "0.01", "--json"],
            ["predict", fit, "--mixture", path, *BUDGET, "--json"],
        ][case.use]
    return [
        ["predict", path, "--mixture", "uniform", *BUDGET, "--json"],
        ["predict", path, "--mixture", "en=0.5,de=0.5", *BUDGET],
        ["optimize", path, *BUDGET, "--json"],
        ["evaluate", path, str(folder() / "runs.csv")],
    ][case.use]


def trial(case: Case) -> tuple[str, dict[str, float]]:
    """Works, or names the file."""
    text = (folder() / case.file).read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / case.file
        path.write_bytes(damaged(text, case.edits))
        found = checked(words(case, str(path)))
    if found.code == 0:
        return "used", {}
    assert case.file in found.out + found.err or _about_numbers(found.err + found.out), (
        f"does not name the file: {(found.err + found.out)[:300]}"
    )
    return "refused", {}


def _about_numbers(message: str) -> bool:
    """A fit that is whole but answers nothing finite is refused at its use, by what is wrong with the numbers."""
    return any(part in message for part in ("finite", "no usable source", "not one of the", "no mixture", "weight"))


def test_a_damaged_result_is_refused_by_name_or_works() -> None:
    folder()
    CAMPAIGN.run(COUNT, cases(), trial)
