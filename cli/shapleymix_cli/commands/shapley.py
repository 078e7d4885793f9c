"""`shapleymix shapley`: from coalition runs to a transfer matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from shapleymix_cli import options, reading
from shapleymix_cli.console import Output

if TYPE_CHECKING:
    from shapleymix.tables.transfer import TransferMatrix
    from shapleymix_cli.views.tables import Part


@options.command(
    "shapleymix example",
    "shapleymix shapley example/coalitions.csv",
    "shapleymix shapley example/coalitions.csv -o sv.csv",
    "shapleymix shapley example/coalitions.csv --sampled --samples 14 --seed 1",
)
@reading.logs
@click.option("--sampled", is_flag=True, help="Estimate, with standard errors, where coalitions are missing.")
@click.option("--samples", type=options.COUNT, help="With --sampled: use only so many coalitions, drawn at random.")
@options.seed
@click.option("-N", "size", type=options.SIZE, help="Model size of the game, if the log holds several.")
@click.option("-D", "--at-D", "tokens", type=options.SIZE, help="Tokens of the game, if the log holds several.")
@options.output("the matrix, as .csv, .csv.gz, .parquet or .jsonl, with its provenance")
def command(
    out: Output,
    logs: reading.Logs,
    sampled: bool,
    samples: int | None,
    seed: int,
    size: float | None,
    tokens: float | None,
    output: str | None,
    force: bool,
) -> None:
    """Shapley values of the languages for each target's loss.

    A coalition is a run on the uniform mixture of some languages; the untrained model (D = 0) is the empty one. With
    all of them at one N and D the values are exact and add up to the whole loss drop (efficiency).
    """
    from shapleymix.game.values import shapley_values
    from shapleymix_cli.documents.transfer import shapley_document
    from shapleymix_cli.documents.writing import write_matrix
    from shapleymix_cli.inputs import read_log

    log = read_log(out, logs)
    matrix = shapley_values(log, sampled=sampled, samples=samples, seed=seed, N=size, D=tokens)
    out.warn(matrix.provenance.get("notices", ()))
    if output:
        write_matrix(out, matrix, output, force)
    out.emit(lambda: shapley_document(matrix), lambda: _view(matrix, out.verbose))


def _view(matrix: TransferMatrix, verbose: bool) -> list[Part]:
    from shapleymix_cli.views.shapley import shapley_view

    return shapley_view(matrix, verbose)
