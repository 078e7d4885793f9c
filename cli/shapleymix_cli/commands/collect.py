"""`shapleymix collect`: the finished runs of plans as one run log, and what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from shapleymix.errors import DataError, Location, UsageError
from shapleymix_cli import options
from shapleymix_cli.console import Output
from shapleymix_cli.planning import EXAMPLE, sweep_folder

if TYPE_CHECKING:
    from shapleymix.sweeping.collecting import Collected
    from shapleymix.tables.runs import RunLog


@options.command(
    EXAMPLE,
    "shapleymix collect game.jsonl",
)
@click.argument("plan_paths", metavar="PLAN...", nargs=-1, required=True)
@sweep_folder
@click.option("--strict", is_flag=True, help="Fail, and write nothing, unless all runs are finished.")
@options.output("the run log of the finished runs (.csv, .csv.gz, .parquet, .jsonl)")
def command(
    out: Output, plan_paths: tuple[str, ...], folder: str | None, strict: bool, output: str | None, force: bool
) -> None:
    """How far PLAN is; with -o, the run log of its finished runs, one log of several plans.

    Each run counts once, called by its name and id, with the N and D that it realised. What is missing or not as
    planned is said on standard error.
    """
    from shapleymix.sweeping.collecting import collect, state_of
    from shapleymix.sweeping.layout import Layout
    from shapleymix_cli.documents.sweeps import states_document
    from shapleymix_cli.documents.writing import write_columns
    from shapleymix_cli.inputs import read_sweep
    from shapleymix_cli.views.sweeps import states_view

    if folder is not None and len(plan_paths) > 1:
        raise UsageError("--folder is of one plan", hint="give one plan, or leave each its folder beside it")
    plans = [read_sweep(out, path) for path in plan_paths]
    layouts = [Layout.of(path, folder) for path in plan_paths]
    if output is None and not strict:
        states = [state_of(*one) for one in zip(plans, layouts, strict=True)]
    else:
        found = [collect(*one) for one in zip(plans, layouts, strict=True)]
        states = [one.state for one in found]
        if strict:
            _require_all(plan_paths, found)
        out.warn(_notices(plan_paths, found))
        if output is not None:
            write_columns(out, _together(plan_paths, found).columns(), output, force)
    out.emit(lambda: states_document(plan_paths, states), lambda: states_view(plan_paths, states, layouts, out.verbose))


def _notices(paths: Sequence[str], found: Sequence[Collected]) -> list[str]:
    """What is to be told of each plan, after its file where there are several."""
    of = [f"{path}: " if len(paths) > 1 else "" for path in paths]
    return [f"{start}{notice}" for start, one in zip(of, found, strict=True) for notice in one.notices]


def _require_all(paths: Sequence[str], found: Sequence[Collected]) -> None:
    """Refuse the first plan that is not finished."""
    from shapleymix.sweeping.collecting import FINISHED

    for path, one in zip(paths, found, strict=True):
        if one.state.count(FINISHED) < len(one.state.plan):
            hint = "launch the plan again, or leave out --strict"
            raise DataError(one.notices[0], hint=hint, location=Location(path))


def _together(paths: Sequence[str], found: Sequence[Collected]) -> RunLog:
    """One log of all plans, whose languages must be the same."""
    from shapleymix.tables.joining import concat

    return concat([replace(one.log, origin=path) for path, one in zip(paths, found, strict=True)])
