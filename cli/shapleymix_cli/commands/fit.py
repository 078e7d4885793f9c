"""`shapleymix fit`: from run logs to a fitted law."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

import click

from shapleymix.errors import UsageError
from shapleymix.fitting.settings import BEYOND, WITHIN, Settings
from shapleymix_cli import options
from shapleymix_cli.console import Output

if TYPE_CHECKING:
    from shapleymix.fitting.fits import Fit
    from shapleymix.fitting.settings import Purpose
    from shapleymix_cli.inputs import Kind
    from shapleymix_cli.views.tables import Part


@options.command(
    "shapleymix example",
    "shapleymix shapley example/coalitions.csv -o sv.csv",
    "shapleymix fit example/runs.csv --law shapley-tempered --transfer sv.csv -o fit.json",
    "shapleymix fit example/runs.csv --transfer sv.csv --min-own-tokens 50k --folds 3 --bootstrap 50",
)
@options.logs
@click.option(
    "--law",
    default="auto",
    show_default=True,
    metavar="LAW",
    help="A name of `shapleymix laws`, auto, or my_law.py:MyLaw.",
)
@options.transfer
@options.kind
@options.languages
@click.option(
    "--bootstrap",
    type=options.COUNT,
    default=Settings.bootstrap,
    show_default=True,
    help="Bootstrap replicates for intervals; 0 for none.",
)
@click.option(
    "--folds",
    type=options.COUNT,
    default=Settings.folds,
    show_default=True,
    help="Folds of the cross-validation; 0 for no held-out scores.",
)
@click.option(
    "--purpose",
    type=click.Choice([WITHIN, BEYOND]),
    default=Settings.purpose,
    show_default=True,
    help="Budgets for which auto chooses: within the fitted ones, or beyond, by the largest size left out.",
)
@options.seed
@options.estimation
@click.option(
    "--vocabulary", type=options.SIZE, help="Size of the vocabulary; predictions above its logarithm are not shown."
)
@options.threads
@options.output("the fit, for predict, evaluate and optimize (.json)")
def command(
    out: Output,
    logs: tuple[str, ...],
    law: str,
    transfer: str | None,
    kind: Kind,
    languages: str | None,
    bootstrap: int,
    folds: int,
    purpose: Purpose,
    vocabulary: float | None,
    seed: int,
    threads: int,
    output: str | None,
    force: bool,
    **settings: Unpack[options.EstimationOptions],
) -> None:
    """Fit a law of the loss in N, D and the mixture.

    `--law auto` compares the laws that the inputs allow by cross-validation grouped by mixture, and takes the simplest
    within one standard error of the best; with `--purpose beyond` it compares them on the largest size instead, which
    they were not fitted to. Several logs are fitted together: coalition runs at a small size inform the
    transfer at a large one.
    """
    from shapleymix.fitting.fits import fit
    from shapleymix_cli import inputs
    from shapleymix_cli.documents.fits import fit_document
    from shapleymix_cli.documents.writing import save
    from shapleymix_cli.own_laws import chosen_law, marked

    chosen = chosen_law(law)
    if output and not output.lower().endswith(".json"):
        raise UsageError("-o writes a fit as .json only", hint="end the name in .json")
    log = inputs.read_log(out, logs)
    found = fit(
        log,
        chosen if isinstance(chosen, str) else chosen.law,
        inputs.read_matrix(out, transfer, kind),
        inputs.read_table(out, languages),
        seed=seed,
        bootstrap=bootstrap,
        folds=folds,
        purpose=purpose,
        vocabulary=vocabulary,
        threads=threads,
        progress=out.progress,
        **options.estimation_settings(settings),
    )
    if not isinstance(chosen, str):
        out.used(chosen.file, chosen.sha256)
        found = marked(found, chosen)
    out.note(notice for notice in found.notices if notice not in log.notices)
    out.warn(found.warnings)
    if output:
        save(out, found, output, force)
    out.emit(lambda: fit_document(found), lambda: _view(found, out.verbose))


def _view(found: Fit, verbose: bool) -> list[Part]:
    from shapleymix_cli.views.fit import fit_view

    return fit_view(found, verbose)
