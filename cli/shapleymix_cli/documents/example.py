"""The tables of the examples: where the program keeps them, and copies of them for the user."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from shapleymix.errors import Location, UsageError
from shapleymix.files import atomic_write

_INSTALLED = Path(__file__).resolve().parents[1] / "example"
_CHECKOUT = Path(__file__).resolve().parents[3] / "fixtures"


def write_example(folder: str, names: Sequence[str], *, force: bool) -> list[str]:
    """Copy the tables into a folder, which is made if it is not there; returns the paths.

    Raises
    ------
    UsageError
        If a file of the same name and another content is there and `force` is not set, or the folder cannot be made.
    """
    goal = Path(folder)
    try:
        goal.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot be made: {error.strerror}", location=Location(file=folder)) from error
    for name in names:
        content, copy = _original(name).read_bytes(), goal / name
        if not (copy.is_file() and copy.read_bytes() == content):
            atomic_write(copy, content, force=force)
    return [str(goal / name) for name in names]


def _original(name: str) -> Path:
    """The table as the wheel holds it, or as a checkout does."""
    return _INSTALLED / name if _INSTALLED.is_dir() else _CHECKOUT / f"multilingual5_{name}"
