"""`shapleymix import`: the runs that other tools have kept, as a run log."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence

import click

from shapleymix.errors import UsageError
from shapleymix_cli import options, reading
from shapleymix_cli.console import Output
from shapleymix_cli.project import always


@options.command(
    "shapleymix example",
    "shapleymix import example/wandb.csv --show",
    "shapleymix import example/wandb.csv --write-map map.toml",
    "shapleymix import example/wandb.csv --map map.toml -o runs.csv",
    "shapleymix fit example/wandb.csv --map map.toml --map N=97.6k --law chinchilla --folds 3 --bootstrap 20",
    project={"log": always},
)
@reading.logs
@click.option("--show", is_flag=True, help="Show what is found, what is missing, and the command that reads it.")
@click.option("--write-map", metavar="FILE.toml", help="Write a first map, to be edited, and stop there.")
@options.output("the run log (.csv, .csv.gz, .parquet, .jsonl)")
def command(
    out: Output, logs: reading.Logs, show: bool, write_map: str | None, output: str | None, force: bool
) -> None:
    """Read the runs that other tools have kept, and write them as a run log.

    LOG is a table of any shape (CSV, Parquet, JSON), a trainer_state.json of Hugging Face, a log of Megatron, a folder
    of TensorBoard events, an MLflow store (sqlite:///mlflow.db, a server) or W&B runs (wandb:ENTITY/PROJECT).

    Nothing is guessed: --map says which column is what. {lang} stands for each language in turn; a name after a dot is
    one language (p.en=w_en), a number holds for all rows (N=97.6k). A map in TOML has the same keys: run, N, D, p,
    loss, tokens, unique, weight, split, seed; language, or name and value, of long tables; languages (other names for
    them), ignore, tokens_per_step (for a D in steps); and the switches below. They go with every command that reads a
    log.

    What stands elsewhere, such as N and the ratios of runs, is joined: --join design.csv has a row a run, as in
    `shapleymix import runs/*/trainer_state.json --join design.csv`. A column of one of several tables is design:w_en.
    """
    from shapleymix_cli.documents.runs import runs_document
    from shapleymix_cli.documents.writing import write_columns
    from shapleymix_cli.inputs import read_log
    from shapleymix_cli.views.runs import runs_view

    if show or write_map is not None:
        switch = "--show" if show else "--write-map"
        if output is not None:
            raise UsageError(f"-o does nothing with {switch}, which writes no log", hint="leave out one of the two")
        _examine(out, logs, write_map, force, switch)
        return
    log = read_log(out, logs)
    if output is not None:
        options.refuse_input(output, [one.file for one in log.files])
        write_columns(out, log.columns(), output, force)
    out.emit(lambda: runs_document(out, log), lambda: runs_view(log))


def _examine(out: Output, logs: reading.Logs, path: str | None, force: bool, switch: str) -> None:
    """What a table holds, or several that are charts of one tool, and a map of it."""
    from shapleymix.files import atomic_write
    from shapleymix.tables.examining import examined
    from shapleymix_cli.documents.runs import examination_document
    from shapleymix_cli.views.runs import examination_view

    if path is not None and not path.endswith(".toml"):
        raise UsageError("--write-map writes TOML", hint="end the name in .toml")
    found = examined(logs.paths, **logs.how)
    if len(logs.paths) > 1 + len(found.parts):
        hint = "give one of them; logs that are written alike are read in one way, and others by a map file each"
        raise UsageError(f"{switch} looks at one log, and {len(logs.paths)} are given", hint=hint)
    out.used(found.origin, found.digest)
    out.note(found.notices)
    if path is not None:
        atomic_write(path, found.toml(os.path.dirname(path)), force=force)
        named = shlex.quote(path)
        out.note([f"wrote {path}: look it over, and give it in the place of the log, as in `shapleymix fit {named}`"])
    tables = _typed(logs.paths, (found.origin, *found.parts))
    out.emit(
        lambda: examination_document(found),
        lambda: examination_view(found, reading.import_command(tables, found.keywords)),
    )


def _typed(given: Sequence[str], origins: Sequence[str]) -> Sequence[str]:
    """The sources as they are typed: as they were, unless a map file or other logs were given."""
    return given if len(given) == len(origins) and not given[0].lower().endswith(".toml") else origins
