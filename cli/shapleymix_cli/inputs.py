"""Files as the commands take them: logs, tables, fits and laws of one's own, each with its notices and its hash."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import shapleymix as sm
from shapleymix.errors import Location, StoreError, UsageError, did_you_mean
from shapleymix.files import read_json
from shapleymix_cli.console import OWN, Output

if TYPE_CHECKING:
    from shapleymix_sweep.plans import Plan

    from shapleymix.records import Record

R = TypeVar("R", bound="Record")
WRITTEN_BY = {
    "fit": "give what `shapleymix fit -o` wrote",
    "mixture": "give what `shapleymix optimize -o` wrote for one -N and one -D, without --frontier",
    "comparison": "give what `shapleymix compare -o` wrote",
    "downstream": "give what `shapleymix downstream -o` wrote",
}
"""What to do where a file holds a result of a different kind."""


def read_log(out: Output, paths: Sequence[str], losses: Literal["required", "optional"] = "required") -> sm.RunLog:
    """One or several run logs as one, with a note of what they hold and of what reading changed."""
    log = sm.read_runs(list(paths), losses=losses)
    for one in log.files:
        out.used(one.file, one.sha256)
    out.note([f"{log.origin}: {log.extent}", *log.notices])
    return log


def read_matrix(out: Output, path: str) -> sm.TransferMatrix:
    """A transfer matrix, with a warning of what reading it brought up."""
    matrix = sm.read_transfer(path)
    out.used(path, str(matrix.provenance.get("digest", "")))
    notice = matrix.provenance.get("notice")
    out.warn([f"{path}: {notice}"] if notice else [])
    return matrix


def read_languages(out: Output, path: str) -> sm.Languages:
    """A languages table, with a note of what reading it left out."""
    table = sm.read_languages(path)
    out.used(path, table.digest)
    out.note(f"{path}: {notice}" for notice in table.notices)
    return table


def read_plan(out: Output, path: str) -> Plan:
    """The plan of runs in a `runs.jsonl`."""
    from shapleymix_sweep import plans

    plan = plans.read_plan(path)
    out.used(path, plan.digest)
    return plan


def opened(out: Output, given: Mapping[str, Any]) -> dict[str, Any]:
    """Values of parameters with what is read in place of names: run logs, tables, fits, and laws of one's own."""
    readers = {"log": read_log, "languages": read_languages, "transfer": read_matrix, "law": law_of, "plan": read_plan}
    there = {name for name, value in given.items() if name in readers and value not in (None, ())}
    made = {name: readers[name](out, value) if name in there else value for name, value in given.items()}
    if "fit" in made and made["fit"] is not None:
        made["fit"] = load_fit(out, made["fit"], made.pop("law_file", None), made.pop("like", ()))
    return made


def load(out: Output, kind: type[R], path: str) -> R:
    """A result of a kind, from the document that a command wrote or printed."""
    try:
        found = kind.load(path)
    except StoreError as error:
        hint = error.hint or WRITTEN_BY.get(getattr(kind, "kind", ""))
        raise StoreError(error.message, hint=hint, location=error.location) from error
    if found.read_from is not None:
        out.used(path, found.read_from.sha256)
    return found


def holds(path: str, kind: type[Record]) -> bool:
    """Whether a file is a stored result of a kind."""
    document = read_json(path)[0] if Path(path).is_file() and path.endswith(".json") else None
    return isinstance(document, dict) and document.get("kind") == kind.kind


def load_fit(out: Output, path: str, law_file: str | None = None, like: Sequence[str] = ()) -> sm.Fit:
    """A fit, with the languages that `--like` adds; that of a law of one's own needs the law's file."""
    if law_file is not None:
        law_of(out, law_file)
    fit = load(out, sm.Fit, path)
    return sm.like(fit, list(like)) if like else fit


def law_of(out: Output, text: str) -> Any:
    """A law by its name, or what a Python file holds: `my_law.py:MyLaw`.

    Raises
    ------
    UsageError
        If there is no such file, or nothing of that name in it.
    """
    path, _, name = text.rpartition(":")
    if not path.endswith(".py"):
        return text
    if not Path(path).is_file():
        raise UsageError("there is no such file", location=Location(path), hint="write my_law.py:MyLaw")
    content = Path(path).read_bytes()
    out.used(path, sha256(content).hexdigest())
    module = ModuleType(OWN)
    module.__file__ = path
    sys.modules[OWN] = module  # dataclasses look their module up, and an error in it is the user's
    exec(compile(content, path, "exec"), vars(module))
    if not hasattr(module, name):
        hint = did_you_mean(name, [known for known in vars(module) if not known.startswith("_")])
        raise UsageError(f"holds no {name!r}", hint=hint, location=Location(path))
    return getattr(module, name)


def names_of(given: str | None) -> list[str] | None:
    """Names with commas between."""
    return None if given is None else [name.strip() for name in given.split(",")]
