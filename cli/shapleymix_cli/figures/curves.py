"""`shapleymix plot learning-curve`: the held-out error of a law against the number of mixtures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

import click

from shapleymix_cli import options, reading
from shapleymix_cli.console import Output
from shapleymix_cli.figures.drawing import output, require_place, show
from shapleymix_cli.project import always

if TYPE_CHECKING:
    from shapleymix_cli.inputs import Kind


@options.command(
    "shapleymix example",
    "shapleymix plot learning-curve example/runs.csv --law hellinger --folds 3 -o curve.png",
    project={"log": always, "transfer": always, "languages": always},
)
@reading.logs
@click.option("--law", default="auto", show_default=True, metavar="LAW", help="The law, by its name.")
@options.transfer
@options.kind
@options.languages
@click.option("--folds", type=options.Count(2), help="Parts of the cross-validation with which `auto` chooses.")
@options.seed
@options.estimation
@options.threads
@output
def learning_curve(
    out: Output,
    logs: reading.Logs,
    law: str,
    transfer: str | None,
    kind: Kind,
    languages: str | None,
    folds: int | None,
    seed: int,
    threads: int,
    output: str | None,
    force: bool,
    **settings: Unpack[options.EstimationOptions],
) -> None:
    """The held-out error of a law against the number of mixtures of LOG, and where more would lead."""
    from shapleymix.fitting.learning_curve import learning_curve as curve_of
    from shapleymix.fitting.settings import Settings
    from shapleymix_cli import inputs
    from shapleymix_cli.own_laws import chosen_law

    require_place(out, output)
    chosen = chosen_law(law)
    log, matrix = inputs.read_log(out, logs), inputs.read_matrix(out, transfer, kind)
    found = curve_of(
        log,
        chosen if isinstance(chosen, str) else chosen.law,
        matrix,
        inputs.read_table(out, languages),
        seed=seed,
        threads=threads,
        folds=folds or Settings.folds,
        progress=out.progress,
        **options.estimation_settings(settings),
    )
    show(out, found.plot(), output, force)
