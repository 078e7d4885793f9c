"""`shapleymix export`: a mixture in the form that a trainer takes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from shapleymix.errors import Location, UsageError
from shapleymix_cli import options
from shapleymix_cli.chosen import Choice, chosen
from shapleymix_cli.console import Output
from shapleymix_cli.project import always

if TYPE_CHECKING:
    from shapleymix.exporting.export import Export, ExportKeywords
    from shapleymix_cli.views.tables import Part

FITTED = "shapleymix fit example/runs.csv --law learned-base --min-own-tokens 20k --bootstrap 20 --folds 0"
FORMATS = (
    "megatron", "hf", "mosaic", "olmo-core", "litdata", "torchtitan", "nanotron", "levanter", "llama-factory", "json",
)  # fmt: skip
"""Names of `shapleymix.exporting.export.FORMATS`, which help does not import."""


@options.command(
    "shapleymix example",
    f"{FITTED} -o fitted.json",
    "shapleymix optimize fitted.json -N 97600 -D 8M --languages example/languages.csv -o best.json",
    "shapleymix export best.json --format megatron --paths example/paths.csv -o blend.txt",
    "shapleymix export best.json --format hf --mean-tokens en=310,de=280,fr=290,zh=420,ja=380 -o mixing.py",
    "shapleymix export best.json --format mosaic --paths example/paths.csv --mean-tokens 2048 -o streams.yaml",
    "shapleymix export unimax:4 --format olmo-core --paths example/paths.csv -D 8M",
    project={"languages": always},
)
@click.argument("mixture", metavar="MIX")
@click.option("--format", "form", metavar="TRAINER", help=f"{', '.join(FORMATS[:-1])} or {FORMATS[-1]}.")
@click.option(
    "--paths",
    metavar="TABLE",
    help="Where the languages lie: language,path[,available_tokens][,mean_tokens][,dataset][,split].",
)
@click.option(
    "--mean-tokens", metavar="en=800,...", help="Mean tokens a document (or packed sample), by language or one for all."
)
@options.languages
@options.available
@click.option("-N", "size", type=options.SIZE, help="Of a grid, the mixture at this N.")
@click.option("-D", "tokens", type=options.SIZE, help="Tokens of the run; of a grid, the mixture at this D.")
@click.option("--ignore-bounds", is_flag=True, help="Warn where the run breaks the mixture's bounds, not refuse it.")
@click.option("--point", type=options.Count(1), help="Of a frontier, the point of this number.")
@click.option("--run", metavar="NAME", help="Of a plan or a run log, the mixture of this run.")
@click.option("--seed", type=options.COUNT, default=0, show_default=True, help="Seed of the trainer's draws.")
@options.output("the trainer's file, and FILE.json beside it: shares, tokens and epochs")
def command(
    out: Output,
    mixture: str,
    form: str | None,
    paths: str | None,
    mean_tokens: str | None,
    languages: str | None,
    available: str | None,
    size: float | None,
    tokens: float | None,
    ignore_bounds: bool,
    point: int | None,
    run: str | None,
    seed: int,
    output: str | None,
    force: bool,
) -> None:
    """Write a mixture as a trainer's config.

    MIX is what `optimize -o MIX.json` wrote (of a grid one by -N and -D, of a frontier one by --point), a plan or a run
    log (one by --run), what this command wrote, `-`, ratios such as en=0.5,de=50%, or a baseline (natural, unimax:4) of
    the languages in the tables. Its ratios are of tokens: a trainer that draws documents gets the weights that make it
    so, by their mean tokens. Languages of ratio 0 are left out, the weights sum to one exactly, and without -o the file
    goes to standard output.

    megatron, olmo-core, torchtitan, nanotron and levanter draw tokens, or sequences of equal length; hf and
    llama-factory documents; mosaic and litdata samples, of equal length unless --mean-tokens says otherwise.

    A run on other tokens than the mixture was optimised for (-D, --paths) must keep its bounds: --max-epochs and
    --min-tokens of `optimize`. What breaks one by more than 1 % is refused by name.

    A language may have several paths: the ratio is divided in proportion to their tokens. Rows of split valid and test
    go to megatron and levanter, by the same ratios. `dataset` is the name by which torchtitan and llama-factory know a
    path. A languages table with a column `path` is such a table, too.
    """
    from shapleymix.exporting.export import exported
    from shapleymix_cli.documents.writing import with_provenance

    if form is None:
        raise UsageError("nothing says which trainer", hint=f"give --format, one of {', '.join(FORMATS)}")
    _require_free(output, form, force)
    found = chosen(out, mixture, Choice(size, tokens, point, run))
    D = tokens if found.D is None else found.D
    asked: ExportKeywords = {"mean_tokens": mean_tokens, "available": available, "D": D, "seed": seed}
    asked["ignore_bounds"] = ignore_bounds
    asked |= _tables(out, paths, languages)
    made = with_provenance(out, exported(found.mixture, form, **asked))
    out.as_json = out.as_json or not (made.text or output)
    out.note(made.notes)
    out.warn(made.notices)
    if output:
        made.write(output, force=force)
        out.note([f"wrote {output}" if form == "json" else f"wrote {output}, and {output}.json"])
    out.emit(made.to_document, lambda: _view(made, output is not None))


def _tables(out: Output, paths: str | None, languages: str | None) -> ExportKeywords:
    """The tables, read once, with what reading them brought up."""
    from shapleymix.exporting.corpora import read_corpora
    from shapleymix_cli.inputs import read_table

    if paths is None:
        return {"languages": read_table(out, languages)}
    corpora = read_corpora(paths)
    out.used(paths, corpora.digest)
    return {"paths": corpora, "languages": read_table(out, languages)}


def _require_free(output: str | None, form: str, force: bool) -> None:
    """Refuse a name of `-o` whose account would take the place of a file."""
    account = f"{output}.json"
    if output is not None and form != "json" and os.path.lexists(account) and not force:
        hint = "choose another name, or overwrite it with --force"
        raise UsageError("exists already", location=Location(file=account), hint=hint)


def _view(found: Export, written: bool) -> list[Part]:
    """The view of this command; the module is imported only where something is shown."""
    from shapleymix_cli.views.export import export_view, file_view

    return export_view(found) if written else file_view(found)
