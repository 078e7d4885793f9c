"""A watch that a trainer opens in one of its hooks and closes in another, and what was done to gradients in between."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

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
        self._own = 0.0  # tokens of the step on this rank

    @property
    def open(self) -> bool:
        """Whether a forward and backward pass is being watched."""
        return self._stack is not None

    @property
    def step(self) -> int:
        """The step that is under way, or comes next."""
        pending = self.tracker.pending
        return self.tracker.next_step if pending is None else pending.step

    def begin(self, lang: Tensor | Sequence[str], tokens: int, length: int | None = None, calls: int = 1) -> None:
        """Watch from here on.

        Parameters
        ----------
        lang, length : Tensor or list of str, and int, optional
            As `IRDS.watch` takes them.
        tokens : int
            Tokens of this call on this rank.
        calls : int
            Calls of the step, if known: "auto" reckons with it.
        """
        self.end()
        pending, world, stack = self.tracker.pending, self.tracker.world, ExitStack()
        if pending is None:
            self._own = 0.0
            total = float(tokens * calls * world.size)
            if self.tracker.schedule is None:  # which is to be the same on all ranks
                total = float(world.sum(torch.tensor(total / world.size, dtype=torch.float64, device=world.device)))
        else:
            total = pending.total
        stack.enter_context(self.tracker.watch(lang, step=self.step, tokens=int(total), length=length))
        self._stack, self._own = stack, self._own + tokens

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

    def commit(self, lr: float, **how: Any) -> None:
        """Commit the step with the tokens that its calls had; `how` is as for `IRDS.commit`."""
        pending, world = self.tracker.pending, self.tracker.world
        if pending is not None:
            own = torch.tensor(self._own, dtype=torch.float64, device=world.device)
            pending.total = float(world.sum(own)) if pending.evaluated else self._own * world.size
        self.tracker.commit(lr=lr, **how)

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


def common_rate(groups: Iterable[Mapping[str, Any]], step: int) -> float:
    """The learning rate of all groups of an optimiser's parameters.

    Raises
    ------
    TrackerError
        If there are several.
    """
    rates = {float(group["lr"]) for group in groups}
    if len(rates) != 1:
        told = ", ".join(f"{rate:g}" for rate in sorted(rates))
        raise TrackerError(f"step {step}: the optimiser has several learning rates ({told}), expected one")
    return rates.pop()


UNEVEN = 1e-2  # rounding of gradients in low precision stays below
