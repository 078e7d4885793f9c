"""A watch that a trainer opens in one of its hooks and closes in another, and what was done to gradients in between."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack

import torch
from torch import Tensor, nn

from shapleymix_irds.distributed import World, local
from shapleymix_irds.errors import TrackerError
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

    def begin(self, lang: Tensor | Sequence[str], tokens: int, length: int | None = None) -> None:
        """Watch from here on.

        Parameters
        ----------
        lang, length : Tensor or list of str, and int, optional
            As `IRDS.watch` takes them.
        tokens : int
            Tokens of the whole step; in further calls of a step the number of the first one counts.
        """
        self.end()
        pending, stack = self.tracker.pending, ExitStack()
        total = tokens if pending is None else int(pending.total)
        stack.enter_context(self.tracker.watch(lang, step=self.step, tokens=total, length=length))
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


def gradient_norms(parameters: Iterable[nn.Parameter]) -> Tensor:
    """The norm of each parameter's gradient, or of this rank's part of it; float64, 0 where there is none."""
    grads = [parameter.grad for parameter in parameters]
    norms = [
        torch.zeros(()) if grad is None else torch.linalg.vector_norm(local(grad.detach()), dtype=torch.float64)
        for grad in grads
    ]
    return torch.stack([norm.double().cpu() for norm in norms])


def common_factor(before: Tensor, after: Tensor, world: World, step: int) -> float:
    """The factor by which all gradients were multiplied between two measurements of `gradient_norms`.

    Raises
    ------
    TrackerError
        If gradients of different parameters were multiplied with different factors.
    """
    whole = world.sum(torch.stack([before.square().sum(), after.square().sum()]).to(world.device)).cpu()
    if not whole[0] > 0:
        return 1.0
    factor = float((whole[1] / whole[0]).sqrt())
    uneven = (after - factor * before).abs() > UNEVEN * factor * before
    if world.any(bool(uneven.any())):
        hint = "clip by the norm of all gradients together, and change them in no other way before the optimiser's step"
        raise TrackerError(f"step {step}: gradients were changed by another factor in each parameter", hint=hint)
    return factor


UNEVEN = 1e-2  # rounding of gradients in low precision stays below
