"""`shapleymix collect`: the finished runs of plans as one run log, and what is missing."""

from __future__ import annotations

import os

import click

from shapleymix.errors import DataError, Location, UsageError
from shapleymix_cli import options
from shapleymix_cli.console import Output
from shapleymix_cli.planning import EXAMPLE, sweep_folder


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
    """How far each PLAN is, and who trains what; with -o, one run log of their finished runs.

    Each run counts once, under its id, with the N and D that it realised, in whichever plans it is. What is missing or
    not as planned is said on standard error. A whole run log whose program nobody saw end, since its launcher was
    killed, is taken.
    """
    from shapleymix.sweeping.collecting import collect
    from shapleymix.sweeping.layout import Layout
    from shapleymix.sweeping.states import states_of
    from shapleymix_cli.documents.sweeps import states_document
    from shapleymix_cli.documents.writing import write_columns
    from shapleymix_cli.inputs import read_sweep
    from shapleymix_cli.sweeps.claims import holders_of
    from shapleymix_cli.sweeps.leftovers import take_left_behind
    from shapleymix_cli.views.sweeps import states_view

    _check_once(plan_paths)
    sweeps = [(read_sweep(out, path), Layout.of(path, folder)) for path in plan_paths]
    for plan, layout in sweeps:
        out.note(take_left_behind(plan, layout))
    if output is None and not strict:
        states = states_of(sweeps)
    else:
        found = collect(sweeps)
        states = found.states
        if strict and found.missing:
            missing = next(said for said in found.notices if "are missing" in said)
            raise DataError(missing, hint="launch the plan again, or leave out --strict")
        out.warn(found.notices)
        if output is not None:
            write_columns(out, found.log.columns(), output, force)
    told = [(state, layout, holders_of(plan, layout)) for state, (plan, layout) in zip(states, sweeps, strict=True)]
    out.emit(lambda: states_document(told), lambda: states_view(told, out.verbose))


def _check_once(paths: tuple[str, ...]) -> None:
    """A plan that is named twice would have each of its runs in "several plans"."""
    known: set[str] = set()
    for path in paths:
        if (place := os.path.realpath(path)) in known:
            raise UsageError("is named twice", location=Location(file=path), hint="name each plan once")
        known.add(place)
