"""Charts of Weights & Biases as its page exports them: a column of steps, and three columns for each run and metric."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from shapleymix.tables.cells import Cells

PANEL = "wandb_panel"
"""Kind of the cells of a chart."""
_BETWEEN, _BOUNDS = " - ", ("__MIN", "__MAX")


def is_panel(columns: Iterable[str]) -> bool:
    """Whether columns are those of a chart: of each run and metric the value, and its least and most of a step."""
    _, *names = columns
    known = set(names)
    values = [name for name in names if not name.endswith(_BOUNDS)]
    wanted = {f"{name}{end}" for name in values for end in ("", *_BOUNDS)}
    return bool(values) and wanted == known and all(_BETWEEN in name for name in values)


def read_panel(cells: Cells) -> Cells:
    """A row for each run and step with a value, and a column for each metric."""
    step, *names = cells.columns
    values = [name for name in names if not name.endswith(_BOUNDS)]
    runs: dict[str, dict[str, list[object]]] = {}
    for name in values:
        run, _, metric = name.rpartition(_BETWEEN)
        if metric != "_step":
            runs.setdefault(run, {})[metric] = cells.columns[name]
    metrics = list(dict.fromkeys(metric for one in runs.values() for metric in one))
    found: dict[str, list[object]] = {name: [] for name in ("run", step, *metrics)}
    lines: list[int] = []
    for run, row in _with_values(runs, len(cells.lines)):
        lines.append(cells.lines[row])
        found["run"].append(run)
        found[step].append(cells.columns[step][row])
        for metric in metrics:
            found[metric].append(runs[run][metric][row] if metric in runs[run] else "")
    return replace(cells, columns=found, lines=lines, kind=PANEL)


def _with_values(runs: dict[str, dict[str, list[object]]], rows: int) -> Iterator[tuple[str, int]]:
    """Each run with the rows in which it has a value."""
    for run, metrics in runs.items():
        for row in range(rows):
            if any(str(column[row]).strip() for column in metrics.values()):
                yield run, row
