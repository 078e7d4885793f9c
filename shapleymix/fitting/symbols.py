"""Between a law's named symbols and the vectors that the search works on: layout, starts, and what no run tells.

Starting points come by variable projection: a grid over exponents, with the linear symbols (E, A, B) solved exactly at
each by non-negative least squares over a few columns, for all problems at once by trying every subset.

A source that no run holds gets the median of the others' coefficients. A law with a prior on its coefficients draws
them from that prior in the replicates.

With two values of N, a curve of any exponent passes through the losses; with one value, a curve of any exponent and any
size of its term does. The runs cannot choose among these, so that the prior is also the posterior. The fitted law takes
the prior's centre; each replicate takes a draw, and keeps its losses at the runs' N (`CoreLaw.with_exponent`). So an
interval widens with the distance from the runs, for every law with that core. The same holds for D.

Where N and D change together, the runs show one curve along that line, and not which of the two makes it. There A, B,
alpha and beta of the core get a prior as well, with which the fit chooses.

A slope is that of the whole loss, at the mean mixture. The term of a budget with one value is taken out of E, and is no
larger than E.

The beliefs, and whose they are, stand in `laws/core.py`.

Legend: Q problems (a target, a start and a replicate each), P unknowns, V weightings of the rows, B replicates, K
targets, M sources. In a problem every array of the law has one target, and the problems are its replicates: shapes
(Q, 1) and (Q, M, 1).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from shapleymix.fitting.evidence import levels, line_of
from shapleymix.fitting.least_squares import Prior
from shapleymix.laws import Inputs, Law, Observations, Parameter
from shapleymix.laws.base import ABSURD, Belief, Budget, Knobs
from shapleymix.laws.core import EXPONENT_PRIOR, LEAST_SLOPE, SLOPE_PRIOR, TERMS, CoreLaw
from shapleymix.records import BoolArray, FloatArray, IntArray
from shapleymix.statistics import RandomStream, nonnegative, ranks_of
from shapleymix.tables.runs import RunLog


@dataclass(frozen=True)
class Packing:
    """The layout of one law's unknowns for M sources, with the symbols that the data cannot tell held fixed."""

    law: type[Law]
    sources: int
    fixed: dict[str, float]

    @cached_property
    def free(self) -> tuple[Parameter, ...]:
        """The symbols that are searched over."""
        return tuple(parameter for parameter in self.law.symbols_to_fit() if parameter.name not in self.fixed)

    @cached_property
    def linear(self) -> tuple[str, ...]:
        """The names of those in which the loss is linear."""
        return tuple(known.name for known in self.free if known.role == "linear")

    @cached_property
    def owners(self) -> tuple[Parameter, ...]:
        """The declaration of every unknown's symbol, length P."""
        return tuple(known for known in self.free for _ in range(self.sources if known.axes == "MK" else 1))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The symbol of every unknown, length P."""
        return tuple(parameter.name for parameter in self.owners)

    @cached_property
    def slices(self) -> dict[str, slice]:
        """Where each symbol lies in the vector."""
        firsts = {known.name: self.names.index(known.name) for known in self.free}
        return {name: slice(first, first + self.names.count(name)) for name, first in firsts.items()}

    def bounds(self) -> tuple[FloatArray, FloatArray]:
        """The box of the search, two arrays (P,)."""
        ends = [known.encode(np.array([known.low, known.high])) for known in self.owners]
        low, high = np.array(ends).reshape(-1, 2).T
        return low, high

    def pack(self, symbols: dict[str, FloatArray]) -> FloatArray:
        """Vectors (..., K, P) from symbols of shape (..., K) or (..., M, K)."""
        each = [(known, known.encode(symbols[known.name])) for known in self.free]
        parts = [value[..., None] if known.axes == "K" else value.swapaxes(-1, -2) for known, value in each]
        return np.concatenate(parts, axis=-1)

    def unpack(self, x: FloatArray, givens: dict[str, FloatArray]) -> Law:
        """The law from vectors (..., K, P) and the given symbols."""
        symbols = givens | {name: np.full(x.shape[:-1], value) for name, value in self.fixed.items()}
        for known in self.free:
            value = known.decode(x[..., self.slices[known.name]])
            symbols[known.name] = value[..., 0] if known.axes == "K" else value.swapaxes(-1, -2)
        return self.law(**symbols)

    def jacobian(self, slopes: dict[str, FloatArray]) -> FloatArray:
        """Derivatives (Q, R, P) from the law's named slopes."""
        rows = np.broadcast_shapes(*(slope.shape[:2] for slope in slopes.values()))
        out = np.empty((*rows, len(self.names)))
        for name, place in self.slices.items():
            slope = slopes[name][..., 0]
            out[:, :, place] = slope.reshape(*slope.shape[:2], -1)
        return out

    def is_defined(self, givens: dict[str, FloatArray], observed: Observations) -> BoolArray:
        """Where the law has a loss, (R, K): its given symbols alone decide that, so that any fitted ones will do."""
        law = self.unpack(np.zeros((observed.log_loss.shape[1], len(self.names))), givens)
        return law.is_defined(observed.p)

    def of_sources(self) -> list[slice]:
        """Where the unknowns lie of each symbol that has one value a source."""
        return [self.slices[known.name] for known in self.free if known.axes == "MK"]

    def fill_unseen(self, x: FloatArray, seen: BoolArray) -> FloatArray:
        """Unknowns x (V, K, P) with those of sources not `seen` (V, K, M) as the middle one of the others has them."""
        if seen.all():
            return x
        x = x.copy()
        donors = seen | ~seen.any(axis=-1, keepdims=True)  # of a target that nothing is told of, all as they are
        for place in self.of_sources():
            usual = np.nanmedian(np.where(donors, x[..., place], np.nan), axis=-1, keepdims=True)
            x[..., place] = np.where(seen, x[..., place], usual)
        return x


def starting_points(
    packing: Packing, rows: Observations, shares: FloatArray, inputs: Inputs, givens: dict[str, FloatArray], keep: int
) -> FloatArray:
    """The `keep` best starts of every target under each weighting `shares` (V, R) of the rows, (V, keep, K, P)."""
    found = []
    for share in shares:
        seen = replace(rows, weight=rows.weight * share[:, None])
        symbols = _cross_starts(packing, seen, inputs, givens)
        offset, columns = _columns(packing, symbols, seen, givens)
        gap = np.exp(seen.log_loss) - offset
        relative = seen.weight * np.exp(-2.0 * seen.log_loss)  # squares of relative, not absolute, errors
        gram = np.einsum("rk,csrk,dsrk->skcd", relative, columns, columns, optimize=True)
        right = np.einsum("rk,csrk,srk->skc", relative, columns, gap, optimize=True)
        ridge = 1e-10 * np.einsum("...cc->...c", gram).max(axis=-1, initial=0.0) + 1e-300
        solved = nonnegative(gram + ridge[..., None, None] * np.eye(gram.shape[-1]), right)
        error = np.einsum("skcd,skc,skd->sk", gram, solved, solved, optimize=True) - 2.0 * (right * solved).sum(axis=-1)
        error += np.einsum("rk,srk->sk", relative, gap**2)
        amounts = {name: np.maximum(solved[..., index], 1e-4) for index, name in enumerate(packing.linear)}
        best = np.argsort(error, axis=0, kind="stable")[:keep]
        found.append(np.take_along_axis(packing.pack(symbols | amounts), best[..., None], axis=0))
    return np.stack(found)


def _cross_starts(
    packing: Packing, observed: Observations, inputs: Inputs, givens: dict[str, FloatArray]
) -> dict[str, FloatArray]:
    """The law's own starts crossed with the declared ones of every other free symbol; leading axis S."""
    symbols = packing.law.starts(observed, inputs, givens)
    shapes = {"K": observed.log_loss.shape[1:], "MK": (packing.sources, observed.log_loss.shape[1])}
    rows = max((len(value) for value in symbols.values()), default=1)
    for known in packing.free:
        if known.name in symbols:
            continue
        values = np.ones(1) if known.role == "linear" else known.starts  # linear symbols are solved for later
        symbols = {name: np.concatenate([value] * len(values)) for name, value in symbols.items()}
        symbols[known.name] = np.multiply.outer(np.repeat(values, rows), np.ones(shapes[known.axes]))
        rows *= len(values)
    return symbols


def _columns(
    packing: Packing, symbols: dict[str, FloatArray], observed: Observations, givens: dict[str, FloatArray]
) -> tuple[FloatArray, FloatArray]:
    """The loss with every linear symbol zero (S, R, K), and what one unit of each adds (C, S, R, K)."""
    rows, targets = len(next(iter(symbols.values()))), observed.log_loss.shape[1]
    fixed = {name: np.full((rows, targets), value) for name, value in packing.fixed.items()}

    def loss(**units: float) -> FloatArray:
        amounts = {name: np.full((rows, targets), units.get(name, 0.0)) for name in packing.linear}
        law = packing.law(**(symbols | fixed | amounts | givens))
        losses = law.losses(observed.p, observed.N, observed.D)
        return np.where(np.abs(losses) < ABSURD, losses, 0.0)  # NaN is 0, too

    offset = loss()
    columns = [loss(**{name: 1.0}) - offset for name in packing.linear]
    return offset, np.array(columns).reshape(len(columns), *offset.shape)


TUNED = ("center", "spread", "kin")  # fields of a `PriorTable` that knobs change
NOISE = 0.02  # of a log loss, where cross-validation has not yet told it


@dataclass(frozen=True)
class PriorTable:
    """Centre and spread of every unknown of every target, both (K, P); an infinite spread believes nothing.

    `noise` (K,) is the usual error of a log loss: a run weighs as much as a prior whose spread is that error.
    `siblings` (K, P, P) projects unknowns onto the distances of siblings from their mean, which the prior pulls to zero
    `kin` (K,) times as firmly.
    """

    center: FloatArray
    spread: FloatArray
    noise: FloatArray
    kin: FloatArray
    siblings: FloatArray | None = None

    @classmethod
    def of(
        cls, packing: Packing, knobs: Knobs, givens: dict[str, FloatArray], noise: FloatArray, levels: Levels,
        observed: Observations,
    ) -> PriorTable:  # fmt: skip
        """What the law says at one value of its knobs, and of the core's symbols what levels say besides."""
        shape = (len(noise), len(packing.names))
        center, spread, kin, contrasts = np.zeros(shape), np.full(shape, np.inf), np.zeros(len(noise)), None
        place, core = packing.slices, believe_together(packing, levels, observed)
        for name, belief in {**packing.law.beliefs(knobs, givens), **core}.items():
            if name not in place:
                continue  # held: the log cannot tell it, and nothing is searched
            for array, value in ((center, belief.center), (spread, belief.spread)):
                known = np.asarray(value, dtype=np.float64)
                array[:, place[name]] = known.T if known.ndim == 2 else np.broadcast_to(known, len(noise))[:, None]
            same = None if belief.siblings is None else belief.siblings.T[:, :, None] == belief.siblings.T[:, None]
            if same is not None and (same.sum(axis=2) > 1).any():
                kin, contrasts = np.full(len(noise), belief.kin), np.zeros((*shape, shape[1]))
                contrasts[:, place[name], place[name]] = np.eye(len(same[0])) - same / same.sum(axis=2, keepdims=True)
        return cls(center, spread, noise, kin, contrasts)

    @classmethod
    def choose(cls, several: Sequence[PriorTable], which: IntArray) -> PriorTable:
        """Of several beliefs, for each target the one of that number (K,)."""
        place = (which, np.arange(len(which)))
        chosen = {name: np.stack([getattr(one, name) for one in several])[place] for name in TUNED}
        return replace(several[0], **chosen)

    def same(self, other: PriorTable) -> bool:
        """Whether two beliefs are one."""
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in TUNED)

    def only(self, targets: IntArray) -> PriorTable:
        """The same for some targets alone."""
        return replace(self, **{name: value[targets] for name, value in vars(self).items() if value is not None})

    def prior(self, target: IntArray, alone: FloatArray, draws: FloatArray | None = None) -> Prior:
        """The pull on each problem's unknowns, given its target (Q,) and the weight (Q,) of one run, of 1 for all.

        Parameters
        ----------
        draws : array (Q, P), optional
            Standard normal draws that move the centres: then a replicate is as unsure as what is believed.
        """
        center, spread, kin, ties = self.center[target], self.spread[target], self.kin[target], None
        contrasts = None if self.siblings is None or not kin.any() else self.siblings[target]
        if contrasts is not None:
            root = self.noise[target] * np.sqrt(kin * alone)
            ties = contrasts * root[:, None, None] / spread[:, :, None]
        if draws is not None:
            moved = np.where(np.isfinite(spread), spread, 0.0) * draws
            if contrasts is not None:
                alike = 1 - 1 / np.sqrt(1 + kin)  # of the spread between siblings is taken by what makes them alike
                moved = moved - alike[:, None] * np.einsum("qpr,qr->qp", contrasts, moved)
            center = center + moved
        return Prior(center, (self.noise[target] ** 2 * alone)[:, None] / spread**2, ties)


COMMON = 0.8  # of the variance of a belief is one draw for all targets of a log; in it, targets differ less than logs


@dataclass(frozen=True)
class Levels:
    """The different values of N and of D among the fitted rows, in plain units, ascending; their mean ratios (M,).

    `together` is whether N and D change together alone.
    """

    N: FloatArray
    D: FloatArray
    p: FloatArray
    together: bool

    @classmethod
    def of(cls, log: RunLog, rows: BoolArray | slice) -> Levels:
        """Those of some rows of a log."""
        N, D = log.N[rows], log.D[rows]
        return cls(levels(N), levels(D), log.p[rows].mean(axis=0), line_of(N, D) is not None)

    def find_untold(self, law: type[Law]) -> dict[Budget, FloatArray]:
        """The budgets with one or two values that a law's symbols need more of, and these."""
        both: dict[Budget, FloatArray] = {"N": self.N, "D": self.D}
        return {budget: values for budget, values in both.items() if len(values) < 3 and law.of_budget(budget)}

    def find_fixed(self, law: type[Law]) -> dict[str, float]:
        """Symbols of a law that these budgets cannot tell, with the value they are held at."""
        untold = self.find_untold(law)
        known = [(one, untold[one.budget]) for one in law.symbols_to_fit() if one.budget in untold]
        values = {one.name: 0.0 if len(there) == 1 else one.usual for one, there in known}
        return {name: value for name, value in values.items() if value is not None}

    def complete(self, law: Law) -> Law:
        """The law (..., K) with the centres of what its runs cannot tell; the same losses at their N and D."""
        if not isinstance(law, CoreLaw):
            return law
        for budget, values in self.find_untold(type(law)).items():
            if len(values) == 1:
                exponent = np.full(np.shape(law.E), np.exp(EXPONENT_PRIOR[budget].center))
                law = _change_exponent(law, self, budget, exponent, _slope(budget, np.zeros_like(exponent)))
        return law


def believe_together(packing: Packing, levels: Levels, observed: Observations) -> dict[str, Belief]:
    """What is believed of the core's symbols, in the units of the search, where N and D change together.

    Amounts are those of equal slopes at the usual loss, and at exponents that are held or believed.
    """
    if not levels.together or not issubclass(packing.law, CoreLaw):
        return {}
    found: dict[str, Belief] = {}
    loss = np.exp(np.average(observed.log_loss, axis=0, weights=observed.weight))
    for budget, (amount, exponent) in TERMS.items():
        share = TOGETHER / packing.fixed.get(exponent, np.exp(APART[budget].center))
        found |= {amount: Belief(np.log(share * loss), AMOUNT_SPREAD), exponent: APART[budget]}
    return found


APART: Mapping[Budget, Belief] = {"N": Belief(np.log(0.3), 0.55), "D": Belief(np.log(0.45), 0.45)}
"""Of the logarithms of alpha and beta: suites and mixture logs together have .13 to .71 and .3 to .8 (laws/core.py)."""
TOGETHER = 0.06
"""`-d log L / d log N`, and the same by D: their sum the runs tell."""
AMOUNT_SPREAD = 0.6
"""Of the logarithms of A and B: the two slopes stand to each other as 1 to 3 up to 2 to 1 in the public logs.

Fitted to its runs at one D / N, 92 and 97% of SlimPajama's losses at others lie inside, and all of Chinchilla's, whose
intervals are four to five times as wide as they must be (bench_coverage.py); with .08 for N 86 and 87% of SlimPajama's.
"""


def draw_untold(law: Law, levels: Levels, seed: int) -> Law:
    """Replicates (B, K) with draws of what the runs cannot tell; each keeps its losses at their N and D.

    Of a budget with two values the exponent is drawn, and its term follows from the losses; of a budget with one value
    the slope of the loss is drawn, too. A law in which such a budget does more than its core says draws that first
    (`redraw`): the core takes what is left of the slope.
    """
    if not isinstance(law, CoreLaw):
        return law
    rng, other = (np.random.default_rng([seed, RandomStream.EXPONENTS, one]) for one in (0, 1))
    ranks = ranks_of(law(levels.p[None], levels.N[:1], levels.D[:1])[0])  # the same draws for a target in any order
    for budget, values in levels.find_untold(type(law)).items():
        belief = EXPONENT_PRIOR[budget]
        exponent = np.exp(belief.center + belief.spread * _draw_normals(rng, ranks, len(law.E)))
        slope = _slope(budget, _draw_normals(rng, ranks, len(law.E)))
        if len(values) == 1:
            redrawn = law.redraw(budget, float(values[0]), _draw_normals(other, ranks, len(law.E)))
            beside_core = _slopes(redrawn, levels, budget) - _slopes(law, levels, budget)
            law, slope = redrawn, np.maximum(slope - beside_core, LEAST_SLOPE)
        law = _change_exponent(law, levels, budget, exponent, slope)
    return law


def sort_held(law: Law, held: Collection[str]) -> dict[str, dict[str, float]]:
    """For each budget the symbols that were held for lack of its variation, with their value."""
    names = {budget: [name for name in law.of_budget(budget) if name in held] for budget in ("N", "D")}
    return {budget: {one: float(np.ravel(getattr(law, one))[0]) for one in each} for budget, each in names.items()}


def _slopes(law: CoreLaw, levels: Levels, budget: Budget) -> FloatArray:
    """-d log L / d log N or D (..., K) of the mean mixture at the middle of the budgets."""
    step = np.array([-1e-4, 1e-4])
    N, D = (np.exp(np.log(values).mean()) * np.ones(2) for values in (levels.N, levels.D))
    N, D = (N * np.exp(step), D) if budget == "N" else (N, D * np.exp(step))
    log_loss = np.log(law(np.stack([levels.p, levels.p]), N, D))
    return (log_loss[..., 0, :] - log_loss[..., 1, :]) / (step[1] - step[0])


def _draw_normals(rng: np.random.Generator, ranks: IntArray, count: int) -> FloatArray:
    """Standard normal numbers (B, K) that the targets of a replicate, numbered by `ranks`, have mostly in common."""
    common, own = rng.standard_normal((count, 1)), rng.standard_normal((count, len(ranks)))
    return np.sqrt(COMMON) * common + np.sqrt(1 - COMMON) * own[:, ranks]


def _slope(budget: Budget, deviations: FloatArray) -> FloatArray:
    """How steeply the loss falls with a budget, so many standard deviations from the centre of what is believed."""
    believed = SLOPE_PRIOR[budget].center + SLOPE_PRIOR[budget].spread * deviations
    return np.exp(believed) if budget == "D" else np.maximum(believed, LEAST_SLOPE)


def _change_exponent(law: CoreLaw, levels: Levels, budget: Budget, exponent: FloatArray, slope: FloatArray) -> CoreLaw:
    """The law with another exponent of a budget, and where the runs hold one value of it with such a slope there."""
    middle = [np.exp(np.log(values).mean(keepdims=True)) for values in (levels.N, levels.D)]
    p, core = levels.p[None], law.core(*middle)[..., 0, :]
    loss, more = (one(p, *middle)[..., 0, :] for one in (law, law.swap(E=law.E + 1.0)))
    in_core = np.where(np.isnan(loss), core, loss / (more - loss))  # over what one nat of the core adds to it
    values = levels.N if budget == "N" else levels.D
    return law.with_exponent(budget, values, exponent, slope / exponent * in_core)
