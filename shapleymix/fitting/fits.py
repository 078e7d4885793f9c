"""From logs to a fitted law with its held-out error and its error bars."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from shapleymix.errors import FitError, UsageError
from shapleymix.fitting.candidates import allowed, candidate, named_law, require_runs
from shapleymix.fitting.comparison import Comparison, contest
from shapleymix.fitting.estimation import Estimate, Problem, Settings
from shapleymix.fitting.evidence import Evidence, Logs, Table, bootstrap_shares, evidence_of, fold_masks, inputs_of
from shapleymix.fitting.prediction import Prediction, Spread, outside, residual_quantiles
from shapleymix.fitting.provenance import provenance_of
from shapleymix.fitting.scores import Scores, score
from shapleymix.fitting.standing import TargetStatus, reasons, statuses
from shapleymix.laws import BlackBox, Inputs, Law
from shapleymix.laws.base import Terms
from shapleymix.records import FloatArray, Record
from shapleymix.tables.languages import Languages
from shapleymix.tables.simplex import check, parse_mixture
from shapleymix.tables.sizes import parse_size
from shapleymix.tables.transfer import TransferMatrix

Progress = Callable[[str, int, int], None]
AUTO = "auto"


@dataclass(frozen=True)
class Fit(Record):
    """A fitted law with everything that a reader of its numbers should know.

    `replicates` is the same law with a leading axis of bootstrap replicates; `residuals` (99, K) are quantiles of
    held-out log residuals; `dropped` maps symbols that the data cannot tell to the reason; `selection` is the
    comparison from which `--law auto` chose.
    """

    kind = "fit"

    law: Law
    replicates: Law | None
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    status: tuple[TargetStatus, ...]
    dropped: dict[str, str]
    fitted_scores: Scores
    held_out: Scores | None
    residuals: FloatArray | None
    selection: Comparison | None
    N_range: FloatArray
    D_range: FloatArray
    p_range: FloatArray
    rows: int
    notices: tuple[str, ...]
    provenance: dict[str, Any]

    def __post_init__(self) -> None:
        for law, leading in ((self.law, 0), (self.replicates, 1)):
            if law is not None:
                law.check(len(self.sources), len(self.targets), leading)
        if self.p_range.size != 2 * len(self.sources) or len(self.status) != len(self.targets):
            raise ValueError("the ranges and states do not match the languages")

    def predict(
        self,
        p: FloatArray | Mapping[str, float] | str,
        N: FloatArray | float | str,
        D: FloatArray | float | str,
        level: float = 0.9,
        runs: tuple[str, ...] | None = None,
    ) -> Prediction:
        """Losses at mixtures p, sizes N and token counts D, which broadcast over each other.

        Parameters
        ----------
        p
            (R, M) or (M,) ratios in the order of `sources`, or one mixture as a mapping or `"en=.5,de=.5"`.
        N, D
            Numbers, arrays (R,), or sizes such as `"3171M"`.
        level
            Probability that the interval holds a new run's loss.

        Raises
        ------
        DataError, UsageError
            If a ratio is negative, a mixture does not sum to one, or N or D is not positive.
        """
        if not 0 < level < 1:
            raise UsageError(f"level {level} is not between 0 and 1")
        mixtures, sizes, tokens = self._points(p, N, D)
        losses = np.broadcast_to(self.law(mixtures, sizes, tokens), (len(mixtures), len(self.targets)))
        low, high = Spread(self.replicates, self.residuals).interval(losses, mixtures, sizes, tokens, level)
        warnings = outside(
            mixtures,
            sizes,
            tokens,
            self.sources,
            self.p_range,
            self.N_range,
            self.D_range,
            self.law.untold(self.dropped),
        )
        names = runs or tuple(str(index) for index in range(len(mixtures)))
        return Prediction(
            names, self.sources, self.targets, sizes, tokens, mixtures, losses.copy(), low, high, level,
            warnings + _undefined(losses),
        )  # fmt: skip

    def terms(self, N: float, D: float) -> Terms:
        """The law at one budget as convex pieces in the mixture.

        Raises
        ------
        SolveError
            If the law has none, with the reason.
        """
        return self.law.terms(float(N), float(D))

    def replicate_terms(self, N: float, D: float) -> Terms | None:
        """The same for every bootstrap replicate, with a leading axis; None without replicates."""
        return None if self.replicates is None else self.replicates.terms(float(N), float(D))

    def parameters(self, level: float = 0.9) -> list[tuple[str, str | None, str, float, float, float]]:
        """(symbol, source or None, target, value, low, high) of every fitted symbol; NaN bounds without replicates."""
        tails = [0.5 - level / 2, 0.5 + level / 2]
        rows = []
        for known in type(self.law).fitted():
            if known.name in self.dropped and not np.any(getattr(self.law, known.name)):
                continue
            value = np.atleast_2d(getattr(self.law, known.name))
            spread = np.full((2, *value.shape), np.nan)
            if self.replicates is not None:
                spread = np.quantile(getattr(self.replicates, known.name), tails, axis=0).reshape(2, *value.shape)
            labels = self.sources if known.axes == "MK" else (None,)
            rows += [
                (known.name, source, target, float(value[i, j]), float(spread[0, i, j]), float(spread[1, i, j]))
                for j, target in enumerate(self.targets)
                for i, source in enumerate(labels)
            ]
        return rows

    def _points(self, p: Any, N: Any, D: Any) -> tuple[FloatArray, FloatArray, FloatArray]:
        if isinstance(p, (str, Mapping)):
            p = parse_mixture(p, self.sources)
        mixtures = np.atleast_2d(np.asarray(p, dtype=np.float64))
        if self.sources:
            check(mixtures, tolerance=5e-3)
        if mixtures.shape[1] != len(self.sources):
            hint = f"the order is {', '.join(self.sources)}"
            raise UsageError(f"a mixture of {mixtures.shape[1]} ratios, expected {len(self.sources)}", hint=hint)
        sizes, tokens = _positive(N, "N"), _positive(D, "D")
        rows = max(len(mixtures), len(sizes), len(tokens))
        spread = [np.broadcast_to(values, (rows,)).astype(np.float64) for values in (sizes, tokens)]
        return np.broadcast_to(mixtures, (rows, mixtures.shape[1])).copy(), spread[0], spread[1]


def _positive(value: Any, name: str) -> FloatArray:
    numbers = np.atleast_1d(np.asarray(parse_size(value) if isinstance(value, str) else value, dtype=np.float64))
    if not (np.isfinite(numbers) & (numbers >= 1)).all():
        raise UsageError(f"{name} must be finite and at least 1", hint="sizes are written 243M, 100B or 1.5e9")
    return numbers


def _undefined(losses: FloatArray) -> tuple[str, ...]:
    count = int(np.isnan(losses).sum())
    return (f"the law is undefined (Theta = 0) for {count} of {losses.size} losses",) if count else ()


def fit(
    log: Logs,
    law: str | type[Law] = AUTO,
    transfer: TransferMatrix | Table | None = None,
    languages: Languages | Table | None = None,
    *,
    seed: int = 0,
    bootstrap: int = 200,
    folds: int = 10,
    delta: float = 1e-3,
    prior: float = 1e-5,
    starts: int = 6,
    min_tokens: float = 0.0,
    min_own_tokens: float = 0.0,
    threads: int = 2,
    progress: Progress | None = None,
) -> Fit:
    """Fit a law to run logs.

    Parameters
    ----------
    log
        A RunLog, a path, or several; coalition runs at a small size inform the transfer at a large one.
    law
        A law's name or class; `"auto"` takes the simplest law within one standard error of the best in grouped
        cross-validation, among those that the inputs allow.
    transfer, languages
        The SV matrix and the languages table, for laws that need them.
    seed
        Of the bootstrap; the same inputs and seed give the same bytes.
    bootstrap
        Replicates; 0 for none.
    folds
        Of the cross-validation that gives the held-out error; 0 for none (not with auto).
    delta
        Huber's threshold on log residuals; `inf` is plain least squares.
    prior
        Precision of the weak prior on learned coefficients.
    min_tokens, min_own_tokens
        Filters on rows; see `evidence.Filters`.

    Raises
    ------
    DataError, UsageError, FitError
        If a table is wrong, a name is unknown, or the runs are too few for the law.
    """
    settings = Settings(delta=delta, prior=prior, starts=starts, threads=threads)
    evidence = evidence_of(log, min_tokens, min_own_tokens)
    inputs = inputs_of(evidence.log, transfer, languages)
    selection = None
    if law == AUTO:
        selection = _select(evidence, inputs, settings, folds, seed, progress)
        law = selection.simplest()
    chosen = named_law(law) if isinstance(law, str) else law
    notices = list(evidence.log.notices + evidence.notices)
    held = _hold_out(chosen, evidence, inputs, settings, folds, seed, notices)
    if progress is not None:
        progress(f"fitting {chosen.name}", 0, 1)
    if issubclass(chosen, BlackBox):
        parts = _learned(chosen, evidence, inputs, seed)
        notices.append("a black box has no replicates: intervals come from held-out errors alone")
    else:
        parts = _estimated(chosen, evidence, inputs, settings, bootstrap, seed, progress)
        notices += _thin(chosen, evidence)
    point: Law = parts["law"]
    log_ = evidence.log
    seen = np.where(evidence.weight > 0, log_.loss, np.nan)
    fitted_losses = np.broadcast_to(point(log_.p, log_.N, log_.D), seen.shape)
    return Fit(
        **parts,
        sources=inputs.sources,
        targets=inputs.targets,
        fitted_scores=score(inputs.targets, seen, fitted_losses),
        held_out=None if held is None else score(inputs.targets, seen, held),
        residuals=None if held is None else residual_quantiles(seen, held),
        selection=selection,
        N_range=np.array([log_.N.min(), log_.N.max()]),
        D_range=np.array([log_.D.min(), log_.D.max()]),
        p_range=np.stack([log_.p.min(axis=0), log_.p.max(axis=0)], axis=1),
        rows=len(log_),
        notices=tuple(notices),
        provenance=provenance_of(evidence, inputs, chosen, settings, seed, bootstrap, folds),
    )


def _select(
    evidence: Evidence, inputs: Inputs, settings: Settings, folds: int, seed: int, progress: Progress | None
) -> Comparison:
    if folds < 2:
        raise UsageError("law auto needs cross-validation", hint="use --folds 2 or more, or name a law with --law")
    contenders = [candidate(name, settings) for name in allowed(inputs)]
    mixtures = len(set(evidence.log.mixture_keys))
    if mixtures < 3:
        message = f"law auto needs at least three different mixtures; the log has {mixtures}"
        raise FitError(message, hint="give more runs, or name a law with --law (law= in Python)")
    count = min(folds, mixtures)
    design = f"{count}-fold cross-validation grouped by mixture"
    return contest(contenders, evidence, inputs, fold_masks(evidence.log, count), design, seed, progress)


def _hold_out(
    law: type[Law],
    evidence: Evidence,
    inputs: Inputs,
    settings: Settings,
    folds: int,
    seed: int,
    notices: list[str],
) -> FloatArray | None:
    """Predictions of every row by a fit that did not see its mixture; None if there are too few mixtures."""
    mixtures = len(set(evidence.log.mixture_keys))
    if folds == 0:
        notices.append("no held-out error was asked for (folds = 0)")
        return None
    if mixtures < 3:
        notices.append(f"{mixtures} different mixtures are too few for a held-out error")
        return None
    masks = fold_masks(evidence.log, min(folds, mixtures))
    try:
        return candidate(law, settings, seed).predict_held_out(evidence, inputs, masks)
    except FitError as error:
        notices.append(f"no held-out error: in a fold, {error.message}")
        return None


def _learned(law: type[BlackBox], evidence: Evidence, inputs: Inputs, seed: int) -> dict[str, Any]:
    log, seen = evidence.log, evidence.observations(law, inputs)
    learned = law.learn(log.p, log.N, log.D, seen.log_loss, seen.weight, log.groups, seed)
    status = tuple(TargetStatus(target, "converged", "") for target in inputs.targets)
    return {"law": learned, "replicates": None, "status": status, "dropped": {}}


def _estimated(
    law: type[Law],
    evidence: Evidence,
    inputs: Inputs,
    settings: Settings,
    bootstrap: int,
    seed: int,
    progress: Progress | None,
) -> dict[str, Any]:
    problem = Problem.of(law, evidence, inputs, settings)
    require_runs(problem, evidence, np.ones(len(evidence.log), dtype=bool))
    estimate = problem.estimate(np.ones((1, len(evidence.log))))
    replicates = None
    if bootstrap:
        report = None if progress is None else (lambda done, total: progress("bootstrap", done, total))
        shares = bootstrap_shares(evidence.log, bootstrap, seed)
        replicates = problem.resample(shares, estimate.x[0], report).law
    return {
        "law": _first(estimate),
        "replicates": replicates,
        "status": statuses(problem, estimate),
        "dropped": reasons(law, problem.packing.held, evidence),
    }


def _first(estimate: Estimate) -> Law:
    """The law of the first weighting, without the leading axis."""
    return estimate.law.mapped(lambda known, value: value[0])


def _thin(law: type[Law], evidence: Evidence) -> list[str]:
    """Learned transfer wants about three mixtures a source."""
    sources, mixtures = len(evidence.log.sources), len(set(evidence.log.mixture_keys))
    learns = any(known.axes == "MK" for known in law.fitted())
    if not learns or mixtures >= 3 * sources:
        return []
    return [f"{mixtures} mixtures for {sources} sources: learned transfer wants {3 * sources}, and 5 a source is safe"]
