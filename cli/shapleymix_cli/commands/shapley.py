"""`shapleymix shapley`: from coalition runs to a transfer matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from shapleymix_cli import options
from shapleymix_cli.console import Output
from shapleymix_cli.documents.plain import by_name, by_pair

if TYPE_CHECKING:
    from shapleymix.tables.transfer import TransferMatrix


@options.command(
    "shapleymix shapley fixtures/multilingual5_coalitions.csv",
    "shapleymix shapley fixtures/multilingual5_coalitions.csv -o sv.csv",
    "shapleymix shapley fixtures/multilingual5_coalitions.csv --sampled --samples 14 --seed 1",
)
@options.logs
@click.option("--sampled", is_flag=True, help="Estimate, with standard errors, where coalitions are missing.")
@click.option("--samples", type=options.COUNT, help="With --sampled: use only so many coalitions, drawn at random.")
@options.seed
@click.option("-N", "size", type=options.SIZE, help="Model size of the game, if the log holds several.")
@click.option("-D", "--at-D", "tokens", type=options.SIZE, help="Tokens of the game, if the log holds several.")
@options.output("the matrix, as .csv, .csv.gz, .parquet or .jsonl, with its provenance")
def command(
    out: Output,
    logs: tuple[str, ...],
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
    from shapleymix.tables.run_reading import read_runs
    from shapleymix_cli.artefacts import write_matrix

    log = read_runs(logs)
    out.note(log.notices)
    matrix = shapley_values(log, sampled=sampled, samples=samples, seed=seed, n=size, d=tokens)
    out.warn(matrix.provenance.get("notices", ()))
    if output:
        write_matrix(out, matrix, output, force, {"log_sha256": log.digest})
    out.emit(lambda: shapley_document(matrix), lambda: _view(matrix, out.verbose))


def _view(matrix: TransferMatrix, verbose: bool) -> Any:
    from shapleymix_cli.views.shapley import shapley_view

    return shapley_view(matrix, verbose)


def shapley_document(matrix: TransferMatrix) -> dict[str, Any]:
    """`sv`, `nsv` (and `stderr`) nested by source, then target; the largest residual and each target's."""
    known = matrix.provenance
    residual = known["efficiency_residual"]
    return {
        "kind": "shapley",
        "method": known["method"],
        "N": known["N"],
        "D": known["D"],
        "coalitions": known["coalitions"],
        "coalitions_of": known["coalitions_of"],
        "sources": matrix.sources,
        "targets": matrix.targets,
        "sv": by_pair(matrix.sources, matrix.targets, matrix.sv),
        "nsv": by_pair(matrix.sources, matrix.targets, matrix.nsv),
        "stderr": by_pair(matrix.sources, matrix.targets, matrix.stderr),
        "efficiency_residual": known["efficiency_residual_max"],
        "efficiency_residuals": by_name(matrix.targets, [residual[name] for name in matrix.targets]),
        "notices": known.get("notices", []),
    }
