"""What trainers leave behind: the `trainer_state.json` of Hugging Face, and what Megatron prints."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from shapleymix.errors import DataError, Location
from shapleymix_io.table import Table, table_of

STATE, MEGATRON = "trainer_state", "megatron"

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


def read_state(state: object, origin: str) -> Table:
    """A row for each step of a state's `log_history` that has losses (`eval_loss`, `eval_<name>_loss`).

    Raises
    ------
    DataError
        If no loss was measured.
    """
    steps: dict[object, dict[str, object]] = {}
    history = state.get("log_history") if isinstance(state, Mapping) else None
    for entry in history if isinstance(history, list) else []:
        if isinstance(entry, dict):
            steps.setdefault(entry.get("step"), {}).update(entry)
    rows = [row for row in steps.values() if any(map(_is_loss, row))]
    if not rows:
        hint = "evaluate while training: eval_strategy and eval_steps, and eval_dataset with a dataset of each language"
        message = "is the state of a trainer that has measured no loss"
        raise DataError(message, location=Location(origin), hint=hint)
    return table_of([{"run": run_of(origin), **row} for row in rows], origin, STATE)


def _is_loss(name: str) -> bool:
    return name.startswith("eval_") and name.endswith("_loss")


def run_of(origin: str, depth: int = 1) -> str:
    """The id of the run of a file: its name, or the folder above one that is called alike for all runs (`log.txt`).

    A folder of a checkpoint names no run. With a depth, as many folders above go into it.
    """
    path = Path(os.path.abspath(origin))
    stem = path.name.lower().partition(".")[0]
    names = [*path.parts[1:-1], path.stem]
    if stem == STATE or re.sub(r"[_-]?\d+$", "", stem) in _NAMELESS:
        names = [part for part in names[:-1] if not part.startswith("checkpoint-")]
    return "/".join(names[-depth:])


def told_apart(tables: Sequence[Table]) -> list[Table]:
    """Tables of files that hold a run each, whose ids are the shortest ends of their paths that differ."""
    files = {table.origin for table in tables if table.kind in (STATE, MEGATRON)}
    depth = next((d for d in range(1, 30) if len({run_of(file, d) for file in files}) == len(files)), 30)
    return [
        replace(one, frame=one.frame.with_columns(pl.lit(run_of(one.origin, depth)).alias("run")))
        if one.origin in files and depth > 1
        else one
        for one in tables
    ]


def is_megatron(text: str) -> bool:
    """Whether a text is what Megatron prints while it trains."""
    return " loss at iteration " in text and _VALIDATION.search(text) is not None


def read_megatron(text: str, origin: str) -> Table:
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
            _measure(found, rows)
            lines.setdefault(int(found["step"]), line)
        elif found := _STEP.search(content):
            samples[int(found["step"])] = int(found["samples"])
        elif found := _ARGUMENT.match(content):
            known.setdefault(found["name"], found["value"])
    for step, row in rows.items():
        seen = _samples(step, samples, known)
        row |= {"run": run_of(origin), "iteration": step, "consumed samples": seen}
        if "seq_length" in known and seen is not None:
            row["tokens"] = seen * int(known["seq_length"])
    steps = sorted(rows)
    return table_of([rows[step] for step in steps], origin, MEGATRON, [lines[step] for step in steps])


def _measure(found: re.Match[str], rows: dict[int, dict[str, object]]) -> None:
    """Losses of one line; those on the test set are none, and those after training do not replace those within."""
    if "test set" in found["on"]:
        return
    name = "validation" if found["name"] is None else f"validation-{found['name']}"
    row = rows.setdefault(int(found["step"]), {})
    for value in _VALUE.finditer(found["values"]):
        column = f"{name}: {value['key'].strip()}"
        if not (found["on"].strip() and column in row):
            row[column] = float(value["value"])


def _samples(step: int, samples: Mapping[int, int], known: Mapping[str, str]) -> int | None:
    """Samples that were consumed: as printed for the step, or by a batch size that does not grow."""
    batch = known.get("global_batch_size", "")
    fixed = known.get("rampup_batch_size", "None") == "None" and batch.isdigit()
    return samples.get(step, step * int(batch) if fixed else None)
