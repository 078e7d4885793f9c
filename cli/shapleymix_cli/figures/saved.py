"""Figures of what a command saved: a comparison, a mixture, tasks, a frontier, a design, each by its own `plot`."""

from __future__ import annotations

import click

from shapleymix.errors import ShapleyMixError, StoreError
from shapleymix.files import parse_json, read_once
from shapleymix_cli import options
from shapleymix_cli.console import Output
from shapleymix_cli.figures.drawing import output, require_place, show
from shapleymix_cli.forms import Command

FITTED = "shapleymix fit example/runs.csv --law learned-base --min-own-tokens 20k --bootstrap 20 --folds 0"


HOMES = {
    "mixture-grid": "it holds several budgets: optimize at one -N and -D, and draw that mixture",
    "fit": "draw it by `shapleymix plot fit`",
    **{kind: f"draw it by `shapleymix plot {kind}`" for kind in ("mixture", "frontier", "design", "downstream")},
    "comparison": "draw it by `shapleymix plot compare`",
}
"""How results of another kind are drawn."""


def _home(path: str, wanted: str) -> str | None:
    """How that which a file holds is drawn, where it is of another kind than the one that is wanted."""
    try:
        document = parse_json(read_once(path)[0], path)
    except (OSError, ShapleyMixError):
        return None
    kind = document.get("kind") if isinstance(document, dict) else None
    return HOMES.get(str(kind)) if kind != wanted else None


def _of_saved(kind: str, metavar: str, text: str, *examples: str) -> Command:
    """The command that draws a document of a kind, which is the name of its class in the library."""

    def draw(out: Output, path: str, output: str | None, force: bool) -> None:
        import shapleymix
        from shapleymix_cli.inputs import load_record

        require_place(out, output)
        wanted = getattr(shapleymix, kind)
        try:
            found = load_record(out, wanted, path)
        except StoreError as error:
            hint = _home(path, wanted.kind) or error.hint
            raise StoreError(error.message, location=error.location, hint=hint) from error
        show(out, found.plot(), output, force)

    draw.__doc__ = text
    return options.command(*examples)(click.argument("path", metavar=metavar)(output(draw)))


compare = _of_saved(
    "Comparison",
    "COMPARISON",
    "Laws on the same held-out runs, from what `compare -o` wrote: the best on top, with standard errors.",
    "shapleymix example",
    "shapleymix compare example/runs.csv --laws exponential,learned-base,chinchilla --folds 3 -o laws.json",
    "shapleymix plot compare laws.json -o laws.png",
)
mixture = _of_saved(
    "Mixture",
    "MIX",
    "A mixture that `optimize -o` wrote: ratios with intervals, caps and floors, its rivals, the gain over each.",
    "shapleymix example",
    f"{FITTED} -o mixing.json",
    "shapleymix optimize mixing.json -N 97600 -D 8M --languages example/languages.csv --cap ja=0.2 -o mixture.json",
    "shapleymix plot mixture mixture.json -o mixture.png",
)
frontier = _of_saved(
    "Frontier",
    "FRONTIER",
    "A trade-off curve that `optimize --frontier -o FRONTIER.json` wrote, with the mixtures on it.",
    "shapleymix example",
    f"{FITTED} -o curving.json",
    "shapleymix optimize curving.json -N 97600 -D 2M --frontier zh+ja:rest --points 5 -o frontier.json",
    "shapleymix plot frontier frontier.json -o frontier.png",
)
design = _of_saved(
    "Design",
    "PLAN",
    "Mixtures that `plan mixtures -o PLAN.json` designed, and the expected error after each.",
    "shapleymix plan mixtures --n 8 --sources en,de,fr,zh,ja --run-N 97600 --run-D 2M --batches 2 -o plan.json",
    "shapleymix plot design plan.json -o plan.png",
)
downstream = _of_saved(
    "Downstream",
    "DOWNSTREAM",
    "Calibrated tasks that `downstream -o` wrote: scores of runs against losses, the line of each with its band.",
    "shapleymix example",
    "shapleymix downstream example/runs.csv --scores example/scores.csv --chance 0.25 -o downstream.json",
    "shapleymix plot downstream downstream.json -o downstream.png",
)
