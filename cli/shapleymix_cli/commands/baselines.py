"""`shapleymix baselines`: mixtures that need no law, with the epochs they make of each source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from shapleymix_cli import options
from shapleymix_cli.console import Output
from shapleymix_cli.project import always

if TYPE_CHECKING:
    from shapleymix.tables.baselines import Baseline
    from shapleymix.tables.languages import Languages
    from shapleymix_cli.views.tables import Part


@options.command(
    "shapleymix example",
    "shapleymix baselines example/languages.csv -D 8M",
    "shapleymix baselines example/languages.csv -D 8M --mixture temperature:3.3 --mixture unimax:2 -o baselines.csv",
    project={"languages": always},
)
@click.argument("languages", metavar="LANGUAGES")
@click.option("-D", "tokens", type=options.SIZE, required=True, help="Token count of the run.")
@click.option(
    "--mixture",
    "mixtures",
    metavar="[NAME=]MIX",
    multiple=True,
    help="Show these instead: natural, uniform, temperature:T, unimax:E, en=0.5,de=50%, or a saved one; repeatable.",
)
@options.output("the mixtures (.csv, .csv.gz, .parquet, .jsonl or .json)")
def command(
    out: Output, languages: str, tokens: float, mixtures: tuple[str, ...], output: str | None, force: bool
) -> None:
    """Mixtures by the names that practitioners use, with the epochs that each makes of every language.

    LANGUAGES is a languages table with available tokens. `natural` is in proportion to them, `temperature:T` to their
    power 1/T, and `unimax:E` as even as at most E epochs of each language allow.
    """
    from shapleymix.tables.baselines import USUAL, table, usual
    from shapleymix_cli.documents.baselines import baselines_document, write_baselines
    from shapleymix_cli.inputs import languages_of

    options.require_ending(output)
    known = languages_of(out, languages)
    fitting = usual(known.available_tokens, tokens)
    left_out = [] if mixtures else [name for name in USUAL if name not in fitting]
    out.note(f"{name} is left out: its epochs do not fill D" for name in left_out)
    found = table(mixtures or fitting, known.names, known.available_tokens, tokens)
    if output:
        write_baselines(out, found, known.names, tokens, output, force)
    out.emit(
        lambda: baselines_document(out, found, known.names, tokens),
        lambda: _view(found, known, tokens, out.verbose),
    )


def _view(found: Sequence[Baseline], known: Languages, tokens: float, verbose: bool) -> list[Part]:
    """The view of this command; the module is imported only where something is shown."""
    from shapleymix_cli.views.baselines import view

    return view(found, known, tokens, verbose)
