"""A watch that a trainer opens in one of its hooks and closes in another, and what was done to gradients in between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack

import torch
from torch import Tensor

from shapleymix_irds.distributed import World, is_sharded
from shapleymix_irds.following import Parameters, factors, squares
from shapleymix_irds.tracker import IRDS


class Span:
    """One tracker's `watch`, open or not; steps are counted as they are committed.

    Attributes
    ----------
    tracker : IRDS
        The tracker.
    """

    def __init__(self, tracker: IRDS) -> None:
        self.tracker = tracker
        self._stack: ExitStack | None = None

    @property
    def open(self) -> bool:
        """Whether a forward and backward pass is being watched."""
        return self._stack is not None

    @property
    def step(self) -> int:
        """The step that is under way, or comes next."""
        pending = self.tracker.pending
        return self.tracker.next_step if pending is None else pending.step

    def begin(self, lang: Tensor | Sequence[str], length: int | None = None) -> None:
        """Watch a call from here on; labels are as `IRDS.watch` takes them, and the loss is a mean."""
        self.end()
        stack = ExitStack()
        stack.enter_context(self.tracker.watch(lang, step=self.step, length=length))
        self._stack = stack

    def end(self) -> None:
        """Watch until here.

        Raises
        ------
        TrackerError
            If there was no backward pass.
        """
        stack, self._stack = self._stack, None
        if stack is not None:
            stack.close()

    def drop(self) -> None:
        """Forget the step that is under way: its gradients will change no weight."""
        stack, self._stack = self._stack, None
        if stack is not None:
            stack.__exit__(_Dropped, _Dropped(), None)
        self.tracker.pending = None


class _Dropped(Exception):
    """Leaves a watch whose step is to be forgotten."""


def measured(
    before: Tensor, parameters: Parameters, groups: Mapping[str, int], world: World, step: int
) -> dict[str, float]:
    """By what each parameter's gradient was multiplied, as its group's, since `following.squares` gave `before`.

    Raises
    ------
    TrackerError
        If they were changed in another way.
    """
    table = torch.stack([before, squares(parameters)])
    table = (world.sum(table) if is_sharded(parameters.values()) else table).sqrt().cpu()
    then, now = (dict(zip(parameters, row, strict=True)) for row in table.tolist())
    return factors(then, now, groups, step)
