"""Mixtures with names, in the order in which to train them: what every kind of plan makes, and a grid multiplies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from shapleymix.display import short
from shapleymix.files import Json
from shapleymix.records import FloatArray, Record
from shapleymix.tables.frames import Columns, Tabular

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
    provenance : dict
        What they were made from.
    """

    kind = "mixture-list"
    axes: ClassVar = {"sources": "M", "names": "C", "p": "CM"}

    sources: tuple[str, ...]
    names: tuple[str, ...]
    p: FloatArray
    notices: tuple[str, ...] = ()
    provenance: dict[str, Json] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.names)

    def columns(self) -> Columns:
        """The rows of a table of mixtures: a run log without budgets and losses."""
        ratios = {f"p_{name}": self.p[:, place] for place, name in enumerate(self.sources)}
        return {"run": list(self.names), **ratios}


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
