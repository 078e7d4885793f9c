"""`shapleymix optimize`: the best mixture at a budget, with its certificate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar, Unpack

import click

from shapleymix.errors import UsageError
from shapleymix_cli import options
from shapleymix_cli.bounding import bounds
from shapleymix_cli.console import Output
from shapleymix_cli.project import always, unless
from shapleymix_cli.scoring import Tasks, scored

if TYPE_CHECKING:
    from shapleymix.downstream.scoring import ScoredFit
    from shapleymix.fitting.fits import Fit
    from shapleymix.mixing.demands import DemandKeywords
    from shapleymix.mixing.grids import MixtureGrid
    from shapleymix.mixing.mixtures import Mixture
    from shapleymix_cli.views.tables import Part

USUAL = "the usual baseline"
"""What `--cautious` stands for without a mixture."""
METHODS = ("exact", "interior", "closed-form", "first-order", "first-order-printed", "clipped")

Decorated = TypeVar("Decorated", bound=Callable[..., object])
Decorator = Callable[[Decorated], Decorated]

BUDGET = (
    click.option("-N", "sizes", type=options.SIZES, help="Model sizes; several give a grid."),
    click.option("-D", "tokens", type=options.SIZES, help="Token counts; several give a grid."),
    click.option("--flops", type=options.SIZE, help="Find N, D and the mixture together under flops = 6 N D."),
)
WEIGHTS = (
    click.option("--weights", metavar="WEIGHTS", help="unweighted, normalized, a languages table, or en=1,de=2."),
    click.option("--monolingual", metavar="en=2.1,...", help="Measured monolingual losses, for normalized weights."),
    click.option("--objective", type=click.Choice(["mean", "worst"]), default="mean", show_default=True),
    options.tasks("Maximise scores on tasks, as `shapleymix downstream -o` has them."),
)
BOUNDS = (
    options.languages,
    bounds,
    click.option("--anchor", metavar="MIX", help="Stay near this mixture: adds KL(p || anchor) times --kl."),
    click.option("--kl", type=options.Number(0), default=0.0, help="Weight of the --anchor term, in nats of loss."),
    click.option("--allow-unseen", is_flag=True, help="Allow ratios above 0 for sources that no fitted run used."),
)
SOLVING = (
    click.option("--method", type=click.Choice(METHODS), default="exact", show_default=True),
    click.option("--allow-nonconvex", is_flag=True, help="Solve a law without convexity by many starts, uncertified."),
    click.option("--strict", is_flag=True, help="Refuse an optimum outside of what was fitted."),
    click.option(
        "--compare-to",
        metavar="[NAME=]MIX",
        multiple=True,
        help="en=0.5,de=50%, a saved .json, natural, temperature:T or unimax:E; repeatable.",
    ),
    click.option(
        "--smoothing",
        type=options.Number(0, 1),
        default=0.5,
        show_default=True,
        help="Exponent of the available tokens in the smoothed baseline.",
    ),
    click.option(
        "--what-if",
        metavar="en+50B,...",
        multiple=True,
        help="The gain with that many more (or less: en-10B) unique tokens at hand; repeatable.",
    ),
    click.option(
        "--cautious",
        is_flag=False,
        flag_value=USUAL,
        metavar="[MIX]",
        help="The best lower bound of the gain over this mixture, not the lowest predicted loss.  "
        "[natural, or uniform where the tokens are not known]",
    ),
    click.option("--frontier", metavar="en:rest", help="The trade-off curve between the mean losses of two sets."),
    click.option("--stages", metavar="0.8,0.2", help="Refused: the law has no schedule; says what can be asked."),
    click.option("--points", type=options.Count(2), help="How many points it has.  [default: 9]"),
    options.level,
    options.seed,
)


def _all(*groups: Sequence[Decorator]) -> Decorator:
    """One decorator for many options, in their order."""

    def add(function: Decorated) -> Decorated:
        for option in reversed([option for group in groups for option in group]):
            function = option(function)
        return function

    return add


@options.command(
    "shapleymix example",
    "shapleymix fit example/runs.csv --law learned-base --min-own-tokens 20k --bootstrap 50 -o fit.json",
    "shapleymix optimize fit.json -N 97600 -D 2M -o mixture.json",
    "shapleymix optimize fit.json -N 97600 -D 8M --project example/shapleymix.toml",
    "shapleymix optimize fit.json -N 97600 -D 8M --languages example/languages.csv --max-epochs 1",
    "shapleymix optimize fit.json -N 25k,97600 -D 1M,2M --weights normalized --cap zh=0.3 -o grid.csv",
    "shapleymix optimize fit.json -N 97600 -D 8M --languages example/languages.csv --what-if zh+1M",
    "shapleymix optimize fit.json -N 97600 -D 2M --frontier en:rest --points 5",
    "shapleymix downstream example/runs.csv --scores example/scores.csv --chance 0.25 -o downstream.json",
    "shapleymix optimize fit.json -N 97600 -D 1M --downstream downstream.json --task-weights cloze=2,choice=1",
    "shapleymix optimize fit.json -N 97600 -D 2M --group 'en+de<=0.3' --compare-to plan=en=0.5,zh=0.3,ja=0.2 --json",
    project={"languages": always, "weights": unless("downstream"), "caps": always},
)
@options.fit_file
@options.law_file
@options.like
@_all(BUDGET, WEIGHTS, BOUNDS, SOLVING)
@options.output("the mixtures (.json), or all their numbers as a table (.csv, .csv.gz, .parquet, .jsonl)")
def command(
    out: Output,
    fit_path: str,
    law_file: str | None,
    like: tuple[str, ...],
    sizes: tuple[float, ...] | None,
    tokens: tuple[float, ...] | None,
    flops: float | None,
    output: str | None,
    force: bool,
    frontier: str | None,
    points: int | None,
    stages: str | None,
    downstream: str | None,
    task_weights: str | None,
    **asked: Unpack[DemandKeywords],
) -> None:
    """Find the mixture that minimises the weighted loss, and prove it.

    Any mixture within the bounds is worse than this one, or better by less than the certificate's gap. Intervals come
    from solving again under each bootstrap replicate of the fit. Languages at their cap have a shadow price: the loss
    that one more billion tokens of them would save.
    """
    from shapleymix.mixing.assembly import NO_SUPPLY, TOLD_IN_THE_RESULT
    from shapleymix_cli.documents.mixtures import grid_made, mixtures_document, write_mixtures
    from shapleymix_cli.inputs import load_fit

    options.require_ending(output)
    _refuse_stages(stages)
    fit, asked = _scored(out, load_fit(out, fit_path, law_file, like), (downstream, task_weights), asked)
    demands = _demands(out, asked)
    _require_budget(flops, sizes, tokens)
    if frontier is not None or points is not None:
        _trade_off(out, fit, (flops, sizes, tokens), (frontier, points), demands, output, force)
        return
    found = grid_made(out, _solve(fit, flops, sizes, tokens, demands), type(fit.law).name)
    out.note(notice for notice in found.notices if notice == NO_SUPPLY)
    out.warn(notice for notice in found.notices if notice not in TOLD_IN_THE_RESULT)
    if output:
        write_mixtures(out, found, output, force)
    out.emit(lambda: mixtures_document(found), lambda: _view(found, out.verbose))


def _scored(out: Output, fit: Fit, tasks: Tasks, asked: DemandKeywords) -> tuple[Fit | ScoredFit, DemandKeywords]:
    """The fit, or what it says of scores, with the weights that count."""
    if tasks[0] is not None and asked.get("monolingual") is not None:
        raise UsageError("--monolingual weighs losses, and --downstream asks for scores", hint="give --task-weights")
    found, weights = scored(out, fit, tasks, asked.get("weights"), asked.get("objective", "mean"))
    return found, {**asked, "weights": weights}


def _demands(out: Output, asked: DemandKeywords) -> DemandKeywords:
    """The options as the core takes them: under the same names."""
    from shapleymix_cli.inputs import read_table

    path = asked.get("languages")
    if asked.get("cautious") == USUAL:
        asked = {**asked, "cautious": True}
    table = read_table(out, None if path is None else str(path))
    if asked.get("weights") is None and table is not None and table.weight is not None:
        out.note([f"the targets are weighted as {table.origin} says; --weights unweighted ignores that"])
    return {**asked, "languages": table}


def _require_budget(flops: float | None, sizes: tuple[float, ...] | None, tokens: tuple[float, ...] | None) -> None:
    """Refuse budgets that contradict each other."""
    if flops and (sizes or tokens):
        raise UsageError("--flops finds N and D itself", hint="leave out -N and -D, or --flops")


def _refuse_stages(stages: str | None) -> None:
    """A law of totals cannot say when a language should be seen."""
    if stages is not None:
        message = "--stages: the law knows how much of each source a run sees in all, not in which part of it"
        hint = (
            "optimize the whole run: its tokens may be spread over stages at will, as long as each source's sum stays; "
            "its cap is on the sum, and --what-if and the shadow prices tell what the total of a scarce one matters"
        )
        raise UsageError(message, hint=hint)


def _trade_off(
    out: Output,
    fit: Fit | ScoredFit,
    budgets: tuple[float | None, tuple[float, ...] | None, tuple[float, ...] | None],
    asked: tuple[str | None, int | None],
    demands: DemandKeywords,
    output: str | None,
    force: bool,
) -> None:
    """The curve instead of one mixture, at one budget."""
    from shapleymix.mixing.frontier import POINTS, frontier
    from shapleymix_cli.budgets import budget
    from shapleymix_cli.documents.writing import save_or_tabulate, with_provenance
    from shapleymix_cli.views.frontier import frontier_view

    (flops, sizes, tokens), (between, points) = budgets, asked
    if between is None:
        raise UsageError("--points does nothing without --frontier", hint="give --frontier, or leave out --points")
    if flops:
        raise UsageError("--frontier takes one budget, and --flops looks for one", hint="give -N and -D")
    N, D = (budget("-N", sizes, fit.N_range.tolist()), budget("-D", tokens, fit.D_range.tolist()))
    if len(N) * len(D) > 1:
        raise UsageError("--frontier takes one budget", hint="give one -N and one -D")
    found = frontier(fit, N[0], D[0], between, points=POINTS if points is None else points, **demands)
    found = with_provenance(out, found)
    out.warn(found.notices)
    if output:
        save_or_tabulate(out, found, output, force)
    law = type(fit.law).name
    out.emit(found.to_document, lambda: frontier_view(found, law, out.verbose))


def _solve(
    fit: Fit | ScoredFit,
    flops: float | None,
    sizes: tuple[float, ...] | None,
    tokens: tuple[float, ...] | None,
    demands: DemandKeywords,
) -> Sequence[Mixture]:
    """One mixture for each pair of N and D."""
    from shapleymix.mixing.compute import optimize_compute
    from shapleymix.mixing.optimization import optimize_scales
    from shapleymix_cli.budgets import budget

    if flops:
        return [optimize_compute(fit, flops, **demands)]
    N, D = (budget("-N", sizes, fit.N_range.tolist()), budget("-D", tokens, fit.D_range.tolist()))
    return optimize_scales(fit, N, D, **demands)


def _view(found: MixtureGrid, verbose: bool) -> list[Part]:
    from shapleymix_cli.views.optimize import mixture_view, scales_view

    if len(found.entries) == 1:
        return mixture_view(found.entries[0], found.law, verbose)
    return scales_view(found.entries, found.law, verbose)
