"""How far a fitted law is from the losses that it was fitted to, and from those that it did not see."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from shapleymix.errors import FitError
from shapleymix.fitting.candidates import candidate, predicted_in_parts, require_losses
from shapleymix.fitting.cells import Cells, cells_of
from shapleymix.fitting.fitted import Fitted, estimated, learned
from shapleymix.fitting.misfit import Misfit, misfit_of
from shapleymix.fitting.questions import questions_of_fit
from shapleymix.fitting.rates import Told
from shapleymix.fitting.scores import Scores, score
from shapleymix.fitting.study import MIXTURES_NEEDED, Progress, Study
from shapleymix.fitting.uncertainty import law_variance, residual_quantiles, scatter
from shapleymix.laws import BlackBox, Law
from shapleymix.records import BoolArray, FloatArray


@dataclass(frozen=True)
class Errors:
    """Scores on fitted and on held-out losses, how held-out ones scatter, and what is to be said of either.

    `odd` are single losses that should be questioned.
    """

    fitted: Scores
    held_out: Scores | None
    residuals: FloatArray | None
    cells: Cells | None
    misfit: Misfit | None
    odd: tuple[str, ...]


def fitted_to(told: Told, law: type[Law], progress: Progress | None) -> Fitted:
    """A law fitted to a study, with its held-out predictions where there can be any."""
    point = point_of(told, law, progress)
    if point.held_out is not None and told.study.settings.folds and told.profile is None:
        return point  # what choosing beliefs predicted of held-out rows
    losses, notes = held_out_losses(told)
    return replace(point, held_out=losses, notes=(*notes, *point.notes))


def point_of(told: Told, law: type[Law], progress: Progress | None) -> Fitted:
    """A law fitted to a study, parametric or a black box."""
    return learned(told, law) if issubclass(law, BlackBox) else estimated(told, law, progress)


def errors_of(told: Told, point: Fitted) -> Errors:
    """The errors of a fitted law on the rows of the study that told its rate of repetition.

    Raises
    ------
    FitError
        If the law gives no loss where one was measured.
    """
    study, law, losses = told.study, type(point.law), point.held_out
    log, targets = study.log, study.inputs.targets
    p = study.evidence.ratios if law.takes_repetition else log.p
    fitted = point.law.losses(p, log.N, log.D)
    require_losses(law.name, fitted, point.used, log)
    counted = study.evidence.weight > 0
    seen = np.where(counted, log.loss, np.nan)
    cells = None if losses is None else cells_of(log, np.log(seen / losses))
    return Errors(
        fitted=score(targets, seen, fitted),
        held_out=None if losses is None else score(targets, seen, losses),
        residuals=scatter_of(study, point, counted, cells),
        cells=cells,
        misfit=misfit_of(log, seen, losses, point.law, replicated=point.replicates is not None, ratios=p),
        odd=tuple(questions_of_fit(log, np.log(log.loss / fitted), point.used)),
    )


def scatter_of(study: Study, point: Fitted, counted: BoolArray, cells: Cells | None = None) -> FloatArray | None:
    """Quantiles (99, K) of how the counted held-out losses (R, K) scatter about the law; None without any.

    Those of runs that scatter as in the mean of all cells: in others, the factors of `cells` say how much more.
    """
    if point.held_out is None:
        return None
    log = study.log
    residual = np.where(counted, np.log(log.loss / point.held_out), np.nan)
    residuals = residual_quantiles(residual if cells is None else residual / cells.factors(log.N, log.D), log.groups)
    if point.replicates is None:
        return residuals
    p = study.evidence.ratios if type(point.law).takes_repetition else log.p
    return scatter(residuals, law_variance(point.law, point.replicates, p, log.N, log.D, counted))


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
