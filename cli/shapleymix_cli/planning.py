"""From mixtures to planned runs: the options that plans share, `plan game` and `plan grid`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from shapleymix.errors import UsageError
from shapleymix_cli import options
from shapleymix_cli.console import Output
from shapleymix_cli.options import Decorated

if TYPE_CHECKING:
    from shapleymix.sweeping.listed import Listed
    from shapleymix.sweeping.plans import Plan
    from shapleymix_cli.views.tables import Part

EXAMPLE = "shapleymix plan game --sources a,b -N tiny=23712 -D 100k -o game.jsonl --force"
"""A plan that other examples begin with."""


class Sizes(click.ParamType):
    """Sizes with commas between, each with or without the name of its model: `tiny=23712,mini=97600`, `243M`."""

    name = "SIZES"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> object:
        if not isinstance(value, str):
            return value
        parts = [part.rpartition("=") for part in value.split(",")]
        names = [name.strip() for name, equals, _ in parts if equals]
        sizes = options.SIZES.convert(",".join(size for _, _, size in parts), param, ctx)
        if not names:
            return sizes
        if len(set(names)) < len(parts) or not all(names):
            raise UsageError(f"{value!r}: give each size a name of its own, or none", hint="tiny=23712,mini=97600")
        assert isinstance(sizes, tuple)
        return dict(zip(names, sizes, strict=True))


Named = Mapping[str, float] | float
"""A size, with or without the name of its model."""


class OneSize(Sizes):
    """One size with or without the name of its model."""

    name = "SIZE"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> object:
        found = super().convert(value, param, ctx)
        if not isinstance(found, (tuple, dict)):
            return found
        sizes = list(found)
        if len(sizes) > 1:
            raise UsageError(f"{value!r} is more than one size", hint="write a table (-o), and plan a grid of it")
        return found if isinstance(found, dict) else sizes[0]


def number_of(size: Named | None) -> float | None:
    """A size without its name."""
    return next(iter(size.values())) if isinstance(size, Mapping) else size


class Seeds(click.ParamType):
    """Whole numbers with commas between."""

    name = "SEEDS"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> object:
        if not isinstance(value, str):
            return value
        return tuple(options.COUNT.convert(part, param, ctx) for part in value.split(","))


plan_file = click.argument("plan_path", metavar="PLAN")
sweep_folder = click.option(
    "--folder", metavar="FOLDER", help="Where its runs lie.  [default: beside PLAN, `runs-sweep` for runs.jsonl]"
)
dry_run = click.option("--dry-run", is_flag=True, help="Show the commands, and start nothing.")
SEEDS = click.option(
    "--seeds", type=Seeds(), default=(0,), metavar="0,1,...", help="Seeds: every run once with each.  [default: 0]"
)
COMMAND = "--command", "template"
PLACEHOLDERS = "placeholders {mixture} {sources} {p_en} {N} {model} {D} {seed} {name} {out} {id}"


def _grid(function: Decorated) -> Decorated:
    """The options that multiply mixtures into runs."""
    for option in reversed(_GRID):
        function = option(function)
    return function


_GRID = (
    click.option(
        "-N",
        "sizes",
        type=Sizes(),
        required=True,
        metavar="tiny=23712,...",
        help="Model sizes, named for {model}.",
    ),
    click.option("-D", "tokens", type=options.SIZES, required=True, help="Token counts."),
    SEEDS,
    click.option(
        *COMMAND, metavar="CALL", help=f"How a run is started; {PLACEHOLDERS}.  [default: shapleymix-irds train]"
    ),
    options.output("the planned runs (.jsonl)"),
)


@options.command(EXAMPLE, "shapleymix plan game --sources a,b,c -N mini=97600 -D 2M --seeds 0,1 --json")
@click.option("--sources", metavar="en,de,...", required=True, help="The languages that play.")
@click.option(
    "--samples", type=options.Count(1), help="So many coalitions.  [default: all of 10 languages, 12 each of more]"
)
@options.seed
@_grid
def game(
    out: Output,
    sources: str,
    samples: int | None,
    seed: int,
    sizes: Mapping[str, float] | Sequence[float],
    tokens: Sequence[float],
    seeds: Sequence[int],
    template: str | None,
    output: str | None,
    force: bool,
) -> None:
    """The runs that Shapley values need: a uniform mixture of every coalition of languages, or of a sample.

    All have the losses of all languages as targets. The untrained model is a coalition as well: let the command
    measure it (the default has --eval-untrained).
    """
    from shapleymix.sweeping.games import coalitions
    from shapleymix.tables.names import labels_of

    runs = coalitions(labels_of(sources, "--sources"), samples, seed)
    write_plan(out, _planned(runs, sizes, tokens, seeds, template), output, force)


@options.command(
    "shapleymix plan mixtures --sources a,b,c --controlled monolingual,uniform --random 4 -o mixtures.csv",
    "shapleymix plan grid mixtures.csv -N tiny=23712,mini=97600 -D 500k,1M --seeds 0,1 -o grid.jsonl",
)
@click.argument("tables", metavar="MIXTURES...", nargs=-1, required=True)
@_grid
def grid(
    out: Output,
    tables: tuple[str, ...],
    sizes: Mapping[str, float] | Sequence[float],
    tokens: Sequence[float],
    seeds: Sequence[int],
    template: str | None,
    output: str | None,
    force: bool,
) -> None:
    """Every mixture at every size, token count and seed.

    MIXTURES are tables with p_<source>, such as `plan mixtures -o` writes, or run logs, whose mixtures count once.
    """
    from shapleymix.sweeping.controlled import empirical
    from shapleymix_cli.inputs import read_mixture_table

    read = [read_mixture_table(out, one) for one in tables]
    write_plan(out, _planned(empirical(read, read[0].sources), sizes, tokens, seeds, template), output, force)


def _planned(
    listed: Listed,
    sizes: Mapping[str, float] | Sequence[float],
    tokens: Sequence[float],
    seeds: Sequence[int],
    template: str | None,
) -> Plan:
    from shapleymix.sweeping.grids import grid as product_of
    from shapleymix.sweeping.templates import DEFAULT

    return product_of(listed, sizes, tokens, seeds=seeds, command=DEFAULT if template is None else template)


def write_plan(out: Output, plan: Plan, output: str | None, force: bool) -> None:
    """Show a plan of runs, and write it where a file is named."""
    from shapleymix_cli.documents.sweeps import plan_document

    out.note(plan.notices)
    if output:
        plan.write(output, force=force)
        out.note([f"wrote {output}"])

    def view() -> list[Part]:
        from shapleymix_cli.views.sweeps import plan_view

        return plan_view(plan, out.verbose)

    out.emit(lambda: plan_document(plan), view)
