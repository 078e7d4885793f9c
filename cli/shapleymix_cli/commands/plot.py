"""`shapleymix plot`: figures of results, as PNG, SVG or PDF."""

from __future__ import annotations

from shapleymix_cli.figures.curves import learning_curve
from shapleymix_cli.figures.fits import fit
from shapleymix_cli.figures.matrices import agreement, transfer
from shapleymix_cli.figures.saved import compare, design, downstream, frontier, mixture
from shapleymix_cli.groups import grouped


@grouped("figure")
def command() -> None:
    """Draw results as PNG, SVG or PDF; the caption is printed, with --json the numbers that are drawn.

    Needs matplotlib: pip install 'matplotlib>=3.10.7'.
    """


for name, figure in {
    "transfer": transfer,
    "agreement": agreement,
    "fit": fit,
    "compare": compare,
    "learning-curve": learning_curve,
    "mixture": mixture,
    "downstream": downstream,
    "frontier": frontier,
    "design": design,
}.items():
    command.add_command(figure, name)
