"""Mixtures with names, in the order in which to train them: what every kind of plan makes, and a grid multiplies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from shapleymix.display import short
from shapleymix.errors import DataError, Location
from shapleymix.files import Json
from shapleymix.records import FloatArray, Record
from shapleymix.tables.frames import Columns, Tabular
from shapleymix.tables.run_reading import parse_runs
from shapleymix.tables.sheets import Table, read_sheet

ALIKE = 1e-4
"""Mixtures whose ratios differ by less are one."""


@dataclass(frozen=True)
class Listed(Tabular, Record):
    """Mixtures to train.

    Attributes
    ----------
    sources : tuple of str
        M labels.
    names : tuple of str (C,)
        What people call the mixtures.
    p : array (C, M)
        Their ratios.
    notices : tuple of str
        What was left out or assumed, and what is to be expected.
    N, D : float
        The budget of the runs; NaN where it is not said.
    provenance : dict
        What they were made from.
    """

    kind = "mixture-list"
    axes: ClassVar = {"sources": "M", "names": "C", "p": "CM"}

    sources: tuple[str, ...]
    names: tuple[str, ...]
    p: FloatArray
    notices: tuple[str, ...] = ()
    N: float = np.nan
    D: float = np.nan
    provenance: dict[str, Json] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.names)

    def columns(self) -> Columns:
        """The rows of a run log without losses, N and D where known."""
        known = {name: value for name, value in (("N", self.N), ("D", self.D)) if not np.isnan(value)}
        budgets = {name: np.full(len(self), value) for name, value in known.items()}
        ratios = {f"p_{name}": self.p[:, place] for place, name in enumerate(self.sources)}
        return {"run": list(self.names), **budgets, **ratios}


def listed_once(sources: Sequence[str], named: Sequence[tuple[str, FloatArray]], notices: Sequence[str] = ()) -> Listed:
    """Mixtures (M,) by name, each once: of two that are alike the first is kept, which is said."""
    kept: dict[bytes, str] = {}
    names: dict[str, FloatArray] = {}
    again: list[str] = []
    for name, p in named:
        key = np.rint(p / ALIKE).astype(np.int64).tobytes()
        if key in kept:
            again.append(f"{name} (as {kept[key]})" if name != kept[key] else name)
            continue
        own = name if name not in names else f"{name}-{len(names) + 1}"
        kept[key], names[own] = own, p
    said = [f"{len(again)} mixtures come again, and are listed once: {short(again)}"] if again else []
    p = np.array(list(names.values())).reshape(-1, len(sources))
    return Listed(tuple(sources), tuple(names), p, (*notices, *said))


def read_mixtures(table: Table) -> Listed:
    """The mixtures of a table: `p_<source>`, and `run` for their names; of a run log each of its mixtures once.

    Raises
    ------
    DataError
        With every fault of the table.
    """
    sheet = read_sheet(table)
    usual: dict[str, list[object]] = {
        "run": [f"mixture-{row + 1}" for row in range(sheet.rows)],
        "N": [1.0] * sheet.rows,
        "D": [1.0] * sheet.rows,
    }
    log = parse_runs(replace(sheet, columns={**usual, **sheet.columns}), need_losses=False)
    if not log.sources:
        raise DataError("has no p_<source>", location=Location(log.origin), hint="a table of mixtures has ratios")
    first: dict[str, int] = {}
    for row in np.flatnonzero(log.trained).tolist():
        first.setdefault(log.mixture_keys[row], row)
    rows = list(first.values())
    found = listed_once(log.sources, [(log.runs[row], log.p[row]) for row in rows], log.notices)
    return replace(found, provenance={"file": log.origin, "digest": log.digest})
