"""Failures as people and programs see them: one message with its place and hint, and an exit code."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence

import click

from shapleymix.errors import Fault, Location, ShapleyMixError, UsageError
from shapleymix.files import Json
from shapleymix_cli.documents.plain import print_document
from shapleymix_cli.streams import say, silenced

OK, DATA_SAY_NO, USAGE, INTERRUPTED = 0, 1, 2, 130
MOST_FAULTS = 1000


def exit_code_of(run: Callable[[], object], arguments: Sequence[str]) -> int:
    """Run a command and report what goes wrong: as JSON on standard output where `--json` was asked for."""
    try:
        code = run()
        sys.stdout.flush()
    except (KeyboardInterrupt, click.Abort):
        say("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        close_stdout()
        return OK
    except (ShapleyMixError, click.ClickException) as error:
        return _report(_own(error), "--json" in arguments)
    except OSError as error:
        close_stdout()
        say(f"error: {error.filename or 'standard output'}: {error.strerror or error}")
        return DATA_SAY_NO
    except Exception as error:  # the last line of defence: a fault of ours must not look like the user's
        return _report_bug(error, arguments)
    return code if isinstance(code, int) else OK


def close_stdout() -> None:
    """Write nothing more to where nothing can be written."""
    sys.stdout = silenced(sys.stdout)


def _own(error: ShapleyMixError | click.ClickException) -> ShapleyMixError:
    """Click's usage errors as ours."""
    if isinstance(error, ShapleyMixError):
        return error
    context = getattr(error, "ctx", None)
    hint = f"see `{context.command_path} --help`" if context else None
    return UsageError(" ".join(error.format_message().split()).rstrip("."), hint=hint)


def _report(error: ShapleyMixError, as_json: bool) -> int:
    if not (as_json and _printed(error_document(error))):
        say(f"error: {error}")
    return error.exit_code


def _printed(document: dict[str, Json]) -> bool:
    """Print the error as the result; False where nothing can be printed."""
    try:
        print_document({"error": document})
        sys.stdout.flush()
    except OSError:
        close_stdout()
        return False
    return True


def _report_bug(error: Exception, arguments: Sequence[str]) -> int:
    """One line for a fault of the program itself; the traceback with `-v`."""
    message = f"internal fault, {type(error).__name__}: {error}"
    hint = "this is a bug in shapleymix; run again with -v for the traceback, and report it"
    document: dict[str, Json] = {"code": "internal", "message": message, "hint": hint, "location": None}
    if not ("--json" in arguments and _printed(document)):
        say(f"error: {message}\n  hint: {hint}")
    if "-v" in arguments or "--verbose" in arguments:
        say(traceback.format_exc())
    return DATA_SAY_NO


def error_document(error: ShapleyMixError) -> dict[str, Json]:
    """An error as JSON; `faults` holds the first thousand, `fault_count` says how many there are."""
    document: dict[str, Json] = {
        "code": error.code,
        "message": error.message,
        "hint": error.hint,
        "location": _place(error.location),
    }
    if error.faults:
        document["faults"] = [_fault(fault) for fault in error.faults[:MOST_FAULTS]]
        document["fault_count"] = len(error.faults)
    return document


def _fault(fault: Fault) -> dict[str, Json]:
    place = _place(fault.location)
    return {"message": fault.message, "value": fault.value, "hint": fault.hint, "location": place}


def _place(location: Location) -> dict[str, Json] | None:
    known = (location.file, location.line, location.column)
    if all(part is None for part in known):
        return None
    return {"file": location.file, "line": location.line, "column": location.column}
