"""From logs to a fitted law, and what it answers: its error bars, its surface at a budget, its score on a log."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Unpack

import numpy as np
from numpy.typing import ArrayLike

from shapleymix.display import Columns, Tabular
from shapleymix.errors import DataError, Location, caution
from shapleymix.files import Json
from shapleymix.fitting.coverage import Extrapolation
from shapleymix.fitting.evidence import TRACE, Logs, is_finished, one_log, own_source, traceless
from shapleymix.fitting.held_out import Scores, choose_law, score
from shapleymix.fitting.jumps import Jumps
from shapleymix.fitting.noise import Noise, form_draws, form_errors
from shapleymix.fitting.one_law import LawFit, fit_other_form, score_fit
from shapleymix.fitting.prediction import MOST_WARNINGS, BudgetSpec, Names, Points, Prediction, points_of, tokens_of
from shapleymix.fitting.regimes import RegimeSplit, fit_regimes, part_regimes
from shapleymix.fitting.repetition import ParameterRow, limits_of_points, warnings_of_repetition
from shapleymix.fitting.settings import AUTO, FINAL, LEVEL, SEED, Keywords, Settings, with_settings
from shapleymix.fitting.study import Progress, study_of
from shapleymix.fitting.surface import SAMPLES, LawAtBudget, LossSource, Score, Surface, recenter, widen, with_score
from shapleymix.fitting.symbols import sort_held
from shapleymix.laws import Law
from shapleymix.laws.core import Chinchilla, CoreLaw, Kaplan, models_harm
from shapleymix.records import BoolArray, FloatArray, IntArray, Record
from shapleymix.statistics import interval_ends, ranks_of
from shapleymix.tables.languages import LanguagesSpec, Unit, harm_map, languages_of, paths_of, tokens_at_hand, unit_of
from shapleymix.tables.mixtures import epochs_of
from shapleymix.tables.runs import RunLog
from shapleymix.tables.sheets import Table
from shapleymix.tables.transfer import TransferMatrix
from shapleymix.tables.words import Amounts, format_range, parse_level

ONE_MIXTURE = "all runs have one mixture, so the fit knows N and D alone: to tell mixtures apart, add runs of others"


@dataclass(frozen=True)
class Fit(Tabular, LawFit):
    """A fitted law with everything that a reader of its numbers should know.

    Attributes
    ----------
    law, replicates : Law
        The fitted law, and the same with a leading axis of bootstrap replicates (None without them).
    sources, targets : tuple of str
        M and K labels.
    stopped : tuple of str
        Targets at which the search stopped early.
    held : tuple of str
        Symbols that the data do not determine.
    fitted_scores, held_out : Scores, optional
        Scores on the fitted losses, and on losses that the fit did not see.
    residual : Residual
        What the law misses of mixtures near the fitted ones, which is added to all that it predicts.
    coverage, rows : Coverage and int
        What the used losses cover, target by target, and of how many rows they are.
    notices : tuple of str
        What was left out, and what the user should check.
    provenance : dict
        Inputs and settings from which the fit can be made again.
    repetition : Repetition, optional
        What repeated tokens are worth and the harm that they do; None for a law that has no place for them.
    absent : LawFit, optional
        The law fitted to all runs, which tells the losses of mixtures without a target's own language, where the log
        shows that these are another regime.
    own : int array (K,)
        Each target's own source, without which its loss is of that regime; -1 where there is nothing to tell apart.
    knobs : dict of str to array (K,)
        What cross-validation chose of what the law believes before any run: each of its `knobs`, for every target.
    noise : Noise, optional
        How runs scatter about the law; None where nothing was held out.
    other_form : Kaplan, optional
        Another form of the law's curve in N and D, by as much as which this may err; None where runs tell no form.
    caveats : tuple of str
        Of the notices those that answers repeat: recipes, or an order, that the law takes for effects of the mixture.
    parents : dict of str to str
        Whose part a source is, where the languages table said so and not its name.
    jumps : Jumps, optional
        Jumps of losses which the law does not have; None without any.
    """

    kind = "fit"
    axes: ClassVar[Mapping[str, str]] = {"sources": "M", "targets": "K", "own": "K"}

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    fitted_scores: Scores
    held_out: Scores | None
    rows: int
    notices: tuple[str, ...]
    provenance: dict[str, Json]
    absent: LawFit | None
    own: IntArray
    other_form: Kaplan | None
    caveats: tuple[str, ...]
    parents: dict[str, str]
    jumps: Jumps | None

    def columns(self) -> Columns:
        """One row per fitted symbol, with its interval."""
        names, rows = ("symbol", "source", "target", "value", "low", "high"), self.parameters()
        return {name: [row[place] for row in rows] for place, name in enumerate(names)}

    def headline(self) -> str:
        """The law, and how well it predicts runs that it has not seen."""
        error = "unknown" if self.held_out is None else f"{self.held_out.mean['PE']:.2%}"
        budgets = f"N {format_range(self.N_range)}, D {format_range(self.D_range)}"
        return f"Fit of law {self.law.name} to {self.rows} rows, {budgets}; error on held-out mixtures: {error}"

    @property
    def tells_tokens(self) -> bool:
        """Whether its runs tell what more tokens do, apart from larger models."""
        by_tokens = type(self.law).of_budget("D")
        return not self.coverage.together and not (by_tokens and set(by_tokens) <= set(self.held))

    @property
    def seed(self) -> int:
        """The seed that the fit was made with."""
        given = self.provenance.get("seed", 0)
        return given if isinstance(given, int) else 0

    @property
    def N_range(self) -> FloatArray:
        """(2,) fewest and most parameters over all targets."""
        return np.array([self.coverage.N_range[:, 0].min(), self.coverage.N_range[:, 1].max()])

    @property
    def D_range(self) -> FloatArray:
        """(2,) fewest and most tokens over all targets."""
        return np.array([self.coverage.D_range[:, 0].min(), self.coverage.D_range[:, 1].max()])

    @property
    def paths(self) -> tuple[str, ...]:
        """(M,) whose part each source is."""
        return paths_of(self.sources, self.parents, self.targets)

    @property
    def unseen(self) -> tuple[str, ...]:
        """Sources with ratio 0 in every used run: nothing is known of their effect."""
        return self.coverage.unseen(self.sources)

    @property
    def thin(self) -> dict[str, str]:
        """Sources of whose effect on some target little is known, with the reason and, where not all, the targets."""
        return self.coverage.thin(self.sources, self.targets)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What makes numbers of this fit untrustworthy."""
        found = list(filter(None, [self.coverage.parting, self.coverage.describe_ties(self.sources)]))
        found += [f"no fitted run holds {name}: its effect is unknown" for name in self.unseen]
        found += [f"little is known of the effect of {name}: {why}" for name, why in self.thin.items()]
        found += [f"{name}: the search stopped early: look at its held-out error" for name in self.stopped]
        return tuple(found)

    def predict(
        self,
        p: Points | RunLog,
        N: BudgetSpec | None = None,
        D: BudgetSpec | None = None,
        level: float = LEVEL,
        runs: tuple[str, ...] | None = None,
        *,
        languages: LanguagesSpec | None = None,
        available: Amounts | None = None,
        unique: ArrayLike | None = None,
        unit: str = "nats",
    ) -> Prediction:
        """Losses at mixtures p, sizes N and token counts D, which broadcast over each other.

        A loss above the untrained model's becomes NaN, and is marked. Warnings also reach Python's `warnings`.

        Parameters
        ----------
        p : Points
            Ratios (R, M) or (M,) in the order of `sources`; or one mixture: a mapping, text such as `"en=.5,de=.5"`, a
            `Mixture`, the path of a saved one, or a baseline's name (`"uniform"`, `"natural"`, `"temperature:T"`,
            `"unimax:E"`, `"text:DIR"`); or a list of such mixtures; or a log, of which trained rows are predicted.
        N, D : Budget, optional
            Numbers, arrays (R,), or sizes such as `"3171M"`; those of a `Mixture` where none are given, with its unique
            tokens.
        level : float
            Probability that the interval holds a new run's loss.
        runs : tuple of str (R,), optional
            Names of the points.
        languages, available : LanguagesSpec and Amounts, optional
            Languages table or its file, and unique tokens by name (`"en=5T"`), which override those of the table: what
            baselines are made of. Tokens beyond them are repeated ones, which are worth less (see `repetition`).
        unique : array (R, M), optional
            Unique tokens where points differ in them, NaN for no limit; baselines take `available` still.
        unit : str
            Unit of the losses: `"nats"` a token, or `"bpb"`, bits a byte by the table's column `bytes_per_token`.

        Raises
        ------
        DataError, UsageError
            If a ratio is negative, a mixture does not sum to one, or N or D is not positive.
        """
        level = parse_level(level)
        if isinstance(p, RunLog):
            log = p.align(self.sources).select(p.trained)
            p, N, D, unique, runs = log.p, log.N, log.D, log.unique, log.runs
        table = languages_of(languages)
        available = tokens_of(p if isinstance(p, (list, tuple)) else [p], available, table)
        supply, read = tokens_at_hand(self.sources, table, available), unit_of(unit, table, self.targets, self.parents)
        names, mixtures, sizes, tokens = points_of(p, N, D, self.sources, supply, runs)
        limits = limits_of_points(unique, supply, mixtures)
        raw, losses, ends = self._evaluate(mixtures, sizes, tokens, limits, level, read)
        place = self.locate(mixtures, sizes, tokens)
        sentences = self.warnings_at(mixtures, sizes, tokens, raw, limits, None if runs is None else names)
        found = Prediction(
            names, self.sources, self.targets, sizes, tokens, mixtures, losses, ends[0], ends[1], level,
            place.outside, (raw > self.coverage.untrained) & ~place.foreign,
            sentences[:MOST_WARNINGS], sentences[MOST_WARNINGS:], read.name,
        )  # fmt: skip
        caution(found.warnings)
        return found

    def _evaluate(
        self, p: FloatArray, N: FloatArray, D: FloatArray, unique: FloatArray, level: float, unit: Unit
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Losses (R, K) in nats as the law gives them, as they are shown, and their ends (2, R, K)."""
        keys = np.column_stack([N, D, np.nan_to_num(unique)])
        _, first, place = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        raw, losses = np.empty((2, len(p), len(self.targets)))
        ends = np.empty((2, *losses.shape))
        for number, row in enumerate(first.tolist()):
            rows = place.reshape(-1) == number
            surface = self.at(float(N[row]), float(D[row]), available=unique[row]).read_in(unit)
            raw[rows], losses[rows] = surface.known.raw(p[rows]), surface.mean(p[rows])
            ends[:, rows] = surface.interval(p[rows], level)
        return raw, losses, np.where(np.isnan(losses), np.nan, ends)

    def at(self, N: float, D: float, *, available: FloatArray | None = None, score: Score | None = None) -> Surface:
        """What the fit knows of losses at N parameters and D tokens.

        Parameters
        ----------
        available : array (M,), optional
            Unique tokens of each source; NaN for no limit.
        score : Score, optional
            Tasks; then error rates are meant.

        Raises
        ------
        SolveError
            If the law overflows there.
        """
        N, D = float(N), float(D)
        known = FitLosses.of(self, N, D, available)
        pieces, draws = known.with_own.pieces, known.with_own.draws
        if draws is not None:
            middle = self.coverage.whole_p_range.mean(axis=1)
            middle /= max(float(middle.sum()), 1e-300)  # the mixture at which replicates are moved to lie about the law
            with np.errstate(invalid="ignore", divide="ignore"):
                factor = known.with_own.of_law(middle) / np.median(draws.losses(middle), axis=0)
            draws = draws.scale_losses(np.where(np.isfinite(factor), factor, 1.0))
        absent, edge = None if known.without is None else known.without.pieces, np.zeros(len(self.own))
        apart = np.flatnonzero(self.own >= 0)
        edge[apart] = np.maximum(self.coverage.p_range[apart, self.own[apart], 0], TRACE)
        supply = np.full(len(self.sources), np.nan) if available is None else np.asarray(available, dtype=np.float64)
        found = Surface(self.sources, self.targets, N, D, "loss", supply, pieces, draws, self.own, edge, absent, known)
        return found if score is None else with_score(found, score)

    def missing_from_intervals(self) -> tuple[str, ...]:
        """What the intervals leave out, in words; nothing if the fit has replicates and held-out residuals."""
        if self.replicates is None and self.noise is None:
            return ("there are no intervals: the fit has neither bootstrap replicates nor held-out residuals",)
        what = ["how little the law is known (no bootstrap replicates)"] * (self.replicates is None)
        what += ["the scatter of a new run (no held-out residuals)"] * (self.noise is None)
        return tuple(f"intervals are too narrow: they leave out {one}" for one in what)

    def locate(self, p: FloatArray, N: FloatArray, D: FloatArray) -> Extrapolation:
        """Where points (R, M) at N and D (R,) lie."""
        held, other = sort_held(self.law, self.held), self.is_other_regime(p)
        return Extrapolation(p, N, D, self.sources, self.targets, self.coverage, held, other)

    def is_other_regime(self, p: FloatArray) -> BoolArray:
        """Which losses (R, K) of mixtures (R, M) are of the other regime, if there is one."""
        if self.absent is None:
            return np.zeros((len(p), len(self.own)), dtype=bool)
        return (self.own >= 0) & (p[:, self.own] < TRACE)

    def is_untold(self, p: FloatArray) -> BoolArray:
        """Losses (R, K) that nothing tells: of another mixture (R, M) than the one of all runs, and of mixtures without
        the target's own source, where a filter on own tokens left out the runs that had none of it.
        """
        if self.coverage.has_one_mixture:
            return np.any(self.coverage.beyond_ratios(p) > 0, axis=2)
        if not self.provenance.get("min_own_tokens") or isinstance(self.law, Chinchilla):
            return np.zeros((len(p), len(self.targets)), dtype=bool)
        own, targets = own_source(self.paths, self.targets), np.arange(len(self.targets))
        had = self.coverage.p_range[targets, own, 0] >= TRACE
        return (own >= 0) & had & (p[:, own] < TRACE)

    def warnings_at(
        self, p: FloatArray, N: FloatArray, D: FloatArray, losses: FloatArray, unique: FloatArray, names: Names
    ) -> tuple[str, ...]:
        """What a reader of losses (R, K) at points (R, M) should know, what matters most first.

        `unique` (R, M) are their unique tokens, NaN for no limit; `names` those of the points.
        """
        place, found = self.locate(p, N, D), list[str]()
        of_repeats = warnings_of_repetition(self.repetition, p, unique, D, self.sources, names)
        if not self.coverage.has_one_mixture and (untold := self.is_untold(p)).any():
            found.append(f"no prediction for {place.name(untold)} without any of it: every fitted run had some")
        found += place.lacking(losses)
        if self.repetition is not None and models_harm(type(self.law)):
            found += self.repetition.much_harm(p, unique, N, D, self.paths, self.targets)
        found += (*of_repeats[:1], *place.beyond())
        if place.foreign.any():
            where = f"where a mixture has none of a target's own language (here {place.name(place.foreign)})"
            found.append(f"{where}, its loss is that of a fit to all runs")
        found += of_repeats[1:]
        return (*found, *(() if self.replicates is None and self.noise is None else self.missing_from_intervals()))

    def parameters(self, level: float = LEVEL) -> list[ParameterRow]:
        """(symbol, source or None, target, value, low, high) of every fitted symbol, but those held at zero.

        Bounds are NaN without replicates.
        """
        level = parse_level(level)
        tails = interval_ends(level)
        rows: list[ParameterRow] = []
        idle, none = self.law.idle(), np.zeros(len(self.targets), dtype=bool)
        for known in type(self.law).symbols_to_fit():
            if known.name in self.held and not np.any(getattr(self.law, known.name)):
                continue
            value = np.atleast_2d(getattr(self.law, known.name))
            spread = np.full((2, *value.shape), np.nan)
            if self.replicates is not None:
                ends = np.quantile(getattr(self.replicates, known.name), tails, axis=0)
                spread = widen(ends.reshape(2, *value.shape), value)
            labels = self.sources if known.axes == "MK" else (None,)
            rows += [
                (known.name, source, target, float(value[i, j]), float(spread[0, i, j]), float(spread[1, i, j]))
                for j, target in enumerate(self.targets)
                if not idle.get(known.name, none)[j]
                for i, source in enumerate(labels)
            ]
        return rows if self.repetition is None else [*rows, *self.repetition.parameters(self.sources, level)]


@dataclass(frozen=True)
class FitLosses(LossSource):
    """What a fit knows at one budget and supply."""

    fit: Fit
    with_own: LawAtBudget
    without: LawAtBudget | None

    @classmethod
    def of(cls, fit: Fit, N: float, D: float, available: FloatArray | None) -> FitLosses:
        """A fit at N parameters, D tokens and unique tokens (M,), NaN for no limit."""
        known, supply = fit.repetition, None
        symbols, drawn = (np.zeros(1 + len(fit.sources)), None) if known is None else (known.symbols, known.replicates)
        if known is not None and available is not None and not np.isnan(available).all():
            supply = np.where(np.isnan(available), np.inf, available / D)
            far = [np.log(one.max()) for one in fit.coverage.beyond_budgets(np.array([N]), np.array([D]))[:2]]
            drawn = known.draw(float(np.hypot(*far)), fit.seed)
        harmed = harm_map(fit.paths, fit.targets)
        twins = fit.coverage.twins(fit.sources, fit.paths, fit.targets)

        def regime(part: LawFit) -> LawAtBudget:
            own = part.law, part.replicates
            return LawAtBudget(*own, N, D, supply, symbols, drawn, harmed, part.residual, twins, fit.jumps)

        other = None if fit.absent is None else regime(fit.absent)
        samples = 1 if fit.noise is None else SAMPLES
        if fit.replicates is not None:
            replicates = fit.replicates.batch()[0]
            samples = replicates * -(-SAMPLES // replicates)
        return cls(fit.targets, samples, fit, regime(fit), other)

    def raw(self, p: FloatArray) -> FloatArray:
        """Losses (R, K), above an untrained model's too, where the law gives such; what it misses lifts none there."""
        return np.stack([self._of_regimes(self._lift(one), one, LawAtBudget.losses) for one in p])

    def _lift(self, p: FloatArray) -> FloatArray:
        """Losses (K,) of mixtures with the target's own language."""
        law = self.with_own.of_law(p)
        return np.minimum(law * self.with_own.missed(p), np.maximum(law, self.fit.coverage.untrained))

    def _of_regimes(
        self, known: FloatArray, p: FloatArray, asked: Callable[[LawAtBudget, FloatArray], FloatArray]
    ) -> FloatArray:
        """Losses (..., K) with those of the other regime where they are meant."""
        there = self.fit.is_other_regime(p[None])[0]
        if self.without is None or not there.any():
            return known
        return np.where(there, asked(self.without, traceless(p)), known)

    def losses(self, p: FloatArray) -> FloatArray:
        return self._of_regimes(self._hide(self._lift(p), p), p, LawAtBudget.losses)

    def of_law(self, p: FloatArray) -> FloatArray:
        return self._of_regimes(self._hide(self.with_own.of_law(p), p), p, LawAtBudget.of_law)

    def _hide(self, found: FloatArray, p: FloatArray) -> FloatArray:
        """Losses (K,) at one mixture (M,), but for those that no model can have or nothing tells."""
        return np.where((found > self.fit.coverage.untrained) | self.fit.is_untold(p[None])[0], np.nan, found)

    def base(self, p: FloatArray, samples: int) -> FloatArray:
        found, jumps = recenter(self.with_own, p, samples), self.fit.jumps
        if jumps is not None and samples > 1:  # the mean is in what the law misses
            q = self.fit.residual.pool(p)
            found = found + jumps.draw(q, samples, self.fit.seed) - jumps.mean(q[None])[0]
        return self._of_regimes(found, p, lambda without, q: recenter(without, q, samples))

    def scatter(self, p: FloatArray, samples: int, *, runs: bool) -> FloatArray:
        absent, noise, there = self.fit.absent, self.fit.noise, self.fit.is_other_regime(p)
        if noise is None:
            return super().scatter(p, samples, runs=runs)
        found = noise.field(p, samples, self.fit.seed, self.fit.residual, runs=runs)
        if absent is None or not there.any():
            return found
        other = noise.field(p, samples, self.fit.seed, absent.residual, runs=runs)
        return np.where(np.hstack([np.zeros((len(p), 1), dtype=bool), there, there]), other, found)

    def _scale_noise(self, noise: Noise, p: FloatArray, unit: FloatArray) -> FloatArray:
        """What unit noise (..., 1 + 2K) makes of the log losses (..., K) of one mixture."""
        absent, own = self.fit.absent, noise.scale
        if absent is not None and absent.noise is not None:
            own = np.where(self.fit.is_other_regime(p[None])[0], np.maximum(absent.noise.scale, own), own)
        return noise.of_targets(unit, own, self._form_errors()[0])

    def _form_errors(self) -> FloatArray:
        return form_errors(self.fit.coverage, self.fit.noise, self.with_own.N, self.with_own.D)

    def errors(self, p: FloatArray, unit: FloatArray) -> FloatArray:
        noise, samples = self.fit.noise, len(unit)
        size, budget = self._form_errors()[1], (self.with_own.N, self.with_own.D)
        if self.fit.other_form is not None and isinstance(self.fit.law, CoreLaw):
            size = np.hypot(size, np.log(self.fit.other_form.core(*budget) / self.fit.law.core(*budget)))
        if self.fit.repetition is not None and self.with_own.supply is not None:
            size = np.hypot(size, self.fit.repetition.form(p, epochs_of(p, self.with_own.supply, 1.0)))
        drawn = form_draws(samples, self.fit.seed) if samples > 1 else np.zeros(1)
        if noise is None:
            return drawn[:, None] * size
        return self._scale_noise(noise, p, unit) + (noise.heavy(samples, self.fit.seed) * drawn)[:, None] * size

    def tilts(self, p: FloatArray, samples: int) -> FloatArray | None:
        noise = self.fit.noise
        if noise is None:
            return None
        # the same draws for a source, whatever their order
        order = ranks_of(np.vstack([self.fit.coverage.whole_p_range.T, p]))
        unit = noise.tilts(p, order, samples, self.fit.seed, self.fit.residual)
        return self._scale_noise(noise, p, unit).swapaxes(1, 2)

    def most(self, p: FloatArray) -> FloatArray:
        return np.where(self.fit.is_other_regime(p[None])[0], np.inf, self.fit.coverage.untrained)

    def outside(self, p: FloatArray) -> BoolArray:
        return self.fit.locate(p, *self._budgets(p)).outside

    def warnings(self, p: FloatArray, names: tuple[str, ...] | None = None) -> tuple[str, ...]:
        known = self.with_own
        unique = np.full(p.shape, np.nan if known.supply is None else known.supply * known.D)
        return self.fit.warnings_at(p, *self._budgets(p), self.raw(p), unique, names)

    def _budgets(self, p: FloatArray) -> tuple[FloatArray, FloatArray]:
        return np.full(len(p), self.with_own.N), np.full(len(p), self.with_own.D)


@dataclass(frozen=True)
class Evaluation(Tabular, Record):
    """Scores of a fit on the trained rows of a log, with the coverage of its intervals at `level`."""

    kind = "evaluation"

    scores: Scores
    level: float
    rows: int
    warnings: tuple[str, ...]

    def columns(self) -> Columns:
        """One row per target."""
        return self.scores.columns()


def evaluate(fit: Fit | str | os.PathLike[str], log: Logs, level: float = LEVEL) -> Evaluation:
    """Score the fit on a log; rows with D = 0, of weight 0, and before the end of their run if it is for final losses,
    are left out. Where the log's `split` holds rows out, these alone are scored.

    Parameters
    ----------
    fit : Fit or path
        The fit, or the file in which one was saved.
    log : RunLog, path, or a sequence of them
        Run logs.
    level : float
        Probability of the intervals whose coverage is counted.

    Raises
    ------
    DataError
        If a language of the fit is missing from the log, or the log has one that the fit does not know.
    UsageError, StoreError
        If the fit is none, or cannot be read.
    """
    fit = Fit.taken(fit)
    rows = one_log(log).align(fit.sources, fit.targets)
    name = fit.provenance.get("tokenizer")
    if name is not None and rows.tokenizer is not None and rows.tokenizer[0] != name:
        message = f"the tokenizer is {rows.tokenizer[0]!r}, that of the fit {name!r}"
        raise DataError(message, location=Location(rows.origin), hint="losses per token cannot be compared")
    early = ~is_finished(rows) & (fit.provenance.get("checkpoints") == FINAL)
    held_out = np.array([label == "held-out" for label in rows.split or ()])
    asked = held_out if held_out.any() else rows.trained
    asked = asked if rows.weight is None else asked & (rows.weight > 0)
    rows = rows.select(rows.trained & ~early & asked)
    if not len(rows):
        hint = "score runs that have ended, of a weight above 0"
        raise DataError("has no row that counts", location=Location(rows.origin), hint=hint)
    predicted = fit.predict(rows, level=level)
    scores = score(fit.targets, rows.loss, predicted.losses, predicted.low, predicted.high)
    return Evaluation(scores, predicted.level, len(rows), predicted.warnings)


@with_settings
def fit(
    log: Logs,
    law: str | type[Law] = AUTO,
    transfer: TransferMatrix | Table | None = None,
    languages: LanguagesSpec | None = None,
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
        A law's name or class; `"auto"` takes `learned-base`, which errs least on most logs that we tried, or
        `chinchilla` for runs of one mixture. `compare` tells whether another is better on yours.
    transfer : table or path, optional
        The transfer matrix, with Shapley values of every source for every target, for laws that need it.
    languages : table or path, optional
        The languages table: families, unique tokens and parents, for laws that need them.
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
    chosen = choose_law(law, study)
    if progress is not None:
        progress(f"fitting {chosen.name}", 0, 1)
    found = fit_of(part_regimes(study), chosen, progress)
    if law == AUTO and chosen is Chinchilla and study.inputs.sources:
        found = replace(found, notices=(ONE_MIXTURE, *found.notices))
    caution(found.warnings)
    return found


def fit_of(parts: RegimeSplit, law: type[Law], progress: Progress | None = None) -> Fit:
    """One law fitted to a study, apart to its regimes.

    Raises
    ------
    FitError
        If the runs are too few for the law.
    """
    study, point, absent = fit_regimes(parts, law, progress)
    log, inputs, apart = study.log, study.inputs, parts.lacking.any(axis=0) & (absent is not None)
    fitted_scores, held_out, odd = score_fit(study, point)
    found = Fit(
        **vars(point.known), sources=inputs.sources, targets=inputs.targets,
        fitted_scores=fitted_scores, held_out=held_out, rows=int(point.used.any(axis=1).sum()),
        notices=(*log.notices, *study.evidence.notices_of(law), *point.notes, *odd), provenance=study.provenance(law),
        absent=absent, own=np.where(apart, own_source(log.paths, log.targets), -1), parents=dict(log.parents),
        other_form=fit_other_form(study, point),
        caveats=tuple(text for text, repeated in odd.items() if repeated),
        jumps=study.evidence.jumps_beside(law),
    )  # fmt: skip
    return replace(found, notices=(*found.notices, *found.missing_from_intervals()))
