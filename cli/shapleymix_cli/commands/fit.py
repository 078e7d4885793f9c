"""`shapleymix fit`: from run logs to a fitted law."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

import click

from shapleymix.errors import FitError, UsageError
from shapleymix.fitting.settings import BEYOND, WITHIN, Settings
from shapleymix_cli import options, reading
from shapleymix_cli.console import Output
from shapleymix_cli.project import always

if TYPE_CHECKING:
    from shapleymix.files import Json
    from shapleymix.fitting.fits import Fit
    from shapleymix.fitting.learning_curve import LearningCurve
    from shapleymix.fitting.settings import CompareKeywords, Purpose
    from shapleymix.tables.languages import Languages
    from shapleymix.tables.runs import RunLog
    from shapleymix.tables.transfer import TransferMatrix
    from shapleymix_cli.inputs import Kind
    from shapleymix_cli.views.tables import Part


@options.command(
    "shapleymix example",
    "shapleymix shapley example/coalitions.csv -o sv.csv",
    "shapleymix fit example/runs.csv --law shapley-tempered --transfer sv.csv -o fit.json",
    "shapleymix fit example/runs.csv --transfer sv.csv --min-own-tokens 50k --folds 3 --bootstrap 50",
    project={"log": always, "transfer": always, "languages": always},
)
@reading.logs
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
@click.option(
    "--learning-curve/--no-learning-curve",
    default=None,
    help="Say how far more mixtures would bring the held-out error; done unless --folds 0.",
)
@click.option("--reach", type=options.FRACTION, metavar="PE", help="Say how many mixtures bring it down to this.")
@options.threads
@options.output("the fit, for predict, evaluate and optimize (.json)")
def command(
    out: Output,
    logs: reading.Logs,
    law: str,
    transfer: str | None,
    kind: Kind,
    languages: str | None,
    bootstrap: int,
    folds: int,
    purpose: Purpose,
    vocabulary: float | None,
    learning_curve: bool | None,
    reach: float | None,
    seed: int,
    threads: int,
    output: str | None,
    force: bool,
    **settings: Unpack[options.EstimationOptions],
) -> None:
    """Fit a law of the loss in N, D and the mixture.

    `--law auto` compares the laws that the inputs allow by cross-validation grouped by mixture, and takes learned-base
    unless another is clearly better; with `--purpose beyond` it compares them on the largest size instead, which
    they were not fitted to. Several logs are fitted together: coalition runs at a small size inform the
    transfer at a large one.
    """
    from shapleymix.fitting.fit import fit
    from shapleymix_cli import inputs
    from shapleymix_cli.documents.writing import save
    from shapleymix_cli.own_laws import chosen_law, marked

    chosen = chosen_law(law)
    if output and not output.lower().endswith(".json"):
        raise UsageError("-o writes a fit as .json only", hint="end the name in .json")
    if learning_curve is None:
        learning_curve = reach is not None or folds > 0
    elif reach is not None and not learning_curve:
        raise UsageError("--reach asks for a learning curve", hint="leave --no-learning-curve out")
    log = inputs.read_log(out, logs)
    matrix, table = inputs.read_matrix(out, transfer, kind), inputs.read_table(out, languages)
    how: CompareKeywords = {**options.estimation_settings(settings), "folds": folds, "threads": threads}
    found = fit(
        log,
        chosen if isinstance(chosen, str) else chosen.law,
        matrix,
        table,
        seed=seed,
        bootstrap=bootstrap,
        purpose=purpose,
        vocabulary=vocabulary,
        progress=out.progress,
        **how,
    )
    curve = _curve(out, log, found, matrix, table, seed, how) if learning_curve else None
    if not isinstance(chosen, str):
        out.used(chosen.file, chosen.sha256)
        found = marked(found, chosen)
    out.note(notice for notice in found.notices if notice not in log.notices)
    out.warn(found.warnings)
    if output:
        save(out, found, output, force)
    out.emit(lambda: _document(found, curve, reach), lambda: _view(found, curve, reach, out.verbose))


def _curve(
    out: Output,
    log: RunLog,
    found: Fit,
    matrix: TransferMatrix | None,
    table: Languages | None,
    seed: int,
    how: CompareKeywords,
) -> LearningCurve | None:
    """The learning curve of the fitted law, or a note why it has none."""
    from shapleymix.fitting.absent import SOME
    from shapleymix.fitting.learning_curve import FEW_PARTS, PARTS, learning_curve

    held_out = None if found.held_out is None else found.held_out.mean["PE"]
    law, parts = type(found.law), PARTS if held_out is None or how.get("folds") in FEW_PARTS else FEW_PARTS
    if found.absent is not None:  # they are fitted apart, and no part of the curve
        how = {**how, "min_own_tokens": SOME}
    try:
        return learning_curve(
            log, law, matrix, table, parts=parts, held_out=held_out, seed=seed, progress=out.progress, **how
        )
    except FitError as error:
        out.note([f"no learning curve: {error.message}"])
        return None


def _document(found: Fit, curve: LearningCurve | None, reach: float | None) -> dict[str, Json]:
    from shapleymix_cli.documents.fits import fit_document
    from shapleymix_cli.documents.learning_curve import learning_curve_document

    told = None if curve is None else learning_curve_document(curve, reach)
    return {**fit_document(found), "learning_curve": told}


def _view(found: Fit, curve: LearningCurve | None, reach: float | None, verbose: bool) -> list[Part]:
    from shapleymix_cli.views.fit import fit_view
    from shapleymix_cli.views.learning_curve import learning_curve_view

    return [*fit_view(found, verbose), *([] if curve is None else learning_curve_view(curve, reach))]
