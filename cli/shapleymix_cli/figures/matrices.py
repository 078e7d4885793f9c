"""`shapleymix plot transfer` and `plot agreement`: transfer matrices, alone and against each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, TypeVar

import click

from shapleymix_cli import options
from shapleymix_cli.console import Output
from shapleymix_cli.figures.drawing import names_of, output, require_place, show
from shapleymix_cli.project import always

if TYPE_CHECKING:
    from shapleymix.tables.transfer import TransferMatrix
    from shapleymix_cli.inputs import Kind

Decorated = TypeVar("Decorated", bound=Callable[..., object])
Values = Literal["raw", "normalized"]


def _shared(function: Decorated) -> Decorated:
    """The options of both."""
    for option in reversed(_SHARED):
        function = option(function)
    return function


_SHARED = (
    click.option("--calibrate", is_flag=True, help="Scale columns to measured loss drops where a table has them."),
    click.option(
        "--values",
        type=click.Choice(["raw", "normalized"]),
        help="Nats of loss drop, or exp(SV - column maximum).  [default: raw where all have it]",
    ),
    click.option("--names", metavar="A,B", help="Titles.  [default: methods, or files]"),
    options.kind,
    output,
)


@options.command(
    "shapleymix example",
    "shapleymix shapley example/coalitions.csv -o sv.csv",
    "shapleymix plot transfer sv.csv -o transfer.png",
    "shapleymix plot transfer sv.csv example/irds_raw.csv --calibrate --names exact,in-run -o both.svg",
    project={"transfer": always},
)
@click.argument("transfer", metavar="A")
@click.argument("other", metavar="[B]", required=False)
@_shared
def transfer(
    out: Output,
    transfer: str,
    other: str | None,
    calibrate: bool,
    values: Values | None,
    names: str | None,
    kind: Kind,
    output: str | None,
    force: bool,
) -> None:
    """A heat map of the transfer matrix A, with standard errors; of A and B side by side, in one scale.

    Colours reach as far as values off the diagonal do: what a language does for itself is larger by far.
    """
    from shapleymix.plotting.heatmaps import plot_transfer

    require_place(out, output)
    read = [_matrix(out, path, kind, calibrate) for path in (transfer, other) if path is not None]
    show(out, plot_transfer(*read, values=values, names=names_of(names)), output, force)


@options.command(
    "shapleymix example",
    "shapleymix shapley example/coalitions.csv -o exact.csv",
    "shapleymix plot agreement exact.csv example/irds_raw.csv --calibrate --names exact,in-run -o agree.pdf",
)
@click.argument("matrix", metavar="A")
@click.argument("other", metavar="B")
@_shared
def agreement(
    out: Output,
    matrix: str,
    other: str,
    calibrate: bool,
    values: Values | None,
    names: str | None,
    kind: Kind,
    output: str | None,
    force: bool,
) -> None:
    """The transfer matrix B against A, a point for each source and target: exact against in-run, small against large.

    What a language does for itself is told apart, as it makes any two matrices look alike.
    """
    from shapleymix.plotting.agreement import plot_agreement

    require_place(out, output)
    first, second = (_matrix(out, path, kind, calibrate) for path in (matrix, other))
    show(out, plot_agreement(first, second, values=values, names=names_of(names)), output, force)


def _matrix(out: Output, path: str, kind: Kind, calibrate: bool) -> TransferMatrix:
    """A matrix, calibrated where that is asked for and its table knows the drops."""
    from shapleymix_cli.inputs import matrix_of

    found = matrix_of(out, path, kind)
    return found.calibrated() if calibrate and "loss_drop" in found.provenance else found
