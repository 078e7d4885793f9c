"""`shapleymix compare`: several laws on the same held-out runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

import click

from shapleymix.errors import UsageError
from shapleymix.fitting.settings import Settings
from shapleymix_cli import options, reading
from shapleymix_cli.console import Output
from shapleymix_cli.project import always

if TYPE_CHECKING:
    from shapleymix.fitting.comparisons import Comparison
    from shapleymix_cli.inputs import Kind
    from shapleymix_cli.views.tables import Part


@options.command(
    "shapleymix example",
    "shapleymix shapley example/coalitions.csv -o sv.csv",
    "shapleymix compare example/runs.csv --laws shapley,shapley-tempered,learned-base --transfer sv.csv",
    "shapleymix compare example/runs.csv --laws exponential,family --leave-largest-N --languages example/languages.csv",
    project={"log": always, "transfer": always, "languages": always},
)
@reading.logs
@click.option(
    "--laws", metavar="LAW,...", help="Laws by name, or my_law.py:MyLaw; by default all that the inputs allow."
)
@options.transfer
@options.kind
@options.languages
@click.option(
    "--folds", type=options.Count(2), help=f"Cross-validation grouped by mixture.  [default: {Settings.folds}]"
)
@click.option("--leave-largest-N", "leave_largest_N", is_flag=True, help="Hold out the largest size.")
@click.option("--split", is_flag=True, help="Hold out the runs that the log's split column marks.")
@options.seed
@options.estimation
@options.threads
@options.output("the comparison (.json), which `shapleymix plot compare` draws")
def command(
    out: Output,
    logs: reading.Logs,
    laws: str | None,
    transfer: str | None,
    kind: Kind,
    languages: str | None,
    folds: int | None,
    leave_largest_N: bool,
    split: bool,
    seed: int,
    threads: int,
    output: str | None,
    force: bool,
    **settings: Unpack[options.EstimationOptions],
) -> None:
    """Score laws on runs that they were not fitted to, the same for all.

    A law of your own, a subclass of Law or anything with predict(p, N, D), takes part as my_law.py:Name. Where a law
    is undefined on a row, all are scored on the rows common to them, and the table says on what share each is defined.
    """
    from shapleymix.fitting.comparison import compare
    from shapleymix_cli import inputs
    from shapleymix_cli.documents.scores import comparison_document
    from shapleymix_cli.documents.writing import save
    from shapleymix_cli.own_laws import laws_of

    options.require_document(output)
    if (folds is not None) + leave_largest_N + split > 1:
        raise UsageError("--folds, --leave-largest-N and --split exclude each other")
    chosen = laws_of(laws)
    log, matrix, table = (
        inputs.read_log(out, logs),
        inputs.read_matrix(out, transfer, kind),
        inputs.read_table(out, languages),
    )
    found = compare(
        log,
        chosen,
        matrix,
        table,
        folds=folds or Settings.folds,
        leave_largest_N=leave_largest_N,
        split=split,
        seed=seed,
        threads=threads,
        progress=out.progress,
        **options.estimation_settings(settings),
    )
    out.note(found.notices)
    if output:
        save(out, found, output, force)
    out.emit(lambda: {"kind": "comparison"} | comparison_document(found), lambda: _view(found, out.verbose))


def _view(found: Comparison, verbose: bool) -> list[Part]:
    from shapleymix_cli.views.scores import better_view, comparison_view

    return [*comparison_view(found), *better_view(found, verbose)]
