"""Measured validation losses, and measured time."""

from __future__ import annotations

import math
import statistics
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from shapleymix_irds.batch import Inputs, Piece, labelled
from shapleymix_irds.buffers import Buffers
from shapleymix_irds.distributed import World
from shapleymix_irds.engines.base import LossFn, plain, trained
from shapleymix_irds.errors import TrackerError


def measure_losses(loss_fn: LossFn, pieces: Sequence[Piece], languages: int, world: World) -> Tensor:
    """Mean loss of each language (K,) float64 over all ranks' pieces, without gradients and without compiling anew."""
    sums = torch.zeros((2, languages), dtype=torch.float64)
    with torch.no_grad(), torch.compiler.set_stance("force_eager"):
        for piece in pieces:
            losses = plain(loss_fn(piece.x, piece.y)).double().cpu() * piece.weights
            index = piece.languages.cpu()
            sums.index_add_(1, index, torch.stack([losses, piece.tokens * piece.weights]))
    total = world.sum(sums.to(world.device)).cpu()
    return total[0] / total[1]


@contextmanager
def aside(model: nn.Module) -> Iterator[None]:
    """Passes without dropout and the like; then modes, buffers and the state of randomness are as they were."""
    modes = [(module, module.training) for module in model.modules()]
    buffers = Buffers(model)
    devices = {parameter.device for parameter in model.parameters() if parameter.device.type == "cuda"}
    model.eval()
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        buffers.restore()
        for module, training in modes:
            module.training = training


def check_sums(model: nn.Module, loss_fn: LossFn, few: tuple[Inputs, Tensor], ignore: int, world: World) -> None:
    """Refuse losses that are means over tokens where sums are meant: cut in half, a sequence has half the sum.

    Sequences are cut only where the loss of a whole one is no more than that of a token may be.

    Raises
    ------
    TrackerError
        If the loss of the first half is that of the whole.
    """
    x, y = few
    if not isinstance(x, Tensor) or x.dim() < 2 or y.shape != x.shape:  # only sequences of tokens can be cut
        return
    x, y, half = x[:2], y[:2], x.shape[1] // 2
    with aside(model), torch.no_grad(), torch.compiler.set_stance("force_eager"):
        whole = torch.stack([trained(both := loss_fn(x, y)), plain(both)]).double().sum(1)
        small = len(x) and float(whole[1]) / len(x) < TOKEN * math.log(2 + max(1, int(y.max())))
        if not world.any(bool(small)) or half == 0:
            return
        x, cut = x[:, :half], y[:, :half]
        part = torch.stack([trained(both := loss_fn(x, cut)), plain(both)]).double().sum(1)
    share = float(labelled(cut, ignore).sum()) / max(1.0, float(labelled(y, ignore).sum()))
    if world.any(bool((part.abs() > (1 + share) / 2 * whole.abs()).any())):
        hint = "give the sum of the token losses of each sequence; the tracker divides by the tokens of the step"
        raise TrackerError("loss_fn gives means over tokens: half a sequence has the loss of the whole", hint=hint)


TOKEN = 1.5  # times the logarithm of the vocabulary: no mean loss of a token is more


class Stopwatch:
    """Times from commit to commit, of evaluated and of plain steps; medians, so that pauses do not count.

    After a pause, and in the first step, a time begins with `backward`.
    """

    def __init__(self) -> None:
        self.times: dict[bool, deque[float]] = {True: deque(maxlen=200), False: deque(maxlen=200)}
        self.last: float | None = None
        self.steps, self.measuring = 0, 0.0

    def begin(self) -> None:
        """A step begins."""
        self.last = self.last or time.perf_counter()

    @contextmanager
    def measurement(self) -> Iterator[None]:
        """What is done within is a measurement of losses, which is no step's own time."""
        begun = time.perf_counter()
        yield
        self.measuring += time.perf_counter() - begun
        self.restart()

    def restart(self) -> None:
        """What happens until the next commit is not a step's own time."""
        self.last = None

    def lap(self, evaluated: bool) -> None:
        """A step ends."""
        now = time.perf_counter()
        if self.last is not None:
            self.times[evaluated].append(now - self.last)
        self.last, self.steps = now, self.steps + 1

    def overhead(self, every: int) -> float:
        """Added share of time when one step of `every` is evaluated, with measurements so far.

        NaN before both kinds were seen.
        """
        if not (self.times[True] and self.times[False]):
            return float("nan")
        plain = statistics.median(self.times[False])
        evaluations = (statistics.median(self.times[True]) / plain - 1.0) / every
        return evaluations + self.measuring / (max(self.steps, 1) * plain)
