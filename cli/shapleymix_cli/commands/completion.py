"""`shapleymix completion`: what a shell reads to complete commands, options, laws and languages."""

from __future__ import annotations

import sys

import click

from shapleymix_cli import options
from shapleymix_cli.completing import SHELLS, script
from shapleymix_cli.console import Output


@options.command("shapleymix completion bash", "shapleymix completion zsh", "shapleymix completion fish")
@click.argument("shell", type=click.Choice(list(SHELLS)))
def command(out: Output, shell: str) -> None:
    """Print the script with which bash, zsh or fish completes commands, options, laws and languages.

    For good: `eval "$(shapleymix completion bash)"` in ~/.bashrc, the same with zsh in ~/.zshrc after compinit, or
    `shapleymix completion fish > ~/.config/fish/completions/shapleymix.fish`.
    """
    text = script(shell, click.get_current_context().find_root().command)
    if out.as_json:
        out.emit(lambda: {"kind": "completion", "shell": shell, "script": text}, list)
    else:
        sys.stdout.write(text)
