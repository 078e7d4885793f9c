"""The folder of an exported model: new, empty, or an earlier export as it was written; nothing else is ever removed."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from shapleymix.errors import Location, StoreError, UsageError
from shapleymix_irds.train.disk import check_no_file, disk_errors
from shapleymix_irds.train.saving.checksums import check_file, read_sums

SUMS = "shapleymix-export.sha256"  # checksums of all other files; who has none of that name is no export
HINT = "choose another folder, or make room in it or the right to write to it"
APART = "choose a folder that is neither in that of the run nor around it"
OTHER = "choose another folder, or move away what this one holds"
NAMES = re.compile(
    r"config\.json|tokenizer\.json|tokenizer_config\.json|model(-\d{5,}-of-\d{5,})?\.safetensors"
    rf"|model\.safetensors\.index\.json|{re.escape(SUMS)}"
)


def check_goal(goal: Path, run: Path) -> None:
    """See that the model of a run can be put into a folder without harm to anything else.

    Raises
    ------
    UsageError
        If the folder is that of the run, in it or around it, holds what no export has written, or cannot be read.
    """
    _check_apart(goal, run)
    check_no_file(goal, "give a folder for the model")
    with disk_errors(goal, HINT):
        names = sorted(os.listdir(goal)) if goal.exists() else []
    sums = _sums(goal) if names else {}
    for name in names:
        _check_own(goal, name, sums)


def _check_apart(goal: Path, run: Path) -> None:
    there, home = (Path(os.path.realpath(path)) for path in (goal, run))
    wrong = "is" if there == home else "lies in" if home in there.parents else "holds" if there in home.parents else ""
    if wrong:
        message = f"{wrong} the folder of the run, {run}: an export replaces all of its own folder"
        raise UsageError(message, location=Location(file=str(goal)), hint=APART)


def _sums(goal: Path) -> dict[str, str]:
    """The checksums of the files of an export there; without an export, none."""
    try:
        found = read_sums(goal, SUMS)
    except StoreError:
        return {}
    return {name: value for name, value in found.items() if NAMES.fullmatch(name)} | {SUMS: ""}


def _check_own(goal: Path, name: str, sums: Mapping[str, str]) -> None:
    place = Location(file=str(goal))
    if name not in sums:
        message = f"is not an exported model alone: no export has written {name}"
        raise UsageError(message, location=place, hint=OTHER)
    if name == SUMS:
        return
    try:
        check_file(goal, name, sums)
    except StoreError as error:
        message = f"is not an exported model as it was written: {name} {error.message}"
        raise UsageError(message, location=place, hint=OTHER) from error


def remove_export(folder: Path) -> None:
    """Remove the files that an export writes, then their folder, which the disk refuses if it holds anything else.

    Raises
    ------
    OSError
        If it does, or a file cannot be removed.
    """
    if not folder.is_dir():
        return
    held = [path for path in folder.iterdir() if NAMES.fullmatch(path.name)]
    for path in sorted(held, key=lambda path: path.name == SUMS):  # last, so that what a kill leaves is known as ours
        path.unlink()
    folder.rmdir()
