"""The live view of a run on a terminal: how far it is, its metrics, and the matrix as it grows."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from shapleymix_irds.train.showing.heat import HeatTable
from shapleymix_irds.train.showing.measured import Measured
from shapleymix_irds.train.showing.telemetry import Metrics

if TYPE_CHECKING:
    from rich.console import Console, Group

PAUSE = 0.25  # seconds between pictures, at least


class LiveView:
    """A bar, a line of metrics and the matrix, drawn anew in their place; what others say goes above.

    Parameters
    ----------
    steps, resumed : int
        Steps of the run, and those that were done before.
    console : Console, optional
        Where to; standard error.
    """

    def __init__(self, steps: int, resumed: int, console: Console | None = None) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn, TimeRemainingColumn

        self.steps = steps
        self._bar = Progress(
            BarColumn(bar_width=30), MofNCompleteColumn(), TimeElapsedColumn(), "left:", TimeRemainingColumn()
        )
        self._task = self._bar.add_task("", total=steps, completed=resumed)
        self._line, self._matrix = "", None
        self._drawn = 0.0
        self._live = Live(self._all(), console=console or Console(stderr=True), auto_refresh=False)
        self._live.start()

    def step(self, metrics: Metrics) -> None:
        self._bar.update(self._task, completed=metrics.step)
        self._line = metrics.line()
        self._draw(last=metrics.step == self.steps)

    def show(self, metrics: Metrics, measured: Measured) -> None:
        self._matrix = measured
        self._draw(last=metrics.step == self.steps)

    def close(self) -> None:
        self._live.update(self._all())
        self._live.stop()

    def _draw(self, last: bool) -> None:
        if last or time.monotonic() - self._drawn >= PAUSE:
            self._live.update(self._all(), refresh=True)
            self._drawn = time.monotonic()

    def _all(self) -> Group:
        from rich.console import Group
        from rich.text import Text

        parts = [Text(self._line)] if self._line else []
        return Group(self._bar, *parts, *([HeatTable(self._matrix)] if self._matrix else []))
