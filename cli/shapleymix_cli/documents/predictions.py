"""Predictions, and mixtures side by side, as JSON and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shapleymix.fitting.measures import measure_of
from shapleymix_cli.documents.plain import by_name
from shapleymix_cli.documents.writing import provenance, write_columns, write_document

if TYPE_CHECKING:
    from shapleymix.files import Json
    from shapleymix.fitting.prediction import Prediction
    from shapleymix.mixing.candidates import Candidate, Candidates
    from shapleymix.tables.writing import Column
    from shapleymix_cli.console import Output


def prediction_document(out: Output, found: Prediction, comparisons: Sequence[Candidates] = ()) -> dict[str, Json]:
    """`predictions[]` with run, N, D, the mixture, and loss, low and high by target; `comparisons[]` by budget.

    Where scores are predicted, `measure` is "score", and each point has a `score` by task. A loss is null where the law
    gives none, or more than a model that has seen nothing (`above_untrained`).
    """
    return {
        "kind": "predictions",
        "measure": measure_of(found.measure).noun,
        "level": found.level,
        "predictions": [_point(found, place) for place in range(len(found.runs))],
        "comparisons": [comparison_document(one) for one in comparisons],
        "warnings": found.warnings,
        "provenance": provenance(out),
    }


def _point(found: Prediction, place: int) -> dict[str, Json]:
    measure = measure_of(found.measure)
    low, high = measure.ends(found.low[place], found.high[place])
    return {
        "run": found.runs[place],
        "N": float(found.N[place]),
        "D": float(found.D[place]),
        measure.noun: by_name(found.targets, measure.shown(found.losses[place])),
        "low": by_name(found.targets, low),
        "high": by_name(found.targets, high),
        "outside": by_name(found.targets, found.outside[place]),
        "above_untrained": by_name(found.targets, found.above_untrained[place]),
        "mixture": by_name(found.sources, found.p[place]),
    }


def comparison_document(found: Candidates) -> dict[str, Json]:
    """`candidates[]` in the order given: the objective, and the gain over the first with its interval."""
    return {
        "verdict": found.verdict or None,
        "N": found.N,
        "D": found.D,
        "weights": by_name(found.targets, found.weights),
        "weights_origin": found.weights_origin,
        "replicates": found.replicates,
        "against": found.entries[0].name,
        "candidates": [_candidate(entry, found) for entry in found.entries],
    }


def _candidate(entry: Candidate, found: Candidates) -> dict[str, Json]:
    measure = measure_of(found.measure)
    low, high = measure.ends(entry.objective_low, entry.objective_high)
    return {
        "name": entry.name,
        "mixture": by_name(found.sources, entry.p),
        "objective": measure.shown(entry.objective),
        "objective_low": low,
        "objective_high": high,
        "gain": entry.gain,
        "gain_low": entry.gain_low,
        "gain_high": entry.gain_high,
        "probability": entry.probability,
    }


def write_predictions(
    out: Output,
    found: Prediction,
    comparisons: Sequence[Candidates],
    path: str,
    force: bool,
) -> None:
    """The predictions as a table, one row per point; with `.json` the whole document."""
    if path.lower().endswith(".json"):
        write_document(out, prediction_document(out, found, comparisons), path, force)
    else:
        write_columns(out, prediction_columns(found), path, force)


def prediction_columns(found: Prediction) -> dict[str, Column]:
    """`run,N,D,p_<source>,loss_<target>,low_<target>,high_<target>`; an empty cell where there is no number.

    Of tasks `score_<task>`.
    """
    measure = measure_of(found.measure)
    low, high = measure.ends(found.low, found.high)
    columns: dict[str, Column] = {"run": found.runs, "N": found.N, "D": found.D}
    columns |= {f"p_{name}": found.p[:, place] for place, name in enumerate(found.sources)}
    for word, values in ((measure.noun, measure.shown(found.losses)), ("low", low), ("high", high)):
        columns |= {f"{word}_{name}": values[:, place] for place, name in enumerate(found.targets)}
    return columns
