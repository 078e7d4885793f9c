"""`shapleymix plot fit`: losses against Theta, or against the prediction."""

from __future__ import annotations

from typing import Literal

import click

from shapleymix_cli import options, reading
from shapleymix_cli.console import Output
from shapleymix_cli.figures.drawing import names_of, output, require_place, show
from shapleymix_cli.project import having


@options.command(
    "shapleymix example",
    "shapleymix fit example/runs.csv --law learned-base --min-own-tokens 20k --bootstrap 20 --folds 3 -o fit.json",
    "shapleymix plot fit fit.json example/runs.csv --held-out example/coalitions.csv -o fit.png",
    "shapleymix plot fit fit.json example/runs.csv --targets zh,ja --against prediction --json",
    project={"log": having("fit_path")},
)
@options.fit_file
@reading.logs
@options.law_file
@click.option("--held-out", metavar="LOG", multiple=True, help="Runs that were not fitted, to be marked; repeatable.")
@click.option("--targets", metavar="en,de,...", help="The targets to draw.  [default: the first twelve]")
@click.option("-D", "D", type=options.SIZE, help="Token count of the runs.  [default: that of most runs of each size]")
@click.option(
    "--against",
    type=click.Choice(["theta", "prediction"]),
    help="The horizontal axis.  [default: Theta, if any]",
)
@options.level
@output
def fit(
    out: Output,
    fit_path: str,
    logs: reading.Logs,
    law_file: str | None,
    held_out: tuple[str, ...],
    targets: str | None,
    D: float | None,
    against: Literal["theta", "prediction"] | None,
    level: float,
    output: str | None,
    force: bool,
) -> None:
    """Each target's loss against its Theta, by size: the runs of LOG, the law of FIT, its band, held-out runs hollow.

    Rows that the log's split column sets aside are held out as well.
    """
    from shapleymix.plotting.fits import plot_fit
    from shapleymix_cli.inputs import load_fit, read_log

    require_place(out, output)
    fitted, log = load_fit(out, fit_path, law_file), read_log(out, logs)
    others = read_log(out, reading.Logs(held_out, logs.how)) if held_out else None
    found = plot_fit(fitted, log, others, targets=names_of(targets), D=D, against=against, level=level)
    show(out, found, output, force)
