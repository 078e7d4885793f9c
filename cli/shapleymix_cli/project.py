"""The project file `shapleymix.toml`: values of options that the commands of one folder share, said once.

    log = "runs.csv"
    caps = {ja = 0.3}

    [fit]
    bootstrap = 50

An entry at the top counts for every command that has an option or argument of its name, one below a command's name for
that command alone. What is typed wins; values by name are merged, name by name.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from shapleymix.errors import DataError, Location, did_you_mean
from shapleymix_cli.signatures import Option

NAME, NONE = "shapleymix.toml", "none"
SHARED = ("log", "transfer", "languages", "weights", "caps", "floors", "max_epochs", "available", "groups")
"""Entries that may stand at the top; the others are a command's."""


def read(named: str | None, commands: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """The name and the content of the project file: the one that is named, or the folder's own if there is one.

    Raises
    ------
    DataError
        If it cannot be read, is no TOML, or holds an entry that no command knows.
    """
    path = NAME if named is None else named
    if named == NONE or (named is None and not Path(NAME).is_file()):
        return "", {}
    try:
        found = tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
    except OSError as error:
        hint = "--project names another file, --project none asks for none"
        raise DataError(f"cannot be read: {error.strerror}", hint=hint, location=Location(path)) from error
    except ValueError as error:
        raise DataError(f"is not valid TOML: {error}", location=Location(path)) from error
    for name, value in found.items():
        if name not in SHARED and not (name in commands and isinstance(value, dict)):
            hint = did_you_mean(name, [*SHARED, *commands])
            raise DataError("is no entry of a project file", hint=hint, location=Location(path, column=name))
    return path, found


def merged(command: click.Command, given: dict[str, Any], path: str, project: Mapping[str, Any]) -> list[str]:
    """Put a project's values where nothing was typed, and beside values by name; returns what was taken.

    Raises
    ------
    DataError
        If the project has an entry for this command that it does not know, or of another type.
    """
    known = {str(one.name): one for one in command.params}
    own = project.get(str(command.name), {})
    for name in {*own} - {*known}:
        place = Location(path, column=f"{command.name}.{name}")
        raise DataError("is no option of it", hint=did_you_mean(name, known), location=place)
    shared = {name: project[name] for name in SHARED if name in project and name in known}
    taken = []
    for name, value in {**shared, **own}.items():
        parameter, typed = known[name], given[name]
        by_name = isinstance(parameter, Option) and parameter.by_name
        if typed and not (by_name and isinstance(value, dict) and all("=" in one for one in typed)):
            continue
        values = _texts(value, os.path.dirname(path))
        if by_name and typed:
            later = {pair.partition("=")[0].strip() for one in typed for pair in one.split(",")}
            values = [one for one in values if one.partition("=")[0] not in later]
        several = parameter.nargs == -1 or (isinstance(parameter, click.Option) and parameter.multiple)
        if isinstance(value, bool):
            given[name] = value
        elif several:
            given[name] = (*values, *typed)
        else:
            given[name] = parameter.type_cast_value(click.get_current_context(), values[0])
        taken.append(f"{name} = {','.join(values)}")
    return taken


def _texts(value: object, folder: str) -> list[str]:
    """A value as it would be typed: a pair for each name, the name of a file from where the project file lies."""
    if isinstance(value, dict):
        return [f"{name}={one}" for name, one in value.items()]
    if isinstance(value, list):
        return [text for one in value for text in _texts(one, folder)]
    beside = os.path.join(folder, str(value))
    return [beside if isinstance(value, str) and os.path.exists(beside) else str(value)]
