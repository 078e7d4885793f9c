"""What can go wrong while a run is measured; every message names the step, language, rank or parameter."""

from __future__ import annotations

from shapleymix.errors import ShapleyMixError


class TrackerError(ShapleyMixError):
    """The tracker is used wrongly: an option, or calls out of order."""

    code = "irds_usage"


class LanguageError(TrackerError):
    """A label in the batch is no language of this run."""

    code = "irds_language"


class CoverageError(TrackerError):
    """A parameter or module is used in a way whose gradient the tracker cannot split by language."""

    code = "irds_coverage"


class NonFiniteError(TrackerError):
    """A loss or a gradient product is NaN or infinite."""

    code = "irds_not_finite"


class ResumeError(TrackerError):
    """A checkpoint or log belongs to a run with other languages or settings."""

    code = "irds_resume"
