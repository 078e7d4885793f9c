"""Fit one law to weighted evidence: every target, start and replicate in one batch.

From nothing `estimate`, and from a finished fit `resample`, lead to a law: the best of several starts, what repeats are
worth, replicates. Every target's loss depends on its own symbols and on h and R* of `repetition`, which all targets
share, so that a search of one target at a time cannot find these. They take Newton steps of their own, with slopes and
curvature that count how all other symbols would follow (variable projection, Golub and Pereyra 1973). After each step
every target's symbols are searched for again, from the last ones.

Legend: V weightings of the rows (the data itself, cross-validation folds, bootstrap replicates), Q problems (a
weighting and a target each), R rows, M sources, K targets, S starts, P unknowns, H shared symbols: log h, and log R* of
each source.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from threadpoolctl import threadpool_limits

from shapleymix.errors import FitError, Location
from shapleymix.fitting.evidence import HARM_ERROR, Evidence, select_rows
from shapleymix.fitting.least_squares import Loss, Prior, Regression, Residuals, Solution, Values, minimize, solve_free
from shapleymix.fitting.settings import Settings
from shapleymix.fitting.symbols import COMMON, NOISE, Levels, Packing, PriorTable, believe_together, starting_points
from shapleymix.laws import Inputs, Law, Observations
from shapleymix.laws.core import HARM_PRIOR, SHARED_WORTH, WORTH_PRIOR, CoreLaw, models_harm, repetition_prior
from shapleymix.records import BoolArray, FloatArray, IntArray
from shapleymix.statistics import MEAN_ABSOLUTE, RandomStream, ranks_of

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
class FittedLaws(Solution):
    """A solution (V, K, ...), of each weighting and target, and its law with leading axis V, in plain units."""

    law: Law
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
    levels: Levels
    delta: float  # Huber's threshold on log residuals
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
        believed = PriorTable.of(packing, usual, givens, noise, levels, observed)
        alike = evidence.usual[None]
        delta = law.threshold if settings.delta is None else settings.delta
        return cls(packing, observed, inputs, givens, evidence, settings, believed, levels, delta, alike)

    def require_runs(self, rows: BoolArray) -> None:
        """Refuse to fit more numbers per target than there are runs among some rows (R,) to tell them.

        Raises
        ------
        FitError
            Naming the law, the target, what is there and what is needed.
        """
        log, law, name = self.evidence.log, self.packing.law, self.packing.law.name
        mixtures = {key for key, use in zip(log.mixture_keys, rows, strict=True) if use}
        if "mixture" in law.needs and len(mixtures) < 2:  # one tells nothing about mixtures
            message = f"law {name!r} needs different mixtures; all {int(rows.sum())} runs have one"
            raise FitError(message, hint="add runs of other mixtures, or fit 'chinchilla'")
        if law.knobs:
            return  # what is believed tells the numbers that the runs do not
        used = rows[:, None] & (self.observed.weight > 0)
        counts, needed = (self.alike.T @ used > 0).sum(axis=0).tolist(), len(self.packing.names)
        for target, count in zip(log.targets, counts, strict=True):
            if count < needed:
                known = f"target {target!r} but has {count} different runs for it"
                hint = "add runs, loosen the filters, or choose a law with fewer symbols"
                place = Location(file=log.origin, column=f"loss_{target}")
                raise FitError(f"law {name!r} fits {needed} numbers for {known}", hint=hint, location=place)

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
        return self.follow(shares, self.find_starts(shares, 1, NEAR.tolerance)[:, 0], NEAR)

    def only(self, targets: IntArray) -> Estimation:
        """The same for some targets alone."""
        seen, evidence, names = self.observed, self.evidence, [self.inputs.targets[j] for j in targets.tolist()]
        log = evidence.log.align(evidence.log.sources, names)
        return replace(
            self,
            evidence=replace(evidence, log=log, weight=evidence.weight[:, targets]),
            observed=replace(seen, log_loss=seen.log_loss[:, targets], weight=seen.weight[:, targets]),
            inputs=replace(self.inputs, targets=log.targets),
            givens={name: value[..., targets] for name, value in self.givens.items()},
            beliefs=self.beliefs.only(targets),
        )

    def predict(self, x: FloatArray) -> FloatArray:
        """Log losses (V, R, K) that unknowns x (V, K, P) give for every row, without jumps."""
        return np.log(self.evidence.losses(self.law_at(x), self.repeated))

    @cached_property
    def sample(self) -> tuple[Estimation, BoolArray]:
        """The same on rows that tell starts apart, and these: of many a sample, in which every target has a loss."""
        seen = self.observed
        rows = np.random.default_rng(0).permutation(len(seen.N)) < STARTED_ON
        if np.any((seen.weight > 0).any(axis=0) > (seen.weight[rows] > 0).any(axis=0)):
            rows[:] = True
        observed = replace(seen, **{name: value[rows] for name, value in vars(seen).items()})
        return replace(self, observed=observed, evidence=select_rows(self.evidence, rows)), rows

    def find_starts(
        self, shares: FloatArray, count: int, tolerance: float, known: FloatArray | None = None
    ) -> FloatArray:
        """Of the starts that each weighting's rows give, and one that is known (K, P), the `count` that a few
        iterations bring lowest, as far as these brought them: (V, count, K, P).
        """
        (few, rows), further = self.sample, (self.inputs, self.givens, self.settings.starts)
        start = starting_points(self.packing, few.observed, shares[:, rows], *further)
        if known is not None:
            start = np.concatenate([start, np.broadcast_to(known, (len(shares), 1, *known.shape))], axis=1)
        if start.shape[1] <= count:
            return start
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
        return ratios, strength * evidence.harms.T[target] if models_harm(law) else None

    def _prior(self, target: IntArray, weight: FloatArray, draws: FloatArray | None) -> Prior:
        """What is believed, and a weak pull on other log coefficients, which zero ratios may leave untold."""
        together = weight @ self.alike
        believed = self.beliefs.prior(target, np.square(together).sum(axis=1), draws)
        roles = np.array([known.role for known in self.packing.owners], dtype=str)
        pull = self.settings.prior * min(self.delta, USUAL_RESIDUAL)
        untold = (roles == "coefficients") & np.isinf(self.beliefs.spread[target])
        scale = self.settings.prior / Settings.prior
        log = self.evidence.log
        # checkpoints of one run err together: for an exponent they are one observation
        rows_a_run = self.alike.shape[1] / len(np.unique(np.column_stack([log.groups, log.N]), axis=0))
        precision = believed.precision * scale * np.where(roles == "exponent", rows_a_run, 1.0)
        ties = None if believed.ties is None else believed.ties * np.sqrt(scale)
        return Prior(believed.center, np.where(untold, pull, precision), ties)

    def as_estimate(self, solution: Solution, seen: BoolArray) -> FittedLaws:
        """Of a solution (V, S, K, ...) the best of the starts for each weighting and target."""
        best = np.arange(len(seen))[:, None], solution.cost.argmin(axis=1), np.arange(seen.shape[1])
        x = self.packing.fill_unseen(solution.x[best], seen)
        repeated = np.broadcast_to(self.repeated, (len(x), self.repeated.shape[1]))
        return FittedLaws(x, solution.cost[best], solution.converged[best], self.law_at(x), repeated)

    def find_seen(self, shares: FloatArray) -> BoolArray:
        """Which sources (V, K, M) the losses of each weighting hold."""
        used = (self.observed.weight.T > 0) & (shares > 0)[:, None, :]
        return used.astype(np.float64) @ (self.observed.p > 0) > 0

    def law_at(self, x: FloatArray) -> Law:
        """The laws with unknowns x (V, K, P), in plain units and in the law's own gauge, with leading axis V."""
        givens = {name: np.stack([value] * len(x)) for name, value in self.givens.items()}
        law = self.packing.unpack(x, givens).in_gauge()
        plain = self.levels.complete(law.rescale(*self.evidence.units(type(law))))
        return plain.map(lambda _, value: np.ascontiguousarray(value))  # sums keep their bits after a file


def _settle(objective: Regression, found: Solution) -> Solution:
    """The same minimum to the last digits: along a plateau only the tails say where it lies, and they say it softly."""
    last = minimize(objective, found.x, SETTLING_ITERATIONS, SETTLING_TOLERANCE, SETTLING_DAMPING)
    return replace(last, converged=found.converged)


ROUNDS = 12
LARGEST, SMALLEST, MOVED = 1.0, 1e-3, 1e-4
"""Of the logarithms: the longest step, one that ends the search, and that of a difference."""
CLOSELY = replace(FOLLOW, tolerance=SMALLEST**2)
LEAST_NOISE, RIDGE = 1e-4, 1e-9
ENTRIES = 3e6  # of Jacobians at once
FOLLOWED = 2  # starts, of all that a few iterations compare
BELIEVED_REPLICATE = 3e-3  # where beliefs hold every unknown: intervals are .2 to .4% narrower than at a tenth of it
REPLICATE_ROUNDS = 2  # of finding h and R*


def estimate(
    problem: Estimation, shares: FloatArray, progress: Stage = None, known: FloatArray | None = None, stop: Stop = EXACT
) -> FittedLaws:
    """Fit from scratch under each weighting `shares` (V, R); `known` (K, P) is one more start."""
    start = problem.find_starts(shares, FOLLOWED, stop.tolerance, known)
    solution = problem.search(shares, start, stop, progress)
    seen = problem.find_seen(shares)
    found = problem.as_estimate(solution, seen)
    if not problem.evidence.tells(problem.packing.law):
        return found
    there, x = fit_repetition(problem, shares, found.x)
    return there.as_estimate(there.search(shares, x[:, None], replace(stop, damping=NEARBY)), seen)


def resample(problem: Estimation, shares: FloatArray, x: FloatArray, seed: int, progress: Stage = None) -> FittedLaws:
    """Fit under each weighting from a known solution x (K, P): for replicates of a finished fit.

    What is believed is drawn anew for each, so that what no run tells is as unsure as the belief.
    """
    rng = np.random.default_rng([seed, RandomStream.BELIEFS])
    draws = rng.standard_normal((len(shares), 1, *x.shape))[:, :, ranks_of(problem.observed.log_loss)]
    core = believe_together(problem.packing, problem.levels, problem.observed)
    of_core = np.isin(problem.packing.names, [*core])
    common = rng.standard_normal((len(shares), 1, 1, of_core.sum()))
    draws[..., of_core] = np.sqrt(COMMON) * common + np.sqrt(1 - COMMON) * draws[..., of_core]
    for place in problem.packing.of_sources():
        draws[..., place] = draws[..., place][..., ranks_of(problem.evidence.log.p)]
    start, there = np.broadcast_to(x, (len(shares), 1, *x.shape)), problem
    if problem.packing.law.takes_repetition and problem.evidence.repeated is None:
        center = draw_centers(ranks_of(problem.evidence.log.p), len(shares), seed)
        there = replace(problem, repeated=center)
        if problem.evidence.tells(problem.packing.law):
            there, again = fit_repetition(problem, shares, start[:, 0], center, REPLICATE_ROUNDS)
            start = again[:, None]
    if of_core.any():  # on a line of N and D there are several valleys, of which the belief may draw another
        believed = problem.beliefs.center + problem.beliefs.spread * draws
        start, draws = np.concatenate([start, np.where(of_core, believed, start)], axis=1), draws.repeat(2, axis=1)
    drawn = bool(problem.packing.law.knobs)  # from what is believed, where no run tells it
    stop = replace(REPLICATE, tolerance=BELIEVED_REPLICATE) if drawn else REPLICATE
    solution = there.search(shares, start, stop, progress, draws)
    return there.as_estimate(solution, problem.find_seen(shares) | drawn)


def draw_centers(ranks: IntArray, count: int, seed: int) -> FloatArray:
    """Draws (count, H) of what is believed: the centres of replicates, or their symbols where no run tells any.

    `ranks` (M,) number the sources whatever their order, so that each has the same draws in any.
    """
    normal = np.random.default_rng([seed, RandomStream.RATES]).standard_normal((count, 2 + len(ranks)))
    worth = np.sqrt(SHARED_WORTH) * normal[:, 1:2] + np.sqrt(1 - SHARED_WORTH) * normal[:, 2:][:, ranks]
    spread = np.column_stack([HARM_PRIOR.spread * normal[:, :1], WORTH_PRIOR.spread * worth])
    return repetition_prior(len(ranks))[0] + spread


def fit_repetition(
    problem: Estimation, shares: FloatArray, x: FloatArray, center: FloatArray | None = None, rounds: int = ROUNDS
) -> tuple[Estimation, FloatArray]:
    """The problem at the shared symbols that fit each weighting (V, R) best, and the targets' unknowns (V, K, P) there.

    `x` (V, K, P) solve the problem at its present shared symbols; `center` (V, H) is the centre of their prior.
    """
    usual, covariance = repetition_prior(len(problem.inputs.sources))
    center, precision = usual if center is None else center, np.linalg.inv(covariance)
    problem = replace(problem, repeated=np.broadcast_to(problem.repeated, (len(shares), len(usual))))
    for _ in range(rounds):
        curvature, slope = _expand(problem, shares, x)
        slope = slope + (problem.repeated - center) @ precision
        step = np.clip(-np.linalg.solve(precision + curvature, slope[..., None])[..., 0], -LARGEST, LARGEST)
        problem = replace(problem, repeated=problem.repeated + step)
        x = problem.follow(shares, x, CLOSELY)
        if np.abs(step).max() < SMALLEST:
            break
    return problem, x


def _expand(problem: Estimation, shares: FloatArray, x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Curvature (V, H, H) and slope (V, H) of minus the log likelihood of each weighting, all unknowns following."""
    V, K = x.shape[:2]
    replicate, target, flat = np.repeat(np.arange(V), K), np.tile(np.arange(K), V), x.reshape(V * K, -1)
    size = max(1, int(ENTRIES / (shares.shape[1] * (x.shape[2] + problem.repeated.shape[1]))))
    found = [
        _expand_problems(problem, flat[rows], target[rows], shares[replicate[rows]], problem.repeated[replicate[rows]])
        for rows in (slice(first, first + size) for first in range(0, V * K, size))
    ]
    share = _independent(problem, x[0], shares[0]) / K  # targets err together
    curvature, slope = (np.concatenate(part).reshape(V, K, *part[0].shape[1:]) for part in zip(*found, strict=True))
    return share * curvature.sum(axis=1), share * slope.sum(axis=1)


def _expand_problems(
    problem: Estimation, x: FloatArray, target: IntArray, shares: FloatArray, at: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """The same (Q, H, H) and (Q, H) of each problem by itself, at its unknowns x (Q, P) and shared symbols (Q, H).

    With G the curvature in a problem's own unknowns, S that in the shared symbols, and C the two crossed, the own ones
    follow a step of the shared by -G^-1 C: so S - C' G^-1 C is left of the curvature.
    """
    number, regression = np.arange(len(x)), problem.regression(target, shares, at)
    residual, jacobian = regression.residuals(x, number)
    shared = _slopes_in_shared(problem, x, target, at)
    size = np.maximum(np.abs(residual), LEAST_NOISE)
    score = (regression.weight * problem.loss.score(residual))[:, None, :]
    root = np.sqrt(regression.weight * np.minimum(1.0, problem.delta / size))[..., None]  # of Huber's weights
    own_rows, shared_rows = jacobian * root, shared * root
    own_slope = (score @ jacobian)[:, 0] + regression.prior.slope(x)
    matrix, C = regression.prior.matrix(own_rows), own_rows.swapaxes(1, 2) @ shared_rows
    diagonal, active = regression.prior.precision, regression.find_active(x, own_slope)
    diagonal = diagonal + (RIDGE * (np.einsum("qpp->qp", matrix) + diagonal) + 1e-300)
    follow = np.stack([solve_free(matrix, diagonal, one, active) for one in np.moveaxis(C, 2, 0)], axis=2)  # G^-1 C
    curvature = shared_rows.swapaxes(1, 2) @ shared_rows - C.swapaxes(1, 2) @ follow
    slope = (score @ shared)[:, 0] - (own_slope[:, None, :] @ follow)[:, 0]
    runs = 1 / np.square(regression.weight @ problem.alike).sum(axis=1)
    noise = MEAN_ABSOLUTE * np.einsum("qr,qr->q", regression.weight, size)
    certainty = np.maximum(runs - x.shape[1], runs / 4) / noise**2  # degrees of freedom over the variance of one run
    return certainty[:, None, None] * curvature, certainty[:, None] * slope


def _slopes_in_shared(problem: Estimation, x: FloatArray, target: IntArray, at: FloatArray) -> FloatArray:
    """Derivatives (Q, R, H) of the residuals by log h and by log R* of sources that some run repeats; 0 by others."""
    number, H = np.arange(len(x)), at.shape[1]
    slopes = np.zeros((len(x), len(problem.evidence.log), H))
    for place in np.flatnonzero(np.append(True, (problem.evidence.log.p > problem.evidence.shares).any(axis=0))):
        step = MOVED * (np.arange(H) == place)
        up, down = (problem.residuals(target, at + side * step)[1](x, number) for side in (1, -1))
        slopes[..., place] = (up - down) / (2 * MOVED)
    return slopes


def _independent(problem: Estimation, x: FloatArray, share: FloatArray) -> float:
    """How many independent targets the residuals of one solution x (K, P) amount to: between 1 and K."""
    seen = problem.observed
    predicted = replace(problem, repeated=problem.repeated[:1]).predict(x[None])[0]
    off = np.where(seen.weight * share[:, None] > 0, seen.log_loss - predicted, 0.0)
    if off.shape[1] < 2:
        return 1.0
    values = np.linalg.eigvalsh(np.nan_to_num(np.corrcoef(off.T)))
    return float(values.sum() ** 2 / np.square(values).sum())
