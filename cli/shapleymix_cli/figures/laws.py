"""`shapleymix plot compare` and `plot learning-curve`: held-out errors of laws, and of one against the runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

import click

from shapleymix_cli import options, reading
from shapleymix_cli.console import Output
from shapleymix_cli.figures.drawing import output, require_place, show

if TYPE_CHECKING:
    from shapleymix_cli.inputs import Kind


@options.command(
    "shapleymix example",
    "shapleymix compare example/runs.csv --laws exponential,learned-base,chinchilla --folds 3 -o laws.json",
    "shapleymix plot compare laws.json -o laws.png",
)
@click.argument("path", metavar="COMPARISON")
@output
def compare(out: Output, path: str, output: str | None, force: bool) -> None:
    """Laws on the same held-out runs, from what `compare -o` wrote: the best on top, with standard errors."""
    from shapleymix.fitting.comparison import Comparison
    from shapleymix.plotting.laws import plot_compare
    from shapleymix_cli.inputs import load_record

    require_place(out, output)
    show(out, plot_compare(load_record(out, Comparison, path)), output, force)


@options.command(
    "shapleymix example",
    "shapleymix plot learning-curve example/runs.csv --law hellinger --folds 3 -o curve.png",
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
    from shapleymix.plotting.laws import plot_learning_curve
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
    show(out, plot_learning_curve(found), output, force)
