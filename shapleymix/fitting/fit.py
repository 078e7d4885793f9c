"""From logs to a fitted law with its held-out error, its error bars, and what of it is not known."""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

from shapleymix.errors import caution
from shapleymix.fitting.comparison import selected
from shapleymix.fitting.evidence import Logs, Table
from shapleymix.fitting.fits import Fit
from shapleymix.fitting.fitted import errors_of
from shapleymix.fitting.held_out import law_of
from shapleymix.fitting.regimes import Parted, fitted_apart, parted
from shapleymix.fitting.settings import AUTO, SEED, Keywords, Settings, with_settings
from shapleymix.fitting.study import Progress, study_of
from shapleymix.laws import Law
from shapleymix.laws.core import Chinchilla
from shapleymix.tables.languages import Languages
from shapleymix.tables.transfer import TransferMatrix


@with_settings
def fit(
    log: Logs,
    law: str | type[Law] = AUTO,
    transfer: TransferMatrix | Table | None = None,
    languages: Languages | Table | None = None,
    *,
    seed: int = SEED,
    vocabulary: float | None = None,
    progress: Progress | None = None,
    bootstrap: int = Settings.bootstrap,
    **settings: Unpack[Keywords],
) -> Fit:
    """Fit a law to run logs.

    Parameters
    ----------
    log : RunLog, path, or a sequence of them
        Run logs; coalition runs at a small size inform the transfer at a large one.
    law : str or type[Law]
        A law's name or class; `"auto"` takes `learned-base`, or `additive` where there are runs enough for it and it is
        clearly better in grouped cross-validation.
    transfer, languages : table or path, optional
        The transfer matrix and the languages table, for laws that need them.
    seed : int
        Seed of the bootstrap; the same inputs and seed give the same bytes.
    vocabulary : float, optional
        Number of tokens in the vocabulary; its logarithm is the loss of a model that has seen nothing, above which
        nothing is predicted, where no such model (D = 0) was measured.
    progress : Progress, optional
        Is called with the stage, how much of it is done, and how much there is.
    bootstrap : int
        Replicates for intervals; 0 for none.

    Raises
    ------
    DataError, UsageError, FitError
        If a table is wrong, a name is unknown, or the runs are too few for the law.
    """
    how = Settings(**settings, bootstrap=bootstrap)
    study = study_of(log, transfer, languages, how, seed, vocabulary=vocabulary)
    if law == AUTO and len(set(study.log.mixture_keys)) == 1:
        law = Chinchilla  # the one law that one mixture tells
    free = isinstance(law, str) and law == AUTO
    parts = parted(study)
    selection = selected(parts.study, progress) if free else None
    chosen = law_of(law if selection is None else selection.preferred())
    if progress is not None:
        progress(f"fitting {chosen.name}", 0, 1)
    found = replace(fit_of(parts, chosen, progress), selection=selection)
    caution(found.warnings)
    return found


def fit_of(parts: Parted, law: type[Law], progress: Progress | None = None) -> Fit:
    """One law fitted to a study, apart to its regimes.

    Raises
    ------
    FitError
        If the runs are too few for the law.
    """
    study, point, absent = fitted_apart(parts, law, progress)
    log, inputs, errors = study.log, study.inputs, errors_of(study, point)
    found = Fit(
        law=point.law, replicates=point.replicates, sources=inputs.sources, targets=inputs.targets,
        status=point.status, held=point.held, coverage=point.coverage, repetition=point.repetition, absent=absent,
        fitted_scores=errors.fitted, held_out=errors.held_out,
        selection=None, rows=int(point.used.any(axis=1).sum()),
        notices=(*log.notices, *study.evidence.notices, *point.notes, *errors.odd),
        provenance=study.provenance(law), knobs=dict(point.knobs), noise=errors.noise,
    )  # fmt: skip
    return replace(found, notices=(*found.notices, *found.lacks()))
