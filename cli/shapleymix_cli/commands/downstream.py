"""`shapleymix downstream`: scores on tasks as a function of losses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from shapleymix_cli import options, reading
from shapleymix_cli.console import Output
from shapleymix_cli.project import always

if TYPE_CHECKING:
    from shapleymix.downstream.calibrations import Downstream
    from shapleymix_cli.views.tables import Part

TRANSFORMS = ("minus", "loss", "log", "exp", "inverse", "sigmoid")


@options.command(
    "shapleymix example",
    "shapleymix downstream example/runs.csv --scores example/scores.csv --chance 0.25 -o downstream.json",
    "shapleymix downstream example/runs.csv --scores example/scores.csv --transform exp --json",
    project={"log": always},
)
@reading.logs
@click.option(
    "--scores",
    metavar="SCORES",
    required=True,
    help="A table run,task,target,score[,D][,chance], or lm-eval's output folder (results_*.json).",
)
@click.option(
    "--task-language",
    metavar="NAME=[TASK/]LANG,...",
    multiple=True,
    help="The language of tasks whose name does not end in it (hellaswag=en, belebele_deu_Latn=belebele/de).",
)
@click.option(
    "--chance",
    metavar="0.25|TASK=0.25,...",
    help="What a guess scores, as a share of 1; a sigmoid is tried where it is known.",
)
@click.option(
    "--transform",
    type=click.Choice(TRANSFORMS),
    help="g in s = a g(l) + b: -l, l, log l, exp(-l), 1/l.  [default: that of the lowest held-out error, task by task]",
)
@click.option("--metric", default="acc", show_default=True, help="Of lm-eval: acc, acc_norm, exact_match,strict-match.")
@click.option("--shots", type=options.COUNT, help="Of lm-eval: only evaluations with so many examples.")
@click.option(
    "--run-pattern",
    metavar="'ckpt/{run}/*'",
    help="Of lm-eval: where the run's id stands, and with {D} its tokens, in the model's name or the file's path. "
    " [default: a part of either that is the id of a run]",
)
@click.option("--percent", is_flag=True, help="Scores (and the column chance) of the table are given from 0 to 100.")
@options.level
@options.output("the calibration, for --downstream of optimize (.json), or as a table")
def command(
    out: Output,
    logs: reading.Logs,
    scores: str,
    task_language: tuple[str, ...],
    chance: str | None,
    transform: str | None,
    metric: str,
    shots: int | None,
    run_pattern: str | None,
    percent: bool,
    level: float,
    output: str | None,
    force: bool,
) -> None:
    """Calibrate scores on tasks by losses: s = a g(l) + b for each task and language.

    Of the transforms g the one is taken that predicts mixtures best which were left out, one at a time; R2 in the
    sample, which the ShapleyLaw paper chooses by, is shown beside.
    """
    from shapleymix.downstream.calibrating import calibrate_scores
    from shapleymix_cli.documents.writing import save_or_tabulate, with_provenance
    from shapleymix_cli.inputs import read_log

    options.require_ending(output)
    log = read_log(out, logs)
    found = calibrate_scores(
        log, scores, task_language=task_language, chance=chance, transform=transform, metric=metric, shots=shots,
        run_pattern=run_pattern, percent=percent, level=level,
    )  # fmt: skip
    out.used(scores, str(found.provenance["scores_sha256"]))
    found = with_provenance(out, found)
    out.warn(found.warnings)
    out.note(one for one in found.notices if one not in log.notices)  # those were told as it was read
    if output:
        save_or_tabulate(out, found, output, force)
    out.emit(found.to_document, lambda: _view(found, out.verbose))


def _view(found: Downstream, verbose: bool) -> list[Part]:
    from shapleymix_cli.views.downstream import downstream_view

    return downstream_view(found, verbose)
