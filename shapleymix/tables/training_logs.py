"""What trainers leave behind, as cells: `trainer_state.json` of Hugging Face, and what Megatron prints."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from shapleymix.tables.cells import Cells, plain, refusal

TRAINER_STATE, MEGATRON = "trainer_state", "megatron"
"""Kinds of cells."""
ONE_RUN = (TRAINER_STATE, MEGATRON)
"""Kinds of files that hold one run each, named by where they lie."""

_NAMELESS = {"log", "logs", "logfile", "stdout", "stderr", "out", "output", "train", "training", "console", "main"}
_NUMBER = r"[0-9.]+(?:[eE][+-]?\d+)?"
_VALIDATION = re.compile(
    r"validation(?:-(?P<name>\S.*?))? loss at iteration +(?P<step>\d+)(?P<on>[^|]*)\|(?P<values>.*)"
)
_VALUE = re.compile(rf"(?P<key>[^|]*?) value: (?P<value>{_NUMBER}|nan|inf)")
_STEP = re.compile(r"\biteration +(?P<step>\d+)/ *\d+ \|.*?consumed samples: +(?P<samples>\d+)")
_ARGUMENT = re.compile(
    r"^ *(?:\[[^\]]*\]:?)?\W*(?:\d+: *)?(?P<name>seq_length|global_batch_size|rampup_batch_size) \.{2,} *(?P<value>\S+)"
)


def is_trainer_state(whole: Mapping[str, object]) -> bool:
    """Whether a JSON object is the state of a Hugging Face trainer."""
    return isinstance(whole.get("log_history"), list) and "global_step" in whole


def read_trainer_state(whole: Mapping[str, object], origin: str) -> Cells:
    """A row for each step at which losses were measured (`eval_loss`, `eval_<name>_loss`).

    Raises
    ------
    DataError
        If no loss was measured.
    """
    history = whole["log_history"]
    steps: dict[object, dict[str, object]] = {}
    for entry in history if isinstance(history, list) else []:
        if isinstance(entry, dict):
            steps.setdefault(entry.get("step"), {}).update(entry)
    rows = [entry for entry in steps.values() if any(map(_is_loss, entry))]
    if not rows:
        hint = "evaluate while training: eval_strategy and eval_steps, and eval_dataset with a dataset of each language"
        raise refusal(origin, "is the state of a trainer that has measured no loss", hint)
    names = ["step", *dict.fromkeys(name for row in rows for name in row if name != "step")]
    columns = {name: plain([row.get(name) for row in rows]) for name in names}
    run: list[object] = [_run_of(origin)] * len(rows)
    return Cells({"run": run, **columns}, list(range(1, len(rows) + 1)), kind=TRAINER_STATE)


def _is_loss(name: str) -> bool:
    return (name.startswith("eval_") and name.endswith("_loss")) or name == "eval_loss"


def _run_of(origin: str) -> str:
    """The id of a run: its file's name, or the folder above a file that is called alike for all runs (`log.txt`).

    A folder of a checkpoint names no run.
    """
    path = Path(os.path.abspath(origin))
    if not _is_nameless(path):
        return path.stem
    return next((part for part in reversed(path.parts[:-1]) if not part.startswith("checkpoint-")), path.stem)


def _is_nameless(path: Path) -> bool:
    """Whether a file is called as that of any other run is."""
    name = path.name.lower().partition(".")[0]
    return name == TRAINER_STATE or re.sub(r"[_-]?\d+$", "", name) in _NAMELESS


def own_ids(origins: Sequence[str]) -> list[str]:
    """Ids of several runs that are files: the shortest ends of their paths that tell them apart."""
    ids = [_run_of(origin) for origin in origins]
    depth = 2
    while len(set(ids)) < len(set(origins)) and depth < 30:
        ids = ["/".join([*Path(os.path.abspath(origin)).parts[-depth:-1], Path(origin).stem]) for origin in origins]
        depth += 1
    return ids


def is_megatron(text: str) -> bool:
    """Whether a text is what Megatron prints while it trains."""
    return " loss at iteration " in text and _VALIDATION.search(text) is not None


def read_megatron(text: str, origin: str) -> Cells:
    """A row for each iteration at which losses were measured on validation data.

    Columns are called `validation-<name>: lm loss`; `tokens` are the consumed samples times the sequence length, where
    the log says both.
    """
    samples: dict[int, int] = {}
    known: dict[str, str] = {}
    rows: dict[int, dict[str, object]] = {}
    lines: dict[int, int] = {}
    for line, content in enumerate(text.splitlines(), start=1):
        if found := _VALIDATION.search(content):
            _measure(found, rows, lines, line)
        elif found := _STEP.search(content):
            samples[int(found["step"])] = int(found["samples"])
        elif found := _ARGUMENT.match(content):
            known.setdefault(found["name"], found["value"])
    steps = sorted(rows)
    names = dict.fromkeys(name for step in steps for name in rows[step])
    columns: dict[str, list[object]] = {"run": [_run_of(origin)] * len(steps), "iteration": [*steps]}
    seen = [_samples(step, samples, known) for step in steps]
    columns["consumed samples"] = plain([*seen])
    if "seq_length" in known and None not in seen:
        columns["tokens"] = [count * int(known["seq_length"]) for count in seen if count is not None]
    columns |= {name: plain([rows[step].get(name) for step in steps]) for name in names}
    return Cells(columns, [lines[step] for step in steps], kind=MEGATRON)


def _measure(found: re.Match[str], rows: dict[int, dict[str, object]], lines: dict[int, int], line: int) -> None:
    """Losses of one line; those on the test set are none, and those after training do not replace those within."""
    if "test set" in found["on"]:
        return
    step = int(found["step"])
    name = "validation" if found["name"] is None else f"validation-{found['name']}"
    row = rows.setdefault(step, {})
    lines.setdefault(step, line)
    for value in _VALUE.finditer(found["values"]):
        column = f"{name}: {value['key'].strip()}"
        if not (found["on"].strip() and column in row):
            row[column] = value["value"]


def _samples(step: int, samples: Mapping[int, int], known: Mapping[str, str]) -> int | None:
    """Samples that were consumed: as printed for the step, or by a batch size that does not grow."""
    batch = known.get("global_batch_size", "")
    fixed = known.get("rampup_batch_size", "None") == "None" and batch.isdigit()
    return samples.get(step, step * int(batch) if fixed else None)
