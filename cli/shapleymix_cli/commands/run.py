"""`shapleymix run`: one run of a plan, for any scheduler."""

from __future__ import annotations

import shlex

import click

from shapleymix.errors import DataError, Location, UsageError
from shapleymix_cli import options
from shapleymix_cli.console import Output
from shapleymix_cli.planning import EXAMPLE, dry_run, plan_file, sweep_folder
from shapleymix_cli.streams import say


@options.command(
    EXAMPLE,
    "shapleymix run game.jsonl --index 0 --dry-run",
)
@plan_file
@click.option("--index", type=options.COUNT, required=True, help="Which run, from 0: $SLURM_ARRAY_TASK_ID.")
@sweep_folder
@dry_run
def command(out: Output, plan_path: str, index: int, folder: str | None, dry_run: bool) -> None:
    """Train one run of PLAN, unless it is finished.

    For a scheduler of any kind: one call a run, in the folder where the command of the plan is to start. A run that
    another process trains is left to it, with exit code 1; so is a run that fails, whose last words are shown.
    """
    from shapleymix.sweeping.layout import Layout
    from shapleymix_cli.inputs import read_sweep
    from shapleymix_cli.sweeps.attempts import attempt, last_words, words_of
    from shapleymix_cli.sweeps.children import Children
    from shapleymix_cli.sweeps.pool import interrupted
    from shapleymix_cli.views.tables import Whole

    plan = read_sweep(out, plan_path)
    if index >= len(plan):
        raise UsageError(f"--index {index}: the plan holds {len(plan)} runs", hint=f"0 to {len(plan) - 1}")
    run = plan.runs[index]
    place = Layout.of(plan_path, folder).place(run.id)
    words = shlex.join(words_of(run, place))
    told = {"kind": "sweep-run", "index": index, "id": run.id, "name": run.name, "command": words}
    if dry_run:
        out.emit(lambda: {**told, "status": "planned"}, lambda: [Whole(words)])
        return
    children = Children()
    with interrupted(children) as asked:
        end = attempt(run, place, children)
    if end.how == "stopped" or asked.is_set():
        raise KeyboardInterrupt
    if end.how == "held":
        hint = "wait for it, or launch the plan, which waits"
        raise DataError(f"run {index} ({run.id}) is trained by {end.holder}", hint=hint)
    if end.how == "failed":
        for line in last_words(place):
            say(f"  {line}")
        hint = "mend it, and call the same again: it goes on where its program can"
        raise DataError(f"run {index} failed: {end.reason}", hint=hint, location=Location(str(place.log)))
    out.warn(end.notices)
    how = "is finished" if end.trained else "was finished before"
    out.emit(lambda: {**told, "status": "finished"}, lambda: [f"run {index} ({run.id}, {run.name}) {how}"])
