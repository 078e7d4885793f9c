"""Scores as JSON: `mean` and `targets`, with the same keys wherever a law was scored."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shapleymix.files import Json
    from shapleymix.fitting.comparisons import Comparison, Entry
    from shapleymix.fitting.evaluation import Evaluation
    from shapleymix.fitting.scores import Scores

UNCOUNTED = 10**6


def scores_document(scores: Scores | None) -> dict[str, Json] | None:
    """`mean.PE`, `.R2`, `.spearman`, `.coverage`, and the same (with `rows`) for each target."""
    if scores is None:
        return None
    columns = {name: getattr(scores, name).tolist() for name in ("PE", "R2", "spearman", "coverage", "rows")}
    targets = {
        target: {name: column[place] for name, column in columns.items()} for place, target in enumerate(scores.targets)
    }
    return {"mean": scores.mean, "targets": targets}


def evaluation_document(found: Evaluation) -> dict[str, Json]:
    """`score.mean` and `score.targets`."""
    return {
        "kind": "evaluation",
        "score": scores_document(found.scores),
        "level": found.level,
        "rows": found.rows,
        "warnings": found.warnings,
    }


def comparison_document(found: Comparison) -> dict[str, Json]:
    """`laws[]`, best first, and `better[a][b]`: the probability that a has the lower mean PE than b."""
    scored = [entry.law for entry in found.entries if entry.scores is not None]
    better = {
        law: {other: float(found.better[i, j]) for j, other in enumerate(scored) if other != law}
        for i, law in enumerate(scored)
    }
    return {
        "design": found.design,
        "rows": found.rows,
        "laws": [_entry(entry) for entry in ranked(found)],
        "best": found.best(),
        "preferred": found.preferred(),
        "better": better,
        "notices": list(found.notices),
    }


def ranked(found: Comparison) -> list[Entry]:
    """Entries by mean PE, those that could not be fitted last."""
    return sorted(found.entries, key=lambda entry: (entry.scores is None, error_of(entry)))


def error_of(entry: Entry) -> float:
    """Mean PE, or NaN where there is none."""
    return float("nan") if entry.scores is None else entry.scores.mean["PE"]


def numbers_of(entry: Entry) -> int | None:
    """Number of values per target that the law fits; None for one that cannot be counted."""
    return entry.parameters if entry.parameters < UNCOUNTED else None


def _entry(entry: Entry) -> dict[str, Json]:
    return {
        "law": entry.law,
        "parameters": numbers_of(entry),
        **(scores_document(entry.scores) or {"mean": None, "targets": None}),
        "standard_error": entry.standard_error,
        "coverage": entry.coverage,
        "error": entry.error,
    }
