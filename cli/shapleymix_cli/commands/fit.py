"""`shapleymix fit`: from run logs to a fitted law."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

from shapleymix.errors import UsageError
from shapleymix_cli import options
from shapleymix_cli.console import Output
from shapleymix_cli.documents.plain import by_name

if TYPE_CHECKING:
    from shapleymix.fitting.fits import Fit


@options.command(
    "shapleymix shapley fixtures/multilingual5_coalitions.csv -o sv.csv",
    "shapleymix fit fixtures/multilingual5_runs.csv --law shapley-tempered --sv sv.csv -o fit.json",
    "shapleymix fit fixtures/multilingual5_runs.csv --sv sv.csv --min-own-tokens 50k --folds 3 --bootstrap 50",
)
@options.logs
@click.option("--law", default="auto", show_default=True, metavar="LAW", help="A name of `shapleymix laws`, or auto.")
@options.sv
@options.kind
@options.languages
@click.option("--bootstrap", type=options.COUNT, default=200, show_default=True, help="Replicates for intervals.")
@click.option("--folds", type=options.COUNT, default=10, show_default=True, help="Of the cross-validation; 0: none.")
@options.seed
@options.estimation
@options.threads
@options.output("the fit, for predict, evaluate and optimize (.json)")
def command(
    out: Output,
    logs: tuple[str, ...],
    law: str,
    sv: str | None,
    kind: Any,
    languages: str | None,
    bootstrap: int,
    folds: int,
    seed: int,
    threads: int,
    output: str | None,
    force: bool,
    **settings: Any,
) -> None:
    """Fit a law of the loss in N, D and the mixture.

    `--law auto` compares the laws that the inputs allow by cross-validation grouped by mixture, and takes the simplest
    within one standard error of the best. Several logs are fitted together: coalition runs at a small size inform the
    transfer at a large one.
    """
    from shapleymix.fitting.fits import fit
    from shapleymix_cli import inputs
    from shapleymix_cli.artefacts import save

    if law != "auto":
        inputs.known_law(law)
    if output and not output.lower().endswith(".json"):
        raise UsageError("-o: a fit is written as .json", hint="end the name in .json")
    log = inputs.read_log(out, logs)
    found = fit(
        log,
        law,
        inputs.read_matrix(out, sv, kind),
        inputs.read_table(out, languages),
        seed=seed,
        bootstrap=bootstrap,
        folds=folds,
        threads=threads,
        progress=out.progress,
        **options.estimation_settings(settings),
    )
    out.note(notice for notice in found.notices if notice not in log.notices)
    if output:
        save(out, found, output, force, (*logs, sv, languages))
    out.emit(lambda: fit_document(found), lambda: _view(found, out.verbose))


def _view(found: Fit, verbose: bool) -> Any:
    from shapleymix_cli.views.fit import fit_view

    return fit_view(found, verbose)


def fit_document(found: Fit) -> dict[str, Any]:
    """The law, its parameters with intervals, its scores, and what the data could not tell."""
    from shapleymix_cli.commands.laws import formula_of
    from shapleymix_cli.documents.scores import comparison_document, scores_document

    law = type(found.law)
    return {
        "kind": "fit",
        "law": law.name,
        "formula": formula_of(law),
        "assumption": law.assumption,
        "reference": law.reference,
        "sources": found.sources,
        "targets": found.targets,
        "rows": found.rows,
        "held_out": scores_document(found.held_out),
        "fitted": scores_document(found.fitted_scores),
        "selection": None if found.selection is None else comparison_document(found.selection),
        "parameters": parameters_document(found),
        "status": {one.target: {"state": one.state, "advice": one.advice} for one in found.status},
        "held": found.held,
        "ranges": {
            "N": found.N_range.tolist(),
            "D": found.D_range.tolist(),
            "p": by_name(found.sources, found.p_range),
        },
        "notices": found.notices,
        "provenance": found.provenance,
    }


def parameters_document(found: Fit) -> dict[str, Any]:
    """`{symbol: {target: {value, low, high}}}`, with the source between where a symbol has one."""
    document: dict[str, Any] = {}
    for symbol, source, target, value, low, high in found.parameters():
        place = document.setdefault(symbol, {})
        if source is not None:
            place = place.setdefault(source, {})
        place[target] = {"value": value, "low": finite(low), "high": finite(high)}
    return document


def finite(value: float) -> float | None:
    """The number, or None where there is none."""
    return value if math.isfinite(value) else None
