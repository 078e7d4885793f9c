"""`plan mixtures` without a design: mixtures that somebody has thought of, those in use, and random ones."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import nan
from typing import TYPE_CHECKING, Concatenate, ParamSpec

import click
from click.core import ParameterSource

from shapleymix.errors import UsageError
from shapleymix.files import is_table_name
from shapleymix_cli import options
from shapleymix_cli.console import Output
from shapleymix_cli.planning import COMMAND, PLACEHOLDERS, SEEDS, Named, number_of, write_plan

if TYPE_CHECKING:
    from shapleymix.mixing.demands import Demands
    from shapleymix.planning.design import PlanKeywords
    from shapleymix.planning.designs import Design
    from shapleymix.sweeping.listed import Listed
    from shapleymix.tables.languages import Languages
    from shapleymix_cli.views.tables import Part

P = ParamSpec("P")


@dataclass(frozen=True)
class Kinds:
    """What was asked for besides a design, and how its runs are started.

    Attributes
    ----------
    controlled, empirical : tuple of str
        As they are typed.
    random : int, optional
        How many mixtures to draw.
    temperature, concentration : float, optional
        Of the draws.
    template : str, optional
        The command of the runs; None where a table of mixtures is wanted.
    seeds : tuple of int
        Of the runs.
    """

    controlled: tuple[str, ...]
    empirical: tuple[str, ...]
    random: int | None
    temperature: float | None
    concentration: float | None
    template: str | None
    seeds: tuple[int, ...]

    @property
    def asked(self) -> bool:
        """Whether mixtures are listed, not designed."""
        return bool(self.controlled or self.empirical or self.random)


LISTED = ("controlled", "empirical", "random")
"""Any of these asks for listed mixtures, not for a design."""

_OPTIONS = (
    click.option(
        "--controlled",
        multiple=True,
        metavar="monolingual,...",
        help="Even mixtures: monolingual, uniform, families (of --languages), en+de, romance=fr+es; repeatable.",
    ),
    click.option(
        "--empirical",
        multiple=True,
        metavar="MIX|TABLE",
        help="Mixtures in use: natural, temperature:T, unimax:E, en=0.5,de=0.5, or a table of them; repeatable.",
    ),
    click.option("--random", type=options.Count(1), help="How many to draw at random, within the bounds."),
    click.option("--temperature", type=options.POSITIVE, help="Of draws: 1 around natural ratios, more is evener."),
    click.option("--concentration", type=options.POSITIVE, help="Of draws: below 1 few sources hold nearly all."),
    click.option(*COMMAND, metavar="CALL", help=f"Plan runs, not a table, with this command; {PLACEHOLDERS}."),
    SEEDS,
)


def kinds(function: Callable[Concatenate[Output, Kinds, P], None]) -> Callable[..., None]:
    """The options of `Kinds`, which the function gets as its second argument."""

    @functools.wraps(function)
    def call(
        out: Output,
        controlled: tuple[str, ...],
        empirical: tuple[str, ...],
        random: int | None,
        temperature: float | None,
        concentration: float | None,
        template: str | None,
        seeds: tuple[int, ...],
        *rest: P.args,
        **others: P.kwargs,
    ) -> None:
        split = tuple(part for text in controlled for part in text.split(","))
        given = Kinds(split, empirical, random, temperature, concentration, template, seeds)
        _check_parts(given)
        function(out, given, *rest, **others)

    made: Callable[..., None] = call
    for option in reversed(_OPTIONS):
        made = option(made)
    return made


def _check_parts(given: Kinds) -> None:
    """What says how another option works does nothing without it."""
    if given.template is None and given.seeds != (0,):
        raise UsageError(
            "--seeds without --command", hint="a table of mixtures has no seeds: give both, or plan a grid"
        )
    if given.random is None and (given.temperature is not None or given.concentration is not None):
        raise UsageError("--temperature and --concentration are of --random", hint="give --random, or leave them out")


def list_mixtures(
    out: Output,
    given: Kinds,
    asked: PlanKeywords,
    languages: Languages | None,
    sources: str | None,
    N: Named | None,
    D: float | None,
    output: str | None,
    force: bool,
) -> None:
    """List mixtures of the kinds that were asked for, as a table or, with a command, as planned runs."""
    from shapleymix.mixing.demands import Demands
    from shapleymix.tables.names import labels_of
    from shapleymix_cli.documents.writing import save_or_tabulate, with_provenance

    if sources is None and languages is None:
        raise UsageError("nothing says what the sources are", hint="give --sources or --languages")
    names = labels_of(sources, "--sources") if sources is not None else languages.names if languages is not None else ()
    demands = Demands(**{**asked, "languages": languages}, allow_unseen=True)
    listed = _listed(out, given, names, demands, D)
    if given.template is not None:
        plan_runs(out, listed, N, D, given, output, force)
        return
    marked = with_provenance(out, replace(listed, N=number_of(N) or nan, D=D or nan))
    out.note(marked.notices)
    if output:
        save_or_tabulate(out, marked, output, force)
    out.emit(marked.to_document, lambda: _view(marked, out.verbose))


_DESIGN = ("fit_path", "law_file", "law", "min_own_tokens", "N", "D", "purpose", "candidates", "region", "batches")
_DESIGN += ("targets", "weights")
_BOUNDS = ("max_epochs", "caps", "floors", "fix", "min_tokens", "groups", "near", "within", "distance")
"""Parameters that a design alone reads, and those that random mixtures obey."""


def refuse_design(given: Kinds, n: int | None, logs: Sequence[str]) -> None:
    """A list of mixtures takes neither a number of designed ones nor runs so far, nor what only these need."""
    if n is not None or logs:
        what = "--n" if n is not None else "a log"
        hint = "write the list first, with --run-N and --run-D; given as a log, its mixtures count as planned"
        raise UsageError(f"{what} with --controlled, --empirical or --random", hint=hint)
    context = click.get_current_context()
    idle = {**dict.fromkeys(_DESIGN, "a design"), **({} if given.random else dict.fromkeys(_BOUNDS, "--random"))}
    for one in context.command.params:
        if one.name in idle and context.get_parameter_source(one.name) is ParameterSource.COMMANDLINE:
            flag = max(one.opts, key=len)
            raise UsageError(f"{flag} does nothing to listed mixtures", hint=f"it is of {idle[one.name]}: leave it out")


def plan_design(out: Output, found: Design, size: Named | None, given: Kinds, output: str | None, force: bool) -> None:
    """The runs of a design as a plan; their size has a name where one was given."""
    from shapleymix.sweeping.listed import Listed

    N, D = (None if size != size else size for size in (found.N, found.D))
    plan_runs(out, Listed(found.sources, found.runs, found.p), size or N, D, given, output, force)


def plan_runs(
    out: Output, listed: Listed, N: Named | None, D: float | None, given: Kinds, output: str | None, force: bool
) -> None:
    """Mixtures at one N and D as planned runs."""
    from shapleymix.sweeping.grids import grid

    if N is None or D is None:
        raise UsageError("planned runs need their N and D", hint="give --run-N and --run-D")
    assert given.template is not None
    write_plan(out, grid(listed, N, D, seeds=given.seeds, command=given.template), output, force)


def _listed(out: Output, given: Kinds, names: tuple[str, ...], demands: Demands, D: float | None) -> Listed:
    """The mixtures of all kinds, each once: controlled ones, those in use, random ones."""
    from shapleymix.sweeping.controlled import controlled, empirical
    from shapleymix.sweeping.listed import listed_once
    from shapleymix_cli.inputs import read_mixture_table

    tables = [read_mixture_table(out, str(one)) if is_table_name(one) else one for one in given.empirical]
    parts = [controlled(given.controlled, names, demands.table), empirical(tables, names, demands.table, D)]
    parts += [] if given.random is None else [_drawn(given.random, given, names, demands, D)]
    pairs = [pair for part in parts for pair in zip(part.names, part.p, strict=True)]
    return listed_once(names, pairs, [notice for part in parts for notice in part.notices])


def _drawn(count: int, given: Kinds, names: tuple[str, ...], demands: Demands, D: float | None) -> Listed:
    """Random mixtures within the bounds."""
    from shapleymix.mixing.repeating import epochs_allowed
    from shapleymix.sweeping.random import CONCENTRATION, TEMPERATURE, random_mixtures, supply_known

    if D is None and demands.min_tokens is not None:
        raise UsageError("--min-tokens is reckoned from the tokens of the runs", hint="give --run-D")
    bounds = demands.bounds(names, D or 1.0, epochs=epochs_allowed(None))
    if given.temperature is not None and not supply_known(bounds):
        hint = "give --languages or --available with the tokens of every source, or leave it out"
        raise UsageError("--temperature does nothing where the tokens at hand are not all known", hint=hint)
    return random_mixtures(
        count,
        bounds,
        temperature=given.temperature or TEMPERATURE,
        concentration=given.concentration or CONCENTRATION,
        seed=demands.seed,
    )


def _view(listed: Listed, verbose: bool) -> list[Part]:
    from shapleymix_cli.views.sweeps import listed_view

    return listed_view(listed, verbose)
