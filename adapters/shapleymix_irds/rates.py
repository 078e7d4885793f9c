"""Parameter groups, each with a learning rate of its own, and what a step multiplies gradients with.

The step moves parameter w by `-lr_w * factor_w * gradient`; so phi sums the products of each parameter times its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from torch import nn

from shapleymix_irds.errors import TrackerError

Group = Iterable[nn.Parameter] | Mapping[str, object]  # as optimisers take and have them


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
    left : mapping of str to float
        What the optimiser itself will multiply the gradient with before it takes its step.
    """

    lrs: Mapping[str, float]
    factors: Mapping[str, float]
    grad_scale: float = 1.0
    left: Mapping[str, float] = field(default_factory=dict)

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

    @property
    def moves(self) -> dict[str, float]:
        """What gradients are multiplied with as they now stand in `.grad`."""
        return {name: lr * self.left.get(name, 1.0) for name, lr in self.lrs.items()}


def learning_rate(lr: float, step: int) -> float:
    """The learning rate of a step.

    Raises
    ------
    TrackerError
        If it is not finite, or negative.
    """
    if not 0 <= float(lr) < math.inf:
        raise TrackerError(f"step {step}: commit has lr={float(lr)}, expected 0 or more")
    return float(lr)


def numbered(groups: Sequence[Group], parameters: Mapping[str, nn.Parameter]) -> dict[str, int]:
    """In which group each trained parameter of the model is.

    Raises
    ------
    TrackerError
        If a group has a trained parameter that is not the model's, or one is in no group, or in two.
    """
    names = {id(parameter): name for name, parameter in parameters.items()}
    found: dict[str, int] = {}
    for number, group in enumerate(groups):
        for parameter in _listed(group, number):
            name = names.get(id(parameter))
            if name is None and parameter.requires_grad:
                told = f"parameter group {number} has one of shape {tuple(parameter.shape)} that is not the model's"
                raise TrackerError(told, hint="give the groups of this model, wrapped before the optimiser was made")
            if name is not None and found.setdefault(name, number) != number:
                raise TrackerError(f"parameter {name!r} is in parameter groups {found[name]} and {number}")
    for name in parameters:
        if name not in found:
            hint = "freeze it (requires_grad_(False)) before the tracker is made, or give it a group"
            raise TrackerError(f"parameter {name!r} is trained, but is in no parameter group", hint=hint)
    return found


def _listed(group: Group, number: int) -> list[nn.Parameter]:
    if isinstance(group, Mapping):
        named: dict[str, object] = {str(name): value for name, value in group.items()}
    else:
        named = {"params": group}
    found = named.get("params", ())
    listed = list(found) if isinstance(found, Iterable) else [found]
    wrong = [type(one).__name__ for one in listed if not isinstance(one, nn.Parameter)]
    if wrong:
        hint = "give `optimizer.param_groups`, or lists of parameters"
        raise TrackerError(f"parameter group {number} holds a {wrong[0]}, expected parameters", hint=hint)
    return [one for one in listed if isinstance(one, nn.Parameter)]


def rates_by_parameter(
    lr: float | Sequence[float], groups: Mapping[str, int], count: int, step: int
) -> dict[str, float]:
    """Learning rates by parameter from those of the `count` parameter groups, in their order; one number is for all.

    Raises
    ------
    TrackerError
        If there are not as many rates as groups, or one of them cannot be.
    """
    if not isinstance(lr, Sequence):
        return dict.fromkeys(groups, learning_rate(lr, step))
    if len(lr) != count:
        hint = "give the tracker parameter_groups=, and commit one rate for each, in their order"
        raise TrackerError(f"step {step}: commit has {len(lr)} learning rates for {count} parameter groups", hint=hint)
    rates = [learning_rate(rate, step) for rate in lr]
    return {name: rates[number] for name, number in groups.items()}
