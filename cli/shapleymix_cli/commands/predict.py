"""`shapleymix predict`: losses of mixtures, with intervals."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import click

from shapleymix.errors import UsageError
from shapleymix_cli import options
from shapleymix_cli.console import Output
from shapleymix_cli.documents.plain import by_name

if TYPE_CHECKING:
    from shapleymix.fitting.fits import Fit
    from shapleymix.fitting.prediction import Prediction
    from shapleymix.records import FloatArray


@dataclass(frozen=True)
class Points:
    """What to predict: names (R,), mixtures (R, M), sizes and tokens (R,)."""

    runs: tuple[str, ...]
    p: FloatArray
    N: FloatArray
    D: FloatArray


@options.command(
    "shapleymix fit fixtures/multilingual5_runs.csv --law learned --min-own-tokens 20k --bootstrap 50 -o fit.json",
    "shapleymix predict fit.json --mixture en=0.5,de=0.5 -N 97600 -D 2M",
    "shapleymix predict fit.json --mixture uniform --mixture en=0.4,de=0.2,fr=0.2,zh=0.1,ja=0.1 -N 97600 -D 1M,2M",
    "shapleymix predict fit.json fixtures/multilingual5_runs.csv --json",
)
@options.fit_file
@click.argument("table", metavar="[TABLE]", required=False)
@click.option("--mixture", "mixtures", metavar="MIX", multiple=True, help="en=0.5,de=0.5, or uniform; repeatable.")
@click.option("-N", "sizes", type=options.SIZES, help="Model sizes.")
@click.option("-D", "tokens", type=options.SIZES, help="Token counts.")
@options.level
def command(
    out: Output,
    fit_path: str,
    table: str | None,
    mixtures: tuple[str, ...],
    sizes: tuple[float, ...] | None,
    tokens: tuple[float, ...] | None,
    level: float,
) -> None:
    """Predict losses: of each --mixture at each -N and -D, or of the points of a TABLE.

    A TABLE has a run log's own columns (run, N, D, p_<source>); losses are not needed. A warning says where a point
    lies outside of what was fitted.
    """
    from shapleymix_cli.inputs import load_fit

    if table and (sizes or tokens):
        raise UsageError("the table has its own N and D", hint="leave out -N and -D")
    fit = load_fit(fit_path)
    _require_points(fit, table, mixtures)
    points = _table_points(out, fit, table) if table else _option_points(fit, mixtures, sizes, tokens)
    found = fit.predict(points.p, points.N, points.D, level, points.runs)
    out.warn(found.warnings)
    out.emit(lambda: prediction_document(found), lambda: _view(found))


def _require_points(fit: Fit, table: str | None, mixtures: tuple[str, ...]) -> None:
    """A table or mixtures; neither, for a law fitted to a log without ratios."""
    if not fit.sources and mixtures:
        raise UsageError("the fitted log had no mixtures", hint="leave out --mixture")
    if (table and mixtures) or (fit.sources and not table and not mixtures):
        raise UsageError("give a table of points or --mixture, one of them", hint="see `shapleymix predict --help`")


def _table_points(out: Output, fit: Fit, path: str) -> Points:
    """The trained rows of a table."""
    from shapleymix_cli.inputs import read_log

    log = read_log(out, [path], losses="optional").aligned(fit.sources)
    untrained = len(log) - int(log.trained.sum())
    if untrained == len(log):
        raise UsageError(f"{path} holds no point with D above 0")
    out.note([f"left out {untrained} untrained rows (D = 0)"] if untrained else [])
    kept = log.select(log.trained)
    return Points(kept.runs, kept.p, kept.N, kept.D)


def _option_points(
    fit: Fit, mixtures: tuple[str, ...], sizes: tuple[float, ...] | None, tokens: tuple[float, ...] | None
) -> Points:
    """Every mixture at every size and token count."""
    import numpy as np

    from shapleymix.tables.simplex import parse_mixture

    N = budget("-N", sizes, fit.N_range.tolist())
    D = budget("-D", tokens, fit.D_range.tolist())
    parsed = {text: parse_mixture(text, fit.sources) for text in dict.fromkeys(mixtures)} or {"point": np.zeros(0)}
    points = list(product(parsed, N, D))
    return Points(
        tuple(text for text, _, _ in points),
        np.stack([parsed[text] for text, _, _ in points]),
        np.array([size for _, size, _ in points]),
        np.array([count for _, _, count in points]),
    )


def budget(option: str, given: tuple[float, ...] | None, fitted: list[float]) -> tuple[float, ...]:
    """The sizes that were given; where the log held only one, that one."""
    if given:
        return given
    low, high = fitted
    if low != high:
        hint = f"the fit covers {option[1:]} from {low:g} to {high:g}"
        raise UsageError(f"missing option {option}", hint=hint)
    return (low,)


def prediction_document(found: Prediction) -> dict[str, Any]:
    """`predictions[]` with run, N, D, the mixture, and loss, low and high by target."""
    rows = zip(found.runs, found.N, found.D, found.p, found.losses, found.low, found.high, strict=True)
    predictions = [
        {
            "run": run,
            "N": float(N),
            "D": float(D),
            "loss": by_name(found.targets, losses),
            "low": by_name(found.targets, low),
            "high": by_name(found.targets, high),
            "mixture": by_name(found.sources, p),
        }
        for run, N, D, p, losses, low, high in rows
    ]
    return {"kind": "prediction", "level": found.level, "predictions": predictions, "warnings": found.warnings}


def _view(found: Prediction) -> Any:
    from shapleymix_cli.views.predict import prediction_view

    return prediction_view(found)
