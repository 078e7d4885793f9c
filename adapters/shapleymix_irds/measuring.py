"""Measured validation losses, and measured time."""

from __future__ import annotations

import statistics
import time
from collections import deque

import torch
from torch import Tensor

from shapleymix_irds.batch import Batch, group_sums
from shapleymix_irds.engine import LossFn, plain

PIECE = 4  # sequences a forward pass: an eager pass holds their logits


def measure_losses(loss_fn: LossFn, batch: Batch) -> Tensor:
    """Mean loss of each group (groups,) float64, without gradients and without compiling anew."""
    losses = []
    with torch.no_grad(), torch.compiler.set_stance("force_eager"):
        for x, y in zip(batch.x.split(PIECE), batch.y.split(PIECE), strict=True):
            losses.append(plain(loss_fn(x, y)).double().cpu())
    return group_sums(torch.cat(losses), batch.bounds) / batch.tokens


class Stopwatch:
    """Times from commit to commit, of evaluated and of plain steps; medians, so that pauses do not count."""

    def __init__(self) -> None:
        self.times: dict[bool, deque[float]] = {True: deque(maxlen=200), False: deque(maxlen=200)}
        self.last: float | None = None

    def restart(self) -> None:
        """What happens until the next commit is not a step's own time."""
        self.last = None

    def lap(self, evaluated: bool) -> None:
        """A step ends."""
        now = time.perf_counter()
        if self.last is not None:
            self.times[evaluated].append(now - self.last)
        self.last = now

    def overhead(self, every: int) -> float:
        """Added share of time when one step of `every` is evaluated; NaN before both kinds were seen."""
        if not (self.times[True] and self.times[False]):
            return float("nan")
        ratio = statistics.median(self.times[True]) / statistics.median(self.times[False])
        return (ratio - 1.0) / every
