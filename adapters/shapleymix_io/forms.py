"""The forms of files: bytes as a table with its lines. No form knows what a column means beyond what it fixes itself.

CSV, Parquet, JSON (an array, one object, an object a line; dictionaries in cells), charts of Weights & Biases, the
state of a Hugging Face trainer, and any log whose lines have a step and numbers by name, as those of Megatron,
GPT-NeoX, torchtitan and nanoGPT have.
"""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import yaml

from shapleymix.errors import DataError, Location
from shapleymix.files import Origin, read_once
from shapleymix.tables import sheets
from shapleymix_io.table import (
    GROUP,
    LANG,
    LINE,
    PATH,
    Table,
    distinct_parts,
    flatten,
    labels_of,
    matches,
    stack,
    table_of,
)

Source = str | os.PathLike[str] | pl.DataFrame
STATE, LOG, CHART = "trainer_state", "log", "chart"
"""Forms whose files hold a run each, but for charts, whose columns do."""


def read_table(source: Source) -> Table:
    """The table in a frame or a file: CSV, Parquet, JSON (packed or not), or what a trainer left.

    Raises
    ------
    DataError
        If the file cannot be read, or holds no table.
    """
    if isinstance(source, pl.DataFrame):
        return _framed(source, "<frame>")
    data, origin = read_once(source)
    table = _parsed(data, origin)
    if not table.frame.height:
        raise DataError("is a table without rows", location=Location(origin.file))
    return replace(table, files=(origin,))


def _parsed(data: bytes, origin: Origin) -> Table:
    if data[: len(sheets.PARQUET)] == sheets.PARQUET:
        return _framed(sheets.parquet_of(data, origin), origin.file)
    text = sheets.text_of(data, origin)
    if '"log_history"' in text:
        return _state(load_json(text, origin.file), origin.file)
    lines = _STYLED.sub("", text).splitlines()
    is_table = bool(lines) and lines[0][:1] not in "[{" and 1 < lines[0].count(",") == lines[-1].count(",")
    if any(map(_STEP.search, lines)) and not is_table:
        return _log(lines, origin.file)
    return _json(text, origin) if text.lstrip().startswith(("{", "[")) else _csv(text, origin)


def _framed(frame: pl.DataFrame, origin: str) -> Table:
    """A frame as a table; what is nested in a cell becomes columns such as `config.lr`."""
    if any(dtype.is_nested() for dtype in frame.dtypes):
        return table_of([flatten(row) for row in frame.to_dicts()], origin)
    return Table(frame.with_columns(pl.lit(None, pl.Int64).alias(LINE)), origin)


def _csv(text: str, origin: Origin) -> Table:
    """Text with commas, semicolons or tabs between its columns, whichever its header has most of.

    Raises
    ------
    DataError
        With every row that has more or fewer cells than the header, or a name that comes twice.
    """
    mark = max(",;\t", key=text.partition("\n")[0].count)
    sheet = sheets.parse_csv(text, origin, mark)
    filled = pl.DataFrame(sheet.columns).with_columns(pl.all().replace("", None))
    kept = pl.any_horizontal(pl.all().is_not_null())
    frame = filled.with_columns(pl.Series(LINE, sheet.lines)).filter(kept)
    if not any(str(one.drop_nulls().first()).lstrip().startswith("{") for one in filled):
        return _charts(Table(frame, origin.file))
    rows = [flatten({name: _unpacked(cell) for name, cell in row.items()}) for row in frame.drop(LINE).to_dicts()]
    return table_of(rows, origin.file, lines=frame[LINE].to_list())


def _unpacked(cell: object) -> object:
    """A cell, or the dictionary whose text it is, as JSON or as Python writes it."""
    if isinstance(cell, str) and cell.lstrip().startswith("{"):
        for read in (json.loads, lambda text: ast.literal_eval(re.sub(r": (nan|-?inf)\b", ": None", text))):
            try:
                return read(cell)
            except (ValueError, SyntaxError, RecursionError):
                continue
    return cell


def _charts(table: Table) -> Table:
    """A chart of Weights & Biases, with a column `<run> - <metric>` for each run, as a row for each run and step."""
    axis, *rest = table.columns
    if not all(" - " in name for name in rest) or not rest:
        return table
    curves = {name: name.removeprefix(GROUP).rpartition(" - ")[::2] for name in rest}
    curves = {name: one for name, one in curves.items() if not re.search("__(MIN|MAX|STD)$| - _step$", name)}
    if not curves:
        raise DataError("holds the ranges of curves: export their lines too", location=Location(table.origin))
    frames = [
        table.frame.select(pl.lit(run).alias("run"), axis, pl.col(name).alias(metric), LINE).drop_nulls(metric)
        for name, (run, metric) in curves.items()
    ]
    frame = pl.concat(frames, how="diagonal_relaxed")
    return stack([replace(table, frame=frame, kind=CHART, usual={"run": "run"}, keys=("run", axis))])


def _json(text: str, origin: Origin) -> Table:
    """An array of objects, one object, or an object a line; an object within one is columns such as `config.lr`.

    Raises
    ------
    DataError
        If it is another thing.
    """
    first, _, more = text.strip().partition("\n")
    if more and first[0] == "{" and first.rstrip().endswith("}"):
        rows = sheets.json_rows(text, origin)
        flats = [(line, flatten(one)) for line, row in rows.items() for one in _unfolded(row)]
        return table_of([one for _, one in flats], origin.file, lines=[line for line, _ in flats])
    found = load_json(text, origin.file)
    items = _items(found) if isinstance(found, dict) else found
    if not all(isinstance(item, dict) for item in items):
        raise DataError("is no array of JSON objects", location=Location(origin.file))
    return table_of([flatten(one) for item in items for one in _unfolded(item)], origin.file)


def _items(found: dict[str, Any]) -> list[Any]:
    """The runs in one object: those that it names, the rows of its columns (as pandas writes them), or itself."""
    inner = [*found.values()]
    if len(inner) < 2 or not all(isinstance(one, dict) and one.keys() == inner[0].keys() for one in inner):
        return [found]
    if [*inner[0]] == [str(place) for place in range(len(inner[0]))]:
        return [{name: one[place] for name, one in found.items()} for place in inner[0]]
    return [{"run": name, **one} for name, one in found.items()] if all(map(_is_wide, inner)) else [found]


def _unfolded(item: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of an object: one for each checkpoint or run in the array that it holds, with what holds for all."""
    inner = [name for name, one in item.items() if isinstance(one, (dict, list))]
    arrays = [name for name in inner if isinstance(item[name], list) and item[name] and all(map(_is_wide, item[name]))]
    outer = {name: one for name, one in item.items() if name not in arrays}
    if len(arrays) != 1 or (len(inner) > 1 and labels_of(item[arrays[0]])):
        return [item]  # what has labels of its own, beside other objects, are a run's results
    return [{**outer, **one} for one in item[arrays[0]]]


def _is_wide(item: object) -> bool:
    """Whether an object holds more than a language's numbers."""
    return isinstance(item, dict) and (len(item) > 4 or any(isinstance(one, dict) for one in item.values()))


def load_json(text: str, origin: str) -> Any:
    """The content of JSON text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        place = Location(origin, getattr(error, "lineno", None))
        raise DataError(f"is not valid JSON: {error}", location=place) from error


def _state(state: object, origin: str) -> Table:
    """A row for each step of a trainer's `log_history` that has losses (`eval_loss`, `eval_<name>_loss`).

    Raises
    ------
    DataError
        If no loss was measured.
    """
    steps: dict[object, dict[str, object]] = {}
    for entry in state.get("log_history", []) if isinstance(state, Mapping) else ():
        steps.setdefault(entry.get("step"), {}).update(entry)
    rows = [row for row in steps.values() if any(re.fullmatch("eval(_.*)?_loss", name) for name in row)]
    if not rows:
        hint = "evaluate while training: eval_strategy, eval_steps, and eval_dataset with a dataset of each language"
        raise DataError("is the state of a trainer that has measured no loss", location=Location(origin), hint=hint)
    loss = f"eval_{LANG}_loss" if matches(f"eval_{LANG}_loss", [*rows[0]]) else "eval_loss"
    usual = {"D": "num_input_tokens_seen", "loss": loss}
    return replace(table_of(rows, origin, STATE), usual=usual, keys=(PATH, "step"))


_STYLED = re.compile(r"\x1b\[[0-9;]*m")
_RESULT = re.compile(
    r"(?P<name>validation-\S.*?|[^\s:\]|]+) (?:loss|results) at (?P<unit>iteration|step) +(?P<step>\d+)"
    r"(?P<on>[^|]*)\|(?P<rest>.*)"
)
"""What Megatron and its kin print of a set: `validation-en loss at iteration 10 | lm loss value: 3.1E+00 |`."""
_STEP = re.compile(
    r"(?P<name>(?:[a-z][\w-]* ){0,2})\b(?P<unit>step|iter|iteration)(?P<on>)[ :=]\s*(?P<step>\d+)"
    r"(?:/ *\d+)?\b(?P<rest>.*loss.*\d.*)"
)
"""Any other line of a step: `step: 10  loss: 3.1`, `validate step: 10  loss: 3.1`, `step 10: val loss 3.1`."""
_VALUE = re.compile(
    r"(?P<key>[A-Za-z][\w ./()-]*?)(?: value)?(?: ?[:=]\s*|\s)"
    r"(?P<value>[-+]?\d[\d,]*\.?\d*(?:[eE][-+]?\d+)?|nan|inf)(?![\w.])"
)
_ARGUMENT = re.compile(r"\b(?P<name>seq_length|global_batch_size|rampup_batch_size) \.{2,} *(?P<value>\S+)")


def _log(lines: Sequence[str], origin: str) -> Table:
    """A row for each step at which something was measured on validation data, or each step if nothing was.

    Losses of a set are columns `<set>: lm loss`, as Megatron prints them; `tokens` are the consumed tokens, or the
    consumed samples times the sequence length, where the log says so. Losses on the test set are none.
    """
    steps: dict[int, dict[str, object]] = {}
    measured: dict[int, int] = {}
    known: dict[str, str] = {}
    sets: dict[str, str] = {}
    unit, place = "step", Table(pl.DataFrame({LINE: range(1, len(lines) + 1)}), origin)
    for line, content in enumerate(lines, start=1):
        if argument := _ARGUMENT.search(content):
            known.setdefault(argument["name"], argument["value"])
        found = _RESULT.search(content) or _STEP.search(content)
        if not found or "test set" in found["on"]:
            continue
        unit, late, step = found["unit"], "validation set" in found["on"], int(found["step"])
        row, numbers = steps.setdefault(step, {}), _numbers(found, sets)
        if found.re is _RESULT or any(name.startswith(("val", "eval")) for name in numbers):
            measured.setdefault(step, line)
            for name in [] if late else [name for name in numbers if row.get(name, numbers[name]) != numbers[name]]:
                place.fault(f"has two values of {name!r} at {unit} {step}: which one counts?", None, line - 1)
        steps[step] = numbers | row if late else row | numbers
    place.raise_faults()
    kept = sorted(measured or steps)
    rows = [{unit: step, **steps[step], **_tokens(step, steps[step], known)} for step in kept]
    table = table_of(rows, origin, LOG, [measured.get(step) for step in kept])
    return replace(table, usual={"D": "tokens", **_losses_of(sets)}, keys=(PATH, unit))


def _numbers(found: re.Match[str], sets: dict[str, str]) -> dict[str, object]:
    """The numbers of a line by name; of a line of a set, whose name may stand in brackets, also that of its loss."""
    named = re.search(r"\[(.+?)\]", found["on"])
    name = f"{found['name']}-{named[1]}" if named else found["name"]
    values = {one["key"].strip(): float(one["value"].replace(",", "")) for one in _VALUE.finditer(found["rest"])}
    if found.re is not _RESULT:
        return {f"{name}{key}": value for key, value in values.items()}
    sets[name] = next((key for key in values if "loss" in key and "ppl" not in key.lower()), "lm loss")
    return {f"{name}: {key}": value for key, value in values.items()}


def _losses_of(sets: Mapping[str, str]) -> dict[str, str]:
    """The pattern of the losses of sets: `validation-{lang}: lm loss`, or without a language where there is one set."""
    starts = [(f"{start[0]}{LANG}", key) for name, key in sets.items() if (start := re.match("[^-_/]*[-_/]", name))]
    whole = [(LANG if len(sets) > 1 else name, key) for name, key in sets.items()]
    return {"loss": ": ".join((starts or whole)[0])} if sets else {}


def _tokens(step: int, row: Mapping[str, object], known: Mapping[str, str]) -> dict[str, object]:
    """Consumed tokens, as printed or by samples; samples as printed, or by a batch size that does not grow."""
    batch = known.get("global_batch_size", "")
    fixed = known.get("rampup_batch_size", "None") == "None" and batch.isdigit()
    samples = row.get("consumed samples", step * int(batch) if fixed else None)
    tokens = row.get("consumed tokens")
    if tokens is None and samples is not None and "seq_length" in known:
        tokens = float(str(samples)) * int(known["seq_length"])
    return {name: one for name, one in (("consumed samples", samples), ("tokens", tokens)) if one is not None}


_NAMELESS = re.compile(
    r"(trainer_state|log|logs|logfile|stdout|stderr|out|output|train|training|console|main|metrics|history|results?|eval"
    r"|evaluation|state|summary|data|version|tb|tensorboard|events|lightning_logs|csv|run)([_-]?\d+)?|\d{8}([_-]\d{4,6})?"
)
"""What files and folders of runs are called in any project, which tells no run."""


def with_paths(tables: Sequence[Table]) -> list[Table]:
    """Tables whose files are a run each, with the settings beside them and the part of the path that tells the run.

    A file is a run where its form says so, where settings stand beside it, or where there are several.
    """
    logs = [replace(one, files=()) if one.kind not in (STATE, LOG, "") else one for one in tables]
    beside = [settings_beside(Path(one.origin)) if one.files else ({}, ()) for one in logs]
    is_run = [
        one.kind in (STATE, LOG) or (one.kind == "" and (len(tables) > 1 or bool(known)) and PATH not in one.columns)
        for one, (known, _) in zip(tables, beside, strict=True)
    ]
    names = iter(run_names([one.origin for one, alone in zip(tables, is_run, strict=True) if alone]))
    return [
        replace(_with_constants(one, known | {PATH: next(names)}), files=(*one.files, *files)) if alone else one
        for one, (known, files), alone in zip(tables, beside, is_run, strict=True)
    ]


def _with_constants(table: Table, known: Mapping[str, object]) -> Table:
    """The table with what holds for all of its rows."""
    new = {name: one for name, one in known.items() if name not in table.columns}
    cells = {name: pl.lit(one if type(one) in (int, float) else str(one)) for name, one in new.items()}
    usual = {"run": PATH, **table.usual} if table.kind else table.usual
    return replace(table, frame=table.frame.with_columns(**cells), usual=usual)


def run_names(files: Sequence[str]) -> list[str]:
    """The parts of paths that tell runs apart; a folder of a checkpoint tells none."""
    paths = [re.sub(r"/checkpoint-\d+(?=/)", "", Path(os.path.abspath(file)).as_posix()) for file in files]
    plain = {path: "/".join([*path.split("/")[1:-1], path.split("/")[-1].partition(".")[0]]) for path in paths}
    several = list(dict.fromkeys(plain.values()))
    if len(several) < 2:
        parts = several[0].split("/") if several else [""]
        while len(parts) > 1 and _NAMELESS.fullmatch(parts[-1].lower()):
            parts.pop()
        return [parts[-1]] * len(paths)
    named = dict(zip(several, distinct_parts(several), strict=True))
    return [named[plain[path]] for path in paths]


_SETTINGS = ("hparams.yaml", "hyperparameters.yaml", "config.yaml", "params.json", "args.json")


def settings_beside(file: Path) -> tuple[dict[str, object], tuple[Origin, ...]]:
    """The settings that stand beside the log of a run, such as the `hparams.yaml` of Lightning, and their file."""
    there = filter(Path.is_file, (file.parent / name for name in _SETTINGS))
    found, origin = next(map(read_settings, there), ({}, None))
    return {name: one for name, one in flatten(found).items() if one is not None}, (origin,) if origin else ()


def read_settings(path: Path) -> tuple[dict[str, Any], Origin]:
    """What a YAML or JSON file says by name, and the file.

    Raises
    ------
    DataError
        If it is neither.
    """
    data, origin = read_once(path)
    try:
        plain = re.sub(rb"!!python/\S+", b"", data)  # marks of Python's tuples and the like, which are lists
        found = json.loads(data) if path.suffix == ".json" else yaml.safe_load(plain)
    except (yaml.YAMLError, ValueError) as error:
        raise DataError(f"is not valid YAML or JSON: {error}", location=Location(origin.file)) from error
    return (found if isinstance(found, dict) else {}), origin
