"""Failures as people and programs see them: one message with its place and hint, and an exit code."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence

import click

from shapleymix.errors import Location, ShapleyMixError, UsageError
from shapleymix_cli.console import say, text_of

OK, DATA_SAY_NO, USAGE, INTERRUPTED = 0, 1, 2, 130
MOST_FAULTS = 1000
OWN = "shapleymix_user_law"
"""The module under which a user's own file is loaded."""


def exit_code_of(run: Callable[[], object], words: Sequence[str]) -> int:
    """Run a command and report what goes wrong: as JSON on standard output where `--json` was asked for."""
    try:
        code = run()
        sys.stdout.flush()
        return code if isinstance(code, int) else OK
    except (KeyboardInterrupt, click.Abort):
        say("interrupted")
        return INTERRUPTED
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
        if "-v" in words or "--verbose" in words:
            say(traceback.format_exc())
        return _report(_fault(error), words)


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
    told = f"{type(error).__name__}: {error}"
    law = getattr(sys.modules.get(OWN), "__file__", None)
    if isinstance(error, SyntaxError) and error.filename == law:
        return UsageError(told, location=Location(file=law, line=error.lineno))
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename == law:
            return UsageError(told, location=Location(file=law, line=frame.lineno))
    hint = "this is a bug in shapleymix; run again with -v for the traceback, and report it"
    return ShapleyMixError(f"internal fault, {told}", hint=hint)


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
