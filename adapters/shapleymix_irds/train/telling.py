"""What a run says on standard error: its progress, and what ended it, once and with an exit code."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import sys
import time
from collections.abc import Iterator

import click

from shapleymix.errors import ShapleyMixError

LOST = ("closed by peer", "reset by peer", "Broken pipe", "remote process exited")  # what gloo and NCCL say of it
PATIENCE = 5.0  # seconds in which torchrun ends a rank after the first one has failed


class Stopped(Exception):
    """The run was asked to stop, and its checkpoint is on disk."""

    def __init__(self, signum: int, step: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name} after step {step}; the same command continues")
        self.exit_code = 128 + signum


class Told(Exception):
    """The run has ended, and has said why."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code


@contextlib.contextmanager
def told() -> Iterator[None]:
    """Say what a user can mend, or what has stopped the run, in place of a traceback.

    Most faults are met by all ranks alike, so that the first one speaks for all: another rank waits, within which time
    torchrun ends it if the first has failed, too; otherwise the fault is its own. Where ranks are in a group this has
    to be done before they leave it, lest those that wait for this one fail first.

    Raises
    ------
    Told
        With the exit code.
    """
    try:
        yield
    except (click.Abort, KeyboardInterrupt) as error:
        _tell("interrupted", everywhere=True)
        raise Told(130) from error
    except Stopped as error:
        _tell(str(error), everywhere=True)
        raise Told(error.exit_code) from error
    except (click.ClickException, ShapleyMixError) as error:
        _tell(_text(error), everywhere=False)
        raise Told(error.exit_code) from error
    except RuntimeError as error:
        if not any(words in str(error) for words in LOST):
            raise
        _tell("error: another rank has ended; if it has not said why, it was killed", everywhere=False)
        raise Told(1) from error


def say(text: str) -> None:
    """A line on standard error; one that nobody can read any more is no reason to end a run."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stderr.fileno())


def keep_stderr_open() -> None:
    """Where standard error is closed, let its number not be given to a file, which would get others' messages."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115


def _tell(text: str, *, everywhere: bool) -> None:
    rank = int(os.environ.get("RANK", "0"))
    if rank and everywhere:
        return
    if rank:
        time.sleep(PATIENCE)
    say(f"[rank {rank}] {text}" if rank else text)
    _report_to_torchrun(text)


def _report_to_torchrun(text: str) -> None:
    """Let torchrun's own report carry the message (the format of torch.distributed.elastic's error file)."""
    if path := os.environ.get("TORCHELASTIC_ERROR_FILE"):
        extra = {"py_callstack": text, "timestamp": str(int(time.time()))}
        with contextlib.suppress(OSError), open(path, "w", encoding="utf-8") as stream:
            json.dump({"message": {"message": text, "extraInfo": extra}}, stream)


def _text(error: click.ClickException | ShapleyMixError) -> str:
    if isinstance(error, ShapleyMixError):
        return f"error: {error}"
    buffer = io.StringIO()
    error.show(buffer)
    return buffer.getvalue().rstrip()
