"""`shapleymix evaluate`: a fit against runs that it has not seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shapleymix_cli import options, reading
from shapleymix_cli.console import Output

if TYPE_CHECKING:
    from shapleymix.fitting.evaluation import Evaluation
    from shapleymix_cli.views.tables import Part


@options.command(
    "shapleymix example",
    "shapleymix fit example/runs.csv --law learned-base --bootstrap 50 -o fit.json",
    "shapleymix evaluate fit.json example/coalitions.csv",
)
@options.fit_file
@options.law_file
@reading.logs
@options.strict
@options.level
def command(out: Output, fit_path: str, law_file: str | None, logs: reading.Logs, strict: bool, level: float) -> None:
    """Score a fit on a log: PE, R2, rank correlation, and how often its intervals hold the loss.

    PE is the mean absolute error over the mean loss. Give runs that were not fitted; the fit's own held-out scores
    are in `shapleymix fit`.
    """
    from shapleymix.fitting.evaluation import evaluate
    from shapleymix_cli.documents.scores import evaluation_document
    from shapleymix_cli.inputs import load_fit, read_log

    fit = load_fit(out, fit_path, law_file)
    log = read_log(out, logs)
    if log.digest and log.digest == fit.provenance.get("log_sha256"):
        out.warn(["this is the log that was fitted: these are no held-out scores"])
    found = evaluate(fit, log, level, strict=strict)
    out.warn(found.warnings)
    out.emit(lambda: evaluation_document(found), lambda: _view(found, out.verbose))


def _view(found: Evaluation, verbose: bool) -> list[Part]:
    from shapleymix_cli.views.numbers import count, percent
    from shapleymix_cli.views.scores import scores_table
    from shapleymix_cli.views.tables import heading

    title = f"On {count(found.rows, 'row')}; coverage of {percent(found.level, 0)} intervals"
    return [heading(title), *scores_table(found.scores, verbose)]
