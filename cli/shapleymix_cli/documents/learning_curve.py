"""A learning curve as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shapleymix_cli.documents.fits import finite

if TYPE_CHECKING:
    from shapleymix.files import Json
    from shapleymix.fitting.learning_curve import LearningCurve


def learning_curve_document(found: LearningCurve, reach: float | None) -> dict[str, Json]:
    """`measured[]` and `ahead[]`; with `reach` the mixtures that it needs, null where no number is enough."""
    keys = ("mixtures", "PE", "low", "high")
    ahead = zip(*(array.tolist() for array in (found.ahead, found.expected, found.low, found.high)), strict=True)
    measured = zip(*(array.tolist() for array in (found.mixtures, found.PE, found.error)), strict=True)
    document: dict[str, Json] = {
        "mixtures": found.now,
        "level": found.level,
        "measured": [dict(zip(("mixtures", "PE", "error"), row, strict=True)) for row in measured],
        "ahead": [dict(zip(keys, row, strict=True)) for row in ahead],
        "notices": found.notices,
    }
    if reach is not None:
        middle, low, high = found.needed(reach, found.level)
        document["reach"] = {"PE": reach, "mixtures": finite(middle), "low": finite(low), "high": finite(high)}
    return document
