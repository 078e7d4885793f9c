"""What a command says: its result on standard output, everything else on standard error.

A result is lines and tables, whose columns fold at the width of the page, or the record itself as JSON. A failure is
one message with its place and hint, and an exit code.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import sys
import textwrap
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import dropwhile
from threading import Timer
from typing import TYPE_CHECKING, Any, TypeVar

import click
from rich.cells import cell_len

from shapleymix.errors import Location, ShapleyMixError, UsageError, printable
from shapleymix.files import atomic_write, plain

if TYPE_CHECKING:
    from shapleymix.records import Record


PAGE = 80
"""Columns of the page where no terminal tells them."""
GAP = "  "
MOST_ROWS = 30
"""Rows of a table that are shown without `-v`."""


class Heading(str):
    """A line above a table; bold on a terminal."""


class Whole(str):
    """A line that is there to be copied, and so is never broken."""


@dataclass(frozen=True)
class Table:
    """Columns by their names. The first `words` columns are left-aligned and stand in every block, the others fold.

    A cell is a text, a number, which is written as its column's name says (`FORMS`), or two, which are an interval.
    """

    columns: Mapping[str, Sequence[object]]
    words: int = 1

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, object]], names: Sequence[str], words: int = 1) -> Table:
        """The table of some columns of rows."""
        return cls({name: [row[name] for row in rows] for name in names}, words)


Part = str | Table


def section(title: str, columns: Mapping[str, Sequence[object]] | Table, words: int = 1) -> list[Part]:
    """A table under a heading, below what stands above."""
    return ["", Heading(title), columns if isinstance(columns, Table) else Table(columns, words)]


def size(value: float) -> str:
    """Parameters or tokens as people write them: 243M."""
    from shapleymix.tables.words import format_size

    return format_size(float(value))


def percent(value: float, digits: int = 0) -> str:
    return f"{value:z.{digits}%}"


def significant(value: float) -> str:
    return f"{value:z.4g}"


FORMS: dict[str, Callable[[float], str]] = {
    **dict.fromkeys(("N", "D", "tokens", "available", "read"), size),
    **dict.fromkeys(("PE", "held-out PE", "SE", "error"), lambda value: percent(value, 2)),
    **dict.fromkeys(("coverage", "P(better)", "defined"), percent),
    **dict.fromkeys(("epochs", "weight"), lambda value: f"{value:z.3g}"),
    **dict.fromkeys(("value", "low", "high"), significant),
    "gap": lambda value: f"{value:.1e}",
    **dict.fromkeys(("R2", "Spearman", "Pearson r"), lambda value: f"{value:z.3f}"),
}
"""How the numbers of a column are written, by its name; others have four decimals."""


def shown(value: object, name: str = "") -> str:
    """A cell as text: a number in the form of its column, `low .. high`, yes or no, `-` where there is nothing."""
    if isinstance(value, tuple):
        ends = [shown(end, name) for end in value]
        return "" if "-" in ends else " .. ".join(ends)
    if isinstance(value, str):
        return printable(value)
    if value is None or value != value:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return FORMS.get(name, lambda number: f"{number:z.4f}")(float(value))  # type: ignore[arg-type]


def score_or_loss(record: Any, value: Any) -> Any:
    """A predicted number as it is shown: the score where a record holds error rates."""
    return 1 - value if getattr(record, "measure", "loss") == "error" else value


def predicted(record: Any) -> str:
    """The heading of predicted numbers, with their unit."""
    return "Predicted score" if getattr(record, "measure", "loss") == "error" else f"Predicted loss ({record.unit})"


def intervals(
    record: Any, lows: Iterable[float], highs: Iterable[float], *, gain: bool = False
) -> dict[str, list[Any]]:
    """A column of intervals of predicted numbers, or of gains; none where there are none."""
    pairs = [(float(low), float(high)) for low, high in zip(lows, highs, strict=True)]
    if getattr(record, "measure", "loss") == "error" and not gain:
        pairs = [(1 - high, 1 - low) for low, high in pairs]
    there = any(low == low for low, _ in pairs)
    return {f"{percent(record.level)} interval": pairs} if there else {}


def gains(record: Any, entries: Sequence[Any]) -> dict[str, list[Any]]:
    """Columns of gains, with their intervals and the probability of being better."""
    spread = intervals(record, [one.gain_low for one in entries], [one.gain_high for one in entries], gain=True)
    return {"gain": [one.gain for one in entries], **spread, "P(better)": [one.probability for one in entries]}


def show(parts: Iterable[Part], *, everything: bool = False) -> None:
    """Print lines and tables to standard output."""
    page = width_of(sys.stdout)
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    for part in dropwhile(lambda part: part == "", parts):
        if isinstance(part, Table):
            print("\n".join(_lines(part, page, everything, coloured)))
        elif isinstance(part, Whole):
            print(printable(part))
        else:
            text = folded(printable(part), page)
            print(click.style(text, bold=True) if coloured and isinstance(part, Heading) else text)


def width_of(stream: object) -> int:
    """Columns of the page: those of the terminal where there is one."""
    return shutil.get_terminal_size((PAGE, 24)).columns if getattr(stream, "isatty", bool)() else PAGE


def folded(line: str, page: int) -> str:
    """A line broken between words, its further lines indented."""
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    kept = textwrap.wrap(line, page, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(kept) if len(kept) > 1 else line


def _lines(table: Table, page: int, everything: bool, coloured: bool) -> list[str]:
    """The table in blocks of columns that fit the page, and how many rows are not shown."""
    count = len(next(iter(table.columns.values())))
    most = count if everything else min(count, MOST_ROWS)
    columns = [[name, *(shown(cell, name) for cell in cells[:most])] for name, cells in table.columns.items()]
    columns = [_aligned(column, left=place < table.words) for place, column in enumerate(columns)]
    first, rest = columns[: table.words], columns[table.words :]
    lines: list[str] = []
    for block in _blocks(rest, page - sum(cell_len(column[0]) + len(GAP) for column in first)):
        rows = [GAP.join(row).rstrip() for row in zip(*first, *block, strict=True)]
        rows[0] = click.style(rows[0], bold=True) if coloured else rows[0]
        lines += [*([""] if lines else []), *rows]
    return lines + ([f"... and {count - most:,} more rows: -v shows all"] if most < count else [])


def _aligned(column: Sequence[str], *, left: bool) -> list[str]:
    """The cells of a column, all of one width."""
    width = max(map(cell_len, column))
    gaps = [" " * (width - cell_len(cell)) for cell in column]
    return [cell + gap if left else gap + cell for cell, gap in zip(column, gaps, strict=True)]


def _blocks(columns: Sequence[list[str]], room: int) -> list[list[list[str]]]:
    """Columns that fit side by side, at least one in each block."""
    blocks: list[list[list[str]]] = [[]]
    left = room
    for column in columns:
        needed = cell_len(column[0]) + len(GAP) * bool(blocks[-1])
        if blocks[-1] and needed > left:
            blocks.append([])
            left, needed = room, cell_len(column[0])
        blocks[-1].append(column)
        left -= needed
    return blocks


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

    text = json.dumps(plain({"schema_version": SCHEMA_VERSION, **document}), indent=1, ensure_ascii=False)
    return "".join(sign if sign.isprintable() or sign == "\n" else json.dumps(sign)[1:-1] for sign in text)


OK, DATA_SAY_NO, USAGE, INTERRUPTED = 0, 1, 2, 130
MOST_FAULTS = 1000
OWN = "shapleymix_user_law"
"""The module under which a user's own file is loaded."""


def exit_code_of(run: Callable[[], object], words: Sequence[str]) -> int:
    """Run a command and report what goes wrong: as JSON on standard output where `--json` was asked for."""
    hook, sys.unraisablehook = sys.unraisablehook, _interrupt_again
    try:
        code = run()
        sys.stdout.flush()
        return code if isinstance(code, int) else OK
    except (KeyboardInterrupt, click.Abort):
        return _interrupted()
    except BrokenPipeError:
        return closed_pipe()
    except ShapleyMixError as error:
        return _report(error, words)
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        hint = f"see `{context.command_path} --help`" if context else None
        return _report(UsageError(" ".join(error.format_message().split()).rstrip("."), hint=hint), words)
    except OSError as error:
        return _report(ShapleyMixError(f"{error.filename or 'standard output'}: {error.strerror or error}"), words)
    except Exception as error:  # a fault of ours must not look like the user's
        if isinstance(error.__cause__, KeyboardInterrupt):  # while a module that is imported makes a class
            return _interrupted()
        if "-v" in words or "--verbose" in words:
            say(traceback.format_exc())
        return _report(_fault(error), words)
    finally:
        sys.unraisablehook = hook


def _interrupted() -> int:
    say("interrupted")
    return INTERRUPTED


def _interrupt_again(lost: sys.UnraisableHookArgs) -> None:
    """Send an interrupt anew that Python lost, as it does in the callbacks by which it imports modules."""
    if isinstance(lost.exc_value, KeyboardInterrupt):
        Timer(0.01, signal.raise_signal, [signal.SIGINT]).start()
    else:
        sys.__unraisablehook__(lost)


def closed_pipe() -> int:
    """An ordinary end: whoever read the result has read enough."""
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    return OK


def _report(error: ShapleyMixError, words: Sequence[str]) -> int:
    try:
        if "--json" not in words:
            raise OSError
        print(text_of({"error": document_of(error)}))
        sys.stdout.flush()
    except OSError:
        say(f"error: {error}")
    return error.exit_code


def _fault(error: Exception) -> ShapleyMixError:
    """An error that is not the library's own: that of a user's own law, with its line, else a fault of the program."""
    message = f"{type(error).__name__}: {error}"
    law = getattr(sys.modules.get(OWN), "__file__", None)
    if isinstance(error, SyntaxError) and error.filename == law:
        return UsageError(message, location=Location(file=law, line=error.lineno))
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename == law:
            return UsageError(message, location=Location(file=law, line=frame.lineno))
    hint = "this is a bug in shapleymix; run again with -v for the traceback, and report it"
    return ShapleyMixError(f"internal fault, {message}", hint=hint)


def document_of(error: ShapleyMixError) -> dict[str, object]:
    """An error as JSON; `faults` holds the first thousand, `fault_count` says how many there are."""
    document: dict[str, object] = {"code": error.code, "message": error.message, "hint": error.hint}
    document["location"] = _place(error.location)
    if error.faults:
        document["fault_count"] = len(error.faults)
        document["faults"] = [
            {"message": one.message, "value": one.value, "hint": one.hint, "location": _place(one.location)}
            for one in error.faults[:MOST_FAULTS]
        ]
    return document


def _place(place: Location) -> dict[str, object] | None:
    found = {"file": place.file, "line": place.line, "column": place.column}
    return found if any(part is not None for part in found.values()) else None
