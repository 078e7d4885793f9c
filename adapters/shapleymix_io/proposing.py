"""What a table seems to hold: a first map, which a person looks over. Nothing is read by it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from shapleymix.tables.runs import RECIPE
from shapleymix_io.column_map import LANG, PREFIXES, SINGLE, ColumnMap, matches
from shapleymix_io.readers import OLMIX
from shapleymix_io.table import Table

_CUTS = re.compile(r"([/_.\-:| \[\]()]+)")
_STEPS = {"step", "steps", "globalstep", "trainstep", "trainingstep", "iteration", "iterations", "iter"}
_SUMMARIES = {
    *("train", "training", "eval", "evaluation", "val", "valid", "validation", "test", "total", "mean", "avg"),
    *("average", "median", "all", "overall", "macro", "micro", "combined", "lr", "learningrate", "step", "steps"),
    *("epoch", "iteration", "decay", "weightdecay", "std", "stderr", "aux", "auxloss", "name", "index", "seen"),
}
_NAMED = {
    "run": ("run", "runname", "mlflow.runname", "name", "runid", "id", "experiment", "model"),
    "N": ("nparams", "params", "numparams", "parameters", "numparameters", "nonembeddingparams", "modelsize", "size"),
    "learning_rate": ("learningrate", "peaklearningrate", "maxlearningrate", "lr", "peaklr", "maxlr"),
    "batch": ("batchsize", "globalbatchsize", "batchtokens"),
    "D": ("tokens", "ntokens", "numtokens", "traintokens", "trainingtokens", "tokensseen", "numinputtokensseen"),
}
"""Names of columns, the likeliest first; what is likely for numbers must also be of a likely size."""
_LIKELY = {"N": 1e3, "D": 1e4, "learning_rate": 1e-7, "batch": 1.0}
_LOSS = {"loss": "nats", "nll": "nats", "ce": "nats", "crossentropy": "nats", "xent": "nats", "bpb": "bpb"}
_LOSS |= {"bitsperbyte": "bpb", "bits": "bits", "bpt": "bits", "ppl": "perplexity", "perplexity": "perplexity"}
_SCORES = {"acc", "accuracy", "exactmatch", "f1"}
_RATIO = ("p", "w", "weight", "weights", "ratio", "ratios", "mix", "mixture", "share", "shares", "prop", "proportion")
_RATIO += ("proportions", "frac", "fraction", "pct", "percent", "percentage", "prob", "blend")


@dataclass(frozen=True)
class Proposal:
    """What a table with a row a run seems to hold.

    Attributes
    ----------
    origin : str
        The table.
    columns : dict
        Every column, with its first cells.
    entries : dict
        The map that may read it, with `...` for what is missing.
    taken : dict
        Of each key the column, and how its numbers range or which languages it has.
    missing, notices : tuple of str
        What a log needs and nothing here looks like, and what reading brought up.
    """

    origin: str
    columns: dict[str, str]
    entries: dict[str, object]
    taken: dict[str, str]
    missing: tuple[str, ...]
    notices: tuple[str, ...]


def proposed(table: Table, how: ColumnMap, given: Collection[str] = ()) -> Proposal:
    """A first map of a table; `how` is what is known of it, of which the keys in `given` were asked for."""
    names, found = table.columns, dict[str, object](how.columns)
    read = {key: key for key in SINGLE if key in names}
    read |= {key: f"{prefix}{LANG}" for key, prefix in PREFIXES.items() if matches(f"{prefix}{LANG}", names)}
    read |= {key: str(one) for key, one in found.items()}
    if "p1" in read and "D1" in read:
        read = {"p": read["p1"], "D": read["D1"]} | read

    def take(key: str, column: str | None) -> None:
        if column is not None:
            found[key] = read[key] = column

    for key in [key for key in _NAMED if key not in read]:
        take(key, _likely(table, key, found))
    if "D" not in read:
        take("D", next((f"{name}*..." for name in names if counts_steps(name)), None))
    free = [name for name in names if name not in found.values() and name not in how.ignore]
    if "loss" not in read:
        take("loss", _pattern(free, tuple(_LOSS), set(matches(read.get("p", read.get("tokens", "")), names))))
    measured = matches(read.get("loss", ""), free)
    rest = [name for name in free if name not in measured.values()]
    if read.keys().isdisjoint(("p", "tokens")):
        take("p", _pattern(rest, _RATIO, set(measured)))
    labelled = [matches(read[key], names) for key in ("p", "loss") if LANG in read.get(key, "")]
    odd = [name for one in labelled for label, name in one.items() if is_summary(label) and label not in how.languages]
    if odd or how.ignore:
        found["ignore"] = [*how.ignore, *(name for name in odd if name not in how.ignore)]
    found |= _units(table, read, how, odd)
    missing = [key for key in ("N", "D", "p", "loss") if key not in read and (key, "tokens" in read) != ("p", True)]
    entries = {key: value for key, value in found.items() if key not in how.columns or key in given}
    entries |= {key: f"...{LANG}" if key in PREFIXES else "..." for key in missing}
    taken = {key: _seen(table, key, column) for key, column in read.items()}
    first = {name: ", ".join(_distinct(table, name)[:3]) for name in names}
    return Proposal(table.origin, first, entries, taken, tuple(missing), table.notices)


def unit_said(names: Iterable[str], usual: str) -> str:
    """The one unit that names of losses speak of, `usual` where a name speaks of none; empty where they differ."""
    said: set[str] = set()
    for name in names:
        words = {_LOSS[word] for word in _words(name) & {*_LOSS}}
        said |= words - {"nats"} or words or {usual}
    return said.pop() if len(said) == 1 else ""


def scores_said(names: Iterable[str]) -> list[str]:
    """The names that speak of a score, as accuracy is, and of no loss."""
    return [name for name in names if (words := _words(name)) & _SCORES and not words & {*_LOSS}]


def counts_steps(column: str) -> bool:
    """Whether a column counts steps of training, by its name or by what stands after its last slash or point."""
    return _plain(re.split(r"[./:]", column)[-1]) in _STEPS


def is_summary(label: str) -> bool:
    """Whether a label, or a part of it, is what averages, totals, phases and the like are called."""
    return _plain(label) in _SUMMARIES or any(_plain(part) in _SUMMARIES for part in _CUTS.split(label)[::2])


def refuse_summaries(table: Table, found: Mapping[str, str], languages: Mapping[str, str]) -> None:
    """A fault for each column that a pattern took for a language, and that is an average or the like by its name."""
    odd = {label: name for label, name in found.items() if label not in languages and is_summary(label)}
    for label, name in odd.items():
        hint = f"leave them out: map ignore={','.join(odd.values())}; or name it: map languages.{label}={label}"
        table.fault(f"{label!r} seems to be an average, not a language", name, hint=hint)


def _plain(name: str) -> str:
    return re.sub(r"[\W_]", "", name.lower())


def _distinct(table: Table, column: str) -> list[str]:
    """The different cells of a column, in their order."""
    return table.texts(column).drop_nulls().unique(maintain_order=True).to_list()


def _likely(table: Table, key: str, found: Mapping[str, object]) -> str | None:
    """The column that is called as this key is, and whose numbers may be such; not `config.model.d` = 64."""
    called: dict[str, list[str]] = defaultdict(list)
    for column in table.columns:
        for text in dict.fromkeys((column, re.split(r"[./]", column)[-1])):
            called[_plain(text)].append(column)
    for column in (column for name in _NAMED[key] for column in called[_plain(name)] if column not in found.values()):
        if key not in _LIKELY:
            return column
        if key in RECIPE.values() and _changes(table, column, found.get("run")):
            continue
        most = table.numbers(column).max()
        if isinstance(most, float) and most >= _LIKELY[key]:
            return column
    return None


def _changes(table: Table, column: str, run: object) -> bool:
    """Whether a number changes within a run, as a learning rate that is logged at each step does."""
    if run not in table.columns:
        return False
    values = table.frame.group_by(str(run)).agg(pl.col(column).drop_nulls().n_unique())
    return bool((values[column] > 1).any())


def _pattern(columns: Sequence[str], words: Sequence[str], near: Collection[str]) -> str | None:
    """The pattern with one of the words in it that stands for most of the languages that are known (`near`).

    Of several the one for most columns, of the shortest names, and the longest of those.
    """
    best: dict[str, set[str]] = defaultdict(set)
    for column in columns:
        for pattern, label in _templates(column):
            if not is_summary(label) and _words(pattern.replace(LANG, "/")) & {*words}:
                best[pattern].add(label)

    def order(pattern: str) -> tuple[int, int, int, int]:
        labels = best[pattern]
        return len(labels.intersection(near)), len(labels), -max(len(_CUTS.split(one)) for one in labels), len(pattern)

    return max((pattern for pattern, labels in best.items() if len(labels) > 1), key=order, default=None)


def _words(text: str) -> set[str]:
    """The words of a name, and two and three of them together, as in bits_per_byte."""
    words = [word for word in _CUTS.split(text.lower())[::2] if word]
    return {"".join(words[i : i + n]) for n in (1, 2, 3) for i in range(len(words) - n + 1)}


def _templates(column: str) -> Iterable[tuple[str, str]]:
    """The patterns that a name may be of, and the language that it then has."""
    parts = _CUTS.split(column)
    for first in range(0, len(parts), 2):
        for last in range(first + 1, min(first + 6, len(parts)) + 1, 2):
            before, label, after = ("".join(some) for some in (parts[:first], parts[first:last], parts[last:]))
            if label and (before or after):
                yield f"{before}{LANG}{after}", label


def _units(table: Table, read: Mapping[str, str], how: ColumnMap, odd: Collection[str]) -> dict[str, object]:
    """The unit that the name of losses speaks of, and that of ratios by their sums."""
    units: dict[str, object] = {}
    unit = unit_said([read.get("loss", "")], "nats")
    if unit != "nats" and not how.unit:
        units = {"unit": unit, **({"bytes_per_token": "..."} if unit == "bpb" else {})}
    elif table.kind == OLMIX and not how.unit:
        units = {"unit": "..."}
    columns = [name for name in matches(read.get("p", ""), table.columns).values() if name not in odd]
    if LANG in read.get("p", "") and columns and how.ratio_unit == "fraction":
        cells = [table.numbers(name).fill_null(0.0).alias(name) for name in columns]
        total = pl.DataFrame(cells).sum_horizontal()
        middle = total.filter(total > 0).median()
        if isinstance(middle, float) and abs(middle - 1) > 0.02:
            units["ratio_unit"] = "percent" if abs(middle - 100) < 2 else "weights"
    return units


def _seen(table: Table, key: str, column: str) -> str:
    """What a key is taken from: the languages of a pattern, the range of numbers, or the first cells."""
    if LANG in column:
        return f"{column} ({', '.join(matches(column, table.columns))})"
    numbers = table.numbers(column).drop_nulls() if column in table.columns and key in ("N", "D") else pl.Series()
    if numbers.len():
        return f"{column}: {numbers.min():,.6g} .. {numbers.max():,.6g}"
    return f"{column} ({', '.join(_distinct(table, column)[:5])})" if column in table.columns else column
