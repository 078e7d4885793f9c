"""The command line: settings from flags and CONFIG.toml, then one run, with plain errors and exit codes."""

from __future__ import annotations

import os
import sys
import time
from typing import Any, NoReturn

import click

from shapleymix.errors import ShapleyMixError, UsageError
from shapleymix_irds.train.settings import TrainingSettings, fields, flag, read_toml, types

LOST = ("closed by peer", "reset by peer", "Broken pipe", "remote process exited")  # what gloo and NCCL say of it
PATIENCE = 5.0  # seconds in which torchrun ends a rank after the first one has failed


def command() -> click.Command:
    """The command with a flag for each setting."""
    config = click.Option(["--config"], metavar="CONFIG.toml", help="File of settings; flags win over it.")
    return click.Command("irds_train.py", params=[config, *map(_option, fields())], callback=_run, help=_run.__doc__)


def _option(field: Any) -> click.Option:
    kind, name = types()[field.name], field.name
    chosen = f"{flag(name)}/--no-{name.replace('_', '-')}" if kind is bool else flag(name)
    default = {True: "on", False: "off"}.get(field.default, field.default) if kind is bool else field.default
    text = field.metadata["help"] + ("" if default in (None, "") else f"  [{default}]")
    return click.Option([chosen, name], type=kind, default=None, help=text)


def _run(config: str | None, **flags: Any) -> None:
    """Train one language model on one mixture; write rows of a run log and a Shapley value matrix.

    \b
    Examples:
      python adapters/irds_train.py --out run
      python adapters/irds_train.py --corpus texts --languages en,de,fr --tokens 1M --out run-uniform
      python adapters/irds_train.py --corpus texts --mixture en=.7,de=.3 --no-irds --out run-70-30
      torchrun --standalone --nproc-per-node=8 adapters/irds_train.py --config CONFIG.toml

    The same command continues a run that was killed.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    settings = TrainingSettings(**{**(read_toml(config) if config else {}), **given})
    try:
        from shapleymix_irds.train.loop import train
    except ImportError as error:
        hint = "pip install '.[irds]' in a clone, or pip install torch safetensors"
        raise UsageError(f"training needs PyTorch: {error}", hint=hint) from error
    train(settings)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; the exit code: 0 done, 1 bad data, 2 usage, 128 + signal after a checkpoint."""
    return guarded(command(), arguments, "irds_train.py")


def guarded(called: click.Command, arguments: list[str] | None, name: str) -> int:
    """Run a command, and say what a user can mend in place of a traceback; the exit code.

    Most faults are met by all ranks alike, so that the first one speaks for all: another rank waits, within which time
    torchrun ends it if the first has failed, too; otherwise the fault is its own.
    """
    try:
        called.main(arguments, name, standalone_mode=False)
    except SystemExit as end:
        return int(end.code or 0)
    except (click.Abort, KeyboardInterrupt):
        return _tell("interrupted", 130)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except ShapleyMixError as error:
        return _tell(f"error: {error}", error.exit_code)
    except OSError as error:
        return _tell(f"error: {error.filename or 'a file'}: {error.strerror or error}", 2)
    except RuntimeError as error:
        if not any(words in str(error) for words in LOST):
            raise
        return _tell("error: another rank has ended; if it has not said why, it was killed", 1)
    return 0


def _tell(text: str, code: int) -> int:
    if (rank := os.environ.get("RANK", "0")) != "0":
        time.sleep(PATIENCE)
        text = f"[rank {rank}] {text}"
    click.echo(text, err=True)
    return code


def leave(code: int) -> NoReturn:
    """End this process; one of several ranks without taking Python down piece by piece.

    All that a run leaves is on disk by now. A thread of a process group that still asks for the interpreter's lock
    while the interpreter goes away aborts the process, and torchrun would take a finished training for a failed one.
    """
    if os.environ.get("WORLD_SIZE", "1") in ("", "1"):
        sys.exit(code)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
