"""The options that bound a mixture, as `optimize` and `plan` take them."""

from __future__ import annotations

import click

from shapleymix_cli.options import Decorated


def bounds(function: Decorated) -> Decorated:
    """All of them, in the order in which help shows them."""
    for option in reversed(_BOUNDS):
        function = option(function)
    return function


_BOUNDS = (
    click.option("--available", metavar="en=5T,...", help="Unique tokens that are available; overrides --languages."),
    click.option(
        "--max-epochs",
        metavar="E|en=4,...",
        help="How often a token may be seen.  [default: as it pays; 4 for a law that does not price repetition]",
    ),
    click.option("--cap", "caps", metavar="en=50%,...", multiple=True, help="Highest ratios; repeatable."),
    click.option("--floor", "floors", metavar="en=0.1,...", multiple=True, help="Lowest ratios; repeatable."),
    click.option("--fix", metavar="en=0.3,...", multiple=True, help="Exact ratios; repeatable."),
    click.option("--min-tokens", metavar="SIZE|en=1B,...", help="Fewest tokens of each source, or of some."),
    click.option(
        "--group",
        "groups",
        metavar="en+de<=0.6",
        multiple=True,
        help="Bound a summed ratio; 'Germanic>=60%' names a family of --languages; repeatable.",
    ),
    click.option("--near", metavar="MIX", help="Stay within --within of this mixture."),
    click.option("--within", metavar="X", help="Largest distance from --near: L1 (0 to 2), or nats for kl."),
    click.option(
        "--distance", type=click.Choice(["l1", "kl"]), default="l1", show_default=True, help="How --within is measured."
    ),
)
