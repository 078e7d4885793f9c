"""What a fit answers: the law with its held-out error and error bars, what of it is not known, and what it predicts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from shapleymix.display import Drawn, cut, short
from shapleymix.errors import caution
from shapleymix.fields import AMOUNT, Range
from shapleymix.files import Json
from shapleymix.fitting.absent import Absent, merged
from shapleymix.fitting.beliefs import check_knobs, knobs_told
from shapleymix.fitting.cells import Cells
from shapleymix.fitting.comparisons import Comparison
from shapleymix.fitting.coverage import Coverage
from shapleymix.fitting.exponents import assumed
from shapleymix.fitting.extrapolation import Place, warnings_of, warnings_of_losses
from shapleymix.fitting.misfit import Misfit
from shapleymix.fitting.parameters import Parameter, columns_of, parameters_of
from shapleymix.fitting.prediction import Budget, Points, Prediction, names_of_points, points_of, refuse_outside
from shapleymix.fitting.repetition import Repetition, taken
from shapleymix.fitting.scores import Scores
from shapleymix.fitting.settings import LEVEL, WITHIN
from shapleymix.fitting.standing import TargetStatus
from shapleymix.fitting.uncertainty import Spread, check_quantiles
from shapleymix.laws import Law
from shapleymix.laws.base import Terms
from shapleymix.records import FloatArray, Record
from shapleymix.tables.amounts import parse_level
from shapleymix.tables.by_source import Amounts, tokens_at_hand
from shapleymix.tables.frames import Columns, Tabular
from shapleymix.tables.languages import LanguagesSpec, languages_of
from shapleymix.tables.sizes import format_size


@dataclass(frozen=True)
class Fit(Tabular, Record):
    """A fitted law with everything that a reader of its numbers should know.

    Attributes
    ----------
    law, replicates : Law
        The fitted law, and the same with a leading axis of bootstrap replicates (None without them).
    sources, targets : tuple of str
        M and K labels.
    status : tuple of TargetStatus
        How the fit of each target ended.
    held : dict of str to str
        Symbols that the data do not determine, with the reason and the value that is assumed.
    fitted_scores, held_out : Scores, optional
        Scores on the fitted losses, and on losses that the fit did not see.
    residuals, misfit, selection : array (99, K), Misfit and Comparison, optional
        Quantiles of how held-out log losses scatter about the law, the field of their errors over mixtures, and the
        comparison from which `auto` chose.
    coverage, rows : Coverage and int
        What the used losses cover, target by target, and of how many rows they are.
    notices : tuple of str
        What was left out, and what the user should check.
    provenance : dict
        Inputs and settings from which the fit can be made again.
    repetition, absent : Repetition and Absent, optional
        The rate at which repeated tokens lose their worth (None for a law that has no place for it), and what tells
        the losses of mixtures without a target's own language, where the log shows that these are another regime.
    knobs : dict of str to array (K,)
        What cross-validation chose of what the law believes before any run: each of its `knobs`, for every target.
    cells : Cells, optional
        What held-out losses of one N and D have in common, and how they scatter; None with fewer than two of these.
    """

    kind = "fit"
    plot = Drawn("fits.plot_fit")
    axes: ClassVar[Mapping[str, str]] = {"sources": "M", "targets": "K", "status": "K", "residuals": "QK"}
    ranges: ClassVar[Mapping[str, Range]] = {"rows": AMOUNT}

    law: Law
    replicates: Law | None
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    status: tuple[TargetStatus, ...]
    held: dict[str, str]
    fitted_scores: Scores
    held_out: Scores | None
    residuals: FloatArray | None
    selection: Comparison | None
    misfit: Misfit | None
    coverage: Coverage
    rows: int
    notices: tuple[str, ...]
    provenance: dict[str, Json]
    repetition: Repetition | None = None
    absent: Absent | None = None
    knobs: dict[str, FloatArray] = field(default_factory=dict)
    cells: Cells | None = None

    def __post_init__(self) -> None:
        for law, leading in ((self.law, 0), (self.replicates, 1)):
            if law is not None:
                law.check(len(self.sources), len(self.targets), leading)
        self.coverage.check(self.sources, len(self.targets))
        check_quantiles(self.residuals, len(self.targets))
        check_knobs(self.knobs, len(self.targets))
        for known in (self.misfit, self.cells):
            if known is not None:
                known.check(len(self.targets))
        if self.repetition is not None:
            self.repetition.check(len(self.sources), self.replicates)
        if self.absent is not None:
            self.absent.check(self.sources, len(self.targets), self.replicates)

    def columns(self) -> Columns:
        """One row per fitted symbol, with its interval."""
        return columns_of(self.parameters())

    def summary(self) -> str:
        """The law, how well it predicts runs that it has not seen, what it covers, and what is not known."""
        error = "unknown" if self.held_out is None else f"{self.held_out.mean['PE']:.2%}"
        N, D = (" to ".join(map(format_size, span.tolist())) for span in (self.N_range, self.D_range))
        counts = f"{len(self.sources)} sources, {len(self.targets)} targets, {self.rows} rows"
        return "\n".join(
            [
                f"Fit of law {self.law.name}: {counts}",
                f"  error on held-out mixtures: {error}; N {N}, D {D}",
                f"  targets: {short(self.targets)}",
                *([] if self.repetition is None else self.repetition.told_lines()),
                *map(cut, knobs_told(self.knobs, self.targets)),
                *[f"  held: {symbol}, {why}" for symbol, why in self.held.items()][:4],
                *(cut(f"warning: {text}") for text in self.warnings[:4]),
            ]
        )

    @property
    def N_range(self) -> FloatArray:
        """(2,) fewest and most parameters over all targets."""
        return np.array([self.coverage.N_range[:, 0].min(), self.coverage.N_range[:, 1].max()])

    @property
    def D_range(self) -> FloatArray:
        """(2,) fewest and most tokens over all targets."""
        return np.array([self.coverage.D_range[:, 0].min(), self.coverage.D_range[:, 1].max()])

    @property
    def p_range(self) -> FloatArray:
        """(M, 2) lowest and highest ratio of each source over all targets."""
        return self.coverage.whole_p_range

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
        found = [f"no used run holds {name}: nothing is known of its effect" for name in self.unseen]
        found += [f"little is known of the effect of {name}: {why}" for name, why in self.thin.items()]
        found += [f"{one.target}: {one.advice}" for one in self.status if one.state == "not-converged"]
        return tuple(found)

    def predict(
        self,
        p: Points,
        N: Budget | None = None,
        D: Budget | None = None,
        level: float = LEVEL,
        runs: tuple[str, ...] | None = None,
        *,
        languages: LanguagesSpec | None = None,
        available: Amounts | None = None,
        unique: ArrayLike | None = None,
        strict: bool = False,
    ) -> Prediction:
        """Losses at mixtures p, sizes N and token counts D, which broadcast over each other.

        A loss above the untrained model's becomes NaN, and is marked. Warnings also reach Python's `warnings`.

        Parameters
        ----------
        p : Points
            Ratios (R, M) or (M,) in the order of `sources`; or one mixture: a mapping, text such as `"en=.5,de=.5"`, a
            `Mixture`, the path of a saved one, or a baseline's name (`"uniform"`, `"natural"`, `"temperature:T"`,
            `"unimax:E"`); or a list of such mixtures.
        N, D : Budget, optional
            Numbers, arrays (R,), or sizes such as `"3171M"`; those of a `Mixture` where none are given.
        level : float
            Probability that the interval holds a new run's loss.
        runs : tuple of str (R,), optional
            Names of the points.
        languages, available : LanguagesSpec and Amounts, optional
            Languages table or its file, and unique tokens by name (`"en=5T"`), which override those of the table: what
            baselines are made of. Tokens beyond them are repeated ones, which are worth less (see `repetition`).
        unique : array (R, M), optional
            Unique tokens where points differ in them, NaN for no limit; baselines take `available` still.
        strict : bool
            Refuse points outside of what was fitted instead of warning.

        Raises
        ------
        DataError, UsageError
            If a ratio is negative, a mixture does not sum to one, or N or D is not positive; with `strict`, if a point
            lies outside of what was fitted.
        """
        level = parse_level(level)
        supply = tokens_at_hand(self.sources, languages_of(languages), available)
        mixtures, sizes, tokens = points_of(p, N, D, self.sources, supply)
        names = names_of_points(runs, len(mixtures))
        counted = taken(self.repetition, mixtures, unique, supply, tokens)
        losses, spread = self.law.losses(counted.q, sizes, tokens), self._spread
        known = losses, *spread.interval(losses, counted.replicates, sizes, tokens, level)
        losses, low, high, other = merged(known, self.absent, counted, (sizes, tokens), level)
        impossible = (losses > self.coverage.untrained) & ~other
        labels, drawn = (self.sources, self.targets), self.replicates is not None
        place = Place(mixtures, sizes, tokens, *labels, self.coverage, assumed(self.law, self.held), drawn, other)
        narrow = spread.lacks(self.targets) if np.isfinite(low).any() else ()
        apart = () if self.absent is None else self.absent.warnings(self.targets, mixtures)
        by_folds = self.selection is not None and self.provenance.get("purpose") == WITHIN
        beyond = (*warnings_of(place, by_folds=by_folds), *warnings_of_losses(losses, place))
        warnings = (*beyond, *narrow, *counted.warnings(self.sources, None if runs is None else names), *apart)
        losses, low, high = (np.where(impossible, np.nan, values) for values in (losses, low, high))
        found = Prediction(
            names, self.sources, self.targets, sizes, tokens, mixtures, losses, low, high, level,
            place.outside, impossible, warnings,
        )  # fmt: skip
        if strict:
            refuse_outside(found)
        caution(warnings)
        return found

    @property
    def _spread(self) -> Spread:
        return Spread(self.replicates, self.residuals, self.coverage, self.cells)

    def terms(self, N: float, D: float) -> Terms:
        """The law at one budget as convex pieces in the mixture.

        Raises
        ------
        SolveError
            If the law has none, with the reason.
        """
        return self.law.terms(float(N), float(D))

    def replicate_terms(self, N: float, D: float) -> Terms | None:
        """The same for every bootstrap replicate, with a leading axis; None without replicates.

        Beyond the fitted budgets the replicates also differ by what the law's form may err there.
        """
        return self._spread.terms(float(N), float(D))

    def parameters(self, level: float = LEVEL) -> list[Parameter]:
        """(symbol, source or None, target, value, low, high) of every fitted symbol; NaN bounds without replicates."""
        level = parse_level(level)
        shared = [] if self.repetition is None else self.repetition.parameters(level)
        return [*parameters_of(self.law, self.replicates, self.held, self.sources, self.targets, level), *shared]
