"""`shapleymix transfer`: show a transfer matrix, compare two, calibrate one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from shapleymix.errors import UsageError
from shapleymix_cli import options, reading
from shapleymix_cli.console import Output

if TYPE_CHECKING:
    from shapleymix.tables.importing.reading import ReadingKeywords
    from shapleymix.tables.similarity import Similarity
    from shapleymix.tables.transfer import TransferMatrix
    from shapleymix_cli.inputs import Kind
    from shapleymix_cli.views.tables import Part


@options.command(
    "shapleymix example",
    "shapleymix transfer example/irds_raw.csv",
    "shapleymix shapley example/coalitions.csv -o exact.csv",
    "shapleymix transfer example/irds_raw.csv exact.csv --calibrate",
    "shapleymix transfer example/irds_raw.csv --calibrate -o calibrated.csv",
)
@click.argument("matrix", metavar="A")
@click.argument("reference", metavar="[B]", required=False)
@click.option(
    "--calibrate",
    is_flag=True,
    help="Scale each column to its measured loss drop (column loss_drop), of A, and of B where it has that column.",
)
@click.option(
    "--drops",
    metavar="LOG|en=2.9,...",
    help="Calibrate A with these loss drops: the untrained less the trained model of a run log, or numbers.",
)
@options.kind
@reading.reading
@options.output("A, calibrated if asked for, as .csv, .csv.gz, .parquet or .jsonl")
def command(
    out: Output,
    matrix: str,
    reference: str | None,
    calibrate: bool,
    drops: str | None,
    kind: Kind,
    how: ReadingKeywords,
    output: str | None,
    force: bool,
) -> None:
    """Show the transfer matrix A, or compare A with B (the paper's transferability test).

    Cosine and Pearson are over the normalised values, with and without the diagonal, and for each target. Values from
    one run's gradients come on an arbitrary scale: --calibrate rescales their columns to the measured loss drops.
    """
    from shapleymix_cli.documents.transfer import similarity_document, transfer_document
    from shapleymix_cli.documents.writing import write_matrix
    from shapleymix_cli.inputs import matrix_of

    if drops is None or "=" in drops:
        reading.refuse_idle(how, "a LOG of --drops")
    first = matrix_of(out, matrix, kind)
    if calibrate or drops:
        first = first.calibrated(None if drops is None else _read_drops(out, drops, how))
    if output:
        write_matrix(out, first, output, force)
    if reference is None:
        out.emit(lambda: transfer_document(first), lambda: _matrix_view(first))
        return
    second = matrix_of(out, reference, kind)
    if calibrate and second.provenance.get("loss_drop"):
        second = second.calibrated()
    found = first.compare(second)
    names = (matrix, reference)
    document = {"kind": "similarity", "a": matrix, "b": reference, "calibrated": calibrate or drops is not None}
    out.emit(lambda: document | similarity_document(found), lambda: _similarity_view(found, names))


def _read_drops(out: Output, text: str, how: ReadingKeywords) -> dict[str, float]:
    """Loss drops by target: from `en=2.9,de=2.8`, or from a run log with an untrained model."""
    if "=" not in text:
        return _measured_drops(out, reading.Logs((text,), how))
    try:
        pairs = [part.rpartition("=") for part in text.split(",")]
        return {name.strip(): float(number) for name, _, number in pairs}
    except ValueError as error:
        raise UsageError(f"--drops: {text!r} is no list of loss drops", hint="write it like en=2.9,de=2.8") from error


def _measured_drops(out: Output, log: reading.Logs) -> dict[str, float]:
    """Loss of the untrained less that of the trained model, the one that saw all sources to the end."""
    from shapleymix.game.coalitions import coalition_game
    from shapleymix_cli.inputs import read_log

    game = coalition_game(read_log(out, log))
    everyone = game.members.all(axis=1)
    if not everyone.any():
        raise UsageError(f"--drops: {log.paths[0]} holds no run on the uniform mixture of all sources")
    return dict(zip(game.targets, game.payoffs[everyone][0].tolist(), strict=True))


def _matrix_view(matrix: TransferMatrix) -> list[Part]:
    from shapleymix_cli.views.transfer import matrix_view

    return matrix_view(matrix)


def _similarity_view(found: Similarity, names: tuple[str, str]) -> list[Part]:
    from shapleymix_cli.views.transfer import similarity_view

    return similarity_view(found, names)
