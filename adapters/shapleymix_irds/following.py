"""Follow optimisers: what gradients are multiplied with is measured just before an optimiser takes its step.

On evaluated steps the norm of each parameter's gradient is kept when a backward pass has ended, and compared with that
which the optimiser gets. Clipping, unscaling and averaging multiply all of a parameter group by one factor; whatever
else happened in between is refused. Nothing is copied, and steps that are not evaluated cost nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from shapleymix_irds.distributed import World, is_sharded, local, share
from shapleymix_irds.errors import NonFiniteError, TrackerError
from shapleymix_irds.rates import Group, Rates, learning_rate, numbered

Parameters = Mapping[str, nn.Parameter]
SAME, SMALL = 1e-2, 1e-3  # of a parameter's norm, and of all: what rounding in bfloat16 changes at most


@dataclass
class Met:
    """An optimiser that is about to take the step.

    Attributes
    ----------
    scale : float
        What it will divide gradients by itself (a fused one, under a `GradScaler`).
    overflow : tensor, optional
        More than 0 where it will not move its weights, since a gradient overflowed (a fused one, under a `GradScaler`).
    """

    scale: float = 1.0
    overflow: Tensor | None = None

    @property
    def skips(self) -> bool:
        """Whether it will not move its weights; waits for the device."""
        return self.overflow is not None and float(self.overflow) > 0


@dataclass
class Following:
    """The optimisers that a tracker follows.

    Attributes
    ----------
    before, after : tensor (P,), optional
        Squared norms of gradients in the order of `names`: when the last backward pass had ended, and as the
        optimisers get them; on this rank.
    met : dict of int to Met
        The optimisers that have come to the step so far, by their numbers.
    marks : list of int, optional
        How often gradients had been written to at the end of the last call of a step that is not evaluated.
    """

    optimizers: Sequence[Optimizer]
    world: World
    names: list[str] = field(default_factory=list)
    before: Tensor | None = None
    after: Tensor | None = None
    met: dict[int, Met] = field(default_factory=dict)
    marks: list[int | None] | None = None
    handles: list[RemovableHandle] = field(default_factory=list)

    def hook(self, ready: Callable[[int, Optimizer], None]) -> None:
        """From now on `ready` is called with the number of an optimiser that is about to take a step."""
        for number, optimizer in enumerate(self.optimizers):

            def before(
                optimizer: Optimizer, args: tuple[object, ...], kwargs: dict[str, object], n: int = number
            ) -> None:
                _check_arguments(args, kwargs)
                ready(n, optimizer)

            uncompiled: Any = torch.compiler.disable(before)  # where the optimiser's step is compiled
            self.handles.append(optimizer.register_step_pre_hook(uncompiled))

    def leave(self) -> None:
        """The optimisers step without the tracker again."""
        for handle in self.handles:
            handle.remove()

    @property
    def all_met(self) -> bool:
        return len(self.met) == len(self.optimizers)

    @property
    def skipped(self) -> bool:
        """Whether none of those that came will move a weight."""
        return all(met.skips for met in self.met.values())

    @property
    def overflows(self) -> list[Tensor]:
        """What will tell whether all that came skip the step; none where it is known that they do not."""
        found = [met.overflow for met in self.met.values() if met.overflow is not None]
        return found if len(found) == len(self.met) else []

    def forget(self) -> None:
        """A step has ended, or was dropped."""
        self.before, self.after, self.met, self.marks = None, None, {}, None

    def groups(self) -> list[Group]:
        """The parameter groups of all optimisers."""
        return [group for optimizer in self.optimizers for group in optimizer.param_groups]

    def kinds(self, parameters: Parameters, more: Mapping[str, int]) -> dict[str, int]:
        """Which parameters have one learning rate now, one optimiser, and are in one group of `more`."""
        rates, owners = self._rates(0), self._owners()
        keys = {
            name: (owners[number], rates[number], more.get(name, 0))
            for name, number in numbered(self.groups(), parameters).items()
        }
        order = sorted(set(keys.values()))
        return {name: order.index(key) for name, key in keys.items()}

    def note(self, parameters: Parameters) -> None:
        """A backward pass has ended."""
        self.names = list(parameters)
        self.before = squares(parameters)
        self.after = torch.zeros_like(self.before)

    def cleared(self, parameters: Parameters) -> bool:
        """Whether there is no gradient on any rank; every rank must call."""
        return not self.world.any(_any(squares(parameters)))

    @property
    def noted(self) -> bool:
        """Whether there was a gradient when the last backward pass had ended; every rank must call."""
        return self.before is not None and self.world.any(_any(self.before))

    def mark(self, parameters: Parameters) -> None:
        """A call of a step that is not evaluated has ended."""
        self.marks = _versions(parameters)

    def cleared_since(self, parameters: Parameters) -> bool:
        """Whether this rank's gradients were cleared since `mark`; they are only read if something was done to them."""
        return self.marks not in (None, _versions(parameters)) and not _any(squares(parameters))

    def meet_plain(self, number: int) -> None:
        """An optimiser is about to take a step that is not evaluated; the device is not waited for."""
        self.met[number] = Met(overflow=getattr(self.optimizers[number], "found_inf", None))

    def meet(self, number: int, parameters: Parameters, step: int) -> None:
        """An optimiser is about to take an evaluated step.

        Raises
        ------
        TrackerError
            If it steps twice.
        """
        if number in self.met:
            raise TrackerError(f"step {step}: an optimiser steps twice after one backward pass", hint=_ITSELF)
        optimizer = self.optimizers[number]
        scale, overflow = getattr(optimizer, "grad_scale", None), getattr(optimizer, "found_inf", None)
        self.met[number] = Met(1.0 if scale is None else float(scale), overflow)
        held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        mine = torch.tensor([id(parameters[name]) in held for name in self.names])
        assert self.after is not None
        self.after = torch.where(mine.to(self.after.device), squares(parameters), self.after)

    def rates(self, parameters: Parameters, step: int) -> Rates:
        """What the step multiplies gradients with; optimisers that have not come, or skip it, move nothing.

        Raises
        ------
        TrackerError
            If gradients were changed otherwise than by a factor for each parameter group.
        NonFiniteError
            If a gradient is not finite.
        """
        groups, owners, rates = numbered(self.groups(), parameters), self._owners(), self._rates(step)
        moving = {number: met for number, met in self.met.items() if not met.skips}
        met = {name: moving[owners[groups[name]]] for name in self.names if owners[groups[name]] in moving}
        before, after = self._norms(parameters)
        measured = factors({name: before[name] for name in met}, {name: after[name] for name in met}, groups, step)
        left = {name: 1 / met[name].scale if name in met else 1.0 for name in self.names}
        return Rates(
            {name: rates[groups[name]] if name in met else 0.0 for name in self.names},
            {name: measured.get(name, 0.0) * left[name] for name in self.names},
            left=left,
        )

    def _owners(self) -> list[int]:
        """The optimiser of each group."""
        return [n for n, optimizer in enumerate(self.optimizers) for _ in optimizer.param_groups]

    def _rates(self, step: int) -> list[float]:
        groups = [group for optimizer in self.optimizers for group in optimizer.param_groups]
        for number, group in enumerate(groups):
            if group.get("lr") is None or group.get("maximize"):
                what = "no learning rate of its own" if group.get("lr") is None else "maximize=True"
                hint = "give it a learning rate, and a loss that falls; or call `commit` yourself"
                raise TrackerError(f"parameter group {number} of the optimisers has {what}", hint=hint)
        return [learning_rate(float(group["lr"]), step) for group in groups]

    def _norms(self, parameters: Parameters) -> tuple[dict[str, float], dict[str, float]]:
        assert self.before is not None
        assert self.after is not None
        table = torch.stack([self.before, self.after])
        table = (self.world.sum(table) if is_sharded(parameters.values()) else table).sqrt().cpu()
        before, after = (dict(zip(self.names, row, strict=True)) for row in table.tolist())
        return before, after


def squares(parameters: Parameters) -> Tensor:
    """Squared norms (P,) float64 of this rank's part of the gradients; 0 where there is none."""
    device = local(next(iter(parameters.values()))).device
    zero = torch.zeros((), dtype=torch.float64, device=device)
    found = [
        zero
        if parameter.grad is None
        else share(parameter) * torch.linalg.vector_norm(local(parameter.grad).detach(), dtype=torch.float64) ** 2
        for parameter in parameters.values()
    ]
    return torch.stack(found)


def _any(squared: Tensor) -> bool:
    """Whether there is a gradient, be it not finite."""
    return bool(squared.sum() != 0)


def _versions(parameters: Parameters) -> list[int | None]:
    """How often each gradient was written to; None where there is none."""
    return [None if parameter.grad is None else local(parameter.grad)._version for parameter in parameters.values()]


def factors(
    before: Mapping[str, float], after: Mapping[str, float], groups: Mapping[str, int], step: int
) -> dict[str, float]:
    """By what each parameter's gradient was multiplied: one factor for all, or for each group, as norms tell.

    Raises
    ------
    TrackerError
        If there was no gradient to be seen, or one was changed in another way.
    NonFiniteError
        If a norm is not finite.
    """
    if not all(map(math.isfinite, (*before.values(), *after.values()))):
        raise NonFiniteError(f"step {step}: a gradient is not finite", hint="look at the sequences of this step")
    whole = math.hypot(*before.values())
    if whole == 0:
        hint = "let the optimiser take its gradients from `.grad`, or call `commit` yourself"
        raise TrackerError(f"step {step}: there is no gradient in `.grad` after the backward pass", hint=hint)
    total = math.hypot(*after.values()) / whole
    found = {}
    for number in set(groups.values()):
        names = [name for name in before if groups[name] == number]
        own = math.hypot(*(before[name] for name in names))
        factor = math.hypot(*(after[name] for name in names)) / own if own else total
        factor = total if abs(factor - total) <= SMALL * total else factor
        found |= dict.fromkeys(names, factor)
    for name, factor in found.items():
        if abs(after[name] - factor * before[name]) > factor * (SAME * before[name] + SMALL * whole):
            ratio = after[name] / before[name] if before[name] else math.inf
            told = f"that of {name!r} has {ratio:.4g} of its norm, others of its group have {factor:.4g}"
            what = "gradients were changed between the backward pass and the optimiser, not by one factor"
            raise TrackerError(f"step {step}: {what}: {told}", hint=_ITSELF)
    return found


_ITSELF = "clip the norm of all gradients, or of a parameter group; a loop of another kind calls `commit` itself"


def unwrapped(optimizer: object) -> Optimizer:
    """The optimiser inside of what others wrap around it.

    Raises
    ------
    TrackerError
        If there is none.
    """
    inner = getattr(optimizer, "optimizer", None)
    if isinstance(inner, Optimizer):
        return unwrapped(inner)
    if not isinstance(optimizer, Optimizer):
        kind = type(optimizer).__name__
        raise TrackerError(f"follow was given a {kind}, expected optimisers of torch.optim", hint=_ITSELF)
    return optimizer


def _check_arguments(args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
    if any(value is not None for value in (*args[1:], *kwargs.values())):
        hint = "run the backward pass before `optimizer.step()`, or call `commit` yourself"
        raise TrackerError(
            "optimizer.step is given a closure, which differentiates after `follow` has looked", hint=hint
        )
