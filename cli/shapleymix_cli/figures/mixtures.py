"""`shapleymix plot mixture`, `plot frontier` and `plot design`: mixtures that were found, and those to train."""

from __future__ import annotations

import click

from shapleymix_cli import options
from shapleymix_cli.console import Output
from shapleymix_cli.figures.drawing import output, require_place, show

FITTED = "shapleymix fit example/runs.csv --law learned-base --min-own-tokens 20k --bootstrap 20 --folds 0"


@options.command(
    "shapleymix example",
    f"{FITTED} -o mixing.json",
    "shapleymix optimize mixing.json -N 97600 -D 8M --languages example/languages.csv --cap ja=0.2 -o mixture.json",
    "shapleymix plot mixture mixture.json -o mixture.png",
)
@click.argument("path", metavar="MIX")
@output
def mixture(out: Output, path: str, output: str | None, force: bool) -> None:
    """A mixture that `optimize -o` wrote: ratios with intervals, caps and floors, its rivals, the gain over each."""
    from shapleymix.mixing.mixtures import Mixture
    from shapleymix.plotting.bars import plot_mixture
    from shapleymix_cli.inputs import load_record

    require_place(out, output)
    show(out, plot_mixture(load_record(out, Mixture, path)), output, force)


@options.command(
    "shapleymix example",
    f"{FITTED} -o curving.json",
    "shapleymix optimize curving.json -N 97600 -D 2M --frontier zh+ja:rest --points 5 -o frontier.json",
    "shapleymix plot frontier frontier.json -o frontier.png",
)
@click.argument("path", metavar="FRONTIER")
@output
def frontier(out: Output, path: str, output: str | None, force: bool) -> None:
    """A trade-off curve that `optimize --frontier -o FRONTIER.json` wrote, with the mixtures on it."""
    from shapleymix.mixing.frontier import Frontier
    from shapleymix.plotting.frontiers import plot_frontier
    from shapleymix_cli.inputs import load_record

    require_place(out, output)
    show(out, plot_frontier(load_record(out, Frontier, path)), output, force)


@options.command(
    "shapleymix plan mixtures --n 8 --sources en,de,fr,zh,ja --run-N 97600 --run-D 2M --batches 2 -o plan.json",
    "shapleymix plot design plan.json -o plan.png",
)
@click.argument("path", metavar="PLAN")
@output
def design(out: Output, path: str, output: str | None, force: bool) -> None:
    """Mixtures that `plan mixtures -o PLAN.json` designed, and the expected error after each."""
    from shapleymix.planning.designs import Design
    from shapleymix.plotting.designs import plot_design
    from shapleymix_cli.inputs import load_record

    require_place(out, output)
    show(out, plot_design(load_record(out, Design, path)), output, force)
