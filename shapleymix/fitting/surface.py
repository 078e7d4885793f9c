"""All that is known of losses at one budget: values, joint samples, and convex pieces where there are any.

Predicting, comparing, optimising and planning ask a `Surface`; every interval, gain and probability is a quantile of
its samples, `exp(law + residual + replicate - median replicate + noise)` as `noise` has it. So two commands that ask
the same question print the same number. Where the log shows that mixtures without a target's own language are another
regime, their losses come from that regime's law; scores of tasks are curves of the losses, drawn with them.
Axes: S samples, B replicates, R rows or mixtures, M sources, K targets (T tasks where scores are meant).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, Protocol

import numpy as np

from shapleymix.display import short
from shapleymix.errors import SolveError, UsageError
from shapleymix.fitting.jumps import Jumps
from shapleymix.fitting.noise import first_alike
from shapleymix.fitting.prediction import Points, mixtures_at
from shapleymix.fitting.residual import Residual
from shapleymix.laws import Law
from shapleymix.laws.core import CoreLaw, models_harm
from shapleymix.laws.pieces import Pieces, effective, harmful
from shapleymix.laws.task_curves import TaskCurves
from shapleymix.records import BoolArray, FloatArray, IntArray
from shapleymix.statistics import RandomStream, interval_ends
from shapleymix.tables.languages import NATS, Unit

UNCALIBRATED = 0.05
"""Share of the calibrated losses' span. A loss farther outside gets no trusted score, since no run showed one."""
SAMPLES = 2000
"""Fewest samples; every replicate gets equally many."""
Measure = Literal["loss", "error"]
Functional = Callable[[FloatArray], FloatArray]
"""What is asked of losses: (..., K) -> (...)."""


class Score(Protocol):
    """Tasks whose error rates are curves of the losses of their languages (see `scores`).

    Attributes
    ----------
    labels : tuple of str (T,)
        Names of the tasks.
    curves : TaskCurves
        The curves.
    scatter : array (T,)
        Standard deviation of the scores of single runs about the curves.
    targets : tuple of str (T,)
        The language of each task, a target of the law.
    loss_range : array (T, 2)
        Lowest and highest loss that a curve was drawn through.
    """

    @property
    def labels(self) -> tuple[str, ...]: ...
    @property
    def curves(self) -> TaskCurves: ...
    @property
    def scatter(self) -> FloatArray: ...
    @property
    def targets(self) -> tuple[str, ...]: ...
    @property
    def loss_range(self) -> FloatArray: ...

    # So many draws of curves as the scores leave possible, (count, T); the same on every call.
    def draw(self, count: int) -> TaskCurves: ...


@dataclass(frozen=True)
class Gain:
    """How much better one mixture is than another, with an interval and the probability that it is better at all.

    `each` (3, K) are the same value and interval of every loss by itself.
    """

    value: float
    low: float
    high: float
    probability: float
    each: FloatArray = field(compare=False)


@dataclass(frozen=True)
class LawAtBudget:
    """One law at a budget and a supply: its pieces and those of its replicates, or what it says without pieces."""

    law: Law
    replicates: Law | None
    N: float
    D: float
    supply: FloatArray | None  # (M,) unique tokens as shares of D; None where the law knows nothing of repetition
    symbols: FloatArray  # (1 + M,) log h and each source's log R*
    drawn: FloatArray | None  # (B, 1 + M) those of the replicates
    harmed: FloatArray  # (M, K) 1 where repeats of a source harm a target
    residual: Residual  # what the law misses of mixtures
    twins: tuple[tuple[int, int, BoolArray], ...] = ()  # sources taken to be more of another, and for which targets
    jumps: Jumps | None = None  # of losses, which the law does not have

    @cached_property
    def pieces(self) -> Pieces | None:
        """The law's convex pieces.

        Raises
        ------
        SolveError
            If the budget lies so far out that they overflow.
        """
        found = self.law.pieces(self.N, self.D)
        if found is not None and not (np.isfinite(found.floor).all() and np.isfinite(found.scale).all()):
            message = f"law {self.law.name!r} overflows at N = {self.N:g}, D = {self.D:g}"
            raise SolveError(message, hint="give a larger N and D")
        if found is None or not len(self.harmed):
            return None
        return self._add_supply(found, self.law, self.symbols)

    @cached_property
    def draws(self) -> Pieces | None:
        """Those of the replicates (B,), as they were fitted."""
        found = None if self.replicates is None else self.replicates.pieces(self.N, self.D)
        if found is None or self.replicates is None or not len(self.harmed):
            return None
        return self._add_supply(found, self.replicates, self.drawn).flat()

    def _add_supply(self, found: Pieces, law: Law, symbols: FloatArray | None) -> Pieces:
        """Pieces with twins together, and what repeated tokens are worth and harm at log h and log R* (..., 1 + M)."""
        found = found.of_sources(len(self.harmed)).pool_twins(self.twins)
        if self.supply is None or symbols is None:
            return found
        rate, harm = np.exp(-symbols[..., 1:]), None
        if models_harm(type(law)) and isinstance(law, CoreLaw):
            core = law.core(np.array([self.N]), np.array([self.D]))  # (..., 1, K)
            unit = harmful(np.zeros_like(self.supply), self.supply, self.N, self.D, power=0)[:, None]
            harm = np.exp(symbols[..., 0])[..., None, None] * core * unit * self.harmed
        return found.with_supply(self.supply, rate, harm)

    def losses(self, p: FloatArray) -> FloatArray:
        """Losses (K,) at one mixture (M,), with what the law misses of it; NaN where they are undefined."""
        return self.of_law(p) * self.missed(p)

    def missed(self, p: FloatArray) -> FloatArray:
        """Factors (K,) by which the law misses the losses of one mixture (M,)."""
        jump = 0.0 if self.jumps is None else self.jumps.mean(self.residual.pool(p[None]))[0]
        return np.exp(self.residual.mean(p[None])[0] + jump)

    def of_law(self, p: FloatArray) -> FloatArray:
        """The law's losses (K,) at one mixture (M,); NaN where it is undefined."""
        if self.pieces is None:
            return self._evaluate(self.law, self._ratios(p, self.symbols))
        found = self.pieces.losses(p)
        return np.where(np.isfinite(found), found, np.nan)

    def of_replicates(self, p: FloatArray) -> FloatArray | None:
        """Losses (B, K) of the replicates at one mixture (M,)."""
        if self.draws is not None:
            return self.draws.losses(p)
        if self.replicates is None:
            return None
        if self.drawn is None or self.supply is None or not (p > self.supply).any():
            return self._evaluate(self.replicates, p)
        each = [self._evaluate(_member(self.replicates, b), self._ratios(p, one)) for b, one in enumerate(self.drawn)]
        return np.stack(each)

    def _evaluate(self, law: Law, q: FloatArray) -> FloatArray:
        return law.losses(q[None], np.array([self.N]), np.array([self.D]))[..., 0, :]

    def _ratios(self, p: FloatArray, symbols: FloatArray) -> FloatArray:
        return p if self.supply is None else effective(p, self.supply, np.exp(-symbols[1:]))


def _member(law: Law, number: int) -> Law:
    """One replicate of a law."""
    return law.map(lambda known, value: value[number] if np.ndim(value) > len(known.axes) else value)


@dataclass(frozen=True)
class LossSource:
    """Where a surface's numbers come from: a fit, or an object of the user's own, of which nothing else is known.

    `samples` is S; 1 where nothing is known of how sure the numbers are.
    """

    targets: tuple[str, ...]
    samples: int

    def losses(self, p: FloatArray) -> FloatArray:
        """Losses (K,) at one mixture (M,), as they are shown."""
        raise NotImplementedError

    def of_law(self, p: FloatArray) -> FloatArray:
        """Losses (K,) at one mixture (M,) that the law alone says: those that an optimiser minimises."""
        return self.losses(p)

    def raw(self, p: FloatArray) -> FloatArray:
        """Losses (R, K) at mixtures (R, M), those that no model can have, too."""
        return np.stack([self.losses(one) for one in p])

    def base(self, p: FloatArray, samples: int) -> FloatArray:
        """Log losses (S, K) of the replicates, moved to lie about the law."""
        return recenter(self, p, samples)

    def of_replicates(self, p: FloatArray) -> FloatArray | None:
        """Losses (B, K) of the replicates at one mixture (M,), if there are any."""
        return None

    def scatter(self, p: FloatArray, samples: int, *, runs: bool) -> FloatArray:
        """Unit noise (S, R, 1 + 2K) at mixtures (R, M), alike at every budget: see `Noise.field`."""
        return np.zeros((samples, len(p), 1 + 2 * len(self.targets)))

    def errors(self, p: FloatArray, unit: FloatArray) -> FloatArray:
        """Errors (S, K) of log losses at one mixture, from unit noise (S, 1 + 2K) and a draw of the law's form."""
        return np.zeros((len(unit), len(self.targets)))

    def tilts(self, p: FloatArray, samples: int) -> FloatArray | None:
        """Slopes (S, K, M) of log losses in the ratios at one mixture (M,) by which single laws miss them, if known."""
        return None

    def most(self, p: FloatArray) -> FloatArray:
        """Loss (K,) that nothing at one mixture exceeds: that of an untrained model, where it is known."""
        return np.full(len(self.targets), np.inf)

    def outside(self, p: FloatArray) -> BoolArray:
        """Which losses (R, K) lie outside of what was fitted."""
        return np.zeros((len(p), len(self.targets)), dtype=bool)

    def warnings(self, p: FloatArray, names: tuple[str, ...] | None = None) -> tuple[str, ...]:
        """What a reader of the numbers should know."""
        return ()


def recenter(regime: LawAtBudget | LossSource, p: FloatArray, samples: int) -> FloatArray:
    """Log losses (S, K) of the replicates, moved to lie about the law; the law's own without replicates."""
    with np.errstate(invalid="ignore"):
        law, again = np.log(regime.losses(p)), regime.of_replicates(p)
        if again is None:
            return np.broadcast_to(law, (samples, *law.shape))
        logs = np.log(np.where(np.isfinite(again), again, np.nan))
        moved = law + logs - np.median(logs, axis=0)
    return np.repeat(moved, samples // len(moved), axis=0)


@dataclass(frozen=True)
class Surface:
    """What is known of the losses of any mixtures at one budget.

    Attributes
    ----------
    sources, targets : tuple of str
        M labels, and K: of targets, or of tasks.
    N, D : float
        Parameters and tokens.
    measure : str
        `"loss"`, in the `unit`; or `"error"`, error rates of tasks.
    available : array (M,)
        Unique tokens; NaN where there is no limit.
    pieces, draws : Pieces, optional
        Convex pieces where every target has its own language, supply and score inside; and those of the replicates
        (B,), moved to lie about the law at the middle of the fitted mixtures. None for a law without pieces.
    own : int array (K,)
        The source without which the target follows a model of its own; -1 where there is none.
    edge : array (K,)
        The smallest ratio of it that a fitted run had, at least `TRACE`; 0 where `own` is -1.
    absent : Pieces, optional
        Convex pieces of the other regime.
    known : LossSource
        Where the numbers come from, in nats a token.
    unit : Unit
        What losses are read in, in pieces and samples as well.
    """

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    N: float
    D: float
    measure: Measure
    available: FloatArray
    pieces: Pieces | None
    draws: Pieces | None
    own: IntArray
    edge: FloatArray
    absent: Pieces | None
    known: LossSource
    score: Score | None = None
    places: IntArray | None = None  # (T,) of the tasks' languages among the law's targets
    unit: Unit = NATS
    raised: FloatArray | float = 1.0  # (K,) times as high as the law has them are losses that are kept from no jump

    def read_in(self, unit: Unit) -> Surface:
        """The same losses in a unit; they must be in nats."""
        factor = unit.per_nat * np.ones(len(self.targets))
        return replace(self.change_pieces(lambda one: one.scale_losses(factor)), unit=unit)

    def raise_law(self, factor: FloatArray) -> Surface:
        """The same, whose law, which an optimiser minimises, has losses that are `factor` (K,) times as high."""
        more = (factor / self.raised)[... if self.places is None else self.places]
        return replace(self.change_pieces(lambda one: one.scale_losses(more)), raised=factor)

    def change_pieces(self, change: Callable[[Pieces], Pieces]) -> Surface:
        """The same with those pieces changed that there are."""
        pieces = {name: getattr(self, name) for name in ("pieces", "draws", "absent")}
        return replace(self, **{name: change(one) for name, one in pieces.items() if one is not None})

    def mean(self, p: Points) -> FloatArray:
        """Losses, or error rates, (R, K) at mixtures (R, M), as they are printed; NaN where there is none."""
        return self._read(np.stack([self.known.losses(one) for one in self._ratios(p)]))

    def of_law(self, p: Points) -> FloatArray:
        """The same by the law alone, without what it misses of mixtures: what an optimiser minimises."""
        return self._read(np.stack([self.raised * self.known.of_law(one) for one in self._ratios(p)]))

    def _read(self, losses: FloatArray) -> FloatArray:
        """Losses (R, K) in the unit, or as the error rates of the fitted curves."""
        return losses * self.unit.per_nat if self.score is None else self.score.curves.errors(losses[:, self.places])

    def _ratios(self, p: Points) -> FloatArray:
        """Mixtures (R, M), however they are given; an array of such may also lie off the simplex, as slopes ask."""
        if isinstance(p, np.ndarray) and p.dtype.kind in "fi" and p.ndim in (1, 2) and p.shape[-1] == len(self.sources):
            return np.atleast_2d(p).astype(np.float64)
        return mixtures_at(p, np.array([self.D]), self.sources, self.available)

    def sample(self, p: Points, *, runs: bool = True) -> FloatArray:
        """Losses, or error rates, (S, R, K), joint over mixtures (R, M) and targets; the same bytes on every call.

        Parameters
        ----------
        p : Points
            Mixtures, spelt as `Fit.predict` takes them; the sums of an array are not judged.
        runs : bool
            Whether single runs are meant, or what many runs of each mixture would have in the mean.
        """
        return _sample([(self, one) for one in self._ratios(p)], runs=runs)

    def interval(self, p: Points, level: float) -> FloatArray:
        """(2, R, K) what holds a new run's loss with probability `level`, each row by itself."""
        return self.objective_interval(p, lambda losses: losses, level)

    def objective_interval(self, p: Points, of: Functional, level: float) -> FloatArray:
        """(2, R) the same for what is asked of the losses."""
        asked = [of(self.sample(one)[:, 0]) for one in self._ratios(p)]
        ends = np.stack([np.quantile(one, interval_ends(level), axis=0) for one in asked], axis=1)
        # of one sample nothing is known of how sure the numbers are
        return widen(np.where(self.known.samples > 1, ends, np.nan), of(self.mean(p)))

    def gain(self, p: Points, q: Points, of: Functional, level: float, *, runs: bool = True) -> Gain:
        """What p saves of what is asked of the losses, against q, by the joint sample of the two alone."""
        return gain_between((self, self._ratios(p)[0]), (self, self._ratios(q)[0]), of, level, runs=runs)

    def outside(self, p: Points) -> BoolArray:
        """Which losses (R, K) lie outside of what was fitted."""
        found = self.known.outside(p := self._ratios(p))
        return found if self.score is None else found[:, self.places] | self._is_uncalibrated(p)

    def warnings(self, p: Points, names: tuple[str, ...] | None = None) -> tuple[str, ...]:
        """What a reader of numbers at these mixtures (R, M) should know, by the names of these."""
        p = self._ratios(p)
        return (*([] if self.score is None else self._of_scores(p)), *self.known.warnings(p, names))

    def _is_uncalibrated(self, p: FloatArray) -> BoolArray:
        """Which losses (R, T) lie outside of what their task's curve was drawn through."""
        assert self.score is not None
        loss, (low, high) = self.known.raw(p)[:, self.places], self.score.loss_range.T
        room = UNCALIBRATED * (high - low)
        return (loss < low - room) | (loss > high + room)

    def _of_scores(self, p: FloatArray) -> Iterator[str]:
        """Which tasks are asked about losses, or answer with scores, that no run had."""
        errors = self.mean(p)
        masks = self._is_uncalibrated(p), (errors < 0) | (errors > 1)
        far, none = (np.array(self.targets)[np.any(mask, axis=0)].tolist() for mask in masks)
        if far:
            yield f"the loss is outside the range on which {short(far)} was calibrated: the curve is extrapolated"
        if none:
            yield f"the curve of {short(none)} gives a score below 0 or above 1"

    def read(self, losses: FloatArray, mixture: int, *, runs: bool) -> FloatArray:
        """Samples in the unit, or of error rates (S, T), from losses (S, K) of a question's mixture of that number."""
        if self.score is None or len(losses) == 1:
            return self._read(losses)
        count = len(losses) if self.draws is None else self.draws.batch[0]
        curves = self.score.draw(count).take(np.repeat(np.arange(count), len(losses) // count))
        errors = curves.errors(losses[:, self.places])
        if not runs:
            return errors
        drawn = np.random.default_rng([0, RandomStream.SCORES, mixture]).standard_normal(errors.shape)
        return errors + self.score.scatter * drawn


Point = tuple[Surface, FloatArray]
"""A mixture (M,) at a surface."""


NOTHING = 1e-9
"""A gain of less, as a share of what it is gained from, is a tie: rounding and the end of a search."""


def gain_between(
    one: Point, other: Point, of: Functional, level: float, *, runs: bool = True, by_law: bool = False,
    pull: float = 0, freedom: int = 0,
) -> Gain:  # fmt: skip
    """What one mixture at a surface saves, against another, of what is asked of the losses.

    The two may have other budgets or supplies; replicates, scatter and the form's error are drawn in common. With
    `runs` single runs are meant, else what many of each would have in the mean; `by_law` leaves out what the law misses
    of mixtures, as what bounds cost must. What it saves of a `pull` is known for sure. With `freedom` 1 the one
    has more mixtures or tokens to choose from than the other, and so never costs, whatever is true; with -1 fewer.
    """

    def saved(before: FloatArray, after: FloatArray) -> FloatArray:
        found = of(before) - of(after) + pull
        return np.where(np.abs(found) <= NOTHING * np.abs(of(before)), 0.0, found)

    pair, read = [one, other], Surface.of_law if by_law else Surface.mean
    own, others = (read(*point) for point in pair)
    value, each = float(saved(others, own)[0]), others - own
    turn = -1 if value < 0 else 1
    # drawn in one order, so that the gain of one over the other is minus that of the other over the one
    losses = _sample(pair[::turn], runs=runs, by_law=by_law)[:, ::turn]
    losses = losses if len(losses) > 1 and value == value else np.full_like(losses, np.nan)
    gained, sides = saved(losses[:, 1], losses[:, 0]), interval_ends(level)
    gained = freedom * np.maximum(freedom * gained, 0.0) if freedom else gained
    each = np.concatenate([each, widen(np.quantile(losses[:, 1] - losses[:, 0], sides, axis=0), each[0])])
    low, high = widen(np.quantile(gained, sides), np.array(value)).tolist()
    return Gain(value, low, high, float(np.mean(np.sign(gained) + 1) / 2), each)


def _sample(points: Sequence[Point], *, runs: bool, by_law: bool = False) -> FloatArray:
    """Samples (S, R, K) of points, each at a surface of its own."""
    first, p_RM = points[0][0].known, np.stack([p for _, p in points])
    count, mixtures = first.samples, first_alike(p_RM)
    field = first.scatter(p_RM, count, runs=runs)
    found = []
    for place, (surface, p) in enumerate(points):
        known = surface.known
        logs = known.base(p, count) + known.errors(p, field[:, place])
        with np.errstate(over="ignore"):
            logs = logs + np.log(known.of_law(p) / known.losses(p)) if by_law else logs
            losses = np.minimum(np.exp(logs), known.most(p))
        found.append(surface.read(losses, int(mixtures[place]), runs=runs))
    return np.stack(found, axis=1)


def widen(ends: FloatArray, middle: FloatArray) -> FloatArray:
    """An interval never excludes its own number."""
    return np.stack([np.minimum(ends[0], middle), np.maximum(ends[1], middle)])


def with_score(surface: Surface, score: Score) -> Surface:
    """The same of the error rates of tasks."""
    if strange := sorted(set(score.targets) - set(surface.targets)):
        hint = "calibrate by the losses of the fit's targets"
        raise UsageError(f"the fit has no target {', '.join(strange)}, by whose loss tasks are calibrated", hint=hint)
    places = np.array([surface.targets.index(name) for name in score.targets], dtype=np.int64)

    def curve(pieces: Pieces) -> Pieces:
        return pieces.with_curves(score.draw(pieces.batch[0]) if pieces.batch else score.curves, places)

    return replace(
        surface.change_pieces(curve),
        targets=score.labels,
        measure="error",
        unit=Unit("error rate"),
        own=surface.own[places],
        edge=surface.edge[places],
        score=score,
        places=places,
    )
