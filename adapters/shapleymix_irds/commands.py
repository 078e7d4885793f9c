"""The `shapleymix-irds` command: irds_train.py where it is installed, and what is done beside a training loop."""

from __future__ import annotations

import click

from shapleymix_irds.train.app import command as train
from shapleymix_irds.train.data.prepared.command import command as prepare
from shapleymix_irds.train.leaving import leave
from shapleymix_irds.train.saving.export_command import command as export
from shapleymix_irds.train.telling import Told, keep_stderr_open, told


def group() -> click.Group:
    """The command with its sub-commands."""
    commands = {"train": train(), "prepare": prepare, "export": export}
    return click.Group("shapleymix-irds", commands=commands, help="Train with irds_train.py, and work beside its runs.")


def main(arguments: list[str] | None = None) -> int:
    """Run a command; the exit code: 0 done, 1 bad data, 2 usage or a full disk, 130 interrupted."""
    keep_stderr_open()
    try:
        with told():
            group().main(arguments, prog_name="shapleymix-irds", standalone_mode=False)
    except Told as end:
        return end.exit_code
    return 0


def run() -> None:
    """What the installed script calls."""
    leave(main())
