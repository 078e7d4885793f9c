"""The game in a run log: which runs are coalitions, what each earned, which are missing; and its Shapley values.

R rows of the log, K players (its sources), T targets, C coalitions found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy.stats import spearmanr

from shapleymix.display import Columns, Tabular
from shapleymix.errors import DataError, Fault, Location, UsageError
from shapleymix.files import Json
from shapleymix.game.exact import masks_of, members_of, name_coalition, refuse_too_many
from shapleymix.game.kriging import estimate_shapley
from shapleymix.records import BoolArray, FloatArray, IntArray, Record
from shapleymix.tables.words import parse_size

if TYPE_CHECKING:
    from shapleymix.tables.runs import RunLog
    from shapleymix.tables.sheets import Table
    from shapleymix.tables.transfer import TransferMatrix


UNIFORM_RATIO = 5e-3  # of 1 / |S|: logs round their ratios
UNIFORM_STEP = 1e-3  # and those of three decimals are off by one in the last
SAME_SIZE = 1e-2  # a size that a person typed (1M) means one in the log (999424)
SHOWN = 20
_MOST_PLAYERS = 62  # bits of a mask


@dataclass(frozen=True)
class DatamodellingScore(Tabular, Record):
    """Spearman's rank correlation (T,) over C `coalitions` between added values and measured payoffs (TRAK, 2023)."""

    kind = "datamodelling-score"
    axes: ClassVar[Mapping[str, str]] = {"targets": "T", "spearman": "T"}

    targets: tuple[str, ...]
    spearman: FloatArray
    coalitions: int

    def columns(self) -> Columns:
        """One row per target."""
        return {"target": self.targets, "spearman": self.spearman.tolist()}

    def headline(self) -> str:
        """The mean over targets."""
        return f"Linear-datamodelling score over {self.coalitions} coalitions: {self.spearman.mean():.3f} in the mean"


@dataclass(frozen=True)
class Game:
    """The coalitions found in a log at one model size and one token count.

    Attributes
    ----------
    players, targets : tuple of str
        Names of the K players and T targets.
    masks : int array (C,)
        Bitmasks of the coalitions, ascending; the first is the empty one.
    loss : array (C, T)
        Loss of each coalition, nats; the mean where it was run several times.
    repeats : int array (C,)
        Number of runs of each coalition.
    noise : array (C, T), optional
        Variance of each mean; None where no coalition was run twice.
    N, D : float
        Size and tokens of the coalitions' runs.
    origin : str
        The file of the log.
    notices : tuple of str
        Choices that were made and that a reader should know.
    elsewhere : dict of str to float
        Of the others that the log has at another D, that D.
    """

    players: tuple[str, ...]
    targets: tuple[str, ...]
    masks: IntArray
    loss: FloatArray
    repeats: IntArray
    noise: FloatArray | None
    N: float
    D: float
    origin: str = "<memory>"
    notices: tuple[str, ...] = ()
    elsewhere: Mapping[str, float] = field(default_factory=dict)

    @property
    def payoffs(self) -> FloatArray:
        """(C, T) nats saved against the untrained model, `v(S) = L(empty) - L(S)`."""
        return self.loss[0] - self.loss

    @property
    def members(self) -> BoolArray:
        """(C, K) who is in each coalition."""
        return members_of(self.masks, len(self.players))

    @property
    def complete(self) -> bool:
        """Whether all 2**K coalitions are there."""
        return len(self.masks) == 2 ** len(self.players)

    def datamodelling_score(self, matrix: TransferMatrix) -> DatamodellingScore:
        """How well a matrix's values order the coalitions: do those of its members, added up, say what each earned?

        Raises
        ------
        UsageError, DataError
            If the matrix has no values, or lacks a player or a target.
        """
        values = matrix.align(self.players, self.targets).sv
        if values is None:
            raise UsageError("the matrix has normalised values alone: they have no signs to add up", hint="give its sv")
        earned = zip((self.members @ values).T, self.payoffs.T, strict=True)
        ranks = [float(spearmanr(added, trained)[0]) for added, trained in earned]  # pyright: ignore[reportArgumentType]
        return DatamodellingScore(self.targets, np.array(ranks), len(self.masks))

    def missing(self, limit: int | None = None) -> tuple[str, ...]:
        """Names of missing coalitions, the first `limit` of them in the order of bitmasks."""
        known = set(self.masks.tolist())
        absent = (mask for mask in range(2 ** len(self.players)) if mask not in known)
        return tuple(name_coalition(mask, self.players) for mask in islice(absent, limit))

    def require_complete(self) -> None:
        """Raise a DataError that names the missing coalitions, if there are any."""
        refuse_too_many(len(self.players), len(self.targets))
        if self.complete:
            return
        total = 2 ** len(self.players)
        count, away = total - len(self.masks), [f"{one} (it is at D = {D:.10g})" for one, D in self.elsewhere.items()]
        named = [*away, *(name for name in self.missing(SHOWN) if name not in self.elsewhere)][:SHOWN]
        names = ", ".join(named) + (f", ... and {count - SHOWN} more" if count > SHOWN else "")
        what = "at another D than" if len(away) == count else "missing at"
        message = f"{count} of {total - 1} coalitions {what} N = {self.N:.10g}, D = {self.D:.10g}: {names}"
        hint = "train them (uniform mixtures), or estimate from those that are there (sampled)"
        hint = "give all runs of the game one D, if they differ by a batch alone" if len(away) == count else hint
        raise DataError(message, hint=hint, location=Location(file=self.origin))


def coalition_game(log: RunLog, *, N: float | None = None, D: float | None = None) -> Game:
    """Find the coalition runs of a log.

    A run is a coalition if its ratios are uniform over their support: each within 0.5% of 1 / |S|, or within 0.001
    of it, of which the larger holds (published logs are rounded). Runs of one coalition are averaged, and their
    scatter, pooled over coalitions of a size with the target's language and over those without it, gives the noise of
    every mean.
    The untrained model has the same N; where there is none, the nearest N is taken and a notice says so.

    Parameters
    ----------
    log : RunLog
        The log in which to look for coalition runs.
    N, D : float, optional
        The size and token count to use, to within 1%. By default the one (N, D) that has all coalitions; if none
        has, the one that has the most.

    Raises
    ------
    DataError
        If there is no coalition, no untrained model, or a loss of one is not measured (each is named).
    UsageError
        If several (N, D) have all coalitions and none was chosen, or `N` or `D` is not in the log.
    """
    if not 0 < len(log.sources) <= _MOST_PLAYERS:
        message = f"a game needs 1 to {_MOST_PLAYERS} languages, the log has {len(log.sources)}"
        raise DataError(message, location=Location(log.origin))
    from shapleymix.tables.languages import own_data  # here, since it imports polars

    masks = coalition_masks(log.p, log.D)
    size, tokens = _choose_budget(log, masks, N, D)
    empty, notices = _untrained_rows(log, size)
    rows = np.flatnonzero((masks > 0) & (size == log.N) & (tokens == log.D))
    rows = np.concatenate([empty, rows])
    _check_measured(log, rows, masks)
    found, index, repeats = np.unique(masks[rows], return_inverse=True, return_counts=True)
    members = members_of(found, len(log.sources))
    own = members @ own_data(log.paths, log.targets) > 0  # (C, T): the target's language is in it
    loss, noise = _average(log.loss[rows], index.ravel(), repeats, own, members.sum(axis=1))
    others = np.flatnonzero((masks > 0) & (size == log.N) & ~np.isin(masks, found))
    away = {name_coalition(int(masks[row]), log.sources): float(log.D[row]) for row in others.tolist()}
    return Game(log.sources, log.targets, found, loss, repeats, noise, size, tokens, log.origin, tuple(notices), away)


def coalition_masks(p: FloatArray, D: FloatArray) -> IntArray:
    """Bitmask of the coalition of each row (R,): 0 where untrained, -1 where the mixture is no coalition's."""
    members = p > 0.5 * p.max(axis=1, keepdims=True, initial=0.0)
    size = np.maximum(members.sum(axis=1, keepdims=True), 1)
    allowed = np.maximum(UNIFORM_STEP, UNIFORM_RATIO / size)
    uniform = (np.abs(p - members / size) <= allowed).all(axis=1)
    masks = masks_of(members)
    return np.where(D == 0, 0, np.where(uniform & (masks > 0), masks, -1))


def _choose_budget(log: RunLog, masks: IntArray, N: float | None, D: float | None) -> tuple[float, float]:
    """The (N, D) whose coalitions make the game."""
    coalition = masks > 0
    if not coalition.any():
        raise DataError("holds no coalition run, on a uniform mixture of some languages", location=Location(log.origin))
    keep = coalition & _near(log.N, N, "N", coalition)
    keep &= _near(log.D, D, "D", keep)
    found = set(zip(log.N[keep].tolist(), log.D[keep].tolist(), masks[keep].tolist(), strict=True))
    counts = Counter((size, tokens) for size, tokens, _ in found)
    full = sorted(pair for pair, count in counts.items() if count == 2 ** len(log.sources) - 1)
    if len(full) > 1:
        listed = "; ".join(f"N = {size:.10g}, D = {tokens:.10g}" for size, tokens in full)
        raise UsageError(f"the log holds {len(full)} complete games: {listed}; choose one by N and D")
    return full[0] if full else max(counts, key=lambda pair: (counts[pair], pair))


def _near(values: FloatArray, wanted: float | None, name: str, rows: BoolArray) -> BoolArray:
    """Rows whose value is the one nearest to what was asked for."""
    if wanted is None:
        return rows
    known = np.unique(values[rows])
    nearest = known[np.abs(known - wanted).argmin()]
    if abs(nearest - wanted) > SAME_SIZE * abs(wanted):
        listed = ", ".join(f"{value:.10g}" for value in known[:SHOWN])
        raise UsageError(f"no coalition run has {name} = {wanted:.10g}", hint=f"there are {name} = {listed}")
    return rows & (values == nearest)


def _untrained_rows(log: RunLog, size: float) -> tuple[IntArray, list[str]]:
    """Rows of the untrained model at this N, or at the nearest N with a notice."""
    untrained = log.D == 0
    if not untrained.any():
        hint = "add a row with D = 0: the losses of the model before training, about ln(vocabulary), measured"
        raise DataError("the untrained model (D = 0) is missing", hint=hint, location=Location(file=log.origin))
    known = np.unique(log.N[untrained])
    nearest = float(known[np.abs(np.log(known / size)).argmin()])
    notice = f"no untrained model at N = {size:.10g}; the one at N = {nearest:.10g} stands in"
    return np.flatnonzero(untrained & (nearest == log.N)), [] if nearest == size else [notice]


def _check_measured(log: RunLog, rows: IntArray, masks: IntArray) -> None:
    """Raise a DataError with every (coalition, target) whose loss is not there."""
    faults = []
    for place, target in np.argwhere(~np.isfinite(log.loss[rows])).tolist():
        row, name = rows[place], log.targets[target]
        where = Location(log.origin, None if log.lines is None else int(log.lines[row]), f"loss_{name}")
        faults.append(Fault(f"coalition {name_coalition(int(masks[row]), log.sources)} has no loss for {name}", where))
    if faults:
        raise DataError.of(faults, "the game")


def _average(
    loss: FloatArray, index: IntArray, repeats: IntArray, own: BoolArray, size: IntArray
) -> tuple[FloatArray, FloatArray | None]:
    """Mean loss (C, T) of each coalition and the variance of that mean, or None without repeated coalitions.

    The variance of one run is that of `_pooled`. The untrained model has another, usually far smaller scatter: its own
    where it was measured more than once, else that of all coalitions, which errs high.
    """
    mean = np.zeros((len(repeats), loss.shape[1]))
    np.add.at(mean, index, loss)
    mean /= repeats[:, None]
    squares = np.zeros_like(mean)
    np.add.at(squares, index, (loss - mean[index]) ** 2)
    freedom = np.broadcast_to((repeats - 1)[:, None], squares.shape)
    if freedom[1:].sum() == 0:
        return mean, None
    alike = slice(0, 1) if repeats[0] > 1 else slice(1, None)  # whose scatter the untrained model has
    untrained = squares[alike].sum(axis=0) / freedom[alike].sum(axis=0)
    variance = np.vstack([untrained, _pooled(squares[1:], freedom[1:], own[1:], size[1:])])
    return mean, variance / repeats[:, None]


def _pooled(squares: FloatArray, freedom: IntArray, own: BoolArray, size: IntArray) -> FloatArray:
    """Variance of one run (C, T) of trained coalitions, from squares about their means and degrees of freedom (C, T).

    Losses scatter far more without the target's language: from the same text one seed learns a foreign script and
    another does not. Coalitions with it (`own`, (C, T)) and without are thus pooled apart, and these by their size,
    which it depends on too. A size has few coalitions, and the smallest and the largest, which count most in a Shapley
    value, have the fewest: the mean of all sizes counts as one degree of freedom more. Where no coalition with
    the language (or without) was repeated, all coalitions stand in.
    """
    together = squares.sum(axis=0) / freedom.sum(axis=0)
    variance = np.broadcast_to(together, squares.shape).copy()
    for alike in (own, ~own):
        added, degrees = np.where(alike, squares, 0.0), np.where(alike, freedom, 0)
        known = degrees.sum(axis=0)
        every = added.sum(axis=0) / np.maximum(known, 1)
        for one in np.unique(size):
            rows = size == one
            near = (every + added[rows].sum(axis=0)) / (1 + degrees[rows].sum(axis=0))
            variance[rows] = np.where(alike[rows] & (known > 0), near, variance[rows])
    return variance


def shapley_values(
    log: RunLog | Table, *, sampled: bool = False, N: float | str | None = None, D: float | str | None = None
) -> TransferMatrix:
    """Shapley values of the languages of a log, from its coalition runs.

    Parameters
    ----------
    log : RunLog
        With the untrained model (D = 0); or its file, or a data frame.
    sampled : bool
        Estimate from the coalitions that are there, with standard errors, if some are missing; without it, missing
        coalitions are an error. Efficiency holds exactly either way.
    N, D : float or str, optional
        The model size and token count whose coalitions to use, where the log holds several games.

    Returns
    -------
    TransferMatrix
        `sv` in nats. `stderr` where coalitions were repeated (noise of training) or missing (the estimator's
        error), else None. `provenance` holds method, N, D, players, coalitions, repeats and notices.

    Raises
    ------
    DataError, UsageError
        As `coalition_game` and `estimate_shapley` do; and if coalitions are missing, with their names.
    """
    from shapleymix.tables.run_reading import read_runs  # here: games of arrays need no polars
    from shapleymix.tables.transfer import TransferMatrix

    budget = {name: parse_size(given, name) for name, given in (("N", N), ("D", D)) if given is not None}
    game = coalition_game(read_runs(log), **budget)
    if not sampled:
        game.require_complete()
    estimate = estimate_shapley(game.members, game.payoffs, game.noise, players=game.players)
    stderr = None if estimate.method == "exact" and game.noise is None else estimate.stderr
    made_from: dict[str, Json] = {
        "method": estimate.method,
        "N": game.N,
        "D": game.D,
        "players": len(game.players),
        "coalitions": len(game.masks),
        "coalitions_of": 2 ** len(game.players),
        "repeats": int(game.repeats.max()),
        "untrained": dict(zip(game.targets, game.loss[0].tolist(), strict=True)),
        "log": game.origin,
        "notices": list(game.notices),
    }
    return TransferMatrix.from_sv(estimate.values, game.players, game.targets, stderr, made_from)
