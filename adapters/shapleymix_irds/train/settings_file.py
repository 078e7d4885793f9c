"""CONFIG.toml: settings under their own names, below headings that mean nothing."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shapleymix.errors import Fault, Location, UsageError, did_you_mean
from shapleymix.tables.names import repeated
from shapleymix_irds.train.settings import types


def read_toml(path: str) -> dict[str, Any]:
    """Settings of a TOML file: keys are the flags' names, with hyphens or underscores; tables are only
    headings.

    Raises
    ------
    UsageError
        If the file is not TOML, or a key is unknown, repeated or of a wrong type.
    """
    entries = list(_entries(_document(path)))
    faults = [fault for entry in entries for fault in _key_faults(path, *entry)]
    twice = repeated([key for _, key, _ in entries])
    faults += [Fault(f"gives {key!r} twice", Location(file=path), hint="keep one of them") for key in twice]
    if faults:
        raise UsageError.of(faults, path)
    return {key: _plain(value, types()[key]) for _, key, value in entries}


def _document(path: str) -> dict[str, Any]:
    text = ""
    try:
        text = Path(path).read_text(encoding="utf-8")
        return tomllib.loads(text)
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", location=Location(file=path)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        hint = _clash(text) if "overwrite" in str(error) else None
        raise UsageError(f"is not TOML: {error}", location=Location(file=path), hint=hint) from error


def _clash(text: str) -> str | None:
    """What to do if a heading is called like a key that the file gives."""
    headings = re.findall(r"^[ \t]*\[[ \t]*([\w-]+)[ \t]*\]", text, re.MULTILINE)
    name = next((name for name in headings if re.search(rf"^[ \t]*{name}[ \t]*=", text, re.MULTILINE)), None)
    return f"{name} is a setting here, so that no heading can be called [{name}]: take another name" if name else None


def _entries(document: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """(heading, key, value) of each setting in a document."""
    for name, value in document.items():
        heading = isinstance(value, dict) and name != "mixture"
        for key, each in value.items() if heading else ((name, value),):
            yield (name if heading else "", key.replace("-", "_"), each)


def _key_faults(path: str, heading: str, key: str, value: Any) -> list[Fault]:
    known = types()
    if key not in known:
        whole = f"{heading}_{key}"
        hint = f"headings are no part of a name: write {whole}" if whole in known else did_you_mean(key, known)
        return [Fault(f"unknown setting {key!r}", Location(file=path), hint=hint)]
    wanted = known[key]
    fits = isinstance(value, wanted) and not (wanted is not bool and isinstance(value, bool))
    if fits or (wanted is float and type(value) is int) or (wanted is str and not isinstance(value, bool)):
        return []
    return [Fault(f"{key} = {value!r} is not of type {wanted.__name__}", Location(file=path))]


def _plain(value: Any, wanted: type) -> Any:
    """A TOML value as the setting has it; a list is joined by commas, a table becomes name=ratio pairs."""
    if wanted is str and isinstance(value, dict):
        return ",".join(f"{name}={ratio}" for name, ratio in value.items())
    if wanted is str and isinstance(value, list):
        return ",".join(map(str, value))
    return wanted(value)
