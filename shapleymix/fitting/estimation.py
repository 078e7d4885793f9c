"""Fit one law to weighted evidence: every target, start and replicate in one batch.

Legend: V weightings of the rows (the data itself, cross-validation folds, bootstrap replicates), R rows, K targets, S
starts, P unknowns.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from threadpoolctl import threadpool_limits

from shapleymix.errors import FitError
from shapleymix.fitting.evidence import HARM_ERROR, Evidence, select_rows
from shapleymix.fitting.least_squares import Loss, Prior, Regression, Residuals, Solution, Values, minimize
from shapleymix.fitting.settings import Settings
from shapleymix.fitting.symbols import NOISE, Levels, Packing, PriorTable, believe_together, complete, starting_points
from shapleymix.laws import Inputs, Law
from shapleymix.laws.base import Belief, Observations, Role
from shapleymix.laws.core import CoreLaw, models_harm
from shapleymix.records import BoolArray, FloatArray, IntArray

ITERATIONS, TOLERANCE = 1000, 1e-8  # of a fit: most steps, and the relative change at which it stops
THREADS = 2  # chunks that are worked on at once; the result does not depend on it
CHUNK_BYTES = 12e6  # of Jacobian at once a thread: larger costs memory traffic, smaller the interpreter
STARTED_ON = 200  # rows, at most: more tell starts apart no better
TRIAL_ITERATIONS = 12  # that starts get, before only the best are followed
USUAL_RESIDUAL = 1e-2  # of a log loss; beyond it delta no longer sets the scale of the objective, nor of the prior
REPLICATE_ITERATIONS, REPLICATE_TOLERANCE = 400, 1e-6  # from the point fit on; within a hundredth or so of their spread
BELIEVED_TOLERANCE = 3e-4  # the same where beliefs hold every unknown, and no valley is flat: within a tenth
NEARBY = 0.02  # damping of the first step from a solution of nearly the same problem
TAIL = 0.1  # of delta: beyond it the slope of the loss grows by a tenth of delta for every unit of log loss
SETTLING_ITERATIONS, SETTLING_TOLERANCE, SETTLING_DAMPING = 25, 1e-15, 1e-9
EVERY = slice(None)  # of the rows
Stage = Callable[[int, int], None] | None
"""Is called with how much of a stage is done, and how much there is."""


@dataclass(frozen=True)
class FittedLaws:
    """A fitted law with leading axis V, in plain units; objective, and whether the search converged (V, K)."""

    law: Law
    x: FloatArray  # (V, K, P) in the units of the search
    cost: FloatArray
    converged: BoolArray
    repeated: FloatArray  # (V, 1 + M), log h and log R* of each source


@dataclass(frozen=True)
class Stop:
    """When a search ends, how firmly its first step is damped, and whether its last digits are settled on a plateau."""

    iterations: int
    tolerance: float
    damping: float = 1.0
    settle: bool = False


EXACT = Stop(ITERATIONS, TOLERANCE, settle=True)
FOLD = Stop(ITERATIONS, REPLICATE_TOLERANCE)
NEAR = Stop(REPLICATE_ITERATIONS, BELIEVED_TOLERANCE)
FOLLOW = Stop(REPLICATE_ITERATIONS, BELIEVED_TOLERANCE, NEARBY)
REPLICATE = Stop(REPLICATE_ITERATIONS, REPLICATE_TOLERANCE, NEARBY)


@dataclass(frozen=True)
class Estimation:
    """One law on one body of evidence, ready to be estimated under any weighting of the rows.

    `repeated` (V, 1 + M), or (1, 1 + M) for all weightings, are log h and each source's log R*, from which estimating
    begins.
    """

    packing: Packing
    observed: Observations
    inputs: Inputs
    givens: dict[str, FloatArray]
    evidence: Evidence
    settings: Settings
    beliefs: PriorTable
    core: dict[str, Belief]  # what is believed of its symbols besides
    levels: Levels
    threshold: float  # Huber's, where the user names none
    repeated: FloatArray

    @classmethod
    def of(
        cls, law: type[Law], evidence: Evidence, inputs: Inputs, settings: Settings, rows: BoolArray | slice = EVERY
    ) -> Estimation:
        """Put a law to the evidence; rows where the law is undefined get no weight.

        Only the budgets of `rows`, those that will be fitted, say which symbols can be told.
        """
        observed = evidence.observations(law, inputs)
        if not law.symbols_to_fit():
            raise FitError(f"law {law.name!r} has no symbol that a fit determines")
        in_runs = np.any(observed.p[np.any(observed.weight > 0, axis=1)] > 0, axis=0)
        inputs = replace(inputs, in_runs=in_runs, least=(observed.N[rows].min().item(), observed.D[rows].min().item()))
        givens = law.givens(inputs)
        levels = Levels.of(evidence.log, rows)
        packing = Packing(law, len(inputs.sources), levels.find_fixed(law))
        defined = packing.is_defined(givens, observed)
        observed = replace(observed, weight=np.where(defined, observed.weight, 0.0))
        totals = zip(inputs.targets, observed.weight.sum(axis=0).tolist(), strict=True)
        if empty := [repr(name) for name, total in totals if total == 0]:
            message = f"law {law.name!r} is undefined on every run that has a loss for {', '.join(empty)}"
            hint = "add runs with languages that help these targets (Theta above 0), or choose another law"
            raise FitError(message, hint=hint)
        noise = np.full(len(inputs.targets), NOISE)
        usual = {name: values[0] for name, values in law.knobs.items()}
        loss = np.exp(np.average(observed.log_loss, axis=0, weights=observed.weight))
        core = believe_together(packing, levels, loss)
        believed = PriorTable.of(packing, usual, givens, noise, core)
        alike = evidence.usual[None]
        return cls(packing, observed, inputs, givens, evidence, settings, believed, core, levels, law.threshold, alike)

    def follow(self, shares: FloatArray, start: FloatArray, stop: Stop = FOLLOW) -> FloatArray:
        """Unknowns (V, K, P) fitted under each weighting from a start of its own (V, K, P).

        Cross-validation needs no last digits; who compares objectives says when to stop.
        """
        x = self.search(shares, start[:, None], stop).x[:, 0]
        return self.packing.fill_unseen(x, self.find_seen(shares))

    def fit_afresh(self, shares: FloatArray) -> FloatArray:
        """Unknowns (V, K, P) fitted under each weighting from the best start that its own rows give.

        Cross-validation begins here: in directions that a fold's rows do not tell, a fit stays where it started.
        """
        start = self.select_starts(shares, self.find_starts(shares), 1, NEAR.tolerance)
        return self.follow(shares, start[:, 0], NEAR)

    def only(self, targets: IntArray) -> Estimation:
        """The same for some targets alone."""
        seen, inputs = self.observed, self.inputs
        return replace(
            self,
            observed=replace(seen, log_loss=seen.log_loss[:, targets], weight=seen.weight[:, targets]),
            inputs=replace(inputs, targets=tuple(inputs.targets[j] for j in targets.tolist())),
            givens={name: value[..., targets] for name, value in self.givens.items()},
            beliefs=self.beliefs.only(targets),
        )

    def predict(self, x: FloatArray) -> FloatArray:
        """Log losses (V, R, K) that unknowns x (V, K, P) give for every row, without jumps."""
        return np.log(self.evidence.losses(self.law_at(x), self.repeated, self._columns))

    @property
    def _columns(self) -> IntArray:
        """The places of the targets in the log (K,)."""
        return np.array([self.evidence.log.targets.index(name) for name in self.inputs.targets], dtype=np.int64)

    @cached_property
    def sample(self) -> tuple[Estimation, BoolArray]:
        """The same on rows that tell starts apart, and these: of many a sample, in which every target has a loss."""
        seen = self.observed
        rows = np.random.default_rng(0).permutation(len(seen.N)) < STARTED_ON
        if np.any((seen.weight > 0).any(axis=0) > (seen.weight[rows] > 0).any(axis=0)):
            rows[:] = True
        observed = replace(seen, **{name: value[rows] for name, value in vars(seen).items()})
        return replace(self, observed=observed, evidence=select_rows(self.evidence, rows)), rows

    def find_starts(self, shares: FloatArray) -> FloatArray:
        (few, rows), further = self.sample, (self.inputs, self.givens, self.settings.starts)
        return starting_points(self.packing, few.observed, shares[:, rows], *further)

    def select_starts(self, shares: FloatArray, start: FloatArray, count: int, tolerance: float) -> FloatArray:
        """Of starts (V, S, K, P) the `count` that a few iterations bring lowest, as far as these brought them."""
        if start.shape[1] <= count:
            return start
        few, rows = self.sample
        trial = few.search(shares[:, rows], start, Stop(TRIAL_ITERATIONS, tolerance))
        order = np.argsort(trial.cost, axis=1, kind="stable")[:, :count]
        return np.take_along_axis(trial.x, order[..., None], axis=1)

    def search(
        self, shares: FloatArray, start: FloatArray, stop: Stop, progress: Stage = None, draws: FloatArray | None = None
    ) -> Solution:
        """Every start (V, S, K, P) followed, chunk by chunk, to a solution with these axes.

        A step of a problem costs R P (min(R, P) + some 100 for powers and slopes) + 2 min(R, P)^3 operations, with
        P = M + 4 or so where transfer is learned: V S K times that for all. There are 20 to 60 steps for each of two
        starts of the fit itself, 2 to 8 for a trial of what is believed, and 3 to 6 for a replicate; 18 where sources
        are twenty times the runs. The time thus grows as M R for given transfer, as M^3 R for learned transfer with as
        many targets as sources (M^2 R^2 with fewer runs than sources), and always as the number of replicates.
        Memory: `CHUNK_BYTES` a thread for the Jacobians, four times that beside it, and V K P numbers for the result.
        """
        V, S, K, P = start.shape
        replicate = np.tile(np.repeat(np.arange(V), S), K)  # target by target: replicates of one often start alike
        target = np.repeat(np.arange(K), V * S)
        flat = np.moveaxis(start, 2, 0).reshape(-1, P)
        moved = None if draws is None else np.moveaxis(draws, 2, 0).reshape(-1, P)
        size = max(1, int(CHUNK_BYTES / (len(self.observed.N) * (P + 2) * 8)))
        chunks = [slice(first, min(first + size, len(flat))) for first in range(0, len(flat), size)]
        parts: list[Solution] = []

        def solve(rows: slice) -> Solution:
            at = self.repeated[replicate[rows] if len(self.repeated) > 1 else [0]]
            drawn = None if moved is None else moved[rows]
            objective = self.regression(target[rows], shares[replicate[rows]], at, drawn)
            found = minimize(objective, flat[rows], stop.iterations, stop.tolerance, stop.damping)
            return _settle(objective, found) if stop.settle else found

        with threadpool_limits(1, "blas"), ThreadPoolExecutor(THREADS) as pool:  # no threads of threads
            for rows, part in zip(chunks, pool.map(solve, chunks), strict=True):
                parts.append(part)
                if progress is not None:
                    progress(rows.stop, len(flat))
        found = (np.concatenate([getattr(part, name) for part in parts]) for name in vars(parts[0]))
        return Solution(*(np.moveaxis(each.reshape(K, V, S, *each.shape[1:]), 0, 2) for each in found))

    def regression(
        self, target: IntArray, shares: FloatArray, at: FloatArray, draws: FloatArray | None = None
    ) -> Regression:
        """What is minimised for each of some targets (Q,) under weightings of the rows (Q, R).

        `draws` (Q, P), standard normal, move the centres of what is believed; `at` (Q, 1 + M), or (1, 1 + M) for all,
        are log h and log R*.
        """
        weight, harm = self.observed.weight.T[target] * shares, self._count_repeats(target, at)[1]
        if harm is not None:  # the more of it a run has, the less of it the form says right
            weight = weight * (1 / (1 + np.square(HARM_ERROR * harm / NOISE)))
        weight = weight / np.maximum(weight.sum(axis=1, keepdims=True), 1e-300)  # all 0 where nothing is told
        low, high = self.packing.bounds()
        prior = self._prior(target, weight, draws)
        residuals, values = self.residuals(target, at)
        return Regression(residuals, values, weight, self.loss, low, high, prior)

    @property
    def loss(self) -> Loss:
        """Huber's loss, with the curvature in its tails that makes the minimum a single point."""
        return Loss(self.delta, min(TAIL * self.delta, 1.0))

    @cached_property
    def alike(self) -> FloatArray:
        """Which rows have one mixture, N and D, (R, G) of 0 and 1: a row twice at half weight is one row."""
        log = self.evidence.log
        lost = np.round(log.p - self.observed.p, 12)  # of repeated tokens; what differs by rounding alone is one
        place = np.unique(np.column_stack([log.groups, log.N, log.D, lost]), axis=0, return_inverse=True)[1].ravel()
        return (place[:, None] == np.arange(place.max() + 1)).astype(np.float64)

    @property
    def delta(self) -> float:
        """Huber's threshold on log residuals."""
        return self.threshold if self.settings.delta is None else self.settings.delta

    def residuals(self, target: IntArray, at: FloatArray) -> tuple[Residuals, Values]:
        """The residuals of some targets (Q,) with their slopes, and without, at log h and log R* (Q or 1, 1 + M)."""
        seen = self.observed
        measured = (seen.weight > 0).T
        log_loss = seen.log_loss.T
        ratios, harm = self._count_repeats(target, at)

        def law(x: FloatArray, number: IntArray) -> Law:
            givens = {name: value.T[target[number]][..., None] for name, value in self.givens.items()}
            return self.packing.unpack(x[:, None], givens)

        def subtract(predicted: FloatArray, number: IntArray) -> FloatArray:
            column = target[number]
            return np.where(measured[column], predicted[..., 0] - log_loss[column], 0.0)

        def take_ratios(number: IntArray) -> FloatArray:
            return ratios if ratios.ndim == 2 else ratios[number]

        def residuals(x: FloatArray, number: IntArray) -> tuple[FloatArray, FloatArray]:
            there = law(x, number)
            predicted, slopes = there.expansion(take_ratios(number), seen.N, seen.D)
            if harm is not None and isinstance(there, CoreLaw):
                predicted, slopes = there.with_harm(predicted, slopes, harm[number][..., None], seen.N, seen.D)
            return subtract(predicted, number), self.packing.jacobian(slopes)

        def alone(x: FloatArray, number: IntArray) -> FloatArray:
            there = law(x, number)
            losses = there.losses(take_ratios(number), seen.N, seen.D)
            if harm is not None and isinstance(there, CoreLaw):
                losses = losses + there.core(seen.N, seen.D) * harm[number][..., None]
            return subtract(np.log(losses), number)

        return residuals, alone

    def _count_repeats(self, target: IntArray, at: FloatArray) -> tuple[FloatArray, FloatArray | None]:
        """Effective ratios (R, M), or (Q, R, M) where they differ, and harm (Q, R) as a share of the core, if any."""
        law, evidence = self.packing.law, self.evidence
        if not evidence.repeats(law):
            return self.observed.p, None
        ratios = evidence.ratios(at[0] if len(at) == 1 else at)
        strength = np.broadcast_to(np.exp(at[:, :1]), (len(target), 1))
        return ratios, strength * evidence.harms.T[self._columns[target]] if models_harm(law) else None

    def _prior(self, target: IntArray, weight: FloatArray, draws: FloatArray | None) -> Prior:
        """What is believed, and a weak pull on other log coefficients, which zero ratios may leave untold."""
        together = weight @ self.alike
        believed = self.beliefs.prior(target, np.square(together).sum(axis=1), draws)
        coefficient = self._of_role("coefficients")
        pull = self.settings.prior * min(self.delta, USUAL_RESIDUAL)
        untold = coefficient & np.isinf(self.beliefs.spread[target])
        scale = self.settings.prior / Settings.prior
        log = self.evidence.log
        # checkpoints of one run err together: for an exponent they are one observation
        rows_a_run = self.alike.shape[1] / len(np.unique(np.column_stack([log.groups, log.N]), axis=0))
        precision = believed.precision * scale * np.where(self._of_role("exponent"), rows_a_run, 1.0)
        ties = None if believed.ties is None else believed.ties * np.sqrt(scale)
        return Prior(believed.center, np.where(untold, pull, precision), ties)

    def _of_role(self, role: Role) -> BoolArray:
        return np.array([known.role == role for known in self.packing.owners], dtype=bool)

    def as_estimate(self, solution: Solution, seen: BoolArray) -> FittedLaws:
        """Of a solution (V, S, K, ...) the best of the starts for each weighting and target."""
        best = np.arange(len(seen))[:, None], solution.cost.argmin(axis=1), np.arange(seen.shape[1])
        x = self.packing.fill_unseen(solution.x[best], seen)
        repeated = np.broadcast_to(self.repeated, (len(x), self.repeated.shape[1]))
        return FittedLaws(self.law_at(x), x, solution.cost[best], solution.converged[best], repeated)

    def find_seen(self, shares: FloatArray) -> BoolArray:
        """Which sources (V, K, M) the losses of each weighting hold."""
        used = (self.observed.weight.T > 0) & (shares > 0)[:, None, :]
        return used.astype(np.float64) @ (self.observed.p > 0) > 0

    def law_at(self, x: FloatArray) -> Law:
        """The laws with unknowns x (V, K, P), in plain units and in the law's own gauge, with leading axis V."""
        givens = {name: np.stack([value] * len(x)) for name, value in self.givens.items()}
        law = self.packing.unpack(x, givens).in_gauge()
        plain = complete(law.rescale(*self.evidence.units(type(law))), self.levels)
        return plain.map(lambda _, value: np.ascontiguousarray(value))  # sums keep their bits after a file


def _settle(objective: Regression, found: Solution) -> Solution:
    """The same minimum to the last digits: along a plateau only the tails say where it lies, and they say it softly."""
    last = minimize(objective, found.x, SETTLING_ITERATIONS, SETTLING_TOLERANCE, SETTLING_DAMPING)
    return replace(last, converged=found.converged)
