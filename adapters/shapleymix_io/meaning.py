"""What the columns of a table mean: judged by what they hold; their names break ties. No tool is known here.

Ratios sum to one over a set of labels; losses are positive, differ between mixtures, and fall within a run; D grows
within a run and N does not; a run has one mixture. What is found is proposed (`--show`), never read: of the columns
that nobody maps, `reading` takes those alone that are called as in a run log.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from shapleymix.records import BoolArray, FloatArray, IntArray
from shapleymix.tables.sheets import as_numbers
from shapleymix.tables.words import format_size
from shapleymix_io import names as say
from shapleymix_io.column_map import NEEDED, PHASES, PREFIXES, SINGLE, ColumnMap, Map
from shapleymix_io.forms import Source
from shapleymix_io.sources import gather
from shapleymix_io.stores import Progress
from shapleymix_io.table import LANG, Table, matches

_ROUNDED = 5e-3
"""How far the sum of ratios may be from one."""
_EXPLAINED = 0.3
"""The share of variance between rows that mixtures explain, from which numbers are taken to depend on them."""
_MOST_NATS = 20.0
"""Losses above are perplexities, if they are losses."""


@dataclass(frozen=True)
class Proposal:
    """What a table seems to hold.

    Attributes
    ----------
    origin : str
        The table.
    columns : dict
        Every column, with its first cells.
    entries : dict
        The map that may read it, with `...` for what is missing.
    taken : dict
        Of each key the column, what it was recognised by, and how its numbers range or which languages it has.
    missing, notices : tuple of str
        What a log needs and nothing here looks like, and what reading brought up.
    """

    origin: str
    columns: dict[str, str]
    entries: dict[str, object]
    taken: dict[str, str]
    missing: tuple[str, ...]
    notices: tuple[str, ...]


class Family(NamedTuple):
    """Columns by label: those of a pattern, or without one a column of each; and what they were recognised by."""

    pattern: str
    columns: Mapping[str, str]
    why: str = ""


@dataclass(frozen=True)
class Judgement:
    """A table on the way to a proposal.

    Attributes
    ----------
    table : Table
        The table.
    numbers : dict
        The columns (R,) whose cells are numbers, NaN where they are empty.
    read, why : dict
        Of each key the column, pattern or columns by label, and what they were recognised by.
    ignored, notes : list of str
        Columns that a pattern must not take, and what a person must decide.
    """

    table: Table
    numbers: Mapping[str, FloatArray]
    read: dict[str, object] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def take(self, key: str, entry: object, why: str) -> None:
        """Write down what a key is, unless it is known."""
        if entry and key not in self.read:
            self.read[key], self.why[key] = entry, why

    def has(self, *keys: str) -> bool:
        """Whether one of the keys is known."""
        return not self.read.keys().isdisjoint(keys)

    def family(self, *keys: str) -> dict[str, str]:
        """The columns by label of the first of the keys that is known."""
        entry = next((self.read[key] for key in keys if key in self.read), "")
        if isinstance(entry, Mapping):
            return {str(label): self.table.called.get(str(column), str(column)) for label, column in entry.items()}
        return {label: name for label, name in self.table.matching(str(entry)).items() if name not in self.ignored}

    def free(self) -> dict[str, FloatArray]:
        """Columns of numbers that no key takes."""
        taken = {part for one in self.read.values() if isinstance(one, str) for part in one.split("*")}
        taken |= {name for key in PREFIXES for name in self.family(key).values()}
        return {name: one for name, one in self.numbers.items() if name not in taken}

    def fixed(self) -> list[str]:
        """Free columns of numbers that do not change within runs."""
        runs = self.runs()
        return [name for name, one in self.free().items() if not _changes(one, runs).any()]

    def cells(self, *keys: str) -> FloatArray:
        """The numbers (R, labels) of the first of the keys that is known."""
        found = [self.numbers[name] for name in self.family(*keys).values() if name in self.numbers]
        return np.column_stack(found) if found else np.zeros((self.table.frame.height, 0))

    def mixtures(self) -> IntArray:
        """Which mixture each row (R,) has, as far as ratios are known."""
        return groups_of(np.round(np.nan_to_num(self.cells("p", "tokens", "p1")), 6))

    def runs(self) -> IntArray:
        """Which run each row (R,) is of: by the column of ids, or else by the mixture."""
        column = str(self.read.get("run", ""))
        return ids_of(self.table, column) if column in self.table.columns else self.mixtures()

    def measured(self) -> BoolArray:
        """Which rows (R,) have a loss."""
        loss = self.cells("loss")
        return np.array(np.isfinite(loss).any(axis=1)) if loss.size else np.ones(len(loss), bool)


def groups_of(rows: np.ndarray) -> IntArray:
    """Which of the different rows each row (R, ...) is."""
    return np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1) if rows.shape[1] else np.zeros(len(rows), int)


def ids_of(table: Table, column: str) -> IntArray:
    """Which of the different texts of a column each row (R,) has."""
    return table.texts(column).fill_null("").rank("dense").to_numpy()


def numbers_of(table: Table, columns: Iterable[str]) -> dict[str, FloatArray]:
    """Those of the columns whose cells are numbers, or empty, as doubles (R,) that are finite or NaN."""
    found = {}
    for name in columns:
        values, blank = as_numbers(table.frame[name])
        if not blank.all() and not (values.is_null() & ~blank).any():
            cells = values.fill_null(np.nan).to_numpy()
            found[name] = np.where(np.isinf(cells), np.nan, cells)
    return found


def proposal(
    sources: Sequence[Source], map: Map | None = None, join: Sequence[Source] = (), progress: Progress | None = None
) -> Proposal:
    """A first map of the sources, to be looked over; what is given of a map stays."""
    given = ColumnMap.of(map).columns
    table, how = gather(sources, ColumnMap.of(map), join, progress)
    judged = Judgement(table, numbers_of(table, [name for name in table.columns if name not in how.ignore]))
    read, why, ignored = judged.read, judged.why, judged.ignored
    read |= {key: key for key in SINGLE if key in table.columns and key != "weight"}
    read |= {key: one for key in PREFIXES if (one := native(table, key, how))} | {**how.columns}
    why |= dict.fromkeys(read, "by its name") | dict.fromkeys(how.columns, "as this form has it")
    why |= dict.fromkeys(given, "as given")
    own = {*read}
    ignored += how.ignore
    _judge_families(judged)
    judged.take("weight", "weight" if "weight" in table.columns and not judged.has("language") else "", "by its name")
    for judge in (_judge_run, _judge_size, _judge_tokens, _judge_recipe):
        judge(judged)
    missing = tuple(key for key, keys in NEEDED.items() if not judged.has(*keys))
    found = {key: one for key, one in read.items() if key not in own or key in given} | _units(judged, how)
    found |= {"ignore": list(dict.fromkeys(ignored))} if ignored else {}
    found |= {key: f"...{LANG}" if key in PREFIXES else "..." for key in missing}
    columns = {name: _first_cells(table, name, 3) for name in table.columns}
    taken = {key: _described(judged, key) for key in read}
    if commas := [name for name in columns if table.texts(name).str.contains(r"^-?\d+,\d+$").any()]:
        judged.notes.append(f"numbers with decimal commas are not read: {', '.join(commas)}")
    return Proposal(table.origin, columns, found, taken, missing, (*table.notices, *judged.notes))


def _first_cells(table: Table, column: str, count: int) -> str:
    return ", ".join(table.texts(column).drop_nulls().unique(maintain_order=True)[:count])


def native(table: Table, key: str, how: ColumnMap) -> str:
    """The pattern of a run log's own columns of a key, if there are some; of tokens if one of them is of a target."""
    pattern, loss = f"{PREFIXES[key]}{LANG}", how.columns.get("loss", f"loss_{LANG}")
    targets = {*loss} if isinstance(loss, Mapping) else {*table.matching(str(loss))}
    found = [label for label in matches(pattern, table.columns) if key != "tokens" or label in targets]
    odd = [label for label in found if say.unit_rank(label) is not None or say.speaks(label, "no label", "no loss")]
    return pattern if found and (key != "loss" or len(odd) < len(found)) else ""


def misfits(
    key: str, found: Mapping[str, FloatArray], others: Collection[str], mixtures: IntArray
) -> dict[str, tuple[str, bool]]:
    """Labels whose columns are none of a key's, why, and whether that is sure: their numbers show it.

    `others` are the labels of the losses if the key is of ratios, and the other way round. A target that is no source
    is none if it is the same for all mixtures, a smoothed twin of another, or the mean, sum or extreme of the others. A
    source that is no target is none if it never changes and the others alone are a mixture, or it is their sum.
    """
    odd: dict[str, tuple[str, bool]] = {}
    alone = {label: one for label, one in found.items() if label not in others}
    still = {label for label, one in alone.items() if np.nanmin(one) == np.nanmax(one)}
    if key == "loss" and mixtures.max(initial=0) > 2:
        odd |= dict.fromkeys(still, ("is the same for every mixture", True))
        for label in [label for label in alone if say.speaks(label, "twin") and label not in odd]:
            if any(_correlation(found[label], one) > 0.9 for other, one in found.items() if other not in (label, *odd)):
                odd[label] = ("is a smoothed twin of another", True)
    if key == "p" and not _whole([*found.values()]) and _whole([found[one] for one in found if one not in still]):
        odd |= dict.fromkeys(still, ("never changes, and the others alone are a mixture", True))
    odd |= {label: ("is always 0", True) for label in still if key == "p" and not np.nanmax(found[label])}
    for label in [label for label in alone if label not in odd]:
        rest = [cells for other, cells in found.items() if other not in (label, *odd)]
        kinds = (np.sum, np.mean, np.max, np.min)[: 4 if key == "loss" else 1]
        sums = len(rest) > 1 and _sums_up(found[label], np.column_stack(rest), kinds)
        if sums or say.is_summary(label) or (key == "loss" and say.speaks(label, "no loss")):
            why = "is the mean, sum or extreme of the others" if sums else "seems to be an average or the like"
            odd[label] = (why, key == "tokens")
    return odd


def _sums_up(one: FloatArray, rest: FloatArray, kinds: Sequence[Callable[..., FloatArray]]) -> bool:
    """Whether numbers (R,) are the sum, the mean or an extreme of others (R, n), in all rows."""
    known = np.isfinite(one) & np.isfinite(rest).all(axis=1)
    if known.sum() < 3 or np.ptp(one[known]) == 0:
        return False
    return any(np.allclose(one[known], kind(rest[known], axis=1), rtol=1e-5) for kind in kinds)


def summary_rows(table: Table, run: str, columns: Sequence[str]) -> BoolArray:
    """Which rows (R,) are means, totals and the like of the other rows: by their ids, or the last by its numbers."""
    ids = table.texts(run).str.to_lowercase().to_list() if run in table.columns else [""] * table.frame.height
    known, firsts = say.WORDS["summary"], (["mean"], ["avg"], ["std"])
    said = np.array([text in known or say.words_of(str(text))[:1] in firsts for text in ids], bool)
    cells = np.column_stack([*numbers_of(table, columns).values()] or [np.zeros(len(said))])[~said]
    if len(cells) > 4 and cells.shape[1] > 2 and np.ptp(np.nan_to_num(cells), axis=0).max() > 0:
        said[np.flatnonzero(~said)[-1]] = np.allclose(cells[-1], cells[:-1].mean(axis=0), rtol=1e-6)
    return said


def _whole(cells: Sequence[FloatArray]) -> int:
    """1 or 100 where columns (R,) sum to it in nearly every row that has any; else 0."""
    p = np.nan_to_num(np.column_stack(cells)) if len(cells) > 1 else np.zeros((0, 1))
    sums = p.sum(axis=1)[(p != 0).any(axis=1)]
    near = [one for one in (1, 100) if sums.size and (np.abs(sums - one) <= _ROUNDED * one).mean() > 0.9]
    return near[0] if near and (p >= 0).all() else 0


def _correlation(a: FloatArray, b: FloatArray) -> float:
    """Of the rows that have both numbers; 0 where they are few or do not change."""
    a, b = (one[np.isfinite(a) & np.isfinite(b)] for one in (a, b))
    return float(np.corrcoef(a, b)[0, 1]) if len(a) > 2 and np.ptp(a) > 0 and np.ptp(b) > 0 else 0.0


def _changes(values: FloatArray, runs: IntArray) -> FloatArray:
    """By how much a number changes from row to row within runs, over the rows that have it."""
    known = np.isfinite(values)
    order = np.argsort(runs[known], kind="stable")
    return np.diff(values[known][order])[np.diff(runs[known][order]) == 0]


def _grows(values: FloatArray, runs: IntArray, least: float = 0.9) -> bool:
    changes = _changes(values, runs)
    return bool(changes.size and (changes > 0).mean() > least)


def counts_from_zero(steps: FloatArray) -> bool:
    """Whether steps are round numbers less one (499, 999), as those of a trainer are that counts from 0."""
    whole = np.unique(steps[np.isfinite(steps)]).astype(int)
    return len(whole) > 1 and bool(np.gcd.reduce(whole + 1) > 3 > np.gcd.reduce(whole))


def _evidence(cells: Sequence[FloatArray], p: FloatArray, runs: IntArray) -> tuple[str, int]:
    """How columns (R,) behave as losses do, in words; and 1 if they do, -1 if they do not, 0 if that cannot be seen.

    They fall within runs, and the mixtures (R, M) explain how they differ between rows (adjusted R^2 of a plane).
    """
    changes, explained = np.concatenate([_changes(one, runs) for one in cells]), []
    for one in cells:
        known = np.isfinite(one)
        plane, y = np.column_stack([np.ones(known.sum()), p[known]]), np.log(one[known])
        fitted, _, rank, _ = np.linalg.lstsq(plane, y, rcond=None)
        if len(y) - rank > 3 and np.ptp(y) > 0:
            explained.append(1 - np.sum((y - plane @ fitted) ** 2) / (len(y) - rank) / np.var(y, ddof=1))
    why = ["fall within runs"] if changes.size and (changes < 0).mean() > 0.6 else []
    why += ["differ as the mixtures do"] if explained and np.mean(explained) > _EXPLAINED else []
    return ", ".join(why), 1 if why else -1 if changes.size or explained else 0


def _judge_families(judged: Judgement) -> None:
    """The ratios and the losses: families of columns over labels, which should be the same."""
    asks_p, asks_loss = not judged.has("p", "tokens", "p1", "language", "name"), not judged.has("loss", "name")
    ratios = _ratio_families(judged) if asks_p else []
    if asks_p and not ratios and _judge_long(judged):
        return
    best = max(ratios, key=_ratio_order, default=Family("", {}))
    alike = [one for one in ratios if {*one.columns.values()} == {*best.columns.values()}]
    sources = [one.columns for one in alike] or [judged.family("p", "tokens", "p1")]
    taken = {name for one in ratios for name in one.columns.values()}
    loss = _loss_family(judged, sources, taken) if asks_loss else None
    targets = loss.columns if loss else judged.family("loss")
    if asks_p and not alike and (alike := _weights(judged, targets)) and asks_loss and not loss:
        loss = _loss_family(judged, [alike[0].columns], {*alike[0].columns.values()})
    differ = [one for one in ratios if _contradicts(judged, one, best) and len(_phases_of(one, ratios)) < 2]
    if differ:
        judged.notes.append(f"which of these ratios count, or are they phases? {best.pattern}, {differ[0].pattern}")
    elif alike:
        shared = max(alike, key=lambda one: (len(targets.keys() & one.columns.keys()), len(one.pattern)))
        phases = _phases_of(shared, ratios)
        for key, one in zip(PHASES if len(phases) > 1 else ["p"], phases, strict=False):
            _take_family(judged, key, one)
    if loss:
        _take_family(judged, "loss", loss)
    for key, other in (("p", "loss"), ("loss", "p"), ("tokens", "loss")):
        cells = {label: judged.numbers[name] for label, name in judged.family(key).items() if name in judged.numbers}
        odd = misfits(key, cells, judged.family(other), judged.mixtures()) if len(cells) > 1 else {}
        judged.ignored.extend([judged.family(key)[label] for label in odd])


def _contradicts(judged: Judgement, one: Family, best: Family) -> bool:
    """Whether a family of ratios varies and gives labels of the best one other numbers: nothing says which counts."""
    shared = one.columns.keys() & best.columns.keys()
    pairs = [(judged.numbers[one.columns[label]], judged.numbers[best.columns[label]]) for label in shared]
    return any(np.ptp(np.nan_to_num(a)) > 0 and not np.allclose(a, b, equal_nan=True) for a, b in pairs)


def _take_family(judged: Judgement, key: str, one: Family) -> None:
    """A family of a key; what its pattern matches beside it is not to be taken."""
    called = {column: name for name, column in reversed(judged.table.called.items())}
    judged.take(key, one.pattern or {label: called[name] for label, name in one.columns.items()}, one.why)
    beside = matches(one.pattern, judged.table.columns).values() if LANG in one.pattern else ()
    judged.ignored.extend(name for name in beside if name not in one.columns.values())


def _ratio_order(one: Family) -> tuple[object, ...]:
    named = say.speaks(one.pattern, "ratio")
    return not say.speaks(one.pattern, "held out"), one.why.endswith(" 1"), len(one.columns), named, len(one.pattern)


def _ratio_families(judged: Judgement) -> list[Family]:
    """Families whose rows sum to one or 100, without columns that never change where these spoil it."""
    fixed = judged.runs() if judged.has("run") else np.arange(judged.table.frame.height)
    free = {name: one for name, one in judged.free().items() if np.nanmin(one) >= 0 and 0 < np.nanmax(one) <= 100.5}
    able = {name: np.nan_to_num(one) for name, one in free.items() if not _changes(one, fixed).any()}
    targets, found = judged.family("loss"), []
    for pattern, columns in say.families(able).items():
        moving = {label: name for label, name in columns.items() if label in targets or np.ptp(able[name]) > 0}
        off = {}
        for n, some in enumerate((columns, moving)):
            cells = [able[name] for name in some.values()]
            if whole := _whole(cells):
                off[np.abs(sum(cells) - whole).mean(), n] = Family(pattern, some, f"rows sum to {whole}")
        found += [off[min(off)]] if off else []
    return found


def _weights(judged: Judgement, targets: Mapping[str, str]) -> list[Family]:
    """Ratios whose names share nothing: of one table, or called as the losses are; or else weights, by their names."""
    free = {name: one for name, one in judged.free().items() if name not in targets.values() and np.nanmin(one) >= 0}
    homes: defaultdict[tuple[str, int], dict[str, str]] = defaultdict(dict)
    for name, one in free.items():
        file, own, _ = judged.table.homes.get(name, ("", name, ""))
        for most in [most for most in (1, 100) if np.nanmax(one) <= most * (1 + _ROUNDED)]:
            homes[file, most][own] = name
    for columns in homes.values():
        for some in (columns, {label: name for label, name in columns.items() if label in targets}):
            if whole := _whole([free[name] for name in some.values()]):
                return [Family("", some, f"rows sum to {whole}")]
    named = [Family(pattern, some, "weights by their names") for pattern, some in say.families(free).items()]
    return [one for one in named if say.speaks(one.pattern, "ratio") and len(one.columns.keys() & targets.keys()) > 1]


def _phases_of(family: Family, ratios: Sequence[Family]) -> list[Family]:
    """The families that differ from one in a number of their patterns alone, in the order of it."""
    form = re.sub(r"\d+", "#", family.pattern)
    alike = {one.pattern: one for one in ratios if "#" in form and re.sub(r"\d+", "#", one.pattern) == form}
    phases = [one for one in alike.values() if one.columns.keys() & family.columns.keys()]
    return sorted(phases, key=lambda one: [int(n) for n in re.findall(r"\d+", one.pattern)]) or [family]


def _may_be_loss(values: FloatArray) -> bool:
    """Whether numbers are positive, and no counts."""
    known = values[np.isfinite(values)]
    return bool((known > 0).all() and (known % 1 != 0).any())


def _loss_family(judged: Judgement, sources: Sequence[Mapping[str, str]], taken: Collection[str]) -> Family | None:
    """The likeliest family of losses; `sources` are the columns of the ratios, by the labels that they may have.

    Evidence is in the numbers and in a name that says loss; where both are silent on a family, it is none. Then that
    counts which has most labels of the ratios, and the plainest: nats before bits before perplexity, the shortest name.
    """
    free = {name: one for name, one in judged.free().items() if name not in taken and _may_be_loss(one)}
    ratios = [judged.numbers[name] for name in sources[0].values()]
    p = np.nan_to_num(np.column_stack(ratios or [np.zeros(judged.table.frame.height)]))
    runs, found = groups_of(np.round(p, 6)), []
    bare = [name for name in free if any(name in one for one in sources)]
    if sources[0] and not bare and all(label == name for label, name in sources[0].items()):
        bare = [name for name in free if len(say.words_of(name)) == 1 and say.may_be_label(name)]
    for pattern, columns in (*say.families(free).items(), ("", {name: name for name in bare})):
        near, unit = max(sources, key=lambda one: len(one.keys() & columns.keys())), say.unit_rank(pattern)
        kept = {label: name for label, name in columns.items() if label in near or say.may_be_label(label)}
        shared, cells = len(kept.keys() & near.keys()), [free[name] for name in kept.values()]
        if len(kept) < 2 or say.scores_said([pattern]) or (unit is None and not sources[0]):
            continue
        why, seen = _evidence(cells, p, runs)
        varies = np.mean([np.ptp(one[np.isfinite(one)]) > 0 for one in cells]) >= 0.5 or len(p) < 4
        if varies and (unit is not None or seen > 0 or (seen == 0 and shared)):
            kind = say.speaks(pattern, "held out") - 2 * say.speaks(pattern, "no loss", "twin")
            plain = -np.mean([*map(len, kept.values())]), -max(len(say.words_of(one)) for one in kept), len(pattern)
            order = (unit is not None) + (seen >= 0), kind, shared, -(unit or 0), len(kept), *plain
            found.append((order, Family(pattern, kept, why or "by their names")))
    one = say.plainest(
        filter(say.names_a_loss, free), lambda name: (not say.speaks(name, "held out"), say.unit_rank(name))
    )
    judged.take("loss", one if not found else "", "one loss, by its name")
    return max(found, key=lambda one: one[0])[1] if found else None


def _judge_long(judged: Judgement) -> bool:
    """Whether a row is of one run and label: what sums to one over a column of labels are ratios."""
    table, numbers, found = judged.table, judged.numbers, []
    several = {name: table.texts(name).n_unique() for name in table.columns if name not in numbers}
    texts = [name for name, count in several.items() if 1 < count <= table.frame.height / 2]
    counts = [
        name for name in numbers if say.counts_steps(name) or re.search("token|param", name) or name in SINGLE[:3]
    ]
    rest = {name: np.nan_to_num(one) for name, one in numbers.items() if name not in counts}
    for label in texts:
        keys = [name for name in (*texts, *counts) if name != label]
        if not keys or table.frame.select(label, *keys).is_duplicated().sum() > 0.1 * table.frame.height:
            continue
        groups = groups_of(np.column_stack([ids_of(table, key) for key in keys]))
        sums = {name: np.bincount(groups, one).astype(float) for name, one in rest.items()}
        p = next((name for name, one in sums.items() if _whole([one, 0 * one])), "")
        losses = [name for name in rest if name != p and say.names_a_loss(name)]
        loss = say.plainest(losses, say.unit_rank)
        is_one = [say.unit_rank(name) for name in losses].count(say.unit_rank(loss)) == 1
        if np.bincount(groups).max() > 1 and (p or (is_one and say.rank_of(label, "run") is None)):
            found.append((bool(p), label, p, loss))
    for _, label, p, loss in sorted(found, reverse=True)[:1]:
        judged.take("language", label, "a row for each of its labels")
        judged.take("p", p, "sums to a whole over the rows of a run")
        judged.take("ratio_unit", "percent" if p and rest[p].max() > 1 else "", "by its sums")
        judged.take("loss", loss, "by its name, a number in each row")
    return bool(found)


def _judge_run(judged: Judgement) -> None:
    """The ids: a column of a known name in whose rows of one id the mixture is the same and something grows."""
    table, rows = judged.table, judged.measured()
    mixtures = judged.mixtures()[rows].tolist()
    free = [name for name in table.columns if say.rank_of(name, "run") is not None and name not in judged.read.values()]
    for name in sorted(free, key=lambda one: (say.rank_of(one, "run"), say.plainness(one))):
        ids = ids_of(table, name)[rows]
        count, pairs = len(np.unique(ids)), {*zip(ids.tolist(), mixtures, strict=True)}
        grows = judged.has("language") or any(_grows(one[rows], ids) for one in judged.numbers.values())
        if (count == len(ids) or grows) and len(pairs) == count and not table.texts(name).is_null().any():
            judged.take("run", name, "one mixture to an id")


def _sizes(judged: Judgement) -> dict[str, tuple[list[str], FloatArray]]:
    """Columns that may be sizes, as a map says them, with words and numbers: those of `Params (M)` are millions."""
    found = {}
    for name, one in judged.free().items():
        scale = say.scale_said(name) if np.nanmax(one) < 1e5 else 1.0
        words = say.words_of(re.split(r"[./:]", name)[-1])
        found[f"{name}*{format_size(scale)}" if scale > 1 else name] = (words[: len(words) - (scale > 1)], one * scale)
    return found


def _judge_size(judged: Judgement) -> None:
    """N: a count of parameters that does not change within a run; of two the smaller, which leaves out embeddings."""
    runs, sizes = judged.runs(), {}
    for entry, (words, values) in _sizes(judged).items():
        whole, said = "".join(words), {*words, "".join(words)}
        rank = 0 if "param" in whole or "nonemb" in whole else 1 if said & {*say.WORDS["parameters"]} else 2
        is_count = 1e3 <= np.nanmin(values) <= np.nanmax(values) < 1e14 and not _changes(values, runs).any()
        of_embeddings = any(word.startswith("emb") for word in words) and said.isdisjoint(say.WORDS["without"])
        if rank < 2 and is_count and not of_embeddings and said.isdisjoint(say.WORDS["no parameters"]):
            sizes[entry] = (rank, float(np.nanmedian(values)), say.plainness(entry))
    most = max((one[1] for one in sizes.values()), default=0.0)
    likely = {entry: one for entry, one in sizes.items() if one[1] > 0.02 * most}
    judged.take("N", min(likely, key=lambda one: likely[one], default=""), "parameters, the same within a run")


def _judge_tokens(judged: Judgement) -> None:
    """D: tokens that grow within a run, at least N; or else a step times a batch."""
    runs, rows = judged.runs(), judged.measured()
    N = judged.numbers.get(str(judged.read.get("N", "")).partition("*")[0], np.array([5e4]))
    labels = {word for label in (*judged.family("loss"), *judged.family("p", "p1")) for word in say.words_of(label)}
    several = not judged.has("language") and len(np.unique(runs[rows])) < rows.sum()
    grown = {
        entry: one for entry, one in _sizes(judged).items() if not several or _grows(one[1][rows], runs[rows], 0.6)
    }
    tokens = []
    for entry, (words, values) in grown.items():
        named = "tok" in "".join(say.words_of(entry)) or "".join(words) in say.WORDS["tokens"]
        others = {*words} & {*say.WORDS["no tokens"], *labels}
        if named and not others and np.nanmax(values) >= 0.2 * np.nanmin(N):
            tokens.append(entry)
    best = say.plainest(tokens, lambda one: "token" not in one.lower())
    step = say.plainest(filter(say.counts_steps, grown), lambda one: one.startswith("_"))
    if judged.has("p1") and not judged.has("D1"):
        _judge_phases(judged, best or "...")
    elif not judged.has("D1", "tokens"):
        judged.take("D", best, "tokens that grow within runs" if several else "tokens, enough for the parameters")
        step = f"({step}+1)" if step and counts_from_zero(judged.numbers[step][rows]) else step
        judged.take("D", step and f"{step}*{_batch_of(judged)}", "steps, times the tokens of a step")


def _judge_phases(judged: Judgement, tokens: str) -> None:
    """The tokens of each phase, or the fractions of all tokens: columns that differ in the phase's number alone."""
    patterns = [str(judged.read[key]) for key in PHASES if judged.has(key)]
    ratios = {name for key in PHASES for name in judged.family(key).values()}
    entries = [tokens if tokens == "..." else f"{tokens}*..."] * len(patterns)
    forms: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for name in judged.numbers.keys() - ratios:
        forms[re.sub(r"\d+", "#", name)]["".join(re.findall(r"\d+", name))] = name
    for some in forms.values():
        names = [some.get("".join(re.findall(r"\d+", pattern)), "") for pattern in patterns]
        cells = [judged.numbers[name] for name in names if name]
        if len(cells) == len(names) and ((is_share := _whole(cells) == 1) or min(map(np.nanmax, cells)) > 1e4):
            entries = [f"{tokens}*{name}" if is_share else name for name in names]
    for key, entry in zip(PHASES.values(), entries, strict=False):
        judged.take(key, entry, "the tokens of a phase")


def _batch_of(judged: Judgement) -> str:
    """The tokens of a step: a column of them, or of its sequences and their length; dots where nothing says it."""
    words = {name: {*say.words_of(name)} for name in judged.fixed()}
    whole = [name for name, said in words.items() if said & {"batch", "step"} and said & {"token", "tokens"}]
    batch = [name for name, said in words.items() if "batch" in said and not said & {"device", "micro", "gpu", "per"}]
    length = [name for name, said in words.items() if said & {*say.WORDS["length"]} and name not in batch]
    return say.plainest(whole) or (f"{say.plainest(batch)}*{say.plainest(length)}" if batch and length else "...")


def _judge_recipe(judged: Judgement) -> None:
    """The learning rate and the batch of a run, by their names, where they do not change within runs."""
    for key in ("learning_rate", "batch"):
        likely = [name for name in judged.fixed() if say.rank_of(name, key) is not None]
        judged.take(key, say.plainest(likely), "by its name, the same within runs")


def _units(judged: Judgement, how: ColumnMap) -> dict[str, object]:
    """The unit that losses are in, by the name of their columns or by their size, and that of ratios by their sums."""
    loss, p, units = judged.cells("loss"), judged.cells("p", "p1"), dict[str, object]()
    unit = say.unit_said([str(judged.read.get("loss", ""))], "nats")
    unit = "perplexity" if unit == "nats" and loss.size and np.nanmedian(loss) > _MOST_NATS else unit
    unit = "..." if judged.table.swarm and not how.unit else unit
    units |= {"unit": unit} if unit != "nats" and not how.unit else {}
    ratio_unit = {1: "fraction", 100: "percent", 0: "weights"}[_whole([*p.T])]
    return units | ({"ratio_unit": ratio_unit} if p.shape[1] > 1 and how.ratio_unit == "fraction" != ratio_unit else {})


def _described(judged: Judgement, key: str) -> str:
    """What a key is taken from, what that was recognised by, and the range of its numbers."""
    entry, labels = judged.read[key], judged.family(key) if key in PREFIXES else {}
    name = ", ".join(map(str, entry.values())) if isinstance(entry, Mapping) else str(entry)
    columns = [*labels.values()] or [name.partition("*")[0]]
    cells = np.concatenate([judged.numbers[one] for one in columns if one in judged.numbers] or [np.zeros(0)])
    texts = _first_cells(judged.table, columns[0], 4) if columns[0] in judged.table.columns else ""
    span = f"{np.nanmin(cells):,.6g} .. {np.nanmax(cells):,.6g}" if np.isfinite(cells).any() else texts
    of = f" ({', '.join(labels)})" if labels and not isinstance(entry, Mapping) else ""
    return f"{name}{of}: {', '.join(one for one in (judged.why.get(key), span) if one)}"
