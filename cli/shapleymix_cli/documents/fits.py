"""A fit as JSON."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from shapleymix_cli.documents.laws import formula_of
from shapleymix_cli.documents.plain import by_name
from shapleymix_cli.documents.scores import comparison_document, scores_document

if TYPE_CHECKING:
    from shapleymix.files import Json
    from shapleymix.fitting.fits import Fit

LEVEL = 0.9


def fit_document(found: Fit) -> dict[str, Json]:
    """The law, its parameters with intervals, its scores, and what the data could not tell."""
    law = type(found.law)
    return {
        "kind": "fit",
        "law": law.name,
        "formula": formula_of(law),
        "assumption": law.assumption,
        "reference": law.reference,
        "sources": found.sources,
        "targets": found.targets,
        "rows": found.rows,
        "held_out": scores_document(found.held_out),
        "fitted": scores_document(found.fitted_scores),
        "selection": None if found.selection is None else comparison_document(found.selection),
        "parameters": parameters_document(found),
        "status": {one.target: {"state": one.state, "advice": one.advice} for one in found.status},
        "held": found.held,
        "ranges": {
            "N": found.N_range.tolist(),
            "D": found.D_range.tolist(),
            "p": by_name(found.sources, found.p_range),
        },
        "repetition": _repetition(found),
        "knobs": {name: by_name(found.targets, values) for name, values in found.knobs.items()},
        "unseen": found.unseen,
        "thin": found.thin,
        "notices": found.notices,
        "provenance": found.provenance,
    }


def _repetition(found: Fit) -> dict[str, Json] | None:
    """The rate at which repeated tokens lose their worth, whether the log told it, and the epochs of its runs."""
    known = found.repetition
    if known is None:
        return None
    low, high = map(finite, known.interval(LEVEL).tolist())
    epochs = {
        name: [finite(one) for one in span] for name, span in zip(found.sources, known.epochs.tolist(), strict=True)
    }
    return {"rate": known.rate, "low": low, "high": high, "told": known.told, "epochs": epochs}


def parameters_document(found: Fit) -> dict[str, Json]:
    """`{symbol: {target: {value, low, high}}}`, with the source between where a symbol has one."""
    document: dict[str, dict[str, Json]] = {}
    within: dict[tuple[str, str], dict[str, Json]] = {}
    for symbol, source, target, value, low, high in found.parameters():
        place = document.setdefault(symbol, {})
        if source is not None:
            place[source] = place = within.setdefault((symbol, source), {})
        place[target] = {"value": value, "low": finite(low), "high": finite(high)}
    return {**document}


def finite(value: float) -> float | None:
    """The number, or None where there is none."""
    return value if math.isfinite(value) else None
