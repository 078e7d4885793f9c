"""What is known before a plan: the runs so far, the law fitted to them, and what to believe of other mixtures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from shapleymix.errors import DataError, FitError, Location, UsageError, described
from shapleymix.fitting.absent import SOME
from shapleymix.fitting.evidence import Logs, own_source
from shapleymix.fitting.fit import fit as fitted_to
from shapleymix.fitting.fits import Fit
from shapleymix.fitting.settings import FitKeywords
from shapleymix.laws import Law
from shapleymix.laws.terms import PowerTerms
from shapleymix.mixing.engine.search import is_convex
from shapleymix.planning.belief import Belief, before_any_run, under_power_terms, under_replicates
from shapleymix.records import BoolArray, FloatArray
from shapleymix.tables.joining import concat
from shapleymix.tables.languages import Languages
from shapleymix.tables.names import check_label, repeated
from shapleymix.tables.run_reading import read_runs
from shapleymix.tables.runs import RunLog
from shapleymix.tables.sheets import listed
from shapleymix.tables.sizes import parse_size
from shapleymix.tables.spelling import composed

REPLICATES = 64
"""Replicates of the fit that a plan makes: the optima of so many are asked about."""
LEAST_NOISE = 1e-3
USUAL_NOISE = 0.01
"""Scatter of a run's log loss about a fitted law that does not say it: seeds of small models."""
SPREAD = 2.563
"""Between the tenth and the ninetieth of a hundred normal numbers, in standard deviations."""
SAME = 1e-6
"""Ratios that differ by less are one."""
NO_FIT = "the runs are planned by what is believed before any run"


@dataclass(frozen=True)
class Knowledge:
    """The runs so far and the law fitted to them.

    Attributes
    ----------
    sources, targets : tuple of str
        M and K labels.
    log : RunLog, optional
        The trained runs so far, and those planned already; None before any.
    fit : Fit, optional
        The fitted law; None where there is none.
    notices : tuple of str
        What was assumed.
    """

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    log: RunLog | None
    fit: Fit | None
    notices: tuple[str, ...]

    @property
    def own(self) -> BoolArray:
        """(M, K) whether a source and a target have one name."""
        return np.array([[source == target for target in self.targets] for source in self.sources], dtype=bool)

    @property
    def mixtures(self) -> FloatArray:
        """(R, M) the different mixtures of the runs so far."""
        return self._evidence()[0]

    def usual_budget(self) -> tuple[float, float]:
        """The cheapest N that most mixtures so far were trained at, and the middle D of the ends of those runs.

        Without a log those of the fit's largest runs, NaN without both.
        """
        if self.log is not None:
            return _usual(self.log)
        if self.fit is not None:
            return float(self.fit.N_range[1]), float(self.fit.D_range[1])
        return np.nan, np.nan

    @property
    def usual_because(self) -> str:
        """Why planned runs have that N and D."""
        if self.log is not None:
            sizes = len(np.unique(self.log.N))
            return "as most mixtures so far" + (", the smallest of such sizes" if sizes > 1 else "")
        return "as the fit's largest runs" if self.fit is not None else "no run and no fit says which"

    def belief(self, N: float, D: float, around: FloatArray) -> Belief:
        """What is believed of the log losses of mixtures at one budget, once the runs so far are counted.

        The mixture `around` (M,) is where a fitted law is trusted most.

        Raises
        ------
        UsageError
            If a fit comes without its runs, and has no replicates that say how sure it is.
        """
        if self.fit is None:
            return before_any_run(self.own).after(*self._evidence())
        noise, fit = self._noise(self.fit), self.fit
        terms = fit.terms(N, D) if is_convex(fit, N, D) else None
        if isinstance(terms, PowerTerms) and self.log is not None:
            return under_power_terms(terms, self.own, noise, around).after(*self._evidence())
        replicates = fit.replicates
        if replicates is None:
            hint = "give the log of its runs as well, or a fit with replicates"
            if self.log is not None:
                hint = "plan with a law whose symbols have replicates, such as 'learned-base'"
            raise UsageError("the fit does not say how sure it is of mixtures that were not trained", hint=hint)

        def log_losses(p: FloatArray) -> FloatArray:
            return np.log(replicates.losses(p, np.full(len(p), N), np.full(len(p), D)))

        return under_replicates(log_losses, noise)

    def _evidence(self) -> tuple[FloatArray, FloatArray, BoolArray]:
        """Different mixtures (R, M), how many runs had each (R,), and whose losses (R, K) they will have told.

        The checkpoints of a run are one observation of its mixture, and runs without any loss will have all; but none
        that the fit leaves out or sets apart.
        """
        if self.log is None:
            return np.zeros((0, len(self.sources))), np.zeros(0), np.zeros((0, len(self.targets)), dtype=bool)
        group, first = np.unique(self.log.groups, return_index=True)
        seen = self.log.measured if self.log.loss.shape[1] else np.zeros((len(self.log), len(self.targets)), dtype=bool)
        seen = (seen | ~seen.any(axis=1, keepdims=True)) & self.tells(self.log.p, self.log.D)
        runs = np.array(self.log.runs)
        rows = [self.log.groups == one for one in group]
        counts = np.array([len(set(runs[row].tolist())) for row in rows], dtype=np.float64)
        return self.log.p[first], counts, np.array([seen[row].any(axis=0) for row in rows])

    def tells(self, p: FloatArray, D: FloatArray | float) -> BoolArray:
        """Of which losses (R, K) of runs with mixtures (R, M) and tokens D the fitted law learns.

        Of none whose own language has fewer tokens than the fit asks for, or none where such runs were fitted apart.
        """
        own = own_source(self.sources, self.targets)
        tokens = np.where(own >= 0, p[:, np.maximum(own, 0)] * np.reshape(D, (-1, 1)), np.inf)
        return tokens >= (0.0 if self.fit is None else _least_own(self.fit))

    def _noise(self, fit: Fit) -> FloatArray:
        """Variance (K,) of a run's log loss about the law: of held-out runs, without their few largest residuals.

        Without them that of the runs themselves, which the law follows too closely: no less than seeds usually do.
        """
        if fit.residuals is None and self.log is not None:
            log = self.log
            residual = np.log(log.loss / fit.law.losses(log.p, log.N, log.D))
            known = np.where(np.isfinite(residual), residual, 0.0)
            count = np.maximum(np.isfinite(residual).sum(axis=0), 1)
            return np.maximum(np.sum(known**2, axis=0) / count, USUAL_NOISE**2)
        if fit.residuals is None:
            return np.full(len(self.targets), USUAL_NOISE**2)
        return np.maximum((fit.residuals[89] - fit.residuals[9]) / SPREAD, LEAST_NOISE) ** 2


def _least_own(fit: Fit) -> float:
    """Tokens of its own language that a loss needs to be fitted."""
    if fit.absent is not None:
        return SOME
    least = fit.provenance.get("min_own_tokens")
    return parse_size(least) if isinstance(least, (int, float, str)) else 0.0


def knowledge_of(
    log: Logs | None,
    fit: Fit | None,
    law: str | type[Law],
    languages: Languages | None,
    sources: Sequence[str] | None,
    targets: Sequence[str] | None,
    seed: int,
    settings: FitKeywords,
) -> Knowledge:
    """What is known, with labels from whatever says them: the fit, the log, the names given, the languages table.

    Raises
    ------
    UsageError
        If nothing says what the sources are, or the log is not that of the fit.
    DataError
        If the log has other labels than the fit.
    """
    runs = None if log is None else _read(log)
    if sources is not None and (runs is not None or fit is not None):
        raise UsageError("sources are those of the runs so far", hint="leave out sources, or the log and the fit")
    notices: tuple[str, ...] = ()
    if runs is not None and fit is None and runs.measured.any():
        fit, notices = _fitted(runs, law, seed, settings)
    if fit is not None:
        seen = _like(runs, fit.sources, fit.targets)
        if seen is not None:
            _require_runs_of(fit, seen)
        return Knowledge(fit.sources, fit.targets, seen, fit, notices)
    names = _named(sources, languages) if runs is None else runs.sources
    heads = _checked(targets, "targets") if targets is not None else (() if runs is None else runs.targets) or names
    return Knowledge(names, heads, _like(runs, names, heads), None, notices)


def _usual(log: RunLog) -> tuple[float, float]:
    """The size at which most mixtures were trained, the smallest of equals, and the lower median of its runs' ends."""
    sizes = np.unique(log.N)
    mixtures = [len(np.unique(log.groups[size == log.N])) for size in sizes]
    N = float(sizes[np.argmax(mixtures)])
    runs, D = np.array(log.runs)[N == log.N], log.D[N == log.N]
    ends = [D[runs == run].max() for run in np.unique(runs)]
    return N, float(np.quantile(ends, 0.5, method="lower"))


def _read(given: Logs) -> RunLog:
    """The runs so far: those that are trained or planned, not the untrained models.

    Raises
    ------
    DataError
        If there are none, or they have no ratios.
    """
    read = [one if isinstance(one, RunLog) else read_runs(one, losses="optional") for one in listed(given)]
    log = concat(read, losses="optional")
    kept = log.select(log.trained)
    if not len(kept) or not kept.sources:
        place = Location(file=log.origin)
        raise DataError("holds no run with a mixture", location=place, hint="leave it out to plan before any run")
    return kept


def _require_runs_of(fit: Fit, log: RunLog) -> None:
    """A fit is looked at through its own runs: those of another log would tell what they never told.

    Raises
    ------
    UsageError
        If the log holds less of a source, or more, than the fit ever saw for a target.
    """
    seen = log.measured.T[:, :, None]  # (K, R, 1)
    least = np.min(np.where(seen, log.p, np.inf), axis=1, initial=np.inf)
    most = np.max(np.where(seen, log.p, -np.inf), axis=1, initial=-np.inf)
    low, high = np.moveaxis(fit.coverage.p_range, -1, 0)
    missing = np.argwhere((least > low + SAME) | (most < high - SAME))
    if len(missing):
        k, i = missing[0].tolist()
        held = f"{least[k, i]:.3g} to {most[k, i]:.3g}" if seen[k].any() else "none"
        raise UsageError(
            f"the log does not hold the runs of the fit: loss_{log.targets[k]} was fitted where {log.sources[i]} has a "
            f"ratio of {low[k, i]:.3g} to {high[k, i]:.3g}, and the log has {held}",
            hint="give all the logs that the fit was made from, or leave the fit out",
        )


def _fitted(log: RunLog, law: str | type[Law], seed: int, settings: FitKeywords) -> tuple[Fit | None, tuple[str, ...]]:
    """The law fitted to the rows that have a loss, or why there is none."""
    try:
        found = fitted_to(log.select(log.measured.any(axis=1)), law, seed=seed, **settings)
    except (FitError, DataError) as error:
        return None, (f"no law could be fitted to the runs so far ({error.message}): {NO_FIT}",)
    return found, ()


def _like(log: RunLog | None, sources: tuple[str, ...], targets: tuple[str, ...]) -> RunLog | None:
    """The log with these columns; losses that it has no columns for are not measured."""
    if log is None:
        return None
    if not log.targets:
        log = replace(log, targets=targets, loss=np.full((len(log), len(targets)), np.nan))
    return log.aligned(sources, targets)


def _named(sources: Sequence[str] | None, languages: Languages | None) -> tuple[str, ...]:
    """The sources where no run says them."""
    if sources is not None:
        return _checked(sources, "sources")
    if languages is None:
        raise UsageError("nothing says what the sources are", hint="give sources, a log, a fit or a languages table")
    return languages.names


def _checked(given: Sequence[str], what: str) -> tuple[str, ...]:
    """Labels, each usable and none twice.

    Raises
    ------
    UsageError
        Naming the first that is not.
    """
    hint = "give a list of names, such as ['en', 'de']"
    if isinstance(given, str) or not all(isinstance(name, str) for name in given):
        raise UsageError(f"{what}: {described(given)} is no list of names", hint=hint)
    names = tuple(map(composed, given))
    wrong = [f"{name!r} {why}" for name in names if (why := check_label(name))]
    wrong += [f"{name!r} is given twice" for name in repeated(names)]
    if wrong or not names:
        raise UsageError(f"{what}: {wrong[0] if wrong else 'none is given'}", hint=hint)
    return names
