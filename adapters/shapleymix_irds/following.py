"""What a step multiplies gradients with: learning rates of parameter groups, and what optimisers get.

The step moves parameter w by `-lr_w * factor_w * gradient`; so phi sums the products of each parameter times its own.

Where optimisers are followed, the norm of each parameter's gradient is kept on evaluated steps when a backward pass has
ended, and compared with that which the optimiser gets. Clipping, unscaling and averaging multiply all of a parameter
group by one factor; whatever else happened in between is refused. Nothing is copied, and steps that are not evaluated
cost nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from shapleymix_irds.errors import NonFiniteError, TrackerError
from shapleymix_irds.world import World, is_sharded, local, scalar, share

Parameters = Mapping[str, nn.Parameter]
SAME, SMALL = 1e-2, 1e-3  # of a parameter's norm, and of all: what rounding in bfloat16 changes at most


@dataclass(frozen=True)
class Rates:
    """What a step multiplies the gradient of each parameter with.

    Attributes
    ----------
    lrs, factors : mapping of str to float
        Learning rates, and what gradients were multiplied with since they were taken, such as the coefficient of
        clipping.
    grad_scale : float
        What the loss was multiplied with, where `factors` do not take it back.
    """

    lrs: Mapping[str, float]
    factors: Mapping[str, float]
    grad_scale: float = 1.0

    @classmethod
    def clipped(
        cls,
        lrs: Mapping[str, float],
        grad_norm: float | Tensor | None,
        max_norm: float | None,
        grad_scale: float,
        step: int,
    ) -> Rates:
        """Of gradients that `clip_grad_norm_` clipped to `max_norm`, if one is given, having found `grad_norm`.

        Raises
        ------
        TrackerError
            If only one of the two is given, or one of them cannot be.
        NonFiniteError
            If the norm is not finite.
        """
        if grad_norm is None and max_norm is None:
            return cls(lrs, dict.fromkeys(lrs, 1.0), grad_scale)
        norm = math.nan if grad_norm is None else scalar(grad_norm)
        if grad_norm is None or max_norm is None or not max_norm > 0 or norm < 0:
            told = f"step {step}: commit has grad_norm={grad_norm} and max_norm={max_norm}"
            raise TrackerError(told, hint="give both, the norm and its limit above 0, or neither")
        if not math.isfinite(norm):
            raise NonFiniteError(f"step {step}: grad_norm is {norm}", hint="look at the sequences of this step")
        return cls(lrs, dict.fromkeys(lrs, min(1.0, max_norm / (norm + 1e-6))), grad_scale)

    @property
    def lr(self) -> float:
        """The largest learning rate."""
        return max(self.lrs.values())

    @property
    def clip(self) -> float:
        """The largest factor."""
        return max(self.factors.values())

    @property
    def shares(self) -> dict[str, float]:
        """What each parameter has of the largest rate times the largest factor."""
        whole = self.lr * self.clip
        return {name: lr * self.factors[name] / whole if whole else 1.0 for name, lr in self.lrs.items()}


def numbered(groups: Sequence[Mapping[str, Any]], parameters: Parameters) -> dict[str, int]:
    """In which group each trained parameter of the model is.

    Raises
    ------
    TrackerError
        If one is in no group, or in two.
    """
    found = [(id(parameter), number) for number, group in enumerate(groups) for parameter in group["params"]]
    numbers, first = dict(found), dict(reversed(found))
    for name, parameter in parameters.items():
        own = id(parameter)
        if own not in numbers:
            hint = "freeze it (requires_grad_(False)) before the tracker is made, or give it a group"
            raise TrackerError(f"parameter {name!r} is trained, but is in no parameter group", hint=hint)
        if first[own] != numbers[own]:
            raise TrackerError(f"parameter {name!r} is in parameter groups {first[own]} and {numbers[own]}")
    return {name: numbers[id(parameter)] for name, parameter in parameters.items()}


# -- norms of gradients --------------------------------------------------------------------------------------------


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


def norms(squared: Tensor, parameters: Parameters, world: World) -> dict[str, float]:
    """Norms of whole gradients from what `squares` gave on this rank; every rank must call."""
    whole = world.sum(squared.clone()) if is_sharded(parameters.values()) else squared
    return dict(zip(parameters, whole.sqrt().tolist(), strict=True))


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


# -- optimisers that are followed ----------------------------------------------------------------------------------


@dataclass
class Following:
    """The optimisers that a tracker follows.

    Attributes
    ----------
    before, after : tensor (P,), optional
        Squared norms of gradients: when the last backward pass had ended, and as the optimisers get them; on this
        rank.
    came : set of int
        The numbers of the optimisers that have come to the step so far.
    """

    optimizers: Sequence[Optimizer]
    world: World
    before: Tensor | None = None
    after: Tensor | None = None
    came: set[int] = field(default_factory=set)

    def hook(self, ready: Callable[[int], None]) -> None:
        """From now on `ready` is called with the number of an optimiser that is about to take a step."""
        for number, optimizer in enumerate(self.optimizers):
            # uncompiled where the optimiser's step is compiled
            before: Any = torch.compiler.disable(lambda *_, n=number: ready(n))
            optimizer.register_step_pre_hook(before)

    def forget(self) -> None:
        """A step has ended, or was dropped."""
        self.before, self.after, self.came = None, None, set()

    def note(self, parameters: Parameters) -> None:
        """A backward pass of an evaluated step has ended."""
        self.before = squares(parameters)
        self.after = torch.zeros_like(self.before)

    def any_gradient(self, squared: Tensor | None) -> bool:
        """Whether a norm is not 0 on any rank; every rank must call."""
        return squared is not None and self.world.any(bool(squared.sum() != 0))

    def about_to_step(self, number: int, parameters: Parameters | None, step: int) -> None:
        """An optimiser is about to take a step; with the model's parameters where the step is evaluated.

        Raises
        ------
        TrackerError
            If it takes a step twice, or looks itself whether a gradient overflowed.
        """
        optimizer = self.optimizers[number]
        if number in self.came:
            raise TrackerError(f"step {step}: an optimiser steps twice after one backward pass", hint=_ITSELF)
        if getattr(optimizer, "found_inf", None) is not None:
            raise TrackerError(f"step {step}: a GradScaler may skip it", hint="train in bf16, or without the tracker")
        self.came.add(number)
        if parameters is not None:
            held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
            mine = torch.tensor([id(parameter) in held for parameter in parameters.values()])
            assert self.after is not None
            self.after = torch.where(mine.to(self.after.device), squares(parameters), self.after)

    def rates(self, parameters: Parameters, step: int) -> Rates:
        """What the step multiplies gradients with, now that all optimisers have come.

        Raises
        ------
        TrackerError
            If gradients were changed otherwise than by a factor for each parameter group.
        NonFiniteError
            If a gradient is not finite.
        """
        assert self.before is not None
        assert self.after is not None
        groups = numbered(self.groups, parameters)
        before, after = (norms(squared, parameters, self.world) for squared in (self.before, self.after))
        lrs = {name: float(self.groups[groups[name]]["lr"]) for name in parameters}
        return Rates(lrs, factors(before, after, groups, step))

    @property
    def groups(self) -> list[dict[str, Any]]:
        """All parameter groups."""
        return [group for optimizer in self.optimizers for group in optimizer.param_groups]


def unwrapped(optimizer: Any) -> Optimizer:
    """The optimiser inside of what others wrap around it."""
    inner = getattr(optimizer, "optimizer", None)
    return unwrapped(inner) if isinstance(inner, Optimizer) else optimizer


_ITSELF = "clip the norm of all gradients, or of a parameter group; a loop of another kind calls `commit` itself"
