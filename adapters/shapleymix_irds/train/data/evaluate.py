"""Test losses of each language, shared out over the ranks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from shapleymix.records import FloatArray
from shapleymix_irds.distributed import World
from shapleymix_irds.train.data.corpus import Stream

SequenceLoss = Callable[[Tensor, Tensor], Tensor]


def spread(stream: Stream, most: int) -> np.ndarray:
    """At most `most` windows of a stream, evenly spread over it, always the same."""
    return np.unique(np.linspace(0, stream.windows - 1, min(most, stream.windows)).astype(np.int64))


def windows_of(stream: Stream, numbers: np.ndarray) -> tuple[Tensor, Tensor]:
    """Inputs and targets (n, seq) of some windows."""
    rows = torch.from_numpy(np.stack([stream.window(int(number)) for number in numbers]))
    return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()


@torch.no_grad()
def mean_losses(
    losses: SequenceLoss, streams: tuple[Stream, ...], world: World, *, most: int, batch: int
) -> FloatArray:
    """Mean loss a token in nats of each stream (K,).

    Every rank makes the same number of passes, as sharded models require; a rank out of windows repeats its
    last.
    """
    sums = torch.zeros(len(streams), dtype=torch.float64)
    counts = torch.zeros(len(streams), dtype=torch.float64)
    for index, stream in enumerate(streams):
        numbers = spread(stream, most)
        for start in range(0, len(numbers), batch * world.size):
            mine = numbers[start : start + batch * world.size][world.rank :: world.size]
            x, y = windows_of(stream, mine if len(mine) else numbers[-1:])
            found = losses(x.to(world.device), y.to(world.device)).double().sum().cpu()
            sums[index] += found if len(mine) else 0.0
            counts[index] += len(mine) * stream.seq
    total = world.table(torch.cat([sums, counts])).sum(0)
    return (total[: len(streams)] / total[len(streams) :]).numpy()
