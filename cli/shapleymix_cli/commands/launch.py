"""`shapleymix launch`: all runs of a plan, so many at a time; again, to resume."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from shapleymix.errors import UsageError
from shapleymix_cli import options
from shapleymix_cli.console import Output
from shapleymix_cli.failures import DATA_SAY_NO
from shapleymix_cli.planning import EXAMPLE, dry_run, plan_file, sweep_folder

if TYPE_CHECKING:
    from shapleymix.sweeping.layout import Layout
    from shapleymix.sweeping.plans import Plan

LOCAL, SLURM = "local", "slurm"


@options.command(
    EXAMPLE,
    "shapleymix launch game.jsonl --jobs 2 --dry-run",
)
@plan_file
@click.option("--jobs", type=options.Count(1), help="Runs at a time.  [default: one, or as many as GPUs allow]")
@click.option("--gpus", metavar="0,1,...|none", help="GPUs to share out.  [default: all that are visible]")
@click.option("--gpus-per-run", type=options.Count(1), default=1, show_default=True, help="How many a run has.")
@click.option("--retries", type=options.COUNT, default=1, show_default=True, help="Tries after the first failure.")
@click.option("--keep-going", is_flag=True, help="Go on though the first five runs fail and none finishes.")
@click.option(
    "--grace", type=options.Number(0, 1e6), default=60, show_default=True, help="Seconds to end in on Ctrl-C."
)
@click.option("--backend", type=click.Choice([LOCAL, SLURM]), default=LOCAL, show_default=True, help="Where runs go.")
@click.option("--slurm", metavar="time=60,...", multiple=True, help="With slurm: what sbatch is told; repeatable.")
@sweep_folder
@dry_run
def command(
    out: Output,
    plan_path: str,
    jobs: int | None,
    gpus: str | None,
    gpus_per_run: int,
    retries: int,
    keep_going: bool,
    grace: float,
    backend: str,
    slurm: tuple[str, ...],
    folder: str | None,
    dry_run: bool,
) -> None:
    """Train the runs of PLAN that are not finished, so many at a time.

    Called again, it resumes: what is finished is passed over, what was begun is started again with the same command,
    and continues where its program can. Programs start in the folder where this is called. Several launchers may work
    at one plan; none trains what another does. Ctrl-C asks the programs to end and waits; a second one ends them at
    once. Failures are listed at the end, with exit code 1; where the first five runs fail and none finishes, the others
    are left alone.
    """
    from shapleymix.sweeping.layout import Layout
    from shapleymix_cli.inputs import read_sweep

    _check_backend(backend, slurm)
    plan = read_sweep(out, plan_path)
    layout = Layout.of(plan_path, folder)
    if dry_run:
        _show_open(out, plan, layout)
    elif backend == SLURM:
        _submit(out, plan, layout, jobs, slurm)
    else:
        _train(out, plan, layout, jobs, gpus, gpus_per_run, retries, keep_going, grace)


def _check_backend(backend: str, slurm: tuple[str, ...]) -> None:
    """What one backend does not know is refused, not passed over."""
    if slurm and backend != SLURM:
        raise UsageError("--slurm without --backend slurm", hint="give both, or neither")
    context = click.get_current_context()
    for name in ("gpus", "gpus_per_run", "retries", "keep_going", "grace"):
        if backend == SLURM and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            hint = "SLURM shares out GPUs and ends runs (--slurm gres=gpu:1); launch again for those that fail"
            raise UsageError(f"--{name.replace('_', '-')} does nothing with --backend slurm", hint=hint)


def _show_open(out: Output, plan: Plan, layout: Layout) -> None:
    """The commands of the runs that are not finished."""
    from shapleymix.sweeping.states import FAILED, OPEN, state_of
    from shapleymix_cli.sweeps.attempts import words_of
    from shapleymix_cli.views.tables import Whole

    listed = state_of(plan, layout).where(OPEN, FAILED)
    commands = [shlex.join(words_of(plan.runs[place], layout.place(plan.runs[place].id))) for place in listed]
    out.emit(
        lambda: {"kind": "launch", "runs": len(plan), "open": listed, "commands": commands},
        lambda: [*map(Whole, commands), f"{len(listed)} of {len(plan)} runs are to be trained"],
    )


def _submit(out: Output, plan: Plan, layout: Layout, jobs: int | None, parameters: tuple[str, ...]) -> None:
    from shapleymix.sweeping.states import FAILED, OPEN, state_of
    from shapleymix_cli.documents.sweeps import submission_document
    from shapleymix_cli.sweeps.claims import holders_of
    from shapleymix_cli.sweeps.queue import submitting
    from shapleymix_cli.sweeps.sbatch import pairs_of
    from shapleymix_cli.sweeps.slurm import submit
    from shapleymix_cli.views.sweeps import submission_view

    told = pairs_of(parameters)
    with submitting(layout) as queued:
        listed = state_of(plan, layout).where(OPEN, FAILED)
        held = {plan.runs[index].id: str(holder) for index, holder in holders_of(plan, layout).items()}
        taken = held | queued
        waiting = {index: taken[plan.runs[index].id] for index in listed if plan.runs[index].id in taken}
        submitted = submit(
            plan, layout, [index for index in listed if index not in waiting], jobs=jobs, parameters=told
        )
    if submitted and not {"time", "timeout_min"} & told.keys():
        out.warn(["no time is given, and submitit asks for 5 minutes a run: give --slurm time=MINUTES"])
    ids = [job.job_id for job in submitted]
    out.emit(lambda: submission_document(plan, ids, waiting), lambda: submission_view(plan, ids, waiting))


def _train(
    out: Output,
    plan: Plan,
    layout: Layout,
    jobs: int | None,
    gpus: str | None,
    each: int,
    retries: int,
    keep_going: bool,
    grace: float,
) -> None:
    from shapleymix_cli.documents.sweeps import launch_document
    from shapleymix_cli.sweeps.children import Children
    from shapleymix_cli.sweeps.gpus import environments, gpus_of
    from shapleymix_cli.sweeps.pool import Sweep, launch
    from shapleymix_cli.sweeps.watching import watching
    from shapleymix_cli.views.sweeps import launch_view

    places = environments(gpus_of(gpus), each, jobs)
    sweep = Sweep.of(plan, layout, retries, keep_going=keep_going)
    with watching(sweep, quiet=out.quiet) as watch:
        launch(sweep, places[: max(len(sweep.waiting), 1)], Children(grace), watch)
    out.warn([f"{len(runs)} of {sweep.trained} runs: {text}" for text, runs in sweep.notices.items()])
    out.emit(lambda: launch_document(sweep), lambda: launch_view(sweep, retries, out.verbose))
    out.warn(_changed(plan))
    if sweep.hopeless:
        out.warn(["mend the command of the plan, or what it needs, and launch again; --keep-going goes on regardless"])
    if sweep.failed or sweep.hopeless:
        click.get_current_context().exit(DATA_SAY_NO)


def _changed(plan: Plan) -> list[str]:
    """Whether the file of the plan is another by now."""
    from shapleymix.files import read_once

    if not os.path.isfile(plan.file):  # a pipe, which cannot be read twice, or gone
        return []
    try:
        same = read_once(plan.file)[1].sha256 == plan.digest
    except OSError:
        same = True
    return [] if same else [f"{plan.file} was changed meanwhile: what was trained is the plan as it was"]
