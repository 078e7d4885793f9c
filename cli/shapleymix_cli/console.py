"""What a command says: its result on standard output, everything else on standard error."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from shapleymix.errors import printable
from shapleymix_cli.tables import Part, folded, show, width_of

if TYPE_CHECKING:
    from shapleymix.records import Record

R = TypeVar("R", bound="Record")
MOST_WARNINGS = 3
"""Warnings that are shown without `-v`; all stand in the record."""
Progress = Callable[[str, int, int], None]


class Output:
    """Where a command's result and its remarks go.

    Parameters
    ----------
    as_json, quiet, verbose : bool
        Print the record itself; print no notes, warnings or progress; show all rows, warnings and tracebacks.

    The call's words (`command_line`) and -o (`path`, `force`) are put in once they are parsed.
    """

    def __init__(self, *, as_json: bool = False, quiet: bool = False, verbose: bool = False) -> None:
        self.as_json, self.quiet, self.verbose = as_json, quiet, verbose
        self.command_line = ""
        self.path: str | None = None
        self.force = False
        self.inputs: dict[str, str] = {}
        self._drawn = 0.0

    @property
    def progress(self) -> Progress | None:
        """What a long computation calls with (stage, done, total); None where nobody watches."""
        return None if self.quiet or not sys.stderr.isatty() else self._draw

    def used(self, name: str, sha256: str) -> None:
        """Remember a file that the result is made from, by the hash of the very bytes that were read."""
        self.inputs[printable(name)] = sha256

    def warn(self, messages: Iterable[str]) -> None:
        """Things that may change what the reader would do; the first three without `-v`."""
        found = list(dict.fromkeys(messages))
        kept = found if self.verbose else found[:MOST_WARNINGS]
        more = [f"{len(found) - len(kept)} more: -v shows all"] if len(kept) < len(found) else []
        self._say("warning: ", [*kept, *more])

    def note(self, messages: Iterable[str]) -> None:
        """Things that were done on the way: what was renormalised, written, left out."""
        self._say("note: ", dict.fromkeys(messages))

    def _say(self, kind: str, messages: Iterable[str]) -> None:
        if not self.quiet:
            self._clear()
            for message in messages:
                say(f"{kind}{message}")

    def emit(self, result: Record | Mapping[str, object], view: Callable[[], Iterable[Part]]) -> None:
        """Show a result: with `--json` the record itself, else the view."""
        self._clear()
        if self.as_json:
            print(text_of(result if isinstance(result, Mapping) else self.marked(result).to_document()))
        else:
            show(view(), everything=self.verbose)

    def marked(self, record: R) -> R:
        """The record with the call, the program's version and the hashes of its inputs in its provenance."""
        known = getattr(record, "provenance", None)
        if known is None:
            return record
        changed: Any = record  # a record with this field is a dataclass
        return dataclasses.replace(changed, provenance={**known, **self.provenance()})

    def provenance(self) -> dict[str, Any]:
        """The call, the program's version, and the SHA-256 of each file that was read."""
        from importlib.metadata import version

        return {"command": self.command_line, "shapleymix": version("shapleymix"), "inputs": dict(self.inputs)}

    def answer(self, found: Any, view: Callable[[], Iterable[Part]], known: Iterable[str] = ()) -> None:
        """Say what a record warns of, besides what is `known`, write it where a file is named, and show it.

        What else is to be known of an answer to a question (`asked`) stands in the record, and is said with `-v`.
        """
        if self.verbose or not hasattr(found, "asked"):
            self.note(one for one in getattr(found, "notices", ()) if one not in known)
        self.warn(one for one in getattr(found, "warnings", ()) if one not in known)
        self.save(found)
        self.emit(found, view)

    def save(self, result: Any) -> None:
        """Write a result where -o names a file: a record or document as `.json`, else its columns as a table."""
        if self.path is None:
            return
        if hasattr(result, "write") and not self.path.lower().endswith(".json"):
            self.marked(result).write(self.path, force=self.force)  # a table with its provenance beside it
        elif not (self.path.lower().endswith(".json") and (isinstance(result, Mapping) or hasattr(result, "save"))):
            from shapleymix.tables.sheets import write_table

            columns = result["columns"] if isinstance(result, Mapping) else result.columns()
            write_table(columns, self.path, force=self.force)
        elif isinstance(result, Mapping):
            from shapleymix.files import atomic_write

            atomic_write(self.path, f"{text_of(result)}\n", force=self.force)
        else:
            self.marked(result).save(self.path, force=self.force)
        self.note([f"wrote {self.path}"])

    def _draw(self, stage: str, done: int, total: int) -> None:
        """One line, rewritten at most ten times a second."""
        now = time.monotonic()
        if now - self._drawn > 0.1:
            self._drawn = now
            text = printable(f"{stage} {done}/{total}")
            print(f"\r\x1b[K{text[: width_of(sys.stderr) - 1]}", end="", file=sys.stderr, flush=True)

    def _clear(self) -> None:
        if self._drawn:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self._drawn = 0.0


def say(text: str) -> None:
    """Write a remark to standard error; where nobody can read it, the work goes on without it."""
    lines = [printable(line) for line in text.split("\n")]
    if sys.stderr.isatty():
        lines = [folded(line, width_of(sys.stderr)) for line in lines]
    try:
        print("\n".join(lines), file=sys.stderr, flush=True)
    except OSError:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def text_of(document: Mapping[str, object]) -> str:
    """A document as JSON; characters that a terminal would obey are escaped."""
    from shapleymix.records import SCHEMA_VERSION

    text = json.dumps(_plain({"schema_version": SCHEMA_VERSION, **document}), indent=1, ensure_ascii=False)
    return "".join(sign if sign.isprintable() or sign == "\n" else json.dumps(sign)[1:-1] for sign in text)


def _plain(value: Any) -> object:
    """What JSON can hold: arrays as lists, and null for a number that is none."""
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value
