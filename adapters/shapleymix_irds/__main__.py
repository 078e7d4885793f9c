"""The `shapleymix-irds` command, and `python -m shapleymix_irds`: irds_train.py where the package is installed."""

from __future__ import annotations

import click

from shapleymix_irds.train.app import command, guarded, leave


def group() -> click.Group:
    """The command with its sub-command."""
    return click.Group("shapleymix-irds", commands={"train": command()}, help="Train with irds_train.py.")


def run() -> None:
    """What the installed script calls."""
    leave(guarded(group(), None, "shapleymix-irds"))


if __name__ == "__main__":
    run()
