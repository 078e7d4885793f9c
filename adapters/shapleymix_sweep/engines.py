"""Files with which other engines start the runs of a plan: an engine is the name under which it hands out an index.

The files (fixtures/engines) have blanks such as <image>; of <jobs=50> the value may be left out, of <queue?> the line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from shapleymix.errors import UsageError, did_you_mean
from shapleymix_sweep.plans import Plan

ENGINES = ("kubernetes", "skypilot", "dstack", "ray", "metaflow", "parallel")
_FOLDERS = (Path(__file__).with_name("manifests"), Path(__file__).parents[2] / "fixtures" / "engines")
_BLANK = re.compile(r"<(\w+)(\?)?(?:=([^>]*))?>")


def manifest(plan: Plan, engine: str, given: Mapping[str, str], **usual: object) -> str:
    """The file with which an engine starts the runs of a plan.

    Parameters
    ----------
    plan : Plan
        A plan that was read from its file, by the name that it has where the engine starts it.
    engine : str
        One of `ENGINES`.
    given : mapping of str to str
        What fills blanks of the file.
    usual : object
        What fills others, by the names of options, where the value is not None.

    Raises
    ------
    UsageError
        If there is no such blank, or one is left.
    """
    text = next(file for folder in _FOLDERS for file in folder.glob(f"{engine}*")).read_text(encoding="utf-8")
    blanks = {name: value for name, _, value in _BLANK.findall(text)}
    asked = dict(given) | {key: str(value) for key, value in usual.items() if value is not None}
    if unknown := [key for key in asked if key not in blanks]:
        raise UsageError(f"{engine} has no {unknown[0]} to set", hint=did_you_mean(unknown[0], blanks))
    label = re.sub("[^a-z0-9]+", "-", f"sweep {Path(plan.file).stem}".lower())[:36].strip("-")
    values = blanks | {"plan": plan.file, "runs": str(len(plan)), "name": label} | asked
    lines = [line for line in text.splitlines() if all(values[name] for name, may, _ in _BLANK.findall(line) if may)]
    if left := dict.fromkeys(name for line in lines for name, _, _ in _BLANK.findall(line) if not values[name]):
        raise UsageError(f"{engine} needs {', '.join(left)}", hint=f"--set {'=...,'.join(left)}=...")
    return _BLANK.sub(lambda found: json.dumps(values[found[1]], ensure_ascii=False)[1:-1], "\n".join(lines))
