"""What a run has measured so far, for those who look on: the matrix with its standard errors, and what it cost."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from shapleymix.records import FloatArray
from shapleymix.tables.transfer import TransferMatrix
from shapleymix_irds.errors import TrackerError

if TYPE_CHECKING:
    from shapleymix_irds.record import Record


class Transfer(NamedTuple):
    """What one language does for another."""

    source: str
    target: str
    value: float
    stderr: float


@dataclass(frozen=True)
class Measured:
    """The values of K languages so far.

    Attributes
    ----------
    languages : tuple of str
        Names of the languages.
    values, stderr : array (K, K)
        Values in nats, row i the source; standard errors, NaN where they are not known yet.
    calibrated : bool
        Whether columns sum to the drop of their loss, as last measured; otherwise values are as summed.
    efficiency : array (K,)
        Sum of each column as summed over the drop of that loss; NaN where it is not known.
    evaluations, every : int
        Evaluated steps so far, and how many steps each of them stands for.
    overhead : float
        Share of time added so far; NaN where it is not known.
    fresh : bool
        Whether fresh training sequences stand in for validation.
    """

    languages: tuple[str, ...]
    values: FloatArray
    stderr: FloatArray
    calibrated: bool
    efficiency: FloatArray
    evaluations: int
    every: int
    overhead: float
    fresh: bool = False

    @property
    def shades(self) -> FloatArray:
        """(K, K) from -1 to 1, for colours: roots, since what is off the diagonal is small beside it."""
        largest = np.abs(self.values).max() or 1.0
        return np.sign(self.values) * np.sqrt(np.abs(self.values) / largest)

    @property
    def decimals(self) -> int:
        """Decimals with which the largest value has three digits."""
        largest = float(np.abs(self.values).max())
        return min(6, max(0, 2 - math.floor(math.log10(largest)))) if largest > 0 else 2

    def number(self, value: float) -> str:
        """A value as all of them are written."""
        return f"{value:.{self.decimals}f}"

    def error(self, stderr: float) -> str:
        """A standard error as it stands behind a value; empty where it is not known."""
        return f" ±{self.number(stderr)}" if math.isfinite(stderr) else ""

    def largest(self, count: int, *, own: bool = False) -> list[Transfer]:
        """The largest values, of either sign, largest first; those on the diagonal only if asked for."""
        size = np.abs(self.values) if own else np.where(np.eye(len(self.languages)) > 0, -1.0, np.abs(self.values))
        places = np.argsort(-size, axis=None, kind="stable")[: min(count, np.count_nonzero(size >= 0))]
        rows = (divmod(int(place), len(size)) for place in places)
        return [
            Transfer(self.languages[i], self.languages[j], float(self.values[i, j]), float(self.stderr[i, j]))
            for i, j in rows
        ]

    @property
    def heading(self) -> str:
        """What the numbers are."""
        kind = "calibrated to the loss drops last measured" if self.calibrated else "as summed, not calibrated"
        return f"Shapley values so far in nats, {kind}"

    @property
    def cost(self) -> str:
        """What they come from, and what that cost."""
        time = f"{self.overhead:+.1%} time" if math.isfinite(self.overhead) else "added time not known yet"
        of = ", without validation text" if self.fresh else ""
        noun = "evaluation" if self.evaluations == 1 else "evaluations"
        return f"{self.evaluations} {noun}, 1 step of {self.every}{of}; {time}"

    @property
    def line(self) -> str:
        """All of it in a line: own values, and the largest transfers."""
        own = np.diag(self.values)
        pairs = [
            f"{one.source}>{one.target} {self.number(one.value)}{self.error(one.stderr)}" for one in self.largest(3)
        ]
        told = f"; largest transfers {', '.join(pairs)}" if pairs else ""
        return f"{self.heading}: own {self.number(own.min())} to {self.number(own.max())}{told}; {self.cost}"


def ratio_range(ratios: Iterable[float]) -> str:
    """The least and the largest of the ratios that are known; empty if none is."""
    known = [ratio for ratio in ratios if math.isfinite(ratio)]
    return f"{min(known):.2g} to {max(known):.2g}" if known else ""


def measured_by(tracker: Record) -> Measured | None:
    """What a tracker has measured so far, calibrated if that can be; None before the first estimate of all pairs."""
    matrix = _matrix(tracker)
    if matrix is None or matrix.sv is None or tracker.schedule is None:
        return None
    unknown = np.full_like(matrix.sv, np.nan)
    return Measured(
        languages=tracker.languages,
        values=matrix.sv,
        stderr=unknown if matrix.stderr is None else matrix.stderr,
        calibrated=matrix.provenance["scale"] != "raw",
        efficiency=tracker.efficiency,
        evaluations=tracker.ledger.count,
        every=tracker.schedule.every,
        overhead=tracker.overhead,
        fresh=tracker.validation is None,
    )


def _matrix(tracker: Record) -> TransferMatrix | None:
    for kind in ("calibrated", "raw"):
        try:
            return tracker.matrix(kind)
        except TrackerError:
            continue
    return None


class News:
    """What is new in the matrix of a run, since it was last asked for."""

    def __init__(self, tracker: Record | None) -> None:
        self.tracker = tracker
        self._known: tuple[int, dict[str, float]] = (0, {})

    def since(self) -> Measured | None:
        """What has been measured so far; None where nothing came in."""
        tracker = self.tracker
        if tracker is None or (now := (tracker.ledger.count, dict(tracker.losses.latest))) == self._known:
            return None
        self._known = now
        return measured_by(tracker)
