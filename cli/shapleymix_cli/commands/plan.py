"""`shapleymix plan`: what to train next, as mixtures or as runs that `shapleymix launch` trains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

import click

from shapleymix.errors import UsageError
from shapleymix_cli import options, reading
from shapleymix_cli.bounding import bounds
from shapleymix_cli.console import Output
from shapleymix_cli.groups import grouped
from shapleymix_cli.listing import LISTED, Kinds, kinds, list_mixtures, plan_design, refuse_design
from shapleymix_cli.planning import Named, OneSize, game, grid, number_of
from shapleymix_cli.project import always, unless

if TYPE_CHECKING:
    from shapleymix.planning.design import PlanKeywords
    from shapleymix.planning.designs import Design
    from shapleymix_cli.views.tables import Part


@grouped("plan")
def command() -> None:
    """Plan what to train, before it is trained."""


@options.command(
    "shapleymix example",
    "shapleymix plan mixtures --n 12 --sources en,de,fr,zh,ja --run-N 97600 --run-D 2M -o plan.csv",
    "shapleymix plan mixtures example/runs.csv --n 6 --law learned-base --cap en=0.4 --batches 2",
    "shapleymix fit example/runs.csv --law learned-base --min-own-tokens 20k --bootstrap 50 -o fit.json",
    "shapleymix plan mixtures example/runs.csv --fit fit.json --n 4 --purpose region --json",
    project={
        "log": unless("sources", *LISTED),
        "languages": always,
        "weights": unless(*LISTED),
        "caps": lambda given: "random" in given or unless(*LISTED)(given),
    },
)
@reading.some_logs
@click.option("--n", "n", type=options.Count(1), help="Design so many mixtures: those to train next.")
@kinds
@click.option("--sources", metavar="en,de,...", help="The sources, where no log and no --languages says them.")
@click.option("--targets", metavar="en,de,...", help="The targets.  [default: those of the log, or the sources]")
@click.option("--fit", "fit_path", metavar="FIT", help="The fit of the logs; made here where it is not given.")
@options.law_file
@click.option("--law", default="auto", show_default=True, metavar="LAW", help="The law that is fitted to the logs.")
@click.option(
    "--min-own-tokens",
    type=options.SIZE_OR_ZERO,
    default=None,
    help="Leave losses of languages with fewer tokens of their own out of that fit.  [default: as fit does; 0 for one "
    "law in any case]",
)
@click.option("-N", "N", type=options.SIZE, help="Model size for which the optimum is wanted.")
@click.option("-D", "D", type=options.SIZE, help="Token count for which it is wanted, and at which bounds hold.")
@click.option(
    "--run-N",
    "run_N",
    type=OneSize(),
    metavar="SIZE|tiny=SIZE",
    help="Model size of the planned runs, named for {model} of --command.  [default: as so far]",
)
@click.option("--run-D", "run_D", type=options.SIZE, help="Token count of the planned runs.  [default: as so far]")
@click.option(
    "--purpose",
    type=click.Choice(["optimum", "region"]),
    default="optimum",
    show_default=True,
    help="Know better what may be the best mixture, or the losses of all mixtures.",
)
@click.option("--candidates", metavar="TABLE", help="Mixtures to choose from, as a run log without losses.")
@click.option("--region", metavar="TABLE", help="Mixtures over which errors are averaged.")
@click.option("--batches", type=options.Count(1), default=1, show_default=True, help="Number the runs in batches.")
@options.languages
@click.option("--weights", metavar="WEIGHTS", help="unweighted, normalized, a languages table, or en=1,de=2.")
@bounds
@options.seed
@options.output("the planned runs as a run log without losses (.csv, .csv.gz, .parquet, .jsonl), or the plan (.json)")
def mixtures(
    out: Output,
    listed: Kinds,
    logs: reading.Logs,
    n: int | None,
    sources: str | None,
    targets: str | None,
    fit_path: str | None,
    law_file: str | None,
    law: str,
    min_own_tokens: float | None,
    N: float | None,
    D: float | None,
    run_N: Named | None,
    run_D: float | None,
    purpose: str,
    candidates: str | None,
    region: str | None,
    batches: int,
    output: str | None,
    force: bool,
    **asked: Unpack[PlanKeywords],
) -> None:
    """The mixtures of the next runs: those that tell most, given the runs so far, which may be none.

    Each shrinks the predicted variance of what is asked most, after the runs so far and those before it. Rows of LOG
    without any loss are runs that are planned already. Train a batch, add its rows to the log, and plan again.

    With --controlled, --empirical or --random the mixtures are listed, not designed. With --command, -o writes planned
    runs for `shapleymix launch` in place of a table.
    """
    from shapleymix.planning.design import design
    from shapleymix_cli import inputs
    from shapleymix_cli.documents.writing import save_or_tabulate, with_provenance
    from shapleymix_cli.own_laws import chosen_law

    options.require_ending(output)
    if not logs.paths:
        reading.refuse_idle(logs.how, "a LOG")
    table = asked.get("languages")
    known = inputs.read_table(out, None if table is None else str(table))
    if listed.asked:
        refuse_design(listed, n, logs.paths)
        list_mixtures(out, listed, asked, known, sources, run_N, run_D, output, force)
        return
    if n is None:
        raise UsageError("nothing says what to plan", hint="give --n, --controlled, --empirical or --random")
    chosen = chosen_law(law)
    found = design(
        n,
        inputs.read_log(out, logs, losses="optional") if logs.paths else None,
        sources=_names(sources),
        targets=_names(targets),
        fit=None if fit_path is None else inputs.load_fit(out, fit_path, law_file),
        law=chosen if isinstance(chosen, str) else chosen.law,
        min_own_tokens=min_own_tokens,
        N=N,
        D=D,
        run_N=number_of(run_N),
        run_D=run_D,
        purpose=purpose,
        candidates=None
        if candidates is None
        else inputs.read_log(out, reading.Logs((candidates,), {}), losses="optional"),
        region=None if region is None else inputs.read_log(out, reading.Logs((region,), {}), losses="optional"),
        batches=batches,
        progress=out.progress,
        **{**asked, "languages": known},
    )
    found = with_provenance(out, found)
    out.warn(found.notices)
    if listed.template is not None:
        plan_design(out, found, run_N, listed, output, force)
        return
    if output:
        save_or_tabulate(out, found, output, force)
    out.emit(found.to_document, lambda: _view(found, out.verbose))


command.add_command(mixtures, "mixtures")
command.add_command(game, "game")
command.add_command(grid, "grid")


def _names(given: str | None) -> list[str] | None:
    """Names with commas between."""
    return None if given is None else [name.strip() for name in given.split(",")]


def _view(found: Design, verbose: bool) -> list[Part]:
    from shapleymix_cli.views.plan import design_view

    return design_view(found, verbose)
