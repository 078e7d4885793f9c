"""`shapleymix collect`: the finished runs of a plan as one run log, and what is missing."""

from __future__ import annotations

import click

from shapleymix.errors import DataError
from shapleymix_cli import options
from shapleymix_cli.console import Output
from shapleymix_cli.planning import EXAMPLE, plan_file, sweep_folder


@options.command(
    EXAMPLE,
    "shapleymix collect game.jsonl",
)
@plan_file
@sweep_folder
@click.option("--strict", is_flag=True, help="Fail, and write nothing, unless all runs are finished.")
@options.output("the run log of the finished runs (.csv, .csv.gz, .parquet, .jsonl)")
def command(out: Output, plan_path: str, folder: str | None, strict: bool, output: str | None, force: bool) -> None:
    """How far PLAN is; with -o, the run log of its finished runs.

    Each run counts once, called by its name and id, with the N and D that it realised. What is missing or not as
    planned is said on standard error.
    """
    from shapleymix.sweeping.collecting import FINISHED, collect, state_of
    from shapleymix.sweeping.layout import Layout
    from shapleymix_cli.documents.sweeps import state_document
    from shapleymix_cli.documents.writing import write_columns
    from shapleymix_cli.inputs import read_sweep
    from shapleymix_cli.views.sweeps import state_view

    plan, layout = read_sweep(out, plan_path), Layout.of(plan_path, folder)
    if output is None and not strict:
        state = state_of(plan, layout)
    else:
        found = collect(plan, layout)
        state = found.state
        if strict and state.count(FINISHED) < len(plan):
            raise DataError(found.notices[0], hint="launch the plan again, or leave out --strict")
        out.warn(found.notices)
        if output is not None:
            write_columns(out, found.log.columns(), output, force)
    out.emit(lambda: state_document(state), lambda: state_view(state, layout, out.verbose))
