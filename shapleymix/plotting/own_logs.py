"""The log that a fit was made of, read again where its file still is what it was."""

from __future__ import annotations

import numpy as np

from shapleymix.errors import ShapleyMixError, UsageError
from shapleymix.fitting.evidence import Filters, gather, one_log
from shapleymix.fitting.fits import Fit
from shapleymix.fitting.settings import LEVEL
from shapleymix.plotting.points import quietly
from shapleymix.tables.runs import RunLog

CLOSE = 0.01
"""The fit's own errors come back from its log to this share of them; other units would change them by far more."""


def own_log(fit: Fit) -> RunLog:
    """The log that a fit names, if it is unchanged and the fit's errors on it are those that it had.

    The errors tell a file that was read in other units, or by a map, which its hash alone does not.

    Raises
    ------
    UsageError
        If it must be given.
    """
    origin = str(fit.provenance.get("log", ""))
    try:
        log = one_log(origin.split(" + "))
    except (ShapleyMixError, OSError) as error:
        raise _needed(f"its log {origin!r} cannot be read as it stands") from error
    if log.digest != fit.provenance.get("log_sha256"):
        raise _needed(f"{origin} is not what it was when it was fitted")
    if not _same_errors(fit, log):
        raise _needed(f"{origin} was read otherwise for the fit, in other units or by a map")
    return log


def _needed(why: str) -> UsageError:
    hint = "give the runs: fit.plot(log), where log is what was fitted (a path, a frame, or what read_runs returns)"
    return UsageError(f"the figure shows runs, and the fit holds none: {why} (log)", hint=hint)


def _same_errors(fit: Fit, log: RunLog) -> bool:
    """Whether the fit errs on the rows that it was made of as it says."""
    told = fit.provenance
    least = float(str(told["min_tokens"])), float(str(told["min_own_tokens"] or 0.0))
    filters = Filters(*least, float(str(told["drop_warmup"])), bool(told["last_only"]))
    evidence = gather(log.aligned(fit.sources, fit.targets), filters)
    rows, use = evidence.log, evidence.weight > 0
    said = quietly(fit, rows.p, rows.N, rows.D, LEVEL, rows.unique).losses
    known = use.any(axis=0) & np.isfinite(fit.fitted_scores.PE)
    error, loss = (np.where(use, one, 0.0).sum(axis=0)[known] for one in (np.abs(said - rows.loss), rows.loss))
    return np.allclose(error, fit.fitted_scores.PE[known] * loss, rtol=CLOSE, atol=1e-9)
