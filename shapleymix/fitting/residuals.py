"""How far a fitted law is from the losses that it was fitted to, and from those that it did not see."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shapleymix.errors import FitError
from shapleymix.fitting.candidates import candidate, predicted_in_parts, require_losses
from shapleymix.fitting.fitted import Fitted
from shapleymix.fitting.misfit import Misfit, misfit_of
from shapleymix.fitting.questions import questions_of_fit
from shapleymix.fitting.rates import Told
from shapleymix.fitting.scores import Scores, score
from shapleymix.fitting.study import MIXTURES_NEEDED
from shapleymix.fitting.uncertainty import law_variance, residual_quantiles, scatter
from shapleymix.records import FloatArray


@dataclass(frozen=True)
class Errors:
    """Scores on fitted and on held-out losses, how held-out ones scatter, and what is to be said of either.

    `odd` are single losses that should be questioned, `notes` why nothing was held out.
    """

    fitted: Scores
    held_out: Scores | None
    residuals: FloatArray | None
    misfit: Misfit | None
    odd: tuple[str, ...]
    notes: tuple[str, ...]


def errors_of(told: Told, point: Fitted) -> Errors:
    """The errors of a fitted law on the rows of the study that told its rate of repetition.

    Raises
    ------
    FitError
        If the law gives no loss where one was measured.
    """
    study, law = told.study, type(point.law)
    log, targets = study.log, study.inputs.targets
    p = study.evidence.ratios if law.takes_repetition else log.p
    fitted = point.law.losses(p, log.N, log.D)
    require_losses(law.name, fitted, point.used, log)
    losses, notes = _held_out(told, point)
    seen = np.where(study.evidence.weight > 0, log.loss, np.nan)
    residuals = None if losses is None else residual_quantiles(seen, losses)
    if residuals is not None and point.replicates is not None:
        residuals = scatter(residuals, law_variance(point.law, point.replicates, p, log.N, log.D))
    return Errors(
        fitted=score(targets, seen, fitted),
        held_out=None if losses is None else score(targets, seen, losses),
        residuals=residuals,
        misfit=misfit_of(log, seen, losses, point.law, replicated=point.replicates is not None, ratios=p),
        odd=tuple(questions_of_fit(log, np.log(log.loss / fitted), point.used)),
        notes=notes,
    )


def _held_out(told: Told, point: Fitted) -> tuple[FloatArray | None, tuple[str, ...]]:
    """What choosing beliefs predicted of held-out rows, else what fits made for that predict; None with the reason."""
    if point.held_out is not None and told.study.settings.folds and told.profile is None:
        return point.held_out, ()
    return held_out_losses(told)


def held_out_losses(told: Told) -> tuple[FloatArray | None, tuple[str, ...]]:
    """Predictions of every row by a fit that did not see its mixture, or None with the reason."""
    study = told.study
    folds, mixtures = study.settings.folds, study.mixtures
    if folds == 0:
        return None, ("no held-out error was asked for (folds = 0)",)
    if mixtures < MIXTURES_NEEDED:
        return None, (f"{mixtures} different mixtures are too few for a held-out error",)
    masks, _ = study.cross_validation(min(folds, mixtures))
    try:
        return predicted_in_parts(candidate(told.law), told.without(masks), masks), ()
    except FitError as error:
        return None, (f"no held-out error: in a fold, {error.message}",)
