"""Sources without runs, taken to be like one that runs hold: what a user knows and no log says.

The new source's effect on every target is that of the source it is like, with two exceptions that no likeness covers.
On the other's own target it is the middle of what foreign sources do: Czech data are no Polish. On its own target, if
that was measured, it is what the other does on its own, with the shape that it has there, or else what sources do in
the middle. Replicates spread it widely: by a factor of e as a whole and for each target, by how much sources differ in
what they do for foreign targets, and in one of four by another source's effect, drawn anew, since a likeness may be
wrong. For all targets but these two it is more of the other source: both have one power of what they are together
(`Coverage.twins`), so that a copy gains nothing beside it; so is a part beside its siblings.

Where its text is at hand, a new source's effect on the languages of the runs is in proportion to what the game of text
(`text_shapley`) says, which errs less than any likeness (`bench_shapley.py`); else it is like the nearest of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from shapleymix.display import field_names, short
from shapleymix.errors import UsageError, caution, did_you_mean
from shapleymix.fitting.coverage import COUNTED
from shapleymix.fitting.fit import Fit
from shapleymix.fitting.one_law import LawFit
from shapleymix.fitting.settings import SEED
from shapleymix.game.text import text_shapley
from shapleymix.laws import BlackBox, Law, Parameter
from shapleymix.records import FloatArray, IntArray
from shapleymix.statistics import RandomStream
from shapleymix.tables.languages import own_data, paths_of
from shapleymix.tables.words import as_word, parse_pairs, parse_whole

WHOLE, EACH = 0.7, 0.7  # standard deviations of the logarithm: of a source as a whole, and for each target beside
WRONG = 0.25  # share of the replicates in which the source is like another one, drawn at random
LITTLE = 1e-300
"""Share of a new source in own data's help at an even ratio: next to none, since the runs measured that without it."""

LikeSpec = Mapping[str, str] | Sequence[str] | str
"""`"cs=pl,sk=pl"`, `"cs=text:DIR"`, `"en/new"` for a part like a sibling, several such texts, or a mapping."""
SIBLINGS, TEXT = "its siblings", "text:"
_HINT = "write it like cs=pl, the new source and the one that it is like, or like cs=text:DIR"


def like(fit: Fit, sources: LikeSpec, *, seed: int = SEED) -> Fit:
    """A fit that knows further sources, each taken to be like one that it was fitted to.

    Parameters
    ----------
    fit : Fit
        The fit.
    sources : LikeSpec
        New source and the one that it is like: `"cs=pl,sk=pl"`, or a mapping. A part of a language that is named alone,
        `"en/new"`, is like the mean of its siblings that runs hold. `"cs=text:DIR"` reads a folder with text of the
        new source and of all that runs hold.
    seed : int
        Seed of the replicates' draws.

    Raises
    ------
    UsageError
        If runs hold the new source, none hold the other, or the law has no coefficients of single sources; and what
        `text_shapley` raises.
    """
    fit = Fit.taken(fit)
    if not isinstance(sources, Mapping):
        listed = ",".join([sources] if isinstance(sources, str) else sources).split(",")
        sources = [name if "=" in name or not _parent(fit, name) else f"{name}={SIBLINGS}" for name in listed]
    pairs = parse_pairs(sources, as_word, "like", _HINT)
    law = type(fit.law)
    if isinstance(fit.law, BlackBox) or not any(known.axes == "MK" for known in law.parameters()):
        hint = "fit a law that has them, such as 'learned-base'"
        raise UsageError(f"like: law {law.name!r} has no coefficients of single sources to take over", hint=hint)
    rng = np.random.default_rng([parse_whole(seed, "seed"), RandomStream.LIKE])
    beside = dict.fromkeys(pairs, "")
    for new, known in pairs.items():
        if new in fit.coverage.alike or (new in fit.sources and new not in fit.unseen):
            hint = "only a source without runs can be taken to be like another, once"
            raise UsageError(f"like: the effect of {new!r} is known", hint=hint)
        text = _TextRow.read(fit, new, known)
        fit = _with(fit, new, known, text, rng)
        if text is not None:
            rest = [name for name, value in zip(fit.targets, text.row, strict=True) if np.isnan(value)]
            beside[new] = f", and on {short(rest)} like {text.nearest}" if rest else ""
    caution(f"little is known of the effect of {new}: {fit.thin[new]}{beside[new]}" for new in pairs)
    return fit


def _with(fit: Fit, new: str, known: str, text: _TextRow | None, rng: np.random.Generator) -> Fit:
    """The fit with one more source, or with one that no run held."""
    models = _models(fit, new, known if text is None else text.nearest)
    fresh = new not in fit.sources
    sources = (*fit.sources, new) if fresh else fit.sources
    seen = _in_runs(fit)
    idle = fit.law.idle() if new in fit.targets else {}
    own = own_data(paths_of(sources, fit.parents, fit.targets), fit.targets)
    place = _Likeness(
        row=sources.index(new),
        known=tuple(map(fit.sources.index, models)),
        others=tuple(fit.sources.index(name) for name in seen if name not in models),
        own=tuple(np.where(own.any(axis=1), own.argmax(axis=1), -1).tolist()),
        idle=frozenset(name for name, there in idle.items() if there[fit.targets.index(new)]),
        text=text,
    )
    law = place.extend(fit.law)
    replicates = None if fit.replicates is None else _spread_replicates(fit.replicates, place, rng)
    residual = fit.residual.with_source(place.row, place.known[0] if len(models) == 1 else place.row)
    coverage, repetition, jumps = fit.coverage, fit.repetition, fit.jumps
    if fresh:
        coverage = coverage.with_source(place.row)
        repetition = None if repetition is None else repetition.with_source(place.row)
        jumps = None if jumps is None else jumps.with_source(place.row)
    like_whom = f"{COUNTED}{_most_helpful(fit, models)}" if known == SIBLINGS else known
    coverage, absent = replace(coverage, alike={**coverage.alike, new: like_whom}), fit.absent
    if absent is not None:  # what tells mixtures without a target's own language knows the source, too
        whole = _with(replace(fit, absent=None, **vars(absent)), new, known, text, rng)
        absent = LawFit(**{name: getattr(whole, name) for name in field_names(LawFit)})
    changed = {"law": law, "replicates": replicates, "coverage": coverage, "repetition": repetition, "absent": absent}
    return replace(fit, sources=sources, residual=residual, jumps=jumps, **changed)


def _most_helpful(fit: Fit, names: Sequence[str]) -> str:
    """The source that helps all targets most: more of it, one like several in the mean gains nothing."""
    helps = [getattr(fit.law, known.name) for known in fit.law.parameters() if known.role == "coefficients"]
    return max(names, key=lambda name: sum(float(value[fit.sources.index(name)].sum()) for value in helps))


def _in_runs(fit: Fit) -> list[str]:
    """The sources that runs hold."""
    return [name for name in fit.sources if name not in fit.unseen and name not in fit.coverage.alike]


def _parent(fit: Fit, name: str) -> str:
    """Whose part a source is; empty for one that is whole."""
    return paths_of((name,), fit.parents, fit.targets)[0].rpartition("/")[0]


@dataclass(frozen=True)
class _TextRow:
    """What text says of a new source.

    Attributes
    ----------
    nearest : str
        Of the sources that runs hold the one that helps it and is helped by it most.
    seen : tuple of int
        Rows of these H sources.
    foreign : array (H, K)
        Their normalised values; 0 on their own targets, and on targets without text.
    row : array (K,)
        Those of the new source; NaN for targets without text, and for its own.
    """

    nearest: str
    seen: tuple[int, ...]
    foreign: FloatArray
    row: FloatArray

    @classmethod
    def read(cls, fit: Fit, new: str, known: str) -> _TextRow | None:
        """What the folder of `text:DIR` says; None where a source is taken to be like another."""
        if not known.startswith(TEXT):
            return None
        seen = _in_runs(fit)
        matrix = text_shapley(known.removeprefix(TEXT), sources=(*seen, new))
        assert matrix.sv is not None  # text gives values, not only normalised ones
        together = matrix.sv[-1, :-1] + matrix.sv[:-1, -1]
        places = [matrix.targets.index(name) if name in matrix.targets else -1 for name in fit.targets]
        nsv = np.where(np.array(places) < 0, 0.0, matrix.nsv[:, places])
        own = own_data(paths_of((*seen, new), fit.parents, fit.targets), fit.targets)
        values, rows = np.where(own, 0.0, nsv), tuple(map(fit.sources.index, seen))
        row = np.where(values[-1] > 0, values[-1], np.nan)
        return cls(seen[int(together.argmax())], rows, values[:-1], row)

    def scale_to(self, value: FloatArray, row: FloatArray) -> FloatArray:
        """The row (..., K) in proportion to coefficients (..., M, K) of the sources that runs hold, where text says."""
        norm = np.square(self.foreign).sum(axis=0)
        share = np.einsum("...hk,hk->...k", value[..., self.seen, :], self.foreign) / np.where(norm > 0, norm, 1.0)
        return np.where((norm > 0) & ~np.isnan(self.row), share * np.nan_to_num(self.row), row)


Move = Callable[[Parameter, FloatArray, FloatArray], FloatArray]
"""From a symbol, the row (..., K) of a new source and the values of all others to the row as it is meant."""


@dataclass(frozen=True)
class _Likeness:
    """Where the new source and those that it may be like stand.

    Attributes
    ----------
    row, known : int and tuple of int
        Row of the new source, after all others where it is yet to be made, and of those that it is like the mean of.
    others : tuple of int
        Rows of all others that runs hold.
    own : tuple of int
        For each source, the new one too, the target whose own data it is, or -1.
    idle : set of str
        Symbols of the new source's own target on which nothing hung without it.
    text : _TextRow, optional
        What its text says.
    """

    row: int
    known: tuple[int, ...]
    others: tuple[int, ...]
    own: tuple[int, ...]
    idle: frozenset[str]
    text: _TextRow | None

    @property
    def mine(self) -> int:
        """The target whose own data the new source is, or -1."""
        return self.own[self.row]

    def extend(self, law: Law, move: Move = lambda symbol, row, value: row) -> Law:
        """The law with the new source, whose row (..., K) of each symbol is moved."""

        def change(symbol: Parameter, value: FloatArray) -> FloatArray:
            if symbol.axes == "K":
                return self.take_shape(symbol, value)
            row = move(symbol, self.like(type(law), symbol, value), value)
            row = LITTLE * row if symbol.name == "own" else row
            before, after = value[..., : self.row, :], value[..., self.row + 1 :, :]
            return np.concatenate([before, row[..., None, :], after], axis=-2)

        return law.map(change)

    def take_shape(self, symbol: Parameter, value: FloatArray) -> FloatArray:
        """A symbol per target: of the new source's own that of its owners' targets, if nothing told it.

        Not what a symbol does by N or D: losses without the new source were measured, and no likeness moves them.
        """
        if symbol.name not in self.idle or symbol.budget is not None or not self.owners:
            return value
        value = value.copy()
        value[..., self.mine] = np.median(value[..., [self.own[place] for place in self.owners]], axis=-1)
        return value

    def like(self, law: type[Law], symbol: Parameter, value: FloatArray) -> FloatArray:
        """The row (..., K) of a source like the known one."""
        row, own = self._mean(value), self.own[self.known[0]]
        if "families" in law.needs:  # of the same family, which is all that such a law asks
            return row
        there = self.row < value.shape[-2]
        if there and not symbol.is_fitted and "transfer" not in law.needs:  # its label says that, and is known
            row = np.array(value[..., self.row, :])
            if self.owners and self.mine >= 0:  # but for whether its data are the target's own, which runs say
                row[..., self.mine] = self._of_own(value)
            return row
        if self.owners and self.mine not in (-1, own):  # of what is given, too: whether the data are the target's own
            row[..., self.mine] = self._of_own(value)
        if own not in (-1, self.mine):
            row[..., own] = self._middle(value[..., own], own)
        weighs = (symbol.role == "coefficients" and symbol.low >= 0) or symbol.name == "nsv"
        if not weighs or self.text is None:
            return row
        return np.minimum(self.text.scale_to(value, row), symbol.high if symbol.is_fitted else 1.0)

    def other(self, value: FloatArray, taken: IntArray) -> FloatArray:
        """The rows (B, K) of sources `taken` (B,), one a replicate, as another language than their own has them."""
        place = np.arange(len(taken))
        row, own = np.array(value[place, taken]), np.array(self.own)[taken]
        has = np.flatnonzero(own >= 0)
        row[has, own[has]] = [self._middle(value[b, :, own[b]], own[b]) for b in has.tolist()]
        return row

    def scatter(self, value: FloatArray) -> FloatArray:
        """By how much foreign sources that runs hold differ in what they do for each target (..., K)."""
        rows = [*self.others, *self.known]
        foreign = np.array(self.own)[rows][:, None] != np.arange(value.shape[-1])
        known = value[..., rows, :]
        count = np.maximum(foreign.sum(axis=0), 1)
        middle = np.where(foreign, known, 0.0).sum(axis=-2, keepdims=True) / count
        own = np.where(foreign, np.square(known - middle), 0.0).sum(axis=-2) / count
        return (np.sqrt(own) + np.sqrt(own).mean(axis=-1, keepdims=True)) / 2

    def _middle(self, column: FloatArray, target: int) -> FloatArray:
        """The middle of what other sources, none of them a target's own data, have of its column (..., M), (...)."""
        foreign = [place for place in self.others if self.own[place] != target]
        return np.median(column[..., foreign], axis=-1) if foreign else column[..., self.known].mean(axis=-1)

    @property
    def owners(self) -> tuple[int, ...]:
        """Sources whose effect on their own target is what the new one has on its own: the known ones, or all."""
        known = tuple(place for place in self.known if self.own[place] >= 0)
        return known or tuple(place for place in self.others if self.own[place] >= 0)

    def _of_own(self, value: FloatArray) -> FloatArray:
        """What owners do for their own targets (...), in the middle."""
        return np.median(value[..., self.owners, [self.own[place] for place in self.owners]], axis=-1)

    def _mean(self, value: FloatArray) -> FloatArray:
        """The row (..., K) of the known sources in the mean."""
        return value[..., self.known, :].mean(axis=-2)


def _spread_replicates(replicates: Law, place: _Likeness, rng: np.random.Generator) -> Law:
    """The replicates with the new source drawn about the known one, and in some like another."""
    (count,), targets = replicates.batch(), replicates.targets_count()
    away = WHOLE * rng.normal(size=(count, 1)) + EACH * rng.normal(size=(count, targets))
    beside = rng.normal(size=(count, targets))
    wrong = (rng.random(count) < WRONG) if place.others else np.zeros(count, dtype=bool)
    foreign = np.arange(targets) != place.mine
    taken = rng.choice(place.others, size=count) if place.others else np.zeros(count, dtype=np.int64)

    def draw(symbol: Parameter, row: FloatArray, value: FloatArray) -> FloatArray:
        if not symbol.is_fitted and "transfer" not in replicates.needs:
            return row
        row = _move_row(symbol, row, away, value)
        if symbol.role == "coefficients" and symbol.low >= 0:
            row = np.clip(row + beside * place.scatter(value), symbol.low, symbol.high)
        return np.where(wrong[:, None] & foreign, place.other(value, taken), row)

    return place.extend(replicates, draw)


def _move_row(symbol: Parameter, row: FloatArray, away: FloatArray, value: FloatArray) -> FloatArray:
    """A row moved by a factor, within the symbol's bounds; one that may be negative by the spread of all sources."""
    if symbol.is_fitted and symbol.low < 0:
        return row + away * value.std(axis=-2)
    moved = row * np.exp(away)
    top = 1.0 if not symbol.is_fitted else symbol.high
    return np.where(row > 0, np.clip(moved, min(symbol.low, row.min(initial=np.inf)), top), 0.0)


def _models(fit: Fit, new: str, known: str) -> tuple[str, ...]:
    """The sources that a new one is like: the named one, or its siblings; refuses what can be like none."""
    seen, parent = _in_runs(fit), _parent(fit, new)
    models = tuple(name for name in seen if name == known or (known == SIBLINGS and _parent(fit, name) == parent))
    if known not in (SIBLINGS, *fit.sources):
        raise UsageError(f"like: {known!r} is not one of the sources", hint=did_you_mean(known, fit.sources))
    if not models:
        what = f"a sibling of {new!r}" if known == SIBLINGS else f"{known!r} itself"
        raise UsageError(f"like: no run holds {what}", hint="name a source that runs hold")
    return models
