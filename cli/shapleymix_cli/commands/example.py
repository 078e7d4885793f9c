"""`shapleymix example`: the small tables on which the examples of every help run."""

from __future__ import annotations

import click

from shapleymix_cli import options
from shapleymix_cli.console import Output

FILES = (
    "runs.csv",
    "coalitions.csv",
    "languages.csv",
    "irds_raw.csv",
    "paths.csv",
    "scores.csv",
    "wandb.csv",
    "shapleymix.toml",
)
"""Run log, coalition runs, languages table, a transfer matrix measured within one run, where a corpus of each might
lie, scores on tasks (which are made up: see the fixtures' README), runs as W&B exports them, and a project file; five
languages."""


@options.command("shapleymix example", "shapleymix example -o some-other-folder")
@click.option("-o", "--output", "folder", metavar="DIR", default="example", show_default=True, help="Where to write.")
@click.option("--force", is_flag=True, help="Overwrite files of these names.")
def command(out: Output, folder: str, force: bool) -> None:
    """Write small tables to try the program on: real runs of tiny models on five languages.

    They go into the folder of -o, with a project file that says what commands take from there. A file that
    is there already is kept, unless it is one of these.
    """
    from shapleymix_cli.documents.example import write_example

    written = write_example(folder, FILES, force=force)
    out.emit(lambda: {"kind": "example", "files": written}, lambda: written)
