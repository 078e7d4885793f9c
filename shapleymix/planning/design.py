"""Which mixtures to train next: those whose losses tell most of the losses of all others.

>>> plan = design(35, sources=["en", "de", "fr"])                # before any run
>>> more = design(20, "runs.csv", caps={"en": 0.5}, batches=2)   # after some

A log loss is taken for linear in a level and in powers of the ratios, `c - sum_i sum_s u_is p_i^s` with s of .2, .45
and .9 (what real logs give to the default law), each number normal about zero. The variance of what such a model
predicts over the region is shrunk by one run after another (I-optimality; Atkinson, Donev and Tobias 2007, "Optimum
Experimental Designs", chapters 10 to 12), which are then exchanged one by one while that helps (Fedorov 1972). No loss
is looked at. Chosen out of real logs, runs so planned leave a smaller held-out error than random ones
(`tests/benchmarks/bench_design.py`).

Axes: C candidates, Q mixtures of the region, M sources, P features.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from shapleymix.display import Tabular
from shapleymix.errors import UsageError, caution, described
from shapleymix.files import Json
from shapleymix.fitting.evidence import Logs, line_of, parting_run
from shapleymix.fitting.fit import Fit
from shapleymix.fitting.noise import BEYOND_D, BEYOND_N
from shapleymix.fitting.settings import Size
from shapleymix.mixing.bounds import Bounds, polytope_of
from shapleymix.mixing.infeasibility import require_feasible
from shapleymix.mixing.optimize import problem
from shapleymix.mixing.polytope import FEASIBLE, ROUNDING, Polytope
from shapleymix.records import BoolArray, FloatArray, IntArray, Record
from shapleymix.statistics import RandomStream
from shapleymix.tables.mixtures import MixtureSpec, mixture_of
from shapleymix.tables.run_reading import read_runs
from shapleymix.tables.runs import RunLog
from shapleymix.tables.words import format_size, parse_budget, parse_whole

EXPONENTS = (0.2, 0.45, 0.9)
LEVEL, EFFECT, NOISE = 3.0, 0.1, 0.05
"""Standard deviations of the level of log losses, of what a source changes of them, and of one run about the model."""
PASSES, BETTER = 3, 1e-6
"""Most rounds of exchanges, and the share of its worth by which an exchange must improve."""
DRAWN, SPARSE, ASKED = 400, 200, 300
"""How many mixtures are drawn as candidates: at large, and of few sources; and how many make the region."""
CONCENTRATIONS = (0.1, 0.3, 1.0, 3.0)
"""Of the Dirichlet draws: with .1 a few sources hold nearly everything, with 3 none holds much more than another."""
ALIKE = 1e-4
"""Mixtures whose ratios differ by less are one."""
LEAST_RATIO = 1e-3
"""A smaller ratio that is drawn is none: nobody trains on a few tokens of a language."""
NEARBY = 0.25
"""With a fit, the region lies this far on the way from its optimum to mixtures at large."""
FAR_OFF = 0.02
"""By how much losses at the target are unsure, for the distance from all runs alone, before one is asked for."""
WORTH = 0.9
"""Share of that which a run towards the target may leave to be worth asking for."""
MOST_CORNERS = 60

STILL = 1e-12
"""A bound towards which mixtures move by less than that is not approached: rounding."""

MixturesSpec = RunLog | FloatArray | Sequence[MixtureSpec]
"""Mixtures as they are given: a table of points, ratios (C, M), or a list of whatever may stand for one."""


@dataclass(frozen=True)
class Design(Tabular, Record):
    """Mixtures to train next, the most useful first.

    Attributes
    ----------
    sources : tuple of str
        M labels.
    N, D : float
        The budget of the planned runs; NaN where it is not known.
    runs : tuple of str (R,)
        Ids for the planned runs.
    p : array (R, M)
        Their ratios.
    batch, candidate : int array (R,)
        Number of the batch of each, from 1, and its place among the candidates, from 0.
    error : array (R + 1,)
        What is expected to be left of the error over the region, as a share of that before the first run: 1, then after
        each run.
    trained, candidates : int
        Different mixtures trained so far or planned already, and mixtures to choose from.
    notices : tuple of str
        What was assumed.
    provenance : dict
        What the plan was made from.
    """

    kind = "design"
    axes: ClassVar[Mapping[str, str]] = {
        "sources": "M", "runs": "R", "p": "RM", "batch": "R", "candidate": "R", "error": "V",
    }  # fmt: skip

    sources: tuple[str, ...]
    N: float
    D: float
    runs: tuple[str, ...]
    p: FloatArray
    batch: IntArray
    candidate: IntArray
    error: FloatArray
    trained: int
    candidates: int
    notices: tuple[str, ...]
    provenance: dict[str, Json]

    def __len__(self) -> int:
        return len(self.runs)

    def columns(self) -> dict[str, Any]:
        """The rows of a run log without losses, in order, with the number of the batch; N and D where known."""
        table: dict[str, Any] = {"run": list(self.runs)}
        table |= {name: np.full(len(self), one) for name, one in (("N", self.N), ("D", self.D)) if not np.isnan(one)}
        table |= {f"p_{name}": self.p[:, place] for place, name in enumerate(self.sources)}
        return table | {"planned_batch": self.batch}

    def headline(self) -> str:
        """How many mixtures, after how many, and what they bring."""
        left = f"expected to leave {self.error[-1]:.0%} of the error over the region"
        return f"Design of {len(self)} runs after {self.trained} mixtures; {left}"


def design(
    n: int,
    log: Logs | None = None,
    *,
    sources: Sequence[str] | None = None,
    fit: Fit | str | None = None,
    N: Size | None = None,
    D: Size | None = None,
    target_N: Size | None = None,
    target_D: Size | None = None,
    candidates: MixturesSpec | None = None,
    region: MixturesSpec | None = None,
    batches: int = 1,
    seed: int = 0,
    **bounds: Any,
) -> Design:
    """The n mixtures to train next, the most useful first.

    Parameters
    ----------
    n : int
        How many mixtures.
    log : Logs, optional
        The runs so far; rows without any loss are runs that are planned already. None = before any run.
    sources : sequence of str, optional
        Labels, where no log, fit or languages table says them.
    fit : Fit or path, optional
        A fit: the runs are chosen to predict well around its optimum. By default, over all mixtures within the bounds.
    N : Size, optional
        Parameters of the planned runs. By default those of most mixtures so far.
    D : Size, optional
        Tokens of each planned run, for bounds on tokens. By default those of most mixtures so far.
    target_N, target_D : Size, optional
        Parameters and tokens of the model that is planned for: there a fit's optimum is taken, and where no run is
        near, one larger or longer run is asked for. By default those of the planned runs.
    candidates : MixturesSpec, optional
        The mixtures to choose from. By default random ones within the bounds.
    region : MixturesSpec, optional
        The mixtures over which the expected error is averaged. By default the candidates, or random ones.
    batches : int
        How many batches the runs are divided into.
    seed : int
        Seed of the random mixtures.
    **bounds : see `problem`
        caps, floors, fix, languages, available, max_epochs, min_tokens, groups, keep_within, kept, near, within,
        distance.

    Raises
    ------
    UsageError
        If there are no labels, or fewer candidates than runs.
    InfeasibleError
        If the bounds leave no mixture.
    """
    count, parts = parse_whole(n, "n", 1), parse_whole(batches, "batches", 1)
    if parts > count:
        raise UsageError(f"{parts} batches of {count} runs", hint="give no more batches than runs")
    asked = Bounds(**bounds)
    known = None if fit is None else Fit.taken(fit)
    so_far = None if log is None else _runs_so_far(log)
    names = _sources(so_far, known, sources, asked.table)
    trained = np.zeros((0, len(names))) if so_far is None else _distinct(so_far.align(names).p)
    size, tokens = _budget(so_far, known, N, D, asked)
    pairs = zip((target_N, target_D), (size, tokens), "ND", strict=True)
    target = [near if far is None else parse_budget(far, f"target_{name}") for far, near, name in pairs]
    parents = {} if known is None else known.parents
    area = require_feasible(polytope_of(asked, names, 1.0 if np.isnan(tokens) else tokens, parents=parents))
    pool, points = _mixtures(area, candidates, region, seed)
    if known is not None:
        best = problem(known, target[0], target[1], seed=seed, allow_unseen=True, **vars(asked)).solve().p
        points = best + NEARBY * (points - best)
    open_places = np.flatnonzero(~_among(pool, trained))
    if len(open_places) < count:
        hint = "ask for fewer runs, give more candidates, or loosen the bounds"
        raise UsageError(f"{count} runs of {len(open_places)} candidates that were not trained yet", hint=hint)
    chosen, error = choose(pool[open_places], points, trained, count)
    order, first = open_places[chosen], 1 if so_far is None else 1 + len(set(so_far.runs))
    runs = tuple(f"plan-{number:03d}" for number in range(first, first + count))
    notices = () if known is None else ("the region lies around the optimum of the fit",)
    most = (size, tokens) if known is None else (known.N_range[1], known.D_range[1])
    most = most if so_far is None else (so_far.N.max(), so_far.D.max())
    notices = (*notices, *_ask_for_bridge(np.maximum(most, (size, tokens)), size * tokens * count, count, target))
    if so_far is not None and (line := line_of(so_far.N, so_far.D)) is not None:
        notices = (*notices, parting_run(line, so_far.N, so_far.D))
    caution(notices)
    return Design(
        sources=names, N=size, D=tokens, runs=runs, p=pool[order],
        batch=np.arange(count, dtype=np.int64) * parts // count + 1, candidate=order, error=error / error[0],
        trained=len(trained), candidates=len(open_places), notices=notices,
        provenance={"log_sha256": None if so_far is None else so_far.digest, "seed": seed},
    )  # fmt: skip


def _ask_for_bridge(most: FloatArray, compute: float, n: int, target: Sequence[float]) -> Iterator[str]:
    """Where N and D of all runs (2,) are far from the target's: what one run of the compute N D of n planned tells."""
    aim = np.array(target)
    bridge = np.maximum(np.minimum(np.sqrt(compute * aim / aim[::-1]), aim), most)
    now, then = (float(np.hypot(*(np.log(np.maximum(aim / one, 1)) * [BEYOND_N, BEYOND_D]))) for one in (most, bridge))
    if now > FAR_OFF:
        (size, tokens), share = map(format_size, bridge.tolist()), float(np.prod(bridge)) / compute
        text = f"one run of N = {size}, D = {tokens}, for {share:.3g} times the compute of all {n}, leaves {then:.1%}"
        text = text if then < WORTH * now else "one run of the compute of all these tells little more"
        yield f"the target lies so far beyond all runs that its losses are unsure by {now:.1%} for that alone: {text}"


def move_within(area: Polytope, p: FloatArray, seed: int = 0) -> FloatArray:
    """Mixtures (R, M) shrunk into the room above the floors; those that still are outside of the bounds are moved to
    anywhere on the way to one well within, so that they do not all lie on a bound.

    Raises
    ------
    UsageError
        If the inside of the bounds is not known: a KL ball around a mixture that the others exclude.
    """
    rng = np.random.default_rng([seed, RandomStream.DESIGN])
    inside, _ = _inside(area, rng)
    p = area.lower + (1 - area.lower.sum()) * p
    moved = _within(area, inside, p)
    share = rng.random((len(p), 1)) ** (1 / max(p.shape[1] - 1, 1))  # even in the volume that bounds leave
    return np.where(np.abs(moved - p).max(axis=1, keepdims=True) > FEASIBLE, inside + share * (moved - inside), moved)


def features(p: FloatArray) -> FloatArray:
    """Features (R, P) of mixtures (R, M) in which a log loss is linear, each of variance one."""
    powers = [EFFECT * np.where(p > 0, np.where(p > 0, p, 1.0) ** exponent, 0.0) for exponent in EXPONENTS]
    return np.concatenate([np.full((len(p), 1), LEVEL), *powers], axis=1)


def choose(pool: FloatArray, region: FloatArray, trained: FloatArray, n: int) -> tuple[IntArray, FloatArray]:
    """The n candidates (C, M) that shrink the mean variance over the region most, given runs of mixtures (R, M).

    Returns
    -------
    Places among the candidates, the most useful first, and the root mean square error (n + 1,) before and after each.
    """
    F, asked = features(pool), features(region)
    A = asked.T @ asked / len(asked)
    prior = np.eye(F.shape[1])
    for row in features(trained):
        prior = _observe(prior, row, 1.0)
    chosen, _, S = _pick(prior, F, A, n)
    for _ in range(PASSES):
        S, moved = _exchange(S, F, A, chosen)
        if not moved:
            break
    chosen.sort()
    order, error, _ = _pick(prior, F[chosen], A, n)
    return np.array(chosen)[order], np.array(error)


def _pick(S: FloatArray, F: FloatArray, A: FloatArray, n: int) -> tuple[list[int], list[float], FloatArray]:
    """The n runs of which each helps most after those before it, the errors before and after each, the covariance."""
    chosen, error = list[int](), [float(np.sqrt(np.sum(A * S)))]
    for _ in range(n):
        chosen.append(_best(_worth(S, F, A), chosen))
        S = _observe(S, F[chosen[-1]], 1.0)
        error.append(float(np.sqrt(np.sum(A * S))))
    return chosen, error, S


def _observe(S: FloatArray, row: FloatArray, sign: float) -> FloatArray:
    """The covariance (P, P) after a run with these features, or (sign -1) with that run taken back."""
    pulled = S @ row
    return S - np.outer(pulled, pulled) / (row @ pulled + sign * NOISE**2)


def _worth(S: FloatArray, F: FloatArray, A: FloatArray) -> FloatArray:
    """By how much (C,) a run of each candidate shrinks the mean variance over the region."""
    pulled = F @ S
    return np.einsum("cp,pq,cq->c", pulled, A, pulled, optimize=True) / (np.einsum("cp,cp->c", pulled, F) + NOISE**2)


def _best(worth: FloatArray, taken: Sequence[int]) -> int:
    """The candidate of the highest worth that is not taken, the first of equals."""
    left = worth.copy()
    left[list(taken)] = -np.inf
    return int(np.argmax(left))


def _exchange(S: FloatArray, F: FloatArray, A: FloatArray, chosen: list[int]) -> tuple[FloatArray, bool]:
    """Each run in turn exchanged for a better one, where there is one; and whether any was."""
    moved = False
    for place, old in enumerate(list(chosen)):
        without = _observe(S, F[old], -1.0)
        worth = _worth(without, F, A)
        new = _best(worth, chosen)
        if len(worth) > len(chosen) and worth[new] > worth[old] * (1 + BETTER):
            chosen[place], moved = new, True
            S = _observe(without, F[new], 1.0)
    return S, moved


def _runs_so_far(log: Logs) -> RunLog:
    """The runs that are trained or planned, not the untrained models."""
    read = read_runs(log, losses="optional")
    kept = read.select(read.trained)
    if not len(kept) or not kept.sources:
        raise UsageError("the log holds no run with a mixture", hint="leave it out to plan before any run")
    return kept


def _sources(log: RunLog | None, fit: Fit | None, given: Sequence[str] | None, languages: Any) -> tuple[str, ...]:
    """Labels from whatever says them first: the fit, the log, the names given, the languages table."""
    if given is not None and (isinstance(given, str) or log is not None or fit is not None):
        hint = "give a list of names, and neither a log nor a fit beside it"
        raise UsageError(f"sources: {described(given)} says nothing here", hint=hint)
    known = [one.sources for one in (fit, log) if one is not None]
    known += [tuple(given)] if given is not None else []
    known += [languages.sources] if languages is not None else []
    if not known or len(set(known[0])) < 2:
        raise UsageError("nothing says what the sources are", hint="give sources, a log, a fit or a languages table")
    return known[0]


def _budget(log: RunLog | None, fit: Fit | None, N: Size | None, D: Size | None, asked: Bounds) -> tuple[float, float]:
    """N and D of the planned runs: as given, else the smallest size of most mixtures so far and its usual tokens."""
    usual = (np.nan, np.nan)
    if log is not None:
        sizes = np.unique(log.N)
        mixtures = [len(np.unique(log.groups[size == log.N])) for size in sizes]
        most = log.select(sizes[np.argmax(mixtures)] == log.N)
        ends = [most.D[np.array(most.runs) == run].max() for run in np.unique(most.runs)]
        usual = float(most.N[0]), float(np.quantile(ends, 0.5, method="lower"))
    elif fit is not None:
        usual = float(fit.N_range[1]), float(fit.D_range[1])
    size = usual[0] if N is None else parse_budget(N, "N")
    tokens = usual[1] if D is None else parse_budget(D, "D")
    by_tokens = [name for name in ("available", "max_epochs", "min_tokens") if getattr(asked, name) is not None]
    if np.isnan(tokens) and by_tokens:
        raise UsageError(f"{by_tokens[0]} limits tokens, and nothing says how many a run has", hint="give D")
    return size, tokens


def _mixtures(
    area: Polytope, candidates: MixturesSpec | None, region: MixturesSpec | None, seed: int
) -> tuple[FloatArray, FloatArray]:
    """The mixtures (C, M) to choose from, and those (Q, M) over which the error is averaged."""
    rng = np.random.default_rng([seed, RandomStream.DESIGN])
    inside, corners = _inside(area, rng)
    pool = None if candidates is None else _read_mixtures(candidates, area)
    points = pool if region is None else _read_mixtures(region, area)
    if points is None:
        points = _within(area, inside, _draw(ASKED, len(inside), rng))
    if pool is None:
        M = len(inside)
        drawn = np.concatenate([np.full((1, M), 1 / M), _draw(DRAWN, M, rng), _sparse(SPARSE, M, rng)])
        pool = _distinct(np.concatenate([_within(area, inside, drawn), corners]))
    return pool, points


def _read_mixtures(given: MixturesSpec, area: Polytope) -> FloatArray:
    """Mixtures (C, M) over the sources, from whatever lists them."""
    if isinstance(given, RunLog):
        return given.align(area.sources, given.targets).p
    if isinstance(given, str) or not len(given):
        raise UsageError(f"{described(given)} is no list of mixtures", hint="give a list, ratios (C, M), or a RunLog")
    if isinstance(given, np.ndarray):
        if given.ndim != 2 or given.shape[1] != len(area.sources):
            raise UsageError(f"mixtures of shape {given.shape}, expected (C, {len(area.sources)})")
        return given / given.sum(axis=1, keepdims=True)
    return np.stack([mixture_of(one, area.sources, area.supply.available, area.supply.D) for one in given])


def _draw(count: int, M: int, rng: np.random.Generator) -> FloatArray:
    """Random mixtures of several concentrations."""
    each = -(-count // len(CONCENTRATIONS))
    p = np.concatenate([rng.dirichlet(np.full(M, one), size=each) for one in CONCENTRATIONS])
    p = np.where(p < LEAST_RATIO, 0.0, p)
    return p / p.sum(axis=1, keepdims=True)


def _sparse(count: int, M: int, rng: np.random.Generator) -> FloatArray:
    """Random mixtures of two to eight sources."""
    p = np.zeros((count, M))
    for row in p:
        some = rng.permutation(M)[: rng.integers(2, 9)]
        row[some] = rng.dirichlet(np.ones(len(some)))
    return p


def _inside(area: Polytope, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """A mixture well within the bounds, and corners (Q, M) of these: the most of some sources each.

    Raises
    ------
    UsageError
        If a KL ball is around a mixture that the other bounds exclude: its inside is not known.
    """
    M = len(area.sources)
    if area.ball is not None and area.ball.kind == "kl":
        if area.violation(area.ball.center) > FEASIBLE:
            raise UsageError("the bounds exclude the centre of the KL ball", hint="give the distance in l1")
        return area.ball.center, area.ball.center[None]
    costs = np.concatenate([-np.eye(M)[: MOST_CORNERS // 2], rng.standard_normal((MOST_CORNERS // 2, M))])
    ends = [end for cost in costs if (end := area.minimise_linear(cost)) is not None]
    corners = np.clip(np.stack(ends), area.lower, area.upper)
    return corners.mean(axis=0), corners


def _within(area: Polytope, inside: FloatArray, p: FloatArray) -> FloatArray:
    """Mixtures (R, M) moved towards the one inside as far as the bounds ask, and no further."""
    free = area.upper - area.lower > ROUNDING
    way = np.where(free, p - inside, 0.0)
    equal = np.concatenate([np.ones((1, len(free))), area.rows[area.row_low == area.row_high]]) * free
    way -= way @ np.linalg.pinv(equal) @ equal  # the sum stays one, and kept ratios are kept
    rows = np.concatenate([-np.eye(len(inside)), np.eye(len(inside)), -area.rows, area.rows])
    limits = np.concatenate([-area.lower, area.upper, -area.row_low, area.row_high])
    room, speed = limits - rows @ inside, way @ rows.T
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(speed > STILL, np.maximum(room, 0.0) / speed, np.inf).min(axis=1)
    share = np.minimum(share, 1.0)
    if (ball := area.ball) is not None:
        low, high = np.zeros(len(p)), share
        for _ in range(40):
            middle = (low + high) / 2
            holds = [ball.distance(inside + t * one) <= ball.radius for t, one in zip(middle, way, strict=True)]
            low, high = np.where(holds, middle, low), np.where(holds, high, middle)
        share = low
    found = inside + share[:, None] * way
    return np.where(found < ROUNDING, 0.0, found)  # what rounding leaves of a zero is none


def _distinct(p: FloatArray) -> FloatArray:
    """Mixtures without repetitions, in their order."""
    _, first = np.unique(np.rint(p / ALIKE), axis=0, return_index=True)
    return p[np.sort(first)]


def _among(p: FloatArray, so_far: FloatArray) -> BoolArray:
    """Which mixtures (C, M) are among those of the runs so far (R, M)."""
    rows = {row.tobytes() for row in np.rint(so_far / ALIKE).astype(np.int64)}
    return np.array([row.tobytes() in rows for row in np.rint(p / ALIKE).astype(np.int64)], dtype=bool)
