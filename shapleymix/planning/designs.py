"""What a plan answers: the mixtures in the order in which to train them, and what each of them brings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shapleymix.display import Drawn, cut, short
from shapleymix.files import Json
from shapleymix.records import FloatArray, IntArray, Record
from shapleymix.tables.frames import Columns, Tabular

OPTIMUM, REGION = "optimum", "region"
PURPOSES = (OPTIMUM, REGION)


@dataclass(frozen=True)
class Design(Tabular, Record):
    """Mixtures to train next, the most useful first.

    Attributes
    ----------
    sources, targets : tuple of str
        M and K labels.
    purpose : str
        What the choice was made for: `"optimum"` or `"region"`.
    N, D : float
        The budget that the planned runs have; NaN where it is not known.
    because : str
        Why they have it.
    runs : tuple of str (R,)
        Ids for the planned runs.
    p : array (R, M)
        Their ratios.
    batch : int array (R,)
        Number of the batch of each, from 1.
    candidate : int array (R,)
        The place of each among the candidates, from 0.
    region_error : array (R + 1,)
        Expected relative error of the law's losses over the region (root mean square over mixtures and targets), before
        the first run and after each; NaN where no run tells even the level.
    optimum_error : array (R + 1,)
        Expected error of what mixtures that may be best gain over the optimum, nats; NaN without a fit.
    optimum : array (M,)
        The predicted optimum; NaN without a fit.
    trained : int
        Number of different mixtures that were trained so far, or are planned already.
    candidates : int
        How many mixtures the runs were chosen from.
    notices : tuple of str
        What was assumed.
    provenance : dict
        What the plan was made from.
    """

    kind = "design"
    plot = Drawn("designs.plot_design")
    axes: ClassVar[Mapping[str, str]] = {
        "sources": "M", "targets": "K", "runs": "R", "p": "RM", "batch": "R", "candidate": "R", "region_error": "V",
        "optimum_error": "V", "optimum": "M",
    }  # fmt: skip

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    purpose: str
    N: float
    D: float
    because: str
    runs: tuple[str, ...]
    p: FloatArray
    batch: IntArray
    candidate: IntArray
    region_error: FloatArray
    optimum_error: FloatArray
    optimum: FloatArray
    trained: int
    candidates: int
    notices: tuple[str, ...]
    provenance: dict[str, Json]

    def __post_init__(self) -> None:
        if len(self.region_error) != len(self.runs) + 1:
            raise ValueError(f"region_error has {len(self.region_error)} values, expected {len(self.runs) + 1}")

    def __len__(self) -> int:
        return len(self.runs)

    @property
    def mixtures(self) -> tuple[dict[str, float], ...]:
        """The ratios of each run by the name of the source."""
        return tuple(dict(zip(self.sources, row, strict=True)) for row in self.p.tolist())

    def columns(self) -> Columns:
        """The rows of a run log without losses, in order, with the number of the batch; N and D where known."""
        known = {name: value for name, value in (("N", self.N), ("D", self.D)) if not np.isnan(value)}
        table: dict[str, np.ndarray | list[object]] = {"run": list(self.runs)}
        table |= {name: np.full(len(self), value) for name, value in known.items()}
        table |= {f"p_{name}": self.p[:, place] for place, name in enumerate(self.sources)}
        return table | {"batch": self.batch}

    def summary(self) -> str:
        """How many mixtures, for what, and what they bring."""
        before = "unknown" if np.isnan(self.region_error[0]) else f"{self.region_error[0]:.2%}"
        region = f"{before} to {self.region_error[-1]:.2%}"
        lines = [
            f"Design of {len(self)} runs for the {self.purpose}, after {self.trained} mixtures",
            f"  sources: {short(self.sources)}",
            f"  expected error over the region: {region}",
        ]
        if np.isfinite(self.optimum_error).all():
            lines.append(
                f"  of gains near the optimum: {self.optimum_error[0]:.2g} to {self.optimum_error[-1]:.2g} nats"
            )
        return "\n".join([*lines, *(cut(f"note: {notice}") for notice in self.notices[:3])])
