"""Trade-off curves as they are reported: the points between two sets of targets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shapleymix.display import Drawn
from shapleymix.fields import AMOUNT, FINITE, POSITIVE, SHARE, Range
from shapleymix.files import Json
from shapleymix.mixing.certificate import Certificate
from shapleymix.records import FloatArray, Record
from shapleymix.tables.frames import Columns, Tabular


@dataclass(frozen=True)
class FrontierPoint(Record):
    """One mixture on the curve.

    Attributes
    ----------
    share : float
        Weight of the first side's mean loss; that of the second is 1 - share.
    p : array (M,)
        Ratios.
    losses : array (K,)
        Predicted losses, nats; NaN where above an untrained model's.
    first, second : float
        Mean losses of the two sides with their intervals for one run; NaN, with a reason, where the
        law has no prediction for one of its targets.
    certificate : Certificate
        Bound on what any other mixture could gain in the weighted sum of both sides.
    """

    kind = "frontier-point"
    ranges: ClassVar[Mapping[str, Range]] = {"share": SHARE, "p": SHARE, "losses": FINITE}

    share: float
    p: FloatArray
    losses: FloatArray
    first: float
    first_low: float
    first_high: float
    second: float
    second_low: float
    second_high: float
    certificate: Certificate
    reason: str


@dataclass(frozen=True)
class Point:
    """A mixture of the curve with the tokens and bounds that it was found under."""

    mixture: dict[str, float]
    D: float
    available: FloatArray | None
    max_epochs: FloatArray | None
    min_tokens: FloatArray | None


@dataclass(frozen=True)
class Frontier(Tabular, Record):
    """The curve from the optimum of the second side to that of the first.

    Attributes
    ----------
    between : str
        The two sides, as they were asked for.
    first_targets, second_targets : tuple of str
        Targets of the two sides.
    first_weights, second_weights : array (K,)
        Weights of the two mean losses; each sums to 1.
    entries : tuple of FrontierPoint
        The points, by rising loss of the second side; no point is at least as good as another on both.
    available, max_epochs, min_tokens : array (M,), optional
        Unique tokens, how often they may be seen, and the fewest tokens of each source, as of a `Mixture`.
    """

    kind = "frontier"
    plot = Drawn("frontiers.plot_frontier")
    axes: ClassVar[Mapping[str, str]] = {
        "sources": "M", "targets": "K", "first_weights": "K", "second_weights": "K",
        "available": "M", "max_epochs": "M", "min_tokens": "M",
    }  # fmt: skip
    ranges: ClassVar[Mapping[str, Range]] = {
        "N": POSITIVE, "D": POSITIVE, "first_weights": SHARE, "second_weights": SHARE, "level": SHARE,
        "replicates": AMOUNT, "available": AMOUNT, "max_epochs": AMOUNT, "min_tokens": AMOUNT,
    }  # fmt: skip

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    N: float
    D: float
    between: str
    first_targets: tuple[str, ...]
    second_targets: tuple[str, ...]
    first_weights: FloatArray
    second_weights: FloatArray
    weights_origin: str
    entries: tuple[FrontierPoint, ...]
    level: float
    replicates: int
    notices: tuple[str, ...]
    provenance: dict[str, Json]
    available: FloatArray | None = None
    max_epochs: FloatArray | None = None
    min_tokens: FloatArray | None = None

    def __post_init__(self) -> None:
        for place, entry in enumerate(self.entries):
            if entry.p.shape != (len(self.sources),) or entry.losses.shape != (len(self.targets),):
                raise ValueError(f"point {place + 1} has not one ratio a source and one loss a target")

    def columns(self) -> Columns:
        """One row a point."""
        names = ("share", "first", "first_low", "first_high", "second", "second_low", "second_high")
        numbers = {name: [getattr(entry, name) for entry in self.entries] for name in names}
        ratios = np.array([entry.p for entry in self.entries]).reshape(len(self.entries), len(self.sources))
        return numbers | {f"p_{name}": ratios[:, i].tolist() for i, name in enumerate(self.sources)}

    def point(self, number: int) -> Point:
        """The mixture of a point by its number, from 1, as an export takes it."""
        p = self.entries[number - 1].p.tolist()
        known = (self.available, self.max_epochs, self.min_tokens)
        return Point(dict(zip(self.sources, p, strict=True)), self.D, *known)
