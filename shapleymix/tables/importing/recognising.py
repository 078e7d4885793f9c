"""What a table seems to be: the options that may read it, for a hint; nothing is read by a guess."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from shapleymix.records import FloatArray
from shapleymix.tables.importing.column_map import LABELLED, SINGLE, ColumnMap
from shapleymix.tables.importing.long_tables import LANGUAGES, NAMES, USUAL, VALUES
from shapleymix.tables.importing.patterns import LANG, is_pattern, matches
from shapleymix.tables.importing.summaries import counts_steps, is_summary, plain, summaries
from shapleymix.tables.importing.table_joins import stem
from shapleymix.tables.panels import PANEL
from shapleymix.tables.runs import PREFIXES, own_columns
from shapleymix.tables.sheets import Sheet, numbers

_IDS = ("run", "runid", "runname", "name", "id", "runs", "experiment", "experimentname", "experimentid", "model")
_SIZES = (
    "n",
    "params",
    "nparams",
    "numparams",
    "parameters",
    "numparameters",
    "nonembeddingparams",
    "modelsize",
    "size",
)
_TOKENS = ("d", "tokens", "ntokens", "numtokens", "traintokens", "tokensseen", "totaltokens", "numinputtokensseen")
_TOKENS += ("trainingtokens", "consumedtokens")
_LANGUAGES = (*LANGUAGES, "locale", "langcode", "languagecode", "target", "domain")
_LOSS = {"loss": "nats", "nll": "nats", "ce": "nats", "crossentropy": "nats", "xent": "nats"}
_LOSS |= {
    "bpb": "bpb",
    "bitsperbyte": "bpb",
    "bits": "bits",
    "bpt": "bits",
    "ppl": "perplexity",
    "perplexity": "perplexity",
}
_RATIO = ("p", "w", "weight", "weights", "ratio", "ratios", "mix", "mixture", "share", "shares", "prop", "proportion")
_RATIO += ("proportions", "frac", "fraction", "pct", "percent", "percentage", "prob", "blend")
TOOLS = {
    "trainer_state": "the state of a Hugging Face trainer",
    "megatron": "a log of Megatron",
    "tensorboard": "a folder of TensorBoard's events",
    "mlflow": "runs of MLflow",
    "wandb": "runs of Weights & Biases",
    PANEL: "a chart of Weights & Biases (those of all languages go into one call; N and ratios are joined to them)",
    "olmix": "ratios and metrics of olmix",
}
"""What wrote a sheet, in words, by its kind."""

_CUTS = re.compile(r"([/_.\-:| \[\]()]+)")


@dataclass(frozen=True)
class Guess:
    """What a table seems to be.

    Attributes
    ----------
    map : dict
        Which column may be what, where a log's own names do not say it.
    options : dict
        The other options with which it may be read.
    missing : tuple of str
        What a log needs and nothing in the table looks like.
    kind : str
        What the table is, in words.
    """

    map: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str | bool] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    kind: str = ""

    @property
    def certain(self) -> bool:
        """Whether the table is one of another kind, not one of ours with a name misspelt."""
        return "long" in self.options or not {"p", "loss"}.isdisjoint(self.map)

    @property
    def keywords(self) -> dict[str, object]:
        """The keywords of `read_runs` with which it may be read; `...` stands for what must be filled in."""
        named = {**self.map, **{role: self.blank(role) for role in self.missing}}
        return {**({"map": named} if named else {}), **self.options}

    def blank(self, role: str) -> str:
        """What is to be filled in for a role: a column, or a pattern of them in a table with a row a run."""
        whole = role in LABELLED and ("long" not in self.options or "name" in self.map)
        return f"...{LANG}" if whole else "..."


def guessed(sheet: Sheet, known: ColumnMap | None = None) -> Guess:
    """What a sheet seems to be; `known` is what is known of its columns."""
    columns = list(sheet.columns)
    known = known or ColumnMap()
    found = {role: str(how) for role, how in {**known.roles, **known.labelled}.items()}
    for role, names in (("run", _IDS), ("N", _SIZES), ("D", _TOKENS)):
        if role not in columns and role not in found and (column := _named(columns, names, role)) is not None:
            found[role] = column
    options: dict[str, str | bool] = {}
    long = _long(columns)
    if long is not None:
        options["long"] = True
        found |= {role: column for role, column in long.items() if column not in LANGUAGES}
    spare = [name for name in columns if name not in found.values()]
    found |= _by_language(sheet, spare, found, options, long is not None)
    found |= _of_no_language(sheet, known, found, long)
    found |= _steps(columns, found) if known.tokens_per_step is None else {}
    named_in = _names_in(sheet, found)
    missing = [role for role in ("N", "D") if role not in found and role not in named_in]
    if not _has(named_in, found, "p") and not _has(named_in, found, "tokens"):
        missing.append("p")
    if not _has(named_in, found, "loss") and "loss" not in named_in:
        missing.append("loss")
    named = {role: column for role, column in found.items() if not (long and column in USUAL.get(role, ()))}
    return Guess(named, options, tuple(missing), TOOLS.get(sheet.kind) or _kind(columns, long))


def _names_in(sheet: Sheet, found: Mapping[str, str]) -> list[str]:
    """The names of columns, and those in a column of names."""
    column = found.get("name")
    return [*sheet.columns, *(dict.fromkeys(map(str, sheet.columns[column])) if column in sheet.columns else ())]


def _of_no_language(
    sheet: Sheet, known: ColumnMap, found: Mapping[str, str], long: Mapping[str, str] | None
) -> dict[str, str]:
    """Averages, totals and the like among what would be languages, which are to be ignored."""
    already = [name for name in found.get("ignore", "").split(",") if name]
    language = found.get("language", (long or {}).get("language"))
    if language in sheet.columns:
        labels = {label: label for label in dict.fromkeys(map(str, sheet.columns[language])) if label}
        doubtful = summaries(labels, known.languages)
    else:
        names = sheet.columns if "name" not in found else dict.fromkeys(map(str, sheet.columns[found["name"]]))
        patterns = [found[role] for role in LABELLED if is_pattern(found.get(role, ""))]
        labelled = [matches(pattern, [name for name in names if name not in known.ignore]) for pattern in patterns]
        doubtful = [one[label] for one in labelled for label in summaries(one, known.languages)]
    ignored = dict.fromkeys(name for name in (*known.ignore, *already, *doubtful) if "," not in name)
    return {"ignore": ",".join(ignored)} if doubtful or already else {}


def _steps(columns: Sequence[str], found: Mapping[str, str]) -> dict[str, str]:
    """A column of steps, where none of tokens is."""
    column = found.get("D", next((name for name in columns if counts_steps(name)), None))
    no_other = "D" not in columns and "tokens" not in found
    return {"D": column, "tokens_per_step": "..."} if column and counts_steps(column) and no_other else {}


def _kind(columns: Sequence[str], long: Mapping[str, str] | None) -> str:
    """What a table is, in words."""
    names = set(columns)
    if {"Name", "State"} <= names or {"_step", "_timestamp"} <= names:
        return "an export of Weights & Biases"
    if {"run_id", "experiment_id"} <= names:
        return "an export of MLflow"
    if long is not None:
        return "a long table, with a row for each " + ("number" if "name" in long else "run and language")
    return ""


def _has(columns: Sequence[str], found: Mapping[str, str], role: str) -> bool:
    return role in found or bool(own_columns(columns, role))


def _named(columns: Iterable[str], names: Sequence[str], role: str) -> str | None:
    """The column with one of some names, itself or after its last slash or point; the first name that there is."""
    known: dict[str, str] = {}
    for column in columns:
        for text in (column, re.split(r"[./]", column)[-1]):
            known.setdefault(plain(text), column)
    return next((known[name] for name in names if name in known), None)


def _long(columns: Sequence[str]) -> dict[str, str] | None:
    """The columns of a long table: its languages, or names and values; None where it is wide."""
    by_name = {plain(name): name for name in reversed(columns)}
    values = [by_name[name] for name in VALUES if name in by_name]
    names = [by_name[name] for name in NAMES if name in by_name]
    if values and names:
        return {"name": names[0], "value": values[0]}
    wide = any(name.startswith(PREFIXES["loss"]) for name in columns)
    language = next((by_name[name] for name in _LANGUAGES if name in by_name), None)
    return None if wide or language is None else {"language": language}


def _by_language(
    sheet: Sheet, columns: Sequence[str], found: Mapping[str, str], options: dict[str, str | bool], long: bool
) -> dict[str, str]:
    """Patterns of losses and ratios, and the units that their names and sums speak of."""
    more: dict[str, str] = {}
    if long and "name" not in found:
        return _long_values(sheet, columns, options)
    names = columns
    if long:
        names = list(dict.fromkeys(map(str, sheet.columns[found["name"]])))
    own = {role: _own_labels(names, found, role) for role in ("p", "tokens", "loss")}
    shares = own["p"] or own["tokens"]
    no_losses = not own["loss"] and "loss" not in found
    ratios = None if shares or "p" in found else _pattern(names, _RATIO, own["loss"])
    losses = _pattern(names, tuple(_LOSS), shares or _labels(ratios, names)) if no_losses else None
    if losses is not None:
        more["loss"] = losses
        _unit(losses, options)
    targets = own["loss"] or _labels(losses, names)
    if not shares and "p" not in found:
        measured = set(matches(losses or found.get("loss", ""), names).values())
        rest = [name for name in names if name not in measured]
        bare = _bare(sheet, rest, targets) if not long else {}
        ratios = _pattern(rest, _RATIO, targets)
        some = targets & _labels(ratios, rest)
        more |= bare if bare and not some else {"p": ratios} if ratios is not None else {}
    if not long:
        pattern = more.get("p", f"{PREFIXES['p']}{LANG}")
        bare_names = {name: name for name in names if name in targets}
        called = bare_names if pattern.rpartition(":")[2] == LANG else matches(pattern, sheet.columns)
        _ratio_unit(sheet, called, options)
    return more


def _own_labels(names: Iterable[str], found: Mapping[str, str], role: str) -> set[str]:
    """The languages of the columns that a role has, by its own names or by a pattern that is known."""
    if role not in found:
        return {name.removeprefix(PREFIXES[role]) for name in own_columns(names, role)}
    pattern = found[role]
    return set(matches(pattern, names)) if is_pattern(pattern) else set()


def _labels(pattern: str | None, names: Iterable[str]) -> set[str]:
    return set() if pattern is None else set(matches(pattern, names))


def _bare(sheet: Sheet, names: Sequence[str], targets: set[str]) -> dict[str, str]:
    """Ratios whose columns are called as the targets, of the log or of one table that is joined to it."""
    own = (*SINGLE, "loss", *(f"{prefix}{name}" for prefix in PREFIXES.values() for name in targets))
    shared = [name for name in names if name in targets]
    if len(shared) < 2:
        return {}
    origins = {sheet.place(name).origin for name in shared}
    joined = origins != {sheet.origin} and len(origins) == 1
    rest = [name for name in names if name not in shared and name not in own and "," not in name]
    others = [name for name in rest if not joined or sheet.place(name).origin in origins]
    table = f"{stem(origins.pop())}:" if joined else ""
    return {"p": f"{table}{LANG}", **({"ignore": ",".join(others)} if others else {})}


def _long_values(sheet: Sheet, columns: Sequence[str], options: dict[str, str | bool]) -> dict[str, str]:
    """The columns of losses and ratios of a long table, where they are not called so."""
    by_name = {plain(name): name for name in reversed(columns)}
    more: dict[str, str] = {}
    for role, words in (("loss", tuple(_LOSS)), ("p", _RATIO)):
        column = next((by_name[word] for word in words if word in by_name), None) or _with_word(columns, words)
        if column is not None:
            more[role] = column
        if column is not None and role == "loss":
            _unit(column, options)
    return more


def _with_word(columns: Sequence[str], words: Sequence[str]) -> str | None:
    """The only column with one of the words in its name, as in `val_loss`; losses of training are of no language."""
    found = [
        name for name in columns if not {"train", "training"} & set(_words(name)) and set(words) & set(_words(name))
    ]
    return found[0] if len(found) == 1 else None


def _unit(text: str, options: dict[str, str | bool]) -> None:
    """The unit of losses that a name speaks of."""
    unit = next((_LOSS[word] for word in reversed(_words(text)) if word in _LOSS and _LOSS[word] != "nats"), None)
    if unit is not None:
        options["unit"] = unit
        if unit == "bpb":
            options["bytes_per_token"] = "..."


def _words(text: str) -> list[str]:
    """The words of a name, and two and three of them together, as in bits_per_byte."""
    words = [word for word in _CUTS.split(text.lower()) if word and not _CUTS.fullmatch(word)]
    return words + ["".join(words[i : i + n]) for n in (2, 3) for i in range(len(words) - n + 1)]


def _pattern(columns: Sequence[str], words: Sequence[str], near: Collection[str]) -> str | None:
    """The pattern with one of the words in it that stands for most of the languages that are known (`near`).

    Of several the one for most columns, of the shortest names, and the longest of those.
    """
    best: dict[str, set[str]] = {}
    for column in columns:
        for pattern, label in _templates(column):
            if not _has_summary(label) and any(word in words for word in _words(pattern.replace(LANG, "/"))):
                best.setdefault(pattern, set()).add(label)
    several = {pattern: labels for pattern, labels in best.items() if len(labels) > 1}

    def order(pattern: str) -> tuple[int, int, int, int]:
        labels = several[pattern]
        return len(labels.intersection(near)), len(labels), -max(len(_CUTS.split(one)) for one in labels), len(pattern)

    return max(several, key=order, default=None)


def _has_summary(label: str) -> bool:
    """Whether a label, or a part of it such as `val` of `val/fr`, is what averages and the like are called."""
    return is_summary(label) or any(is_summary(part) for part in _CUTS.split(label)[::2])


def _templates(column: str) -> Iterable[tuple[str, str]]:
    """The patterns that a name may be of, and the language that it then has."""
    parts = _CUTS.split(column)
    for first in range(0, len(parts), 2):
        for last in range(first + 1, min(first + 6, len(parts)) + 1, 2):
            before, label, after = ("".join(some) for some in (parts[:first], parts[first:last], parts[last:]))
            if label and (before or after):
                yield f"{before}{LANG}{after}", label


def _ratio_unit(sheet: Sheet, labelled: Mapping[str, str], options: dict[str, str | bool]) -> None:
    """Whether the ratios of a row, in columns by their languages, sum to a hundred, or to anything."""
    doubtful = summaries(labelled, {})
    columns = [column for label, column in labelled.items() if label not in doubtful]
    if not columns:
        return
    total: FloatArray = np.sum([np.nan_to_num(numbers(sheet, column, [], empty=True)) for column in columns], axis=0)
    total = total[total > 0]
    if not len(total) or (np.abs(total - 1) < 0.02).mean() > 0.5:
        return
    options["ratio_unit"] = "percent" if (np.abs(total - 100) < 2).mean() > 0.5 else "weights"
