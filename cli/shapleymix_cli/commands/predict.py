"""`shapleymix predict`: losses of mixtures, with intervals, and which of several is better."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import click

from shapleymix.errors import UsageError
from shapleymix_cli import options, reading
from shapleymix_cli.budgets import budget
from shapleymix_cli.console import Output
from shapleymix_cli.project import Given, always
from shapleymix_cli.scoring import scored

if TYPE_CHECKING:
    from shapleymix.downstream.scoring import ScoredFit
    from shapleymix.fitting.fits import Fit
    from shapleymix.fitting.prediction import Prediction
    from shapleymix.mixing.bounds import Bounds
    from shapleymix.mixing.candidates import Candidates
    from shapleymix.mixing.weights import WeightSpec
    from shapleymix.records import FloatArray
    from shapleymix.tables.importing.reading import ReadingKeywords
    from shapleymix.tables.languages import Languages
    from shapleymix.tables.simplex import MixtureSpec
    from shapleymix_cli.views.tables import Part

Sizes = tuple[float, ...] | None


@dataclass(frozen=True)
class Points:
    """What to predict: names (R,), mixtures (R, M), sizes and tokens (R,), and unique tokens (R, M) of a table."""

    runs: tuple[str, ...]
    p: FloatArray
    N: FloatArray
    D: FloatArray
    unique: FloatArray | None = None


def _compares(given: Given) -> bool:
    """Whether losses of mixtures are compared, so that weights count."""
    mixtures = given.get("mixtures")
    return isinstance(mixtures, Sequence) and len(mixtures) > 1 and given.get("downstream") is None


@options.command(
    "shapleymix example",
    "shapleymix fit example/runs.csv --law learned-base --min-own-tokens 20k --bootstrap 50 -o fit.json",
    "shapleymix predict fit.json --mixture en=0.5,de=50% -N 97600 -D 2M",
    "shapleymix predict fit.json --mixture uniform --mixture plan=en=0.4,de=0.2,fr=0.2,zh=0.1,ja=0.1 -N 97600 -D 1M,2M",
    "shapleymix predict fit.json example/runs.csv -o predictions.csv",
    "shapleymix downstream example/runs.csv --scores example/scores.csv --chance 0.25 -o downstream.json",
    "shapleymix predict fit.json --mixture natural --mixture uniform -N 97600 -D 1M --downstream downstream.json"
    " --languages example/languages.csv",
    project={"languages": always, "weights": _compares},
)
@options.fit_file
@options.law_file
@options.like
@click.argument("table", metavar="[TABLE]", required=False)
@click.option(
    "--mixture",
    "mixtures",
    metavar="[NAME=]MIX",
    multiple=True,
    help="en=0.5,de=50%, a saved mixture (.json), uniform, natural, temperature:2 or unimax:4; repeatable.",
)
@click.option("-N", "sizes", type=options.SIZES, help="Model sizes.")
@click.option("-D", "tokens", type=options.SIZES, help="Token counts.")
@options.weights
@options.tasks("Predict scores on tasks, as `shapleymix downstream -o` has them.")
@options.languages
@options.available
@reading.reading
@options.strict
@options.level
@options.output("the predictions (.csv, .csv.gz, .parquet, .jsonl or .json)")
def command(
    out: Output,
    fit_path: str,
    law_file: str | None,
    like: tuple[str, ...],
    table: str | None,
    mixtures: tuple[str, ...],
    sizes: Sizes,
    tokens: Sizes,
    weights: str | None,
    downstream: str | None,
    task_weights: str | None,
    languages: str | None,
    available: str | None,
    strict: bool,
    level: float,
    how: ReadingKeywords,
    output: str | None,
    force: bool,
) -> None:
    """Predict losses, or scores: of each --mixture at each -N and -D, or of the points of a TABLE.

    Several mixtures are compared with the first: what each saves of the (weighted) mean loss, with its interval over
    the fit's bootstrap replicates, paired, and the probability that it is better. With --downstream all numbers are
    scores on tasks, and gains those of the mean score, weighted by --task-weights.

    A TABLE has a run log's own columns (run, N, D, p_<source>); losses are not needed. A warning says where a point
    lies outside of what was fitted; --strict refuses such a point.
    """
    from shapleymix_cli.documents.predictions import prediction_document, write_predictions
    from shapleymix_cli.inputs import load_fit, read_table

    if table and (sizes or tokens):
        raise UsageError("the table has its own N and D", hint="leave out -N and -D")
    options.require_ending(output)
    fit, weigh = scored(out, load_fit(out, fit_path, law_file, like), (downstream, task_weights), weights)
    _require_points(fit, table, mixtures)
    comparisons: tuple[Candidates, ...] = ()
    known = read_table(out, languages)
    if not table:
        reading.refuse_idle(how, "a TABLE")
    if table:
        points = _table_points(out, fit, reading.Logs((table,), how))
        _require_one_supply(out, table, points, known, available)
    else:
        from shapleymix.mixing.bounds import Bounds
        from shapleymix.tables.baselines import rivals_of

        supply = Bounds(languages=known, available=available)
        named = rivals_of(mixtures)
        N, D = budget("-N", sizes, fit.N_range.tolist()), budget("-D", tokens, fit.D_range.tolist())
        points = _grid(fit, named, N, D, supply)
        _require_several(named, weights, task_weights)
        comparisons = _comparisons(fit, named, N, D, supply, weigh, level)
    found = fit.predict(
        points.p, points.N, points.D, level, points.runs, languages=known, available=available, unique=points.unique,
        strict=strict,
    )  # fmt: skip
    out.warn(found.warnings)
    out.note(notice for one in comparisons for notice in one.notices)
    if output:
        write_predictions(out, found, comparisons, output, force)
    out.emit(lambda: prediction_document(out, found, comparisons), lambda: _view(found, comparisons, out.verbose))


def _require_points(fit: Fit | ScoredFit, table: str | None, mixtures: tuple[str, ...]) -> None:
    """A table or mixtures; neither, for a law fitted to a log without ratios."""
    if not fit.sources and mixtures:
        raise UsageError("the fitted log had no mixtures", hint="leave out --mixture")
    if (table and mixtures) or (fit.sources and not table and not mixtures):
        raise UsageError("give a table of points or --mixture, one of them", hint="see `shapleymix predict --help`")


def _table_points(out: Output, fit: Fit | ScoredFit, table: reading.Logs) -> Points:
    """The trained rows of a table."""
    from shapleymix_cli.inputs import read_log

    log = read_log(out, table, losses="optional").aligned(fit.sources)
    untrained = len(log) - int(log.trained.sum())
    if untrained == len(log):
        raise UsageError(f"{table.paths[0]} holds no point with D above 0")
    out.note([f"left out {untrained} untrained rows (D = 0)"] if untrained else [])
    kept = log.select(log.trained)
    return Points(kept.runs, kept.p, kept.N, kept.D, kept.unique)


def _require_one_supply(
    out: Output, table: str, points: Points, languages: Languages | None, available: str | None
) -> None:
    """Refuse unique tokens beside a table that has them for each point; a languages table may know more than them."""
    if points.unique is None:
        return
    if available is not None:
        hint = "leave --available out, or the columns tokens_unique_<source>; there an empty cell is no limit"
        raise UsageError(f"{table} says itself which unique tokens each point has", hint=hint)
    if languages is not None:
        out.note([f"{table} says which unique tokens each point has: those of {languages.origin} do not count"])


def _grid(
    fit: Fit | ScoredFit, named: Mapping[str, MixtureSpec], N: Sequence[float], D: Sequence[float], supply: Bounds
) -> Points:
    """Every mixture at every size and token count."""
    import numpy as np

    from shapleymix.tables.baselines import mixture_of

    tokens = supply.supply(fit.sources)
    rows = list(product(named or {"point": None}, N, D))
    p = [mixture_of(named[name], fit.sources, tokens, D) if named else np.zeros(0) for name, _, D in rows]
    return Points(
        tuple(name for name, _, _ in rows),
        np.stack(p),
        np.array([size for _, size, _ in rows]),
        np.array([count for _, _, count in rows]),
    )


def _require_several(named: Mapping[str, MixtureSpec], weights: str | None, task_weights: str | None) -> None:
    """Refuse weights where no mean is formed, as there is nothing to compare."""
    for flag, given in (("--weights", weights), ("--task-weights", task_weights)):
        if given is not None and len(named) < 2:
            raise UsageError(f"{flag} does nothing without a second --mixture", hint=f"leave out {flag}")


def _comparisons(
    fit: Fit | ScoredFit,
    named: Mapping[str, MixtureSpec],
    N: Sequence[float],
    D: Sequence[float],
    supply: Bounds,
    weights: WeightSpec | None,
    level: float,
) -> tuple[Candidates, ...]:
    """The mixtures against the first, at each budget; nothing where there is only one."""
    from shapleymix.mixing.candidates import compare_mixtures

    if len(named) < 2:
        return ()
    table, tokens = supply.languages, supply.available
    return tuple(
        compare_mixtures(fit, named, size, count, weights=weights, languages=table, available=tokens, level=level)
        for size, count in product(N, D)
    )


def _view(found: Prediction, comparisons: Sequence[Candidates], verbose: bool) -> list[Part]:
    from shapleymix_cli.views.predict import candidates_view, prediction_view

    return [*prediction_view(found, verbose), *(part for one in comparisons for part in candidates_view(one))]
