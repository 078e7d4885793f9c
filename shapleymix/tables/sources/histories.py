"""Runs with the numbers that they logged at each step, as a sheet with a row for each run and step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType

from shapleymix.errors import DataError, Location, UsageError
from shapleymix.tables.importing.unfinished import unfinished_notices
from shapleymix.tables.names import repeated
from shapleymix.tables.sheets import Sheet, from_columns


@dataclass(frozen=True)
class History:
    """What one run logged.

    Attributes
    ----------
    name, id : str
        What the run is called, and its id in the tool.
    given : dict
        What holds for the whole run, such as its settings.
    steps : dict
        Numbers by their names, at each step.
    state : str
        How the run ended, in the tool's word; empty where it ended well.
    """

    name: str
    id: str
    given: Mapping[str, object] = field(default_factory=dict)
    steps: Mapping[float, Mapping[str, object]] = field(default_factory=dict)
    state: str = ""


def sheet_of_histories(histories: Sequence[History], origin: str, kind: str, step: str = "step") -> Sheet:
    """A row for each run and step; runs are called by their names, where these tell them apart.

    Raises
    ------
    DataError
        If there is no run that logged a number.
    """
    if not any(one.steps for one in histories):
        raise DataError("holds no run that logged a number", location=Location(origin))
    same = set(repeated([one.name for one in histories]))
    rows: list[dict[str, object]] = [
        {"run": one.id if one.name in same else one.name, "id": one.id, step: place, **one.given, **numbers}
        for one in histories
        for place, numbers in sorted(one.steps.items())
    ]
    names = dict.fromkeys(name for row in rows for name in row)
    sheet = from_columns({name: [row.get(name) for row in rows] for name in names}, origin, kind)
    return replace(sheet, notices=(*_notices(histories, same),))


def _notices(histories: Sequence[History], same: set[str]) -> list[str]:
    told = []
    if same:
        told.append(f"several runs are called {', '.join(sorted(same)[:5])}: they go by their ids")
    return [*told, *unfinished_notices((one.name, one.state) for one in histories)]


def flat(given: Mapping[str, object], before: str = "") -> dict[str, object]:
    """Settings within settings as one level, with points between their names; what is no text or number is its text."""
    found: dict[str, object] = {}
    for name, value in given.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{before}{name}.")
        else:
            found[f"{before}{name}"] = value
    return found


OLDEST = {"mlflow": "2.10", "tensorboard": "2.15", "wandb": "0.17"}
"""The packages that read what they wrote, and the least version of each."""


def installed(module: str, package: str) -> ModuleType:
    """A module of a package that is no dependency of this one.

    Raises
    ------
    UsageError
        With the command that installs it.
    """
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError as error:
        hint = f"pip install '{package}>={OLDEST[package]}'"
        raise UsageError(f"reading this needs the package {package}: {error}", hint=hint) from error
