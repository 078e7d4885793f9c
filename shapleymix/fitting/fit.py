"""From logs to a fitted law with its held-out error, its error bars, and what of it is not known."""

from __future__ import annotations

from dataclasses import replace

from shapleymix.errors import caution
from shapleymix.fitting.candidates import law_of
from shapleymix.fitting.comparison import selected
from shapleymix.fitting.evidence import Logs, Table
from shapleymix.fitting.fits import Fit
from shapleymix.fitting.fitted import errors_of
from shapleymix.fitting.regimes import Parted, fitted_apart, parted
from shapleymix.fitting.settings import AUTO, SEED, Purpose, Settings, Size, require_purpose
from shapleymix.fitting.study import Progress, study_of
from shapleymix.laws import Law
from shapleymix.laws.core import Chinchilla
from shapleymix.laws.learned_base import LearnedBase
from shapleymix.tables.languages import Languages
from shapleymix.tables.transfer import TransferMatrix


def fit(
    log: Logs,
    law: str | type[Law] = AUTO,
    transfer: TransferMatrix | Table | None = None,
    languages: Languages | Table | None = None,
    *,
    seed: int = SEED,
    vocabulary: float | None = None,
    progress: Progress | None = None,
    delta: float | None = Settings.delta,
    prior: float = Settings.prior,
    starts: int = Settings.starts,
    bootstrap: int = Settings.bootstrap,
    folds: int = Settings.folds,
    min_tokens: Size = Settings.min_tokens,
    min_own_tokens: Size | None = Settings.min_own_tokens,
    drop_warmup: float = Settings.drop_warmup,
    last_only: bool = Settings.last_only,
    purpose: Purpose = Settings.purpose,
) -> Fit:
    """Fit a law to run logs.

    Parameters
    ----------
    log : RunLog, path, or a sequence of them
        Run logs; coalition runs at a small size inform the transfer at a large one.
    law : str or type[Law]
        A law's name or class; `"auto"` takes `learned-base` unless another law that the inputs allow is clearly better
        in grouped cross-validation, or (`purpose="beyond"`) on the largest size left out.
    transfer, languages : table or path, optional
        The transfer matrix and the languages table, for laws that need them.
    seed : int
        Seed of the bootstrap; the same inputs and seed give the same bytes.
    vocabulary : float, optional
        Number of tokens in the vocabulary; its logarithm is the loss of a model that has seen nothing, above which
        nothing is predicted, where no such model (D = 0) was measured.
    progress : Progress, optional
        Is called with the stage, how much of it is done, and how much there is.
    bootstrap, folds : int
        Replicates for intervals, and folds of the cross-validation that gives the held-out error; 0 for none (folds are
        needed with `"auto"`).
    delta : float, optional
        Huber's threshold on log residuals; `inf` is plain least squares. By default the law's own: the
        usual held-out error for `learned-base`, .001 for most others, as in Chinchilla's replications.
    prior : float
        Precision of the weak prior that pulls log coefficients towards their mean, as a share of the total weight times
        delta; the law's other priors scale with it.
    starts : int
        Number of starting points for each target that are followed to the end.
    min_tokens : Size
        Runs that give some language fewer tokens than this are left out (1.5e9 in the paper).
    min_own_tokens : Size, optional
        Losses of a target whose own language has fewer tokens than this are left out; 0 for one law for all losses. By
        default none are left out, but runs without the language get a model of their own if they behave differently.
    drop_warmup : float
        Checkpoints before this share of their run's last D are left out.
    last_only : bool
        Only the last checkpoint of each run is used, so that the law predicts final losses.
    purpose : str
        For which budgets `law="auto"` chooses a law: "within" the fitted ones (by cross-validation over mixtures), or
        "beyond" them (by how well fits to the smaller sizes predict the largest).

    Raises
    ------
    DataError, UsageError, FitError
        If a table is wrong, a name is unknown, or the runs are too few for the law.
    """
    settings = Settings(
        delta, prior, starts, bootstrap, folds, min_tokens, min_own_tokens, drop_warmup, last_only, purpose
    )
    study = study_of(log, transfer, languages, settings, seed, vocabulary=vocabulary)
    if law == AUTO and len(set(study.log.mixture_keys)) == 1:
        law = Chinchilla  # the one law that one mixture tells
    free = isinstance(law, str) and law == AUTO
    require_purpose(settings, free)
    parts = parted(study, LearnedBase if free else law_of(law), progress)
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
